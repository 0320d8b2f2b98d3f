"""What every plan for latency_subgraphs has in common: a spine of ops that all others wait around.

An op that is comparable with every other one, a *bottleneck*, splits time: everything before it
ends before it starts. Between two bottlenecks lies a *section*. The spine is a relaxation of the
instance; what is proven of it holds for every plan:

- One op of a colocation group speaks for it if all that comes before some op of the group comes
  before this one, and all that comes after likewise. With one call per accelerator the group's
  time, memory and tensors go where it goes. With several, ops of a group may be in several calls of
  one accelerator: they are nodes of their own, but for those that `absorbed` shows to be as well
  in the call of their neighbour.
- Ops beside many others, such as what feeds a late layer, may be left out with all they cost, but
  for the memory of their group. What is left keeps its order, those paths included that lead
  through what was left out, and one way to cut each of these (`_nets_around`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.formulations.shared.pairs import op_reach
from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NEVER, UNSUPPORTED
from placegap.solvers.latency.masks import count_ideals, masks
from placegap.solvers.latency.spine import absorbed

MOST_IDEALS = 20_000
"""Sections with more ideals are narrowed to some of their paths: pairs of ideals are compared."""


@dataclass(frozen=True, eq=False)
class SpineNet:
    """A tensor: its producer and consumers among the nodes, and its least move_ns."""

    producer: int
    consumers: tuple[int, ...]
    move_ns: int


@dataclass(frozen=True, eq=False)
class Nodes:
    """m nodes in topological order, each an op with the ops that go where it goes.

    Attributes
    ----------
    node : (n,) int64
        Node of each op.
    own_ns : (m,) int64
        Least time on an accelerator, `NEVER` where none runs it.
    host_ns : (m,) int64
        Least time on a host, `NEVER` likewise.
    size_bytes : (m,) int64
    group : (m,) int64
        Colocation group of each node.
    speaks : (m,) bool
        Whether no other node speaks for the group of the node.
    once : bool
        Whether accelerators make one call: groups are not torn apart, then.
    after : (m, m) bool
        Whether node j comes after node i.
    nets : tuple of Net
    """

    node: Ints
    own_ns: Ints
    host_ns: Ints
    size_bytes: Ints
    group: Ints
    speaks: Flags
    once: bool
    after: Flags
    nets: tuple[SpineNet, ...]


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
    size_bytes : (m,) int64
        Memory of the nodes; that of one that is left out is with the first one kept of its group.
    nets : tuple of Net
        Of the nodes that are kept.
    """

    nodes: Nodes
    bottlenecks: list[int]
    sections: list[list[int]]
    left_out: list[int]
    size_bytes: Ints
    nets: tuple[SpineNet, ...]


def reach_matrix(instance: Instance) -> Flags:
    """Whether op j comes after op i, (n, n)."""
    n = instance.num_ops
    size = (n + 7) // 8
    rows = [bits.to_bytes(size, "little") for bits in op_reach(instance.arrays.index)[1]]
    packed = np.frombuffer(b"".join(rows), np.uint8).reshape(n, size)
    reach: Flags = np.unpackbits(packed, axis=1, bitorder="little")[:, :n].astype(np.bool_)
    return reach


def build_nodes(instance: Instance, num_calls: int, *, apart: bool = False) -> Nodes:
    """The nodes of an instance whose accelerators make up to `num_calls` calls each; O(n^2).

    Times and moves are least over the accelerators, and over the hosts. With one call, too, ops of
    a group may be `apart`, each a node of its own.

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
    merged = speaker if num_calls == 1 and not apart else absorbed(instance)
    heads = order[merged[order] == order]
    number = np.full(instance.num_ops, -1, np.int64)
    number[heads] = np.arange(len(heads))
    node = number[merged]
    times = _times_of_groups(instance)
    own_ns = _summed(times[:, ~arrays.is_host], node, len(heads)).min(axis=1, initial=NEVER)
    host_ns = times[:, arrays.is_host].min(axis=1, initial=NEVER)[heads]
    size, speaks = np.zeros(len(heads), np.int64), np.zeros(len(heads), np.bool_)
    np.add.at(size, node, arrays.resident_bytes)
    np.logical_or.at(speaks, node, speaker == np.arange(instance.num_ops))
    return Nodes(
        node,
        own_ns,
        host_ns,
        size,
        arrays.group[heads],
        speaks,
        num_calls == 1,
        after[np.ix_(heads, heads)],
        _nets(instance, node),
    )


def _times_of_groups(instance: Instance) -> Ints:
    """Time of each op on each device, `NEVER` where its group cannot be: all are there, or none.

    The hosts are one pool.
    """
    arrays = instance.arrays
    able = arrays.time_ns != UNSUPPORTED
    able[:, arrays.is_host] &= able[:, arrays.is_host].any(axis=1, keepdims=True)
    pooled = np.where(arrays.is_host, able[:, arrays.is_host].any(axis=1, keepdims=True), able)
    together = np.ones((arrays.num_groups, len(arrays.is_host)), np.bool_)
    np.logical_and.at(together, arrays.group, pooled)
    return np.where(able & together[arrays.group], arrays.time_ns, NEVER)


def _summed(times: Ints, node: Ints, count: int) -> Ints:
    """Sums over the ops of each node, `NEVER` where one of them is."""
    total, never = np.zeros((count, times.shape[1]), np.int64), np.zeros_like(times[:count], bool)
    np.add.at(total, node, np.where(times == NEVER, 0, times))
    np.logical_or.at(never, node, times == NEVER)
    return np.where(never, NEVER, total)


def _speakers(group: Ints, after: Flags, order: Ints) -> Ints:
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


def _nets(instance: Instance, node: Ints) -> tuple[SpineNet, ...]:
    """Tensors between nodes; ends of ops that belong to no node, -1, are left out."""
    arrays, index = instance.arrays, instance.arrays.index
    move = arrays.host_ns[:, ~arrays.is_host].min(axis=1, initial=NEVER)
    nets = []
    for u, producer in enumerate(node[index.tensor_producer].tolist()):
        edges = index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
        ends = {j for j in node[index.consumer[edges]].tolist() if j not in (-1, producer)}
        if producer >= 0 and ends and 0 < move[u] < NEVER:
            nets.append(SpineNet(producer, tuple(sorted(ends)), int(move[u])))
    return tuple(nets)


def build_spine(
    nodes: Nodes,
    most_beside: int | None = None,
    *,
    speakers_only: bool = False,
    narrow: bool = True,
) -> Spine:
    """Leave out what lies beside more than so many ops of a longest path; cut at the bottlenecks.

    On request, nodes that another one speaks for are left out, too. Sections of more than
    `MOST_IDEALS` ideals are narrowed to their longest paths, if so wished: others are left out.

    Examples
    --------
    The diamond's first and last op are bottlenecks, the others are in the section between:

    >>> from placegap.instances import example
    >>> spine = build_spine(build_nodes(example(), 1))
    >>> spine.bottlenecks, spine.sections
    ([0, 3], [[], [1, 2], []])
    """
    kept = nodes.speaks.copy() if speakers_only else np.ones(len(nodes.own_ns), np.bool_)
    if most_beside is not None:
        which = np.flatnonzero(kept)
        path = which[longest_chain(nodes.after[np.ix_(which, which)])]
        comparable = nodes.after[:, path] | nodes.after[path].T
        comparable[path, np.arange(len(path))] = True
        kept &= (~comparable).sum(axis=1) <= most_beside
        kept[path] = True
    while True:
        spine = _cut(nodes, kept)
        dropped = [v for inner in spine.sections if narrow for v in _beyond_paths(nodes, inner)]
        if not dropped:
            return spine
        kept[dropped] = False


def _cut(nodes: Nodes, kept: Flags) -> Spine:
    """The spine of the nodes that are kept."""
    m, after, which = len(nodes.own_ns), nodes.after, np.flatnonzero(kept)
    inside = after[np.ix_(which, which)]
    comparable = (inside | inside.T).sum(axis=1) == len(which) - 1
    bottlenecks = which[comparable].tolist()
    number = after[bottlenecks].sum(axis=0) if bottlenecks else np.zeros(m, np.int64)
    sections: list[list[int]] = [[] for _ in range(len(bottlenecks) + 1)]
    for v in which[~comparable].tolist():
        sections[int(number[v])].append(v)
    size, left_out = nodes.size_bytes.copy(), np.flatnonzero(~kept).tolist()
    first: dict[int, int] = {}
    for v in which.tolist():
        first.setdefault(int(nodes.group[v]), v)
    for v in left_out:
        if int(nodes.group[v]) in first:
            size[first[int(nodes.group[v])]] += size[v]
    return Spine(nodes, bottlenecks, sections, left_out, size, _nets_around(nodes, left_out))


def _nets_around(nodes: Nodes, left_out: list[int]) -> tuple[SpineNet, ...]:
    """Nets without the nodes that are left out.

    A call with a consumer of such a node v, but not with a producer u that feeds v, pays for the
    tensor of u or for that of v, whether v is in it or not; a call with u alone, likewise. So what
    is the smaller of both may be charged to a net from u to the consumers of v, and what the tensor
    of u has beyond that to its other consumers. Of several tensors the largest are taken.
    """
    made: dict[int, list[SpineNet]] = {}
    for net in nodes.nets:
        made.setdefault(net.producer, []).append(net)
    for v in left_out:
        outputs = made.pop(v, [])
        inputs = [net for nets in made.values() for net in nets if v in net.consumers]
        through = max(inputs, key=lambda net: net.move_ns, default=None)
        onward = max(outputs, key=lambda net: net.move_ns, default=None)
        for net in inputs:
            kept = tuple(j for j in net.consumers if j != v)
            parts = [SpineNet(net.producer, kept, net.move_ns)]
            if net is through and onward is not None:
                shared = min(net.move_ns, onward.move_ns)
                ends = tuple(sorted({*kept, *onward.consumers}))
                parts = [
                    SpineNet(net.producer, kept, net.move_ns - shared),
                    SpineNet(net.producer, ends, shared),
                ]
            others = [other for other in made[net.producer] if other is not net]
            parts = [part for part in parts if part.consumers and part.move_ns]
            made[net.producer] = others + parts
    return tuple(net for nets in made.values() for net in nets)


def _beyond_paths(nodes: Nodes, inner: list[int]) -> list[int]:
    """What to leave out of a section: all but as many long paths as may be, at least one."""
    after, most = nodes.after[np.ix_(inner, inner)], most_ideals(len(inner))
    if count_ideals(masks(after.T), most) <= most:
        return []
    weight = np.minimum(nodes.own_ns, nodes.host_ns)[inner]
    weight = np.where(weight == NEVER, 0, weight)
    kept, left = np.zeros(len(inner), np.bool_), np.arange(len(inner))
    while len(left):
        chain = left[longest_chain(after[np.ix_(left, left)], weight[left])]
        tried = kept.copy()
        tried[chain] = True
        which = np.flatnonzero(tried)
        most = most_ideals(len(which))
        if kept.any() and count_ideals(masks(after[np.ix_(which, which)].T), most) > most:
            break
        kept, left = tried, np.setdiff1d(left, chain)
    return [v for v, keep in zip(inner, kept.tolist(), strict=True) if not keep]


def most_ideals(count: int) -> int:
    """How many ideals a section of so many nodes may have: each takes time for every node."""
    return MOST_IDEALS * 64**2 // max(64, count) ** 2


def longest_chain(after: Flags, weight: Ints | None = None) -> list[int]:
    """A path of most weight, then of most nodes, for nodes in topological order; O(m^2)."""
    m = len(after)
    weight = np.zeros(m, np.int64) if weight is None else weight
    most, length, before = np.zeros(m, np.int64), np.zeros(m, np.int64), np.full(m, -1, np.int64)
    for v in range(m):
        preds = np.flatnonzero(after[:v, v])
        if len(preds):
            heaviest = preds[most[preds] == most[preds].max()]
            before[v] = heaviest[np.argmax(length[heaviest])]
            most[v], length[v] = most[before[v]], length[before[v]]
        most[v] += weight[v]
        length[v] += 1
    heaviest = np.flatnonzero(most == most.max(initial=0))
    at = int(heaviest[np.argmax(length[heaviest])]) if m else -1
    path = []
    while at >= 0:
        path.append(at)
        at = int(before[at])
    return path[::-1]
