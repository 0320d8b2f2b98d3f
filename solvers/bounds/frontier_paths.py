"""Memory along the order of the colocation groups: a shortest path over partial placements.

*Relaxation.* Groups are placed one after the other (`Arrays.group_order`). The *frontier* after a
step consists of the groups that exchange tensors with later ones. The bytes on a device count only
while a group of the frontier is on it. Then they are forgotten, and the device may be filled again.

*State.* A label is a partial placement: the devices of the frontier, the bytes on these devices,
the bytes in each *pool* of devices with fast links (never forgotten: a model that no server has
room for must cross slow links), and *ways*. The way of a `HEAD` op, whose ancestors are all placed,
is the least time from the beginning to its end. The way of a `TAIL` op, whose descendants are all
placed (a backward op is in the group of its forward op), is the least time from its start to the
end of everything. Ways include waiting where every schedule has it: what an op reads comes in
through one port, one transfer after the other; and between two *narrow* ops, which all others of
their mode come before or after, each device runs its ops, and each port its transfers, one by one.

*Why it is a bound.* Every plan that fits passes these steps, with labels that have no more bytes
and no longer ways than the plan. So the shortest path over labels that fit is a bound. Labels of
one *signature* (the devices of the frontier, identical devices numbered by first appearance) have
the same continuations, so a label is dropped if another one is nowhere above it. Where too many
stay, some are joined, at the least of each number. Neither makes the shortest path longer. Labels
whose path cannot end below an *aim* are left out: where none is left, the aim is a bound, and the
next aim is higher.

*Example.* A row of four ops on two devices, each op 1 ns and 1 byte, each transfer 5 ns. With room
for two bytes the path d0 d0 d1 d1 is the optimum: 4 + 5 = 9 ns. With room for one byte no plan
fits, but d0 d1 d0 d1 is a path, since d0 is forgotten when the row leaves it: 4 + 3 * 5 = 19 ns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placegap.formulations.shared.devices import device_pools
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel, stable_order
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.device_classes import first_identical
from placegap.instances.problem.graph_index import GraphIndex, group_by
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.bounds.cheap_bounds import directions, least_starts
from placegap.solvers.bounds.labels.memory_runs import fewer_labels
from placegap.solvers.core.clock import never

UNKNOWN, HEAD, TAIL = 0, 1, 2  # modes of an op: no way known; the way to its end; from its start
# Rows of what a device has done since the last narrow op: its ops, transfers in, transfers out.
WORK, INTO, OUT = 0, 1, 2
MOST_SHARE = 4  # the labels of one signature are at most one in `MOST_SHARE` of all
# Where labels are too many, the bytes of a pool count in whole parts of its room: labels with the
# same number of parts get the least bytes of any. 0: the bytes are dropped.
POOL_PARTS = 64, 16, 4, 0


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
    """The frontier after a step: what later steps need of it, and the least time to come."""

    places: Ints  # (p,) int64: The places whose devices are remembered
    ops: Ints  # (s,) int64
    rest_ns: Ints  # (s,): least time beyond the way of each op: after its end, or before its start
    #: (b, 3) int64: Positions in `ops` of a `HEAD` and a `TAIL` op, and the least time from the end
    #: of the first to the start of the second; pairs without a path between them are left out.
    between: Ints
    columns: ValueColumns  # the columns of the labels after this step


class FrontierLabels(NamedTuple):
    """L partial placements."""

    device: Ints  # (L, places): the device of each place of the frontier; -1 where it is forgotten
    #: (L, 3 + s + K + S + 6 K) int64: Numbers of which less is better (`ValueColumns`): the longest
    #: path that is complete; the ways of the last narrow op, from the beginning and to the end; the
    #: way to the end of each op of the frontier, or from its start; the bytes on each device of the
    #: frontier; all that each pool of devices holds, or less; and work, transfers in and transfers
    #: out of each device of the frontier since the last narrow op, of ways from the beginning, then
    #: of those to the end.
    value: Ints


class PlacedGraph(NamedTuple):
    """The instance as the kernels take it."""

    #: mode, narrow, section, place: (n,): Which way of each op is known; whether it is narrow; how
    #: many narrow ops of its mode are placed up to it, itself included; and the place of its group.
    mode: Ints
    narrow: Flags
    section: Ints
    place: Ints
    #: (n, K) int64: `Arrays.time_ns`, with `NO_WAY` where an op cannot be.
    op_ns: Ints
    #: transfer_ns, link_class, memory_bytes: As in `Arrays`.
    transfer_ns: Ints
    link_class: Ints
    memory_bytes: Ints
    #: pred_ptr, pred_edge, succ_ptr, succ_edge, producer, consumer, tensor: As in `GraphIndex`.
    pred_ptr: Ints
    pred_edge: Ints
    succ_ptr: Ints
    succ_edge: Ints
    producer: Ints
    consumer: Ints
    tensor: Ints
    place_able: Flags  # (P, K) bool
    size_bytes: Ints  # (P,) int64
    peers: Ints  # (K,) int64: The first device of each one's class
    pool: Ints  # (K,) int64: That each device is in
    pool_room_bytes: Ints  # (S,): room of all devices of a pool; S is 0 where there are no pools
    has_ports: bool  # whether each device takes in, and sends out, a transfer of an edge at a time


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
    """All labels with one more place on each device that has room; their signatures and costs."""
    # `ops` are those of the place, in topological order. The cost of a label is the longest path
    # that its ways and the least time to come make; labels that cost `most_ns` or more are left
    # out.
    k, pools = len(graph.peers), len(graph.pool_room_bytes)
    width, num_open = len(new.places), len(new.ops)
    was, now = old.columns, new.columns
    most = len(labels.value) * k
    device, found_value = np.empty((most, width), np.int64), np.zeros((most, now.end), np.int64)
    signature, cost = np.empty(most, np.int64), np.empty(most, np.int64)
    # `at` stays -1 for places outside the frontier: their transfers take no time, which is less
    # than any plan's
    at, value = np.full(len(graph.place_able), -1), np.zeros(len(graph.mode), np.int64)
    load_ns, way_ns = np.empty((6, k), np.int64), np.empty(2, np.int64)
    label = OneLabel(at, value, load_ns, way_ns)
    tracked, taken, to = np.zeros(k, np.bool_), np.zeros(k, np.bool_), np.empty(k, np.int64)
    found, size = 0, graph.size_bytes[here]
    for row in range(len(labels.value)):
        known = labels.value[row]
        # A device of the frontier is *tracked*: labels know its bytes, so it differs from its
        # peers. All others count as empty, so that one per class of identical devices stands for
        # the rest: swapping two of them maps every continuation to one of equal cost.
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
            # 0 + size for a device that is not tracked: here memory is forgotten
            load = known[was.held + a] + size
            if not graph.place_able[here, a] or load > graph.memory_bytes[a]:
                continue
            # bytes of a pool are never forgotten, whichever of its devices are tracked
            q = graph.pool[a]
            if pools and known[was.pools + q] > graph.pool_room_bytes[q] - size:
                continue
            # `_ways` changes the work since the last narrow op: copy it for each device tried
            at[here] = a
            for x in range(6):
                for b in range(k):
                    load_ns[x, b] = known[was.since + x * k + b]
            way_ns[0], way_ns[1] = known[1], known[2]
            whole = _ways(graph, label, here, a, ops, known[0])
            # Every path of the plan that is complete, or goes on from an open op with the least
            # time to come, is no longer than its makespan. A path that goes from a forward op over
            # ops not yet placed to a backward op counts both ways of this label.
            total = whole
            for s in range(num_open):
                total = max(total, value[new.ops[s]] + new.rest_ns[s])
            for x in range(len(new.between)):
                s, r, middle = new.between[x, 0], new.between[x, 1], new.between[x, 2]
                total = max(total, value[new.ops[s]] + middle + value[new.ops[r]])
            if total >= most_ns:
                continue
            # Rename: identical devices are numbered by first appearance in the frontier, so that
            # labels that differ in their names alone get one signature, and can be compared. -1:
            # the device has left the frontier, and its bytes are not copied below.
            for b in range(k):
                to[b] = -1
            for f in range(width):
                b = at[new.places[f]]
                named = b < 0 or to[b] >= 0
                for c in range(k):  # the first name of its class that is free
                    if named:
                        break
                    free = graph.peers[c] == graph.peers[b]
                    for other in range(k):
                        free = free and to[other] != c
                    if free:
                        to[b], named = c, True
            # the signature: one digit per place, base k + 1, as forgotten is a digit too. It fits
            # into 64 bits, for there are at most `MOST_WIDTH` places
            code = 0
            for f in range(width):
                b = at[new.places[f]]
                device[found, f] = -1 if b < 0 else to[b]
                code = code * (k + 1) + device[found, f] + 1
            one = found_value[found]
            one[0], one[1], one[2] = whole, way_ns[0], way_ns[1]
            for s in range(num_open):
                one[now.ways + s] = value[new.ops[s]]
            # bytes and work of devices that left the frontier stay 0: they are forgotten
            for b in range(k):
                if to[b] >= 0:
                    one[now.held + to[b]] = load if b == a else known[was.held + b]
                    for x in range(6):
                        one[now.since + x * k + to[b]] = load_ns[x, b]
            for x in range(pools):
                one[now.pools + x] = known[was.pools + x] + (size if x == q else 0)
            signature[found], cost[found] = code, total
            found += 1
    return FrontierLabels(device[:found], found_value[:found]), signature[:found], cost[:found]


class OneLabel(NamedTuple):
    """A label that grows, as in `FrontierLabels`."""

    # The device of each place, -1 for none; the way of each op; the work since the last narrow op,
    # (6, K); and the ways of that op, (2,).
    at: Ints
    way_ns: Ints
    since_ns: Ints
    base_ns: Ints


@kernel(allocates=False)
def _ways(graph: PlacedGraph, label: OneLabel, here: int, a: int, ops: Ints, done: int) -> int:
    """Write the ways of the ops of a place on device a; the longest path that is complete."""
    value = label.way_ns
    # Side 0 has `HEAD` ops from the beginning, side 1 `TAIL` ops from the end: the same recursion
    # on the reversed graph. In this order each op comes after those that its way depends on.
    for side in range(2):
        for x in range(len(ops)):
            i = ops[-1 - x] if side else ops[x]
            if graph.mode[i] != (TAIL if side else HEAD):
                continue
            pointer = graph.succ_ptr if side else graph.pred_ptr
            edges = (graph.succ_edge if side else graph.pred_edge)[pointer[i] : pointer[i + 1]]
            way = _through_port(graph, label, a, edges, side)
            way = _since(graph, label, i, a, edges, way, side)
            value[i] = min(NO_WAY, way + graph.op_ns[i, a])
            if graph.narrow[i]:
                label.base_ns[side] = value[i]
            done = max(done, value[i])
    # An edge from a `HEAD` to a `TAIL` op closes a path: the first has a way from the beginning,
    # the second one to the end. It is counted when the later of its two places is placed.
    for i in ops:
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
    """Add an op and its transfers within its section to the work of devices; the way to the op."""
    # A narrow op waits for all work of its section.
    # Ops of a section start after the narrow op before it ends, and end before the next one starts.
    # So all that one device (or port) does for them fits in between, one by one.
    first, since = 3 * side, label.since_ns
    if graph.has_ports:
        for e in edges:
            j = graph.consumer[e] if side else graph.producer[e]
            b = label.at[graph.place[j]]
            # transfers from before the section's narrow op may have begun before it, and do not
            # count. `section` includes the op itself: a narrow op i closes the section before its
            # own
            near = graph.section[j] == graph.section[i] - graph.narrow[i]
            if near and b >= 0 and b != a:
                length = _moved(graph, e, a, b) if side else _moved(graph, e, b, a)
                since[first + (OUT if side else INTO), a] += length
                since[first + (INTO if side else OUT), b] += length
    if not graph.narrow[i]:
        since[first + WORK, a] = min(NO_WAY, since[first + WORK, a] + graph.op_ns[i, a])
        return way
    # the busiest device or port of all; then the next section begins with this op, and no work
    for x in range(first, first + 3):
        for b in range(since.shape[1]):
            way = max(way, label.base_ns[side] + since[x, b])
            since[x, b] = 0
    return way


@kernel
def _through_port(graph: PlacedGraph, label: OneLabel, a: int, edges: Ints, side: int) -> int:
    """The least time until all that an op on device a reads is there."""
    # Or, from the end, since it began to send.
    # A port is a machine, transfers are jobs with release times (the ends of the producers): in
    # order of release they end as early as in any order. Other transfers of the port are left out.
    # From the end backwards the same holds of what the op sends.
    last, count, value = 0, 0, label.way_ns
    begins, lengths = np.empty(len(edges), np.int64), np.empty(len(edges), np.int64)
    for e in edges:
        j = graph.consumer[e] if side else graph.producer[e]
        b = label.at[graph.place[j]]
        length = _moved(graph, e, a, b) if side else _moved(graph, e, b, a)
        if length == 0 or not graph.has_ports:  # it waits for its producer alone
            last = max(last, value[j] + length)
            continue
        slot = count  # an insertion sort by release time: ops read few tensors
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
    """The least transfer time of an edge between two devices; 0 where one is forgotten."""
    if a == b or a < 0 or b < 0:
        return 0
    return int(graph.transfer_ns[graph.tensor[e], graph.link_class[a, b]])


def few_labels(
    graph: PlacedGraph, labels: FrontierLabels, signature: Ints, cost: Ints, rows: int
) -> tuple[FrontierLabels, bool]:
    """At most `rows` labels, or one per signature if these are more; whether any were joined."""
    # What is given up first matters least. Labels get equal bytes in pools that are about as full,
    # so that more of them can be compared; then each signature keeps half as many, again and again.
    num_pools, num_devices = len(graph.pool_room_bytes), len(graph.peers)
    since = labels.value.shape[1] - 6 * num_devices
    pools = slice(since - num_pools, since)
    # a cap per signature, so that one with many labels does not crowd out all others
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
    return FrontierLabels(labels.device[kept], least), lost or bool(joined)


def _alike_pools(graph: PlacedGraph, pool_bytes: Ints, signature: Ints, parts: int) -> Ints:
    """Bytes of pools, (L, S): the least of all labels of a signature with equal whole parts."""
    # the least real value, and not the part's lower end: no label gets fewer bytes than it must
    if not parts:
        return np.zeros_like(pool_bytes)
    whole = pool_bytes // np.maximum(1, graph.pool_room_bytes // parts)
    same = np.unique(np.column_stack([signature, whole]), axis=0, return_inverse=True)[1].ravel()
    least = np.full((same.max() + 1, pool_bytes.shape[1]), NO_WAY)
    np.minimum.at(least, same, pool_bytes)
    return least[same]


@kernel
def _thinned(value: Ints, signature: Ints, cost: Ints, most: int) -> tuple[Ints, Ints, bool]:
    """Rows of labels that stay, by signature and cost; their values, and whether any are joined."""
    # two stable sorts: by signature, and by cost within each. The cheapest come first, because a
    # label is compared only with those before it, and a cheap one dominates more
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


MOST_WIDTH = 5  # most places of a frontier with devices remembered; those needed latest go
MOST_CELLS = 30_000_000  # cells of the tables of one step: many unlike devices leave fewer places
# Labels of a step at most. The first number suffices for most aims; the last is used once the
# frontier has proven something.
FEW_ROWS, MOST_ROWS, MORE_ROWS = 256, 2_048, 8_192
# If the shortest path of few labels is below this share of the proven bound, more labels do not
# lift it above the bound either: they are not tried.
HOPELESS = 0.85
MOST_OPS = 5_000  # larger graphs are not tried
# An aim is this share above the proven bound; the share is halved when a path is below the aim.
STRIDE, LEAST_STRIDE = 0.06, 0.004


class LeastPath(NamedTuple):
    """The least path below an aim."""

    ns: int | None  # None if there is none
    joined: bool  # whether the true shortest path may be longer


def frontier_bound(
    instance: Instance,
    semantics: Makespan,
    known_ns: int,
    stop: Callable[[], bool] = never,
    rows: int = MOST_ROWS,
) -> int:
    """A lower bound on every makespan by memory along the order of the groups, in ns."""
    # Resident bytes add up (`additive_memory`). The result is at least `known_ns`, which is proven
    # already; `stop` ends the search with the bound so far. O(P L K (w + L)) for each aim, with P
    # groups, at most `rows` labels L and w numbers in each.
    if instance.num_ops > MOST_OPS or instance.arrays.memory_is_slack:
        return known_ns
    best, stride, steps = known_ns, STRIDE, steps_of(instance, semantics)
    # Few labels refute most low aims at an eighth of the cost. A call with more rows than usual
    # follows one that has tried few, and starts with all.
    now = FEW_ROWS if rows <= MOST_ROWS else rows
    most_ns = instance.arrays.serial_horizon_ns
    while stride >= LEAST_STRIDE:
        aim = int(best * (1 + stride)) + 1
        if aim > most_ns + 1:  # no plan at all, or nothing left to prove
            return best
        found = least_below(steps, aim, stop, rows=now)
        if found is None:
            return best
        if found.ns is None:  # every plan below the aim would have left a label
            best = aim
            continue
        # A path below the aim. If no labels were joined it is the optimum of the relaxation, and no
        # aim above it can be refuted. If some were, more labels may refute this aim.
        if not found.joined:
            return max(best, found.ns)
        if now < rows and (best > known_ns or found.ns > best * HOPELESS):
            now = rows
            continue
        if found.ns < best * (1 - STRIDE):  # too much is lost in joining
            return best
        # the path is a bound by itself: joining only shortens paths, and what is not below the aim
        # is not below the path either
        best, stride = max(best, found.ns), stride / 2
    return best


def least_below(
    steps: PlacingSteps, aim_ns: int, stop: Callable[[], bool] = never, *, rows: int = MOST_ROWS
) -> LeastPath | None:
    """The least path, if it is below the aim; None where it was stopped or has too many labels."""
    k, none = steps.graph.place_able.shape[1], np.zeros(0, np.int64)
    columns = value_columns(0, k, len(steps.graph.pool_room_bytes))
    # the empty placement: no frontier, no bytes, no ways
    old = OpenPlaces(none, none, none, np.zeros((0, 3), np.int64), columns)
    joined = False
    known = FrontierLabels(np.zeros((1, 0), np.int64), np.zeros((1, columns.end), np.int64))
    for here, new in enumerate(steps.frontiers):
        if stop():
            return None
        found, signature, cost = extended(
            steps.graph, known, old, new, here, steps.ops[here], aim_ns
        )
        if not len(cost):
            return LeastPath(None, joined)
        old = new
        # The next step has a table of k rows per label, each with an op's way per open op and eight
        # numbers per device. Where one label per signature is already too many, nothing is proven:
        # dropping a signature would drop plans.
        fitting = MOST_CELLS // (k * (len(new.ops) + 8 * k))  # rows of the next step's tables
        known, lost = few_labels(steps.graph, found, signature, cost, min(rows, fitting))
        if len(known.value) > 2 * fitting + 1:
            return None
        joined = joined or bool(lost)
    return LeastPath(int(known.value[:, 0].min()), joined)


class PlacingSteps(NamedTuple):
    """The graph, the ops of each place in topological order, and the frontier after each."""

    graph: PlacedGraph
    ops: list[Ints]
    frontiers: list[OpenPlaces]


def steps_of(instance: Instance, semantics: Makespan) -> PlacingSteps:
    """The steps of an instance whose resident bytes add up."""
    arrays, index = instance.arrays, instance.arrays.index
    order = arrays.group_order
    place = arrays.place_of_ops(order)
    member_ptr, member = group_by(place, len(order))
    # within a place in topological order: the way of an op needs those of its producers there
    ops = [
        part[np.argsort(index.topological_position[part], kind="stable")]
        for part in np.split(member, member_ptr[1:-1])
    ]
    pools = device_pools(arrays)
    # identical devices of different pools are no peers: a swap would change what the pools hold
    peers = first_identical(instance, pools.pool.tolist())
    mode = _modes(index, place)
    narrow, section = _sections(index, mode, place)
    graph = PlacedGraph(
        **arrays.named(PlacedGraph._fields),
        mode=mode,
        narrow=narrow,
        section=section,
        place=place,
        op_ns=np.where(arrays.able, arrays.time_ns, NO_WAY),
        place_able=arrays.group_runs[order],
        size_bytes=arrays.group_bytes[order],
        peers=peers,
        pool=pools.pool,
        pool_room_bytes=pools.room_bytes,
        has_ports=semantics.transfers == "per_edge"
        and semantics.channels in ("port", "half_duplex"),
    )
    return PlacingSteps(graph, ops, _frontiers(instance, graph, ops, most_width(peers)))


def most_width(peers: Ints) -> int:
    """How many places are remembered: so few that each of their signatures can have a label."""
    num_devices, classes = len(peers), len(np.unique(peers))
    width, signatures = 0, 1
    while width < MOST_WIDTH:
        # a place is on a device that one of the `width` places before it is on, or on the first
        # unnamed one of a class
        signatures *= min(num_devices, classes + width)
        if width and signatures * num_devices * 8 * num_devices > MOST_CELLS:
            break
        width += 1
    return width


def _modes(index: GraphIndex, place: Ints) -> Ints:
    """Mode of each op, (n,): whether all that comes before it, or after it, is placed with it."""
    mode = np.full(len(place), UNKNOWN)
    # `HEAD` first: an op that could be both (all its ancestors and descendants are placed with it)
    # counts from the beginning, as its producers do. The rest count in no way, but their bytes do.
    order = index.topological_order.tolist()
    for i in order:
        before = index.producer[index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]]]
        if ((mode[before] == HEAD) & (place[before] <= place[i])).all():
            mode[i] = HEAD
    for i in reversed(order):
        after = index.consumer[index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]]]
        if mode[i] != HEAD and ((mode[after] == TAIL) & (place[after] <= place[i])).all():
            mode[i] = TAIL
    return mode


def _sections(index: GraphIndex, mode: Ints, place: Ints) -> tuple[Flags, Ints]:
    """Whether all other ops of an op's mode come before or after it, (n,)."""
    # By the order of places; and how many such ops are placed up to each.
    narrow, section = np.zeros(len(mode), np.bool_), np.zeros(len(mode), np.int64)
    position, order = index.topological_position, index.topological_order
    forward = (order, index.succ_ptr, index.consumer[index.succ_edge])
    backward = (order[::-1], index.pred_ptr, index.producer[index.pred_edge])
    for kind, sign in ((HEAD, 1), (TAIL, -1)):
        # In the order in which labels meet them, the r-th op is narrow if all r ops before it lead
        # to it (for `TAIL`: it leads to them) and it leads to all after it. Counts decide that:
        # there are exactly r ops before it, and an op that leads to it comes before it.
        inside = mode == kind
        ops = np.flatnonzero(inside)
        ops = ops[np.lexsort((sign * position[ops], place[ops]))]
        rank = np.arange(len(ops))
        earlier, later = (_how_many_lead_to(*way, inside) for way in (forward, backward)[::sign])
        narrow[ops] = (earlier[ops] == rank) & (later[ops] == len(ops) - 1 - rank)
        section[ops] = np.cumsum(narrow[ops])
    return narrow, section


def _how_many_lead_to(order: Ints, pointer: Ints, target: Ints, inside: Flags) -> Ints:
    """How many of the ops inside lead to each of them, (n,); a set is the bits of an integer."""
    sets = [0] * len(order)
    for i in order[inside[order]].tolist():
        for j in target[pointer[i] : pointer[i + 1]].tolist():
            sets[j] |= sets[i] | (1 << i)
    return np.array([each.bit_count() for each in sets], np.int64)


def _frontiers(
    instance: Instance, graph: PlacedGraph, members: list[Ints], width: int
) -> list[OpenPlaces]:
    """The frontier after each place is added."""
    # An op is open until the last of its neighbours is placed; a place, until the last of its ops
    # is closed. Edges at ops without a way need no device: their transfers are in no path.
    known = (graph.mode[graph.producer] != UNKNOWN) & (graph.mode[graph.consumer] != UNKNOWN)
    u, v = graph.producer[known], graph.consumer[known]
    last_op, last = np.full(len(graph.mode), -1), np.full(len(members), -1)
    np.maximum.at(last_op, u, graph.place[v])
    np.maximum.at(last_op, v, graph.place[u])
    np.maximum.at(last, graph.place, last_op)
    # what is not placed yet takes its least time on any device, and its transfers none
    index, least = instance.arrays.index, graph.op_ns.min(axis=1)
    order, bare = index.topological_order, directions(instance, transfers=False)
    head, tail = (least_starts(way, least[:, None])[:, 0] for way in bare)
    rest, ways = np.where(graph.mode == HEAD, tail, head), dict[int, Ints]()
    frontiers, places, ops = list[OpenPlaces](), list[int](), np.zeros(0, np.int64)
    for here, added in enumerate(members):
        places = [q for q in [*places, here] if last[q] > here]
        # the places that close soonest stay: a place that is open for long, such as a residual,
        # would take part in the signatures of many steps. In order of places, so that names are
        # canonical
        places = sorted(sorted(places, key=lambda q: (last[q], q))[:width])
        ops = np.concatenate([ops, added])
        ops = ops[last_op[ops] > here]
        heads = np.flatnonzero(graph.mode[ops] == HEAD)
        others = np.flatnonzero(graph.mode[ops] != HEAD)
        # Paths from `HEAD` to `TAIL` ops over ops that are not placed. Without `TAIL` ops, as in
        # most inference, there are none, and no search: with many open ops it would be quadratic.
        sources = ops[heads].tolist() if len(others) else []
        ways = {i: ways[i] if i in ways else _ways_from(graph, order, least, i) for i in sources}
        between = [np.zeros((0, 3), np.int64)]
        for s, i in zip(heads.tolist(), sources, strict=False):
            reached = others[ways[i][ops[others]] >= 0]
            between.append(
                np.column_stack([np.full(len(reached), s), reached, ways[i][ops[reached]]])
            )
        columns = value_columns(len(ops), len(graph.peers), len(graph.pool_room_bytes))
        open_ways = np.concatenate(between)
        frontiers.append(OpenPlaces(np.array(places, np.int64), ops, rest[ops], open_ways, columns))
    return frontiers


@kernel
def _ways_from(graph: PlacedGraph, order: Ints, least: Ints, source: int) -> Ints:
    """Least time from the end of an op to the start of each, (n,), -1 where no path leads."""
    way = np.full(len(order), -1)
    for j in order:
        for e in graph.pred_edge[graph.pred_ptr[j] : graph.pred_ptr[j + 1]]:
            i = graph.producer[e]
            if i == source:
                way[j] = max(way[j], 0)
            elif way[i] >= 0:
                way[j] = min(NO_WAY, max(way[j], way[i] + least[i]))
    return way
