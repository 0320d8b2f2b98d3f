"""What every plan for latency_subgraphs has in common: a spine of ops that all others wait around.

An op that is comparable with every other one, a *bottleneck*, splits time: everything before it
ends before it starts. Between two bottlenecks lies a *section*. The spine is a relaxation of the
instance; what is proven of it holds for every plan:

- One op of a colocation group speaks for it if all that comes before some op of the group comes
  before this one, and all that comes after likewise. With one call per accelerator the group's
  time, memory and tensors go where it goes; with several, its memory does.
- Ops beside many others, such as what feeds a late layer, may be left out with all they cost. What
  is left keeps its order, those paths included that lead through what was left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placegap.formulations.common import op_reach
from placegap.instances.arrays import UNSUPPORTED
from placegap.instances.index import Ints
from placegap.instances.model import Instance

NEVER = 2**62
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Net:
    """A tensor: its producer and consumers among the nodes, and its least move_ns."""

    producer: int
    consumers: tuple[int, ...]
    move_ns: int


@dataclass(frozen=True, eq=False)
class Nodes:
    """m nodes in topological order, each an op that speaks for its group, or for itself.

    Attributes
    ----------
    node : (n,) int64
        Node of each op.
    own_ns : (m,) int64
        Least time on an accelerator, `NEVER` where none runs it.
    host_ns : (m,) int64
        Least time on a host, `NEVER` likewise.
    size_bytes : (m,) int64
    after : (m, m) bool
        Whether node j comes after node i.
    nets : tuple of Net
    """

    node: Ints
    own_ns: Ints
    host_ns: Ints
    size_bytes: Ints
    after: Bools
    nets: tuple[Net, ...]


@dataclass(frozen=True, eq=False)
class Spine:
    """The nodes that are kept, cut at T bottlenecks into T + 1 sections.

    Attributes
    ----------
    nodes : Nodes
    bottlenecks : list of T ints
    sections : list of T + 1 lists of int
        Section t lies before bottleneck t, in topological order; the last one after all of them.
    left_out : list of int
    """

    nodes: Nodes
    bottlenecks: list[int]
    sections: list[list[int]]
    left_out: list[int]


def reach_matrix(instance: Instance) -> Bools:
    """Whether op j comes after op i, (n, n)."""
    n = instance.num_ops
    size = (n + 7) // 8
    rows = [bits.to_bytes(size, "little") for bits in op_reach(instance.arrays.index)[1]]
    packed = np.frombuffer(b"".join(rows), np.uint8).reshape(n, size)
    reach: Bools = np.unpackbits(packed, axis=1, bitorder="little")[:, :n].astype(np.bool_)
    return reach


def build_nodes(instance: Instance, num_calls: int) -> Nodes:
    """The nodes of an instance whose accelerators make up to `num_calls` calls each; O(n^2).

    Times and moves are least over the accelerators, and over the hosts.

    Examples
    --------
    >>> from placegap.instances import example
    >>> nodes = build_nodes(example(), 1)
    >>> nodes.own_ns.tolist(), [net.move_ns for net in nodes.nets]
    ([5, 20, 10, 8], [1, 20, 1, 10])
    """
    arrays = instance.arrays
    after, order = reach_matrix(instance), arrays.index.topological_order
    speaker = _speakers(arrays.group, after, order)
    heads = order[speaker[order] == order]
    number = np.full(instance.num_ops, -1, np.int64)
    number[heads] = np.arange(len(heads))
    node = number[speaker]
    times = np.where(arrays.time_ns == UNSUPPORTED, NEVER, arrays.time_ns)
    own = times[:, ~arrays.is_host].min(axis=1, initial=NEVER)
    host = times[:, arrays.is_host].min(axis=1, initial=NEVER)
    own_ns, size = own[heads].copy(), np.zeros(len(heads), np.int64)
    np.add.at(size, node, arrays.resident_bytes)
    others = np.flatnonzero(speaker != np.arange(instance.num_ops))
    if num_calls == 1:
        np.add.at(own_ns, node[others], np.where(own[others] == NEVER, 0, own[others]))
    never = np.zeros(len(heads), np.bool_)
    np.logical_or.at(never, node, own == NEVER)  # all of a group are on one accelerator, or none
    own_ns[never] = NEVER
    alone = np.where(host[heads] == NEVER, 0, host[heads])
    stuck = np.zeros(len(heads), np.bool_)
    np.logical_or.at(stuck, node, host == NEVER)
    counted = number if num_calls > 1 else node
    nets = _nets(instance, counted)
    return Nodes(
        node, own_ns, np.where(stuck, NEVER, alone), size, after[np.ix_(heads, heads)], nets
    )


def _speakers(group: Ints, after: Bools, order: Ints) -> Ints:
    """The op that speaks for each op: the first of its group that may, or the op itself."""
    speaker = np.arange(len(group))
    members: dict[int, list[int]] = {}
    for i in order.tolist():
        members.setdefault(int(group[i]), []).append(i)
    for ops in members.values():
        if len(ops) > 1:
            others = np.ones(len(group), np.bool_)
            others[ops] = False
            before, later = after[:, ops].any(axis=1) & others, after[ops].any(axis=0) & others
            able = [i for i in ops if after[before, i].all() and after[i, later].all()]
            if able:
                speaker[ops] = able[0]
    return speaker


def _nets(instance: Instance, node: Ints) -> tuple[Net, ...]:
    """Tensors between nodes; ends of ops that belong to no node, -1, are left out."""
    arrays, index = instance.arrays, instance.arrays.index
    move = arrays.host_ns[:, ~arrays.is_host].min(axis=1, initial=NEVER)
    nets = []
    for u, producer in enumerate(node[index.tensor_producer].tolist()):
        edges = index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
        ends = {j for j in node[index.consumer[edges]].tolist() if j not in (-1, producer)}
        if producer >= 0 and ends and 0 < move[u] < NEVER:
            nets.append(Net(producer, tuple(sorted(ends)), int(move[u])))
    return tuple(nets)


def build_spine(nodes: Nodes, most_beside: int | None = None) -> Spine:
    """Leave out what lies beside more than so many ops of a longest path; cut at the bottlenecks.

    Examples
    --------
    The diamond's first and last op are bottlenecks, the others are in the section between:

    >>> from placegap.instances import example
    >>> spine = build_spine(build_nodes(example(), 1))
    >>> spine.bottlenecks, spine.sections
    ([0, 3], [[], [1, 2], []])
    """
    m, after = len(nodes.own_ns), nodes.after
    comparable = after | after.T | np.eye(m, dtype=np.bool_)
    path = longest_chain(after)
    kept = np.ones(m, np.bool_)
    if most_beside is not None:
        kept = (~comparable[:, path]).sum(axis=1) <= most_beside
        kept[path] = True
    bottlenecks = [v for v in path if comparable[v, kept].all()]
    which = after[bottlenecks].sum(axis=0) if bottlenecks else np.zeros(m, np.int64)
    sections: list[list[int]] = [[] for _ in range(len(bottlenecks) + 1)]
    for v in np.flatnonzero(kept).tolist():
        if v not in bottlenecks:
            sections[int(which[v])].append(v)
    return Spine(nodes, bottlenecks, sections, np.flatnonzero(~kept).tolist())


def longest_chain(after: Bools) -> list[int]:
    """A path of most nodes, for nodes in topological order; O(m^2)."""
    m = len(after)
    length, before = np.zeros(m, np.int64), np.full(m, -1, np.int64)
    for v in range(m):
        preds = np.flatnonzero(after[:v, v])
        if len(preds):
            before[v] = preds[np.argmax(length[preds])]
            length[v] = length[before[v]] + 1
    at = int(np.argmax(length)) if m else -1
    path = []
    while at >= 0:
        path.append(at)
        at = int(before[at])
    return path[::-1]
