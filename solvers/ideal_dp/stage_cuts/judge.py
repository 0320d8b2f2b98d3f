"""Chains of cuts as plans, and what the referee says of them."""

from __future__ import annotations

from itertools import islice, permutations

import numpy as np

from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.plan import Plan
from placegap.solvers.ideal_dp.stage_cuts.problem import CutProblem, devices_alike

MOST_ORDERS = 120
"""Orders of unlike devices that are tried for one chain."""


class Judge:
    """Values of chains, each asked once.

    Attributes
    ----------
    best : (int, Plan) or None
        The best plan so far, and its value.
    slack_ns : int
        1 where plans that are as good as the best are of use, too.
    """

    def __init__(
        self, instance: Instance, semantics: PipelineIteration, problem: CutProblem
    ) -> None:
        self.instance, self.semantics, self.problem = instance, semantics, problem
        self.best: tuple[int, Plan] | None = None
        self.slack_ns = 0
        self._alike = devices_alike(instance)
        self._known: dict[bytes, bool] = {}

    @property
    def limit_ns(self) -> int | None:
        """What a plan must be below to be of use."""
        return None if self.best is None else self.best[0] + self.slack_ns

    @property
    def num_used(self) -> int:
        """Devices of the best plan."""
        return 0 if self.best is None else len(set(self.best[1].placement))

    def ask(self, walk: Ints) -> bool:
        """Judge a chain on devices in all orders; whether these were all that there are."""
        key = walk.tobytes()
        if key not in self._known:
            self._known[key] = self._ask(walk)
        return self._known[key]

    def _ask(self, walk: Ints) -> bool:
        count = len(walk) // self.semantics.stages_per_device
        every = range(self.instance.num_devices)
        stage = self._stages(walk)
        orders = [tuple(range(count))] if self._alike else permutations(every, count)
        tried = list(islice(orders, MOST_ORDERS + 1))
        complete = len(tried) <= MOST_ORDERS
        if not complete:
            tried = _likely(self.instance, count)
        for devices in tried:
            self.judge(Plan(tuple((devices[s % count],) for s in stage), stage=stage))
        return complete

    def _stages(self, walk: Ints) -> tuple[int, ...]:
        """Stage of each op."""
        before = self.problem.members[self.problem.head[walk]].sum(axis=0)
        return tuple((len(walk) - before)[self.problem.block].tolist())

    def keep(self, walk: Ints, plan: Plan) -> bool:
        """Put a chain on the devices of the best plan in its place, if it has the same value."""
        assert self.best is not None
        stage = self._stages(walk)
        given = plan.stage if plan.stage is not None else (0,) * len(stage)
        device = dict(zip(given, plan.placement, strict=True))
        other = Plan(tuple(device[s] for s in stage), stage=stage)
        verdict = evaluate(self.instance, other, self.semantics)
        same = verdict.feasible and verdict.value_ns == self.best[0]
        if same:
            self.best = self.best[0], other
        return same

    def judge(self, plan: Plan) -> None:
        """Keep a plan if it is feasible, and better than the best or as good on more devices."""
        verdict = evaluate(self.instance, plan, self.semantics)
        value_ns = verdict.value_ns if verdict.feasible else None
        if value_ns is None:
            return
        used = len(set(plan.placement))
        if self.best is None or (value_ns, -used) < (self.best[0], -self.num_used):
            self.best = value_ns, plan


def _likely(instance: Instance, count: int) -> list[tuple[int, ...]]:
    """Some orders of the devices: as they are, by speed, and both backwards."""
    speed = np.maximum(instance.arrays.time_ns, 0).sum(axis=0)
    rows = [list(range(instance.num_devices)), np.argsort(speed, kind="stable").tolist()]
    chosen = [tuple(row[:count]) for row in rows]
    return list(dict.fromkeys([*chosen, *(row[::-1] for row in chosen)]))
