"""The best chain that fits at its peak, where the best chain of the floor does not.

Two runs of the DP for any devices, in which each stage's peak is looked up (`stage_peak`):

1. Idle blocks move along with neighbours, and everything counts: a restriction, whose plans fit.
2. If any have moved, those hold nothing: a relaxation, as what is left holds no more than in the
   plan of all ops, wherever those are. Its optimum is a bound, and often its plan fits as it is.

Devices whose memory may end at a peak are alike only with equal memory, though all of them may
hold the floor.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placegap.instances.kernels.array_types import Flags
from placegap.instances.problem import Instance, MaxLoad, Plan
from placegap.instances.problem.additive_memory import ceiling_bytes, relax_memory
from placegap.instances.problem.blocks import Blocks, IdleRule, contract
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.chains.bracket import Bracket
from placegap.solvers.chains.ideals import Ideals
from placegap.solvers.chains.kinds_problem import build_kinds, why_not_kinds
from placegap.solvers.chains.layers import LayerSearch
from placegap.solvers.chains.transitions import for_ideals, stage_peak
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Incumbent
from placegap.solvers.core.result import Bound, Outcome

MOST_IDEALS = 20_000
"""With more ideals than this that may matter the question stays open."""


class PeakBracket(Bracket):
    """What is known of chains whose stages fit at their peak."""

    def __init__(
        self, task: Task[MaxLoad], part: Task[MaxLoad], clock: Clock, *, all_count: bool
    ) -> None:
        """Of the restriction, or of the relaxation, of a task, on its floor."""
        floor, semantics = part.instance, part.semantics
        most = int(ceiling_bytes(task.instance).sum())
        room = np.minimum(task.instance.arrays.memory_bytes, most).tolist()
        rule = IdleRule("move" if all_count else "drop")
        super().__init__(part, build_kinds(floor, semantics, rule, room), clock)
        blocks = self.problem.blocks
        solid = _solid(floor, blocks) & blocks.held
        self.is_exact = bool(solid.all())
        counted = np.ones_like(solid) if all_count else solid
        self.peak = stage_peak(task.instance, blocks.block, counted)
        bytes_ = [task.instance.arrays.memory_bytes[list(own)] for own in self.devices_of_kinds()]
        self.room_bytes = np.array([own.min() if all_count else own.max() for own in bytes_])

    def search(self, ideals: Ideals) -> LayerSearch:
        """The DP over some ideals."""
        found = LayerSearch(self.book, ideals, self.clock)
        found.peak = for_ideals(self.peak, ideals.size)
        found.peak_room = self.room_bytes
        return found

    def run(self) -> None:
        """Look at the ideals of some orders, then at all."""
        self.cut(MOST_IDEALS)
        self.close(MOST_IDEALS)


def settle(task: Task[MaxLoad], first: Outcome, plan: Plan | None) -> Outcome | None:
    """Search the best chain that fits at its peak, where that of a run on the floor does not.

    `plan` is the best that is known to fit. None where there is neither a plan nor a bound.
    """
    semantics = task.semantics
    floor, plain = relax_memory(task.instance, semantics)
    assert isinstance(plain, MaxLoad)
    if semantics.plans != "chain" or semantics.replicas or semantics.levels == 2:
        return None
    if why_not_kinds(floor, plain) is not None:
        return None
    clock = Clock(task.limits.time_limit_s)
    part = replace(task, instance=floor, semantics=plain, incumbent=plan)
    strict, loose, message = PeakBracket(task, part, clock, all_count=True), None, ""
    strict.prove(Bound(first.bound_ns or 0, "ideal-dp"))
    lower = strict.bound
    try:
        strict.run()
        if not strict.is_exact and (strict.value_ns is None or strict.value_ns > lower.ns):
            loose = PeakBracket(task, part, clock, all_count=False)
            loose.improve(strict.value_ns, strict.plan)
            loose.prove(lower)
            loose.run()
    except LimitReached as limit:
        message = f"stopped: {limit}"
    proven, best = strict if strict.is_exact else loose, Incumbent()
    for found in (plan, strict.plan, None if loose is None else loose.plan):
        best.offer_plan(task, found)
    return Outcome(
        plan=best.plan,
        bound=(lower if proven is None else proven.bound)._replace(origin="ideal-dp"),
        message=message,
        details={"peak_ideals": strict.counts.get("kept_ideals", 0)},
    )


def _solid(instance: Instance, joined: Blocks) -> Flags:
    """Ops of blocks that have joined no other: alone, or with time where both run, (n,)."""
    apart = contract(instance, merge_idle=False)
    home = np.zeros(apart.num_blocks, np.int64)
    home[apart.block] = joined.block
    runs = joined.time_ns[home] != UNSUPPORTED
    takes_time = (runs & (apart.time_ns > 0)).any(axis=1)
    is_alone = np.bincount(home)[home] == 1
    return np.asarray((takes_time | is_alone)[apart.block])
