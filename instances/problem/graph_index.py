"""Integer arrays of a graph's structure, and the checks that need them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.op import Edge


@dataclass(frozen=True, eq=False)
class GraphIndex:
    """Structure of a graph with n ops, m edges and t tensors as int64 arrays."""

    #: producer, consumer, tensor: (m,): Ends and tensor of each edge.
    producer: Ints
    consumer: Ints
    tensor: Ints
    #: succ_ptr, succ_edge: (n + 1,): Edges out of op i are ``succ_edge[succ_ptr[i]:succ_ptr[i +
    #: 1]]``, in input order.
    succ_ptr: Ints
    succ_edge: Ints
    #: pred_ptr, pred_edge: (n + 1,): Edges into op i, likewise.
    pred_ptr: Ints
    pred_edge: Ints
    #: tensor_ptr, tensor_edge: (t + 1,): Edges that carry each tensor.
    tensor_ptr: Ints
    tensor_edge: Ints
    #: tensor_producer, tensor_first_edge: (t,): Producer of each tensor, and the edge that
    #: describes it.
    tensor_producer: Ints
    tensor_first_edge: Ints
    #: topological_order, topological_position: (n,): First-in-first-out Kahn order over the input
    #: order, and its inverse.
    topological_order: Ints
    topological_position: Ints


def index_graph(op_index: Mapping[str, int], edges: Sequence[Edge]) -> GraphIndex:
    """Build the index; unknown ends, duplicate edges, bad tensors and cycles are ValueErrors."""
    # O(V + E) time and memory.
    producer, consumer = _ends(op_index, edges)
    tensor, first = _tensors(edges, producer)
    n = len(op_index)
    succ_ptr, succ_edge = group_by(producer, n)
    pred_ptr, pred_edge = group_by(consumer, n)
    tensor_ptr, tensor_edge = group_by(tensor, len(first))
    kahn = _fifo_kahn(consumer, succ_ptr, succ_edge, pred_ptr)
    if len(kahn) < n:
        raise ValueError(f"edges: they form a cycle: {_name_cycle(op_index, edges, kahn)}")
    order = np.array(kahn, np.int64)
    index = GraphIndex(
        producer,
        consumer,
        tensor,
        succ_ptr,
        succ_edge,
        pred_ptr,
        pred_edge,
        tensor_ptr,
        tensor_edge,
        producer[first],
        first,
        order,
        inverse(order),
    )
    freeze(index)
    return index


def group_by(key: Ints, num_groups: int) -> tuple[Ints, Ints]:
    """Pointers and members of ``range(len(key))`` grouped by key, members in order."""
    pointer = np.zeros(num_groups + 1, np.int64)
    np.cumsum(np.bincount(key, minlength=num_groups), out=pointer[1:])
    return pointer, np.argsort(key, kind="stable").astype(np.int64)


def inverse(order: Any) -> Ints:
    """The place of each number in an order of all."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def sum_by(key: Any, values: Any, num_groups: int) -> Ints:
    """Sums of the values of each key, (num_groups, ...)."""
    total = np.zeros((num_groups, *np.shape(values)[1:]), np.int64)
    np.add.at(total, key, values)
    return total


def all_by(key: Ints, flags: Any, num_groups: int) -> Flags:
    """What holds for all of each key, (num_groups, ...)."""
    every = np.ones((num_groups, *flags.shape[1:]), np.bool_)
    np.logical_and.at(every, key, flags)
    return every


def times_by(key: Ints, time_ns: Ints, num_groups: int, never: int = UNSUPPORTED) -> Ints:
    """Times of groups of ops, (num_groups, K): `never` where a device does not run one."""
    total = sum_by(key, np.where(time_ns == never, 0, time_ns), num_groups)
    return np.where(all_by(key, time_ns != never, num_groups), total, never)


def first_of(key: Ints) -> Ints:
    """The first place of the same key, for each."""
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return np.asarray(first[number], np.int64)


def numbered(keys: Iterable[object]) -> list[int]:
    """The number of each key, by first appearance."""
    number: dict[object, int] = {}
    return [number.setdefault(key, len(number)) for key in keys]


class DisjointSets:
    """Numbers 0 .. n - 1 in classes that join; a class goes by the number of one member."""

    def __init__(self, size: int) -> None:
        self.home = list(range(size))

    def find(self, at: int) -> int:
        """The class of a number."""
        home = self.home
        while home[at] != at:
            home[at] = home[home[at]]
            at = home[at]
        return at

    def join(self, a: int, b: int) -> None:
        """Make one class of those of a and b, which goes by a's number."""
        self.home[self.find(b)] = self.find(a)


def freeze(holder: object) -> None:
    """Make every array of a dataclass read-only."""
    for value in vars(holder).values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)


def _ends(op_index: Mapping[str, int], edges: Sequence[Edge]) -> tuple[Ints, Ints]:
    try:
        producer = np.array([op_index[edge.producer] for edge in edges], np.int64)
        consumer = np.array([op_index[edge.consumer] for edge in edges], np.int64)
    except KeyError:
        for number, edge in enumerate(edges):
            for end in (edge.producer, edge.consumer):
                if end not in op_index:
                    raise ValueError(f"{_edge(number, edge)}: there is no op {end!r}") from None
        raise
    pairs = np.sort(producer * len(op_index) + consumer)
    if (pairs[1:] == pairs[:-1]).any():
        _check_parallel(edges)
    return producer, consumer


def _check_parallel(edges: Sequence[Edge]) -> None:
    """Edges between the same two ops must carry tensors of different names."""
    seen: set[tuple[str, str, str | None]] = set()
    for number, edge in enumerate(edges):
        key = (edge.producer, edge.consumer, edge.tensor)
        if key in seen:
            raise ValueError(f"{_edge(number, edge)}: appears twice")
        seen.add(key)


def _tensors(edges: Sequence[Edge], producer: Ints) -> tuple[Ints, Ints]:
    """Tensor of each edge, and the first edge of each tensor."""
    if all(edge.tensor is None for edge in edges):
        each = np.arange(len(edges), dtype=np.int64)
        return each, each.copy()
    tensor = np.empty(len(edges), np.int64)
    first: list[int] = []
    known: dict[tuple[str, str], int] = {}
    for number, edge in enumerate(edges):
        if edge.tensor is None:
            tensor[number] = len(first)
            first.append(number)
            continue
        key = (edge.producer, edge.tensor)
        at = known.setdefault(key, len(first))
        if at == len(first):
            first.append(number)
        tensor[number] = at
        other = edges[first[at]]
        if (edge.bytes, edge.host_time_ns, edge.transfer_ns) != (
            other.bytes,
            other.host_time_ns,
            other.transfer_ns,
        ):
            raise ValueError(
                f"{_edge(number, edge)}: tensor {edge.tensor!r} has another size or time on the"
                f" edge to {other.consumer!r}"
            )
    return tensor, np.array(first, np.int64)


def _fifo_kahn(consumer: Ints, succ_ptr: Ints, succ_edge: Ints, pred_ptr: Ints) -> list[int]:
    """Topological order; ops on a cycle and behind one are missing."""
    waiting = np.diff(pred_ptr).tolist()
    target, pointer = consumer[succ_edge].tolist(), succ_ptr.tolist()
    order = [op for op, count in enumerate(waiting) if count == 0]
    for op in order:  # grows while it is read: first in, first out
        for succ in target[pointer[op] : pointer[op + 1]]:
            waiting[succ] -= 1
            if waiting[succ] == 0:
                order.append(succ)
    return order


def _name_cycle(op_index: Mapping[str, int], edges: Sequence[Edge], order: list[int]) -> str:
    done = set(order)
    stuck = {name for name, op in op_index.items() if op not in done}
    arcs = [(e.producer, e.consumer) for e in edges if {e.producer, e.consumer} <= stuck]
    import networkx as nx  # takes a tenth of a second to load, for an error

    names = [arc[0] for arc in nx.find_cycle(nx.DiGraph(arcs))]
    shown = [*names, names[0]] if len(names) <= 6 else [*names[:5], "...", names[0]]
    return " -> ".join(shown)


def _edge(number: int, edge: Edge) -> str:
    return f"edges[{number}] '{edge.producer} -> {edge.consumer}'"
