"""Benchmarks of `noncontiguous` over generated networks, of kinds that are hard to close.

Recurrent encoder-decoders, whose zero-time outputs hold bytes; branches in a row with their
backward pass in colour groups; attention blocks with weights that are ops, and memory that binds.
Accelerators and hosts ten times slower; the same seed gives the same network.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from placegap.experiments.research.bench.measuring import ExactRow, apart, measure
from placegap.instances.corpus.generate import mirror_training
from placegap.instances.problem import Cluster, Device, Edge, Graph, Instance, Link, MaxLoad, Op

ANY = MaxLoad(plans="any")

TIME_LIMIT_S = 60.0

MB = 10**6

BYTES_PER_NS = 10
"""Bandwidth of every link."""


@dataclass
class Network:
    """A network as it grows, op by op; an op has one output."""

    rng: random.Random
    ops: list[Op] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    output_ns: list[int] = field(default_factory=list)

    def add(self, time_us: float, size: int, inputs: list[int], output_us: float) -> int:
        """An op of about that time, and what it costs to move its output; its number."""
        number = len(self.ops)
        time_ns = int(1000 * time_us * self.rng.uniform(0.8, 1.2))
        self.ops.append(
            Op(
                name=f"op{number}",
                time_ns={"acc": time_ns, "cpu": 10 * time_ns},
                resident_bytes=size,
                parameter_bytes=size if time_ns else 0,
            )
        )
        self.output_ns.append(int(1000 * output_us * self.rng.uniform(0.8, 1.2)))
        self.edges += [
            Edge(
                producer=f"op{source}",
                consumer=f"op{number}",
                tensor="out",
                bytes=BYTES_PER_NS * self.output_ns[source],
            )
            for source in inputs
        ]
        return number


def encoder_decoder(net: Network, layers: int) -> None:
    """Recurrent layers whose two outputs are ops of no time, and attention between the halves."""
    last = net.add(800, 100 * MB, [net.add(0, MB, [], 50)], 50)
    memory = last
    for half in range(2):
        before: list[int] = []
        for layer in range(layers):
            joined = [last, memory] if half and layer else [last]
            cell = net.add(6000 + 2000 * half, 45 * MB, [net.add(200, MB, joined, 50)], 50)
            outputs = [net.add(0, 3 * MB, [cell], 50) for _ in range(2)]
            last = net.add(150, MB, [outputs[0], *before], 50)
            before = [last]
        if not half:
            score = net.add(1900, 2 * MB, [net.add(1400, 3 * MB, [last], 50)], 50)
            memory = net.add(1200, 2 * MB, [score, last], 50)
            last = net.add(800, 100 * MB, [net.add(0, MB, [], 50)], 50)
    net.add(2000, MB, [net.add(12_000, 130 * MB, [last], 400)], 50)


def branches(net: Network, blocks: int) -> None:
    """Blocks of four branches of different lengths."""
    last = net.add(0, MB, [], 20)
    for _ in range(blocks):
        ends = []
        for length in (1, 2, 3, 1):
            end = last
            for _ in range(length):
                end = net.add(net.rng.uniform(600, 1400), 30 * MB, [end], 20)
                end = net.add(330, 30 * MB, [net.add(450, 30 * MB, [end], 20)], 20)
            ends.append(end)
        last = net.add(0, 40 * MB, ends, 40)


def attention(net: Network, layers: int) -> None:
    """Blocks of attention whose scores are eight times as large as their inputs."""
    last = net.add(200, 15 * MB, [net.add(0, 15 * MB, [], 7300)], 700)
    for _ in range(layers):
        heads = [
            net.add(50, MB, [net.add(85, MB, [last, net.add(0, MB // 16, [], 30)], 700)], 700)
            for _ in range(3)
        ]
        scores = net.add(850, 12 * MB, heads[:2], 5800)
        scores = net.add(990, 12 * MB, [net.add(390, 12 * MB, [scores], 5800)], 5800)
        mixed = net.add(85, MB, [net.add(250, MB, [scores, heads[2]], 700)], 700)
        mixed = net.add(250, MB, [mixed, last], 700)
        inner = net.add(2400, 6 * MB, [mixed, net.add(0, 2 * MB, [], 970)], 3000)
        outer = net.add(2200, 2 * MB, [inner, net.add(0, 2 * MB, [], 970)], 700)
        last = net.add(250, MB, [outer, mixed], 700)
    net.add(1000, MB, [net.add(10_000, 15 * MB, [last], 20_000)], 10)


@dataclass(frozen=True)
class NetworkCase:
    """A family and its size, its devices, and the memory of all accelerators over what ops hold."""

    family: Callable[[Network, int], None]
    size: int
    accelerators: int
    hosts: int = 1
    training: bool = False
    memory: float | None = None

    @property
    def name(self) -> str:
        """All of it, in a few words."""
        words = [f"noncontiguous {self.family.__name__} {self.size}"]
        words.append(f"K={self.accelerators} C={self.hosts}")
        words += ["training"] * self.training
        words += [] if self.memory is None else [f"memory={self.memory:g}"]
        return " ".join(words)


CASES = (
    NetworkCase(encoder_decoder, 8, 6),
    NetworkCase(encoder_decoder, 16, 8, hosts=0),
    NetworkCase(encoder_decoder, 8, 4, memory=1.1),
    NetworkCase(branches, 11, 6),
    NetworkCase(branches, 11, 6, training=True),
    NetworkCase(attention, 6, 6),
    NetworkCase(attention, 6, 6, training=True),
    NetworkCase(attention, 6, 4, memory=1.1),
)


def instance(case: NetworkCase) -> Instance:
    """The network of a case on its devices."""
    net = Network(random.Random(case.name))
    case.family(net, case.size)
    graph = Graph(name=case.name, ops=tuple(net.ops), edges=tuple(net.edges))
    if case.training:
        graph = mirror_training(graph)
    held = sum(op.resident_bytes for op in graph.ops)
    limit = None if case.memory is None else int(case.memory * held / case.accelerators)
    devices = [
        Device(name=f"acc{k}", kind="acc", memory_bytes=limit) for k in range(case.accelerators)
    ]
    devices += [Device(name=f"cpu{k}", kind="cpu", is_host=True) for k in range(case.hosts)]
    links = tuple(
        Link(source=a.name, target=b.name, bandwidth_bytes_per_s=BYTES_PER_NS * 10**9)
        for a in devices
        for b in devices
        if a != b
    )
    cluster = Cluster(name="made", devices=tuple(devices), links=links)
    return Instance(name=case.name, graph=graph, cluster=cluster)


def split_rows(*, only: str = "") -> Iterator[ExactRow]:
    """Run the cases whose name contains `only`, one after the other."""
    yield from apart((case for case in CASES if only in case.name), run)


def run(case: NetworkCase) -> ExactRow:
    """Solve one case in this process."""
    return measure(case.name, instance(case), ANY, "noncontiguous", {}, TIME_LIMIT_S)
