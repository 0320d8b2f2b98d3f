"""What an objective brings to the solvers: a module in `solvers/objectives`, loaded when used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Protocol, cast

from placegap.instances.problem import Instance, Objective, Semantics
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import Task
from placegap.solvers.core.registry import METHODS, parse_params, why_not
from placegap.solvers.core.result import Bound

# Ops and edges beyond which a MIP or CP model of the whole fits neither into the time nor into the
# memory, and one search has all of the time, for a second one would begin anew.
LARGE_PARTS = 20_000
TURN_SHARE = 1 / 3  # of the time that is left, for one of several searches
BOUNDS = "bounds"  # stands for the portfolio of bounds where a step names its method


@dataclass(frozen=True)
class Step:
    """One run of a method of the registry."""

    method: str
    semantics: Semantics  # the task's own, or rules whose plans or bounds hold for it
    share: float = 1.0  # of the time that is left when it begins
    params: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0
    most_parts: float = float("inf")  # larger graphs (ops + edges) are not for it
    needs_bounds: bool = True  # whether bounds run before it, if it is not likely or memory binds
    is_placer: bool = False  # whether it makes a plan of its own once, and does not search


@dataclass(frozen=True)
class Strategy:
    """How the tasks of an objective are solved: by which methods, in which order."""

    provers: tuple[Step, ...]  # exact methods, the one that settles most instances first
    proofs: Iterable[Step] = ()  # where others prove, too: in order, as some take a second to load
    #: Run once, before the searches take turns: for other plans, or for a bound.
    first_plans: tuple[Step, ...] = ()
    searches: tuple[Step, ...] = ()  # the search that finds most first
    most_choices: float = float("inf")  # with more groups of ops, and edges, a proof is not likely
    #: Bounds beyond a known one, within a time: cheapest first.
    bounds: Callable[[Task[Any], Bound, Clock], Iterator[Bound]] | None = None
    #: Methods that prove bounds, microseconds per part of the graph, and most parts.
    bound_methods: tuple[tuple[str, float, int], ...] = ()
    placers_of: Objective = ""  # whose placers make the first plans, where it is another one
    #: Methods, with parameters, that can check a result; by default the provers.
    opinions: tuple[tuple[str, Mapping[str, str]], ...] = ()
    explains_memory: bool = False  # whether `explain_infeasible` knows its memory rule
    is_alone: bool = False  # whether `auto` leaves the task to the first prover


class ObjectiveSolvers(Protocol):
    def quick_bound(self, instance: Instance, semantics: Any) -> Bound:
        """A bound that costs next to nothing, in integers; memory adds up."""

    def strategy(self, task: Task[Any]) -> Strategy:
        """How its tasks are solved; it costs next to nothing until steps are taken from it."""


def solvers_of(semantics: Semantics) -> ObjectiveSolvers:
    """The solvers' module of an objective."""
    name = f"placegap.solvers.objectives.{semantics.folder}"
    try:
        return cast("ObjectiveSolvers", import_module(name))
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise InputError(f"no method solves {semantics.objective}: there is no {name}") from None


def strategy(task: Task) -> Strategy:
    """How the tasks of its objective are solved."""
    return solvers_of(task.semantics).strategy(task)


def proofs(task: Task) -> Iterator[Step]:
    """The steps that prove and whose methods can do a task, the one that proves most first."""
    found = strategy(task)
    for step in able(task, found.proofs or found.provers):
        yield replace(step, seed=task.limits.seed)


def able(task: Task, steps: Iterable[Step], workers: int = 1) -> Iterator[Step]:
    """The steps that methods can do in a graph of this size, with as many workers as they use."""
    for step in steps:
        method = METHODS[step.method]
        other = Task(task.instance, step.semantics, task.limits)
        is_too_large = task.instance.num_parts > step.most_parts
        if not is_too_large and why_not(method, other, parse_params(method, step.params)) is None:
            yield with_params(step, {"workers": workers})


def with_params(step: Step, params: Mapping[str, object]) -> Step:
    """The step with those parameters that its method has."""
    known = METHODS[step.method].params.model_fields
    chosen = {name: value for name, value in params.items() if name in known}
    return replace(step, params={**step.params, **chosen})
