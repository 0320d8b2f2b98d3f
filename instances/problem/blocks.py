"""Blocks: ops that every chain plan keeps together, and the forward arcs between them.

Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020),
section 5.1: colour classes, artificial forward nodes of backward classes, strongly connected
components. Chain plans of the ops and chains of ideals of the blocks are the same thing.

Blocks that take no time join their only neighbour: fewer ideals, and the same optimum.

Block v may join block u if v takes no time on any device that can run u, and all edges of v, of
whichever kind, lead to u. In any chain plan v may then move to u's device k:

- compute does not grow, on k since v takes no time there, elsewhere since v has left;
- every net of v holds u as well (v's tensors go to u, and u alone feeds v), so that it only loses a
  pin: no device, and no server, pays for a net that it did not pay for before. This holds whatever
  the weights are, for `overlap` too, which needs it of compute and of communication apart;
- v was joined to u alone, so that no arc between devices arises, and none between servers;
- only devices that can run u take v in, so that support does not matter beyond that;
- the memory of k may end. It does not if k is *roomy*: holds all that it can run. (Or all that it
  can run within a load which is known to be enough: `IdleRule.roomy`.) The joined block runs where
  u does, so that no device can run more than before, and roomy ones stay so.

With replicas r devices share a stage, which pays 1 / r of its compute and nets, and the all-reduce
of its parameters: v may have none, for k's stage may not have any either.

Where k may not be roomy there are two ways, each with an answer of its own. If the bytes (and
parameters) of v are *dropped*, every plan fits as before and the argument holds again: the optimum
is a lower bound. If they *move* along, each plan of the blocks is one of the ops, with v at u's
side: a restriction, whose optimum is a plan's value. Where both are the same it is the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem.graph_index import freeze, group_by, inverse, sum_by, times_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED


@dataclass(frozen=True, eq=False)
class Blocks:
    """An instance with n ops and K devices contracted to b blocks, numbered topologically."""

    block: Ints  # (n,) int64: Block of each op
    time_ns: Ints  # (b, K) int64: Sum over the ops, `UNSUPPORTED` where one of them cannot run
    resident_bytes: Ints  # (b,) int64
    #: arc_tail, arc_head: (a,) int64: Arcs between different blocks, each once, sorted; a chain of
    #: ideals never goes against one.
    arc_tail: Ints
    arc_head: Ints
    held: Flags  # (n,) bool: Ops whose bytes count; those of the others are left out (`IdleRule`)
    roomy: Flags  # (K,) bool: Devices whose memory cannot end (`IdleRule`)
    exact: bool  # whether the best chain of ideals of the blocks is as good as the best of the ops

    @property
    def num_blocks(self) -> int:
        return len(self.resident_bytes)


def contract(
    instance: Instance,
    *,
    merge_idle: bool = True,
    one_pass: bool = False,
    rule: IdleRule | None = None,
) -> Blocks:
    """Contract an instance to the blocks of its chain plans."""
    # 1. A colour class (colocation group) is one block. Arcs are the edges between forward ops; a
    #    class without a forward op has instead the reversed edges between backward ops at it.
    # 2. Blocks that reach each other in both directions become one.
    # 3. With `merge_idle`, blocks that take no time join their only neighbour (`join_idle`): the
    #    optimum of max_load stays the same, the number of ideals falls. Without it the blocks
    #    describe *all* chain plans, not only enough for an optimal one.
    #
    # With `one_pass`, backward ops count as forward ones, as in latency_subgraphs. The default
    # `rule` lets blocks join where that is exact without replicas. O(n K + m) but for sorting.
    arrays = instance.arrays
    tail, head = _class_arcs(instance, one_pass)
    block = components(tail, head, arrays.num_groups)[arrays.group]
    rule = rule or IdleRule()
    held, exact = np.ones(instance.num_ops, np.bool_), True
    time_ns, resident_bytes = block_sums(instance, block, held)
    roomy = roomy_devices(instance, time_ns, resident_bytes)
    if rule.roomy is not None:
        roomy |= rule.roomy
    if merge_idle:
        rule = replace(rule, roomy=roomy)
        block, held, exact = join_idle(instance, block, (time_ns, resident_bytes), rule)
    # arcs of classes lead to arcs of blocks by any member of the class
    member = np.zeros(arrays.num_groups, np.int64)
    member[arrays.group] = np.arange(instance.num_ops)
    num_blocks = int(block.max()) + 1
    tail, head = distinct(block[member[tail]], block[member[head]], num_blocks)
    rank = inverse(_depth_first_order(tail, head, num_blocks))
    block = rank[block]
    tail, head = distinct(rank[tail], rank[head], num_blocks)
    blocks = Blocks(block, *block_sums(instance, block, held), tail, head, held, roomy, exact)
    freeze(blocks)
    return blocks


def _class_arcs(instance: Instance, one_pass: bool) -> tuple[Ints, Ints]:
    """Forward arcs between colour classes, mirrored ones included."""
    arrays = instance.arrays
    index, group = arrays.index, arrays.group
    backward = np.zeros_like(arrays.backward) if one_pass else arrays.backward
    orphan = np.ones(arrays.num_groups, np.bool_)
    orphan[group[~backward]] = False
    a, b = index.producer, index.consumer
    forward = ~backward[a] & ~backward[b]
    mirrored = backward[a] & backward[b] & (orphan[group[a]] | orphan[group[b]])
    tail = np.concatenate([group[a[forward]], group[b[mirrored]]])
    head = np.concatenate([group[b[forward]], group[a[mirrored]]])
    return distinct(tail, head, arrays.num_groups)


def distinct(tail: Ints, head: Ints, num_nodes: int) -> tuple[Ints, Ints]:
    """Arcs between different nodes, each once, sorted."""
    pairs = np.unique((tail * num_nodes + head)[tail != head])
    ends = np.divmod(pairs, num_nodes)
    return ends[0], ends[1]


def components(tail: Ints, head: Ints, num_nodes: int) -> Ints:
    """Strongly connected component of each node."""
    if len(_depth_first_order(tail, head, num_nodes)) == num_nodes:
        return np.arange(num_nodes)  # no cycle, as nearly always
    import networkx as nx  # takes a tenth of a second to load

    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(zip(tail.tolist(), head.tolist(), strict=True))
    component = np.empty(num_nodes, np.int64)
    for number, members in enumerate(nx.strongly_connected_components(graph)):
        component[list(members)] = number
    return component


def _depth_first_order(tail: Ints, head: Ints, num_nodes: int) -> Ints:
    """A topological order that follows one branch as long as it can (last ready, first out)."""
    # Nodes on a cycle or behind one are left out.
    pointer, arc = group_by(tail, num_nodes)
    starts, target = pointer.tolist(), head[arc].tolist()
    waiting = np.bincount(head, minlength=num_nodes).tolist()
    ready = [v for v in reversed(range(num_nodes)) if waiting[v] == 0]
    order = []
    while ready:
        v = ready.pop()
        order.append(v)
        for w in reversed(target[starts[v] : starts[v + 1]]):
            waiting[w] -= 1
            if waiting[w] == 0:
                ready.append(w)
    return np.array(order, np.int64)


def block_sums(instance: Instance, block: Ints, held: Flags) -> tuple[Ints, Ints]:
    """Time (b, K) and resident bytes (b,) of blocks, the latter of ops that are `held`."""
    arrays, b = instance.arrays, int(block.max()) + 1
    resident_bytes = sum_by(block, np.where(held, arrays.resident_bytes, 0), b)
    return times_by(block, arrays.time_ns, b), resident_bytes


Bytes = Literal["count", "drop", "move"]


@dataclass(frozen=True, eq=False)
class IdleRule:
    """Which blocks without time may join a neighbour."""

    #: What is done where memory may end: the block stays alone; it joins without its bytes; it
    #: joins with them.
    bytes: Bytes = "count"
    parameters: bool = False  # whether parameters cost something, as with replicas
    #: (K,) bool: Devices whose memory cannot end; by default those that hold all that they can run.
    roomy: Flags | None = None
    #: (n,) bool: Ops whose blocks stay alone where memory may end, even if those of others do not.
    alone: Flags | None = None


def roomy_devices(instance: Instance, time_ns: Ints, resident_bytes: Ints) -> Flags:
    """Devices that hold all blocks that they can run, (K,)."""
    runs = np.where(time_ns == UNSUPPORTED, 0, resident_bytes[:, None])
    return np.asarray(runs.sum(axis=0) <= instance.arrays.memory_bytes)


def join_idle(
    instance: Instance, block: Ints, sums: tuple[Ints, Ints], rule: IdleRule
) -> tuple[Ints, Flags, bool]:
    """Let blocks without time join their only neighbour, as often as possible."""
    # `sums` are the blocks' times and bytes. It returns the block of each op, numbered anew; ops
    # whose bytes are kept; and whether no bytes were dropped or moved where that may matter.
    time_ns, size = sums
    state = _State(instance, block, time_ns, size.copy(), rule)
    state.join_neighbours()
    state.join_any()
    home = state.home
    while (home[home] != home).any():
        home = home[home]
    held = ~state.dropped[block]
    return np.unique(home[block], return_inverse=True)[1].astype(np.int64), held, state.exact


class _State:
    """Blocks while they join; `home` is the block that took one in, or itself."""

    def __init__(
        self, instance: Instance, block: Ints, time_ns: Ints, size: Ints, rule: IdleRule
    ) -> None:
        self.rule, self.size = rule, size
        self.supported, self.free = time_ns != UNSUPPORTED, time_ns == 0
        roomy = rule.roomy
        self.roomy = roomy_devices(instance, time_ns, size) if roomy is None else roomy
        self.light = np.ones(len(size), np.bool_)
        if rule.parameters:
            held = [op.parameter_bytes > 0 for op in instance.graph.ops]
            self.light[block[np.array(held, np.bool_)]] = False
        self.stays = np.zeros(len(size), np.bool_)
        if rule.alone is not None:
            self.stays[block[rule.alone]] = True
        self.neighbours = _neighbours(instance, block, len(size))
        self.home = np.arange(len(size))
        self.parts = [[v] for v in range(len(size))]
        self.dropped = np.zeros(len(size), np.bool_)
        self.exact = True

    def may_join(self, v: int, u: int) -> bool:
        """Whether v may join u; what is dropped or moved then is not looked at."""
        if (self.supported[u] & ~self.free[v]).any():
            return False
        tried = self.rule.bytes != "count" and not self.stays[v]
        return tried or self.costless(v, u)

    def costless(self, v: int, u: int) -> bool:
        """Whether bytes and parameters of v do not matter at u's side."""
        if not self.light[v]:
            return False
        return self.size[v] == 0 or not (self.supported[u] & ~self.roomy[None, :]).any()

    def join_neighbours(self) -> None:
        """Join blocks with one neighbour to it until there is none left that may."""
        work = list(reversed(range(len(self.size))))
        while work:
            v = work.pop()
            if self.home[v] != v or len(self.neighbours[v]) != 1:
                continue
            (u,) = self.neighbours[v]
            if self.may_join(v, u):
                self.join(v, u)
                self.neighbours[u].discard(v)
                self.neighbours[v].clear()
                work.append(u)

    def join_any(self) -> None:
        """Let blocks without edges join any block where they may, all alike ones the same."""
        is_alone = np.array([not own for own in self.neighbours]) & self.free.any(axis=1)
        is_alone &= self.home == np.arange(len(self.home))
        hosts = np.flatnonzero((self.home == np.arange(len(self.home))) & ~is_alone).tolist()
        known: dict[tuple[object, ...], int] = {}
        for v in np.flatnonzero(is_alone).tolist():
            key = (
                self.free[v].tobytes(),
                self.supported[v].tobytes(),
                self.size[v] > 0,
                self.light[v],
                bool(self.stays[v]),
            )
            if key not in known:
                known[key] = next((u for u in hosts if self.may_join(v, u)), -1)
            if known[key] >= 0:
                self.join(v, known[key])
            elif self.may_join(v, v):
                known[key] = v  # the first of its like takes in the others

    def join(self, v: int, u: int) -> None:
        """Let v be part of u."""
        self.home[v] = u
        costless = self.costless(v, u)
        self.exact = self.exact and costless
        if self.rule.bytes == "drop" and not costless:
            self.dropped[self.parts[v]] = True
        else:
            self.size[u] += self.size[v]
            self.light[u] = self.light[u] and self.light[v]
        self.parts[u] += self.parts[v]


def _neighbours(instance: Instance, block: Ints, num_blocks: int) -> list[set[int]]:
    """Blocks that edges join to each block."""
    index = instance.arrays.index
    tail, head = block[index.producer], block[index.consumer]
    neighbours: list[set[int]] = [set() for _ in range(num_blocks)]
    for a, b in zip(tail.tolist(), head.tolist(), strict=True):
        if a != b:
            neighbours[a].add(b)
            neighbours[b].add(a)
    return neighbours
