"""What `auto` runs: steps that prove, and steps that look for plans.

Those that prove run in the process that was asked, and those that look for plans in another one
beside it. A step that proves has the whole time that is left, unless it ends; a search has a share
of it, and then the search that gained most is asked again, with another seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from placegap.instances.problem.sections import memory_is_slack
from placegap.instances.problem.semantics import (
    LatencySubgraphs,
    LoadSemantics,
    Makespan,
    PipelineIteration,
    Semantics,
    with_plans,
)
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import Task
from placegap.solvers.core.registry import METHODS, parse_params, why_not
from placegap.solvers.core.starts import task_for
from placegap.solvers.solving.default_methods import proving_method

SMALL_CHOICES = 1_500
"""Makespans with so many groups of ops, and edges between groups, are likely to be proven by
`decomposition` (`python -m placegap.experiments.research.bench.default`)."""

BOUNDS = "bounds"
"""Stands for the portfolio of bounds where a step names its method."""

BOUND_SHARE, LARGE_PARTS = 0.2, 20_000
"""Of the time, for the portfolio before anything else proves; half of it in larger graphs."""

MOST_PARTS = {"cp-sat": 20_000, "archer-exact": 20_000, "throughput-ip": 20_000}
"""Methods whose model of a larger graph fits neither into the time nor into the memory."""

FIRST_TURN, TURN_SHARE = 0.2, 0.5
"""Of the time, for the first turn of a search, and each later one: what which search gains differs
most from graph to graph."""

PARTS_SHARE = 0.4
"""Of the time, for the first turn of `multilevel`."""

SEARCHES = ("run-moves", "multilevel", "disjunctive-search")
"""Searches of a makespan, in the order of their turns: whole layers, parts, single ops."""

ROUND_US = 4.0
"""Microseconds that a round of `run-moves` takes for each colocation group times op or edge."""

LATER: Mapping[str, Mapping[str, object]] = {"run-moves": {"anew": True}}
"""Parameters of searches after their first turn: what anneals from a plan that the same annealing
has found rarely finds a better one, and a walk from elsewhere may."""

MOST_TURNS = 2
"""Turns in a row that one search may have while another one waits."""

SIDES_SHARE, ORDERS_SHARE = 0.2, 0.8
"""Of the time, for `chain-sides`, and later `disjunctive-search`, where memory is slack."""

PLACER_SHARE, PLACERS_SHARE = 0.1, 0.08
"""Of the time, for one of the placers that have not been asked yet, and for those of them that come
before the first search; the others come after it."""


@dataclass(frozen=True)
class AutoStep:
    """One run of a method of the registry.

    Attributes
    ----------
    method : str
    semantics : Semantics
        The task's own, or rules whose plans or bounds hold for it.
    share : float
        Of the time that is left when it begins.
    params : mapping
    seed : int
    is_placer : bool
        Whether it makes a plan of its own once, and does not search.
    """

    method: str
    semantics: Semantics
    share: float = 1.0
    params: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0
    is_placer: bool = False


def is_likely_proven(task: Task) -> bool:
    """Whether the method that proves most of such problems is likely to settle this one.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> is_likely_proven(Task(example(), Makespan()))
    True
    """
    is_small = not isinstance(task.semantics, Makespan) or _choices(task) <= SMALL_CHOICES
    return is_small and next(exact_steps(task), None) is not None


def _choices(task: Task) -> int:
    """What a makespan has to choose: groups of ops, and edges between them."""
    group, index = task.instance.arrays.group, task.instance.graph.index
    between = group[index.producer] != group[index.consumer]
    return task.instance.arrays.num_groups + int(between.sum())


def exact_steps(task: Task) -> Iterator[AutoStep]:
    """The exact methods for a task that can do it, the one that proves most first.

    Examples
    --------
    >>> from placegap.instances import Makespan, MaxLoad, example
    >>> [step.method for step in exact_steps(Task(example(), Makespan()))]
    ['decomposition', 'cp-sat']
    >>> [step.method for step in exact_steps(Task(example(), MaxLoad(plans="chain")))]
    ['ideal-dp', 'archer-exact', 'throughput-ip']
    """
    own = task.semantics
    names = [proving_method(own)]
    if isinstance(own, Makespan):
        names.append("cp-sat")
    elif isinstance(own, LatencySubgraphs):
        names.append("latency-ip")
    elif not isinstance(own, PipelineIteration):
        names += ["archer-exact", "throughput-ip"]
    steps = [AutoStep(name, own, seed=task.limits.seed) for name in dict.fromkeys(names)]
    parts = parts_of(task)
    yield from _able(task, *(s for s in steps if parts <= MOST_PARTS.get(s.method, parts)))


def bound_step(task: Task, share: float = 1.0) -> AutoStep:
    """The portfolio of bounds, in a share of the time."""
    return AutoStep(BOUNDS, task.semantics, share)


def plans(
    task: Task,
    seed: int,
    waiting: Sequence[str] = (),
    workers: int = 1,
    least: Callable[[], int | None] = lambda: None,
) -> Iterator[AutoStep]:
    """The steps that look for plans, without end where a seed makes a difference.

    Placers that are still `waiting` come first, until a share of the time is over; those that are
    left then come after the first search. Of a large graph the search has `workers`. `least` is the
    best value known by now: the search that gained most for its time, when it was last asked, is
    asked again. Loads begin with chains for other plans, and with any plans for their bound.

    Examples
    --------
    >>> from itertools import islice
    >>> from placegap.instances import Makespan, example
    >>> [(s.method, s.seed) for s in islice(plans(Task(example(), Makespan()), 7), 2)]
    [('chain-sides', 7), ('run-moves', 7)]
    """
    own, limit_s = task.semantics, task.limits.time_limit_s
    placing = _placing(task, waiting)
    clock = Clock(None if limit_s is None else PLACERS_SHARE * limit_s)
    while clock.left_s != 0.0 and (step := next(placing, None)) is not None:
        yield step
    if isinstance(own, LoadSemantics) and own.plans != "chain":
        chains = AutoStep("ideal-dp", with_plans(own, "chain"), 0.3, {"start": False})
        yield from _able(task, chains)
    if isinstance(own, LoadSemantics) and own.plans != "any":  # whose bound holds for some of them
        wider = AutoStep("noncontiguous", with_plans(own, "any"), 0.5, {"start": False})
        yield from _able(task, wider)
    is_small = isinstance(own, Makespan) and parts_of(task) <= LARGE_PARTS
    if is_small and memory_is_slack(task.instance):  # once: another seed finds the same sides
        yield from _able(task, AutoStep("chain-sides", own, share=SIDES_SHARE, seed=seed))
    for turn, step in enumerate(_turns(_searches(task, workers), least)):
        yield replace(step, seed=seed + turn)
        yield from placing
    yield from placing


def _turns(searches: list[AutoStep], least: Callable[[], int | None]) -> Iterator[AutoStep]:
    """The searches one after another, then again and again the one that gained most per second.

    Of equal ones, and after `MOST_TURNS` in a row, the one that has waited longest.

    Examples
    --------
    >>> from itertools import islice
    >>> from placegap.instances import Makespan
    >>> steps = [AutoStep(name, Makespan()) for name in ("run-moves", "annealing")]
    >>> [step.method for step in islice(_turns(steps, lambda: None), 3)]
    ['run-moves', 'annealing', 'run-moves']
    """
    waiting, in_a_row = list(range(len(searches))), 0
    rate = dict.fromkeys(waiting, inf)
    while waiting:
        able = waiting[:-1] if len(waiting) > 1 and in_a_row >= MOST_TURNS else waiting
        chosen = max(able, key=lambda at: rate[at])
        in_a_row = in_a_row + 1 if chosen == waiting[-1] else 1
        waiting.remove(chosen)
        waiting.append(chosen)
        before, began_s = least(), time.monotonic()
        step = searches[chosen]
        if rate[chosen] < inf:
            params = {**step.params, **LATER.get(step.method, {})}
            step = replace(step, share=max(step.share, TURN_SHARE), params=params)
        yield step
        after, spent_s = least(), max(1e-3, time.monotonic() - began_s)
        gained = 0 if before is None or after is None else before - after
        rate[chosen] = gained / spent_s


def _searches(task: Task, workers: int) -> list[AutoStep]:
    """The searches of a round, the one that finds most first."""
    own = task.semantics
    if not isinstance(own, Makespan):
        return list(_able(task, AutoStep("local-search", own, share=0.1)))
    if parts_of(task) > LARGE_PARTS:  # a second search would begin anew with its lists and starts
        return list(_able(task, AutoStep("disjunctive-search", own, share=0.9), workers=workers))
    runs, parts, orders = (AutoStep(name, own, FIRST_TURN) for name in SEARCHES)
    parts = replace(parts, share=PARTS_SHARE)
    if memory_is_slack(task.instance):
        orders = replace(orders, share=ORDERS_SHARE)
    if _cools_in_time(task):
        return list(_able(task, runs, parts, orders))
    return list(_able(task, parts, orders, runs))


def _cools_in_time(task: Task) -> bool:
    """Whether a round of `run-moves` is likely to end within the time: graphs of thousands of
    groups are left hot.
    """
    limit_s = task.limits.time_limit_s
    round_s = 1e-6 * ROUND_US * task.instance.arrays.num_groups * parts_of(task)
    return limit_s is None or round_s <= max(1.0, limit_s)  # a short round is never left out


def parts_of(task: Task) -> int:
    """Ops and edges of a task's graph."""
    return task.instance.num_ops + len(task.instance.graph.edges)


def _placing(task: Task, names: Sequence[str]) -> Iterator[AutoStep]:
    """A step for each placer that does the task, or a narrower class of plans."""
    for name in names:
        able = task_for(task, name)
        if able is not None:
            yield AutoStep(name, able.semantics, PLACER_SHARE, is_placer=True)


def _able(task: Task, *steps: AutoStep, workers: int = 1) -> Iterator[AutoStep]:
    for step in steps:
        method = METHODS[step.method]
        other = Task(task.instance, step.semantics, task.limits)
        if why_not(method, other, parse_params(method, step.params)) is None:
            yield with_params(step, {"workers": workers})


def with_params(step: AutoStep, params: Mapping[str, object]) -> AutoStep:
    """The step with those parameters that its method has."""
    known = METHODS[step.method].params.model_fields
    chosen = {name: value for name, value in params.items() if name in known}
    return replace(step, params={**step.params, **chosen})
