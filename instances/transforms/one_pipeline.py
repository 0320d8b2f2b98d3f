"""One of d equal pipelines as an instance of pipeline_iteration: filling and draining count.

Where all stages have d replicas of t devices and layers their modes, a batch of N microbatches
goes through d pipelines of N / d. One of them is an instance of its own: a device stands for t
devices, and each layer has a forward and a backward op. All methods for pipelines apply to it.

- A forward op takes a third of the layer's fastest mode for t, as its matrix products do; the
  backward op the rest of the mode's time, with what is recomputed.
- The sum of the gradients over replicas, once per batch, is spread over the N / d backward events.
- An edge costs both stages its bytes forward and backward (`sending: blocking`), with the larger
  of what its ends add. So a stage's work on a microbatch is its share of hybrid_pipeline, but for
  roundings up.
- A microbatch in flight keeps `held_bytes`, from forward to backward. The memory of a device is
  less by the largest workspace of all layers: what fits here fits there.
"""

from __future__ import annotations

from placegap.instances.objectives.hybrid.checks import check_hybrid
from placegap.instances.objectives.hybrid.referee import least_bandwidth
from placegap.instances.problem import (
    Cluster,
    Device,
    Edge,
    Graph,
    HybridPipeline,
    Instance,
    Mode,
    Op,
    PipelineIteration,
)
from placegap.instances.problem.integers import NS_PER_S, ceil_div
from placegap.instances.problem.links import Group, Links
from placegap.instances.reading.errors import InputError

FORWARD = 3  # a layer's backward pass has twice as many products as its forward pass


def one_pipeline(
    instance: Instance, semantics: HybridPipeline, degrees: tuple[int, int], mode: str
) -> tuple[Instance, PipelineIteration]:
    """One pipeline of d replicas of t devices, for `degrees` (d, t), and its rules."""
    # The ops are layers, as hybrid_pipeline takes them. `mode` is that of all layers with several
    # modes for t.
    check_hybrid(instance, semantics)
    (d, t), n, kind = degrees, semantics.microbatches, instance.cluster.devices[0].kind
    count = instance.num_devices // (d * t) if d > 0 and t > 0 else 0
    if count == 0 or n % d:
        raise InputError(
            f"{d} x {t}: replicas must divide the {n} microbatches, and all together be no more"
            f" than the {instance.num_devices} devices",
            instance.name,
        )
    rate, found = least_bandwidth(instance), list[Mode]()
    ops, edges = list[Op](), list[Edge]()
    for op in instance.graph.ops:
        ways = [way for way in op.ways if way.tensor == t]
        named = ways if len(ways) == 1 else [way for way in ways if way.name == mode]
        if not named:
            there = ", ".join(sorted({f"{way.name} for {way.tensor}" for way in op.ways}))
            raise InputError(
                f"op {op.name!r} has no mode {mode!r} for {t} devices (it has: {there})",
                instance.name,
            )
        found.append(own := named[0])
        forward_ns = min(way.time_ns[kind] for way in ways) // FORWARD
        moved = NS_PER_S * 2 * (d - 1) * own.parameter_bytes
        sync_ns = ceil_div(moved, rate * n)
        shared = own.sharded_bytes if semantics.sharding != "none" else 0
        shared += own.gradient_bytes if semantics.sharding == "gradients" else 0
        state = own.state_bytes - shared + ceil_div(shared, d)
        one = op.model_copy(
            update={
                "time_ns": {kind: forward_ns},
                "resident_bytes": state + own.held_bytes,
                "parameter_bytes": min(own.parameter_bytes, state),
                "state_bytes": state,
                "shared_state": {},
                "workspace_bytes": 0,
                "colocation": op.colocation or op.name,
                "modes": (),
                "kernel": None,
            }
        )
        back = {
            "name": backward_of(op.name),
            "time_ns": {kind: own.time_ns[kind] - forward_ns + sync_ns},
            "resident_bytes": 0,
            "parameter_bytes": 0,
            "state_bytes": 0,
            "backward": True,
        }
        ops += [one, one.model_copy(update=back)]
        edges.append(
            Edge(
                producer=op.name, consumer=backward_of(op.name), bytes=own.held_bytes, tensor="kept"
            )
        )
    number = instance.graph.op_index
    for e, edge in enumerate(instance.graph.edges):
        sender, reader = found[number[edge.producer]], found[number[edge.consumer]]
        size = edge.bytes + max(
            sender.leave_bytes.get(edge.consumer, 0), reader.enter_bytes.get(edge.producer, 0)
        )
        ends = backward_of(edge.consumer), backward_of(edge.producer)
        for a, b in ((edge.producer, edge.consumer), ends):
            edges.append(Edge(producer=a, consumer=b, bytes=size, tensor=f"edge {e}"))
    limit = instance.cluster.devices[0].memory_bytes
    room = None if limit is None else max(0, limit - max(way.workspace_bytes for way in found))
    names = tuple(f"group{k}" for k in range(count))
    cluster = Cluster(
        name=f"{count} groups of {t} {kind}",
        devices=tuple(Device(name=name, kind=kind, memory_bytes=room) for name in names),
        links=Links((Group(names, rate),) if count > 1 else ()),
    )
    graph = Graph(
        name=f"{instance.graph.name}, one of {d} pipelines, {mode}",
        ops=tuple(ops),
        edges=tuple(edges),
        provenance=instance.graph.provenance.noting(
            f"one of {d} pipelines of stages of {t} devices, layers in mode {mode!r}"
        ),
    )
    rules = PipelineIteration(microbatches=n // d, sending="blocking")
    return Instance(name=f"{graph.name}@{cluster.name}", graph=graph, cluster=cluster), rules


def backward_of(name: str) -> str:
    """The name of a layer's backward op."""
    return f"{name}/backward"
