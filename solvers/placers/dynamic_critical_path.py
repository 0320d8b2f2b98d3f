"""D-DPS and FD-DPS: list scheduling along the dynamic critical path, heavy ops in parts or whole.

Times are in units of 1 / scale ns. An unplaced op i has

- ``tail[i]``: the longest way from its start to the end, with mean costs. All ops behind i are
  unplaced, too, so it never changes;
- ``est[i]``: its earliest start after those of its parents that are placed, with mean transfers.

A placed op keeps its device and its place in the device's order, not its start: it begins as early
as its inputs and the op before it allow, and may begin as late as LST(i) = DCPL - ``way[i]``, the
longest way from its start to the end, orders of devices included. ``way`` is found where it is
needed, depth first.

The dynamic critical path is as long as the latest placed op's end, or as est[i] + tail[i] of some
unplaced op i: a longest path leaves the placed ops once. With its length DCPL, LST(i) is DCPL -
tail[i]; the slack LST(i) - EST(i) is least where est + tail is largest, and 0 for critical ops.

In the first round of Algorithm 3 costs are means; in the next those of the devices of the round
before, since "update the graph search space" (4.3) sets transfers within a device to 0.
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
from placegap.instances.problem.mean_costs import mean_costs
from placegap.instances.problem.weighted_dag import longest_ways
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
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    Admission,
    KernelTimes,
    Problem,
    admission_of,
    admits,
    outcome_of,
    problem_of,
    settle,
)

# Rounds of Algorithm 3. Of 110 random graphs of 20 to 140 ops 48 have come round by then, and 72
# after 200 rounds; their plans take 6.9 % less than those of one round, and 7.9 % less after 200.
ROUNDS = 20

# Ops that are looked at behind a slot to know whether it may be taken; where there are more, only
# idle gaps are slots. With ten times as many a graph of 48,141 ops took twice the CPU time, and its
# plan was 0.5 % longer.
MOST_BEHIND = 1000


class DDpsParams(Params):
    """What the paper leaves between its rules and its formulas."""

    #: ``path``: devices by (11) and (12); ``cost``: the device that adds the least to the cost
    #: E_cost of (4) and (5), the times of all ops and transfers together.
    choose: Literal["path", "cost"] = "path"
    #: ``resident``: a device has room for all bytes of its ops; ``parameters``: for their
    #: parameters, as (3) has it. The referee counts all bytes.
    memory: Literal["resident", "parameters"] = "resident"
    #: The most rounds of Algorithm 3.
    rounds: int = Field(default=ROUNDS, ge=1)


@method("d-dps", objectives=("makespan",), cites="Zeng et al. 2022 (FD-DPS)")
def d_dps(task: Task[Makespan], params: DDpsParams | None = None) -> Outcome:
    """Dynamic critical path, least slack first; FD-DPS without its splits.

    Place the ready op of least slack in a slot before its latest start, near its parents. Zeng et
    al., "FD-DPS", Mathematics 2022, 10, 4788, without its splitting of ops, which it calls
    D-DPS(-F): Algorithms 1 to 3 with earliest and latest start (6), (7), dynamic critical path
    length (10), slot search (11) and child rule (12). A heuristic for the makespan; it plans with
    free channels and inserts ops into idle gaps. `schedule_dynamic_path` says how ops and devices
    are chosen. Rounds: all ops are placed anew, with the costs of the devices of the round before,
    "until the optimal parallel strategy is found": until the devices are those of an earlier round,
    so that nothing new can come, at most `rounds` times and within the time limit. The round of the
    shortest path (10) is the plan. O((V + E) (K + log V)) time a round, and for each op the
    device's ops that are passed and O(K `MOST_BEHIND`) behind its slots.

    Deviations: (7) is read as a latest start, (12) as arg min; costs of the first round are means;
    rounds end when devices repeat; an op takes the first slot by (11), and at most `MOST_BEHIND`
    ops behind it are put off; the device of rule 4 is an empty one, or that of the placed op of
    largest slack.
    """
    params = params or DDpsParams()
    instance = task.instance
    if params.memory == "parameters":
        held = np.array([op.parameter_bytes for op in instance.graph.ops], np.int64)
        instance = with_resident(instance, held)
    arrays = instance.arrays
    problem, costs = problem_of(arrays), mean_costs(arrays)
    op_cost, edge_cost = costs.op, costs.tensor[problem.succ_tensor]
    source = np.repeat(np.arange(instance.num_ops), np.diff(problem.succ_ptr))
    best, rounds, seen, clock = None, 0, set[bytes](), task.limits.clock()
    while rounds < params.rounds and (best is None or not clock.is_over()):
        admission = admission_of(arrays)
        times = schedule_dynamic_path(
            problem,
            admission,
            longest_ways(
                problem.topological_order[::-1],
                problem.succ_ptr,
                problem.succ_op,
                edge_cost,
                op_cost,
            ),
            edge_cost,
            costs.scale,
            arrays.index.topological_position,
            params.choose == "cost",
        )
        if times.stuck != NOWHERE and best is not None:
            break
        rounds += 1
        if best is None or times.end_ns.max() < best.end_ns.max():
            best, left = times, admission
        if times.stuck != NOWHERE or times.device.tobytes() in seen:
            break
        seen.add(times.device.tobytes())
        on = times.device
        op_cost = arrays.time_ns[np.arange(len(on)), on] * costs.scale
        link = arrays.link_class[on[source], on[problem.succ_op]]
        edge_cost = arrays.transfer_ns[problem.succ_tensor, link] * costs.scale
    assert best is not None
    return replace(outcome_of(instance, best, left), details={"rounds": rounds})


class Path(NamedTuple):
    """Where ops are, when they run, and what is known of those that are not placed, (n,)."""

    # `before` and `after` are neighbours on the device or -1; `first` and `last` (K,) are its ends.
    device: Ints
    start: Ints
    end: Ints
    est: Ints
    tail: Ints
    edge_cost: Ints
    before: Ints
    after: Ints
    first: Ints
    last: Ints
    scale: int


class LongestWays(NamedTuple):
    """`way` of the ops ``found[: now[0]]``, in the order in which they were found, (n,)."""

    # `turn` is when an op was found, `now[1]` the present one; `stack` (n + m + K) is scratch.
    way: Ints
    turn: Ints
    found: Ints
    stack: Ints
    now: Ints


class PathSlots(NamedTuple):
    """Of one op on each device, (K,): when it could begin, and whether a parent is there."""

    # `arrival` is when its inputs are there, `begin` when it would begin or `NEVER`.
    arrival: Ints
    begin: Ints
    is_near: Flags


@kernel(bounded=True)
def schedule_dynamic_path(
    problem: Problem,
    admission: Admission,
    tail: Ints,
    edge_cost: Ints,
    scale: int,
    position: Ints,
    by_cost: bool = False,
) -> KernelTimes:
    """Place the ready ops by increasing slack, critical ones first; ties by position.

    A device that admits the op is a candidate if the op's first slot there begins no later than its
    latest start there; a slot ends at the latest start of the op behind it (11). Preferred are, in
    this order:

    1. candidates that hold a parent: the one of earliest start;
    2. candidates where the op's most urgent child then fits as well: the one that runs both in the
       least time (12);
    3. other candidates: the one of earliest start;
    4. without candidates, of the devices that admit the op the one that holds the op of
       largest slack, a device without ops first; there the first idle gap.

    `tail`, the longest way from the start of each op to the end, and `edge_cost`, a transfer as
    long as its ends are not both placed, are in 1 / scale ns. With `by_cost` the device is instead
    the one where the op and its inputs' transfers take the least time together, then the one of
    earliest start. `admission` is of empty devices, and is changed.
    """
    n, num_devices = problem.time_ns.shape
    device, before = np.full(n, NOWHERE, np.int64), np.full(n, NOWHERE, np.int64)
    after, first = np.full(n, NOWHERE, np.int64), np.full(num_devices, NOWHERE, np.int64)
    last = np.full(num_devices, NOWHERE, np.int64)
    start, end, est = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    path = Path(device, start, end, est, tail, edge_cost, before, after, first, last, scale)
    way, turn, found = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    stack, now = np.zeros(n + len(problem.succ_op) + num_devices, np.int64), np.zeros(2, np.int64)
    ways = LongestWays(way, turn, found, stack, now)
    waiting = sizes_of(problem.inputs.ptr)
    arrival, begin = np.empty(num_devices, np.int64), np.empty(num_devices, np.int64)
    behind = np.empty(num_devices, np.int64)
    slots = PathSlots(arrival, begin, np.empty(num_devices, np.bool_))
    through = [(-tail[op], position[op], op) for op in range(n)]  # -(est + tail), as it was
    ready = [(-tail[op], position[op], op) for op in range(n) if waiting[op] == 0]
    heapq.heapify(through)
    heapq.heapify(ready)
    longest = np.int64(0)
    while len(ready) > 0:
        op = heapq.heappop(ready)[2]
        if device[op] != NOWHERE:  # an old entry of an op is below its newest
            continue
        while device[through[0][2]] != NOWHERE:
            heapq.heappop(through)
        length = max(longest, -through[0][0])
        # by their own names: beside comprehensions numba drops writes to arrays of tuples as dead
        now[0] = 0
        now[1] += 1
        _arrivals(problem, path, op, slots)
        fits, any_admits = False, False
        for k in range(num_devices):
            begin[k] = NEVER
            if admits(admission, op, k):
                any_admits = True
                # LST on k: the shift of EST applies to LST as well
                latest = length - tail[op] - est[op] + arrival[k] * scale
                duration = problem.time_ns[op, k]
                at = _slot(problem, path, ways, k, arrival[k], duration, latest, length)
                behind[k] = at
                begin[k] = arrival[k] if at == NOWHERE else max(arrival[k], end[at])
                if begin[k] * scale <= latest:
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
            at = _preferred(problem, admission, path, ways, slots, op, length)
        else:  # rule 4
            at, lowest = NOWHERE, NEVER
            for k in range(num_devices):
                urgency = NOWHERE  # least start + tail of an op there
                other = last[k]
                while other != NOWHERE:
                    passed = start[other] * scale + tail[other]
                    if urgency == NOWHERE or passed < urgency:
                        urgency = passed
                    other = before[other]
                if begin[k] != NEVER and urgency < lowest:
                    at, lowest = k, urgency
        settle(admission, op, at)
        device[op], start[op], end[op] = at, begin[at], begin[at] + problem.time_ns[op, at]
        for m in range(_insert(problem, path, ways, op, behind[at])):
            one = stack[m]
            longest = max(longest, end[one] * scale)
            for e in range(problem.succ_ptr[one], problem.succ_ptr[one + 1]):
                succ, sent = problem.succ_op[e], end[one] * scale + edge_cost[e]
                if device[succ] != NOWHERE:
                    continue
                is_later = sent > est[succ]
                if is_later:
                    est[succ] = sent
                    heapq.heappush(through, (-(sent + tail[succ]), position[succ], succ))
                if one == op:
                    waiting[succ] -= 1
                if waiting[succ] == 0 and (is_later or one == op):
                    heapq.heappush(ready, (-(est[succ] + tail[succ]), position[succ], succ))
    return KernelTimes(device, start, end, NOWHERE)


@kernel(allocates=False)
def _slot(
    problem: Problem,
    path: Path,
    ways: LongestWays,
    k: int,
    arrival: int,
    duration: int,
    latest: int,
    length: int,
) -> int:
    """The op behind which the first slot by (11) is, -1 for none: the next op may begin later."""
    # Where the op would begin after `latest` it puts nothing off, and it takes the first idle gap.
    before, after, start, end = path.before, path.after, path.start, path.end
    behind: Any = np.int64(NOWHERE)
    ahead: Any = path.first[k]
    if ahead != NOWHERE and 2 * arrival > end[path.last[k]]:  # nearer from the other side
        behind, ahead = path.last[k], np.int64(NOWHERE)
        while behind != NOWHERE and end[behind] > arrival:
            ahead = behind
            behind = before[behind]
    while ahead != NOWHERE:
        begin = arrival if behind == NOWHERE else max(arrival, end[behind])
        if end[ahead] > arrival and begin + duration <= start[ahead]:
            break
        behind = ahead
        ahead = after[ahead]
    found, ahead, most = behind, behind, ways.now[0] + MOST_BEHIND
    while ahead != NOWHERE and end[ahead] > arrival:  # may the op be before this one?
        behind = before[ahead]
        begin = arrival if behind == NOWHERE else max(arrival, end[behind])
        if begin * path.scale <= latest:
            way = _way(problem, path, ways, ahead, most)
            if way == NEVER:
                break
            if (begin + duration) * path.scale <= length - way:
                found = behind
        ahead = behind
    return int(found)


@kernel(allocates=False)
def _way(problem: Problem, path: Path, ways: LongestWays, op: int, most: int) -> int:
    """The longest way from a placed op to the end; those of all ops behind it are found before."""
    # `NEVER` if there would be more than `most` in ``ways.found`` then.
    stack, now, inputs = ways.stack, ways.now[1], problem.inputs
    stack[0], size = op, 1
    while size > 0:
        one, height, longest = stack[size - 1], size, np.int64(0)
        if ways.turn[one] == now:
            size -= 1
            continue
        if ways.now[0] + size > most:
            return NEVER
        other = path.after[one]
        if other != NOWHERE and ways.turn[other] != now:
            stack[size] = other
            size += 1
        elif other != NOWHERE:
            longest = ways.way[other]
        for e in range(problem.succ_ptr[one], problem.succ_ptr[one + 1]):
            other = problem.succ_op[e]
            if path.device[other] == NOWHERE:
                longest = max(longest, path.edge_cost[e] + path.tail[other])
            elif ways.turn[other] != now:
                stack[size] = other
                size += 1
            else:
                link = inputs.link_class[path.device[one], path.device[other]]
                transfer = inputs.transfer_ns[problem.succ_tensor[e], link]
                longest = max(longest, transfer * path.scale + ways.way[other])
        if size == height:
            duration = problem.time_ns[one, path.device[one]]
            ways.way[one], ways.turn[one] = duration * path.scale + longest, now
            ways.found[ways.now[0]] = one
            ways.now[0] += 1
            size -= 1
    return int(ways.way[op])


@kernel(allocates=False)
def _insert(problem: Problem, path: Path, ways: LongestWays, op: int, behind: int) -> int:
    """Put the op behind another, and put off what has to wait; how many have moved."""
    # They are in ``ways.stack``, the op first.
    device, start, end, moved, count = path.device, path.start, path.end, ways.stack, 1
    at, inputs, moved[0] = device[op], problem.inputs, op
    if behind == NOWHERE:
        other = path.first[at]
        path.first[at] = op
    else:
        other = path.after[behind]
        path.after[behind] = op
    path.before[op], path.after[op] = behind, other
    if other == NOWHERE:
        path.last[at] = op
        return count
    path.before[other] = op
    if start[other] >= end[op]:
        return count
    start[other] = end[op]
    for turn in range(ways.now[0] - 1, -1, -1):  # inputs come before what they feed
        one = ways.found[turn]
        ends = start[one] + problem.time_ns[one, device[one]]
        if ends == end[one]:
            continue
        end[one], moved[count] = ends, one
        count += 1
        if path.after[one] != NOWHERE:
            start[path.after[one]] = max(start[path.after[one]], ends)
        for e in range(problem.succ_ptr[one], problem.succ_ptr[one + 1]):
            other = problem.succ_op[e]
            if device[other] != NOWHERE:
                link = inputs.link_class[device[one], device[other]]
                sent = ends + inputs.transfer_ns[problem.succ_tensor[e], link]
                start[other] = max(start[other], sent)
    return count


@kernel
def _preferred(
    problem: Problem,
    admission: Admission,
    path: Path,
    ways: LongestWays,
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
    child = NOWHERE  # of least slack, as far as it follows from the placed parents of the children
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
            latest, both = length - tail[child], problem.time_ns[op, k] + duration
            behind = _slot(problem, path, ways, k, after, duration, latest, length)
            starts = after if behind == NOWHERE else max(after, path.end[behind])
            if starts * scale <= latest and both < least:
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

    #: Parts of an op.
    parts: Annotated[int, Field(ge=2, le=MOST_PARTS_OF_OP)] = PARTS
    #: Axes along which ops may be split.
    axes: Annotated[tuple[Axis, ...], BeforeValidator(_words), Field(min_length=1)] = AXES
    #: Kinds of ops that have channel axes where they state no axes.
    kinds: Annotated[tuple[str, ...], BeforeValidator(_words)] = KINDS


class FdDpsParams(SplitParams, DDpsParams):
    """Parameters of FD-DPS: fields of `SplitRule`, and those of D-DPS."""

    #: Ops below this share of the mean time of all ops of one clone stay whole.
    min_share: Annotated[float, Field(ge=0, le=1)] = MIN_SHARE
    #: Shorter ops stay whole.
    min_time_ns: Annotated[int, Field(ge=0)] = 0
    #: Ops with more parameter bytes per ms of their time stay whole.
    max_parameters: Annotated[int, Field(ge=0)] = MAX_PARAMETERS


@method("fd-dps", objectives=("makespan",), cites="Zeng et al. 2022 (FD-DPS), algorithm 3")
def fd_dps(task: Task[Makespan], params: FdDpsParams) -> Outcome:
    """Splits heavy ops, then D-DPS; its value refers to the graph after splitting.

    Zeng et al., "FD-DPS", Mathematics 2022, 10, 4788, Algorithm 3. A heuristic for the makespan of
    an instance of finer ops: where ops were split the plan is one of that instance
    (`Result.split`), not of the original one; where none was, it is D-DPS' plan.

    Deviations: ops are split once, before all rounds; thresholds and the costs of parts are ours;
    where parts with their copies do not fit, ops stay whole.
    """
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
