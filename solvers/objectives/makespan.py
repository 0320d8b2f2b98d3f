"""makespan: decomposition proves, paths and memory bound it, and two searches take turns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placegap.formulations.shared.devices import colocated_times
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.modules import clones_of
from placegap.solvers.bounds.cheap_bounds import LONGEST, PATH, WORK, path_ns, spread_bound
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import Task
from placegap.solvers.core.objective import Step, Strategy
from placegap.solvers.core.result import Bound

# Makespans with this many groups of ops, and edges between groups, are likely to be proven by
# `decomposition` (`python -m placegap.experiments.research.bench.default`).
SMALL_CHOICES = 1_500
# Equal ops are one class of its MIP, which takes 40 us for each op and edge to build.
MOST_KNAPSACK_PARTS = 200_000
# Work beside the longest path: of a decoder's step it is 1.2 to 1.5 times that, of training 2.
MOST_WIDTH = 1.5
# Of the time that is left, for plans of repeated layers: on six networks with 5,000 to 20,000 ops
# they are within 1 % of the best ones after 15 s. Larger graphs take seconds before the first one.
LAYERS_SHARE, MOST_LAYER_PARTS = 2 / 3, 300_000
SEARCHES = ("run-moves", "disjunctive-search")  # in the order of their turns: layers, single ops
# Moves of layers schedule the whole graph each time: at 100,000 ops and edges they still find more
# (Celeritas' Transformer: 3.51 s, and 3.61 by moves of single ops, of 3.67 at the start).
MOST_MOVED_PARTS = 150_000


def quick_bound(instance: Instance, semantics: Makespan) -> Bound:
    """The longest path with its transfers, or all work spread over the devices."""
    possible, together = colocated_times(instance)
    if not possible.any(axis=1).all():
        return Bound(0, LONGEST)  # some ops can be nowhere
    path = Bound(path_ns(instance, transfers=True), PATH)
    return max(path, Bound(spread_bound(together, possible), WORK), key=Bound.rank)


def strategy(task: Task[Makespan]) -> Strategy:
    """Decomposition, the knapsack before it where memory decides, and two searches."""
    return Strategy(
        provers=(Step("decomposition", task.semantics),),
        proofs=_proofs(task),
        first_plans=_first_plans(task),
        searches=tuple(Step(name, task.semantics) for name in _searches(task)),
        most_choices=SMALL_CHOICES,
        bounds=_bounds,
        bound_methods=(("getf-lp", 30.0, 60_000),),
        opinions=(("moirai", {}), ("pesto", {}), ("cp-sat", {})),
        explains_memory=True,
    )


def _proofs(task: Task[Makespan]) -> Iterator[Step]:
    rules, most = task.semantics, MOST_KNAPSACK_PARTS
    # its MIP may never end, and its bound is the best one where memory binds
    knapsack = Step("memory-knapsack", rules, share=0.5, most_parts=most, needs_bounds=False)
    both = Step("decomposition", rules), knapsack
    yield from both[::-1] if _is_knapsack(task) else both


def _is_knapsack(task: Task[Makespan]) -> bool:
    """Whether a makespan is most of all a matter of what goes where for want of memory."""
    # Hosts hold what no other device has room for, whole layers run one after another, or nearly
    # all ops do.
    from placegap.solvers.bounds.labels.layer_chain import stops_of

    if task.instance.num_parts > MOST_KNAPSACK_PARTS:
        return False
    relaxed, _ = relax_memory(task.instance, task.semantics)
    arrays = relaxed.arrays
    if arrays.memory_is_slack:
        return False
    room = sum(arrays.memory_bytes[~arrays.is_host].tolist())  # some have no limit
    if sum(arrays.group_bytes.tolist()) > room or stops_of(relaxed) is not None:
        return True
    time = np.where(relaxed.arrays.possible, arrays.time_ns, NO_WAY).min(axis=1)
    return bool(sum(time.tolist()) <= MOST_WIDTH * path_ns(relaxed, transfers=False))


def _first_plans(task: Task[Makespan]) -> tuple[Step, ...]:
    """Data parallelism where ops are clones, and one layer of each kind where they repeat."""
    layers = Step("repeated-layers", task.semantics, LAYERS_SHARE, most_parts=MOST_LAYER_PARTS)
    if max(clones_of(task.instance)) < 0:
        return (layers,)
    return Step("data-parallel", task.semantics, is_placer=True), layers


def _searches(task: Task[Makespan]) -> tuple[str, ...]:
    """The searches of a round, the one that finds most first."""
    if task.instance.num_parts > MOST_MOVED_PARTS:
        return ("disjunctive-search",)
    return SEARCHES


def _bounds(task: Task[Makespan], known: Bound, clock: Clock) -> Iterator[Bound]:
    """Work between heads and tails, chains of layers, and memory along chains and orders."""
    from placegap.solvers.bounds.portfolio import makespan_bounds

    yield from makespan_bounds(task, known, clock)
