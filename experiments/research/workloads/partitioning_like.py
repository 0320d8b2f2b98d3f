"""Graphs like dnn-partitioning's, at random: layers and operators, weights as ops of their own.

Their zero-time ops hold bytes: weights as sources, views and items of a tuple in the middle, last
states as sinks. Such ops cost a DP over ideals dearly unless they join a neighbour.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from placegap.instances.corpus.generate import mirror_training
from placegap.instances.problem import Cluster, Device, Edge, Graph, Instance, Link, Op

# Transfers of dnn-partitioning's layer graphs, and those of its other inputs.
NS_PER_BYTE = {"light": 1 / 2100, "heavy": 1 / 2.1}
BANDWIDTH = 2_100_000_000  # of links, for what states no time
HOST_FACTOR = 10  # how many times slower hosts are


class _Sketch:
    """A graph while it is drawn: ops in topological order, each with one output."""

    def __init__(self, rng: random.Random, ns_per_byte: float) -> None:
        self.rng, self.ns_per_byte = rng, ns_per_byte
        self.ops: list[Op] = []
        self.edges: list[Edge] = []
        self.output: list[int] = []

    def op(
        self,
        kind: str,
        time_us: float,
        out_bytes: float,
        inputs: Sequence[int] = (),
        *,
        weights: float = 0,
        apart: bool = False,
        colour: str | None = None,
    ) -> int:
        """Add an op, its weights as an op of their own if `apart`; its number."""
        if weights and apart:
            stored = self.op(f"{kind}.weight", 0, weights, weights=weights, colour=colour)
            inputs, weights = (*inputs, stored), 0
        spread = 0.6 + 0.8 * self.rng.random()
        time, size = round(1000 * time_us * spread), round(out_bytes * spread)
        number = len(self.ops)
        held = size + round(weights * spread)
        self.ops.append(
            Op(
                name=f"{number}:{kind}",
                kind=kind,
                time_ns={"gpu": time, "cpu": HOST_FACTOR * time},
                resident_bytes=held,
                parameter_bytes=min(held, round(weights * spread)),
                colocation=colour,
            )
        )
        self.output.append(size)
        for source in dict.fromkeys(inputs):
            sent = self.output[source]
            cost = round(sent * self.ns_per_byte)
            names = self.ops[source].name, self.ops[number].name
            edge = Edge(
                producer=names[0], consumer=names[1], bytes=sent, tensor="out", host_time_ns=cost
            )
            self.edges.append(edge)
        return number


def translator(s: _Sketch, layers: int, apart: bool) -> None:
    """An LSTM encoder and decoder with attention, an op per layer, as in GNMT."""
    mb = 1e6
    source, lengths, target = (s.op("input", 0, 5e4) for _ in range(3))
    state = s.op("embedding", 70, 6 * mb, [source], weights=130 * mb, apart=apart)
    state = s.op("bidirectional", 5200, 12 * mb, [state, lengths], weights=67 * mb, apart=apart)
    for layer in range(1, layers):
        dropped = s.op("dropout", 200, 6 * mb, [state])
        cell = s.op("lstm", 2600, 6 * mb, [dropped], weights=34 * mb, apart=apart)
        out = s.op("item 0", 0, 6 * mb, [cell])
        s.op("item 1", 0, 1.3e5, [cell])  # the last state, which no op reads
        state = s.op("add", 0, 6 * mb, [out, state]) if layer > 1 else out
    hidden = s.op("hidden", 0, 5e4, [lengths])
    first = [s.op(f"hidden {layer}", 0, 1e3, [hidden]) for layer in range(layers)]
    word = s.op("embedding", 70, 6 * mb, [target], weights=130 * mb, apart=apart)
    attention = s.op(
        "attention", 9000, 6 * mb, [word, first[0], state], weights=40 * mb, apart=apart
    )
    state, context = s.op("item 0", 0, 6 * mb, [attention]), s.op("item 2", 0, 6 * mb, [attention])
    s.op("item 1", 0, 1.3e5, [attention])
    for layer in range(1, layers):
        dropped = s.op("dropout", 200, 6 * mb, [state])
        joined = s.op("concat", 50, 12 * mb, [dropped, context])
        cell = s.op("lstm", 3300, 6 * mb, [joined, first[layer]], weights=50 * mb, apart=apart)
        out = s.op("item 0", 0, 6 * mb, [cell])
        s.op("item 1", 0, 1.3e5, [cell])
        state = s.op("add", 0, 6 * mb, [out, state]) if layer > 1 else out
    s.op("classifier", 7000, 200 * mb, [state], weights=130 * mb, apart=apart)


def unrolled(s: _Sketch, layers: int, apart: bool) -> None:
    """LSTM cells step by step; those of a layer share their weights, as a colour class."""
    steps = 8
    weights = [
        s.op("weight", 0, 3e7, weights=3e7, colour=None if apart else f"layer {layer}")
        for layer in range(layers)
    ]
    states: list[int] = []
    for step in range(steps):
        below = s.op("embedding", 20, 1e6)
        for layer in range(layers):
            colour = None if apart else f"layer {layer}"
            before = [states[(step - 1) * layers + layer]] if step else []
            below = s.op("cell", 300, 1e6, [below, weights[layer], *before], colour=colour)
            states.append(below)
        s.op("item", 0, 1e5, [below])


def encoder(s: _Sketch, layers: int, apart: bool) -> None:
    """A transformer encoder by operators: weights, reshapes and transposes of zero time."""
    size = 2e6
    mask = s.op("mask", 0, 6e4, [s.op("input", 0, 6e4)])
    word = s.op("embedding", 100, size, [s.op("input", 0, 6e4)], weights=9e7, apart=apart)
    state = s.op("norm", 40, size, [word], weights=4e3, apart=apart)
    for _ in range(layers):
        heads = []
        for _ in range(3):
            product = s.op("matmul", 120, size, [state], weights=2.4e6, apart=apart)
            product = s.op("bias", 10, size, [product], weights=3e3, apart=apart)
            heads.append(s.op("transpose", 0, size, [s.op("reshape", 0, size, [product])]))
        scores = s.op("scores", 60, 3 * size, heads[:2])
        weights = s.op("softmax", 50, 3 * size, [scores, mask])
        mixed = s.op("reshape", 0, size, [s.op("context", 60, size, [weights, heads[2]])])
        product = s.op("matmul", 120, size, [mixed], weights=2.4e6, apart=apart)
        state = s.op("norm", 40, size, [product, state], weights=4e3, apart=apart)
        s.op("item", 0, size, [state])  # all layers' states are outputs of the model
        product = s.op("matmul", 400, 4 * size, [state], weights=9.4e6, apart=apart)
        product = s.op("gelu", 60, 4 * size, [product])
        product = s.op("matmul", 400, size, [product], weights=9.4e6, apart=apart)
        state = s.op("norm", 40, size, [product, state], weights=4e3, apart=apart)
    s.op("pooler", 30, 2e4, [state], weights=2.4e6, apart=apart)


def inception(s: _Sketch, layers: int, apart: bool) -> None:
    """Modules of four branches that are joined: convolutions with norms, and a flattening."""
    size = 3e7
    state = s.op("conv", 400, size, [s.op("input", 0, 4e7)], weights=1e5, apart=apart)
    for _ in range(layers):
        ends = [s.op("pool", 200, size / 4, [state])]
        for depth in (1, 2, 3):
            branch = state
            for _ in range(depth):
                branch = s.op("conv", 500, size / 4, [branch], weights=1e6, apart=apart)
                branch = s.op("norm", 60, size / 4, [branch], weights=1e3, apart=apart)
            ends.append(branch)
        state = s.op("concat", 0, size, ends)
    flat = s.op("reshape", 0, size, [state])
    s.op("classifier", 100, 1e5, [flat], weights=8e6, apart=apart)


def residual(s: _Sketch, layers: int, apart: bool) -> None:
    """Residual blocks; every fourth has a convolution on its shortcut."""
    size = 5e7
    state = s.op("conv", 400, size, [s.op("input", 0, 4e7)], weights=1e5, apart=apart)
    for block in range(layers):
        branch = state
        for _ in range(3):
            branch = s.op("conv", 600, size, [branch], weights=2e6, apart=apart)
            branch = s.op("norm", 80, size, [branch], weights=1e3, apart=apart)
        if block % 4 == 0:
            state = s.op("conv", 300, size, [state], weights=1e6, apart=apart)
        state = s.op("relu", 40, size, [s.op("add", 0, size, [branch, state])])
    s.op("classifier", 100, 1e5, [s.op("reshape", 0, size, [state])], weights=8e6, apart=apart)


# Families: what draws them, how many layers, and how dear transfers are.
KINDS: Mapping[str, tuple[Callable[[_Sketch, int, bool], None], int, str]] = {
    "translator": (translator, 8, "light"),
    "unrolled": (unrolled, 4, "heavy"),
    "encoder": (encoder, 4, "heavy"),
    "inception": (inception, 6, "light"),
    "residual": (residual, 8, "light"),
}


def partitioning_graph(
    family: str,
    seed: int = 0,
    *,
    layers: int | None = None,
    apart: bool = True,
    training: bool = False,
    transfers: str | None = None,
) -> Graph:
    """A graph of one of `KINDS`; the same arguments always give the same graph."""
    # Times and sizes are 0.6 to 1.4 times what is usual, by the seed. With `apart`, weights are ops
    # of their own, of zero time. A training graph has a mirrored backward pass; an op and its
    # mirror are a colour class.
    draw, usual, light_or_heavy = KINDS[family]
    sketch = _Sketch(random.Random(f"{family} {seed}"), NS_PER_BYTE[transfers or light_or_heavy])
    draw(sketch, layers or usual, apart)
    graph = Graph(name=f"{family}-{seed}", ops=tuple(sketch.ops), edges=tuple(sketch.edges))
    return mirror_training(graph) if training else graph


def on_devices(
    graph: Graph, accelerators: int, hosts: int, memory_share: float | None = None
) -> Instance:
    """A graph on equal accelerators and hosts; hosts hold everything."""
    # `memory_share`: of all bytes, what the accelerators hold together; None: no limit.
    total = sum(op.resident_bytes for op in graph.ops)
    room = None if memory_share is None else int(total * memory_share / accelerators)
    devices = [Device(name=f"gpu{k}", kind="gpu", memory_bytes=room) for k in range(accelerators)]
    devices += [Device(name=f"cpu{k}", kind="cpu", is_host=True) for k in range(hosts)]
    links = tuple(
        Link(source=a.name, target=b.name, bandwidth_bytes_per_s=BANDWIDTH)
        for a in devices
        for b in devices
        if a is not b
    )
    cluster = Cluster(name=f"{accelerators}+{hosts}", devices=tuple(devices), links=links)
    return Instance(name=f"{graph.name} on {cluster.name}", graph=graph, cluster=cluster)
