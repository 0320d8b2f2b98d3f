"""How kernels are compiled: once per machine, and without what nobody calls.

Compiling is most of a first run. numba writes a second entry into every kernel, for C code that
holds its address; there is none here, and without it kernels compile in a tenth less time. Another
twelfth went into looking for garbage among the millions of small objects of a compiler.

numba keeps what it has compiled in the folder that NUMBA_CACHE_DIR names, else beside the code,
else in the user's cache. Where none of them can be written, kernels are kept in a temporary folder,
and where there is none either, nowhere; one line says so, and processes that are started inherit
it.
"""

from __future__ import annotations

import gc
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, overload

from numba import config, njit
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])

UNCACHED = "PLACEGAP_UNCACHED_KERNELS"
"""Environment variable: set for processes that are started where no folder can be written."""


_settings: dict[str, Any] = vars(config)
"""numba's own, which are attributes of a module."""


@overload
def kernel(function: F) -> F: ...
@overload
def kernel(*, allocates: bool = True, **options: bool | str) -> Callable[[F], F]: ...
def kernel(function: Any = None, *, allocates: bool = True, **options: bool | str) -> Any:
    """Compile a function of numbers and arrays where it is first called, and keep the result.

    Parameters
    ----------
    function : callable
        What `numba.njit` can compile.
    allocates : bool
        Whether it makes or returns arrays. Where it does not, no references to those that it gets
        are counted. Counting was up to three quarters of the time of small functions.
    **options
        More options of njit: ``nogil``, ``inline``, ``boundscheck``, ``fastmath``.

    Examples
    --------
    `sizes_of` is a kernel; code that is typed in has no file beside which to keep the result.

    >>> import numpy as np
    >>> from placegap.instances.problem.kernels import sizes_of
    >>> sizes_of(np.array([0, 2, 5])).tolist()
    [2, 3]
    """
    # numba calls it nrt; left out, it would be what the caller of the kernel has
    chosen: dict[str, Any] = {"cache": True, "no_cfunc_wrapper": True, "_nrt": allocates, **options}

    def compiled(function: Any) -> Any:
        if UNCACHED not in os.environ:
            with suppress(RuntimeError):  # numba knows no folder for it
                return njit(**chosen)(function)
            if not _settings["CACHE_DIR"] and Path(function.__code__.co_filename).exists():
                _keep_elsewhere("placegap's own folder and the user's cache")
                return compiled(function)
        return njit(**{**chosen, "cache": False})(function)

    return compiled if function is None else compiled(function)


def _keep_elsewhere(why: str) -> None:
    """Keep kernels in a temporary folder from now on, or nowhere, and say so in one line."""
    folder = _temporary_folder()
    if folder is None:
        os.environ[UNCACHED] = "1"
        what = "every process compiles its kernels anew"
    else:
        os.environ["NUMBA_CACHE_DIR"] = _settings["CACHE_DIR"] = str(folder)
        what = f"compiled kernels are kept in {folder}"
    if sys.stderr is not None:
        mend = "set NUMBA_CACHE_DIR to a folder that can"
        print(f"placegap: {why} cannot be written, and so {what}; {mend}", file=sys.stderr)


def _temporary_folder() -> Path | None:
    """A folder of this user's for temporary files, the same for every process; or None.

    What is in it is run: it is not used where anybody else may write into it.
    """
    try:
        folder = Path(tempfile.gettempdir()) / f"placegap-kernels-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or shared:
            folder = Path(tempfile.mkdtemp(prefix="placegap-kernels-"))
        return folder if _is_writable(folder) else None
    except OSError:
        return None


def _is_writable(folder: Path) -> bool:
    """Whether files can be made there, as numba finds out."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


_stated = _settings["CACHE_DIR"]
if _stated and not _is_writable(Path(_stated)):  # numba would not say so
    _keep_elsewhere(f"the folder NUMBA_CACHE_DIR={_stated}")


class _LessGarbage(event.Listener):
    """Garbage is looked for a hundred times less often while numba compiles."""

    def __init__(self) -> None:
        self.depth, self.usual = 0, gc.get_threshold()

    def on_start(self, event: object) -> None:
        self.depth += 1
        if self.depth == 1:
            self.usual = gc.get_threshold()
            gc.set_threshold(100 * self.usual[0], *self.usual[1:])

    def on_end(self, event: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            gc.set_threshold(*self.usual)


event.register("numba:compile", _LessGarbage())
