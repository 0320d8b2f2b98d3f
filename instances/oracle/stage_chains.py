"""Every way to share devices out to stages, judged by the second referee.

For max_load with replicas or with two levels of communication, and for chains of stages of
pipeline_iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, permutations

from placegap.instances.oracle.facts import Facts
from placegap.instances.oracle.iteration import is_exchange
from placegap.instances.oracle.recheck import recheck
from placegap.instances.problem import (
    Instance,
    LoadSemantics,
    PipelineIteration,
    Plan,
    Semantics,
    has_replicas,
)

MOST_STAGED_OPS = 7
MOST_STAGED_DEVICES = 4

MOST_PLANS = 2**13
"""Each takes about a millisecond."""


def best_stages(instance: Instance, semantics: LoadSemantics) -> tuple[int, Plan] | None:
    """Least max_load in ns and a plan that has it, or None if no plan is feasible."""
    return _best(instance, semantics, _stagings(instance, semantics))


def _best(
    instance: Instance, semantics: Semantics, plans: Iterable[Plan]
) -> tuple[int, Plan] | None:
    """The first of the best plans that fit, and its value."""
    best = None
    for plan in plans:
        verdict = recheck(instance, plan, semantics)
        value_ns = verdict.value_ns if verdict.feasible else None
        if value_ns is not None and (best is None or value_ns < best[0]):
            best = value_ns, plan
    return best


def _stagings(instance: Instance, semantics: LoadSemantics) -> Iterator[Plan]:
    """Every op in a stage, groups together, stages the same or disjoint."""
    group = instance.arrays.group.tolist()
    count = instance.num_devices
    sizes = range(1, count + 1 if has_replicas(semantics) else 2)
    stages = [stage for size in sizes for stage in combinations(range(count), size)]
    chosen: list[tuple[int, ...]] = []

    def extend() -> Iterator[Plan]:
        if len(chosen) == len(group):
            yield Plan(tuple(chosen))
            return
        homes = [s for s, g in zip(chosen, group, strict=False) if g == group[len(chosen)]]
        for stage in stages:
            apart = all(stage == s or not set(stage) & set(s) for s in chosen)
            if apart and all(stage == s for s in homes):
                chosen.append(stage)
                yield from extend()
                chosen.pop()

    return extend()


def count_chains(instance: Instance, semantics: PipelineIteration) -> int:
    """How many ways there are to give groups a stage and stages a device, chain or not."""
    total, ways = 0, 1
    for p in range(1, instance.num_devices + 1):
        ways *= instance.num_devices + 1 - p
        total += int(ways * (p * semantics.stages_per_device) ** instance.arrays.num_groups)
        if total > MOST_PLANS:
            break
    return total


def best_chain(instance: Instance, semantics: PipelineIteration) -> tuple[int, Plan] | None:
    """Least time of an iteration in ns and its plan, or None if no plan is feasible."""
    return _best(instance, semantics, chains(instance, semantics))


def chains(instance: Instance, semantics: PipelineIteration) -> Iterator[Plan]:
    """Every chain of stages on every choice of devices, whether it fits or not."""
    group = instance.arrays.group.tolist()
    for p in range(1, instance.num_devices + 1):
        count = p * semantics.stages_per_device
        for chosen in _stages_of_groups(instance, count):
            stage = tuple(chosen[g] for g in group)
            for devices in permutations(range(instance.num_devices), p):
                yield Plan(tuple((devices[s % p],) for s in stage), stage=stage)


def _stages_of_groups(instance: Instance, count: int) -> Iterator[list[int]]:
    """Stage of each colocation group, none of them empty, none fed by a later one."""
    ops, number, num_groups = (
        instance.graph.ops,
        instance.graph.op_index,
        instance.arrays.num_groups,
    )
    group = instance.arrays.group.tolist()
    before: list[list[tuple[int, bool]]] = [[] for _ in range(num_groups)]
    facts = Facts(instance)
    for edge in instance.graph.edges:
        a, b = number[edge.producer], number[edge.consumer]
        if ops[a].backward == ops[b].backward and not is_exchange(facts, a, b):
            early, late = (b, a) if ops[a].backward else (a, b)
            before[max(group[a], group[b])].append(
                (min(group[a], group[b]), group[early] <= group[late])
            )
    chosen = [0] * num_groups

    def extend(g: int) -> Iterator[list[int]]:
        if g == num_groups:
            if len(set(chosen)) == count:
                yield list(chosen)
            return
        for s in range(count):
            if all(
                h == g or (chosen[h] <= s if lower_first else chosen[h] >= s)
                for h, lower_first in before[g]
            ):
                chosen[g] = s
                yield from extend(g + 1)

    yield from extend(0)
