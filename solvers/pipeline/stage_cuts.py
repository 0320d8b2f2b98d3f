"""The least iteration time over all chains of stages: branch and bound on cuts (`stage-cuts`).

placegap's own. Every path through the events of an iteration bounds its time from below by a sum
over stages; a DP over cuts finds the cheapest chain under a mixture of paths, and an LP the mixture
that proves most (`Game`). Pairs of cuts that no better chain can have are dropped, by single paths
and by mixtures; what remains is split (`PartSearch`). Chains come from the least max_load and from
moves of one and two cuts. Bounds are exact integers: only the choice of mixtures is in floating
point (docs/pipelines.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from pydantic import Field

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.objectives.iteration.checks import check_iteration
from placegap.instances.objectives.iteration.stages import device_orders, held_beside
from placegap.instances.problem import PipelineIteration, Plan
from placegap.instances.problem.integers import NEVER
from placegap.instances.problem.modules import with_granularity
from placegap.instances.problem.nets import gradient_tie, stage_blocks
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import ExactParams, Task
from placegap.solvers.core.progress import reporter
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome, no_plan
from placegap.solvers.pipeline.branch_and_bound import Judge, PartSearch
from placegap.solvers.pipeline.cuts import CutProblem, build_cuts, with_kinds
from placegap.solvers.pipeline.event_times import event_table

MOST_STEPS = 300  # most steps of all searches for a better balance; moves do what is left open

# Share of the time for a first chain that keeps layers whole, and the gap that it may leave: 0.3 to
# 1.5 CPU s for 12 to 32 layers, where the first chain between single ops of llama-7b's training
# step takes 4. On gpt2's over slow links the result is 0.8 % better; none is worse.
LAYERS_SHARE, LAYERS_GAP = 0.1, 0.05


class StageCutsParams(ExactParams):
    #: With more cuts than this only those of one order of the blocks are tried, and the bound comes
    #: from cheap methods.
    max_cuts: int = Field(default=1000, ge=2)


@method(
    "stage-cuts",
    objectives=("pipeline_iteration",),
    claim="exact",
    paper="placegap",
    scope="pipeline_iteration, all schedules",
    packages=("numba", "highspy"),
)
def run(task: Task[PipelineIteration], params: StageCutsParams) -> Outcome:
    """Branch and bound on the cuts of a chain, with a bound from paths weighted by an LP."""
    instance, semantics = task.instance, task.semantics
    check_iteration(instance, semantics)
    clock = Clock(task.limits.time_limit_s)
    block = stage_blocks(instance)
    if block is None:
        message = "a backward op feeds a forward op: no microbatch can pass"
        return Outcome(bound=no_plan(), message=message)
    problem = build_cuts(instance, semantics, block, params.max_cuts)
    problem = with_kinds(instance, semantics, problem) or problem
    judge = Judge(instance, semantics, clock)
    judge.gap = task.limits.gap
    counts = _counts(instance.num_devices, semantics, problem)
    # One search per number of devices, the largest first: they share the best plan, so each drops
    # the pairs that cannot beat what the others found.
    parts, message = list[PartSearch](), ""
    try:
        # Before any search: the better the plan is, the more pairs fall.
        for plan in (*(start.plan for start in task.starts), by_layers(task, params, problem)):
            if plan is not None:
                judge.judge(plan)
        for count in counts:
            if parts and clock.left_s == 0.0 and (judge.plan is not None or task.starts):
                break
            parts.append(_part(task, problem, judge, count, clock))
            # Without any plan one chain is looked for even after the time limit.
            if clock.left_s != 0.0 or judge.plan is None:
                parts[-1].start()
        proves = problem.complete and len(parts) == len(counts)
        _search(task, parts, judge, clock, proves=proves)
    except KeyboardInterrupt:
        message = "interrupted"
    bound = min((part.bound_ns for part in parts), default=NEVER)
    # The bound covers chains of the listed cuts and of the numbers of devices begun, no others.
    if not problem.complete or len(parts) < len(counts):
        bound = 0
    details: dict[str, int | float | str] = {
        "blocks": problem.num_blocks,
        "cuts": problem.num_cuts,
        "parts": sum(part.parts for part in parts),
    }
    if judge.value is None:
        infeasible = bound >= NEVER
        tie = gradient_tie(instance)
        why = "in every chain of stages some device's memory is too small"
        if not counts:
            why = f"too few layers for this schedule: {problem.num_blocks}"
        why += "" if tie is None else f"; {tie}"
        return Outcome(
            bound=no_plan() if infeasible else None,
            details=details,
            message=why if infeasible else message or "no chain of stages was found",
        )
    # Ties matter only once the value is proven: until then all time goes into it.
    if bound >= judge.value and not message:
        message, details["balance"] = _make_even(task, problem, judge, parts, clock)
    return Outcome(
        plan=judge.plan,
        claim=judge.value,
        bound=Bound(min(bound, judge.value), "stage-cuts"),
        details=details,
        message=message,
    )


def by_layers(
    task: Task[PipelineIteration], params: StageCutsParams, problem: CutProblem
) -> Plan | None:
    """A good chain of whole layers, which is a chain of ops as well; None if ops name no layers."""
    if not any(op.module for op in task.instance.graph.ops):
        return None
    try:
        whole = with_granularity(task.instance, "layer")
    except InputError:  # no device runs all of a layer
        return None
    block = stage_blocks(whole)
    if block is None or block.max() + 1 >= problem.num_blocks:
        return None
    left_s = task.limits.time_limit_s
    most_s = None if left_s is None else LAYERS_SHARE * left_s
    limits = replace(task.limits, time_limit_s=most_s, gap=max(LAYERS_GAP, task.limits.gap))
    return run(replace(task, instance=whole, limits=limits, incumbent=None), params).plan


def _counts(most: int, semantics: PipelineIteration, problem: CutProblem) -> list[int]:
    """Numbers of devices that the schedule can use, the largest first."""
    chunks = semantics.stages_per_device
    return [
        count
        for count in range(min(most, problem.num_blocks // chunks), 0, -1)
        # Megatron's interleaved schedule needs a multiple of the devices.
        if chunks == 1 or semantics.microbatches % count == 0
    ]


def _search(
    task: Task[PipelineIteration],
    parts: list[PartSearch],
    judge: Judge,
    clock: Clock,
    *,
    proves: bool,
) -> None:
    """Bound and split the search of the lowest bound until none is open or a limit is met."""
    # With `proves` the parts together have all chains, and the least of their bounds is reported.
    report = reporter(task.instance, task.semantics, "stage-cuts")
    while clock.left_s != 0.0:
        lowest = min((p for p in parts if p.is_open), key=lambda p: p.bound_ns, default=None)
        if lowest is None:
            return
        lowest.step()
        if judge.value is not None:
            judge.prove(Bound(min(part.bound_ns for part in parts), "stage-cuts"))
            report(judge.value, judge.bound.value if proves else None)
            if judge.is_close:
                return


def _make_even(
    task: Task[PipelineIteration],
    problem: CutProblem,
    judge: Judge,
    parts: list[PartSearch],
    clock: Clock,
) -> tuple[str, str]:
    """Replace the plan by one as good on more devices, if there is one; then balance it."""
    # Returns the message, and whether the balance is proven or only reached by moves.
    settled = problem.complete
    try:
        # With a slack of 1 ns, searches keep the chains whose bound equals the best value.
        judge.slack_ns = 1
        for old in parts:
            if old.num_devices <= judge.num_used:
                break
            part = _part(task, problem, judge, old.num_devices, clock)
            part.start()
            while part.is_open and judge.num_used < old.num_devices and clock.left_s != 0.0:
                part.step()
            settled &= not part.is_open or judge.num_used == old.num_devices
        judge.slack_ns = 0
        own = next((part for part in parts if part.num_devices == judge.num_used), None)
        if own is not None and clock.left_s != 0.0 and balanced(judge, own) and settled:
            return "", "proven"
    except KeyboardInterrupt:
        return "interrupted", "by moves"
    return "", "by moves"


def _part(
    task: Task[PipelineIteration], problem: CutProblem, judge: Judge, count: int, clock: Clock
) -> PartSearch:
    semantics = task.semantics
    if count == 1 and semantics.stages_per_device > 1:  # all stages share it and send nothing
        problem = build_cuts(task.instance, semantics, problem.block, problem.num_cuts, sends=False)
    table = event_table(semantics, count, trains=problem.trains, updates=problem.updates)
    return PartSearch(problem, judge, table, _beside(semantics, count, problem.trains), clock)


def _beside(semantics: PipelineIteration, count: int, trains: bool) -> list[list[tuple[int, int]]]:
    """How many other microbatches each stage holds."""
    beside = [[(0, 0)]] * (count * semantics.stages_per_device)
    if trains:
        for order in device_orders(semantics, count, trains=True):
            for s, pairs in held_beside(order).items():
                beside[s] = pairs
    return beside


def balanced(judge: Judge, part: PartSearch) -> bool:
    """Replace the best plan by the best balanced chain of its value on as many devices."""
    # Balance is the work of the second-heaviest device on a microbatch, then the most memory that a
    # device holds. True if no chain of this value is better balanced; under ``interleaved``, and
    # where devices must be tried in all orders, it is only the best that moves reach.
    # Both numbers are of single stages: the second-heaviest load is at most L if some stage s may
    # be heavier and all others keep to L. So a search for chains of this value among the pairs that
    # keep to L, once for each s, decides whether a better balance exists.
    settles = judge.one_order(part.problem) and judge.semantics.stages_per_device == 1
    ties = _Ties(judge, part)
    if judge.walk is None and settles:  # the plan came from a placer or another method
        ties.find(np.ones((part.stages, len(part.problem.tail)), np.bool_))
    if judge.walk is None or judge.walk[1] is not part.problem:
        return False
    _move(judge, part)
    if part.stages == 1 or not settles:
        return part.stages == 1
    load, held = part.problem.work_ns, _held(part)

    def within(s: int, most_load_ns: int, most_bytes: int) -> Flags:
        """Pairs of each stage, where stage s may be heavier than the limit."""
        heavy = np.arange(part.stages)[:, None] == s
        return np.asarray(((load <= most_load_ns) | heavy) & (held <= most_bytes))

    full = int(held.max())
    done = ties.lower(
        np.unique(load), lambda s, limit: within(s, limit, full), lambda walk: _second(load, walk)
    )
    assert judge.walk is not None
    second = _second(load, judge.walk[0])
    return done and ties.lower(
        np.unique(held), lambda s, limit: within(s, second, limit), lambda walk: _most(held, walk)
    )


class _Ties:
    """Chains of the best plan's value within limits; one that is found replaces the plan."""

    def __init__(self, judge: Judge, part: PartSearch) -> None:
        self.judge, self.part, self.steps = judge, part, MOST_STEPS

    def find(self, allowed: Flags) -> bool | None:
        """Whether a chain of these pairs was found; None if that stays open."""
        judge = self.judge
        assert judge.value is not None
        own = Judge(judge.instance, judge.semantics, judge.clock, judge.value + 1)
        search = self.part.restricted(allowed, own)
        search.start()
        while own.plan is None and search.is_open:
            if not self.steps or search.clock.left_s == 0.0:
                return None
            search.step()
            self.steps -= 1
        if own.plan is not None:
            judge.value, judge.plan, judge.walk = own.value, own.plan, own.walk
        return own.plan is not None

    def lower(
        self, keys: Ints, allowed: Callable[[int, int], Flags], key_of: Callable[[Ints], int]
    ) -> bool:
        """Lower a key of the plan to the least possible of some sorted values; True if proven."""
        for s in range(self.part.stages):
            low, high = 0, self._place(keys, key_of)
            # The next lower value is tried first: for most stages s not even that is possible, and
            # the search ends at once. Only where it is possible does bisection begin.
            middle = high - 1
            while low < high:
                found = self.find(allowed(s, int(keys[middle])))
                if found is None:
                    return False
                if found:
                    high = self._place(keys, key_of)
                elif middle == high - 1:
                    break
                else:
                    low = middle + 1
                middle = (low + high) // 2
        return True

    def _place(self, keys: Ints, key_of: Callable[[Ints], int]) -> int:
        assert self.judge.walk is not None
        return int(np.searchsorted(keys, key_of(self.judge.walk[0])))


def _move(judge: Judge, part: PartSearch) -> None:
    """Move single cuts of the best plan as long as its value stays and its balance improves."""
    assert judge.value is not None
    assert judge.walk is not None
    value_ns = judge.value
    walk, problem = judge.walk
    count = len(walk) // judge.semantics.stages_per_device
    load, held = part.problem.work_ns, _held(part)

    def key_of(walk: Ints) -> tuple[int, int]:
        own = load[walk].reshape(-1, count).sum(axis=0)
        kept = held[np.arange(len(walk)), walk].reshape(-1, count).sum(axis=0)
        return int(np.sort(own)[-2]) if count > 1 else 0, int(kept.max())

    pair = {
        (i, j): at
        for at, (i, j) in enumerate(zip(problem.tail.tolist(), problem.head.tolist(), strict=True))
    }
    key, moved = key_of(walk), True
    while moved:
        moved = False
        for s in range(len(walk) - 1):
            for a in range(problem.num_cuts):
                left = pair.get((int(problem.tail[walk[s]]), a))
                right = pair.get((a, int(problem.head[walk[s + 1]])))
                if left is None or right is None or a == problem.head[walk[s]]:
                    continue
                trial = walk.copy()
                trial[s : s + 2] = left, right
                now = key_of(trial)
                if now < key and part.game.time(trial) <= value_ns and judge.keep(trial, problem):
                    key, walk, moved = now, trial, True


def _held(part: PartSearch) -> Ints:
    """Memory of each pair as each stage, (S, P)."""
    return np.stack([part.problem.held_bytes(beside) for beside in part.beside])


def _second(load: Ints, walk: Ints) -> int:
    return int(np.sort(load[walk])[-2])


def _most(held: Ints, walk: Ints) -> int:
    return int(held[np.arange(len(walk)), walk].max())
