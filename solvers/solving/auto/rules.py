"""What `auto` runs, and when: one table per problem.

Two lanes run side by side, each a list of steps: one proves, the other looks for plans. A step runs
until it ends, or until its share of the time that is left is over; then the lane takes its next
step. The plan lane, when it has no more, asks the search again that gained most, with another seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from placegap.instances.problem.semantics import (
    LatencySubgraphs,
    LoadSemantics,
    Makespan,
    PipelineIteration,
    Semantics,
    with_plans,
)
from placegap.instances.structure.bottlenecks import memory_is_slack
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import Task
from placegap.solvers.core.registry import METHODS, parse_params, why_not
from placegap.solvers.core.starts import task_for
from placegap.solvers.solving.default_methods import proving_method

USUAL_S = 60.0
"""The limit where none is given."""

SMALL_PARTS, TRY_S, TRY_SHARE = 1_500, 3.0, 0.1
"""Graphs of so few ops and edges are first tried without any process: some seconds, or a share."""

BOUNDS = "bounds"
"""Stands for the portfolio of bounds where a step names its method."""

BOUND_SHARE, MAKESPAN_SHARE, LARGE_PARTS = 0.05, 0.2, 20_000
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

PATIENCE = 0.45
"""Of the time of the proof of a makespan, after which it must have proven more than was known."""

SECOND_TURNS, SECOND_SEED = 4, 1_000
"""Turns of each search after it, and their first seed beyond the task's."""

SECOND_S = 2.0
"""No step gets less, unless less is left."""

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
    patience : float
        Of that, after which it ends if no bound has risen by then.
    params : mapping
    seed : int
    is_placer : bool
        Whether it makes a plan of its own once, and does not search.
    """

    method: str
    semantics: Semantics
    share: float = 1.0
    patience: float = 1.0
    params: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0
    is_placer: bool = False

    def gives_up(self, share: float, *, has_proven: bool) -> bool:
        """Whether it ends after a share of its time.

        Examples
        --------
        >>> from placegap.instances import Makespan
        >>> step = AutoStep("decomposition", Makespan(), patience=0.45)
        >>> [step.gives_up(0.4, has_proven=False), step.gives_up(0.5, has_proven=False)]
        [False, True]
        >>> step.gives_up(0.5, has_proven=True)
        False
        """
        return self.patience < 1 and share > self.patience and not has_proven


def proofs(task: Task, workers: int) -> Iterator[AutoStep]:
    """The steps that prove, the one that proves most first.

    Examples
    --------
    >>> from placegap.instances import Makespan, MaxLoad, example
    >>> [step.method for step in proofs(Task(example(), Makespan()), 2)]
    ['bounds', 'decomposition', 'cp-sat', 'bounds']
    >>> chains = MaxLoad(plans="chain")
    >>> [(s.method, s.semantics.label) for s in proofs(Task(example(), chains), 2)][-2]
    ('noncontiguous', 'max_load any add')
    """
    own = task.semantics
    first = proving_method(own)
    parts = _parts(task)
    steps: list[AutoStep] = []
    if isinstance(own, Makespan):
        steps = [AutoStep(first, own), AutoStep("cp-sat", own)]
        if SMALL_PARTS < parts <= LARGE_PARTS and workers > 1:
            # what proves nothing makes room for a search
            steps[0] = replace(steps[0], patience=PATIENCE)
            steps[1:] = _second_searches(task)
    elif isinstance(own, LatencySubgraphs):
        steps = [AutoStep(first, own), AutoStep("latency-ip", own)]
    elif isinstance(own, PipelineIteration):
        steps = [AutoStep(first, own)]
    else:
        steps = [AutoStep(first, own, share=0.7), AutoStep("archer-exact", own, share=0.6)]
        steps += [AutoStep("throughput-ip", own, share=0.8)] * (first != "throughput-ip")
        if own.plans != "any":  # a bound on all plans is one on some of them
            steps.append(AutoStep("noncontiguous", with_plans(own, "any")))
    share = MAKESPAN_SHARE if isinstance(own, Makespan) else BOUND_SHARE
    yield AutoStep(BOUNDS, own, share=share if parts <= LARGE_PARTS else 0.5)
    for step in steps:
        if parts <= MOST_PARTS.get(step.method, parts) and _applies(step, task):
            yield _for_a_lane(step, workers if step.method not in SEARCHES else 1)
    yield AutoStep(BOUNDS, own)


def plans(
    task: Task, seed: int, waiting: Sequence[str] = (), workers: int = 1,
    least: Callable[[], int | None] = lambda: None,
) -> Iterator[AutoStep]:  # fmt: skip
    """The steps that look for plans, without end where a seed makes a difference.

    Placers that are still `waiting` come first, until a share of the time is over; those that are
    left then come after the first search. Of a large graph, whose proofs end early, the search has
    `workers`. `least` is the best value known by now: the search that gained most for its time,
    when it was last asked, is asked again.

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
        yield from _able(task, AutoStep("ideal-dp", with_plans(own, "chain"), share=0.3))
    if isinstance(own, Makespan) and _parts(task) <= LARGE_PARTS and memory_is_slack(task.instance):
        # once: another seed finds the same sides
        yield from _able(task, AutoStep("chain-sides", own, share=SIDES_SHARE, seed=seed))
    for turn, step in enumerate(_turns(_searches(task, workers), least)):
        yield replace(step, seed=seed + turn)
        yield from placing
    yield from placing


def _second_searches(task: Task) -> list[AutoStep]:
    """Searches for the lane that proves, with random numbers of their own."""
    names, seed = ("multilevel", "run-moves", "disjunctive-search"), task.limits.seed + SECOND_SEED
    return [
        AutoStep(name, task.semantics, TURN_SHARE, params=LATER.get(name, {}), seed=seed + turn)
        for turn, name in enumerate(SECOND_TURNS * names)
    ]


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
    if _parts(task) > LARGE_PARTS:  # a second search would begin anew with its lists and starts
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
    round_s = 1e-6 * ROUND_US * task.instance.arrays.num_groups * _parts(task)
    return limit_s is None or round_s <= max(1.0, limit_s)  # a short round is never left out


def _parts(task: Task) -> int:
    return task.instance.num_ops + len(task.instance.graph.edges)


def _placing(task: Task, names: Sequence[str]) -> Iterator[AutoStep]:
    """A step for each placer that does the task, or a narrower class of plans."""
    for name in names:
        able = task_for(task, name)
        if able is not None:
            yield AutoStep(name, able.semantics, PLACER_SHARE, is_placer=True)


def _able(task: Task, *steps: AutoStep, workers: int = 1) -> Iterator[AutoStep]:
    for step in steps:
        if _applies(step, task):
            yield _for_a_lane(step, workers)


def _applies(step: AutoStep, task: Task) -> bool:
    method = METHODS[step.method]
    other = Task(task.instance, step.semantics, task.limits)
    return why_not(method, other, parse_params(method, step.params)) is None


def _for_a_lane(step: AutoStep, workers: int) -> AutoStep:
    """With as many threads as there are cores, and without doing what others do: the placers have
    been asked, and beside a lane that looks for plans nothing needs to be annealed.
    """
    known = METHODS[step.method].params.model_fields
    chosen = {"workers": workers, "start": False, "anneal": workers == 1}
    params = {**{name: value for name, value in chosen.items() if name in known}, **step.params}
    return replace(step, params=params)
