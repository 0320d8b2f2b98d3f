"""Integer arrays of what the memory rule `peak` counts: state, tensors, workspace, and steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.graph_index import freeze

if TYPE_CHECKING:
    from placegap.instances.problem.instance import Graph


@dataclass(frozen=True, eq=False)
class MemoryArrays:
    """Sizes of a graph with n ops and t tensors whose ops share s states by z names.

    Attributes
    ----------
    state_bytes, workspace_bytes : (n,) int64
        What an op holds between passes, shared state aside; and what it needs while it runs.
    tensor_bytes : (t,) int64
    shared_op, shared_name : (s,) int64
        An op and a name that it holds state by.
    shared_bytes : (z,) int64
        Size of the state of each name; names are numbered by their first ops.
    step : (n,) int64
        Place of each op in the order that max_load's memory is counted in (`derive_memory`).
    """

    state_bytes: Ints
    workspace_bytes: Ints
    tensor_bytes: Ints
    shared_op: Ints
    shared_name: Ints
    shared_bytes: Ints
    step: Ints


def derive_memory(graph: Graph, backward: Flags) -> MemoryArrays:
    """Build the arrays; O(n + m) but for sorting.

    The order of the steps is topological and puts forward ops before backward ops as far as the
    edges allow: ops are sorted by how often the pass changes at most on a path to them (a path that
    begins with a backward op has changed once), then by topological position.

    Examples
    --------
    >>> from placegap.instances import Op, Graph
    >>> ops = (Op(name="back", backward=True), Op(name="forth", parameter_bytes=4))
    >>> arrays = derive_memory(Graph(name="g", ops=ops), np.array([True, False]))
    >>> arrays.step.tolist(), arrays.state_bytes.tolist()
    ([1, 0], [0, 4])
    """
    index, ops = graph.index, graph.ops
    name_of: dict[str, int] = {}
    size: list[int] = []
    shared: list[tuple[int, int]] = []
    for i, op in enumerate(ops):
        for name, bytes_ in op.shared_state.items():
            number = name_of.setdefault(name, len(size))
            if number == len(size):
                size.append(bytes_)
            shared.append((i, number))
    pairs = np.array(shared, np.int64).reshape(-1, 2)
    order = np.lexsort((index.topological_position, _changes(graph, backward)))
    step = np.empty(len(ops), np.int64)
    step[order] = np.arange(len(ops))
    arrays = MemoryArrays(
        state_bytes=np.array(
            [op.parameter_bytes if op.state_bytes is None else op.state_bytes for op in ops],
            np.int64,
        ),
        workspace_bytes=np.array([op.workspace_bytes for op in ops], np.int64),
        tensor_bytes=np.array(
            [graph.edges[e].bytes for e in index.tensor_first_edge.tolist()], np.int64
        ),
        shared_op=np.ascontiguousarray(pairs[:, 0]),
        shared_name=np.ascontiguousarray(pairs[:, 1]),
        shared_bytes=np.array(size, np.int64),
        step=step,
    )
    freeze(arrays)
    return arrays


def _changes(graph: Graph, backward: Flags) -> Ints:
    """Most changes of the pass on a path to each op; even for forward ops, odd for backward."""
    index = graph.index
    flag = backward.tolist()
    changes = [int(at) for at in flag]
    if not any(flag):
        return np.zeros(len(flag), np.int64)
    consumer, edges = index.consumer.tolist(), index.succ_edge.tolist()
    pointer = index.succ_ptr.tolist()
    for a in index.topological_order.tolist():
        for e in edges[pointer[a] : pointer[a + 1]]:
            b = consumer[e]
            changes[b] = max(changes[b], changes[a] + (flag[a] != flag[b]))
    return np.array(changes, np.int64)
