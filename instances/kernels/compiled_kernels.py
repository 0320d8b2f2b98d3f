"""What kernels are compiled to: kept in a folder of the user's, compiled by one process at a time.

An entry's name holds all that its code depends on: what the kernel and those that it calls do, the
named tuples that they take, numba's version and the CPU. So it outlives an installation, nothing
that is out of date is ever read, and versions of placegap share what has not changed between them.
"""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core import config, types
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from placegap.instances.kernels.kernel_folder import cache_folder
from placegap.instances.kernels.loading import loading, watchers

try:
    import fcntl
except ImportError:  # not on Windows, where several processes may compile the same kernel
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".kernel"

# How long to wait for another process that compiles the same kernel. The longest takes 10 s on an
# idle core; a process that waits in vain compiles it, too.
PATIENCE_S = 120.0

POLL_S = 0.02

_settings: dict[str, Any] = vars(config)  # numba's own, which are attributes of a module


class Dispatcher(CPUDispatcher):
    """numba's, with our way of keeping what is compiled."""

    def compile(self, sig: Any) -> Any:
        """Compile it for types of arguments, or load what was compiled for them."""
        with global_compiler_lock, loading():
            args, _ = normalize_signature(sig)
            found: Any = self.overloads.get(tuple(args))
            if found is not None:
                return found.entry_point
            entry = self._entry(args)
            if not self._load(entry):
                with _watched(entry), _alone(entry):
                    if not self._load(entry):  # no other process has, meanwhile
                        with _spent() as spent:
                            super().compile(sig)
                        self._keep(entry, self.overloads[tuple(args)], spent.own_s)
            made: Any = self.overloads[tuple(args)]
            return made.entry_point

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """For a kernel that calls this one: the same code, whether it is called with a literal."""
        return super().get_call_template(
            tuple(map(types.unliteral, args)),
            {name: types.unliteral(kind) for name, kind in kws.items()},
        )

    def is_kept(self, args: tuple[Any, ...]) -> bool:
        """Whether it need not be compiled for these arguments."""
        entry = self._entry(tuple(map(self.typeof_pyval, args)))
        return entry is not None and entry.exists()

    def _entry(self, args: tuple[Any, ...]) -> Path | None:
        folder = cache_folder()
        if folder is None or not Path(self.py_func.__code__.co_filename).exists():
            return None  # what is typed in is not worth keeping
        context: Any = self.targetctx
        parts = (
            fingerprint(self.py_func),
            repr(sorted(self.targetoptions.items())),
            *map(_type_name, args),
            repr(context.codegen().magic_tuple()),
            repr([_settings[name] for name in ("OPT", "BOUNDSCHECK", "DEBUGINFO_DEFAULT")]),
            f"numba {numba.__version__}, llvmlite {llvmlite.__version__}",
        )
        module = self.py_func.__module__.removeprefix("placegap.")
        name = f"{module}.{self.py_func.__qualname__}".replace("<locals>.", "")
        return folder / f"{name}-{_digest('|'.join(parts))}{SUFFIX}"

    def _load(self, entry: Path | None) -> bool:
        """Use what an entry holds; whatever is wrong with it, it is compiled anew."""
        if entry is None:
            return False
        try:
            with entry.open("rb") as file:
                pickle.load(file)  # the seconds
                reduced = pickle.load(file)
            self.targetctx.refresh()
            compiled: Any = CompileResult._rebuild(self.targetctx, *reduced)
        except Exception:
            return False
        inserted = (compiled.entry_point, compiled.fndesc, [compiled.library])
        self.targetctx.insert_user_function(*inserted)
        self.add_overload(compiled)
        return True

    def _keep(self, entry: Path | None, compiled: Any, own_s: float) -> None:
        if entry is None or compiled.lifted or compiled.library.has_dynamic_globals:
            return
        data = pickle.dumps(own_s) + dumps(compiled._reduce())
        beside = entry.with_suffix(f".{os.getpid()}")
        with suppress(OSError):  # a full disk: it is compiled again
            try:
                beside.write_bytes(data)
                beside.replace(entry)
            finally:
                beside.unlink(missing_ok=True)


class _Spent:
    def __init__(self) -> None:
        self.own_s, self.others_s = 0.0, 0.0


_spending: list[_Spent] = []  # of the kernels compiled now: each is called by the one before it


@contextmanager
def _spent() -> Iterator[_Spent]:
    """The CPU time of this kernel alone; garbage is looked for a hundred times less often."""
    # A twelfth of it went into looking for garbage among the millions of objects of a compiler.
    usual = gc.get_threshold()
    if not _spending:
        gc.set_threshold(100 * usual[0], *usual[1:])
    spent, began = _Spent(), time.thread_time()
    _spending.append(spent)
    try:
        yield spent
    finally:
        all_s = time.thread_time() - began
        spent.own_s = all_s - spent.others_s
        _spending.pop()
        if _spending:
            _spending[-1].others_s += all_s
        else:
            gc.set_threshold(*usual)


_compiling: list[Path | None] = []  # entries compiled now: each is called by the one before it


@contextmanager
def _watched(entry: Path | None) -> Iterator[None]:
    """Notify the watchers of the outermost kernel that is compiled."""
    notified = [] if _compiling else list(watchers)
    _compiling.append(entry)
    for begin, _ in notified:
        begin()
    try:
        yield
    finally:
        _compiling.pop()
        for _, end in notified:
            end()


@contextmanager
def _alone(entry: Path | None) -> Iterator[None]:
    """Be the only process that compiles this entry."""
    # The lock ends with the process that holds it. Kernels are locked from callers to called, which
    # is the same order everywhere: no two processes wait for each other.
    if entry is None or fcntl is None:
        yield
        return
    path, until = entry.with_suffix(".lock"), time.monotonic() + PATIENCE_S
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("ab"))
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        break
                    time.sleep(POLL_S)
        except OSError:  # a folder without locks
            pass
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)  # processes that wait find the entry


def fingerprint(function: Any) -> str:
    """What a function does, in 32 digits: its code, and all that it reads and calls."""
    return _fingerprint(function, ())


_known: dict[FunctionType, str] = {}


def _fingerprint(function: FunctionType, callers: tuple[FunctionType, ...]) -> str:
    if function in callers:
        return f"caller {callers[::-1].index(function)}"
    if function not in _known:
        closed = [cell.cell_contents for cell in function.__closure__ or ()]
        parts = [repr(function.__defaults__)]
        parts += [_reads(value, (*callers, function)) for value in closed]
        for code in _codes(function.__code__):
            constants = [value for value in code.co_consts if not isinstance(value, CodeType)]
            if function.__doc__ is not None and code is function.__code__:
                constants[0] = None
            parts += [code.co_code.hex(), repr(constants), repr(code.co_varnames)]
            for name in code.co_names:
                value = function.__globals__.get(name, None)
                parts.append(f"{name}={_reads(value, (*callers, function))}")
        _known[function] = _digest("|".join([sys.implementation.cache_tag or "", *parts]))
    return _known[function]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _reads(value: Any, callers: tuple[FunctionType, ...]) -> str:
    """What of a global name's value goes into the code of a kernel."""
    if hasattr(value, "targetoptions"):  # a kernel
        return _fingerprint(value.py_func, callers) + repr(sorted(value.targetoptions.items()))
    if isinstance(value, FunctionType):
        return _fingerprint(value, callers)
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.tolist()}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}{getattr(value, '_fields', '')}"
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, tuple):
        return f"{type(value).__qualname__}({','.join(_reads(part, callers) for part in value)})"
    if value is None or isinstance(value, int | float | str | np.generic):
        return repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _type_name(kind: Any) -> str:
    """A type by name, with the fields of named tuples, which numba's own name leaves out."""
    if not isinstance(kind, types.BaseTuple):
        return str(kind)
    held: Any = kind
    parts = ", ".join(map(_type_name, held))
    made = getattr(kind, "instance_class", tuple)
    return f"{made.__module__}.{made.__qualname__}{getattr(made, '_fields', '')}({parts})"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Kept(NamedTuple):
    """An entry of the cache."""

    name: str
    compile_s: float  # CPU seconds that compiling it took, without the kernels that it calls
    size_bytes: int


def kept_kernels() -> list[Kept]:
    """What the cache holds, slowest to compile first."""
    # One kernel may have been compiled for several types, or by several versions of placegap.
    folder = cache_folder()
    found = []
    for entry in () if folder is None else sorted(folder.glob(f"*{SUFFIX}")):
        with suppress(OSError, pickle.UnpicklingError, EOFError), entry.open("rb") as file:
            name = entry.name.removesuffix(SUFFIX).rpartition("-")[0]
            found.append(Kept(name, float(pickle.load(file)), entry.stat().st_size))
    return sorted(found, key=lambda kept: -kept.compile_s)


def forget_kernels() -> int:
    """Empty the cache; how many entries it had."""
    folder = cache_folder()
    entries = [] if folder is None else list(folder.glob(f"*{SUFFIX}"))
    for entry in entries:
        entry.unlink(missing_ok=True)
    return len(entries)
