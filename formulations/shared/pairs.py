"""Pairs of ops and of edges: those that paths order, and one order from decided pairs."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from placegap.instances.kernels.array_types import Flags
from placegap.instances.problem import Instance, Makespan, Plan, Schedule, Transfer
from placegap.instances.problem.graph_index import GraphIndex
from placegap.instances.referee.channels import plan_from_times

Ends = list[tuple[int, int]]  # producer and consumer of every edge
A = TypeVar("A")
B = TypeVar("B")


def grouped(pairs: Iterable[tuple[A, B]]) -> dict[A, list[B]]:
    """The second of each pair, by the first."""
    found: dict[A, list[B]] = {}
    for first, second in pairs:
        found.setdefault(first, []).append(second)
    return found


def edge_ends(instance: Instance) -> Ends:
    """Producer and consumer of every edge."""
    index = instance.arrays.index
    return list(zip(index.producer.tolist(), index.consumer.tolist(), strict=True))


def tensor_edges(instance: Instance) -> list[tuple[int, int, int]]:
    """Producer, consumer and tensor of every edge."""
    index = instance.arrays.index
    parts = (part.tolist() for part in (index.producer, index.consumer, index.tensor))
    return list(zip(*parts, strict=True))


def consumers_of_tensors(instance: Instance) -> list[list[int]]:
    """The ops that read each tensor, every op once."""
    index = instance.arrays.index
    return [
        sorted(set(index.consumer[index.tensor_edge[a:b]].tolist()))
        for a, b in zip(index.tensor_ptr[:-1], index.tensor_ptr[1:], strict=True)
    ]


def op_reach(index: GraphIndex) -> tuple[list[int], list[int]]:
    """Ancestors and descendants of every op; bit j of an integer stands for op j. O(n m / 64)."""
    producer, consumer = index.producer.tolist(), index.consumer.tolist()
    return _sweep_down(index, producer), _sweep_up(index, consumer)


def reach_matrix(index: GraphIndex) -> Flags:
    """Whether op j comes after op i, (n, n)."""
    after = op_reach(index)[1]
    n, size = len(after), (len(after) + 7) // 8
    rows = np.frombuffer(b"".join(bits.to_bytes(size, "little") for bits in after), np.uint8)
    return np.unpackbits(rows.reshape(n, size), axis=1, bitorder="little")[:, :n].astype(np.bool_)


def flow_reach(index: GraphIndex) -> tuple[list[int], list[int]]:
    """For every edge, the edges that arrive before it can leave, and those that leave after it."""
    # Bit r of an integer stands for edge r. O(m^2 / 64).
    edges = range(len(index.producer))
    arrived, leaving = _sweep_down(index, edges), _sweep_up(index, edges)
    before = [arrived[i] for i in index.producer.tolist()]
    return before, [leaving[j] for j in index.consumer.tolist()]


def _sweep_down(index: GraphIndex, bit: Sequence[int]) -> list[int]:
    """For every op, the bits of all edges on paths that end there."""
    pointer, edges, producer = (
        part.tolist() for part in (index.pred_ptr, index.pred_edge, index.producer)
    )
    found = [0] * (len(pointer) - 1)
    for i in index.topological_order.tolist():
        for e in edges[pointer[i] : pointer[i + 1]]:
            found[i] |= found[producer[e]] | 1 << bit[e]
    return found


def _sweep_up(index: GraphIndex, bit: Sequence[int]) -> list[int]:
    """For every op, the bits of all edges on paths that start there."""
    pointer, edges, consumer = (
        part.tolist() for part in (index.succ_ptr, index.succ_edge, index.consumer)
    )
    found = [0] * (len(pointer) - 1)
    for i in reversed(index.topological_order.tolist()):
        for e in edges[pointer[i] : pointer[i + 1]]:
            found[i] |= found[consumer[e]] | 1 << bit[e]
    return found


def unordered_pairs(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs (i, j), i < j, of which neither comes before the other, in lexicographic order."""
    everything = (1 << len(before)) - 1
    for i in range(len(before)):
        rest = (everything & ~(before[i] | after[i])) >> (i + 1)
        j = i
        while rest:
            step = (rest & -rest).bit_length()
            j += step
            rest >>= step
            yield i, j


def count_unordered_pairs(after: Sequence[int]) -> int:
    """Number of pairs that `unordered_pairs` yields."""
    return math.comb(len(after), 2) - sum(bits.bit_count() for bits in after)


Key = tuple[float, float, int, int]  # start, end, topological position, number of an item
Span = tuple[int, int]  # start and end


def sequence(keys: Mapping[int, Key], arcs: Iterable[tuple[int, int]]) -> list[int]:
    """Items in an order that respects the arcs, by least key among those available."""
    # The last part of a key is the item. Items on a cycle of arcs, and those after it, are missing.
    # O((items + arcs) log items).
    waiting = dict.fromkeys(keys, 0)
    after: dict[int, list[int]] = {item: [] for item in keys}
    for first, second in arcs:
        waiting[second] += 1
        after[first].append(second)
    ready = [keys[item] for item, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        item = heapq.heappop(ready)[-1]
        order.append(item)
        for follower in after[item]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, keys[follower])
    return order


# ------------------------------------------------------------------------------- plans with orders


def spans_ns(instance: Instance, schedule: Schedule) -> tuple[list[Span], list[Span]]:
    """Start and end of every op and of every edge, which takes no time within a device."""
    ops = list(zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True))
    flows = [(ops[i][1], ops[i][1]) for i, _ in edge_ends(instance)]
    table = schedule.transfers
    for q, start, end in zip(table.item, table.start_ns, table.end_ns, strict=True):
        flows[q] = (int(start), int(end))
    return ops, flows


class PairSolution(NamedTuple):
    """Values of a solved model with pair variables, n ops and m edges."""

    device: list[int]
    #: op_start, flow_start: In units of `unit_ns`.
    op_start: list[float]
    flow_start: list[float]
    unit_ns: float
    #: op_pairs, flow_pairs: (first, second): Decided pairs that share a device or a channel.
    op_pairs: list[tuple[int, int]]
    flow_pairs: list[tuple[int, int]]


def plan_in_order(instance: Instance, semantics: Makespan, found: PairSolution) -> Plan:
    """The plan of a solution, executed as early as its orders allow."""
    # The orders are those that the model decided and, where it had no pair to decide, those of its
    # start times. So the plan takes at most the model's value, up to the solver's tolerances.
    n, ends, arrays, device = instance.num_ops, edge_ends(instance), instance.arrays, found.device
    remote = [q for q, (i, j) in enumerate(ends) if device[i] != device[j]]
    position = arrays.index.topological_position.tolist()
    keys: dict[int, Key] = {}  # ops are items 0 .. n - 1, transfers n + q
    for i, start in enumerate(found.op_start):
        duration = arrays.time_ns[i, device[i]] / found.unit_ns
        keys[i] = (start, start + duration, position[i], i)
    for q in remote:
        i, j = ends[q]
        between = arrays.link_class[device[i], device[j]]
        duration = arrays.transfer_ns[arrays.index.tensor[q], between] / found.unit_ns
        keys[n + q] = (found.flow_start[q], found.flow_start[q] + duration, position[i], n + q)
    arcs = [(i, j) for i, j in ends if device[i] == device[j]]
    arcs += [(ends[q][0], n + q) for q in remote] + [(n + q, ends[q][1]) for q in remote]
    decided = found.op_pairs + [(n + q, n + r) for q, r in found.flow_pairs]
    order = sequence(keys, arcs + decided)
    if len(order) < len(keys):  # decided pairs of items without duration may form a cycle
        order = sequence(keys, arcs)
    rank = {item: at for at, item in enumerate(order)}
    return plan_from_times(
        instance,
        semantics,
        device,
        [(rank[i], rank[i]) for i in range(n)],
        [(Transfer(q, device[ends[q][1]]), rank[n + q], rank[n + q]) for q in remote],
    )
