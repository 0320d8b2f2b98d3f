"""Cards that hold every layer together, in unequal shares, as one virtual device.

With shares s_k of a group's cards, which sum to 1, what is split takes as long as on one device of

    bandwidth   min over k of bandwidth_k / s_k     (and so each peak rate)
    overhead    max over k of overhead_k
    memory      min over k of (memory_k - what each card holds whole) / s_k

Split are products, attention, experts, and what holds a cache or a state; by launches, so that a
softmax is split with its products. All else (norms, sums, rotations) runs on every card as a whole,
at the least rates of the group. Embeddings are whole on one card. A layer has two all-reduces of
what its attention and its feed-forward part hand on, and a head has one:

    2 ceil(log2 t) latency  +  2 (t - 1) / t bytes / bandwidth,       of the worst link of t cards

The latency of PCIe links, 10 us, makes that 20 us of two cards: vLLM 0.24 takes 21 us for 8 KB on
two RTX PRO 6000 without CUDA graphs, and 5 us within one; NCCL 2.27 takes 8 us on two L40S
(`custom_allreduce_perf` and `nccl_perf` of aiconfigurator-core 0.12.0). TensorRT-LLM 1.3 takes 7 us
on two and 13 on four RTX PRO 6000, as the logarithm has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import gcd
from typing import NamedTuple

from placegap.instances.costing.catalogue import launch_ns_of, specs_of
from placegap.instances.costing.costing import costed, is_measured
from placegap.instances.costing.launches import LIGHT, launch_of
from placegap.instances.problem import Cluster, Device, DeviceSpec, Graph, Instance, Op
from placegap.instances.problem.arrays import link_time_ns
from placegap.instances.problem.links import Link
from placegap.instances.problem.modules import is_expert, layer_ends, layer_of
from placegap.instances.problem.op_kernel import AttentionKernel
from placegap.instances.reading.errors import InputError

UNITS = 64  # shares are in 64ths where no attention says how many heads its cache has


class CardGroup(NamedTuple):
    """Cards by number, and how many units of every layer each holds."""

    cards: tuple[int, ...]
    shares: tuple[int, ...]

    def name(self, cluster: Cluster) -> str:
        """The virtual device: ``RTX3090-0:5+RTX3060-0:3``."""
        names = [cluster.devices[k].name for k in self.cards]
        return "+".join(f"{name}:{s}" for name, s in zip(names, self.shares, strict=True))


def share_units(graph: Graph) -> int:
    """In how many parts a layer may be split: heads of the cache, where there are several."""
    kernels = [op.kernel for op in graph.ops if isinstance(op.kernel, AttentionKernel)]
    heads = gcd(*(kernel.kv_heads for kernel in kernels))
    return heads if heads > 1 else UNITS


def group_spec(specs: Sequence[DeviceSpec], shares: Sequence[int], units: int) -> DeviceSpec:
    """The rates of a group, of which each card does shares[k] / units."""
    parts = list(zip(specs, shares, strict=True))
    types = {name for spec in specs for name in spec.peak_flops_per_s}
    slowest = max(specs, key=launch_ns_of)
    return DeviceSpec(
        peak_flops_per_s={
            name: min(spec.peak(name) * units // s for spec, s in parts) for name in sorted(types)
        },
        bandwidth_bytes_per_s=min(spec.bandwidth_bytes_per_s * units // s for spec, s in parts),
        memory_bytes=None,
        launch_overhead_ns=slowest.launch_overhead_ns,
        costed_as=slowest.costed_as,
    )


class SplitParts:
    """What of a model groups split, and what they hold and do as a whole."""

    def __init__(self, instance: Instance) -> None:
        graph, layers = instance.graph, layer_of(instance.graph)
        if is_measured(graph) or any(op.flops is op.bytes_moved is None for op in graph.ops):
            raise InputError(
                "tensor splits need FLOPs or bytes moved of every op, and times that are modelled:"
                " choose --costs calibrated, or leave out --tensor-split",
                graph.name,
            )
        self.instance = instance
        bare = [op.model_copy(update={"time_ns": {}}) for op in graph.ops]
        #: The graph without times.
        self.bare = graph.model_copy(update={"ops": tuple(bare)})
        launch = launch_of(self.bare).tolist()
        heavy = {
            number
            for number, op in zip(launch, graph.ops, strict=True)
            if (op.flops and op.kind not in LIGHT) or (op.state_bytes or 0) > op.parameter_bytes
        }
        #: Whether each op is split: its launch has a product, a cache or a state.
        self.is_split = [number in heavy for number in launch]
        held = [
            op.parameter_bytes if op.state_bytes is None else op.state_bytes for op in graph.ops
        ]
        shared = [sum(op.shared_state.values()) for op in graph.ops]
        ends = layer_ends(instance, layers)
        whole = [i for i, size in enumerate(held) if size and not self.is_split[i]]
        first = [i for i in whole if ends.get(layers[i] or "")]
        #: Ops that hold embeddings, and their bytes.
        self.embeddings = frozenset(graph.ops[i].name for i in first)
        self.embedding_bytes = sum(held[i] for i in first)
        #: What every card of a group holds.
        self.whole_bytes = sum(held[i] for i in whole) - self.embedding_bytes
        last: dict[str, dict[bool, int]] = {}
        for i in graph.index.topological_order.tolist():
            if self.is_split[i] and layers[i] is not None:
                last.setdefault(layers[i] or "", {})[is_expert(graph.ops[i])] = i
        #: How many all-reduces follow an op, and of how many bytes.
        self.reduced = {
            graph.ops[i].name: (
                2 // len(parts) if layer.rpartition(".")[2].isdecimal() else 1,
                max(0, graph.ops[i].resident_bytes - held[i] - shared[i]),
            )
            for layer, parts in last.items()
            for i in parts.values()
        }

    def with_times(self, groups: Sequence[CardGroup]) -> Graph:
        """The graph, whose ops have times on groups, too, by the names of these."""
        cluster, graph = self.instance.cluster, self.instance.graph
        specs, kinds = specs_of(cluster), dict[str, DeviceSpec]()
        for group in groups:
            own = [specs[cluster.devices[k].kind] for k in group.cards]
            name = group.name(cluster)
            kinds[name] = group_spec(own, group.shares, sum(group.shares))
            kinds[f"{name} whole"] = group_spec(own, [1] * len(own), 1)
        devices = tuple(Device(name=kind, kind=kind) for kind in kinds)
        costs = costed(self.bare, Cluster(name="groups", devices=devices, kinds=kinds)).ops
        ops = list[Op]()
        for op, cost, is_split in zip(graph.ops, costs, self.is_split, strict=True):
            found, (count, size) = dict(op.time_ns), self.reduced.get(op.name, (0, 0))
            for group in groups:
                name = group.name(cluster)
                time_ns = cost.time_ns[name if is_split else f"{name} whole"]
                reduce_ns = count and all_reduce_ns(cluster, group.cards, size)
                found[name] = time_ns + count * reduce_ns
            ops.append(op.model_copy(update={"time_ns": found}))
        return graph.model_copy(update={"ops": tuple(ops)})


def all_reduce_ns(cluster: Cluster, cards: Sequence[int], size_bytes: int) -> int:
    """Time of an all-reduce between cards."""
    paths = [cluster.widest_paths[a, b] for a in cards for b in cards if a != b]
    t, bandwidth = len(cards), min(rate for rate, _ in paths)
    latency = 2 * (t - 1).bit_length() * max(ns for _, ns in paths)
    return link_time_ns(-(-2 * (t - 1) * size_bytes // t), bandwidth, latency)


def group_bytes(
    memory: Sequence[int | None], shares: Sequence[int], whole: int, embedding: int
) -> int | None:
    """Memory of a group whose cards hold `whole` bytes each, and one of them the embedding."""
    # The embedding is an op of the group, on the card where that leaves most; 0: it is elsewhere.
    units, rooms = sum(shares), list[int]()
    for holder in range(len(shares)):
        found = [
            max(0, size - whole - embedding * (k == holder)) * units // s
            for k, (size, s) in enumerate(zip(memory, shares, strict=True))
            if size is not None
        ]
        rooms.append(min(found, default=-1))
    most = max(rooms)
    return None if most < 0 else most + embedding


def grouped_cluster(
    cluster: Cluster, groups: Sequence[CardGroup], memory: Sequence[int | None]
) -> Cluster:
    """The cluster with groups in place of their cards."""
    # A group receives what each of its cards needs, one after another over the worst of its links;
    # any card can send what all have, by the best one.
    taken = {k for group in groups for k in group.cards}
    parts: list[tuple[Device, tuple[int, ...]]]
    parts = [(device, (k,)) for k, device in enumerate(cluster.devices) if k not in taken]
    for group, size in zip(groups, memory, strict=True):
        name, server = group.name(cluster), cluster.devices[group.cards[0]].server
        one = Device(name=name, kind=name, memory_bytes=size, server=server)
        parts.append((one, group.cards))
    parts.sort(key=lambda part: part[1])
    links = []
    for (source, senders), (target, receivers) in permutations(parts, 2):
        ways = [max(cluster.widest_paths[a, b] for a in senders) for b in receivers]
        links.append(
            Link(
                source=source.name,
                target=target.name,
                bandwidth_bytes_per_s=max(1, min(rate for rate, _ in ways) // len(ways)),
                latency_ns=max(ns for _, ns in ways),
            )
        )
    devices = tuple(device for device, _ in parts)
    return cluster.model_copy(update={"devices": devices, "links": tuple(links)})


def on_groups(
    coarse: Instance, parts: SplitParts, groups: Sequence[CardGroup], holder: CardGroup | None
) -> Instance | None:
    """The instance on groups and other devices, the embedding on a group or on no group."""
    # `coarse` has times on groups (`SplitParts.with_times`).
    cluster, embedding = coarse.cluster, parts.embedding_bytes
    memory = [
        group_bytes(
            [cluster.devices[k].memory_bytes for k in group.cards],
            group.shares,
            parts.whole_bytes,
            embedding if group == holder else 0,
        )
        for group in groups
    ]
    found = grouped_cluster(cluster, groups, memory)
    names = {group.name(cluster) for group in groups}
    kinds = {device.kind for device in found.devices} - names
    allowed = kinds if holder is None else {holder.name(cluster)}
    ops = []
    for op in coarse.graph.ops:
        if op.name in parts.embeddings:
            times = {kind: ns for kind, ns in op.time_ns.items() if kind in allowed}
            if not times:
                return None
            op = op.model_copy(update={"time_ns": times})
        ops.append(op)
    graph = coarse.graph.model_copy(update={"ops": tuple(ops)})
    return coarse.model_copy(update={"graph": graph, "cluster": found, "best_known": ()})
