"""The registry: every method by its name, what its parameters are, and where it applies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import replace
from importlib import import_module

from pydantic import ValidationError

from placegap.instances.problem.semantics import memory_rule
from placegap.instances.reading.errors import InputError, from_validation_error, instead_of
from placegap.solvers.core.method import AnyMethod, Method, P, Params, T, Task
from placegap.solvers.core.method_homes import HOMES


class Registry(MutableMapping[str, AnyMethod]):
    """Methods by name; that of `method_homes.HOMES` is loaded when it is first asked for.

    Names are known without loading anything.

    Examples
    --------
    >>> "heft" in METHODS, METHODS["heft"].claim
    (True, 'heuristic')
    """

    def __init__(self) -> None:
        self._loaded: dict[str, AnyMethod] = {}

    def __getitem__(self, name: str) -> AnyMethod:
        if name not in self._loaded:
            import_module(f"placegap.solvers.{HOMES[name]}")
        return self._loaded[name]

    def __setitem__(self, name: str, method: AnyMethod) -> None:
        self._loaded[name] = method

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*HOMES, *self._loaded]))

    def __len__(self) -> int:
        return len({**HOMES, **self._loaded})

    def __contains__(self, name: object) -> bool:
        return name in HOMES or name in self._loaded

    def add(self, method: AnyMethod) -> None:
        """Add a method; its name must be new."""
        if method.name in self._loaded:
            raise ValueError(f"method {method.name!r} is registered twice")
        self._loaded[method.name] = method


METHODS = Registry()


def register(method: Method[P, T]) -> Method[P, T]:
    """Add a method; its name must be new."""
    METHODS.add(method)
    return method


def find_method(name: str) -> AnyMethod:
    """The method of that name, or an InputError that offers others."""
    try:
        return METHODS[name]
    except KeyError:
        hint = instead_of(name, METHODS, "placegap methods")
        raise InputError(f"there is no method {name!r}{hint}") from None


def parse_params(method: AnyMethod, params: Mapping[str, object]) -> Params:
    """Validate parameters given as text or values."""
    try:
        parsed: Params = method.params.model_validate(dict(params))
        return parsed
    except ValidationError as error:
        raise from_validation_error(error, source=f"parameters of {method.name}") from None


def why_not(method: AnyMethod, task: Task, params: Params) -> str | None:
    """Why the method does not apply to the task, or None; at last, that it is not installed.

    A memory rule that a method does not keep is kept around it, so it is asked about the other.
    """
    if memory_rule(task.semantics) not in method.memory_rules:
        plain = task.semantics.model_copy(update={"memory": method.memory_rules[0]})
        task = replace(task, semantics=plain)
    if task.semantics.objective not in method.objectives:
        return f"does not do {task.semantics.objective}"
    return method.applies(task, params) or method.missing()
