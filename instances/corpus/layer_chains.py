"""Language models as chains of layers, for pipelines: one op per layer and pass.

A layer's FLOPs are those of its matrix products; backward takes twice as many. Sizes follow the
usual counts: 16 bytes of weights, gradients and Adam's state per parameter in mixed precision, and
34 bytes per token and hidden unit that a layer keeps for its backward op (Korthikanti et al. 2022,
with attention that keeps no scores).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from placegap.instances.problem.instance import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    Link,
    Op,
    Provenance,
)

STATE_BYTES, STASH_BYTES, VALUE_BYTES = 16, 34, 2
"""Per parameter; per token and hidden unit of a layer; per number of an activation."""


class ModelShape(NamedTuple):
    """A decoder of layers, between an embedding and a loss layer.

    `width` is that of a layer's feed-forward part as one token passes it, `products` how many
    matrices it has, `all_width` what the device holds of it (all experts); the first `dense_layers`
    have a width of their own.
    """

    layers: int
    hidden: int
    width: int
    products: int
    words: int
    tokens: int
    all_width: int = 0
    dense_layers: int = 0
    dense_width: int = 0


SHAPES = {
    # Touvron et al. 2023
    "llama-7b": ModelShape(32, 4096, 11008, 3, 32_000, 2048),
    # Brown et al. 2020, table 2.1
    "gpt-3-13b": ModelShape(40, 5140, 4 * 5140, 2, 50_257, 2048),
    # DeepSeek-V2-Lite (2024): 6 of 64 experts and 2 shared ones of 1408; the first layer is dense
    "moe-16b": ModelShape(27, 2048, 8 * 1408, 3, 102_400, 4096, 66 * 1408, 1, 10_944),
}
"""Language models by name."""


def layer_chain(name: str, *, split: bool = False) -> Graph:
    """One training step on one sequence of a model of `SHAPES`, not yet costed.

    With `split` each layer's gradients of weights are an op of their own, ``<layer>/weights``: as
    many FLOPs as its products of the forward pass, and half of the bytes that backward moves.

    Examples
    --------
    >>> graph = layer_chain("llama-7b")
    >>> len(graph.ops), graph.ops[1].flops // 10**9
    (68, 897)
    """
    shape = SHAPES[name]
    size = shape.tokens * shape.hidden * VALUE_BYTES
    attention = 4 * shape.hidden**2
    scores = 4 * shape.tokens**2 * shape.hidden
    words = shape.words * shape.hidden
    rows = [("embedding", 0, words, 0, size)]  # name, flops, parameters, stash, bytes moved
    for number in range(shape.layers):
        is_dense = number < shape.dense_layers
        width = shape.dense_width if is_dense else shape.width
        held = shape.dense_width if is_dense else shape.all_width or shape.width
        used = attention + shape.products * shape.hidden * width
        parameters = attention + shape.products * shape.hidden * held
        stash = STASH_BYTES * shape.tokens * shape.hidden
        moved = parameters * VALUE_BYTES + stash
        rows.append((f"layer{number}", 2 * shape.tokens * used + scores, parameters, stash, moved))
    logits = shape.tokens * shape.words * (VALUE_BYTES + 4)  # also in single precision
    rows.append(("loss", 2 * shape.tokens * words, words, logits, 3 * logits))
    ops = [_op(row, backward=False) for row in rows] + [_op(row, backward=True) for row in rows]
    edges = []
    for (name_a, *_), (name_b, *_) in pairwise(rows):
        edges.append(Edge(producer=name_a, consumer=name_b, bytes=size, tensor="out"))
        edges.append(Edge(producer=f"{name_b}/backward", consumer=f"{name_a}/backward", bytes=size))
    edges += [
        Edge(producer=name, consumer=f"{name}/backward", bytes=stash, tensor="kept")
        for name, _, _, stash, _ in rows
    ]
    source = f"{name}: its shape as published, FLOPs of matrix products"
    graph = Graph(
        name=name, ops=tuple(ops), edges=tuple(edges), provenance=Provenance(source=source)
    )
    products = {row_name: flops - scores * ("layer" in row_name) for row_name, flops, *_ in rows}
    return _with_weight_ops(graph, products) if split else graph


def _with_weight_ops(graph: Graph, products: dict[str, int]) -> Graph:
    """Backward ops in two: gradients of inputs, and of weights after so many FLOPs."""
    ops, weights = list[Op](), list[Op]()
    for op in graph.ops:
        if not op.backward:
            ops.append(op)
            continue
        layer = op.name.removesuffix("/backward")
        flops, half = products[layer], (op.bytes_moved or 0) // 2
        ops.append(op.model_copy(update={"flops": (op.flops or 0) - flops, "bytes_moved": half}))
        update = {"name": f"{layer}/weights", "flops": flops, "bytes_moved": half}
        weights.append(op.model_copy(update={**update, "weight_gradient": True}))
    edges = [edge.model_copy(update={"tensor": edge.tensor or "gradient"}) for edge in graph.edges]
    also = [
        edge.model_copy(update={"consumer": edge.consumer.replace("/backward", "/weights")})
        for edge in edges
        if edge.consumer.endswith("/backward")
    ]
    last = graph.ops[len(graph.ops) // 2 - 1].name
    own = Edge(producer=f"{last}/backward", consumer=f"{last}/weights", tensor="own")
    return graph.model_copy(update={"ops": (*ops, *weights), "edges": (*edges, *also, own)})


def _op(row: tuple[str, int, int, int, int], *, backward: bool) -> Op:
    name, flops, parameters, stash, moved = row
    return Op(
        name=f"{name}/backward" if backward else name,
        kind="Layer",
        flops=flops * (2 if backward else 1),
        bytes_moved=moved * (2 if backward else 1),
        dtype="bfloat16",
        colocation=name,
        backward=backward,
        resident_bytes=0 if backward else parameters * STATE_BYTES + stash,
        parameter_bytes=0 if backward else parameters * VALUE_BYTES,
    )


def pipeline_of(graph: Graph, count: int, kind: str = "H200") -> Instance:
    """The graph on so many equal devices, one in each of as many servers.

    Their links carry 50 GB/s (InfiniBand NDR, 400 Gb/s) after 5 us.

    Examples
    --------
    >>> pipeline_of(layer_chain("llama-7b"), 4).num_devices
    4
    """
    from placegap.instances.io.costing import cost_graph, device_spec

    names = [f"{kind.lower()}-{k}" for k in range(count)]
    memory_bytes = device_spec(kind).memory_bytes
    cluster = Cluster(
        name=f"{count}x{kind}",
        devices=tuple(Device(name=name, kind=kind, memory_bytes=memory_bytes) for name in names),
        links=tuple(
            Link(source=a, target=b, bandwidth_bytes_per_s=50 * 10**9, latency_ns=5000)
            for a in names
            for b in names
            if a != b
        ),
    )
    graph = cost_graph(graph, cluster, compute_percent=50, bandwidth_percent=80)
    return Instance(name=f"{graph.name}-{count}", graph=graph, cluster=cluster)
