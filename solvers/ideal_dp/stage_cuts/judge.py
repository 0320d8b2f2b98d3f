"""Chains of cuts as plans, and what the referee says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.clock import Clock
from placegap.solvers.pipeline.cuts import CutProblem, devices_alike, links_alike

MOST_ORDERS = 120
"""Orders of unlike devices that are tried for one chain."""


class Judge:
    """Values of chains, each asked once.

    Attributes
    ----------
    best : (int, Plan) or None
        The best plan so far, and its value.
    walk : (S,) int64 and CutProblem, or None
        The chain of the best plan, where it came from here.
    slack_ns : int
        1 where plans that are as good as the best are of use, too.
    below_ns : int or None
        What the first plan must be below, if anything.
    """

    def __init__(
        self,
        instance: Instance,
        semantics: PipelineIteration,
        clock: Clock,
        below_ns: int | None = None,
    ) -> None:
        self.instance, self.semantics, self.below_ns = instance, semantics, below_ns
        self.clock = clock
        self.best: tuple[int, Plan] | None = None
        self.walk: tuple[Ints, CutProblem] | None = None
        self.slack_ns = 0
        self._alike, self._links_alike = devices_alike(instance), links_alike(instance)
        self._known: dict[tuple[int, bytes], bool] = {}

    @property
    def limit_ns(self) -> int | None:
        """What a plan must be below to be of use."""
        return self.below_ns if self.best is None else self.best[0] + self.slack_ns

    @property
    def num_used(self) -> int:
        """Devices of the best plan."""
        return 0 if self.best is None else len(set(self.best[1].placement))

    def one_order(self, problem: CutProblem) -> bool:
        """Whether a chain has one value, on devices in whatever order its kinds leave open."""
        return self._alike or (bool(problem.kinds) and self._links_alike)

    def ask(self, walk: Ints, problem: CutProblem) -> bool:
        """Judge a chain on devices in all orders, as long as there is time; whether these were all
        that there are.
        """
        key = id(problem), walk.tobytes()
        if key not in self._known:
            self._known[key] = self._ask(walk, problem)
        return self._known[key]

    def _ask(self, walk: Ints, problem: CutProblem) -> bool:
        count = len(walk) // self.semantics.stages_per_device
        kind = problem.kind[walk[:count]].tolist()
        every = problem.kinds or (tuple(range(self.instance.num_devices)),)
        fixed = self.one_order(problem)
        tried = list(islice(_orders(kind, every), 1 if fixed else MOST_ORDERS + 1))
        complete = len(tried) <= MOST_ORDERS
        if not complete and not problem.kinds:
            tried = _likely(self.instance, count)
        stage = stages_of(walk, problem)
        for number, devices in enumerate(tried[:MOST_ORDERS]):
            if number and self.clock.left_s == 0.0:
                return False
            self.judge(_on(devices, stage))
            if self.best is not None and self.best[1].stage is stage:
                self.walk = walk, problem
        return complete

    def keep(self, walk: Ints, problem: CutProblem) -> bool:
        """Put a chain in the best plan's place, if it has the same value.

        It takes that plan's devices, or, where some stage is of another kind than its device, the
        first ones of its kinds: else the plan would not have the work and memory of the chain.
        """
        assert self.best is not None
        plan = self.best[1]
        assert plan.stage is not None
        count = len(walk) // self.semantics.stages_per_device
        device = dict(zip(plan.stage, plan.placement, strict=True))
        devices = tuple(device[s][0] for s in range(count))
        kind = problem.kind[walk[:count]].tolist()
        kinds = problem.kinds
        if kinds and any(k not in kinds[d] for k, d in zip(devices, kind, strict=True)):
            devices = next(_orders(kind, kinds))
        other = _on(devices, stages_of(walk, problem))
        verdict = evaluate(self.instance, other, self.semantics)
        same = verdict.feasible and verdict.value_ns == self.best[0]
        if same:
            self.best, self.walk = (self.best[0], other), (walk, problem)
        return same

    def judge(self, plan: Plan) -> None:
        """Keep a plan if it is feasible, and better than the best or as good on more devices."""
        verdict = evaluate(self.instance, plan, self.semantics)
        value_ns = verdict.value_ns if verdict.feasible else None
        if value_ns is None or (self.below_ns is not None and value_ns >= self.below_ns):
            return
        used = len(set(plan.placement))
        if self.best is None or (value_ns, -used) < (self.best[0], -self.num_used):
            self.best, self.walk = (value_ns, plan), None


def stages_of(walk: Ints, problem: CutProblem) -> tuple[int, ...]:
    """Stage of each op."""
    before = problem.members[problem.head[walk]].sum(axis=0)
    return tuple((len(walk) - before)[problem.block].tolist())


def _on(devices: Sequence[int], stage: tuple[int, ...]) -> Plan:
    """Ops in their stages, stages on the devices in turn."""
    return Plan(tuple((devices[s % len(devices)],) for s in stage), stage=stage)


def _orders(
    kind: Sequence[int], kinds: Sequence[Sequence[int]], taken: tuple[int, ...] = ()
) -> Iterator[tuple[int, ...]]:
    """Devices for stages of these kinds, each device once, the lower numbers first."""
    if len(taken) == len(kind):
        yield taken
        return
    for k in kinds[kind[len(taken)]]:
        if k not in taken:
            yield from _orders(kind, kinds, (*taken, k))


def _likely(instance: Instance, count: int) -> list[tuple[int, ...]]:
    """Some orders of the devices: as they are, by speed, and both backwards."""
    speed = np.maximum(instance.arrays.time_ns, 0).sum(axis=0)
    rows = [list(range(instance.num_devices)), np.argsort(speed, kind="stable").tolist()]
    chosen = [tuple(row[:count]) for row in rows]
    return list(dict.fromkeys([*chosen, *(row[::-1] for row in chosen)]))
