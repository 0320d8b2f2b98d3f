"""A relaxation of latency_subgraphs: a spine of bottlenecks with sections between them.

A *bottleneck* is an op that is comparable with every other one: everything before it ends before it
starts, in every plan. Between two bottlenecks lies a *section*. The spine leaves out or merges ops,
so that there are more bottlenecks; what is proven of it holds for every plan:

- An op *represents* its colocation group if all that comes before some op of the group comes before
  this one, and all that comes after likewise. With one call per accelerator the group is one node,
  with its time, memory and tensors. With several calls, ops of a group may be in several calls of
  one accelerator: they are nodes of their own, except for those that may join the call of their
  neighbour in some optimal plan (`absorbed`).
- Ops beside many others, such as those that feed a late layer, may be left out with all their costs
  except the memory of their group. The other ops keep their order, also where it comes from paths
  through ops that are left out, and a part of the tensors on these paths (`_nets_around`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.formulations.shared.pairs import reach_matrix
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance
from placegap.instances.problem.graph_index import all_by, sum_by, times_by
from placegap.instances.problem.integers import NEVER, UNSUPPORTED
from placegap.solvers.latency.masks import count_ideals, masks

MOST_IDEALS = 20_000  # sections with more are narrowed to some of their paths: pairs are compared


@dataclass(frozen=True, eq=False)
class SpineNet:
    """A tensor: its producer and consumers among the nodes, and its least move_ns."""

    producer: int
    consumers: tuple[int, ...]
    move_ns: int


@dataclass(frozen=True, eq=False)
class Nodes:
    """m nodes in topological order, each an op together with the ops that go where it goes."""

    node: Ints  # (n,) int64: Node of each op
    own_ns: Ints  # (m,) int64: Least time on an accelerator, `NEVER` where none runs it
    host_ns: Ints  # (m,) int64: Least time on a host, `NEVER` likewise
    size_bytes: Ints  # (m,) int64
    group: Ints  # (m,) int64: Colocation group of each node
    represents: Flags  # (m,) bool: Whether no other node represents the group of the node
    once: bool  # whether accelerators make one call: then a group is in a single call
    after: Flags  # (m, m) bool: Whether node j comes after node i
    nets: tuple[SpineNet, ...]


@dataclass(frozen=True, eq=False)
class Spine:
    """The nodes that are kept, cut at T bottlenecks into T + 1 sections."""

    nodes: Nodes
    bottlenecks: list[int]
    #: Section t lies before bottleneck t, in topological order; the last one after all of them.
    sections: list[list[int]]
    left_out: list[int]
    #: (m,) int64: Memory of the nodes; that of a node left out counts for the first one kept of its
    #: group.
    size_bytes: Ints
    nets: tuple[SpineNet, ...]  # nets of the nodes that are kept


def build_nodes(instance: Instance, num_calls: int, *, apart: bool = False) -> Nodes:
    """The nodes of an instance whose accelerators make up to `num_calls` calls each; O(n^2)."""
    # Times and moves are the least over the accelerators, and over the hosts. With `apart`, ops of
    # a group are nodes of their own also with one call.
    arrays = instance.arrays
    after, order = reach_matrix(instance.arrays.index), arrays.index.topological_order
    representative = _representatives(arrays.group, after, order)
    merged = representative if num_calls == 1 and not apart else absorbed(instance)
    heads = order[merged[order] == order]
    number = np.full(instance.num_ops, -1, np.int64)
    number[heads] = np.arange(len(heads))
    node = number[merged]
    times = _times_of_groups(instance)
    own_ns = times_by(node, times[:, ~arrays.is_host], len(heads), NEVER).min(1, initial=NEVER)
    host_ns = times[:, arrays.is_host].min(axis=1, initial=NEVER)[heads]
    represents = np.zeros(len(heads), np.bool_)
    np.logical_or.at(represents, node, representative == np.arange(instance.num_ops))
    return Nodes(
        node,
        own_ns,
        host_ns,
        sum_by(node, arrays.resident_bytes, len(heads)),
        arrays.group[heads],
        represents,
        num_calls == 1,
        after[np.ix_(heads, heads)],
        _nets(instance, node),
    )


def _times_of_groups(instance: Instance) -> Ints:
    """Time of each op on each device, `NEVER` where its group cannot be."""
    # A group is on one accelerator as a whole, or spread over the hosts, which are one pool.
    arrays = instance.arrays
    able = arrays.time_ns != UNSUPPORTED
    able[:, arrays.is_host] &= able[:, arrays.is_host].any(axis=1, keepdims=True)
    pooled = np.where(arrays.is_host, able[:, arrays.is_host].any(axis=1, keepdims=True), able)
    together = all_by(arrays.group, pooled, arrays.num_groups)
    return np.where(able & together[arrays.group], arrays.time_ns, NEVER)


def _representatives(group: Ints, after: Flags, order: Ints) -> Ints:
    """The op that represents each op: the first of its group that can, or the op itself."""
    representative = np.arange(len(group))
    members: dict[int, list[int]] = {}
    for i in order.tolist():
        members.setdefault(int(group[i]), []).append(i)
    for ops in members.values():
        if len(ops) > 1:
            # The group's own ops do not count: they become one node.
            others = np.ones(len(group), np.bool_)
            others[ops] = False
            before, later = after[:, ops].any(axis=1) & others, after[ops].any(axis=0) & others
            able = [i for i in ops if after[before, i].all() and after[i, later].all()]
            if able:
                representative[ops] = able[0]
    return representative


def _nets(instance: Instance, node: Ints) -> tuple[SpineNet, ...]:
    """Tensors between nodes, without ends at ops of no node (-1)."""
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
    nodes: Nodes, most_beside: int | None = None, *, representatives_only: bool = False
) -> Spine:
    """Leave out nodes beside too many nodes of a longest path; cut the rest at the bottlenecks."""
    # With `representatives_only`, nodes that another one represents are left out as well. Sections
    # of more than `MOST_IDEALS` ideals keep only some of their longest paths.
    kept = nodes.represents.copy() if representatives_only else np.ones(len(nodes.own_ns), np.bool_)
    if most_beside is not None:
        which = np.flatnonzero(kept)
        path = which[longest_chain(nodes.after[np.ix_(which, which)])]
        comparable = nodes.after[:, path] | nodes.after[path].T
        comparable[path, np.arange(len(path))] = True
        kept &= (~comparable).sum(axis=1) <= most_beside
        kept[path] = True
    # Leaving nodes out of a section makes new bottlenecks, which cut it into smaller ones.
    while True:
        spine = _cut(nodes, kept)
        dropped = [v for inner in spine.sections for v in _beyond_paths(nodes, inner)]
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
    # A group is on one accelerator, so the memory of a node left out is held wherever its group is.
    size, left_out = nodes.size_bytes.copy(), np.flatnonzero(~kept).tolist()
    first: dict[int, int] = {}
    for v in which.tolist():
        first.setdefault(int(nodes.group[v]), v)
    for v in left_out:
        if int(nodes.group[v]) in first:
            size[first[int(nodes.group[v])]] += size[v]
    return Spine(nodes, bottlenecks, sections, left_out, size, _nets_around(nodes, left_out))


def _nets_around(nodes: Nodes, left_out: list[int]) -> tuple[SpineNet, ...]:
    """Nets of the kept nodes, with a part of the tensors through nodes that are left out."""
    # Let u feed v, which is left out, and v feed w. A call with w and without u pays for the tensor
    # of u or for that of v, whether v is in it or not; so does a call with u and without w. So the
    # smaller of the two costs is charged to a net from u to the consumers of v, and what the tensor
    # of u costs beyond that to its other consumers. If v has several tensors, the largest one into
    # it and the largest one out of it count: a net of u must be charged once.
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
    """The nodes of a section outside of its longest paths, if it has too many ideals."""
    # Paths are added, the heaviest first, as long as the number of ideals allows it. One path at
    # least is kept: the longest one bounds the time of the section.
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
    """Most ideals of a section, fewer if it has many nodes: each costs time for every node."""
    return MOST_IDEALS * 64**2 // max(64, count) ** 2


def longest_chain(after: Flags, weight: Ints | None = None) -> list[int]:
    """A path of largest weight, then of most nodes, for nodes in topological order; O(m^2)."""
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


def absorbed(instance: Instance) -> Ints:
    """For each op, the op in whose call it is, (n,): itself, or one of its group; O(rounds m K)."""
    # A group is on one accelerator, but maybe in several calls of it. Yet in some optimal plan a
    # set A of its ops is in the call of another set B of its ops (each in one call), if on every
    # accelerator
    #
    # - A has no inputs from elsewhere, all its tensors go to B, and its time is at most that of its
    #   tensors; or
    # - A has inputs from B only, and its time and its tensors take at most as long as those of B's
    #   tensors that only A takes.
    #
    # Proof: move A from its call to that of B on the same accelerator. No new waiting arises, since
    # A waits for nothing, or only for B. No call becomes longer: both save the tensors between
    # them. So everything ends as early as before, and memory is the same. Weights and constants are
    # of the first kind; copies, and outputs that no op reads, of the second.
    search = _Absorption(instance)
    count = np.bincount(instance.arrays.group)
    shared = count[instance.arrays.group] > 1
    order = [i for i in instance.arrays.index.topological_order.tolist() if shared[i]]
    changed = True
    while changed:
        changed = False
        for i in [*order, *reversed(order)]:
            if search.head[i] == i:
                b = search.neighbour(i)
                if b >= 0:
                    search.merge(i, b)
                    changed = True
    return search.head


class _Absorption:
    """Sets of ops, each named by one of them, its head."""

    def __init__(self, instance: Instance) -> None:
        arrays = instance.arrays
        self.index, self.group = arrays.index, arrays.group
        accelerators = np.flatnonzero(~arrays.is_host)
        times = arrays.time_ns[:, accelerators]
        self.time_ns = np.where(times == UNSUPPORTED, 0, times)
        self.move_ns = arrays.host_ns[:, accelerators]
        self.head = np.arange(instance.num_ops)
        self.ops: dict[int, list[int]] = {i: [i] for i in range(instance.num_ops)}
        self.tensors: list[list[int]] = [[] for _ in range(instance.num_ops)]
        for u, i in enumerate(self.index.tensor_producer.tolist()):
            self.tensors[i].append(u)

    def merge(self, a: int, b: int) -> None:
        """Make set a a part of set b."""
        self.ops[b] += self.ops.pop(a)
        self.head[self.ops[b]] = b

    def neighbour(self, a: int) -> int:
        """The set of the group that set a may join, or -1."""
        inputs, outputs = self.inputs(a), self.outputs(a)
        time = self.time_ns[self.ops[a]].sum(axis=0)
        moves = self.move_ns[list(outputs)].sum(axis=0)
        into = {h for ends in outputs.values() for h in ends}
        if not inputs and len(into) == 1 and (time <= moves).all():
            (b,) = into
        elif len({self.head[self.index.tensor_producer[u]] for u in inputs}) == 1:
            b = int(self.head[self.index.tensor_producer[inputs[0]]])
            own = [u for u in inputs if self.ends(u) == {a}]
            if not (time + moves <= self.move_ns[own].sum(axis=0)).all():
                return -1
        else:
            return -1
        return b if self.group[a] == self.group[b] else -1

    def ends(self, u: int) -> set[int]:
        """Sets that read tensor u, without the one that makes it."""
        index = self.index
        edges = index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
        made = int(self.head[index.tensor_producer[u]])
        return {*self.head[index.consumer[edges]].tolist()} - {made}

    def inputs(self, a: int) -> list[int]:
        """Tensors into a set."""
        index, found = self.index, dict[int, None]()
        for i in self.ops[a]:
            for e in index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]].tolist():
                if self.head[index.producer[e]] != a:
                    found[int(index.tensor[e])] = None
        return list(found)

    def outputs(self, a: int) -> dict[int, set[int]]:
        """Tensors out of a set, each with the sets that read it."""
        found = {u: self.ends(u) for i in self.ops[a] for u in self.tensors[i]}
        return {u: ends for u, ends in found.items() if ends}
