"""Iteration times by longest paths, cheapest chains of cuts by a DP, and better chains by moves.

Events wait for events only, so the iteration time is a longest path through them, and every path
is a lower bound that is linear in the times of the steps. Here messages lead from each step to the
next one only; the referee's clock (`iteration.referee`) also has those that skip steps. So the
time here is a bound on the referee's, and equal to it where no tensor skips a stage and each device
has one stage.

A chain of S stages is a walk from the empty to the full cut with one pair per stage. Under weights
of the steps its cost is a sum over its pairs. So one forward DP finds the cheapest walk, and a
forward and a backward DP together the cheapest walk over each pair.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import copy_to, kernel
from placegap.instances.objectives.iteration.stages import device_orders
from placegap.instances.problem import PipelineIteration
from placegap.instances.problem.integers import NEVER
from placegap.solvers.pipeline.cuts import CutProblem

Times = NDArray[Any]
"""Integers, or floating-point numbers."""

REACH = 256  # most numbers of cuts that one cut moves by; two neighbouring ones by a sixteenth


class EventTable(NamedTuple):
    """The events of an iteration, each after those that it waits for."""

    #: (n,) int64: Place of an event's work in the passage of its microbatch; 2 S + s for the weight
    #: event of stage s of S. The last S steps are the updates of the stages, where there are any.
    step: Ints
    #: on_device, of_microbatch, on_link: (n,) int64: The event before on the same device; that of
    #: the step before; the one whose message from the step before comes just before this one's; -1
    #: where there is none.
    on_device: Ints
    of_microbatch: Ints
    on_link: Ints
    num_steps: int


def event_table(
    semantics: PipelineIteration, num_devices: int, *, trains: bool, updates: bool = False
) -> EventTable:
    """The events of a schedule on some devices."""
    orders = device_orders(semantics, num_devices, trains=trains)
    stages = num_devices * semantics.stages_per_device
    splits = trains and semantics.schedule == "zero_bubble"
    steps = stages * (3 if splits else 2 if trains else 1)
    number = dict[tuple[int, int], int]()
    rows: list[tuple[int, int, int, int]] = []
    latest, done = [-1] * num_devices, [0] * num_devices
    moved = True
    # Devices take turns; each runs its events until one waits for an event of another device. So
    # every row comes after those that it waits for, and `_clock` needs one pass.
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
                # The step before has no event yet on its device: this device waits, and the next
                # one goes on.
                if step and before < 0:
                    break
                line = number.get((step, event.microbatch - 1), -1)
                # Where no message leads in: the first step, a single device, and the last stage,
                # whose backward step follows its own forward step. Else messages of one link go one
                # after another.
                stays = step == 0 or num_devices == 1 or (trains and step == stages)
                rows.append((step, latest[q], before, -1 if stays else line))
                number[step, event.microbatch] = latest[q] = len(rows) - 1
                done[q], moved = done[q] + 1, True
    for s in range(stages if updates else 0):
        rows.append((steps + s, latest[s % num_devices], -1, -1))
        latest[s % num_devices] = len(rows) - 1
    steps += stages if updates else 0
    table = np.ascontiguousarray(np.array(rows, np.int64).T)
    return EventTable(table[0], table[1], table[2], table[3], steps)


@kernel(bounded=True)
def _clock(table: EventTable, times: Times) -> tuple[Times, Times]:
    """End of every event, and of the message that comes to it."""
    n = len(table.step)
    end, arrival = np.zeros(n, times.dtype), np.zeros(n, times.dtype)
    for e in range(n):
        # A zero of the type of the times: the kernel serves integers and floats.
        ready = times[0] * 0
        before, line, last = table.of_microbatch[e], table.on_link[e], table.on_device[e]
        if before >= 0:
            ready = end[before]
            if line >= 0 and arrival[line] > ready:
                ready = arrival[line]
            ready += times[table.num_steps + table.step[e]]
        arrival[e] = ready
        if last >= 0 and end[last] > ready:
            ready = end[last]
        end[e] = ready + times[table.step[e]]
    return end, arrival


@kernel(bounded=True)
def iteration_time(table: EventTable, times: Ints) -> int:
    """End of the last event, for the times of E steps, and then of the message into each step."""
    return int(_clock(table, times)[0].max())


@kernel(bounded=True)
def longest_path(table: EventTable, times: Times) -> Ints:
    """Number of times that a longest path goes through each step and each message."""
    # The sum of its counts times any times is a bound on the iteration with those times.
    end, arrival = _clock(table, times)
    count = np.zeros(len(times), np.int64)
    e, in_message = int(np.argmax(end)), False
    while e >= 0:
        if not in_message:
            count[table.step[e]] += 1
            before = table.on_device[e]
            # Go back along whichever of the two ended last: the event before on the device, or the
            # message. At equal ends either gives a longest path; the fixed choice keeps runs
            # reproducible.
            if before >= 0 and end[before] >= arrival[e]:
                e = before
            elif table.of_microbatch[e] >= 0:
                in_message = True
            else:
                e = -1
        else:
            count[table.num_steps + table.step[e]] += 1
            line = table.on_link[e]
            # The message waited for the link: the path goes on along the message before it, not to
            # its sender.
            if line >= 0 and arrival[line] > end[table.of_microbatch[e]]:
                e = line
            else:
                e, in_message = table.of_microbatch[e], False
    return count


class CutPairs(NamedTuple):
    """The pairs of a `CutProblem` for the kernels."""

    # `kinds` is the number of kinds of events of a stage: forward, backward, weight gradients,
    # updates.
    tail: Ints
    head: Ints
    forward: Ints
    backward: Ints
    third: Ints
    fourth: Ints
    size: Ints
    forth: Ints
    back: Ints
    num_cuts: int
    kinds: int


def _pairs(problem: CutProblem) -> CutPairs:
    third, fourth = problem.weight_ns, problem.update_ns
    # Without weight events the updates come third: steps have no gaps.
    if problem.passes < 3:
        third, fourth = fourth, third
    return CutPairs(
        problem.tail,
        problem.head,
        problem.forward_ns,
        problem.backward_ns,
        third,
        fourth,
        problem.size,
        problem.forth_ns,
        problem.back_ns,
        problem.num_cuts,
        problem.passes + problem.updates,
    )


class PairLayers(NamedTuple):
    """The pairs that each of S stages may take: ``pair[pointer[s]:pointer[s + 1]]`` for stage s."""

    pointer: Ints
    pair: Ints

    @property
    def number(self) -> int:
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
    """The cheapest walk under weights (2 E + S,) of `times_of`."""
    cost, pairs = _cheapest(_pairs(problem), layers, weight)
    return CutWalk(int(cost), pairs)


def cheap_pairs(problem: CutProblem, layers: PairLayers, weights: Ints, most: int) -> PairLayers:
    """The pairs with a walk over them of at most a limit, under each row of weights in turn."""
    return PairLayers(*_cheap(_pairs(problem), layers, np.atleast_2d(weights), most))


def times_of(problem: CutProblem, pairs: Ints) -> Ints:
    """Times of a walk's steps, of the messages into them, and its stages' sizes, (2 E + S,)."""
    return np.asarray(_times(_pairs(problem), pairs))


@kernel(inline="always", allocates=False)
def _put_stage(p: CutPairs, times: Ints, count: int, s: int, at: int) -> None:
    """Write the times, the size and the messages of a pair as stage s, in the order of `_cost`."""
    # Step s is the forward step of stage s and step 2 S - 1 - s its backward step; a message stands
    # at the step that it leads to. Sizes come last, as steps of limits alone.
    steps = p.kinds * count
    times[2 * steps + s] = p.size[at]
    times[s] = p.forward[at]
    if p.kinds > 1:
        times[2 * count - 1 - s] = p.backward[at]
    if p.kinds > 2:
        times[2 * count + s] = p.third[at]
    if p.kinds > 3:
        times[3 * count + s] = p.fourth[at]
    if s < count - 1:
        times[steps + s + 1] = p.forth[p.head[at]]
        if p.kinds > 1:
            times[steps + 2 * count - 1 - s] = p.back[p.head[at]]


@kernel(bounded=True)
def _times(p: CutPairs, pairs: Ints) -> Ints:
    times = np.zeros((2 * p.kinds + 1) * len(pairs), np.int64)
    for s in range(len(pairs)):
        _put_stage(p, times, len(pairs), s, pairs[s])
    return times


@kernel(bounded=True, inline="always", allocates=False)
def _cost(p: CutPairs, weight: Ints, count: int, s: int, at: int) -> int:
    """Cost of a pair as stage s of `count`, with the messages over its larger cut."""
    steps = p.kinds * count
    cost = weight[s] * p.forward[at] + weight[2 * steps + s] * p.size[at]
    if p.kinds > 1:
        cost += weight[2 * count - 1 - s] * p.backward[at]
    if p.kinds > 2:
        cost += weight[2 * count + s] * p.third[at]
    if p.kinds > 3:
        cost += weight[3 * count + s] * p.fourth[at]
    if s < count - 1:
        cost += weight[steps + s + 1] * p.forth[p.head[at]]
        if p.kinds > 1:
            cost += weight[steps + 2 * count - 1 - s] * p.back[p.head[at]]
    return int(cost)


@kernel(bounded=True)
def _cheapest(p: CutPairs, layers: PairLayers, weight: Ints) -> tuple[int, Ints]:
    count = len(layers.pointer) - 1
    value = np.full((count + 1, p.num_cuts), NEVER)
    came = np.full((count + 1, p.num_cuts), -1)
    value[0, 0] = 0
    for s in range(count):
        for at in layers.pair[layers.pointer[s] : layers.pointer[s + 1]]:
            tail, head = p.tail[at], p.head[at]
            if value[s, tail] < NEVER:
                now = value[s, tail] + _cost(p, weight, count, s, at)
                if now < value[s + 1, head]:
                    value[s + 1, head], came[s + 1, head] = now, at
    walk = np.zeros(count, np.int64)
    cut = p.num_cuts - 1
    if value[count, cut] < NEVER:
        for s in range(count, 0, -1):
            walk[s - 1] = came[s, cut]
            cut = p.tail[came[s, cut]]
    return value[count, p.num_cuts - 1], walk


@kernel(bounded=True)
def _cheap(p: CutPairs, layers: PairLayers, weights: Ints, most: int) -> tuple[Ints, Ints]:
    """The pairs with a cheapest walk over them of cost at most `most`, under every row."""
    # The cheapest walk over a pair costs the cheapest way to its tail (`here`), the pair, and the
    # cheapest way from its head (`rest`). A chain below `most` has every row below it, so a pair
    # that fails one row is in no such chain.
    pointer, pair = layers.pointer.copy(), layers.pair.copy()
    count = len(pointer) - 1
    for row in range(len(weights)):
        here, rest = (
            np.full((count + 1, p.num_cuts), NEVER),
            np.full((count + 1, p.num_cuts), NEVER),
        )
        here[0, 0], rest[count, p.num_cuts - 1] = 0, 0
        cost = np.zeros(len(pair), np.int64)
        for s in range(count):
            for x in range(pointer[s], pointer[s + 1]):
                tail, head = p.tail[pair[x]], p.head[pair[x]]
                cost[x] = _cost(p, weights[row], count, s, pair[x])
                if here[s, tail] < NEVER:
                    here[s + 1, head] = min(here[s + 1, head], here[s, tail] + cost[x])
        for s in range(count - 1, -1, -1):
            for x in range(pointer[s], pointer[s + 1]):
                tail, head = p.tail[pair[x]], p.head[pair[x]]
                if rest[s + 1, head] < NEVER:
                    rest[s, tail] = min(rest[s, tail], rest[s + 1, head] + cost[x])
        # Each row sees only the pairs that the rows before it kept, which makes it stronger. Pairs
        # move up in place: `kept` never passes x.
        kept = 0
        for s in range(count):
            begin, pointer[s] = pointer[s], kept
            for x in range(begin, pointer[s + 1]):
                before, after = here[s, p.tail[pair[x]]], rest[s + 1, p.head[pair[x]]]
                if before < NEVER and after < NEVER and before + cost[x] + after <= most:
                    pair[kept] = pair[x]
                    kept += 1
        pointer[-1] = kept
        pair = pair[:kept].copy()
    return pointer, pair


def improve(problem: CutProblem, table: EventTable, allowed: Ints, walk: Ints) -> tuple[int, Ints]:
    """A walk improved by moves of one cut and of neighbouring ones until none helps; its time."""
    # `allowed` is the pair of each tail and head that a layer may take, -1 where it may not, (S, N,
    # N) or (1, N, N).
    cuts = np.append(problem.tail[walk], problem.num_cuts - 1)
    value, cuts = _improve(_pairs(problem), table, allowed, cuts, REACH * problem.stride)
    pairs = [int(allowed[min(s, len(allowed) - 1), cuts[s], cuts[s + 1]]) for s in range(len(walk))]
    return int(value), np.array(pairs, np.int64)


@kernel
def _improve(
    p: CutPairs, table: EventTable, allowed: Ints, cuts: Ints, reach: int
) -> tuple[int, Ints]:
    count, last = len(cuts) - 1, len(allowed) - 1
    times = np.zeros(2 * table.num_steps + count, np.int64)
    for s in range(count):
        _put_stage(p, times, count, s, allowed[min(s, last), cuts[s], cuts[s + 1]])
    best = iteration_time(table, times)
    trial, moved = times.copy(), True
    while moved:
        moved = False
        # one cut at a time as long as that helps; pairs of cuts, within a shorter reach, only then
        for width in (1, 2):
            # A cut that moves changes two stages, two neighbouring cuts three. The pair of each
            # stage comes from `allowed`, so a move keeps memory and order by itself.
            near = reach if width == 1 else reach // 16
            for s in range(1, count - width + 1):
                h, j = cuts[s - 1], cuts[s + width]
                found_a, found_b = -1, -1
                for a in range(max(0, cuts[s] - near), min(p.num_cuts, cuts[s] + near + 1)):
                    left = allowed[min(s - 1, last), h, a]
                    if left < 0:
                        continue
                    other = cuts[s + 1] if width == 2 else a
                    # For one cut the loop over b has one turn, b = a.
                    wide = near if width == 2 else 0
                    for b in range(max(0, other - wide), min(p.num_cuts, other + wide + 1)):
                        middle = allowed[min(s, last), a, b] if width == 2 else 0
                        right = allowed[min(s + width - 1, last), b, j]
                        if middle < 0 or right < 0:
                            continue
                        copy_to(trial, times)
                        _put_stage(p, trial, count, s - 1, left)
                        if width == 2:
                            _put_stage(p, trial, count, s, middle)
                        _put_stage(p, trial, count, s + width - 1, right)
                        now = iteration_time(table, trial)
                        if now < best:
                            best, found_a, found_b = now, a, b
                if found_a >= 0:
                    cuts[s] = found_a
                    if width == 2:
                        cuts[s + 1] = found_b
                    # The best move of this place is made at once; the time is a full pass over the
                    # events each time.
                    for t in range(s - 1, s + width):
                        pair = allowed[min(t, last), cuts[t], cuts[t + 1]]
                        _put_stage(p, times, count, t, pair)
                    moved = True
            # back to single cuts
            if moved:
                break
    return best, cuts
