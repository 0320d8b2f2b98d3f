"""The best chain where blocks without time hold bytes: first without their bytes, then with them.

If idle blocks join a neighbour, few ideals are left (`instances.problem.blocks`). If that is exact,
one run is enough. If their bytes may matter, these steps follow until value and bound meet:

1. The bytes *move* along with the block: a plan from slices. Many devices hold every set of ops
   that they can run within its load (`roomy_within`); if all do, joining is exact after all.
2. The bytes are *dropped*: a relaxation. Often it proves that nothing is better than the plan, or
   its own plan fits.
3. The bytes move along, searched to the end: a restriction, which may find a better plan.
4. The relaxation's best plan overfills some devices. The largest blocks that do so stay alone from
   now on, and steps 2 and 3 are repeated: more ideals, but a bound and a value that are close. In
   the end all such blocks are alone, and that is exact.

Under the rule `peak`, the best chain of `relax_memory` may not fit. Then two more runs of the DP
look up the peak of each stage (`stage_peak`):

1. Idle blocks join neighbours, and all ops count: a restriction, whose plans fit.
2. Ops that have joined another block hold nothing: a relaxation, since the remaining ops hold no
   more than they do in the plan of all ops. Its optimum is a bound, and often its plan fits.

There, devices of equal times are of one kind only if they have equal memory as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance, MaxLoad, Plan
from placegap.instances.problem.additive_memory import ceiling_bytes, relax_memory
from placegap.instances.problem.blocks import Blocks, IdleRule, contract
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.chains.bracket import Bracket
from placegap.solvers.chains.ideals import Ideals
from placegap.solvers.chains.kinds_problem import build_kinds, why_not_kinds
from placegap.solvers.chains.layers import LayerSearch
from placegap.solvers.chains.transitions import for_ideals, stage_peak
from placegap.solvers.core.clock import Clock, LimitReached, now_s
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Known, reporter
from placegap.solvers.core.result import Bound, Outcome

MOST_IDEALS = 20_000  # with more ideals within the windows no chain for peak memory is searched


class PeakBracket(Bracket):
    """Best plan and bound of chains whose stages fit at their peak."""

    def __init__(
        self, task: Task[MaxLoad], part: Task[MaxLoad], clock: Clock, *, all_count: bool
    ) -> None:
        """The restriction (`all_count`) or the relaxation of a task, on its `relax_memory` part."""
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
        # A kind's devices differ in memory only above what all ops hold at most; the bound takes
        # the largest of them, plans the smallest.
        bytes_ = [task.instance.arrays.memory_bytes[list(own)] for own in self.devices_of_kinds()]
        self.room_bytes = np.array([own.min() if all_count else own.max() for own in bytes_])

    def search(self, ideals: Ideals) -> LayerSearch:
        """The DP over some ideals."""
        found = LayerSearch(self.book, ideals, self.clock)
        found.peak = for_ideals(self.peak, ideals.size)
        found.peak_room = self.room_bytes
        return found

    def run(self) -> None:
        """Search along some orders, then over all ideals."""
        self.cut(MOST_IDEALS)
        self.close(MOST_IDEALS)


def settle(task: Task[MaxLoad], first: Outcome, plan: Plan | None) -> Outcome | None:
    """The best chain that fits at its peak, if that of `relax_memory` does not fit."""
    # `plan` is the best plan so far that fits. None where this search does not apply.
    semantics = task.semantics
    floor, plain = relax_memory(task.instance, semantics)
    if semantics.plans != "chain" or semantics.replicas or semantics.levels == 2:
        return None
    if why_not_kinds(floor, plain) is not None:
        return None
    clock = Clock(task.limits.time_limit_s)
    part = replace(task, instance=floor, semantics=plain, incumbent=plan)
    strict, loose, message = PeakBracket(task, part, clock, all_count=True), None, ""
    strict.prove(Bound(first.bound_value or 0, "ideal-dp"))
    lower = strict.bound
    try:
        strict.run()
        if not strict.is_exact and (strict.value is None or strict.value > lower.value):
            loose = PeakBracket(task, part, clock, all_count=False)
            loose.improve(strict.value, strict.plan)
            loose.prove(lower)
            loose.run()
    except LimitReached as limit:
        message = f"stopped: {limit}"
    # The strict run proves something only if no op has joined another block.
    proven, best = strict if strict.is_exact else loose, Known()
    for found in (plan, strict.plan, None if loose is None else loose.plan):
        best.offer_plan(task, found)
    return Outcome(
        plan=best.plan,
        bound=(lower if proven is None else proven.bound)._replace(origin="ideal-dp"),
        message=message,
        details={"peak_ideals": strict.counts.get("kept_ideals", 0)},
    )


def _solid(instance: Instance, joined: Blocks) -> Flags:
    """Ops of blocks that have not joined another one: alone, or with time on some device, (n,)."""
    apart = contract(instance, merge_idle=False)
    home = np.zeros(apart.num_blocks, np.int64)
    home[apart.block] = joined.block
    runs = joined.time_ns[home] != UNSUPPORTED
    takes_time = (runs & (apart.time_ns > 0)).any(axis=1)
    is_alone = np.bincount(home)[home] == 1
    return np.asarray((takes_time | is_alone)[apart.block])


EXACT_SHARE = 0.6  # share of the remaining time for the DP without bytes; the rest: plans with them


def roomy_within(instance: Instance, limit_ns: int, replicas: int = 1) -> Flags:
    """Devices that hold every set of ops which they can run within a load, (K,)."""
    # A device computes at most for its load, in a stage of r replicas at most r times that. The
    # most bytes of ops within that time is a knapsack, whose upper bound is compared with the
    # memory.
    arrays = instance.arrays
    size, most = arrays.resident_bytes, replicas * limit_ns
    known: dict[bytes, int] = {}
    roomy = np.zeros(instance.num_devices, np.bool_)
    for k in range(instance.num_devices):
        time = arrays.time_ns[:, k]
        key = time.tobytes()
        if key not in known:
            runs = (time != UNSUPPORTED) & (time <= most)
            known[key] = most_held(time[runs], size[runs], most)
        roomy[k] = known[key] <= arrays.memory_bytes[k]
    return roomy


def most_held(time_ns: Ints, size: Ints, capacity_ns: int) -> int:
    """An upper bound on the bytes of ops whose times sum up to at most a capacity; in integers."""
    # Linear programming duality: for any price p of a ns, the bytes are at most p * capacity + the
    # sum of max(0, bytes - p * ns). The best p is bytes / ns of the first op that does not fit as a
    # whole. With p = worth / takes all is multiplied by `takes`; the order alone is in floats.
    total = int(size.sum())
    if int(time_ns.sum()) <= capacity_ns:
        return total
    order = np.argsort(-size / np.maximum(time_ns, 1e-9), kind="stable")
    at = int(np.searchsorted(np.cumsum(time_ns[order]), capacity_ns, side="right"))
    worth, takes = int(size[order[at]]), int(time_ns[order[at]])
    times, sizes = time_ns.tolist(), size.tolist()
    spare = sum(max(0, s * takes - worth * t) for s, t in zip(sizes, times, strict=True))
    most: int = (worth * capacity_ns + spare) // takes
    return min(total, most)


class Misfit(Exception):
    """Some block fits no device at all."""

    def __init__(self, blocks: Blocks, block: int) -> None:
        super().__init__()
        self.blocks, self.block = blocks, block


@dataclass(eq=False)
class Steps(Known):
    """The steps, with the best plan and bound after each, also if a limit ends one."""

    task: Task[MaxLoad]
    start: Callable[[IdleRule], Bracket]
    max_ideals: int
    last: Bracket | None = None  # the bracket whose ideals were searched last
    impossible: bool = False  # whether it is proven that no chain of ideals fits
    build_s: float = 0.0
    _reached: LimitReached | None = None

    def run(self) -> None:
        """All steps, as numbered in the module's text."""
        replicated = self.task.semantics.replicas
        rule = IdleRule("move", parameters=replicated)
        self.offer_plan(self.task, self.task.incumbent)
        moved = self._start(rule)
        exact = moved.problem.blocks.exact
        strict = moved if exact else self._start(replace(rule, bytes="count"))
        self._check(strict)
        self.last = strict
        # A chain with moved bytes is a plan, but its bound holds only for plans that move them. The
        # bound on all plans is that of `strict`, which leaves such blocks alone.
        moved.bound = strict.bound
        self.prove(strict.bound)
        self._work(moved, partial(moved.cut, self.max_ideals), proves=exact)
        if not exact:
            strict.take_over(self)
            self._work(strict, partial(strict.cut, self.max_ideals))
        if self._done:
            return
        # Step 1 again with the plan's load: the shorter it is, the more devices are roomy.
        roomy = self._roomy(moved)
        if roomy is not None:
            rule = replace(rule, roomy=roomy)
            moved = self._start(rule)
            exact = moved.problem.blocks.exact
        # Each round leaves more blocks alone. If the relaxation names no new one, all are left
        # alone.
        while not exact:
            overfull = self._without_bytes(rule)
            if self._done:
                return
            moved.take_over(self)
            self._work(moved, partial(moved.close, self.max_ideals), proves=False)
            if self._done:
                return
            if self._reached is not None:
                raise self._reached
            rule = replace(rule, alone=overfull)
            moved = self._start(rule)
            exact = moved.problem.blocks.exact
            self._work(moved, partial(moved.cut, self.max_ideals), proves=exact)
        self._work(moved, partial(moved.close, self.max_ideals))
        self.impossible = self.value is None

    @property
    def _done(self) -> bool:
        return self.impossible or self.is_close

    def _start(self, rule: IdleRule) -> Bracket:
        began = now_s()
        bracket = self.start(rule)
        self.build_s += now_s() - began
        bracket.take_over(self)
        return bracket

    def _work(self, bracket: Bracket, work: Callable[[], None], *, proves: bool = True) -> None:
        """Work on a bracket, and take over its best plan and, if it `proves`, its bound."""
        if bracket.problem.fits.any(axis=0).all():
            self.last = bracket
            report = reporter(self.task.instance, self.task.semantics, "ideal-dp")

            def report_part(value: int | None, bound: int | None, plan: Plan | None = None) -> None:
                report(value, bound if proves else None)

            bracket.on_progress = report_part
            try:
                work()
            finally:
                if proves:
                    self.take_over(bracket)
                else:
                    self.improve(bracket.value, bracket.plan)

    def _check(self, bracket: Bracket) -> None:
        fits = bracket.problem.fits.any(axis=0)
        if not fits.all():
            raise Misfit(bracket.problem.blocks, int(np.argmin(fits)))

    def _roomy(self, bracket: Bracket) -> Flags | None:
        """Devices that hold all they can run in better plans; None if no further one does."""
        if self.value is None:
            return None
        semantics = self.task.semantics
        known = bracket.problem.blocks.roomy
        replicas = self.task.instance.num_devices if semantics.replicas else 1
        roomy = roomy_within(self.task.instance, self.value - 1, replicas)
        return None if (known | ~roomy).all() else roomy

    def _without_bytes(self, rule: IdleRule) -> Flags:
        """Step 2: a bound, and the optimum if the best plan without the bytes fits with them."""
        # Returns the ops that must stay alone in the next round.
        dropped = self._start(replace(rule, bytes="drop"))
        self.last, value_ns = dropped, dropped.value
        none = np.zeros(self.task.instance.num_ops, np.bool_)
        before = none if rule.alone is None else rule.alone
        more = none
        try:
            if value_ns is None:
                dropped.cut(self.max_ideals)
            dropped.clock = dropped.clock.part(EXACT_SHARE)
            dropped.close(self.max_ideals)
            self.impossible = dropped.value is None
        except LimitReached as limit:
            self._reached = limit  # raised after step 3, which may find a better plan
        finally:
            self.prove(dropped.bound)
        if dropped.value != value_ns and dropped.plan is not None:
            self.offer_plan(self.task, dropped.plan)
            more = overfilling(self.task.instance, dropped.plan, dropped.problem.blocks.held)
        return before | more if (more & ~before).any() else ~none


def overfilling(instance: Instance, plan: Plan, held: Flags) -> Flags:
    """The largest ops that are not `held` whose removal makes all others fit; (n,)."""
    size, found = instance.arrays.resident_bytes, np.zeros(len(held), np.bool_)
    for k in range(instance.num_devices):
        here = np.array([k in devices for devices in plan.placement])
        left = int(size[here].sum()) - int(instance.arrays.memory_bytes[k])
        loose = np.flatnonzero(here & ~held)
        for i in loose[np.argsort(-size[loose], kind="stable")].tolist():
            if left <= 0:
                break
            found[i] = True
            left -= int(size[i])
    return found
