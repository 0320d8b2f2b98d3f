"""Sections of a graph between consecutive bottlenecks, and which of them are equal.

A *bottleneck* is an op that all paths pass. Side inputs and ends (masks, positions; in a training
step gradients of weights), and ops with much slack (what the forward pass prepares for the backward
pass) would hide most of them, so bottlenecks are looked for among the other ops. Ops with slack
belong to the section behind their last input, those without inputs to that of their first reader.

When a bottleneck ends, all devices and channels may be idle: all before it has ended, and the rest
waits for it. So if the devices of bottlenecks are given, sections can be solved one after the
other, each with the tensors of earlier ops on the devices where these are, and the sum of their
times is the time of a plan. Sections that are equal in this, too, have equal plans: each class is
solved once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance
from placegap.instances.problem.graph_index import DisjointSets, first_of, group_by
from placegap.instances.problem.integers import NEVER, UNSUPPORTED

FREE = -1  # the device of an op that is not pinned

# Largest slack of the ops among which bottlenecks are looked for, as shares of the longest path:
# the largest one whose bottlenecks are at least a share `ENOUGH` of the most that any slack has. Of
# gpt2's training step, 11 ops are bottlenecks among all, and 265 among those with little slack.
SLACKS = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
ENOUGH = 0.7
MOST_AT_ONCE = 256  # rows of bits that are counted together


@dataclass(frozen=True, eq=False)
class Bottlenecks:
    """The bottlenecks of an instance, and the section of each op."""

    # Section s has the ops after bottleneck s - 1, up to and with bottleneck s; the last section
    # has what follows the last bottleneck, and may be empty.
    ops: Ints  # in topological order
    section: Ints  # (n,) int64: Section of each op
    pinned: Flags  # (n,) bool: Bottlenecks, whose devices are chosen before any section is solved

    @property
    def num_sections(self) -> int:
        """How many there are, with the last one."""
        return len(self.ops) + 1


def bottlenecks_of(instance: Instance) -> Bottlenecks:
    """The bottlenecks among ops with little slack, and what lies between them; O(n + m)."""
    slack, longest = slacks(instance)
    main = on_main_ways(instance)
    found = [bottlenecks_among(instance, main & (slack <= share * longest)) for share in SLACKS]
    most = max(map(len, found))
    ops, share = next(
        (ops, share) for ops, share in zip(found, SLACKS, strict=True) if len(ops) >= ENOUGH * most
    )
    section = settled(instance, ops, main & (slack <= share * longest))
    pinned = np.zeros(instance.num_ops, np.bool_)
    pinned[ops] = True
    return Bottlenecks(ops, section, pinned)


def has_repeats(instance: Instance, bottlenecks: Bottlenecks) -> bool:
    """Whether two sections with a choice have as many ops, which take as long; O(n K)."""
    free = np.flatnonzero(~bottlenecks.pinned)
    section, num = bottlenecks.section[free], bottlenecks.num_sections
    facts = np.zeros((num, 1 + instance.num_devices))
    np.add.at(facts[:, 0], section, 1)
    np.add.at(facts[:, 1:], section, instance.arrays.time_ns[free])
    facts = facts[facts[:, 0] > 1]
    return len(np.unique(facts, axis=0)) < len(facts)


def on_main_ways(instance: Instance) -> Flags:
    """Ops behind the source with most ops behind it, and before the sink with most before it."""
    index = instance.arrays.index
    order = index.topological_order
    ahead = _beyond(order, index.pred_ptr, index.producer[index.pred_edge])
    return ahead & _beyond(order[::-1], index.succ_ptr, index.consumer[index.succ_edge])


def _beyond(order: Ints, ptr: Ints, near: Ints) -> Flags:
    """Ops that can be reached from the start which reaches most, itself included."""
    # Starts are the ops without an entry in `near`; each is a bit of Python's integers.
    starts = np.flatnonzero(np.diff(ptr) == 0).tolist()
    reach = [0] * len(order)
    for bit, i in enumerate(starts):
        reach[i] = 1 << bit
    first, other = ptr.tolist(), near.tolist()
    for i in order.tolist():
        for j in other[first[i] : first[i + 1]]:
            reach[i] |= reach[j]
    # how many ops each start reaches, in bits of bytes
    width, count = -(-len(starts) // 8), np.zeros(8 * -(-len(starts) // 8), np.int64)
    times = [*Counter(reach).items()]
    for at in range(0, len(times), MOST_AT_ONCE):
        part = times[at : at + MOST_AT_ONCE]
        packed = b"".join(bits.to_bytes(width, "little") for bits, _ in part)
        rows = np.frombuffer(packed, np.uint8).reshape(len(part), width)
        count += np.array([number for _, number in part]) @ np.unpackbits(
            rows, axis=1, bitorder="little"
        )
    main = int(np.argmax(count))
    return np.array([bits >> main & 1 for bits in reach], np.bool_)


def slacks(instance: Instance) -> tuple[Ints, int]:
    """How much shorter the longest path through each op is than that of all, (n,); and that one."""
    # Transfers take no time, and ops the least of all devices, at least 1 ns.
    index = instance.arrays.index
    time_ns = np.where(instance.arrays.time_ns == UNSUPPORTED, NEVER, instance.arrays.time_ns)
    own = np.maximum(time_ns.min(axis=1), 1).tolist()
    ahead = _paths(index.topological_order, index.pred_ptr, index.producer[index.pred_edge], own)
    behind = _paths(
        index.topological_order[::-1], index.succ_ptr, index.consumer[index.succ_edge], own
    )
    through = np.array(ahead) + (np.array(behind) - np.array(own))  # sums of both may not fit
    longest = int(through.max())
    return longest - through, longest


def _paths(order: Ints, ptr: Ints, near: Ints, own: list[int]) -> list[int]:
    """The longest path that ends with each op, itself included."""
    most, first, other = own.copy(), ptr.tolist(), near.tolist()
    for i in order.tolist():
        before = [most[j] for j in other[first[i] : first[i + 1]]]
        if before:
            most[i] += max(before)
    return most


def bottlenecks_among(instance: Instance, kept: Flags) -> Ints:
    """Ops that are comparable with all kept ones, by edges between those; topological order."""
    index = instance.arrays.index
    order = index.topological_order[kept[index.topological_order]]
    place = np.full(instance.num_ops, -1)
    place[order] = np.arange(len(order))
    tail, head = place[index.producer], place[index.consumer]
    both = (tail >= 0) & (head >= 0)
    return order[_bottleneck_places(tail[both], head[both], len(order))]


def settled(instance: Instance, ops: Ints, kept: Flags) -> Ints:
    """The section of each op, (n,): kept ones between bottlenecks, others after what they read."""
    # Ops without inputs are in the section of their first reader.
    index, n = instance.arrays.index, instance.num_ops
    order = index.topological_order.tolist()
    is_end = np.zeros(n, np.bool_)
    is_end[ops] = True
    section, ends = [0] * n, is_end.tolist()
    first, other = index.pred_ptr.tolist(), index.producer[index.pred_edge].tolist()
    kept_list, number = kept.tolist(), 0
    for i in order:
        if kept_list[i]:
            section[i] = number
            number += ends[i]
        else:
            section[i] = max(
                (section[j] + ends[j] for j in other[first[i] : first[i + 1]]), default=0
            )
    later, reader = index.succ_ptr.tolist(), index.consumer[index.succ_edge].tolist()
    for i in order[::-1]:
        if first[i] == first[i + 1] and not ends[i] and later[i] < later[i + 1]:
            section[i] = min(section[j] for j in reader[later[i] : later[i + 1]])
    return np.array(section, np.int64)


def _bottleneck_places(tail: Ints, head: Ints, n: int) -> Ints:
    """Places that every path passes, for edges between places of a topological order."""
    first_succ, last_pred = np.full(n, n), np.full(n, -1)
    np.minimum.at(first_succ, tail, head)
    np.maximum.at(last_pred, head, tail)
    latest = np.maximum.accumulate(np.concatenate([[-1], first_succ[:-1]]))
    earliest = np.minimum.accumulate(np.concatenate([last_pred[1:], [n]])[::-1])[::-1]
    at = np.arange(n)
    return np.flatnonzero((latest <= at) & (earliest >= at))


@dataclass(frozen=True, eq=False)
class LayerSection:
    """One section as a problem of its own, with K origins before its n ops."""

    # Local op k < K stands for all that is on device k when the section begins: it takes no time,
    # and sends the tensors of earlier ops. Local op K + i is ``ops[i]``.
    ops: Ints  # (n,) int64: Ops of the instance, in topological order
    edges: Ints  # (m,) int64: Edges of the instance into these ops
    #: producer, consumer, tensor: (m,) int64: Local ends and tensor of each edge.
    producer: Ints
    consumer: Ints
    tensor: Ints
    time_ns: Ints  # (K + n, K) int64
    move_ns: Ints  # (tensors, L) int64: By link class
    state_bytes: Ints  # (K + n,) int64
    device: Ints  # (K + n,) int64: Device of each local op that is pinned, else `FREE`
    leader: Ints  # (K + n,) int64: First local op of the same colocation group

    @cached_property
    def signature(self) -> Hashable:
        """Equal for sections that differ in nothing but the names of their ops."""
        parts = (self.producer, self.consumer, self.tensor, self.time_ns, self.move_ns)
        return tuple(
            part.tobytes() for part in (*parts, self.state_bytes, self.device, self.leader)
        )

    @property
    def num_free(self) -> int:
        """Ops that are not pinned."""
        return int((self.device == FREE).sum())


class LayerSections:
    """Makes the sections of an instance, one at a time, for given devices of earlier ops."""

    def __init__(self, instance: Instance, bottlenecks: Bottlenecks, op_bytes: Ints) -> None:
        self.instance, self.section, self.bytes = instance, bottlenecks.section, op_bytes
        index = instance.arrays.index
        order = index.topological_order
        self.ptr, by_section = group_by(bottlenecks.section[order], bottlenecks.num_sections)
        self.order = order[by_section]
        self.edge_ptr, self.edge_of = group_by(
            bottlenecks.section[index.consumer], bottlenecks.num_sections
        )
        self.local = np.zeros(instance.num_ops, np.int64)

    def make(self, s: int, at: Ints) -> LayerSection:
        """Section s, for the devices of colocation groups: those of all earlier ops are known."""
        # Of the section's own ops those are pinned whose group's device is not `FREE`.
        arrays, index = self.instance.arrays, self.instance.arrays.index
        k, local = self.instance.num_devices, self.local
        ops = self.order[self.ptr[s] : self.ptr[s + 1]]
        local[ops] = k + np.arange(len(ops))
        edges = self.edge_of[self.edge_ptr[s] : self.edge_ptr[s + 1]]
        inside = self.section[index.producer[edges]] == s
        source = index.producer[edges]
        producer = np.where(inside, local[source], at[arrays.group[source]])
        consumer = local[index.consumer[edges]]
        # edges in an order that names of ops do not change
        by = np.lexsort((index.tensor[edges], producer, consumer))
        edges, producer, consumer = edges[by], producer[by], consumer[by]
        tensor, first = _numbered(index.tensor[edges])
        able = np.where(arrays.able[ops], arrays.time_ns[ops], UNSUPPORTED)
        time_ns = np.concatenate([np.zeros((k, k), np.int64), able])
        leader = np.arange(k + len(ops))
        if arrays.num_groups < self.instance.num_ops:
            leader[k:] = k + first_of(arrays.group[ops])
        return LayerSection(
            ops,
            edges,
            producer,
            consumer,
            tensor,
            np.ascontiguousarray(time_ns),
            np.ascontiguousarray(arrays.transfer_ns[index.tensor[edges[first]]]),
            np.concatenate([np.zeros(k, np.int64), self.bytes[ops]]),
            np.concatenate([np.arange(k), at[arrays.group[ops]]]),
            leader,
        )


def _numbered(keys: Ints) -> tuple[Ints, Ints]:
    """Numbers by first appearance, and the place of each first one."""
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    by = np.argsort(first, kind="stable")
    rank = np.empty(len(first), np.int64)
    rank[by] = np.arange(len(first))
    return rank[number.ravel()], first[by]


@dataclass(frozen=True, eq=False)
class Branches:
    """Components of a section's free ops, and which of them are equal."""

    #: ptr, op: Local ops of each branch in topological order, as a CSR list.
    ptr: Ints
    op: Ints
    #: same_ptr, same: Numbers of equal branches, as a CSR list; each branch is in one of them.
    same_ptr: Ints
    same: Ints


def branches_of(section: LayerSection) -> Branches:
    """Branches by union of the edges between free ops; equal ones have equal signatures."""
    free = section.device == FREE
    sets = DisjointSets(len(free))
    # an input that several branches read, such as a position bias, does not make them one
    shared = (np.bincount(section.consumer, minlength=len(free)) == 0) & (
        np.bincount(section.producer, minlength=len(free)) > 1
    )
    for u, v in zip(section.producer.tolist(), section.consumer.tolist(), strict=True):
        if free[u] and free[v] and not shared[u]:
            sets.join(u, v)
    members: dict[int, list[int]] = {}
    for i in np.flatnonzero(free).tolist():
        members.setdefault(sets.find(i), []).append(i)
    parts = list(members.values())
    alike: dict[Hashable, list[int]] = {}
    signatures = branch_signatures(section, parts)
    for number, signature in enumerate(signatures):
        alike.setdefault(signature, []).append(number)
    return Branches(*_listed(parts), *_listed(list(alike.values())))


def branch_signatures(section: LayerSection, parts: list[list[int]]) -> list[Hashable]:
    """What makes a branch: its ops, its edges, and where edges from and to pinned ops lead."""
    home = np.full(len(section.device), -1)
    local = np.full(len(section.device), -1)
    for number, ops in enumerate(parts):
        home[ops], local[ops] = number, np.arange(len(ops))
    rows: list[list[Hashable]] = [[] for _ in parts]
    for u, v, t in zip(
        section.producer.tolist(), section.consumer.tolist(), section.tensor.tolist(), strict=True
    ):
        move = section.move_ns[t].tobytes()
        if home[u] >= 0:
            other = -1 if home[v] == home[u] else v
            rows[home[u]].append(
                (int(local[u]), -1, int(local[v]) if other < 0 else -1, other, move)
            )
        if home[v] >= 0 and home[v] != home[u]:
            rows[home[v]].append((-1, u, int(local[v]), -1, move))
    signatures: list[Hashable] = []
    for number, ops in enumerate(parts):
        signatures.append(
            (
                section.time_ns[ops].tobytes(),
                section.state_bytes[ops].tobytes(),
                tuple(sorted(rows[number])),  # type: ignore[type-var]
            )
        )
    return signatures


def _listed(rows: list[list[int]]) -> tuple[Ints, Ints]:
    numbers = [number for row in rows for number in row]
    return np.cumsum([0, *map(len, rows)]), np.array(numbers, np.int64)
