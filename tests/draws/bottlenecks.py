"""Small random instances with bottlenecks, and what spoils an exact decomposition."""

import random
from itertools import pairwise

from draws import draw

from placegap.instances import Edge, Instance

SPOILS = ("nothing", "skip", "colocation", "memory", "everything")
"""What may keep the schedules of sections from being independent; drawn by `seed % 5`."""


def bottleneck_instance(seed: int, *, num_ops: int = 7, most_edges: int = 9) -> Instance:
    """Layers of one to three ops, each op of a layer joined with some of the next."""
    rng = random.Random(f"bottlenecks-{seed}-{num_ops}")
    spoils = SPOILS[seed % len(SPOILS)]
    layers = _layers(rng, num_ops)
    pairs = _pairs(rng, layers)
    if spoils in ("skip", "everything"):
        far = [
            (a, b)
            for s, layer in enumerate(layers)
            for a in layer
            for later in layers[s + 2 :]
            for b in later
        ]
        pairs += rng.sample(far, min(len(far), rng.choice([1, 2])))
    pairs = draw.some(rng, pairs, most_edges)
    shares = [rng.random() < 0.5 for _ in range(num_ops)]
    size = [rng.randrange(6) for _ in range(num_ops)]
    edges = draw.edges(pairs, size, shares, lambda: rng.randrange(6))
    if len(edges) < most_edges and rng.random() < 0.3:  # a second tensor along the first edge
        a, b = pairs[0]
        edges.append(
            Edge(producer=f"op{a}", consumer=f"op{b}", bytes=rng.randrange(6), tensor="second")
        )
    num_devices = rng.choice([2, 2, 3])
    kinds = [f"gpu{rng.choice([0, 0, k])}" for k in range(num_devices)]
    pool = sorted(set(kinds))
    ops = draw.ops(
        num_ops,
        lambda: draw.times(rng, pool, lambda: rng.choice([0, *range(1, 10)]), chance=0.9),
        lambda: rng.randrange(4),
    )
    if spoils in ("colocation", "everything"):
        ops = draw.together(ops, rng.sample(range(num_ops), rng.choice([2, 2, 3])), kinds, "group")
    tight = spoils in ("memory", "everything")
    memory = [draw.share_of(ops, rng.choice([4, 6, 8]), 10) if tight else None for _ in kinds]
    alike = rng.random() < 0.5
    devices = draw.devices(kinds, lambda k: memory[0 if alike else k])
    links = draw.links(num_devices, lambda a, b: (10**9, 0 if alike else rng.choice([0, 0, 1, 2])))
    return draw.instance_of(f"bottlenecks-{seed}", ops, edges, devices, links)


def _layers(rng: random.Random, num_ops: int) -> list[list[int]]:
    layers: list[list[int]] = []
    first = 0
    single = rng.random() < 0.8
    while first < num_ops:
        width = 1 if single else rng.choice([1, 2, 2, 3])
        layers.append(list(range(first, min(num_ops, first + width))))
        first, single = first + width, not single
    return layers


def _pairs(rng: random.Random, layers: list[list[int]]) -> list[tuple[int, int]]:
    found = []
    for here, there in pairwise(layers):
        chosen = [(a, b) for a in here for b in there if rng.random() < 0.9]
        found += chosen or [(here[0], there[0])]
    return found
