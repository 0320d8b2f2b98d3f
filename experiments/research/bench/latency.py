"""Benchmarks of `latency` on made families: wide sections, colocation groups with several calls.

They imitate what published inputs do not have: graphs that are one section between two ops, layers
whose weights and copies share a group, forward and backward ops in pairs, skip connections.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from placegap.experiments.research.bench.measuring import ExactRow, apart, measure
from placegap.instances.problem import Cluster, Device, Edge, Graph, Instance, LatencySubgraphs, Op

LIMIT_S = 30.0
"""Time limit."""

ACCELERATORS, SLOWDOWN, FILLED = 4, 20, 0.85
"""Equal accelerators; how much slower hosts are; part of all memory that a graph takes."""

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class LatencyCase:
    """A family with its size, and q."""

    family: str
    size: int
    calls: int

    @property
    def name(self) -> str:
        """Method, family, size, calls per accelerator."""
        return f"latency {self.family} {self.size} q={self.calls}"


def latency_rows(only: str = "") -> Iterator[ExactRow]:
    """Run the cases whose names contain `only`."""
    yield from apart((case for case in cases() if only in case.name), run)


def cases() -> Iterable[LatencyCase]:
    """Sections at the edges of a word of bits and beyond; groups with one call and with two."""
    for size in (40, 63, 64, 65, 100, 200):
        yield LatencyCase("wide section", size, 1)
    for family, size in (("colour groups", 24), ("training pairs", 50), ("skip connections", 12)):
        for calls in (1, 2):
            yield LatencyCase(family, size, calls)


def run(case: LatencyCase) -> ExactRow:
    """Run a case in this process."""
    made = {
        "wide section": wide_section,
        "colour groups": colour_groups,
        "training pairs": training_pairs,
        "skip connections": skip_connections,
    }
    instance = made[case.family](case.size)
    semantics = LatencySubgraphs(subgraphs=case.calls)
    return measure(case.name, instance, semantics, "latency", {}, LIMIT_S)


def wide_section(size: int) -> Instance:
    """Two lines of ops with some edges from one to the other, between a first and a last op."""
    rng, length = random.Random(size), size // 2
    lines = [list(range(1, 1 + length)), list(range(1 + length, 1 + size))]
    pairs = [(a, b) for line in lines for a, b in zip([0, *line], [*line, size + 1], strict=False)]
    for at in range(0, length - 1, 5):
        one, other = rng.sample(lines, 2)
        pairs.append((one[at], other[at + 1]))
    return _costed(f"wide section {size}", size + 2, pairs, {})


def colour_groups(layers: int) -> Instance:
    """Layers in a row, each of a weight, an op and a copy of its output, all in one group."""
    pairs, groups = Pairs(), dict[int, str]()
    for layer in range(layers):
        weight, op, copy = 3 * layer, 3 * layer + 1, 3 * layer + 2
        pairs += [(weight, op), (op, copy)] + [(copy, op + 3)] * (layer + 1 < layers)
        groups |= dict.fromkeys((weight, op, copy), f"layer{layer}")
    return _costed(f"colour groups {layers}", 3 * layers, pairs, groups)


def training_pairs(layers: int) -> Instance:
    """Forward ops in a row, their backward ops in the other direction, in pairs."""
    last = 2 * layers - 1
    pairs = [(i, i + 1) for i in range(last)] + [(i, last - i) for i in range(layers - 1)]
    groups = {at: f"layer{i}" for i in range(layers) for at in (i, last - i)}
    return _costed(f"training pairs {layers}", 2 * layers, pairs, groups)


def skip_connections(depth: int) -> Instance:
    """An encoder and a decoder of two ops per level; a level's encoder feeds its decoder, too."""
    count = 4 * depth
    pairs = [(i, i + 1) for i in range(count - 1)]
    pairs += [(2 * d + 1, count - 2 * d - 2) for d in range(depth - 1)]
    return _costed(f"skip connections {depth}", count, pairs, {})


def _costed(name: str, count: int, pairs: Pairs, groups: dict[int, str]) -> Instance:
    """Random times, tensors and sizes; weights, which nothing feeds, take no time."""
    rng = random.Random(name)
    fed = {b for _, b in pairs}
    own = [rng.choice([100_000, 500_000, 10**6, 3 * 10**6]) for _ in range(count)]
    size = [rng.choice([0, 5, 20, 40, 80]) * 10**6 + rng.randrange(1000) for _ in range(count)]
    for i in groups:
        if i not in fed:
            own[i] = 0
    ops = tuple(
        Op(
            name=f"op{i}",
            time_ns={"gpu": own[i], "cpu": SLOWDOWN * own[i]},
            resident_bytes=size[i],
            colocation=groups.get(i),
        )
        for i in range(count)
    )
    moves = [rng.randrange(100_000, 2 * 10**6) for _ in range(count)]
    edges = tuple(
        Edge(producer=f"op{a}", consumer=f"op{b}", host_time_ns=moves[a], tensor="out")
        for a, b in sorted(set(pairs))
    )
    room = int(sum(size) / ACCELERATORS / FILLED)
    devices = [Device(name=f"g{k}", kind="gpu", memory_bytes=room) for k in range(ACCELERATORS)]
    return Instance(
        name=name,
        graph=Graph(name=name, ops=ops, edges=edges),
        cluster=Cluster(
            name="four", devices=(*devices, Device(name="host", kind="cpu", is_host=True))
        ),
    )
