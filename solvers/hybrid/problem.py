"""An instance under hybrid_pipeline as integer arrays: layers, their modes, edges, and ideals.

All times are scaled, so that a stage of d replicas is within T ns per batch if and only if

    sum of cost over its layers' modes and its crossing edges  <=  T * scale * d

with integers on both sides: N / d * compute + ceil(bytes / B) <= T is multiplied by B d, and
divided by the greatest common divisor of B and 10**9. Where sums would exceed 64 bits, as with a
measured bandwidth, the scale is smaller and costs are rounded down: a no is still a proof, but a
plan may take longer than the limit that it was found for. Where even whole ns would not fit, each
cost is capped so that all together do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.objectives.hybrid.referee import least_bandwidth
from placegap.instances.problem import HybridPipeline, Instance, Mode
from placegap.instances.problem.integers import NO_LIMIT, NO_WAY, NS_PER_S, ceil_div
from placegap.instances.problem.nets import stage_arcs, stage_blocks
from placegap.solvers.chains.ideals import bit_set, ideals_as_bits

# Limits on sums of sizes, and on the cost of a stage times devices: kernels add in int64.
LARGEST, LARGEST_COST = 2**62, NO_WAY
# Stand for a mode's name: each layer has any mode of its own, or the one of Piper's rule.
EVERY_MODE, GREEDY = -1, -2


class Tables(NamedTuple):
    """Arrays for the kernels: u layers, e edges, q tensor degrees, r modes and n ideals."""

    # Layers are colocation groups, which have one mode each; ideals are made of blocks of layers.

    #: (q, u + 1) int64: Modes of layer i for the tensor degree number j are rows ``row_ptr[j, i]``
    #: to ``row_ptr[j, i + 1] - 1``.
    row_ptr: Ints
    #: cost, sync: (r,) int64: Scaled time of N microbatches, and what each further replica adds.
    cost: Ints
    sync: Ints
    #: held, fixed, shared, workspace, name: (r,) int64: Bytes for each microbatch in flight,
    #: always, and divided among the replicas; scratch bytes; number of the name.
    held: Ints
    fixed: Ints
    shared: Ints
    workspace: Ints
    name: Ints
    #: extra_ptr, extra_edge, extra_cost: (r + 1,): Edges with a further cost for a mode if they
    #: cross the border.
    extra_ptr: Ints
    extra_edge: Ints
    extra_cost: Ints
    #: tail, head, edge_cost: (e,) int64: Layers that an edge joins, and what it costs each of the
    #: two stages.
    tail: Ints
    head: Ints
    edge_cost: Ints
    tensor: Ints  # (q,) int64
    members: Ints  # (n, words) int64: Bit sets of the blocks of each ideal, smaller ideals first
    inside: Flags  # (n, u) bool
    work: Ints  # (n,) int64: Least scaled time times devices
    #: least_cost, least_sync, least_held, least_fixed, unable: (q, n) int64: Sums over each ideal
    #: of the least value of each layer's modes; number of layers without a mode for the degree.
    least_cost: Ints
    least_sync: Ints
    least_held: Ints
    least_fixed: Ints
    unable: Ints


@dataclass(frozen=True, eq=False)
class HybridProblem:
    """An instance under hybrid_pipeline, ready to be cut."""

    tables: Tables
    names: tuple[str, ...]  # names of modes, by number
    degrees: Ints  # (d,) int64: Numbers of replicas: divisors of N, ascending
    devices: int
    most_replicas: int  # the most replicas of all stages of a plan together
    memory: int  # bytes of a device
    scale: int
    rounded: bool  # whether costs of bytes are rounded down
    largest: int  # upper bound on the cost of a stage

    def budget(self, limit_ns: int) -> int:
        """The scaled cost that one replica may have within a limit per batch."""
        # Capped at what all work comes to, so that no product with it leaves 64 bits.
        most = self.largest * int(self.tables.tensor.max(initial=1))
        return min(most, limit_ns * self.scale)

    @property
    def work_bound_ns(self) -> int:
        """A bound on all plans: all work, spread evenly over all devices."""
        return ceil_div(int(self.tables.work[-1]), self.devices * self.scale)


def tensor_degrees(instance: Instance) -> list[int]:
    """Tensor degrees that some mode has and that divide the size of every server."""
    found = {mode.tensor for op in instance.graph.ops for mode in op.ways}
    servers: dict[str, int] = {}
    for device in instance.cluster.devices:
        if device.server is not None:
            servers[device.server] = servers.get(device.server, 0) + 1
    whole = gcd(*servers.values()) if servers else 0
    return sorted(t for t in found if t <= instance.num_devices and whole % t == 0)


def why_not_hybrid(instance: Instance, semantics: HybridPipeline) -> str | None:
    """Why `hybrid-cuts` cannot model a valid instance, or None."""
    degrees = tensor_degrees(instance)
    nested = all(b % a == 0 for a, b in pairwise(degrees))
    servers = any(device.server for device in instance.cluster.devices)
    if servers and not nested and semantics.degrees == "free":
        return (
            f"packs tensor degrees into servers where each divides the next, not {degrees};"
            " ask for --degrees one_t"
        )
    return None


def divisors(number: int, most: int) -> Ints:
    """Divisors up to `most`, ascending."""
    found = [d for d in range(1, min(number, most) + 1) if number % d == 0]
    return np.array(found, np.int64)


def build_problem(
    instance: Instance, semantics: HybridPipeline, most_ideals: int
) -> HybridProblem | str:
    """The problem, or why it is too large."""
    arrays, n = instance.arrays, semantics.microbatches
    block, group = stage_blocks(instance), arrays.group
    assert block is not None, "no op is backward"
    # Layers are colocation groups; a block holds whole layers, so it is stated per group.
    of_group = np.zeros(arrays.num_groups, np.int64)
    of_group[group] = block
    ideals = _ideals(instance, block, most_ideals)
    if ideals is None:
        return f"there are more than {most_ideals} ideals (max_ideals)"
    devices = instance.num_devices
    most_replicas = min(n, devices)
    degrees = divisors(n, most_replicas)
    most_d = int(degrees[-1])
    bandwidth = least_bandwidth(instance)
    common = gcd(bandwidth, NS_PER_S)
    scale, byte = bandwidth // common, NS_PER_S // common if devices > 1 else 0
    names: dict[str, int] = {}
    tensors = tensor_degrees(instance)
    # Equation 3 of docs/pipelines.md times scale * d: N * scale per ns of compute, 2 N * byte per
    # byte of the border, and 2 (d - 1) * byte per byte of gradients.
    rates = _Rates(n * scale, 2 * n * byte, 2 * byte if most_d > 1 else 0)
    rows = _rows(instance, semantics, tensors, names, rates)
    joined = group[instance.graph.index.producer] != group[instance.graph.index.consumer]
    # Edges within a layer are in no border.
    edges = np.flatnonzero(joined)
    sizes = [rates.border_byte * instance.graph.edges[e].bytes for e in edges.tolist()]
    widest = max(tensors, default=1)
    # The whole graph as one stage, with every edge in its border: no stage costs more.
    largest = rows.worst(most_d) + sum(sizes)
    rounded = largest * widest > LARGEST_COST
    # `part` scales every cost by scale / exact and rounds down, so sums are at most as large as
    # they would be exactly: bounds stay bounds.
    if rounded:
        exact, scale, most = scale, scale * LARGEST_COST // (largest * widest), LARGEST_COST
        if scale == 0:
            scale, most = 1, LARGEST_COST // (widest * (len(sizes) + rows.terms(most_d)))

        def part(cost: int) -> int:
            return min(most, cost * scale // exact)

        rows, sizes = rows.rounded(part), [part(size) for size in sizes]
        largest = rows.worst(most_d) + sum(sizes)
    held = sum(max((row.held for row in own), default=0) for own in rows.most)
    kept = sum(max((row.fixed + row.shared for row in own), default=0) for own in rows.most)
    scratch = max((row.workspace for own in rows.most for row in own), default=0)
    if 2 * most_replicas * (held + 1) + most_d * (kept + scratch + 1) > LARGEST:
        return "adds in 64 bits: bytes of replicas are too large; ask for fewer microbatches"
    limits = [device.memory_bytes for device in instance.cluster.devices]
    memory = limits[0] if limits[0] is not None else NO_LIMIT
    tables = _tables(rows, ideals, of_group, tensors)
    number = np.full(len(joined), -1, np.int64)
    number[edges] = np.arange(len(edges))
    tables = tables._replace(
        extra_edge=number[tables.extra_edge],
        tail=group[instance.graph.index.producer][edges],
        head=group[instance.graph.index.consumer][edges],
        edge_cost=np.array(sizes, np.int64),
    )
    return HybridProblem(
        tables, tuple(names), degrees, devices, most_replicas, memory, scale, rounded, largest
    )


def _ideals(instance: Instance, block: Ints, most: int) -> list[int] | None:
    before = [0] * (int(block.max()) + 1)
    tail, head = block[stage_arcs(instance)]
    for a, b in zip(tail.tolist(), head.tolist(), strict=True):
        if a != b:
            before[b] |= 1 << a
    return ideals_as_bits(before, most)


class _Rates(NamedTuple):
    """Scaled costs: of a ns of a layer, of a byte at a border, and of a byte of its gradients."""

    ns: int
    border_byte: int
    gradient_byte: int


class _Row(NamedTuple):
    """One mode of a layer, as sums over its ops."""

    cost: int
    sync: int
    held: int
    fixed: int
    shared: int
    workspace: int
    name: int
    extra: dict[int, int]

    def worst(self, replicas: int) -> int:
        """Upper bound on its cost in a stage."""
        return self.cost + (replicas - 1) * self.sync + sum(self.extra.values())


class _Rows(NamedTuple):
    """Rows by tensor degree and layer."""

    of: list[list[list[_Row]]]

    @property
    def most(self) -> list[list[_Row]]:
        """All rows of each layer."""
        return [[row for own in layer for row in own] for layer in zip(*self.of, strict=True)]

    def worst(self, replicas: int) -> int:
        """Upper bound on the cost of all layers."""
        return sum(max((row.worst(replicas) for row in own), default=0) for own in self.most)

    def terms(self, replicas: int) -> int:
        """Number of terms that `worst` adds."""
        return sum(max((replicas + len(row.extra) for row in own), default=0) for own in self.most)

    def rounded(self, part: Callable[[int], int]) -> _Rows:
        """The rows with each cost replaced by `part` of it."""

        def less(row: _Row) -> _Row:
            extra = {e: part(cost) for e, cost in row.extra.items()}
            return row._replace(cost=part(row.cost), sync=part(row.sync), extra=extra)

        return _Rows([[[less(row) for row in own] for own in layers] for layers in self.of])


def _rows(
    instance: Instance,
    semantics: HybridPipeline,
    tensors: list[int],
    names: dict[str, int],
    rates: _Rates,
) -> _Rows:
    """Modes of each layer."""
    layers: list[list[int]] = [[] for _ in range(instance.arrays.num_groups)]
    for i, g in enumerate(instance.arrays.group.tolist()):
        layers[g].append(i)
    into: list[dict[str, list[int]]] = [{} for _ in instance.graph.ops]
    out: list[dict[str, list[int]]] = [{} for _ in instance.graph.ops]
    for e, edge in enumerate(instance.graph.edges):
        a, b = (instance.graph.op_index[end] for end in (edge.producer, edge.consumer))
        if instance.arrays.group[a] != instance.arrays.group[b]:
            into[b].setdefault(edge.producer, []).append(e)
            out[a].setdefault(edge.consumer, []).append(e)
    kind = instance.cluster.devices[0].kind

    def row(ops: list[int], modes: list[Mode]) -> _Row:
        extra: dict[int, int] = {}
        for i, mode in zip(ops, modes, strict=True):
            for given, ends in ((mode.enter_bytes, into[i]), (mode.leave_bytes, out[i])):
                for end, size in given.items():
                    for e in ends.get(end, []) if size else []:
                        extra[e] = extra.get(e, 0) + rates.border_byte * size
        # `shared` bytes are divided among the replicas: optimizer state under ZeRO-1, gradients as
        # well under ZeRO-2 (equation 5 of docs/pipelines.md).
        shared = 0
        if semantics.sharding != "none":
            shared += sum(mode.sharded_bytes for mode in modes)
        if semantics.sharding == "gradients":
            shared += sum(mode.gradient_bytes for mode in modes)
        return _Row(
            rates.ns * sum(mode.time_ns[kind] for mode in modes),
            rates.gradient_byte * sum(mode.parameter_bytes for mode in modes),
            sum(mode.held_bytes for mode in modes),
            sum(mode.state_bytes for mode in modes) - shared,
            shared,
            max(mode.workspace_bytes for mode in modes),
            names.setdefault(modes[0].name, len(names)),
            extra,
        )

    found: list[list[list[_Row]]] = []
    for t in tensors:
        found.append([])
        # A layer chooses one mode by name, so modes of its ops with one name and one t are one row.
        for ops in layers:
            by_name: dict[str, list[Mode]] = {}
            for i in ops:
                for mode in instance.graph.ops[i].ways:
                    if mode.tensor == t:
                        by_name.setdefault(mode.name, []).append(mode)
            found[-1].append([row(ops, modes) for modes in by_name.values()])
    return _Rows(found)


def _tables(rows: _Rows, ideals: list[int], block: Ints, tensors: list[int]) -> Tables:
    flat = [row for own in rows.of for layer in own for row in layer]
    sizes = [[len(layer) for layer in own] for own in rows.of]
    pointer, at = [], 0
    for own in sizes:
        pointer.append(np.concatenate([[at], at + np.cumsum(own)]))
        at += sum(own)
    extra = [pair for row in flat for pair in sorted(row.extra.items())]
    blocks = int(block.max()) + 1
    flags = np.array([[ideal >> b & 1 for b in range(blocks)] for ideal in ideals], np.bool_)
    # Indexing columns gives Fortran order, for which the kernels would be compiled once more.
    inside = np.ascontiguousarray(flags[:, block])

    def sums(least: list[list[int]]) -> Ints:
        return np.array(least, np.int64).reshape(len(tensors), len(block)) @ inside.T.astype(
            np.int64
        )

    def least(field: str) -> Ints:
        # A layer without a mode for this degree counts 0 here, and in `unable`, which excludes the
        # stage.
        return sums(
            [
                [min((getattr(r, field) for r in layer), default=0) for layer in own]
                for own in rows.of
            ]
        )

    # The device time of a layer at its best t: t devices for its cost. No plan does its work with
    # less.
    work = [
        min(
            (t * row.cost for t, own in zip(tensors, rows.of, strict=True) for row in own[g]),
            default=0,
        )
        for g in range(len(block))
    ]

    def column(field: str) -> Ints:
        return np.array([getattr(row, field) for row in flat], np.int64)

    return Tables(
        row_ptr=np.array(pointer, np.int64).reshape(len(tensors), len(block) + 1),
        cost=column("cost"),
        sync=column("sync"),
        held=column("held"),
        fixed=column("fixed"),
        shared=column("shared"),
        workspace=column("workspace"),
        name=column("name"),
        extra_ptr=np.concatenate([[0], np.cumsum([len(row.extra) for row in flat])]).astype(
            np.int64
        ),
        extra_edge=np.array([e for e, _ in extra], np.int64),
        extra_cost=np.array([c for _, c in extra], np.int64),
        tail=np.zeros(0, np.int64),
        head=np.zeros(0, np.int64),
        edge_cost=np.zeros(0, np.int64),
        tensor=np.array(tensors, np.int64),
        members=np.array([bit_set(own) for own in flags], np.int64),
        inside=inside,
        work=inside.astype(np.int64) @ np.array(work, np.int64),
        least_cost=least("cost"),
        least_sync=least("sync"),
        least_held=least("held"),
        least_fixed=least("fixed"),
        unable=sums([[int(not layer) for layer in own] for own in rows.of]),
    )
