"""A lower bound for graphs of repeated layers: bottlenecks in a row, and windows between them.

Bottlenecks run one after the other. Between the end of one (*fork*, on device a) and the start of
the next (*join*, on device b) run all ops on ways from one to the other, in T ns, say. Let each
device and channel r have a *price* p[r] >= 0, all together D > 0. What r does in the window,
load[r], lies between its head (the earliest moment it can begin) and its tail (the least way from
its last end to the join): load[r] <= T - head[r] - tail[r], where T is known to be no less than
head + tail. So D T >= sum of p[r] (load[r] + head[r] + tail[r]), and the sum of p[r] load[r] is at
least that of the cheapest way to place each branch of the window: a dynamic program if the branch
is an in-tree. An op that several ops read counts in equal shares with each, as copies that may be
on different devices: a relaxation, so that any branch counts.

The best prices are those of a linear program by cutting planes. Any prices prove a bound, so they
are rounded to integers, and the bound is computed from those in integers (`window_bound`).

*Room.* Where memory binds, bytes have prices too (`room_prices`): T and the price of a window's
bytes together are no less than the cheapest way to place its branches with both prices, in which
the longest path has a price as well, T being no shorter (`held_bound`).

A window has only ops behind the fork and before the join, and edges among those. Other ops of a
section (side inputs, late gradients) may run before or after it. Memory and colocation are left
out, so the bound holds for all plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import highspy
import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.graph_index import DisjointSets, GraphIndex, group_by
from placegap.instances.problem.integers import NO_WAY, UNSUPPORTED, ceil_div
from placegap.solvers.core.back_ends.silent_highs import silent_highs
from placegap.solvers.core.clock import never
from placegap.solvers.core.room_prices import RoomPrices
from placegap.solvers.local_search.disjunctive_graph import channel_table
from placegap.solvers.repeated_layers.sections import Bottlenecks

ORIGIN = "repeated layers"  # of the bound

BIG = 2**50  # more than any time; of ops on devices that do not run them
SCALE, MOST_COST = 2**20, 2**57  # most of integer prices together; of those times times
MOST_CUTS = 60  # rounds of the cutting planes for one window and one pair of devices
# Share of the linear program's prices in the next ones, as these jump at first; the rest is of the
# best ones so far.
MIX = 0.7
GOOD = 1e-5  # share of what the linear program promises that prices may prove less
MOST_ENTRIES = 20_000_000  # of the tables of transfers (m, K, K) of all windows, 160 MB


class BranchTree(NamedTuple):
    """A branch of n ops and m edges between fork (producer -1) and join (consumer n)."""

    # Edges are sorted by consumer: those into op i are ``in_ptr[i]`` to ``in_ptr[i + 1]``; readers
    # are the numbers of edges out of each op. ``move_ns`` (m, K, K) is exact, and an edge counts
    # ``1 / share[e]`` of it on channels (per_tensor: edges of one tensor are one transfer at
    # least).

    time_ns: Ints
    in_ptr: Ints
    producer: Ints
    readers: Ints
    move_ns: Ints
    share: Ints
    held: Ints  # (n,) int64: Bytes that add up, where prices of room count them


@dataclass(frozen=True, eq=False)
class LayerWindow:
    """What lies between two bottlenecks: equal branches once, with their number."""

    trees: tuple[BranchTree, ...]
    counts: tuple[int, ...]
    direct_ns: Ints  # (K, K) int64: Longest transfer from the fork right to the join

    @cached_property
    def heads(self) -> tuple[Ints, ...]:
        """Earliest start of each op of a tree, and of the join, by device of the fork."""
        return tuple(_heads(tree) for tree in self.trees)

    @cached_property
    def tails(self) -> tuple[Ints, ...]:
        """Least way from the end of each op of a tree to the join, by device of that."""
        return tuple(_tails(tree) for tree in self.trees)

    @cached_property
    def longest(self) -> Ints:
        """The longest path from fork to join, least over the devices between, (K, K)."""
        least = self.direct_ns
        for head in self.heads:
            least = np.maximum(least, head[:, -1])
        return least

    @cached_property
    def scale(self) -> int:
        """What integer prices are about together: sums with them fit into 64 bits."""
        serial_ns = 1
        for tree, count in zip(self.trees, self.counts, strict=True):
            op_ns = np.where(tree.time_ns < BIG, tree.time_ns, 0).max(axis=1, initial=0).sum()
            serial_ns += count * int(op_ns + tree.move_ns.max(axis=(1, 2), initial=0).sum())
        return min(SCALE, MOST_COST // serial_ns)


class LayerWindows(NamedTuple):
    """The windows between neighbouring bottlenecks, equal ones once."""

    kinds: list[LayerWindow]
    which: list[int]  # the number among `kinds` of the window between bottlenecks s and s + 1
    time_ns: Ints  # (S, K) int64: Times of the bottlenecks
    channel: Ints  # as in `Machines`
    head_ns: Ints  # (K,) int64: Earliest start of the first bottleneck
    tail_ns: Ints  # (K,) int64: Least way from the end of the last one
    held: Ints  # (S,) int64: Bytes of the bottlenecks
    beside: int  # bytes of the ops that are in no window

    @property
    def num_machines(self) -> int:
        """Devices and channels."""
        return max(len(self.head_ns), int(self.channel.max(initial=-1)) + 1)


def windows_of(
    instance: Instance, semantics: Makespan, bottlenecks: Bottlenecks, held: Ints
) -> LayerWindows:
    """All windows in classes, with the bytes of ops that count; O(n K + m K^2)."""
    arrays, index = instance.arrays, instance.arrays.index
    k, n = instance.num_devices, instance.num_ops
    per_tensor = semantics.transfers == "per_tensor"
    order = index.topological_order
    ptr, by_section = group_by(bottlenecks.section[order], bottlenecks.num_sections)
    edge_ptr, edge_of = group_by(bottlenecks.section[index.consumer], bottlenecks.num_sections)
    time_ns = np.where(arrays.time_ns == UNSUPPORTED, BIG, arrays.time_ns)
    kinds: list[LayerWindow] = []
    number: dict[Hashable, int] = {}
    which: list[int] = []
    local, beside = np.full(n, -2), int(held.sum() - held[bottlenecks.ops].sum())
    for s in range(1, bottlenecks.num_sections - 1):
        fork, join = int(bottlenecks.ops[s - 1]), int(bottlenecks.ops[s])
        ops = order[by_section[ptr[s] : ptr[s + 1]]]
        ops = ops[ops != join]
        edges = edge_of[edge_ptr[s] : edge_ptr[s + 1]]
        local[ops] = np.arange(len(ops))
        local[fork], local[join] = -1, len(ops)
        made = _window_rows(index, edges, local, len(ops))
        moves = arrays.transfer_ns[index.tensor[made.edges]]
        key = (
            made.ops.tobytes(),
            made.producer.tobytes(),
            made.consumer.tobytes(),
            made.share.tobytes() if per_tensor else b"",
            moves.tobytes(),
            time_ns[ops[made.ops]].tobytes(),
            held[ops[made.ops]].tobytes(),
        )
        beside -= int(held[ops[made.ops]].sum())
        if key not in number:
            number[key] = len(kinds)
            tables = moves[:, arrays.link_class]
            own = time_ns[ops[made.ops]], held[ops[made.ops]]
            kinds.append(_window(made, *own, tables, per_tensor))
        which.append(number[key])
        local[ops], local[fork], local[join] = -2, -2, -2
    table = channel_table(semantics.channels, k)
    ends = _way_in(instance, bottlenecks, time_ns), _way_out(instance, bottlenecks, time_ns)
    spine = bottlenecks.ops
    return LayerWindows(kinds, which, time_ns[spine], table, *ends, held[spine], beside)


def _way_in(instance: Instance, bottlenecks: Bottlenecks, time_ns: Ints) -> Ints:
    """Earliest start of the first bottleneck on each device, by paths alone."""
    arrays, index = instance.arrays, instance.arrays.index
    first = int(bottlenecks.ops[0])
    order = index.topological_order[bottlenecks.section[index.topological_order] == 0]
    head: dict[int, Ints] = {}
    for i in order.tolist():
        head[i] = np.zeros(instance.num_devices, np.int64)
        for e in index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]].tolist():
            u = int(index.producer[e])
            move = arrays.transfer_ns[index.tensor[e]][arrays.link_class]
            ready = ((head[u] + time_ns[u])[:, None] + move).min(axis=0)
            head[i] = np.maximum(head[i], ready)
    return head[first]


def _way_out(instance: Instance, bottlenecks: Bottlenecks, time_ns: Ints) -> Ints:
    """Least way behind the last bottleneck on each device, by paths alone."""
    arrays, index = instance.arrays, instance.arrays.index
    last = int(bottlenecks.ops[-1])
    later = bottlenecks.section[index.topological_order] == bottlenecks.num_sections - 1
    tail: dict[int, Ints] = {}
    for i in [*index.topological_order[later][::-1].tolist(), last]:
        tail[i] = np.zeros(instance.num_devices, np.int64)
        for e in index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]].tolist():
            j = int(index.consumer[e])
            move = arrays.transfer_ns[index.tensor[e]][arrays.link_class]
            way = (move + (time_ns[j] + tail[j])).min(axis=1)
            tail[i] = np.maximum(tail[i], way)
    return tail[last]


class _Rows(NamedTuple):
    """Ops on ways from fork to join, by their number, and their edges with new numbers."""

    ops: Ints
    edges: Ints
    producer: Ints
    consumer: Ints
    share: Ints


def _window_rows(index: GraphIndex, edges: Ints, local: Ints, n: int) -> _Rows:
    """What counts in a window: ops behind the fork and before the join, and edges among them."""
    producer, consumer = local[index.producer[edges]], local[index.consumer[edges]]
    kept = (producer >= -1) & (consumer >= 0)
    edges, producer, consumer = edges[kept], producer[kept], consumer[kept]
    by = np.lexsort((index.tensor[edges], producer, consumer))
    edges, producer, consumer = edges[by], producer[by], consumer[by]
    behind, before = np.zeros((2, n + 2), np.bool_)  # the fork is number -1, the last one
    behind[-1], before[n] = True, True
    for u, v in zip(producer.tolist(), consumer.tolist(), strict=True):
        behind[v] |= behind[u]
    back = np.argsort(-producer, kind="stable")
    for u, v in zip(producer[back].tolist(), consumer[back].tolist(), strict=True):
        if u >= 0:
            before[u] |= before[v]
    inside = behind & before
    inside[-1] = inside[n] = True
    ops = np.flatnonzero(inside[:n])
    new = np.full(n + 2, -1)
    new[ops] = np.arange(len(ops))
    new[n] = len(ops)
    kept = inside[producer] & inside[consumer]
    edges, producer, consumer = edges[kept], new[producer[kept]], new[consumer[kept]]
    _, tensor, count = np.unique(index.tensor[edges], return_inverse=True, return_counts=True)
    return _Rows(ops, edges, producer, consumer, count[tensor.ravel()].astype(np.int64))


def _window(rows: _Rows, time_ns: Ints, held: Ints, moves: Ints, per_tensor: bool) -> LayerWindow:
    """Branches are components without fork and join; equal ones count together."""
    n, k = len(rows.ops), moves.shape[1]
    share = rows.share if per_tensor else np.ones_like(rows.share)
    sets = DisjointSets(n)
    direct = np.zeros((k, k), np.int64)
    for e, (u, v) in enumerate(zip(rows.producer.tolist(), rows.consumer.tolist(), strict=True)):
        if u >= 0 and v < n:
            sets.join(u, v)
        elif u < 0 and v == n:
            direct = np.maximum(direct, moves[e])
    members: dict[int, list[int]] = {}
    for i in range(n):
        members.setdefault(sets.find(i), []).append(i)
    home, place = np.full(n + 1, -1), np.zeros(n + 1, np.int64)
    edges_of: list[list[int]] = [[] for _ in members]
    for b, ops in enumerate(members.values()):
        home[ops], place[ops] = b, np.arange(len(ops))
    for e, (u, v) in enumerate(zip(rows.producer.tolist(), rows.consumer.tolist(), strict=True)):
        if u >= 0 or v < n:
            edges_of[home[u] if u >= 0 else home[v]].append(e)
    found: dict[Hashable, tuple[BranchTree, int]] = {}
    for ops, edges in zip(members.values(), edges_of, strict=True):
        at = np.array(edges)
        producer = np.where(rows.producer[at] >= 0, place[rows.producer[at]], -1)
        consumer = np.where(rows.consumer[at] < n, place[rows.consumer[at]], len(ops))
        in_ptr, by = group_by(consumer, len(ops) + 1)
        readers = np.bincount(producer[producer >= 0], minlength=len(ops))
        tree = BranchTree(
            np.ascontiguousarray(time_ns[ops]),
            in_ptr,
            producer[by],
            readers,
            np.ascontiguousarray(moves[at[by]]),
            share[at[by]],
            held[ops],
        )
        key = tuple(part.tobytes() for part in tree)
        found[key] = (tree, found[key][1] + 1 if key in found else 1)
    trees = tuple(tree for tree, _ in found.values())
    return LayerWindow(trees, tuple(count for _, count in found.values()), direct)


def _heads(tree: BranchTree) -> Ints:
    """Earliest start of each op, and of the join, by device of the fork, (K, n + 1, K)."""
    n, k = tree.time_ns.shape
    head = np.zeros((k, n + 1, k), np.int64)
    for i in range(n + 1):
        for e in range(tree.in_ptr[i], tree.in_ptr[i + 1]):
            u, ready = tree.producer[e], tree.move_ns[e]
            if u >= 0:
                ready = ((head[:, u] + tree.time_ns[u])[:, :, None] + ready).min(axis=1)
            head[:, i] = np.maximum(head[:, i], ready)
    return head


def _tails(tree: BranchTree) -> Ints:
    """Least way from the end of each op to the start of the join, by device of that, (n, K, K)."""
    n, k = tree.time_ns.shape
    tail = np.zeros((n, k, k), np.int64)
    for i in range(n, -1, -1):
        for e in range(tree.in_ptr[i], tree.in_ptr[i + 1]):
            u, way = tree.producer[e], tree.move_ns[e]
            if u < 0:
                continue
            if i < n:
                way = (way[:, :, None] + (tree.time_ns[i][:, None] + tail[i])).min(axis=1)
            tail[u] = np.maximum(tail[u], way)
    return tail


def idle_ns(window: LayerWindow, channel: Ints, num_machines: int, a: int, b: int) -> Ints:
    """Head and tail of each device and channel together; 0 where it has nothing to do."""
    head, tail = np.full((2, num_machines), BIG)
    for tree, heads, tails in zip(window.trees, window.heads, window.tails, strict=True):
        _first_and_last(tree, channel, heads[a], tails[:, :, b], a, b, head, tail)
    return np.where((head < BIG) & (tail < BIG), head + tail, 0)


@kernel(allocates=False)
def _first_and_last(
    tree: BranchTree,
    channel: Ints,
    starts: Ints,
    ways: Ints,
    a: int,
    b: int,
    head: Ints,
    tail: Ints,
) -> None:
    """Lower heads and tails of machines to those of what a branch may do on them."""
    n, k = tree.time_ns.shape
    for i in range(n):
        for d in range(k):
            if tree.time_ns[i, d] < BIG:
                head[d], tail[d] = min(head[d], starts[i, d]), min(tail[d], ways[i, d])
    # what each edge may send from one device to another, and when
    for i in range(n + 1):
        for e in range(tree.in_ptr[i], tree.in_ptr[i + 1]):
            u = tree.producer[e]
            for c in range(k):
                ready = starts[u, c] + tree.time_ns[u, c] if u >= 0 else 0 if c == a else BIG
                for d in range(k):
                    rest = ways[i, d] + tree.time_ns[i, d] if i < n else 0 if d == b else BIG
                    if ready >= BIG or rest >= BIG or tree.move_ns[e, c, d] <= 0:
                        continue
                    for slot in range(2):
                        r = channel[c * k + d, slot]
                        if r >= 0:
                            head[r], tail[r] = min(head[r], ready), min(tail[r], rest)


@kernel(allocates=False)
def price_tree(
    tree: BranchTree,
    channel: Ints,
    price: Floats,
    hold: Floats,
    a: int,
    b: int,
    value: Floats,
    arg: Ints,
) -> float:
    """The least cost of a branch; `value` (n, K) and `arg` (m, K) are scratch that tells where."""
    n, k = tree.time_ns.shape
    total = 0.0
    for i in range(n + 1):
        for d in range(k):
            if i == n and d != b:
                continue
            cost = 0.0
            if i < n:
                if tree.time_ns[i, d] >= BIG:
                    value[i, d] = 1e300
                    continue
                cost = price[d] * tree.time_ns[i, d] + hold[d] * tree.held[i]
            for e in range(tree.in_ptr[i], tree.in_ptr[i + 1]):
                u = tree.producer[e]
                best, where = 1e300, -1
                for c in range(k):
                    if u < 0 and c != a:
                        continue
                    each = 0.0 if u < 0 else value[u, c] / tree.readers[u]
                    if c != d:
                        one, two = channel[c * k + d, 0], channel[c * k + d, 1]
                        rate = (price[one] if one >= 0 else 0.0) + (price[two] if two >= 0 else 0.0)
                        each += rate * tree.move_ns[e, c, d] / tree.share[e]
                    if each < best or where < 0:
                        best, where = each, c
                arg[e, d] = where
                cost += best
            if i < n:
                value[i, d] = cost
            else:
                total = cost
    return total


@kernel(allocates=False)
def add_loads(
    tree: BranchTree, channel: Ints, b: int, arg: Ints, weight: Floats, load: Floats
) -> None:
    """Add what devices and channels do in the cheapest way that `price_tree` noted."""
    n, k = tree.time_ns.shape
    for i in range(n):
        for d in range(k):
            weight[i, d] = 0.0
    for i in range(n, -1, -1):
        for d in range(k):
            if i == n:
                much = 1.0 if d == b else 0.0
            else:
                much = weight[i, d]
            if much == 0.0:
                continue
            if i < n:
                load[d] += much * tree.time_ns[i, d]
            for e in range(tree.in_ptr[i], tree.in_ptr[i + 1]):
                c = arg[e, d]
                if c != d:
                    for slot in range(2):
                        r = channel[c * k + d, slot]
                        if r >= 0:
                            load[r] += much * tree.move_ns[e, c, d] / tree.share[e]
                if tree.producer[e] >= 0:
                    weight[tree.producer[e], c] += much / tree.readers[tree.producer[e]]


def best_prices(window: LayerWindow, channel: Ints, num_machines: int, a: int, b: int) -> Ints:
    """Integer prices of devices and channels, those that prove most."""
    # A device or channel that would wait longer than the window is known to last may be unused, so
    # its waiting has no price. With a better bound on the window the wait of more of them counts.
    idle = idle_ns(window, channel, num_machines, a, b)
    floor = int(window.longest[a, b])
    best = np.zeros(num_machines, np.int64)
    while True:
        known = np.where(idle <= floor, idle, 0)
        found, _ = cutting_planes(window, channel, known, np.zeros(window.direct_ns.shape[0]), a, b)
        found = found[:-1]
        proven = window_bound(window, channel, found, a, b)
        if proven <= floor:
            return best if best.any() else found
        best = found
        more = (idle > floor) & (idle <= proven)
        floor = proven
        if not more.any():
            return best


def cutting_planes(
    window: LayerWindow, channel: Ints, idle: Ints, hold: Floats, a: int, b: int, floor: int = 0
) -> tuple[Ints, Floats]:
    """Prices that prove most, by the linear program over the cheapest ways found so far."""
    # Those of machines, then that of the `floor`, a time which the window takes at least; and the
    # bytes of each device in the program's best mixture of ways. A byte costs `hold` ns.
    k, num_machines = window.direct_ns.shape[0], len(idle)
    trees, counts = window.trees, np.array(window.counts, float)
    scratch = [(np.zeros(t.time_ns.shape), np.zeros(t.move_ns.shape[:2], np.int64)) for t in trees]
    unit = max(1.0, float(window.longest[a, b]))
    waits = np.append(idle, floor)
    solver = silent_highs(threads=1, random_seed=0)
    inf = highspy.kHighsInf
    for r in range(num_machines + 1):
        solver.addVar(0.0, 1.0 if r < num_machines or floor > 0 else 0.0)
        solver.changeColCost(r, -float(waits[r]) / unit)
    for t in range(len(trees)):
        solver.addVar(0.0, 1e12)
        solver.changeColCost(num_machines + 1 + t, -counts[t])
    everything = np.arange(num_machines + 1, dtype=np.int32)
    solver.addRow(-inf, 1.0, num_machines + 1, everything, np.ones(num_machines + 1))
    price = np.zeros(num_machines + 1)
    price[:k] = 1.0 / k
    best, best_value, held = price.copy(), -1.0, list[Floats]()
    for _ in range(MOST_CUTS):
        value = float(price @ waits)
        for t, tree in enumerate(trees):
            value += counts[t] * price_tree(tree, channel, price, hold, a, b, *scratch[t])
            load = np.zeros(num_machines)
            add_loads(tree, channel, b, scratch[t][1], scratch[t][0], load)
            held.append(tree.held @ scratch[t][0])
            used = np.flatnonzero(load)
            columns = np.append(used, num_machines + 1 + t).astype(np.int32)
            entries = np.append(-load[used] / unit, 1.0)
            solver.addRow(-inf, float(held[-1] @ hold) / unit, len(columns), columns, entries)
        if value > best_value:
            best, best_value = price.copy(), value
        solver.run()
        promised = -float(solver.getInfo().objective_function_value) * unit
        if promised - best_value <= GOOD * promised:
            break
        found = np.maximum(np.array(solver.getSolution().col_value[: num_machines + 1]), 0.0)
        # between the best prices and the linear program's, which jump at first
        price = MIX * found / max(1e-9, found.sum()) + (1 - MIX) * best
    mixture = np.abs(np.array(solver.getSolution().row_dual[1:]))
    most = sum(int(t.held.sum()) * c for t, c in zip(trees, window.counts, strict=True))
    scale = min(window.scale, MOST_COST // max(1, int(most * hold.max())))
    return np.asarray(np.round(best * scale), np.int64), mixture @ np.array(held)


def window_bound(window: LayerWindow, channel: Ints, prices: Ints, a: int, b: int) -> int:
    """What integer prices prove: least ns between the end of a fork and the start of a join."""
    floor = int(window.longest[a, b])
    total = sum(prices.tolist())
    if total == 0 or not window.trees:
        return floor
    idle = idle_ns(window, channel, len(prices), a, b).tolist()
    free = np.zeros(window.direct_ns.shape[0], np.int64)
    cost = _least_costs(window, channel, prices, free, 0, a, b)
    while True:
        paid = cost + sum(p * i for p, i in zip(prices.tolist(), idle, strict=True) if i <= floor)
        proven = ceil_div(paid, total)
        if proven <= floor:
            return floor
        floor = proven  # the waits of more devices and channels count then


def held_bound(
    window: LayerWindow, channel: Ints, prices: Ints, room: RoomPrices, a: int, b: int, floor: int
) -> int:
    """Least ns of a window and of its bytes' prices together, where it takes `floor` at least."""
    total, each = sum(prices.tolist()), np.array(room.each, np.int64)
    idle = idle_ns(window, channel, len(prices) - 1, a, b)
    paid = np.append(np.where(idle <= floor, idle, 0), floor).tolist()
    cost = _least_costs(window, channel, prices, each, room.shift, a, b)
    return ceil_div(cost + sum(p * ns for p, ns in zip(prices.tolist(), paid, strict=True)), total)


def _least_costs(
    window: LayerWindow, channel: Ints, prices: Ints, hold: Ints, shift: int, a: int, b: int
) -> int:
    """What all branches cost at least, in ns times all prices together."""
    total, cost = sum(prices.tolist()), 0
    for tree, count in zip(window.trees, window.counts, strict=True):
        hold_ns = total * ((tree.held[:, None] * hold) >> shift)
        scratch = np.empty_like(tree.time_ns)
        cost += count * int(_least_cost(tree, channel, prices, hold_ns, a, b, scratch))
    return cost


@kernel(allocates=False)
def _least_cost(
    tree: BranchTree, channel: Ints, price: Ints, hold_ns: Ints, a: int, b: int, value: Ints
) -> int:
    """`price_tree` in integers, with shares rounded down; `value` (n, K) is scratch."""
    n, k = tree.time_ns.shape
    total = 0
    for i in range(n + 1):
        for d in range(k):
            if i == n and d != b:
                continue
            cost = 0
            if i < n:
                if tree.time_ns[i, d] >= BIG:
                    value[i, d] = NO_WAY
                    continue
                cost = price[d] * tree.time_ns[i, d] + hold_ns[i, d]
            for e in range(tree.in_ptr[i], tree.in_ptr[i + 1]):
                u, best = tree.producer[e], NO_WAY
                for c in range(k):
                    if (u < 0 and c != a) or (u >= 0 and value[u, c] >= NO_WAY):
                        continue
                    each = 0 if u < 0 else value[u, c] // tree.readers[u]
                    if c != d:
                        one, two = channel[c * k + d, 0], channel[c * k + d, 1]
                        rate = (price[one] if one >= 0 else 0) + (price[two] if two >= 0 else 0)
                        each += rate * tree.move_ns[e, c, d] // tree.share[e]
                    best = min(best, each)
                cost = min(NO_WAY, cost + best)
            if i < n:
                value[i, d] = cost
            else:
                total = cost
    return int(total)


class LayerProof(NamedTuple):
    """A bound, and the prices that prove it."""

    windows: LayerWindows
    prices: dict[tuple[int, int, int], Ints]  # by the window's kind, and the devices of its ends
    ns: int


def prove_layers(
    instance: Instance,
    semantics: Makespan,
    bottlenecks: Bottlenecks,
    is_over: Callable[[], bool] = never,
    held: Ints | None = None,
) -> LayerProof | None:
    """The bound of an instance: windows on the shortest path get prices until all of them have."""
    # None: times or tables are too large. `held` are bytes of ops for prices of room.
    entries = len(instance.arrays.index.producer) * instance.num_devices**2
    if instance.arrays.serial_horizon_ns >= BIG or entries > MOST_ENTRIES:
        return None
    nothing = np.zeros(instance.num_ops, np.int64)
    windows = windows_of(instance, semantics, bottlenecks, nothing if held is None else held)
    k, channel = instance.num_devices, windows.channel
    prices: dict[tuple[int, int, int], Ints] = {}
    least = [window.longest.copy() for window in windows.kinds]
    # A window without an equal one begins with another one's prices: that takes a tenth of the
    # time, and on fork-join graphs proves 95 % of what its own do. In the time that is left the
    # windows of the path get their own.
    number, last = Counter(windows.which), dict[tuple[int, int], Ints]()
    lent: set[tuple[int, int, int]] = set()
    while True:
        value, path = shortest(windows, least, windows.time_ns)
        needed = {(windows.which[s], a, b) for s, (a, b) in enumerate(path)}
        needed = {(w, a, b) for w, a, b in needed if windows.kinds[w].trees}
        new = (needed - prices.keys()) or (needed & lent)
        if not new or is_over():
            return LayerProof(windows, prices, value)
        for w, a, b in sorted(new):
            if is_over():
                break
            window = windows.kinds[w]
            if number[w] == 1 and (a, b) in last and (w, a, b) not in lent:
                prices[w, a, b] = _within(window.scale, last[a, b])
                lent.add((w, a, b))
            else:
                prices[w, a, b] = best_prices(window, channel, windows.num_machines, a, b)
                last[a, b] = prices[w, a, b]
                lent.discard((w, a, b))
            # prices of one pair are good for others
            for c, d in product(range(k), range(k)):
                if ((w, c, d) == (w, a, b) or (w, c, d) not in prices) and not is_over():
                    proven = window_bound(window, channel, prices[w, a, b], c, d)
                    least[w][c, d] = max(least[w][c, d], proven)


def _within(scale: int, prices: Ints) -> Ints:
    """Prices of another window, as large as this one's may be."""
    most = int(prices.max())
    return prices if most <= scale else prices * scale // most


def window_ns(proof: LayerProof, w: int, a: int, b: int) -> int:
    """The bound of a kind of windows for two devices; new prices are kept."""
    windows, window = proof.windows, proof.windows.kinds[w]
    if not window.trees:
        return int(window.longest[a, b])
    if (w, a, b) not in proof.prices:
        found = best_prices(window, windows.channel, windows.num_machines, a, b)
        proof.prices[w, a, b] = found
    return window_bound(window, windows.channel, proof.prices[w, a, b], a, b)


def ns_on(proof: LayerProof, at: Ints) -> int:
    """The bound for plans whose bottlenecks are on given devices, (S,)."""
    windows, devices = proof.windows, at.tolist()
    total = int(windows.head_ns[at[0]] + windows.tail_ns[at[-1]])
    total += int(windows.time_ns[np.arange(len(at)), at].sum())
    kinds = Counter(zip(windows.which, devices, devices[1:], strict=False))
    return total + sum(number * window_ns(proof, *kind) for kind, number in kinds.items())


def shortest(
    windows: LayerWindows, least: list[Ints], time_ns: Ints
) -> tuple[int, list[tuple[int, int]]]:
    """The least sum of bottlenecks and windows over devices, and its pairs of devices."""
    reach, came = windows.head_ns + time_ns[0], []
    for s, which in enumerate(windows.which):
        sums = reach[:, None] + least[which]
        came.append(sums.argmin(axis=0))
        reach = np.minimum(sums.min(axis=0) + time_ns[s + 1], BIG)
    reach = reach + windows.tail_ns
    at = int(reach.argmin())
    value, path = int(reach[at]), []
    for before in reversed(came):
        path.append((int(before[at]), at))
        at = int(before[at])
    return value, path[::-1]
