"""D-DPS and FD-DPS: list scheduling along the dynamic critical path, heavy ops in parts or whole.

Times are in units of 1 / scale ns. An unplaced op i has

- ``tail[i]``: the longest way from its start to the end, with mean costs. All ops behind i are
  unplaced, too, so it never changes;
- ``est[i]``: its earliest start after those of its parents that are placed, with mean transfers.

The dynamic critical path is as long as the latest placed op's end, or as est[i] + tail[i] of some
unplaced op i: a longest path leaves the placed ops once. With its length DCPL, LST(i) is DCPL -
tail[i]; the slack LST(i) - EST(i) is least where est + tail is largest, and 0 for critical ops.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel, set_all, sizes_of
from placegap.instances.problem import Makespan
from placegap.instances.problem.additive_memory import with_resident
from placegap.instances.problem.integers import NEVER, UNSUPPORTED
from placegap.instances.transforms.op_splitting import Axis, OpSplit, split_ops
from placegap.instances.transforms.split_rule import (
    AXES,
    KINDS,
    MAX_PARAMETERS,
    MIN_SHARE,
    MOST_PARTS_OF_OP,
    PARTS,
    SplitRule,
    choose_cuts,
)
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.insertion import Gaps, first_fit, idle_devices, occupy
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    KernelTimes,
    Problem,
    admission_of,
    admits,
    levels,
    mean_costs,
    outcome_of,
    problem_of,
    settle,
)


class DDpsParams(Params):
    """What the paper leaves between its rules and its formulas."""

    #: ``path``: devices by (11) and (12); ``cost``: the device that adds the least to the cost
    #: E_cost of (4) and (5), the times of all ops and transfers together.
    choose: Literal["path", "cost"] = "path"
    #: ``resident``: a device has room for all bytes of its ops; ``parameters``: for their
    #: parameters, as (3) has it. The referee counts all bytes.
    memory: Literal["resident", "parameters"] = "resident"


@method("d-dps", objectives=("makespan",), cites="Zeng et al. 2022 (FD-DPS)")
def d_dps(task: Task[Makespan], params: DDpsParams | None = None) -> Outcome:
    """Dynamic critical path, least slack first; FD-DPS without its splits.

    Place the ready op of least slack in a slot before its latest start, near its parents. Zeng et
    al., "FD-DPS", Mathematics 2022, 10, 4788, without its splitting of ops, which it calls
    D-DPS(-F): Algorithms 1 to 3 with earliest and latest start (6), (7), dynamic critical path
    length (10), slot search (11) and child rule (12). A heuristic for the makespan; it plans with
    free channels and inserts ops into idle gaps. `schedule_dynamic_path` says how ops and devices
    are chosen.
    Misprints mended: (7) is taken as a latest start, (12) as arg min.
    Filled in: what is placed stays where and when it is, so that a slot ends where the next op
    starts; costs of ops and transfers not yet placed are means, exact as in HEFT; on each device
    an op's earliest start has the true transfers from its parents, and its latest start shifts as
    far; of several parents' devices, and in ties, the earliest start, then the first device; the
    most urgent child is judged by its earliest start after the parents that are placed; "the
    device of the lowest priority op" is that of the placed op of largest slack. Added to the
    paper: an op goes only to devices that can run it, with room for it and its colocation group.
    O((V + E) (K + log V)) time: the longest way from an unplaced op to the end never changes, so
    that after each step only the earliest starts behind the placed op need an update.
    """
    params = params or DDpsParams()
    instance = task.instance
    if params.memory == "parameters":
        held = np.array([op.parameter_bytes for op in instance.graph.ops], np.int64)
        instance = with_resident(instance, held)
    arrays = instance.arrays
    problem, admission, costs = problem_of(arrays), admission_of(arrays), mean_costs(arrays)
    times = schedule_dynamic_path(
        problem,
        admission,
        levels(problem, costs.op, costs.tensor),
        costs.tensor,
        costs.scale,
        arrays.index.topological_position,
        idle_devices(instance.num_devices, instance.num_ops),
        params.choose == "cost",
    )
    return outcome_of(instance, times, admission)


class Path(NamedTuple):
    """Where ops are, when they end, and what is known of those that are not placed, (n,)."""

    device: Ints
    end: Ints
    est: Ints
    tail: Ints
    scale: int


class PathSlots(NamedTuple):
    """Of one op on each device, (K,): when its inputs are there, when it would begin or `NEVER`,
    and whether the device holds a parent.
    """

    arrival: Ints
    begin: Ints
    is_near: Flags


@kernel(bounded=True)
def schedule_dynamic_path(
    problem: Problem,
    admission: Admission,
    tail: Ints,
    tensor_cost: Ints,
    scale: int,
    position: Ints,
    gaps: Gaps,
    by_cost: bool = False,
) -> KernelTimes:
    """Place the ready ops by increasing slack, critical ones first; ties by position.

    A device that admits the op is a candidate if the op's first idle gap there begins no later
    than its latest start there (11). Preferred are, in this order:

    1. candidates that hold a parent: the one of earliest start;
    2. candidates where the op's most urgent child then fits as well: the one that runs both in the
       least time (12);
    3. other candidates: the one of earliest start;
    4. without candidates, of the devices that admit the op the one that holds the op of
       largest slack.

    `tail`, the longest way from the start of each op to the end, and `tensor_cost`, a mean
    transfer, are in 1 / scale ns. With `by_cost` the device is instead the one where the op and its
    inputs' transfers take the least time together, then the one of earliest start. `admission` and
    `gaps` are of empty devices, and are changed.
    """
    n, num_devices = problem.time_ns.shape
    device = np.full(n, NOWHERE, np.int64)
    start, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    est = np.zeros(n, np.int64)
    path = Path(device, end, est, tail, scale)
    waiting = sizes_of(problem.inputs.ptr)
    arrival, begin = np.empty(num_devices, np.int64), np.empty(num_devices, np.int64)
    gap = np.empty(num_devices, np.int64)
    slots = PathSlots(arrival, begin, np.empty(num_devices, np.bool_))
    least_urgent = np.full(num_devices, -1)  # least start + tail of an op there
    through = [(-tail[op], position[op], op) for op in range(n)]  # -(est + tail), as it was
    ready = [(-tail[op], position[op], op) for op in range(n) if waiting[op] == 0]
    heapq.heapify(through)
    heapq.heapify(ready)
    longest = np.int64(0)
    while len(ready) > 0:
        op = heapq.heappop(ready)[2]
        while device[through[0][2]] != NOWHERE:  # an old entry of an op is below its newest
            heapq.heappop(through)
        length = max(longest, -through[0][0])
        _arrivals(problem, path, op, slots)
        fits, any_admits = False, False
        for k in range(num_devices):
            begin[k] = NEVER
            if admits(admission, op, k):
                any_admits = True
                gap[k] = first_fit(gaps, k, arrival[k], problem.time_ns[op, k])
                begin[k] = max(arrival[k], gaps.begin_ns[gap[k]])
                # LST on k: the shift of EST applies to LST as well
                if begin[k] * scale <= length - tail[op] - est[op] + arrival[k] * scale:
                    fits = True
        if not any_admits:
            return KernelTimes(device, start, end, op)
        if by_cost:
            at, least = NOWHERE, NEVER  # what is added to (4), op and inputs together
            for k in range(num_devices):
                if begin[k] == NEVER:
                    continue
                cost, inputs = problem.time_ns[op, k], problem.inputs
                for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
                    link = inputs.link_class[device[inputs.op[e]], k]
                    cost += inputs.transfer_ns[inputs.tensor[e], link]
                if cost < least or (cost == least and begin[k] < begin[at]):
                    at, least = k, cost
        elif fits:
            at = _preferred(problem, admission, gaps, path, slots, op, length)
        else:  # rule 4
            at = NOWHERE
            for k in range(num_devices):
                urges_less = at == NOWHERE or least_urgent[k] < least_urgent[at]
                if begin[k] != NEVER and urges_less:
                    at = k
        settle(admission, op, at)
        duration = problem.time_ns[op, at]
        occupy(gaps, at, gap[at], op, begin[at], duration)
        device[op], start[op], end[op] = at, begin[at], begin[at] + duration
        longest = max(longest, end[op] * scale)
        urgency = start[op] * scale + tail[op]
        if least_urgent[at] < 0 or urgency < least_urgent[at]:
            least_urgent[at] = urgency
        for e in range(problem.succ_ptr[op], problem.succ_ptr[op + 1]):
            succ = problem.succ_op[e]
            sent = end[op] * scale + tensor_cost[problem.succ_tensor[e]]
            if sent > est[succ]:
                est[succ] = sent
                heapq.heappush(through, (-(est[succ] + tail[succ]), position[succ], succ))
            waiting[succ] -= 1
            if waiting[succ] == 0:
                heapq.heappush(ready, (-(est[succ] + tail[succ]), position[succ], succ))
    return KernelTimes(device, start, end, NOWHERE)


@kernel
def _preferred(
    problem: Problem,
    admission: Admission,
    gaps: Gaps,
    path: Path,
    slots: PathSlots,
    op: int,
    length: int,
) -> Any:
    """The best of the candidates, of which there is one at least: rules 1 to 3."""
    arrival, begin, is_near = slots.arrival, slots.begin, slots.is_near
    est, tail, scale, num_devices = path.est, path.tail, path.scale, len(slots.begin)
    window = length - tail[op] - est[op]
    best = NOWHERE
    for k in range(num_devices):
        passes = begin[k] != NEVER and (begin[k] - arrival[k]) * scale <= window
        if passes and is_near[k] and (best == NOWHERE or begin[k] < begin[best]):
            best = k
    if best != NOWHERE:
        return best
    child = NOWHERE  # of least slack, as far as the placed parents of the children tell
    for other in problem.succ_op[problem.succ_ptr[op] : problem.succ_ptr[op + 1]]:
        if child == NOWHERE or est[other] + tail[other] > est[child] + tail[child]:
            child = other
    if child != NOWHERE:
        child_arrival = np.empty(num_devices, np.int64)
        of_child = PathSlots(child_arrival, child_arrival, np.empty(num_devices, np.bool_))
        _arrivals(problem, path, child, of_child)
        least = NEVER
        for k in range(num_devices):
            if begin[k] == NEVER or (begin[k] - arrival[k]) * scale > window:
                continue
            duration = problem.time_ns[child, k]
            if duration == UNSUPPORTED or not admits(admission, child, k):
                continue
            group, other, home = admission.group[op], admission.group[child], admission.home
            if group != other and home[group] == NOWHERE and home[other] == NOWHERE:
                needed = admission.group_bytes[group] + admission.group_bytes[other]
                if needed > admission.free_bytes[k]:
                    continue
            after = max(child_arrival[k], begin[k] + problem.time_ns[op, k])
            slot = first_fit(gaps, k, after, duration)
            starts = max(after, gaps.begin_ns[slot])
            both = problem.time_ns[op, k] + duration
            if starts * scale <= length - tail[child] and both < least:
                least, best = both, k
    if best != NOWHERE:
        return best
    for k in range(num_devices):
        passes = begin[k] != NEVER and (begin[k] - arrival[k]) * scale <= window
        if passes and (best == NOWHERE or begin[k] < begin[best]):
            best = k
    return best


@kernel(allocates=False)
def _arrivals(problem: Problem, path: Path, op: int, slots: PathSlots) -> None:
    """When the outputs of the op's placed parents are on each device, in ns; who holds a parent."""
    inputs, device, arrival, is_near = problem.inputs, path.device, slots.arrival, slots.is_near
    set_all(arrival, 0)
    set_all(is_near, 0)
    for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
        source = device[inputs.op[e]]
        if source == NOWHERE:
            continue
        is_near[source] = True
        for k in range(len(arrival)):
            transfer = inputs.transfer_ns[inputs.tensor[e], inputs.link_class[source, k]]
            arrival[k] = max(arrival[k], path.end[inputs.op[e]] + transfer)


def _words(value: Any) -> Any:
    """Also as text: "batch,out_channel"."""
    return tuple(word.strip() for word in value.split(",")) if isinstance(value, str) else value


class SplitParams(Params):
    """How ops may be split: fields of `SplitRule` that FD-DPS and FastT share."""

    parts: Annotated[int, Field(ge=2, le=MOST_PARTS_OF_OP)] = PARTS
    axes: Annotated[tuple[Axis, ...], BeforeValidator(_words), Field(min_length=1)] = AXES
    kinds: Annotated[tuple[str, ...], BeforeValidator(_words)] = KINDS


class FdDpsParams(SplitParams, DDpsParams):
    """Parameters of FD-DPS: fields of `SplitRule`, and those of D-DPS."""

    min_share: Annotated[float, Field(ge=0, le=1)] = MIN_SHARE
    min_time_ns: Annotated[int, Field(ge=0)] = 0
    max_parameters: Annotated[int, Field(ge=0)] = MAX_PARAMETERS


@method("fd-dps", objectives=("makespan",), cites="Zeng et al. 2022 (FD-DPS), algorithm 3")
def fd_dps(task: Task[Makespan], params: FdDpsParams | None = None) -> Outcome:
    """Splits heavy ops, then D-DPS; its value is of the finer graph.

    Zeng et al., "FD-DPS", Mathematics 2022, 10, 4788, Algorithm 3. A heuristic for the makespan of
    an instance of finer ops: where ops were split the plan is one of that instance
    (`Result.split`), not of the original one; where none was, it is D-DPS' plan.
    Filled in: thresholds, axes and the costs of parts (`choose_cuts`, `split_ops`); where the
    parts, with their copies, do not fit, the ops are left whole; the rest as in `d_dps`.
    O((V + E) (K + log V)) for the V ops and E edges of the finer instance.
    """
    assert params is None or isinstance(params, FdDpsParams)
    params = params or FdDpsParams()
    rule = {name: getattr(params, name) for name in SplitRule.__annotations__}
    cuts = choose_cuts(task.instance, SplitRule(**rule))
    if not cuts:
        return d_dps(task, params)
    split = split_ops(task.instance, cuts)
    finer = Task(split.fine, task.semantics, task.limits)
    outcome = outcome_of_split(split, d_dps(finer, params))
    if outcome.plan is None:
        whole = d_dps(task, params)
        reasons = "; ".join(filter(None, (whole.message, f"ops left whole: {outcome.message}")))
        return replace(whole, message=reasons)
    return outcome


def outcome_of_split(split: OpSplit, outcome: Outcome) -> Outcome:
    """An outcome on the finer instance, labelled as such."""
    message = f"{outcome.message}; " if outcome.message else ""
    plan = "no plan" if outcome.plan is None else "the plan"
    return replace(
        outcome,
        message=f"{message}{plan} of another instance, {split.fine.name}: {split.summary}",
        details={**outcome.details, "split_ops": split.num_split, "split_parts": split.num_parts},
        split=split,
    )
