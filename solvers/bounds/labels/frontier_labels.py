"""The kernels of `frontier_paths`: the labels of one step from those of the step before.

A label is a partial placement, by what later steps need: the devices of the places that later
ones exchange tensors with, the bytes on these devices, and ways. The way of a `HEAD` op is the time
from the beginning to its end, at least, and that of a `TAIL` op the time from its start to the end
of everything.

Ways count what cannot be at the same time. What an op reads comes in by one port, one transfer
after the other. And between two *narrow* ops, which all others of their kind come before or after,
each device does its ops, and each port its transfers, one by one.

Of the labels of a step, those go that another one is below, and where too many stay, some are
joined (`few_labels`): what is left proves no more than all of them do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel, stable_order
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.bounds.labels.dominance import fewer_labels

UNKNOWN, HEAD, TAIL = 0, 1, 2
"""Of an op: whether the way to its end, or that from its start, is known when its place is."""

WORK, INTO, OUT = 0, 1, 2
"""What a device does since the last op that everything else comes before or after."""


MOST_SHARE = 4
"""Labels of one signature are at most this part of all."""

POOL_PARTS = 64, 16, 4, 0
"""Of the room of a pool: where there are too many labels, those with as many whole parts hold the
least of any; 0 drops what they hold."""


class ValueColumns(NamedTuple):
    """The first columns of a label's ways, bytes, pools and work since the last narrow op."""

    ways: int
    held: int
    pools: int
    since: int
    end: int


def value_columns(num_ops: int, num_devices: int, num_pools: int) -> ValueColumns:
    """The columns of `FrontierLabels.value`: 0 is the complete path, 1 and 2 are the bases."""
    held = 3 + num_ops
    pools = held + num_devices
    since = pools + num_pools
    return ValueColumns(3, held, pools, since, since + 6 * num_devices)


class OpenPlaces(NamedTuple):
    """What later steps still need, of P places and n ops, and what is to come at least."""

    #: (p,) int64: Whose devices are remembered.
    places: Ints
    #: (s,) int64
    ops: Ints
    #: (s,) int64: Beyond the way of each op: from its end, or to its start.
    rest_ns: Ints
    #: (b, 3) int64: Of two of the ops, by their places in `ops`, and the time from the end of the
    #: first to the start of the second; pairs that no way leads between are left out.
    between: Ints
    #: Of the labels that know this.
    columns: ValueColumns


class FrontierLabels(NamedTuple):
    """L partial placements, by what is known of them."""

    #: (L, places) int64: Of each place of the frontier; -1 where it has been forgotten.
    device: Ints
    #: (L, 3 + s + K + S + 6 K) int64: Numbers of which less is better (`ValueColumns`): the longest
    #: path that is complete; the ways of the last narrow op, from the beginning and to the end; the
    #: way to the end of each op of the frontier, or from its start; the bytes on each device of the
    #: frontier; all that each pool of devices holds, or less; and work, transfers in and transfers
    #: out of each device of the frontier since the last narrow op, of ways from the beginning, then
    #: of those to the end.
    value: Ints
    #: source, on: (L,) int64: The label of the step before, and the device of the last place by
    #: that label's names.
    source: Ints
    on: Ints


class PlacedGraph(NamedTuple):
    """The instance as the kernels take it."""

    #: mode, narrow, section, place: (n,): Of each op: which way of it is known; whether it is
    #: narrow; how many narrow ops of its mode are placed before it; and the place of its group in
    #: the order.
    mode: Ints
    narrow: Flags
    section: Ints
    place: Ints
    #: time_ns, transfer_ns, link_class: As in `Arrays`, with `NO_WAY` where an op cannot be.
    time_ns: Ints
    transfer_ns: Ints
    link_class: Ints
    #: pred_ptr, pred_edge, succ_ptr, succ_edge, producer, consumer, tensor: As in `GraphIndex`.
    pred_ptr: Ints
    pred_edge: Ints
    succ_ptr: Ints
    succ_edge: Ints
    producer: Ints
    consumer: Ints
    tensor: Ints
    #: (P, K) bool
    able: Flags
    #: (P,) int64
    size_bytes: Ints
    #: (K,) int64
    room_bytes: Ints
    #: (K,) int64: The first device of each one's class.
    peers: Ints
    #: (K,) int64: That each device is in.
    pool: Ints
    #: (S,) int64: Of all devices of a pool; S is 0 where there are no pools.
    pool_room_bytes: Ints
    #: Whether each device takes in, and sends out, one transfer of an edge at a time.
    has_ports: bool


@kernel
def extended(
    graph: PlacedGraph,
    labels: FrontierLabels,
    old: OpenPlaces,
    new: OpenPlaces,
    here: int,
    ops: Ints,
    most_ns: int,
) -> tuple[FrontierLabels, Ints, Ints]:
    """All labels with one more place on each device that has room; their signatures and costs.

    `ops` are those of the place, in topological order. A label costs what its ways and the least
    that is to come make of a path; those that cost `most_ns` or more are left out. Of alike devices
    outside the frontier the first one stands for all.
    """
    k, pools, wide, many = (
        len(graph.peers),
        len(graph.pool_room_bytes),
        len(new.places),
        len(new.ops),
    )
    was, now = old.columns, new.columns
    most = len(labels.value) * k
    device, found_value = np.empty((most, wide), np.int64), np.zeros((most, now.end), np.int64)
    signature, cost = np.empty(most, np.int64), np.empty(most, np.int64)
    source, on = np.empty(most, np.int64), np.empty(most, np.int64)
    at, value = np.full(len(graph.able), -1), np.zeros(len(graph.mode), np.int64)
    load_ns, way_ns = np.empty((6, k), np.int64), np.empty(2, np.int64)
    label = OneLabel(at, value, load_ns, way_ns)
    tracked, taken, to = np.zeros(k, np.bool_), np.zeros(k, np.bool_), np.empty(k, np.int64)
    found, size = 0, graph.size_bytes[here]
    for row in range(len(labels.value)):
        known = labels.value[row]
        # devices that the frontier names are told apart; of the others one per class is tried
        for b in range(k):
            tracked[b] = False
            taken[b] = False
        for f in range(len(old.places)):
            b = labels.device[row, f]
            at[old.places[f]] = b
            if b >= 0:
                tracked[b] = True
        for s in range(len(old.ops)):
            value[old.ops[s]] = known[was.ways + s]
        for a in range(k):
            if not tracked[a]:
                if taken[graph.peers[a]]:
                    continue
                taken[graph.peers[a]] = True
            load = known[was.held + a] + size
            if not graph.able[here, a] or load > graph.room_bytes[a]:
                continue
            q = graph.pool[a]
            if pools and known[was.pools + q] > graph.pool_room_bytes[q] - size:
                continue
            # `_ways` changes these: each device gets them anew
            at[here] = a
            for x in range(6):
                for b in range(k):
                    load_ns[x, b] = known[was.since + x * k + b]
            way_ns[0], way_ns[1] = known[1], known[2]
            whole = _ways(graph, label, here, a, ops, known[0])
            # the path through each open op, and through pairs of them with the least way between
            total = whole
            for s in range(many):
                total = max(total, value[new.ops[s]] + new.rest_ns[s])
            for x in range(len(new.between)):
                s, r, middle = new.between[x, 0], new.between[x, 1], new.between[x, 2]
                total = max(total, value[new.ops[s]] + middle + value[new.ops[r]])
            if total >= most_ns:
                continue
            for b in range(k):  # new names: alike devices by first appearance, -1 for others
                to[b] = -1
            for f in range(wide):
                b = at[new.places[f]]
                named = b < 0 or to[b] >= 0
                for c in range(k):  # the first of its class that no other one has
                    if named:
                        break
                    free = graph.peers[c] == graph.peers[b]
                    for other in range(k):
                        free = free and to[other] != c
                    if free:
                        to[b], named = c, True
            code = 0
            for f in range(wide):
                b = at[new.places[f]]
                device[found, f] = -1 if b < 0 else to[b]
                code = code * (k + 1) + device[found, f] + 1
            one = found_value[found]
            one[0], one[1], one[2] = whole, way_ns[0], way_ns[1]
            for s in range(many):
                one[now.ways + s] = value[new.ops[s]]
            for b in range(k):
                if to[b] >= 0:
                    one[now.held + to[b]] = load if b == a else known[was.held + b]
                    for x in range(6):
                        one[now.since + x * k + to[b]] = load_ns[x, b]
            for x in range(pools):
                one[now.pools + x] = known[was.pools + x] + (size if x == q else 0)
            signature[found], cost[found] = code, total
            source[found], on[found] = row, a
            found += 1
    kept = FrontierLabels(device[:found], found_value[:found], source[:found], on[:found])
    return kept, signature[:found], cost[:found]


class OneLabel(NamedTuple):
    """A label that grows: the device of each place, -1 for none; the way of each op; and what is
    done since the last narrow op, (6, K), and the ways of that, (2,), as in `FrontierLabels`.
    """

    at: Ints
    way_ns: Ints
    since_ns: Ints
    base_ns: Ints


@kernel(allocates=False)
def _ways(graph: PlacedGraph, label: OneLabel, here: int, a: int, ops: Ints, done: int) -> int:
    """Write the ways of the ops of a place on device a; the longest path that is complete."""
    value = label.way_ns
    for side in range(2):  # from the beginning, then from the end back
        for x in range(len(ops)):
            i = ops[-1 - x] if side else ops[x]
            if graph.mode[i] != (TAIL if side else HEAD):
                continue
            pointer = graph.succ_ptr if side else graph.pred_ptr
            edges = (graph.succ_edge if side else graph.pred_edge)[pointer[i] : pointer[i + 1]]
            way = _through_port(graph, label, a, edges, side)
            way = _since(graph, label, i, a, edges, way, side)
            value[i] = min(NO_WAY, way + graph.time_ns[i, a])
            if graph.narrow[i]:
                label.base_ns[side] = value[i]
            done = max(done, value[i])
    for i in ops:  # edges from ops whose way is known to ops whose rest is
        if graph.mode[i] == HEAD:
            for e in graph.succ_edge[graph.succ_ptr[i] : graph.succ_ptr[i + 1]]:
                j = graph.consumer[e]
                if graph.mode[j] == TAIL and graph.place[j] <= here:
                    way = value[i] + value[j] + _moved(graph, e, a, label.at[graph.place[j]])
                    done = max(done, way)
        elif graph.mode[i] == TAIL:
            for e in graph.pred_edge[graph.pred_ptr[i] : graph.pred_ptr[i + 1]]:
                j = graph.producer[e]
                if graph.mode[j] == HEAD and graph.place[j] <= here:
                    way = value[i] + value[j] + _moved(graph, e, label.at[graph.place[j]], a)
                    done = max(done, way)
    return min(NO_WAY, done)


@kernel(allocates=False)
def _since(
    graph: PlacedGraph, label: OneLabel, i: int, a: int, edges: Ints, way: int, side: int
) -> int:
    """Add an op, and what it exchanges within its section, to what devices do; the way to the op.

    A narrow op waits for all of that.
    """
    first, since = 3 * side, label.since_ns
    if graph.has_ports:
        for e in edges:
            j = graph.consumer[e] if side else graph.producer[e]
            b = label.at[graph.place[j]]
            near = graph.section[j] == graph.section[i] - graph.narrow[i]
            if near and b >= 0 and b != a:
                length = _moved(graph, e, a, b) if side else _moved(graph, e, b, a)
                since[first + (OUT if side else INTO), a] += length
                since[first + (INTO if side else OUT), b] += length
    if not graph.narrow[i]:
        since[first + WORK, a] = min(NO_WAY, since[first + WORK, a] + graph.time_ns[i, a])
        return way
    for x in range(first, first + 3):
        for b in range(since.shape[1]):
            way = max(way, label.base_ns[side] + since[x, b])
            since[x, b] = 0
    return way


@kernel
def _through_port(graph: PlacedGraph, label: OneLabel, a: int, edges: Ints, side: int) -> int:
    """The way to where all is there that an op on device a reads; or from where it has sent all.

    A port takes one transfer after the other, in by when they can begin: no order ends earlier.
    Seen from the end, that holds of what it sends out as well.
    """
    last, count, value = 0, 0, label.way_ns
    begins, lengths = np.empty(len(edges), np.int64), np.empty(len(edges), np.int64)
    for e in edges:
        j = graph.consumer[e] if side else graph.producer[e]
        b = label.at[graph.place[j]]
        length = _moved(graph, e, a, b) if side else _moved(graph, e, b, a)
        if length == 0 or not graph.has_ports:
            last = max(last, value[j] + length)
            continue
        slot = count
        while slot > 0 and begins[slot - 1] > value[j]:
            begins[slot], lengths[slot] = begins[slot - 1], lengths[slot - 1]
            slot -= 1
        begins[slot], lengths[slot] = value[j], length
        count += 1
    free = 0
    for slot in range(count):
        free = max(free, begins[slot]) + lengths[slot]
    return max(last, free)


@kernel(allocates=False)
def _moved(graph: PlacedGraph, e: int, a: int, b: int) -> int:
    """What an edge takes between two devices, at least; nothing where one is forgotten."""
    if a == b or a < 0 or b < 0:
        return 0
    return int(graph.transfer_ns[graph.tensor[e], graph.link_class[a, b]])


def few_labels(
    graph: PlacedGraph, labels: FrontierLabels, signature: Ints, cost: Ints, rows: int
) -> tuple[FrontierLabels, bool]:
    """A limited number of labels, if not one for each signature; and whether anything was lost."""
    num_pools, num_devices = len(graph.pool_room_bytes), len(graph.peers)
    since = labels.value.shape[1] - 6 * num_devices
    pools = slice(since - num_pools, since)
    most, lost, value = max(1, rows // MOST_SHARE), False, labels.value
    kept, least, joined = _thinned(value, signature, cost, most)
    for parts in POOL_PARTS if num_pools else ():
        if not joined and len(kept) <= rows:
            break
        value, lost = value.copy(), True
        value[:, pools] = _alike_pools(graph, value[:, pools], signature, parts)
        kept, least, joined = _thinned(value, signature, cost, most)
    while len(kept) > rows and most > 1:
        most //= 2
        kept, least, joined = _thinned(value, signature, cost, most)
    few = FrontierLabels(labels.device[kept], least, labels.source[kept], labels.on[kept])
    return few, lost or bool(joined)


def _alike_pools(graph: PlacedGraph, pool_bytes: Ints, signature: Ints, parts: int) -> Ints:
    """What pools hold, (L, S): the least of all labels of a signature that agree in whole parts."""
    if not parts:
        return np.zeros_like(pool_bytes)
    whole = pool_bytes // np.maximum(1, graph.pool_room_bytes // parts)
    same = np.unique(np.column_stack([signature, whole]), axis=0, return_inverse=True)[1].ravel()
    least = np.full((same.max() + 1, pool_bytes.shape[1]), NO_WAY)
    np.minimum.at(least, same, pool_bytes)
    return least[same]


@kernel
def _thinned(value: Ints, signature: Ints, cost: Ints, most: int) -> tuple[Ints, Ints, bool]:
    """Labels that stay, by signature and cost; their numbers, and whether any are joined."""
    by_cost = stable_order(cost)
    order = by_cost[stable_order(signature[by_cost])]
    rows, least = np.empty(len(order), np.int64), np.empty(value.shape, np.int64)
    begin, count, joined = 0, 0, False
    while begin < len(order):
        end = begin
        while end < len(order) and signature[order[end]] == signature[order[begin]]:
            end += 1
        more, lost = fewer_labels(value, order[begin:end], most, rows[count:], least[count:])
        begin, count, joined = end, count + more, joined or lost
    return rows[:count], least[:count], joined
