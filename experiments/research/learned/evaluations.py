"""Placements tried one after the other: what each takes, how many there were, the best of them.

The time of a placement is that of the compiled scheduler of `annealing`, so that both pay the same
for a placement; only the referee's value of the plan that comes back counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.integers import NO_LIMIT
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.progress import report
from placegap.solvers.core.result import Outcome
from placegap.solvers.local_search.disjunctive_graph import machines_of
from placegap.solvers.local_search.quick_schedule import (
    bottom_levels,
    insert_all,
    new_work,
    plan_of,
)

# Placeto's penalty is 2 per GB; a GB is 1/16 of the devices of its time, so 32 per device.
PENALTY, MOST_PENALTY = 32.0, 10.0
MOST_EVALUATIONS, EVALUATIONS_PER_OP = 4_000, 100  # placements that are tried by default


class Trial(NamedTuple):
    """What a placement takes, and by how much the fullest device overflows."""

    # `excess` is a share of the memory of that device, 0.0 where the placement fits.
    time_ns: int
    excess: float


@dataclass(frozen=True)
class CurvePoint:
    """One update of a policy: evaluated placements so far, mean of the update, best that fits."""

    # Without a placement that fits, `best_ns` is None.
    evaluated: int
    mean_ns: float
    best_ns: int | None


class Evaluations:
    """Placements of one instance, tried until the budget, a number of placements, is spent."""

    def __init__(
        self, instance: Instance, semantics: Makespan, budget: int, by: str = "learned"
    ) -> None:
        self.instance, self.semantics, self.by = instance, semantics, by
        self.left, self.done = budget, 0
        self.best_ns: int | None = None
        self.curve: list[CurvePoint] = []
        self._data = machines_of(instance, semantics)
        self._work = new_work(self._data)
        self._level = np.zeros(instance.num_ops, np.int64)
        self._best_device: Ints | None = None
        self._plan: Plan | None = None

    @property
    def start_ns(self) -> Ints:
        """Start of each op in the last schedule, (n,)."""
        return self._work.start[: self.instance.num_ops]

    def run(self, device: Ints) -> Trial:
        """Try a placement: a device for each op that can run it, (n,)."""
        bottom_levels(self._data, device, self._level)
        time_ns = int(insert_all(self._data, device, self._level, self._work))
        excess = self._excess(device)
        self.done, self.left = self.done + 1, self.left - 1
        if excess == 0.0 and (self.best_ns is None or time_ns < self.best_ns):
            self.best_ns, self._best_device, self._plan = time_ns, device.copy(), None
        return Trial(time_ns, excess)

    def end_update(self, mean_ns: float) -> None:
        """Add a point to the curve, and report the best plan so far."""
        self.curve.append(CurvePoint(self.done, mean_ns, self.best_ns))
        plan = self.plan() if self._plan is None else None
        if plan is not None:
            value_ns = evaluate(self.instance, plan, self.semantics).value_ns
            report(self.instance, self.semantics, self.by, value=value_ns, plan=plan)

    def plan(self) -> Plan | None:
        """The best placement that fits, with the orders of its schedule; None if none did."""
        if self._plan is None and self._best_device is not None:
            device = self._best_device
            bottom_levels(self._data, device, self._level)
            insert_all(self._data, device, self._level, self._work)
            self._plan = plan_of(self.instance, self.semantics, self._data, device, self._work)
        return self._plan

    def outcome(self, why_ended: str) -> Outcome:
        """The best placement as a method's answer, and why the search ended early, if it did."""
        plan = self.plan()
        if plan is None:
            why_ended = why_ended or f"none of {self.done} placements fits into memory"
        return Outcome(plan, message=why_ended, details={"evaluations": self.done})

    def _excess(self, device: Ints) -> float:
        arrays = self.instance.arrays
        held = np.zeros(self.instance.num_devices, np.int64)
        np.add.at(held, device, arrays.resident_bytes)
        over = np.flatnonzero((held > arrays.memory_bytes) & (arrays.memory_bytes != NO_LIMIT))
        room = arrays.memory_bytes[over]
        return float(((held[over] - room) / np.maximum(room, 1)).max(initial=0.0))


def usual_evaluations(instance: Instance) -> int:
    """How many placements are tried by default: 4,000, fewer for less than 40 ops."""
    return min(MOST_EVALUATIONS, EVALUATIONS_PER_OP * instance.num_ops)


def cost(trial: Trial, scale_ns: float) -> float:
    """Time in units of `scale_ns`, and a penalty for what does not fit: what Placeto lowers."""
    return trial.time_ns / scale_ns + min(MOST_PENALTY, PENALTY * trial.excess)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's random numbers from a seed, on one thread; what was before comes back afterwards."""
    # Several threads would add in another order from run to run.
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
