"""Modes of transformer layers, modelled: time and memory by tensor degree and recomputation.

A layer is a row of blocks, each between two collectives of its t devices (attention; the
feed-forward part). Products that read a block's input are split by columns, those that write to
the residual stream by rows, heads with them; embedding and loss by words. So of a block all FLOPs,
weights and inner activations are divided by t, and its forward and its backward pass each
all-reduce `reduced_bytes`. Time of one microbatch, with S the share of the peak rate of matrix
products that a trainer reaches, P the peak, B the bandwidth inside a server and L its latency:

    (3 flops + recomputed flops) / (t S P)  +  collectives * (2 L + 2 (t - 1) / t * bytes / B)

The residual stream itself (inputs of norms and products, masks of dropout) is whole on each of the
t devices, or divided by t under sequence parallelism, at equal bytes sent.

| mode | holds, per microbatch in flight | computes again | collectives per block |
|---|---|---|---|
| keep | all that backward reads | nothing | 2 |
| selective | without what `recomputed_bytes` says | `recomputed_flops` | 2, and 1 where said |
| full | the layer's input | all of forward | 3 |

Under ``measured`` costs the time is the sum of the part's products, of its kernels that only move
memory, and of its collectives, as `measured_rates` has them; so it is where a layer states its
products, and by the rule above where it does not.

What is recomputed lies in the workspace while the layer's backward pass runs. Weights are held with
their gradients and Adam's state; `sharded_bytes` are what ZeRO-1 divides among replicas.

Sources: Shoeybi et al. 2019 (Megatron-LM), section 3; Korthikanti et al. 2022, section 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, gcd
from typing import NamedTuple

from placegap.instances.costing.catalogue import specs_of
from placegap.instances.costing.measured_rates import (
    KernelRates,
    LayerWork,
    by_rule,
    measured_table,
)
from placegap.instances.problem import Cluster, Edge, Graph, Mode, Op, Provenance
from placegap.instances.problem.integers import NS_PER_S, ceil_div
from placegap.instances.problem.links import Group
from placegap.instances.reading.errors import InputError


class Precision(NamedTuple):
    """Number type of the products, and bytes of one weight, its gradient and its optimizer."""

    dtype: str
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int


# Mixed precision with Adam as Megatron-LM holds it: gradients are summed up in single precision, as
# are the weights' copy and both moments.
MIXED = Precision("bfloat16", 2, 4, 12)

# Share of the peak rate of matrix products that a layer reaches, all else in it included: runs of
# Megatron-LM on A100 reach 42 to 56 % with the bubble (Korthikanti et al. 2022, table 5), and those
# of Llama 3 on H100 38 to 43 % (Grattafiori et al. 2024, table 4).
SHARE_PERCENT = 50
# Of a weight, moved where a microbatch's gradient joins those before it: it is read, and the sum
# read and written, in half precision. In single precision it would be 12.
SUMMED_BYTES = 6
MOST_TENSOR = 64  # more devices for one layer than any server has
HEADS = "heads"  # parameter of a traced model: numbers that a tensor degree divides ("32 8")
MODELLED = "modes"  # parameter of the provenance: how the modes of a graph were made
BY_KERNELS = "priced by kernels"  # begins the note where costs are measured, or of the rule


class LayerPart(NamedTuple):
    """What is between two collectives, for the forward pass of one microbatch on one device."""

    flops: int = 0  # of matrix products
    #: weights, whole_weights: Numbers of them; those that are divided by t, and those that each
    #: device has (norms).
    weights: int = 0
    whole_weights: int = 0
    #: stash_bytes, stream_bytes: What backward reads: inside of the block, and of the residual
    #: stream.
    stash_bytes: int = 0
    stream_bytes: int = 0
    reduced_bytes: int = 0  # what a pass all-reduces
    #: recomputed_flops, recomputed_bytes: What `selective` computes again, and the part of
    #: `stash_bytes` that it does not hold.
    recomputed_flops: int = 0
    recomputed_bytes: int = 0
    reduces_again: bool = False  # whether `selective` repeats the collective of the forward pass
    #: forward, backward, again: What the passes run, and what `selective` runs again.
    forward: LayerWork = LayerWork()
    backward: LayerWork = LayerWork()
    again: LayerWork = LayerWork()
    weight_bytes_moved: int = 0  # bytes of each weight that a step moves beside its gradient
    #: What a step all-reduces, where that is not `reduced_bytes` in each pass.
    step_reduced_bytes: tuple[int, ...] = ()


class TrainedLayer(NamedTuple):
    """A layer of a network: what is recomputed as one, and lies in one stage."""

    # `full` says whether all of it may be recomputed from its input; t divides each of `divides`.
    name: str
    kind: str
    blocks: tuple[LayerPart, ...]
    input_bytes: int
    divides: tuple[int, ...] = ()
    full: bool = True
    module: str | None = None


class Rates(NamedTuple):
    """FLOP/s that products reach, and bandwidth (bytes/s) and latency (ns) inside of a server."""

    flops_per_s: int
    inner_bytes_per_s: int
    inner_latency_ns: int = 0
    measured: KernelRates | None = None  # measured costs, if those are chosen


def server_link(cluster: Cluster) -> tuple[int, int]:
    """Least bandwidth and largest latency of links inside servers; without servers of all links."""
    server = {device.name: device.server for device in cluster.devices}
    found = []
    for entry in cluster.all_links.entries:
        ends = entry.devices if isinstance(entry, Group) else (entry.source, entry.target)
        homes = {server[end] for end in ends}
        if len(ends) > 1 and len(homes) == 1:
            found.append((entry.bandwidth_bytes_per_s, entry.latency_ns))
    return (min(rate for rate, _ in found), max(ns for _, ns in found)) if found else (1, 0)


def tensor_choices(cluster: Cluster) -> tuple[int, ...]:
    """Powers of two that divide the devices of each server; without servers, of the cluster."""
    sizes = Counter(device.server for device in cluster.devices).values()
    whole, powers = gcd(*sizes), [1]
    while whole % (2 * powers[-1]) == 0 and powers[-1] < MOST_TENSOR:
        powers.append(2 * powers[-1])
    return tuple(powers)


def cluster_rates(
    cluster: Cluster, dtype: str = MIXED.dtype, *, measured: bool = False
) -> dict[str, Rates]:
    """Rates of the cluster's devices, by kind; with measured ones, or those of their rule."""
    specs, link = specs_of(cluster), server_link(cluster)
    found = {}
    for device in cluster.devices:
        if device.kind not in specs:
            raise InputError(
                f"device {device.name!r}: modes cannot be modelled on {device.kind!r}, which the"
                " catalogue does not have; state its rates (--devices)",
                cluster.source,
            )
        spec = specs[device.kind]
        table = None
        if measured:
            rule = by_rule(spec.peak(dtype), spec.bandwidth_bytes_per_s, link[0])
            table = measured_table(device.kind) or rule
        found[device.kind] = Rates(spec.peak(dtype) * SHARE_PERCENT // 100, *link, table)
    return found


class ModelledOn(NamedTuple):
    """What modes are made for: rates by device kind, tensor degrees, number types."""

    # With `sequence` parallelism the residual stream is divided among the t devices. Where servers
    # of `server_devices` share a network, all t devices send gradients over it.
    rates: Mapping[str, Rates]
    tensors: Sequence[int]
    precision: Precision = MIXED
    sequence: bool = True
    server_devices: int | None = None

    @classmethod
    def cluster(
        cls, cluster: Cluster, precision: Precision = MIXED, *, measured: bool = False
    ) -> ModelledOn:
        rates = cluster_rates(cluster, precision.dtype, measured=measured)
        sizes = Counter(device.server for device in cluster.devices)
        shared = max(sizes.values()) if measured and len(sizes) > 1 else None
        return cls(rates, tensor_choices(cluster), precision, server_devices=shared)


def layer_modes(layer: TrainedLayer, on: ModelledOn) -> tuple[Mode, ...]:
    """The modes of a layer: one for each t that divides what it has to, and each way to keep."""
    return tuple(_modes(layer, on))


def _modes(layer: TrainedLayer, on: ModelledOn) -> Iterator[Mode]:
    blocks = layer.blocks
    flops, stream = (sum(getattr(b, name) for b in blocks) for name in ("flops", "stream_bytes"))
    stash = sum(block.stash_bytes for block in blocks)
    dropped = sum(block.recomputed_bytes for block in blocks)
    for t in on.tensors:
        if any(number % t for number in layer.divides):
            continue
        apart = t if on.sequence else 1
        weights = sum(ceil_div(block.weights, t) + block.whole_weights for block in blocks)
        kept = ceil_div(stash, t) + ceil_div(stream, apart)
        ways = [("keep", 0, kept)]
        if dropped:
            again = sum(block.recomputed_flops for block in blocks)
            ways.append(
                ("selective", again, ceil_div(stash - dropped, t) + kept - ceil_div(stash, t))
            )
        if layer.full:
            ways.append(("full", flops, ceil_div(layer.input_bytes, apart)))
        for name, again, held in ways:
            times = {}
            for kind, rate in on.rates.items():
                if rate.measured is not None and any(
                    block.forward != LayerWork() for block in blocks
                ):
                    times[kind] = _measured_ns(blocks, name, t, on, rate.measured)
                    continue
                time_ns = ceil_div((3 * flops + again) * NS_PER_S, t * rate.flops_per_s)
                for block in blocks:
                    more = name == "full" or (name == "selective" and block.reduces_again)
                    time_ns += (2 + more) * _all_reduce_ns(block.reduced_bytes, t, rate)
                times[kind] = time_ns
            sent = on.precision.gradient_bytes * weights
            if on.server_devices is not None:
                sent = ceil_div(sent * t, on.server_devices)
            yield Mode(
                name=name,
                tensor=t,
                time_ns=times,
                parameter_bytes=sent,
                state_bytes=sum(on.precision[1:]) * weights,
                sharded_bytes=on.precision.optimizer_bytes * weights,
                gradient_bytes=on.precision.gradient_bytes * weights,
                held_bytes=held,
                workspace_bytes=max(0, kept - held),
            )


def _measured_ns(
    blocks: Sequence[LayerPart], name: str, t: int, on: ModelledOn, table: KernelRates
) -> int:
    """Forward, backward and what is computed again, of one of t devices."""
    total = 0.0
    for block in blocks:
        forward, back, again = (
            table.work_ns(work, t, sequence=on.sequence)
            for work in (block.forward, block.backward, block.again)
        )
        each = SUMMED_BYTES + block.weight_bytes_moved
        back += table.moved_ns(each * ceil_div(block.weights, t))
        reduced = table.all_reduce_ns(block.reduced_bytes, t)
        steps = [table.all_reduce_ns(size, t) for size in block.step_reduced_bytes]
        total += forward + back + (sum(steps) if steps else 2 * reduced)
        if name == "full":
            total += forward + reduced
        elif name == "selective":
            total += again + (reduced if block.reduces_again else 0)
    return ceil(total)


def _all_reduce_ns(size_bytes: int, t: int, rate: Rates) -> int:
    """Of a ring: each device sends 2 (t - 1) / t of the bytes."""
    if t == 1 or not size_bytes:
        return 0
    sent = ceil_div(2 * (t - 1) * size_bytes * NS_PER_S, t * rate.inner_bytes_per_s)
    return 2 * rate.inner_latency_ns + sent


def layer_graph(
    name: str,
    layers: Sequence[TrainedLayer],
    edges: Sequence[tuple[int, int, int]],
    on: ModelledOn,
    provenance: Provenance,
) -> Graph:
    """Layers with their modes as a graph for hybrid_pipeline; an edge is two layers and bytes."""
    # Between stages each of t devices sends its part of the residual stream. So an edge carries
    # what one of the most devices sends, and a mode of fewer adds the rest, at its own end.
    ops, most = [], max(on.tensors)
    into: list[dict[int, int]] = [{} for _ in layers]
    out: list[dict[int, int]] = [{} for _ in layers]
    for a, b, size in edges:
        into[b][a] = out[a][b] = size
    for k, layer in enumerate(layers):
        modes = tuple(
            mode.model_copy(
                update={
                    field: {
                        layers[other].name: ceil_div(size, mode.tensor) - ceil_div(size, most)
                        for other, size in ends.items()
                        if mode.tensor < most and size
                    }
                    for field, ends in (("enter_bytes", into[k]), ("leave_bytes", out[k]))
                }
            )
            for mode in layer_modes(layer, on)
        )
        first, weights = modes[0], sum(b.weights + b.whole_weights for b in layer.blocks)
        ops.append(
            Op(
                name=layer.name,
                kind=layer.kind,
                time_ns=first.time_ns,
                resident_bytes=first.state_bytes + first.held_bytes,
                parameter_bytes=on.precision.weight_bytes * weights,
                state_bytes=first.state_bytes,
                module=layer.module,
                dtype=on.precision.dtype,
                modes=modes,
            )
        )
    joined = tuple(
        Edge(producer=layers[a].name, consumer=layers[b].name, bytes=ceil_div(size, most))
        for a, b, size in edges
    )
    said = ", ".join(
        f"{kind} at {rate.flops_per_s / 1e12:.0f} TFLOP/s ({on.precision.dtype}) and"
        f" {rate.inner_bytes_per_s / 1e9:.0f} GB/s inside a server"
        if rate.measured is None
        else f"{kind} with {rate.measured.source}"
        for kind, rate in on.rates.items()
    )
    is_plain = all(rate.measured is None for rate in on.rates.values())
    note = f"{'modelled' if is_plain else BY_KERNELS}: {said}"
    note += ", sequence parallelism" if on.sequence else ""
    return Graph(
        name=name,
        ops=tuple(ops),
        edges=joined,
        provenance=provenance.noting(f"modes of layers are {note}", {MODELLED: note}),
    )
