"""Plans for a whole graph as chains of ideals, from the first call to the last, with end times.

A plan's calls, and the ops outside of calls, in an order in which each waits only for earlier ones,
are a chain of ideals: each adds a call or a single op. All that matters later of what lies in an
ideal is its number of calls and when the ops end that feed the rest: a *label*. A label that is
nowhere better than another one of its ideal is dropped, and one that cannot lead below a known
latency. Where an ideal has too many labels of as many calls, two become one that has the best of
each: a bound.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.integers import NEVER
from placegap.instances.problem.kernels import kernel
from placegap.solvers.latency.ideals.lattice import ChainLattice

FAR = 1e30
"""How far labels of different numbers of calls are apart, per call: they are merged last."""


class CallCosts(NamedTuple):
    """What calls cost, and what bounds the rest; m nodes in topological order.

    Attributes
    ----------
    own_ns, host_ns, size_bytes : (m,) int64
    tail_ns : (C + 1, f) int64
        From the end of a node in front of an ideal, after so many calls, to the end of all that it
        feeds outside, at least; in the order of the lattice's `front`.
    rest_ns : (C + 1, N) int64
        What is outside of each ideal takes so long at least; `NEVER`: no plan is worthwhile.
    pred_ptr, pred : (m + 1,), (p,) int64
        Nodes that feed each, with none between.
    sink : (m,) bool
    mates : (m, words) int64
        Bits of the nodes that must be in the same call, none where calls may tear them apart.
    net_producer, move_ns : (e,) int64
    net_consumers : (e, words) int64
    net_ptr, net : (m + 1,), (t,) int64
        Nets that each node makes or takes.
    backward : bool
        Whether time runs backward: ideals hold what comes last.
    stays_calls : (N,) int64
        The calls that hold what every worthwhile plan has in calls, of each ideal's complement.
    room, most_calls : int
    """

    own_ns: Ints
    host_ns: Ints
    size_bytes: Ints
    tail_ns: Ints
    rest_ns: Ints
    pred_ptr: Ints
    pred: Ints
    sink: Flags
    mates: Ints
    net_producer: Ints
    net_consumers: Ints
    move_ns: Ints
    net_ptr: Ints
    net: Ints
    backward: bool
    stays_calls: Ints
    room: int
    most_calls: int


class Labels(NamedTuple):
    """Lists of labels, one per ideal.

    Attributes
    ----------
    head, length : (N,) int64
        First label of each ideal, -1 if there is none, and how many there are.
    next, calls, parent : (l,) int64
        Next label of the ideal, calls so far, label of the ideal before.
    ideal : (l,) int64
    merged : (l,) bool
        Whether the label stands for several, or comes from one that does.
    bound_ns : (l,) int64
        What no plan from it on is below.
    end_ns : (l, 1 + width) int64
        When all is done that feeds nothing, then the ends of the ideal's `front`.
    state : (3,) int64
        Labels made, first of those given back, ideals without a label.
    """

    head: Ints
    length: Ints
    next: Ints
    calls: Ints
    parent: Ints
    ideal: Ints
    merged: Flags
    bound_ns: Ints
    end_ns: Ints
    state: Ints


class Walk(NamedTuple):
    """The ideals above one, and the call between: (N,); `pos` is (m,), places in its front."""

    stamp: Ints
    queue: Ints
    own_ns: Ints
    size_bytes: Ints
    move_ns: Ints
    feed: Ints
    sinks: Ints
    torn: Ints
    pos: Ints


def new_labels(lattice: ChainLattice, most: int) -> Labels:
    """Lists with the label of the empty ideal, and room for `most` labels and one per ideal."""
    count = len(lattice.mask)
    width = 1 + int(np.diff(lattice.front_ptr).max(initial=0))
    size = max(most, 4) + count
    head = np.full(count, -1, np.int64)
    length = np.zeros(count, np.int64)
    head[0], length[0] = 0, 1
    following, calls, parent, ideal, bound = (np.zeros(size, np.int64) for _ in range(5))
    following[0] = parent[0] = -1
    return Labels(
        head,
        length,
        following,
        calls,
        parent,
        ideal,
        np.zeros(size, np.bool_),
        bound,
        np.zeros((size, width), np.int64),
        np.array([1, -1, count - 1]),
    )


def new_walk(lattice: ChainLattice, nodes: int) -> Walk:
    """Room to walk through the ideals above one."""
    rows = np.full((8, len(lattice.mask)), -1, np.int64)
    return Walk(
        rows[0],
        rows[1],
        rows[2],
        rows[3],
        rows[4],
        rows[5],
        rows[6],
        rows[7],
        np.zeros(nodes, np.int64),
    )


@kernel(allocates=False)
def extend(
    lattice: ChainLattice,
    costs: CallCosts,
    labels: Labels,
    w: Walk,
    first: int,
    steps: int,
    limit_ns: int,
    most: int,
) -> int:
    """Go on from the labels of ideals from `first` on, to latencies below `limit_ns`.

    Returns the ideal to go on from after about so many steps; one step is a label and a call.
    """
    # no literals as arguments: numba compiles the kernel that is called for each of them anew
    one_call: Any = np.int64(1)
    no_call: Any = np.int64(0)
    for i in range(first, len(lattice.mask)):
        if labels.head[i] < 0:
            continue
        if steps <= 0:
            return i
        for at in range(lattice.front_ptr[i], lattice.front_ptr[i + 1]):
            w.pos[lattice.front[at]] = at - lattice.front_ptr[i]
        w.stamp[i], w.queue[0] = i, i
        w.own_ns[i] = w.size_bytes[i] = w.move_ns[i] = 0
        w.feed[i] = w.sinks[i] = w.torn[i] = 0
        few = _fewest_calls(labels, i)
        found, now = 1, 0
        while now < found:
            j = w.queue[now]
            now, steps = now + 1, steps - labels.length[i]
            left = costs.most_calls - few - 1
            if (
                j != i
                and w.torn[j] == 0
                and left >= 0
                and costs.stays_calls[j] <= left
                and costs.rest_ns[few + 1, j] < limit_ns
            ):
                took = w.own_ns[j] + w.move_ns[j]
                _add(lattice, costs, labels, w, i, j, took, one_call, limit_ns, most)
            for at in range(lattice.child_ptr[j], lattice.child_ptr[j + 1]):
                k, v = lattice.child[at], lattice.added[at]
                if j == i and costs.host_ns[v] < NEVER:
                    w.feed[k] = _fed(lattice.mask, costs.pred_ptr, costs.pred, w.pos, i, v)
                    w.sinks[k] = costs.sink[v]
                    took = costs.host_ns[v]
                    _add(lattice, costs, labels, w, i, k, took, no_call, limit_ns, most)
                if (
                    w.stamp[k] != i
                    and costs.own_ns[v] < NEVER
                    and w.size_bytes[j] + costs.size_bytes[v] <= costs.room
                    and w.own_ns[j] + costs.own_ns[v] < limit_ns
                ):
                    w.stamp[k] = i
                    _grow(lattice, costs, w, i, j, k, v)
                    w.queue[found] = k
                    found += 1
    return len(lattice.mask)


@kernel(allocates=False)
def _fewest_calls(labels: Labels, i: int) -> int:
    """Of the labels of an ideal."""
    few, label = NEVER, labels.head[i]
    while label >= 0:
        few = min(few, labels.calls[label])
        label = labels.next[label]
    return few


@kernel(allocates=False)
def _fed(mask: Ints, pred_ptr: Ints, pred: Ints, pos: Ints, i: int, v: int) -> int:
    """Bits of the places in the front of an ideal that feed a node."""
    bits = 0
    for at in range(pred_ptr[v], pred_ptr[v + 1]):
        if _holds(mask, i, pred[at]):
            bits |= 1 << pos[pred[at]]
    return bits


@kernel(allocates=False)
def _grow(lattice: ChainLattice, costs: CallCosts, w: Walk, i: int, j: int, k: int, v: int) -> None:
    """The call from ideal i to k, which has node v more than the one to j."""
    w.own_ns[k] = w.own_ns[j] + costs.own_ns[v]
    w.size_bytes[k] = w.size_bytes[j] + costs.size_bytes[v]
    w.feed[k] = w.feed[j] | _fed(lattice.mask, costs.pred_ptr, costs.pred, w.pos, i, v)
    w.sinks[k] = w.sinks[j] + costs.sink[v]
    moves = w.move_ns[j]
    for at in range(costs.net_ptr[v], costs.net_ptr[v + 1]):
        net = costs.net[at]
        ends, producer = costs.net_consumers, costs.net_producer[net]
        paid = _pays(lattice.mask, ends, net, producer, costs.backward, i, k)
        paid -= _pays(lattice.mask, ends, net, producer, costs.backward, i, j)
        moves += paid * costs.move_ns[net]
    w.move_ns[k] = moves
    some, all_but = False, True
    for word in range(costs.mates.shape[1]):
        here = lattice.mask[j, word] & ~lattice.mask[i, word]
        some |= costs.mates[v, word] & here != 0
        all_but &= costs.mates[v, word] & ~here == 0
    lonely = not some and all_but
    w.torn[k] = w.torn[j] + (0 if lonely else int(not some) - int(all_but))


@kernel(allocates=False)
def _holds(mask: Ints, i: int, v: int) -> bool:
    """Whether node v is in ideal i; no view of the row is made, which would take longer."""
    return bool(mask[i, v // 64] >> (v % 64) & 1)


@kernel(allocates=False)
def _pays(mask: Ints, ends: Ints, net: int, producer: int, backward: bool, i: int, j: int) -> int:
    """1 if the call between two ideals brings a tensor in, or takes it out."""
    inside, before, after = False, False, False
    for word in range(ends.shape[1]):
        below, above = mask[i, word], mask[j, word]
        inside |= ends[net, word] & above & ~below != 0
        before |= ends[net, word] & below != 0
        after |= ends[net, word] & ~above != 0
    made_below = _holds(mask, i, producer)
    if _holds(mask, j, producer) and not made_below:
        return int(before if backward else after)
    return int(inside and made_below != backward)


@kernel(allocates=False)
def _add(
    lattice: ChainLattice,
    costs: CallCosts,
    labels: Labels,
    w: Walk,
    i: int,
    j: int,
    took_ns: int,
    calls: int,
    limit_ns: int,
    most: int,
) -> None:
    """The labels of ideal i with one call more, or one op more on a host, go to ideal j."""
    offset, size = lattice.front_ptr[j], lattice.front_ptr[j + 1] - lattice.front_ptr[j]
    label = labels.head[i]
    while label >= 0:
        start, bits, place = 0, w.feed[j], 0
        while bits:
            if bits & 1:
                start = max(start, labels.end_ns[label, 1 + place])
            bits >>= 1
            place += 1
        end = start + took_ns
        spent = labels.calls[label] + calls
        cheap = (
            spent <= costs.most_calls
            and end < limit_ns
            and costs.stays_calls[j] <= costs.most_calls - spent
            and costs.rest_ns[spent, j] < limit_ns
        )
        if cheap:
            new = _take(labels)
            done = max(labels.end_ns[label, 0], end if w.sinks[j] else 0)
            bound = max(done, costs.rest_ns[spent, j])
            labels.end_ns[new, 0] = done
            for at in range(size):
                f = lattice.front[offset + at]
                ends = labels.end_ns[label, 1 + w.pos[f]] if _holds(lattice.mask, i, f) else end
                labels.end_ns[new, 1 + at] = ends
                bound = max(bound, ends + costs.tail_ns[spent, offset + at])
            cheap = bound < limit_ns
            labels.bound_ns[new] = bound
            labels.calls[new], labels.parent[new] = spent, label
            labels.ideal[new], labels.merged[new] = j, labels.merged[label]
            if cheap:
                _insert(labels, j, new, 1 + size, most)
            else:
                _give_back(labels, new)
        label = labels.next[label]


@kernel(allocates=False)
def _take(labels: Labels) -> int:
    """A label that is not in use; there is always one."""
    new = labels.state[1]
    if new >= 0:
        labels.state[1] = labels.next[new]
    else:
        new = labels.state[0]
        labels.state[0] += 1
    return int(new)


@kernel(allocates=False)
def _give_back(labels: Labels, old: int) -> None:
    labels.next[old] = labels.state[1]
    labels.state[1] = old


@kernel(allocates=False)
def _insert(labels: Labels, j: int, new: int, width: int, most: int) -> None:
    """Add a label to ideal j unless another is as good; drop or merge where there are too many."""
    full = labels.state[0] + labels.state[2] + 2 >= len(labels.next)
    if labels.length[j] == 0:
        labels.state[2] -= 1
    swapped, before_worst = False, -1
    while True:
        at, before, nearest, least, worst, alike = labels.head[j], -1, -1, np.inf, -1, 0
        while at >= 0:
            after = labels.next[at]
            worse = labels.calls[new] - labels.calls[at]
            as_good, as_bad = worse >= 0, worse <= 0
            apart = abs(worse) * FAR
            for x in range(width):
                worse = labels.end_ns[new, x] - labels.end_ns[at, x]
                as_good &= worse >= 0
                as_bad &= worse <= 0
                apart += abs(worse)
            if as_good:
                _give_back(labels, new)
                return
            if as_bad:  # the other label is of no use any more
                _remove(labels, j, before, at)
                _give_back(labels, at)
            else:
                if apart < least:
                    nearest, least = at, apart
                if labels.calls[new] == labels.calls[at]:
                    alike += 1
                    if worst < 0 or labels.bound_ns[at] > labels.bound_ns[worst]:
                        worst, before_worst = at, before
                before = at
            at = after
        if labels.length[j] == 0 or (alike < most and not full):
            labels.next[new] = labels.head[j]
            labels.head[j] = new
            labels.length[j] += 1
            return
        if not swapped and worst >= 0 and labels.bound_ns[worst] > labels.bound_ns[new]:
            # the label that matters least is merged
            swapped = True
            _remove(labels, j, before_worst, worst)
            labels.next[new] = labels.head[j]
            labels.head[j] = new
            labels.length[j] += 1
            new = worst
            continue
        # the label becomes the best of both, and is as good as the nearest one
        labels.calls[new] = min(labels.calls[new], labels.calls[nearest])
        labels.bound_ns[new] = min(labels.bound_ns[new], labels.bound_ns[nearest])
        for x in range(width):
            labels.end_ns[new, x] = min(labels.end_ns[new, x], labels.end_ns[nearest, x])
        labels.merged[new] = True


@kernel(allocates=False)
def _remove(labels: Labels, j: int, before: int, at: int) -> None:
    """Take a label out of the list of ideal j, in which it follows `before`."""
    if before < 0:
        labels.head[j] = labels.next[at]
    else:
        labels.next[before] = labels.next[at]
    labels.length[j] -= 1
