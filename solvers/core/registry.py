"""The registry: every method by its name, those of the package and those of other people.

A method of the package is loaded when it is first used (`method_homes`), because together they
take seconds. Other people's come in three ways, and none of them changes the package:

- A distribution lists them as entry points of the group ``placegap.methods``: the name of the
  method, and the module that registers it. It is loaded when a name is used that no other method
  has.
- ``--module`` or the variable ``PLACEGAP_MODULES`` names modules, or their files. Processes that
  are started later inherit the variable, and so have the same methods.
- A script imports a module that registers one. It is passed on to the processes of `WorkerProcess`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import cleandoc, isclass, signature
from pathlib import Path
from types import ModuleType
from typing import TypeVar, Unpack, get_args

from pydantic import ValidationError

from placegap.instances.kernels.loading import loading
from placegap.instances.problem import Objective
from placegap.instances.reading.errors import InputError, from_validation_error, instead_of
from placegap.solvers.core.method import About, AnyMethod, Claim, Cost, Method, P, Params, T, Task
from placegap.solvers.core.method_homes import HOMES
from placegap.solvers.core.result import Outcome

GROUP = "placegap.methods"  # the group of entry points by which a distribution lists methods
MODULES = "PLACEGAP_MODULES"  # names modules with methods, as PATH names folders

OURS = "placegap"

STAND_INS = f"{OURS}.experiments.research.stand_ins"

# Names that methods had up to 0.2, and what to do instead.
GONE = {
    **dict.fromkeys(
        ("fastt", "getf-milp", "mp-dps", "slicegraph"),
        f"its paper was not available; in a checkout, --module {STAND_INS} adds it",
    ),
    **dict.fromkeys(
        ("archer-bottleneck", "archer-three-blocks"), "archer-combinatorial bounds the same plans"
    ),
}

Run = TypeVar("Run", bound=Callable[..., Outcome])


class Registry(MutableMapping[str, AnyMethod]):
    """Methods by name; names are known without loading the package's own methods."""

    def __init__(self) -> None:
        self._loaded: dict[str, AnyMethod] = {}
        self._origins: dict[str, str] = {}
        self._read: dict[str, tuple[str, ...]] = {}
        self._inherited: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> AnyMethod:
        if name not in self._loaded:
            with loading():
                self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> None:
        if name in HOMES:
            module = HOMES[name].module
            import_module(module if module.startswith(OURS) else f"{OURS}.solvers.{module}")
        else:
            self._load_modules()
            if name not in self._loaded and name in self._entries:
                self._load_entry(name)

    def __setitem__(self, name: str, method: AnyMethod) -> None:
        self._loaded[name] = method

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        self._load_modules()
        return iter(dict.fromkeys([*HOMES, *self._loaded, *self._entries]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in HOMES or name in self._loaded or name in list(iter(self))

    def add(self, method: AnyMethod) -> None:
        """Add a method; its name must be new."""
        is_ours = _module_of(method).startswith(f"{OURS}.")
        if method.name in self._loaded or (method.name in HOMES and not is_ours):
            raise InputError(f"the name {method.name!r} is taken: there is such a method already")
        self._loaded[method.name] = method

    def origin(self, name: str) -> str:
        """Who brings a method: the name and version of a distribution, or a module."""
        if name in HOMES:
            return OURS
        return self._origins.get(name) or _module_of(self[name])

    def modules_of(self, name: str) -> tuple[str, ...]:
        """The modules that bring a method from outside of the package; none for its own methods."""
        # They are those that `--module` names, that a distribution lists, and that define its
        # parts.
        if name in HOMES:
            return ()
        method = self[name]
        run = getattr(method.run, "func", method.run)  # of a `functools.partial`
        found = {str(part.__module__) for part in (run, method.applies, method.params)}
        found |= {_name_of(module) for module, names in self._read.items() if name in names}
        if name in self._entries:
            found.add(self._entries[name].module)
        ours = (OURS, *sys.stdlib_module_names)
        return tuple(sorted(one for one in found if one.partition(".")[0] not in ours))

    def start_costs(self) -> Iterator[tuple[str, Mapping[Objective, Cost]]]:
        """What methods cost as starts, by objective, in the order of asking."""
        # Those that are only installed do not count: what `auto` finds must not depend on that.
        yield from ((name, home.starts) for name, home in HOMES.items() if home.starts)
        self._load_modules()
        for name, method in self._loaded.items():
            if name not in HOMES and method.starts:
                yield name, method.starts

    def load_module(self, module: str) -> tuple[str, ...]:
        """Load a module, by its name or its file, and return the names that it registers."""
        if module not in self._read:
            before = set(self._loaded)
            try:
                loaded = _module_at(module)
            except InputError as error:
                raise InputError(f"module {module}: {error}") from None
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                raise InputError(f"module {module} cannot be loaded: {said}") from error
            names = [
                name
                for name, method in self._loaded.items()
                if name not in before or f"{_module_of(method)}.".startswith(f"{loaded.__name__}.")
            ]
            if not names:
                raise InputError(f"module {module} registers no method (placegap.solvers.method)")
            self._read[module] = tuple(names)
            self._origins |= dict.fromkeys(names, module)
        return self._read[module]

    def outside(self) -> tuple[str, ...]:
        """Modules whose methods another process has to load for itself."""
        loaded = (_module_of(m) for name, m in self._loaded.items() if name not in HOMES)
        return tuple(sorted({*self._inherited, *loaded} - {"__main__", ""}))

    def inherit(self, modules: Iterable[str]) -> None:
        """Take over the methods of the process that started this one (`outside`)."""
        self._inherited = tuple(modules)

    def _load_modules(self) -> None:
        for module in filter(None, os.environ.get(MODULES, "").split(os.pathsep)):
            self.load_module(module)
        inherited, self._inherited = self._inherited, ()
        for module in inherited:
            try:
                self.load_module(module)
            except InputError:  # it may need what only the other process has
                continue

    @cached_property
    def _entries(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in HOMES}

    def _load_entry(self, name: str) -> None:
        """Load a method of another distribution, whose version then stands in its results."""
        entry = self._entries[name]
        assert entry.dist is not None
        lists = f"{entry.dist.name} lists the method {name!r} as {entry.value}"
        try:
            brought = entry.load()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise InputError(f"{lists}, which cannot be loaded: {said}") from error
        if isinstance(brought, Method) and brought.name not in self._loaded:
            self.add(brought)
        if name not in self._loaded:
            raise InputError(f"{lists}, which registers no method of that name")
        packages = dict.fromkeys((*self._loaded[name].packages, entry.dist.name))
        self._loaded[name] = replace(self._loaded[name], packages=tuple(packages))
        self._origins[name] = f"{entry.dist.name} {entry.dist.version}"


METHODS = Registry()


def register(method: Method[P, T]) -> Method[P, T]:
    """Add a `method` and return it; its name must be new."""
    METHODS.add(method)
    return method


def method(
    name: str,
    *,
    objectives: tuple[Objective, ...],
    claim: Claim = "heuristic",
    cites: str = "",
    paper: str | None = None,
    **about: Unpack[About],
) -> Callable[[Run], Run]:
    """Register the decorated function as a method; the function is not changed.

    The annotation of its second parameter is the class of the method's parameters, or `Params`
    where there is none, and the first paragraph of its docstring is the method's summary.

    Parameters
    ----------
    name : str
        A new one.
    objectives : tuple of str
    claim : {"heuristic", "exact", "bound"}
    cites : str
        Papers, by author and year: ``"Kim and Browne 1988; Topcuoglu et al. 2002, section 4.1"``.
        They have the keys ``kim1988`` and ``topcuoglu2002`` in instances/data/references.bib.
    paper : str, optional
        Paper of the method, if it is not the method of all papers cited.
    **about
        Other fields of `Method`.

    Returns
    -------
    callable
        The decorator.

    Raises
    ------
    InputError
        If the name is taken, or a citation has no author or year.

    Examples
    --------
    >>> @method("first-device", objectives=("makespan",))
    ... def first_device(task, params):
    ...     "All ops on the first device."
    ...     return Outcome(Plan.on([0] * task.instance.num_ops))
    >>> METHODS.pop("first-device").summary
    'all ops on the first device'
    """
    cited = [words.partition(", ") for words in filter(None, cites.split("; "))]

    def add(run: Run) -> Run:
        METHODS.add(
            Method(
                name,
                claim,
                objectives,
                "; ".join(words for words, _, _ in cited) if paper is None else paper,
                _summary(run),
                run,
                _params_of(run),
                cites=tuple(_key(words) + comma + place for words, comma, place in cited),
                **about,
            )
        )
        return run

    return add


def _key(paper: str) -> str:
    """Of a paper in words, ``"after Su et al. 2020 (GETF)"``, the key ``"su2020"``."""
    found = re.search(r"([A-Z]\w+).* (\d{4})\b", paper)
    if found is None:
        raise InputError(f"{paper!r} cites no paper; name an author and a year: 'Su et al. 2020'")
    return f"{found[1].lower()}{found[2]}"


def _summary(run: Callable[..., Outcome]) -> str:
    """The first paragraph of the docstring, in lower case unless it begins with a name like ETF."""
    words = " ".join(cleandoc(run.__doc__ or "").partition("\n\n")[0].split()).removesuffix(".")
    return words if words[1:2].isupper() else words[:1].lower() + words[1:]


def _params_of(run: Callable[..., Outcome]) -> type[Params]:
    """The class that the second parameter is annotated with, perhaps as optional."""
    _, params, *_ = signature(run).parameters.values()
    kind = params.annotation
    if isinstance(kind, str):  # alone: what else is annotated may be known to type checkers only
        kind = eval(kind, getattr(run, "__globals__", {}))
    kinds = (k for k in (kind, *get_args(kind)) if isclass(k) and issubclass(k, Params))
    return next(kinds, Params)


def use_module(module: str) -> tuple[str, ...]:
    """Load a module that registers methods, here and in all processes that are started later.

    Parameters
    ----------
    module : str
        Its name, or the path of its file; the current folder is searched, too.

    Returns
    -------
    tuple of str
        The names of its methods.

    Raises
    ------
    InputError
        If it cannot be loaded, or registers no method, or a name that exists already.
    """
    module = str(module)
    if _is_path(module):
        module = str(Path(module).resolve())  # other processes may have another folder
    names = METHODS.load_module(module)
    known = list(filter(None, os.environ.get(MODULES, "").split(os.pathsep)))
    os.environ[MODULES] = os.pathsep.join(dict.fromkeys([*known, module]))
    return names


def _is_path(module: str) -> bool:
    return module.endswith(".py") or os.sep in module


def _name_of(module: str) -> str:
    """The name under which a module or a file is loaded."""
    return Path(module).stem if _is_path(module) else module


def _module_at(module: str) -> ModuleType:
    """The module of a name or of a file; its folder may hold others that it imports."""
    path = Path(module)
    folder = str(path.parent.resolve()) if _is_path(module) else os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    if not _is_path(module):
        return import_module(module)
    if not path.is_file():
        raise InputError("there is no such file")
    known = sys.modules.get(path.stem)
    if known is not None or path.stem in sys.stdlib_module_names:
        if known is not None and Path(getattr(known, "__file__", None) or "") == path.resolve():
            return known
        raise InputError(f"Python has another module {path.stem!r}; give the file another name")
    spec = spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError("it is not a file of Python code (.py)")
    loaded = module_from_spec(spec)
    sys.modules[path.stem] = loaded  # what it defines is pickled by this name
    try:
        spec.loader.exec_module(loaded)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return loaded


def _module_of(method: AnyMethod) -> str:
    return str(getattr(method.run, "__module__", ""))


def find_method(name: str) -> AnyMethod:
    """The method of that name, or an InputError that offers others."""
    try:
        return METHODS[name]
    except KeyError:
        if name in GONE:
            raise InputError(f"there is no method {name!r} any more: {GONE[name]}") from None
        hint = instead_of(name, METHODS, "placegap methods")
        own = "--module FILE adds your own"
        raise InputError(f"there is no method {name!r}{hint} ({own})") from None


def parse_params(method: AnyMethod, params: Mapping[str, object]) -> Params:
    """Validate parameters given as text or values."""
    try:
        parsed: Params = method.params.model_validate(dict(params))
        return parsed
    except ValidationError as error:
        where = f"parameters of {method.name}"
        raise from_validation_error(error, source=where, model=method.params) from None


def why_not(method: AnyMethod, task: Task, params: Params) -> str | None:
    """Why the method does not apply to the task, or None; at last, that it is not installed."""
    # A memory rule that a method does not keep is kept around it, by runs on other instances, and
    # `applies` is about these: devices that hold all resident bytes may differ in what they hold at
    # the peak.
    if task.semantics.memory_rule not in method.memory_rules:
        from placegap.instances.problem.additive_memory import relax_memory

        instance, semantics = relax_memory(task.instance, task.semantics)
        task = replace(task, instance=instance, semantics=semantics)
    if task.semantics.objective not in method.objectives:
        return f"does not do {task.semantics.objective}"
    return method.applies(task, params) or method.missing()
