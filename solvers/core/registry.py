"""The registry: every method's name, what it claims, and where it applies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Objective, Semantics
from placegap.instances.reading.errors import InputError, from_validation_error
from placegap.instances.reading.near_names import instead_of
from placegap.instances.referee.plan import Plan
from placegap.instances.referee.servers import check_semantics
from placegap.solvers.core.clock import compiled_s, now_s
from placegap.solvers.core.methods import HOMES
from placegap.solvers.core.progress import Listener, listening
from placegap.solvers.core.result import Outcome, Result, finish

if TYPE_CHECKING:
    from placegap.solvers.back_ends import SolverName
    from placegap.solvers.models.run_mip import Formulation


class Params(BaseModel):
    """Base of a method's parameters: frozen, and unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ExactParams(Params):
    """Base of the parameters of exact methods, which `exact.run_exact` runs.

    Attributes
    ----------
    start : bool
        Whether placers are asked for a first plan besides the task's incumbent.
    """

    start: bool = True

    @property
    def keeps_exact(self) -> bool:
        """Whether the method is exact with these parameters."""
        return True


@dataclass(frozen=True)
class Limits:
    """When a method stops: seconds, a relative gap that suffices, and its seed.

    `time_limit_s` None means no limit.
    """

    time_limit_s: float | None = None
    gap: float = 0.0
    seed: int = 0
    asked_s: float | None = None
    """The limit of the whole run, where `time_limit_s` is what is left of it."""

    @property
    def named_s(self) -> float:
        """The limit as messages name it."""
        return (self.asked_s if self.asked_s is not None else self.time_limit_s) or 0.0


class Start(NamedTuple):
    """A feasible plan and its value by the referee."""

    plan: Plan
    value_ns: int


@dataclass(frozen=True)
class Task:
    """One call of a method."""

    instance: Instance
    semantics: Semantics
    limits: Limits = Limits()
    incumbent: Plan | None = None
    """A feasible plan to start from, where the method can use one."""

    starts: tuple[Start, ...] = ()
    """Plans of fast placers and the incumbent, the best first (`exact.run_exact`)."""

    floor_ns: int = 0
    """A proven bound on all plans."""


Claim = Literal["exact", "heuristic", "bound"]
"""``exact``: its bound reaches the optimum, given time; ``bound``: it returns no plan at all."""


@dataclass(frozen=True)
class Method:
    """One line of the registry.

    Attributes
    ----------
    name : str
    claim : {"exact", "heuristic", "bound"}
    objectives : tuple of str
    paper : str
        Whose method it is.
    summary : str
        One line for tables.
    run : callable (Task, Params) -> Outcome
    params : type
        The method's parameters.
    applies : callable (Task, Params) -> str or None
        Why the method does not apply (semantics it does not model, size), or None if it does.
    missing : callable () -> str or None
        What has to be installed first, with the command that does it, or None.
    packages : tuple of str
        Distributions whose versions belong to a result.
    formulation : callable (Task, Params) -> Formulation, optional
        Of a method that solves a MIP: what `export.write_model` writes.
    """

    name: str
    claim: Claim
    objectives: tuple[Objective, ...]
    paper: str
    summary: str
    run: Callable[[Task, Params], Outcome]
    params: type[Params] = Params
    applies: Callable[[Task, Params], str | None] = lambda task, params: None
    missing: Callable[[], str | None] = lambda: None
    packages: tuple[str, ...] = ()
    formulation: Callable[[Task, Params], Formulation] | None = None


class Registry(MutableMapping[str, Method]):
    """Methods by name; that of `methods.HOMES` is loaded when it is first asked for.

    Names are known without loading anything.

    Examples
    --------
    >>> "heft" in METHODS, METHODS["heft"].claim
    (True, 'heuristic')
    """

    def __init__(self) -> None:
        self._loaded: dict[str, Method] = {}

    def __getitem__(self, name: str) -> Method:
        if name not in self._loaded:
            import_module(f"placegap.solvers.{HOMES[name]}")
        return self._loaded[name]

    def __setitem__(self, name: str, method: Method) -> None:
        self._loaded[name] = method

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*HOMES, *self._loaded]))

    def __len__(self) -> int:
        return len({**HOMES, **self._loaded})

    def __contains__(self, name: object) -> bool:
        return name in HOMES or name in self._loaded

    def add(self, method: Method) -> None:
        """Add a method; its name must be new."""
        if method.name in self._loaded:
            raise ValueError(f"method {method.name!r} is registered twice")
        self._loaded[method.name] = method


METHODS = Registry()


def register(method: Method) -> Method:
    """Add a method; its name must be new."""
    METHODS.add(method)
    return method


def find_method(name: str) -> Method:
    """The method of that name, or an InputError that offers others."""
    try:
        return METHODS[name]
    except KeyError:
        hint = instead_of(name, METHODS, "placegap methods")
        raise InputError(f"there is no method {name!r}{hint}") from None


def parse_params(method: Method, params: Mapping[str, object]) -> Params:
    """Validate parameters given as text or values."""
    try:
        return method.params.model_validate(dict(params))
    except ValidationError as error:
        raise from_validation_error(error, source=f"parameters of {method.name}") from None


def why_not(method: Method, task: Task, params: Params) -> str | None:
    """Why the method does not apply to the task, or None; at last, that it is not installed."""
    if task.semantics.objective not in method.objectives:
        return f"does not do {task.semantics.objective}"
    return method.applies(task, params) or method.missing()


def what_is_missing(method: Method, params: Params) -> str | None:
    """What has to be installed before a method can run with these parameters, or None.

    Examples
    --------
    >>> what_is_missing(METHODS["heft"], Params()) is None
    True
    """
    solver: SolverName = getattr(params, "solver", "highs")
    if solver != "highs":
        from placegap.solvers.back_ends import require

        try:
            require(solver)
        except InputError as error:
            return str(error)
    return method.missing()


def versions_of(method: Method) -> dict[str, str]:
    """Versions of the distributions that decide a method's results, placegap's own first.

    Examples
    --------
    >>> list(versions_of(METHODS["cp-sat"]))
    ['placegap', 'ortools']
    """
    return {name: version(name) for name in ("placegap", *method.packages)}


def solve(
    instance: Instance,
    semantics: Semantics,
    method: str,
    params: Mapping[str, object] | None = None,
    *,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    seed: int = 0,
    incumbent: Plan | None = None,
    progress: Listener | None = None,
) -> Result:
    """Run one method on one instance and let the referee judge it.

    Parameters
    ----------
    instance, semantics
        The problem, and what its numbers mean.
    method : str
        A name of the registry.
    params : mapping, optional
        The method's own parameters.
    time_limit_s, gap, seed
        When to stop, and the seed of methods that draw random numbers.
    incumbent : Plan, optional
        A plan to start from; it is ignored by methods that cannot use one.
    progress : callable, optional
        Called with a `progress.News` whenever a better plan or bound is known, by methods that
        tell, perhaps from other threads.

    Raises
    ------
    InputError
        Unknown method or parameters, impossible limits, a method that does not apply, or an
        instance that lacks what the semantics needs.

    Examples
    --------
    >>> from placegap.instances import Semantics, example
    >>> from placegap.solvers import solve
    >>> result = solve(example(), Semantics(objective="makespan"), "brute-force")
    >>> result.status, result.value_ns
    ('optimal', 34)
    """
    chosen = find_method(method)
    parsed = parse_params(chosen, params or {})
    _check_limits(time_limit_s, gap, seed)
    task = Task(instance, semantics, Limits(time_limit_s, gap, seed), incumbent)
    check_semantics(instance, semantics)
    reason = why_not(chosen, task, parsed)
    if reason is not None:
        if reason == chosen.missing():
            raise InputError(f"{method} {reason}")
        raise InputError(f"{method} does not apply to {instance.name}: {reason}")
    began, compiled = now_s(), compiled_s()
    with listening(instance, semantics, progress):
        outcome = _run(chosen, task, parsed)
    elapsed = now_s() - began
    return finish(
        instance,
        semantics,
        method,
        outcome,
        solve_s=max(0.0, elapsed - outcome.build_s),
        setup_s=compiled_s() - compiled,
        seed=seed,
        requested_gap=gap,
        bound_only=chosen.claim == "bound",
        options={**parsed.model_dump(mode="json"), "time_limit_s": time_limit_s, "gap": gap},
        versions=versions_of(chosen),
    )


def _run(method: Method, task: Task, params: Params) -> Outcome:
    if method.claim != "exact":
        return method.run(task, params)
    from placegap.solvers.solving.run_exact import run_exact

    return run_exact(method, task, params)


def _check_limits(time_limit_s: float | None, gap: float, seed: int) -> None:
    """Solvers read such numbers each in its own way, or not at all."""
    if time_limit_s is not None and not time_limit_s >= 0:
        raise InputError(f"time_limit_s must be at least 0 or None, not {time_limit_s}")
    if not 0 <= gap < 1:
        raise InputError(f"gap must be at least 0 and below 1, not {gap}")
    if seed < 0:
        raise InputError(f"seed must be at least 0, not {seed}")
