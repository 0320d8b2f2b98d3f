"""Every plan of a few ops or layers with shared devices, by the second referee's own sums.

Of hybrid plans all rows of stages, all replicas and tensor degrees, and for each stage all choices
of modes: what a stage holds and takes depends on the others by its microbatches in flight alone.

Every way to share devices out to stages: for max_load with replicas or with two levels of
communication, and for chains of stages of pipeline_iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, permutations, product

from placegap.instances.objectives.hybrid.oracle import (
    batch_ns,
    flights,
    narrowest,
    stage_memory_bytes,
    stage_time_ns,
)
from placegap.instances.objectives.iteration.oracle import is_exchange
from placegap.instances.oracle.facts import Facts
from placegap.instances.oracle.recheck import recheck
from placegap.instances.problem import (
    HybridPipeline,
    Instance,
    Loads,
    Mode,
    PipelineIteration,
    Plan,
    Semantics,
)

MOST_STAGED_OPS = 7
MOST_STAGED_DEVICES = 4

MOST_PLANS = 2**13  # each takes about a millisecond


def best_stages(instance: Instance, semantics: Loads) -> tuple[int, Plan] | None:
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


def _stagings(instance: Instance, semantics: Loads) -> Iterator[Plan]:
    """Every op in a stage, groups together, stages the same or disjoint."""
    group = instance.arrays.group.tolist()
    count = instance.num_devices
    sizes = range(1, count + 1 if semantics.has_replicas else 2)
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


Stages = tuple[tuple[int, ...], ...]  # groups of each stage

Degrees = tuple[tuple[int, int], ...]
"""Replicas and tensor degree of each stage."""


class _Groups:
    """Colocation groups of an instance, and how they may run."""

    def __init__(self, instance: Instance, semantics: HybridPipeline) -> None:
        self.instance, self.semantics = instance, semantics
        self.facts = Facts(instance)
        self.width = narrowest(self.facts)
        names: dict[str, list[int]] = {}
        for i, op in enumerate(self.facts.ops):
            names.setdefault(f"\n{i}" if op.colocation is None else op.colocation, []).append(i)
        self.ops = list(names.values())
        of = {i: g for g, own in enumerate(self.ops) for i in own}
        self.arcs = {(of[a], of[b]) for a, b, _ in self.facts.ends if of[a] != of[b]}
        self.tensors = sorted({mode.tensor for op in self.facts.ops for mode in op.ways})
        self._best: dict[object, tuple[int, dict[int, Mode]] | None] = {}

    def rows(self) -> Iterator[Stages]:
        """All ordered partitions of the groups in which no edge leads back."""
        count = len(self.ops)
        for stage in product(range(count), repeat=count):
            if set(stage) == set(range(max(stage) + 1)) and all(
                stage[a] <= stage[b] for a, b in self.arcs
            ):
                yield tuple(
                    tuple(g for g in range(count) if stage[g] == s) for s in range(max(stage) + 1)
                )

    def degrees(self, stages: int) -> list[Degrees]:
        """All replicas and tensor degrees of a number of stages."""
        n, devices = self.semantics.microbatches, self.instance.num_devices
        single = [(d, t) for d in range(1, n + 1) if n % d == 0 for t in self.tensors]
        found: list[Degrees] = [()]
        for left in range(stages - 1, -1, -1):  # each stage that follows takes a device at least
            found = [
                (*row, (d, t))
                for row in found
                for d, t in single
                if sum(x * y for x, y in row) + d * t + left <= devices
                and (self.semantics.bubble or sum(x for x, _ in row) + d + left <= n)
                and (not row or self.semantics.degrees == "free" or t == row[0][1])
                and (not row or self.semantics.degrees != "one" or d == row[0][0])
            ]
        return found

    def best_modes(
        self, groups: tuple[int, ...], degree: tuple[int, int], in_flight: int, name: str | None
    ) -> tuple[int, dict[int, Mode]] | None:
        """Least time of a stage and the modes that have it; all by one name where one is given."""
        key = groups, degree, in_flight, name
        if key not in self._best:
            found = None
            for row in self._choices(groups, degree[1], name):
                if not self._holds(row, degree[0], in_flight):
                    continue
                rates = degree[0], self.width
                time_ns = stage_time_ns(self.facts, row, self.semantics, rates)
                if found is None or time_ns < found[0]:
                    found = time_ns, row
            self._best[key] = found
        return self._best[key]

    def _holds(self, row: dict[int, Mode], replicas: int, in_flight: int) -> bool:
        limit = self.facts.devices[0].memory_bytes
        held = stage_memory_bytes(row, self.semantics, replicas, in_flight)
        return limit is None or held <= limit

    def _choices(
        self, groups: tuple[int, ...], tensor: int, name: str | None
    ) -> Iterator[dict[int, Mode]]:
        ways = []
        for g in groups:
            first = self.facts.ops[self.ops[g][0]]
            names = [mode.name for mode in first.ways if mode.tensor == tensor]
            own = names if len(names) < 2 or name is None else [n for n in names if n == name]
            ways.append(
                [
                    {
                        i: mode
                        for i in self.ops[g]
                        for mode in self.facts.ops[i].ways
                        if (mode.name, mode.tensor) == (chosen, tensor)
                    }
                    for chosen in own
                ]
            )
        for parts in product(*ways):
            yield {i: mode for part in parts for i, mode in part.items()}

    def mode_names(self) -> list[str]:
        return sorted({mode.name for op in self.facts.ops for mode in op.ways})


def count_rows(instance: Instance, semantics: HybridPipeline) -> int:
    """At least how many rows of stages, with their degrees, there are to look at."""
    groups = instance.arrays.num_groups
    whole = [d for d in range(1, instance.num_devices + 1) if semantics.microbatches % d == 0]
    tensors = {mode.tensor for op in instance.graph.ops for mode in op.ways}
    stages = min(groups, instance.num_devices)
    return int(groups**groups * (len(whole) * len(tensors)) ** stages)


def best_hybrid(instance: Instance, semantics: HybridPipeline) -> tuple[int, Plan] | None:
    """Least time of a batch in ns and a plan that has it, or None if no plan is feasible."""
    groups = _Groups(instance, semantics)
    best: tuple[int, Plan] | None = None
    names: list[list[str | None]] = [[None]]
    if semantics.recompute == "per_stage":
        names = [list(groups.mode_names())]
    elif semantics.recompute == "all_or_none":
        names = [[name] for name in groups.mode_names()]
    most = min(len(groups.ops), instance.num_devices)
    degrees_of = [groups.degrees(stages) for stages in range(most + 1)]
    for row in groups.rows():
        for degrees in degrees_of[len(row)] if len(row) <= most else ():
            for own in names:
                found = _best_of_row(groups, row, degrees, own)
                if found is None or (best is not None and found[0] >= best[0]):
                    continue
                plan = _as_plan(groups, row, degrees, found[1])
                verdict = recheck(instance, plan, semantics)
                if verdict.feasible and verdict.value_ns is not None:
                    assert verdict.value_ns == found[0], (verdict.value_ns, found[0])
                    best = verdict.value_ns, plan
    return best


def _best_of_row(
    groups: _Groups, row: Stages, degrees: Degrees, names: list[str | None]
) -> tuple[int, dict[int, Mode]] | None:
    times, modes = list[int](), dict[int, Mode]()
    for s, own in enumerate(row):
        in_flight = flights([degree for degree, _ in degrees], s, groups.semantics)
        found = [groups.best_modes(own, degrees[s], in_flight, name) for name in names]
        able = [each for each in found if each is not None]
        if not able:
            return None
        chosen = min(able, key=lambda each: each[0])
        times.append(chosen[0])
        modes.update(chosen[1])
    return batch_ns(times, groups.semantics, degrees[0][0]), modes


def _as_plan(groups: _Groups, row: Stages, degrees: Degrees, modes: dict[int, Mode]) -> Plan:
    """Stages on the devices as they come, the largest tensor degrees first."""
    on, used = dict[int, tuple[int, ...]](), 0
    for s in sorted(range(len(row)), key=lambda s: -degrees[s][1]):
        count = degrees[s][0] * degrees[s][1]
        on[s] = tuple(range(used, used + count))
        used += count
    stage = {i: s for s, own in enumerate(row) for g in own for i in groups.ops[g]}
    ops = range(len(stage))
    return Plan(
        tuple(on[stage[i]] for i in ops),
        stage=tuple(stage[i] for i in ops),
        tensor=tuple(t for _, t in degrees),
        mode=tuple(modes[i].name for i in ops),
    )
