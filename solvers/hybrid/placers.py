"""Hybrid plans by rule: equal stages, as in published configurations, and Piper's search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from typing import NamedTuple

import numpy as np

from placegap.instances.objectives.hybrid.checks import check_hybrid
from placegap.instances.objectives.hybrid.referee import (
    HybridStage,
    bubble_ns,
    least_bandwidth,
    stage_cost,
)
from placegap.instances.problem import HybridPipeline, Instance, Mode, Plan
from placegap.instances.problem.nets import stage_blocks
from placegap.solvers.core.method import Cost, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.hybrid.hybrid_cuts import HybridCutsParams, best_plan
from placegap.solvers.hybrid.problem import GREEDY, divisors, tensor_degrees, why_not_hybrid


@method(
    "equal-split",
    objectives=("hybrid_pipeline",),
    cites="Narayanan et al. 2021",
    starts={"hybrid_pipeline": Cost(20.0, 500.0, always=True)},
)
def equal_split(task: Task[HybridPipeline], params: Params | None = None) -> Outcome:
    """One d, t and mode for all, and the same number of layers in every stage.

    The baseline of Piper's authors, after PipeDream-2BW's planner. Layers of the kind that most
    layers have (transformer layers) are divided evenly; what comes before and after them goes with
    the first and the last stage, or into stages of its own. Where no kind has several layers, all
    of them are divided evenly. Of all numbers of stages, t and modes, each with the most replicas
    that there are devices for, the fastest plan that fits.
    """
    instance, semantics = task.instance, task.semantics
    check_hybrid(instance, semantics)
    split = _Split(instance, semantics)
    best: tuple[int, _Equal] | None = None
    for equal in split.candidates():
        value_ns = split.value_ns(equal, None if best is None else best[0])
        if value_ns is not None and (best is None or value_ns < best[0]):
            best = value_ns, equal
    if best is None:
        return Outcome(message="no equal split fits the memory")
    return Outcome(split.plan(best[1]))


class _Equal(NamedTuple):
    """Where each stage begins among the ordered layers, and its d, t and mode name."""

    begins: tuple[int, ...]
    replicas: int
    tensor: int
    name: str


class _Split:
    def __init__(self, instance: Instance, semantics: HybridPipeline) -> None:
        self.instance, self.semantics = instance, semantics
        block = stage_blocks(instance)
        assert block is not None, "no op is backward"
        self.order: list[list[int]] = [[] for _ in range(int(block.max()) + 1)]
        for i, b in enumerate(block.tolist()):
            self.order[b].append(i)
        self.bandwidth = least_bandwidth(instance)
        self.tensors = tensor_degrees(instance)
        names = [mode.name for op in instance.graph.ops for mode in op.ways]
        self.names = tuple(dict.fromkeys(names))
        self._known: dict[object, tuple[int, int] | None] = {}

    def candidates(self) -> Iterator[_Equal]:
        """Every equal split that there are devices for."""
        cuts = list(dict.fromkeys(self._cuts()))
        for begins in cuts:
            for t in self.tensors:
                most = self.instance.num_devices // (len(begins) * t)
                if not self.semantics.bubble:
                    most = min(most, self.semantics.microbatches // len(begins))
                if most:
                    d = int(divisors(self.semantics.microbatches, most)[-1])
                    yield from (_Equal(begins, d, t, name) for name in self.names)

    def _cuts(self) -> Iterator[tuple[int, ...]]:
        kinds = [self.instance.graph.ops[own[0]].kind for own in self.order]
        kind, count = Counter(kinds).most_common(1)[0]
        first, last = 0, len(kinds)
        # The layers before the first and after the last of the most frequent kind: embeddings and
        # heads.
        if count > 1:
            first = kinds.index(kind)
            last = len(kinds) - kinds[::-1].index(kind)
        for stages in range(1, min(last - first, self.instance.num_devices) + 1):
            for larger_first in (True, False):
                even = _even(first, last, stages, larger_first=larger_first)
                for before, after in product((False, True), repeat=2):
                    head = (0, *even) if before and first else (0, *even[1:])
                    own = (*head, last) if after and last < len(kinds) else head
                    if len(own) <= self.instance.num_devices:
                        yield own

    def value_ns(self, equal: _Equal, below: int | None) -> int | None:
        """Time of a batch; None if a stage does not fit, has no such mode, or is not `below`."""
        times, stages = list[int](), len(equal.begins)
        ends = (*equal.begins[1:], len(self.order))
        for s, (begin, end) in enumerate(zip(equal.begins, ends, strict=True)):
            in_flight = min(stages - s, self.semantics.microbatches // equal.replicas)
            cost = self._cost(equal, begin, end, in_flight)
            if cost is None or (below is not None and cost >= below):
                return None
            times.append(cost)
        bubble = self.semantics.bubble
        filled = bubble_ns(self.semantics, equal.replicas, times) if bubble else 0
        return max(times) + filled

    def _cost(self, equal: _Equal, begin: int, end: int, in_flight: int) -> int | None:
        key = begin, end, in_flight, equal[1:]
        if key not in self._known:
            # The memory of a stage depends on its place through `in_flight` alone, so stages are
            # computed once.
            self._known[key] = None
            ops = tuple(sorted(i for own in self.order[begin:end] for i in own))
            modes = [self.mode(i, equal) for i in ops]
            if None not in modes:
                stage = HybridStage(ops, (), equal.replicas, equal.tensor, in_flight)
                known = [mode for mode in modes if mode is not None]
                cost = stage_cost(self.instance, self.semantics, self.bandwidth, stage, known)
                self._known[key] = cost.time_ns, cost.memory_bytes
        found = self._known[key]
        limit = self.instance.cluster.devices[0].memory_bytes
        if found is None or (limit is not None and found[1] > limit):
            return None
        return found[0]

    def mode(self, i: int, equal: _Equal) -> Mode | None:
        """An op's mode of the name, or its only one for t."""
        own = [mode for mode in self.instance.graph.ops[i].ways if mode.tensor == equal.tensor]
        named = own if len(own) == 1 else [mode for mode in own if mode.name == equal.name]
        return named[0] if named else None

    def plan(self, equal: _Equal) -> Plan:
        """The split as a plan: stages on the devices as they come."""
        n, each = self.instance.num_ops, equal.replicas * equal.tensor
        servers = list(dict.fromkeys(device.server for device in self.instance.cluster.devices))
        order = sorted(
            range(self.instance.num_devices),
            key=lambda k: servers.index(self.instance.cluster.devices[k].server),
        )
        stage = [0] * n
        for b, own in enumerate(self.order):
            for i in own:
                stage[i] = int(np.searchsorted(equal.begins, b, side="right")) - 1
        modes = [self.mode(i, equal) for i in range(n)]
        return Plan(
            tuple(tuple(order[s * each : (s + 1) * each]) for s in stage),
            stage=tuple(stage),
            tensor=(equal.tensor,) * len(equal.begins),
            mode=tuple(mode.name for mode in modes if mode is not None),
        )


def _even(first: int, last: int, stages: int, *, larger_first: bool) -> Sequence[int]:
    """Where stages begin if their numbers of layers differ by at most one."""
    size, more = divmod(last - first, stages)
    sizes = [size + 1] * more + [size] * (stages - more)
    return tuple(accumulate((sizes if larger_first else sizes[::-1])[:-1], initial=first))


def _why_not_piper(task: Task[HybridPipeline], params: HybridCutsParams) -> str | None:
    if task.semantics.recompute != "per_layer":
        return "chooses modes layer by layer: recompute per_layer"
    return why_not_hybrid(task.instance, task.semantics)


@method(
    "piper", objectives=("hybrid_pipeline",), cites="Tarnawski et al. 2021", applies=_why_not_piper
)
def piper(task: Task[HybridPipeline], params: HybridCutsParams) -> Outcome:
    """DP over ideals, with greedy modes.

    A stage takes the fastest modes; where they do not fit, layers switch in the order of least
    time per byte saved until it fits. The rows of stages are those of `hybrid-cuts`' dynamic
    program, so that what differs is the rule.
    """
    check_hybrid(task.instance, task.semantics)
    plan = best_plan(task, params, np.array([GREEDY]))
    return Outcome(message=plan) if isinstance(plan, str) else Outcome(plan)
