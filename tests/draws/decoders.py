"""Decode steps of a few ops per layer, with FLOPs and bytes, on machines with links of PCIe."""

from collections.abc import Sequence
from itertools import pairwise

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Op
from placegap.instances.costing.costing import costed, with_costs
from placegap.instances.problem import AttentionKernel, DeviceSpec, Link, Provenance

GB = 10**9
HEADS = 4
DECODE = Provenance(parameters={"decode": True})


def attention(heads: int, cached: int, name: str, layer: str) -> Op:
    """Attention with a cache of so many bytes, which it reads."""
    return Op(
        name=name,
        module=f"{layer}.attn",
        flops=2 * cached,
        bytes_moved=cached,
        resident_bytes=cached,
        state_bytes=cached,
        kernel=AttentionKernel(
            phase="generation",
            batch=1,
            heads=heads,
            kv_heads=heads,
            head_size=128,
            new_tokens=1,
            held_tokens=4096,
            dtype="float16",
            cache_dtype="float16",
        ),
    )


def weights(name: str, module: str, size: int, out: int, flops: int) -> Op:
    """What reads weights of so many bytes; a product where it has FLOPs."""
    return Op(
        name=name,
        module=module,
        kind="mm" if flops else "embedding",
        flops=flops,
        bytes_moved=size if flops else out,
        parameter_bytes=size,
        state_bytes=size,
        resident_bytes=size + out,
        dtype="float16",
    )


def decoder(layers: int, size: int, cached: int, table: int, out: int) -> list[Op]:
    """An embedding, layers of attention, products and a norm, and a head."""
    ops = [weights("embed", "embed", table, out, 0)]
    for n in range(layers):
        layer = f"layers.{n}"
        ops += [
            attention(HEADS, cached, f"attn{n}", layer),
            weights(f"up{n}", f"{layer}.up", size, 0, 4 * size),
            weights(f"down{n}", f"{layer}.down", size, out, 4 * size),
            weights(f"norm{n}", f"{layer}.norm", 1000, out, 0),
        ]
    return [*ops, weights("head", "head", table, 2 * out, 4 * table)]


def spec(bandwidth: int, *, is_cpu: bool = False) -> DeviceSpec:
    return DeviceSpec(
        peak_flops_per_s={"float32": 10**14},
        bandwidth_bytes_per_s=bandwidth,
        memory_bytes=None,
        launch_overhead_ns=1_000 if is_cpu else 5_000,
        is_cpu=is_cpu,
    )


def machine(
    ops: Sequence[Op], cards: Sequence[tuple[int, int]], host: tuple[int, int] | None = None
) -> Instance:
    """Ops in a row on cards of so many bytes per second and bytes, joined by links of PCIe."""
    sizes = [*cards, *([host] if host else [])]
    kinds = {f"kind{k}": spec(rate, is_cpu=k == len(cards)) for k, (rate, _) in enumerate(sizes)}
    devices = tuple(
        Device(name=f"d{k}", kind=f"kind{k}", memory_bytes=memory, is_host=k == len(cards))
        for k, (_, memory) in enumerate(sizes)
    )
    links = tuple(
        Link(source=a.name, target=b.name, bandwidth_bytes_per_s=16 * GB, latency_ns=10_000)
        for a in devices
        for b in devices
        if a is not b
    )
    cluster = Cluster(name="machine", devices=devices, links=links, kinds=kinds)
    edges = tuple(
        Edge(producer=a.name, consumer=b.name, bytes=a.resident_bytes - (a.state_bytes or 0))
        for a, b in pairwise(ops)
    )
    graph = with_costs(
        Graph(name="decoder", ops=tuple(ops), edges=edges, provenance=DECODE), "roofline"
    )
    return Instance(name="decoder", graph=costed(graph, cluster), cluster=cluster)
