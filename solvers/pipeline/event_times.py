"""The events of an iteration as a table, its clock as a kernel, and its longest paths.

Messages lead from step to step alone here; the referee's clock (`referee.pipeline.iteration`) knows
those that skip a step, too. So the kernel's value is a bound on the referee's, and the same where
no tensor skips a stage and each device has one.

Cheapest chains of cuts under weights of steps and messages: a DP over layers of pairs.

A chain of S stages is a walk from the empty to the full cut over one pair of each layer. Its cost
is linear in the times of its stages, so one pass finds the cheapest walk, and two passes find for
every pair the cheapest walk over it.

Better chains by moves of one cut and of two neighbouring cuts, judged by the kernel's clock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NEVER
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.plain_loops import copy_to
from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.referee.pipeline.device_orders import device_orders
from placegap.solvers.pipeline.cuts import CutProblem

Times = NDArray[Any]
"""Integers, or floating-point numbers."""


class EventTable(NamedTuple):
    """The events of an iteration, each after those that it waits for.

    Attributes
    ----------
    step : (n,) int64
        Place of an event's work in the passage of its microbatch; 2 S + s for the weight event of
        stage s of S.
    on_device, of_microbatch, on_link : (n,) int64
        The event before on the same device; that of the step before; the one whose message from
        the step before comes just before this one's; -1 where there is none.
    num_steps : int
    """

    step: Ints
    on_device: Ints
    of_microbatch: Ints
    on_link: Ints
    num_steps: int


def event_table(semantics: PipelineIteration, num_devices: int, *, trains: bool) -> EventTable:
    """The events of a schedule on so many devices.

    Examples
    --------
    >>> event_table(PipelineIteration(microbatches=2), 1, trains=True).step.tolist()
    [0, 1, 0, 1]
    """
    orders = device_orders(semantics, num_devices, trains=trains)
    stages = num_devices * semantics.stages_per_device
    splits = trains and semantics.schedule == "zero_bubble"
    steps = stages * (3 if splits else 2 if trains else 1)
    number = dict[tuple[int, int], int]()
    rows: list[tuple[int, int, int, int]] = []
    latest, done = [-1] * num_devices, [0] * num_devices
    moved = True
    while moved:
        moved = False
        for q, order in enumerate(orders):
            while done[q] < len(order):
                event = order[done[q]]
                if event.weight:
                    rows.append((2 * stages + event.stage, latest[q], -1, -1))
                    latest[q], done[q], moved = len(rows) - 1, done[q] + 1, True
                    continue
                step = 2 * stages - 1 - event.stage if event.backward else event.stage
                before = number.get((step - 1, event.microbatch), -1)
                if step and before < 0:
                    break
                line = number.get((step, event.microbatch - 1), -1)
                stays = step == 0 or num_devices == 1 or (trains and step == stages)
                rows.append((step, latest[q], before, -1 if stays else line))
                number[step, event.microbatch] = latest[q] = len(rows) - 1
                done[q], moved = done[q] + 1, True
    table = np.ascontiguousarray(np.array(rows, np.int64).T)
    return EventTable(table[0], table[1], table[2], table[3], steps)


@kernel
def _clock(
    step: Ints, on_device: Ints, of_microbatch: Ints, on_link: Ints, times: Times, num_steps: int
) -> tuple[Times, Times]:
    """End of every event, and of the message that comes to it."""
    end, arrival = np.zeros(len(step), times.dtype), np.zeros(len(step), times.dtype)
    for e in range(len(step)):
        ready = times[0] * 0
        if of_microbatch[e] >= 0:
            ready = end[of_microbatch[e]]
            if on_link[e] >= 0 and arrival[on_link[e]] > ready:
                ready = arrival[on_link[e]]
            ready += times[num_steps + step[e]]
        arrival[e] = ready
        if on_device[e] >= 0 and end[on_device[e]] > ready:
            ready = end[on_device[e]]
        end[e] = ready + times[step[e]]
    return end, arrival


def iteration_time(table: EventTable, times: Ints) -> int:
    """End of the last event.

    Parameters
    ----------
    table : EventTable
    times : (2 E,) int64
        Time of each of E steps, and then of the message into each step.

    Examples
    --------
    Two microbatches on one device, 2 ns forward and 3 ns backward each:

    >>> table = event_table(PipelineIteration(microbatches=2), 1, trains=True)
    >>> iteration_time(table, np.array([2, 3, 0, 0]))
    10
    """
    return int(iteration_kernel(*table[:4], times, table.num_steps))


@kernel
def iteration_kernel(
    step: Ints, on_device: Ints, of_microbatch: Ints, on_link: Ints, times: Ints, num_steps: int
) -> int:
    """As `iteration_time`, for kernels."""
    end, _ = _clock(step, on_device, of_microbatch, on_link, times, num_steps)
    return int(end.max())


def longest_path(table: EventTable, times: Times) -> Ints:
    """How often a longest path goes through each step and each message, (2 E,).

    The sum of its counts times any times is a bound on the iteration with those times.
    """
    return _trace(*table[:4], times, table.num_steps)


@kernel
def _trace(
    step: Ints, on_device: Ints, of_microbatch: Ints, on_link: Ints, times: Times, num_steps: int
) -> Ints:
    end, arrival = _clock(step, on_device, of_microbatch, on_link, times, num_steps)
    count = np.zeros(2 * num_steps, np.int64)
    e, in_message = int(np.argmax(end)), False
    while e >= 0:
        if not in_message:
            count[step[e]] += 1
            before = on_device[e]
            if before >= 0 and end[before] >= arrival[e]:
                e = before
            elif of_microbatch[e] >= 0:
                in_message = True
            else:
                e = -1
        else:
            count[num_steps + step[e]] += 1
            line = on_link[e]
            if line >= 0 and arrival[line] > end[of_microbatch[e]]:
                e = line
            else:
                e, in_message = of_microbatch[e], False
    return count


class PairLayers(NamedTuple):
    """The pairs of each of S layers: those of layer s are ``pair[pointer[s]:pointer[s + 1]]``."""

    pointer: Ints
    pair: Ints

    @property
    def number(self) -> int:
        """Number of layers."""
        return len(self.pointer) - 1

    def of(self, layer: int) -> Ints:
        """Pairs of one layer."""
        return self.pair[self.pointer[layer] : self.pointer[layer + 1]]


def layers_of(parts: list[Ints]) -> PairLayers:
    """Layers from the pairs of each."""
    pointer = np.cumsum([0, *(len(part) for part in parts)]).astype(np.int64)
    return PairLayers(pointer, np.concatenate([np.zeros(0, np.int64), *parts]))


class CutWalk(NamedTuple):
    """The cheapest walk: its cost, `NEVER` or more if there is none, and a pair of each layer."""

    cost: int
    pairs: Ints


def cheapest_walk(problem: CutProblem, layers: PairLayers, weight: Ints) -> CutWalk:
    """The cheapest walk under weights (2 E,) of E steps and of the messages into them.

    Examples
    --------
    >>> from placegap.instances import PipelineIteration, example
    >>> from placegap.solvers.pipeline.cuts import build_cuts
    >>> problem = build_cuts(example(), PipelineIteration(sending="blocking"), np.arange(4), 100)
    >>> every = np.arange(len(problem.tail))
    >>> cheapest_walk(problem, layers_of([every]), np.array([2, 0])).cost
    86
    """
    cost, pairs = _cheapest(*_tables(problem), *layers, weight)
    return CutWalk(int(cost), pairs)


def cheap_pairs(problem: CutProblem, layers: PairLayers, weights: Ints, most: int) -> PairLayers:
    """The pairs over which a walk leads that costs no more than so much, under each row (2 E,) of
    weights, one row after another.
    """
    return PairLayers(*_cheap(*_tables(problem), *layers, np.atleast_2d(weights), most))


def times_of(problem: CutProblem, pairs: Ints) -> Ints:
    """Times of the steps of a walk and of the messages into them, (2 E,)."""
    count = len(pairs)
    steps = count * problem.passes
    times = np.zeros(2 * steps, np.int64)
    times[:count] = problem.forward_ns[pairs]
    cuts = problem.head[pairs[:-1]]
    times[steps + 1 : steps + count] = problem.forth_ns[cuts]
    if problem.trains:
        times[count : 2 * count] = problem.backward_ns[pairs][::-1]
        times[steps + count + 1 : steps + 2 * count] = problem.back_ns[cuts][::-1]
    if problem.passes == 3:
        times[2 * count : steps] = problem.weight_ns[pairs]
    return times


def _tables(problem: CutProblem) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, int, int]:
    return (
        problem.tail,
        problem.head,
        problem.forward_ns,
        problem.backward_ns,
        problem.weight_ns,
        problem.forth_ns,
        problem.back_ns,
        problem.num_cuts,
        problem.passes,
    )


@kernel(inline="always", allocates=False)
def _cost(
    s: int,
    at: int,
    count: int,
    head: Ints,
    forward: Ints,
    backward: Ints,
    late: Ints,
    forth: Ints,
    back: Ints,
    passes: int,
    weight: Ints,
) -> int:
    """Of a pair in layer s, with the messages over its larger cut."""
    cost = weight[s] * forward[at]
    steps = passes * count
    if passes > 1:
        cost += weight[2 * count - 1 - s] * backward[at]
    if passes > 2:
        cost += weight[2 * count + s] * late[at]
    if s < count - 1:
        cost += weight[steps + s + 1] * forth[head[at]]
        if passes > 1:
            cost += weight[steps + 2 * count - 1 - s] * back[head[at]]
    return int(cost)


@kernel
def _cheapest(
    tail: Ints,
    head: Ints,
    forward: Ints,
    backward: Ints,
    late: Ints,
    forth: Ints,
    back: Ints,
    num_cuts: int,
    passes: int,
    pointer: Ints,
    pair: Ints,
    weight: Ints,
) -> tuple[int, Ints]:
    count = len(pointer) - 1
    value = np.full((count + 1, num_cuts), NEVER)
    came = np.full((count + 1, num_cuts), -1)
    value[0, 0] = 0
    for s in range(count):
        for at in pair[pointer[s] : pointer[s + 1]]:
            if value[s, tail[at]] < NEVER:
                now = value[s, tail[at]] + _cost(
                    s, at, count, head, forward, backward, late, forth, back, passes, weight
                )
                if now < value[s + 1, head[at]]:
                    value[s + 1, head[at]], came[s + 1, head[at]] = now, at
    walk = np.zeros(count, np.int64)
    cut = num_cuts - 1
    if value[count, cut] < NEVER:
        for s in range(count, 0, -1):
            walk[s - 1] = came[s, cut]
            cut = tail[came[s, cut]]
    return value[count, num_cuts - 1], walk


@kernel
def _cheap(
    tail: Ints,
    head: Ints,
    forward: Ints,
    backward: Ints,
    late: Ints,
    forth: Ints,
    back: Ints,
    num_cuts: int,
    passes: int,
    pointer: Ints,
    pair: Ints,
    weights: Ints,
    most: int,
) -> tuple[Ints, Ints]:
    pointer, pair = pointer.copy(), pair.copy()
    for row in range(len(weights)):
        cost = _over_each(
            tail,
            head,
            forward,
            backward,
            late,
            forth,
            back,
            num_cuts,
            passes,
            pointer,
            pair,
            weights[row],
        )
        kept = 0
        for s in range(len(pointer) - 1):
            begin, pointer[s] = pointer[s], kept
            for x in range(begin, pointer[s + 1]):
                if cost[x] <= most:
                    pair[kept] = pair[x]
                    kept += 1
        pointer[-1] = kept
        pair = pair[:kept].copy()
    return pointer, pair


@kernel
def _over_each(
    tail: Ints,
    head: Ints,
    forward: Ints,
    backward: Ints,
    late: Ints,
    forth: Ints,
    back: Ints,
    num_cuts: int,
    passes: int,
    pointer: Ints,
    pair: Ints,
    weight: Ints,
) -> Ints:
    """Cost of the cheapest walk over each pair of each layer."""
    count = len(pointer) - 1
    here, rest = np.full((count + 1, num_cuts), NEVER), np.full((count + 1, num_cuts), NEVER)
    here[0, 0], rest[count, num_cuts - 1] = 0, 0
    cost = np.zeros(len(pair), np.int64)
    for s in range(count):
        for x in range(pointer[s], pointer[s + 1]):
            at = pair[x]
            cost[x] = _cost(
                s, at, count, head, forward, backward, late, forth, back, passes, weight
            )
            if here[s, tail[at]] < NEVER:
                now = here[s, tail[at]] + cost[x]
                here[s + 1, head[at]] = min(here[s + 1, head[at]], now)
    for s in range(count - 1, -1, -1):
        for x in range(pointer[s], pointer[s + 1]):
            at = pair[x]
            if rest[s + 1, head[at]] < NEVER:
                now = rest[s + 1, head[at]] + cost[x]
                rest[s, tail[at]] = min(rest[s, tail[at]], now)
    for s in range(count):
        for x in range(pointer[s], pointer[s + 1]):
            before, after = here[s, tail[pair[x]]], rest[s + 1, head[pair[x]]]
            if before < NEVER and after < NEVER:
                cost[x] += before + after
            else:
                cost[x] = NEVER
    return cost


REACH = 256
"""How far one cut moves at most; two neighbouring cuts move a sixteenth of that each."""


def improve(problem: CutProblem, table: EventTable, allowed: Ints, walk: Ints) -> tuple[int, Ints]:
    """The walk after moves that shorten the iteration, until there is none; and its time.

    Parameters
    ----------
    problem : CutProblem
    table : EventTable
    allowed : (S, N, N) int64 or (1, N, N) int64
        Pair of each tail and head that a layer may take, -1 where it may not.
    walk : (S,) int64
    """
    cuts = np.append(problem.tail[walk], problem.num_cuts - 1)
    value, cuts = _improve(
        problem.forward_ns,
        problem.backward_ns,
        problem.weight_ns,
        problem.forth_ns,
        problem.back_ns,
        problem.passes,
        allowed,
        cuts,
        *table,
        REACH * problem.stride,
    )
    pairs = [int(allowed[min(s, len(allowed) - 1), cuts[s], cuts[s + 1]]) for s in range(len(walk))]
    return int(value), np.array(pairs, np.int64)


@kernel(allocates=False)
def _set(
    times: Ints,
    s: int,
    at: int,
    cut: int,
    count: int,
    forward: Ints,
    backward: Ints,
    late: Ints,
    forth: Ints,
    back: Ints,
    passes: int,
) -> None:
    """Write the times of stage s, and of the messages over the cut after it."""
    steps = passes * count
    times[s] = forward[at]
    if passes > 1:
        times[2 * count - 1 - s] = backward[at]
    if passes > 2:
        times[2 * count + s] = late[at]
    if s < count - 1:
        times[steps + s + 1] = forth[cut]
        if passes > 1:
            times[steps + 2 * count - 1 - s] = back[cut]


@kernel
def _improve(
    forward: Ints,
    backward: Ints,
    late: Ints,
    forth: Ints,
    back: Ints,
    passes: int,
    allowed: Ints,
    cuts: Ints,
    step: Ints,
    on_device: Ints,
    of_microbatch: Ints,
    on_link: Ints,
    num_steps: int,
    reach: int,
) -> tuple[int, Ints]:
    count, num_cuts, last = len(cuts) - 1, allowed.shape[1], len(allowed) - 1
    times = np.zeros(2 * num_steps, np.int64)
    for s in range(count):
        at = allowed[min(s, last), cuts[s], cuts[s + 1]]
        _set(times, s, at, cuts[s + 1], count, forward, backward, late, forth, back, passes)
    best = iteration_kernel(step, on_device, of_microbatch, on_link, times, num_steps)
    trial, moved = times.copy(), True
    while moved:
        moved = False
        for width in (1, 2):
            for s in range(1, count - width + 1):
                h, j = cuts[s - 1], cuts[s + width]
                found_a, found_b = -1, -1
                near = reach if width == 1 else reach // 16
                for a in range(max(0, cuts[s] - near), min(num_cuts, cuts[s] + near + 1)):
                    left = allowed[min(s - 1, last), h, a]
                    if left < 0:
                        continue
                    other = cuts[s + 1] if width == 2 else a
                    wide = near if width == 2 else 0
                    for b in range(max(0, other - wide), min(num_cuts, other + wide + 1)):
                        if width == 2 and allowed[min(s, last), a, b] < 0:
                            continue
                        right = allowed[min(s + width - 1, last), b, j]
                        if right < 0:
                            continue
                        copy_to(trial, times)
                        _set(
                            trial,
                            s - 1,
                            left,
                            a,
                            count,
                            forward,
                            backward,
                            late,
                            forth,
                            back,
                            passes,
                        )
                        if width == 2:
                            middle = allowed[min(s, last), a, b]
                            _set(
                                trial,
                                s,
                                middle,
                                b,
                                count,
                                forward,
                                backward,
                                late,
                                forth,
                                back,
                                passes,
                            )
                        _set(
                            trial,
                            s + width - 1,
                            right,
                            j,
                            count,
                            forward,
                            backward,
                            late,
                            forth,
                            back,
                            passes,
                        )
                        now = iteration_kernel(
                            step, on_device, of_microbatch, on_link, trial, num_steps
                        )
                        if now < best:
                            best, found_a, found_b = now, a, b
                if found_a >= 0:
                    cuts[s] = found_a
                    if width == 2:
                        cuts[s + 1] = found_b
                    for t in range(s - 1, s + width):
                        at = allowed[min(t, last), cuts[t], cuts[t + 1]]
                        _set(
                            times,
                            t,
                            at,
                            cuts[t + 1],
                            count,
                            forward,
                            backward,
                            late,
                            forth,
                            back,
                            passes,
                        )
                    moved = True
            if moved:
                break
    return best, cuts
