"""Random instances for latency_subgraphs with bottlenecks, edges that pass them, and groups."""

import random
from itertools import pairwise

from draws import draw

from placegap.instances import Instance


def spine_instance(seed: int, num_ops: int, num_devices: int, hosts: int) -> Instance:
    """Layers of one to three ops, edges between neighbours and a few beyond; tight memory."""
    rng = random.Random(f"spine-{seed}")
    layers: list[list[int]] = []
    while (made := sum(map(len, layers))) < num_ops:
        layers.append(list(range(made, min(num_ops, made + rng.choice([1, 1, 1, 2, 3])))))
    pairs = {
        (a, b): None
        for one, two in pairwise(layers)
        for b in two
        for a in rng.sample(one, rng.randint(1, len(one)))
    }
    depth = {i: at for at, layer in enumerate(layers) for i in layer}
    for _ in range(rng.randint(0, 3)):
        a, b = sorted(rng.sample(range(num_ops), 2))
        if depth[a] < depth[b]:
            pairs[a, b] = None
    kinds = ["cpu" if k < hosts else "gpu" for k in range(num_devices)]
    slowdown = {"cpu": 3, "gpu": 1}
    ops = []
    for i in range(num_ops):
        time_ns = {
            kind: rng.choice([0, *range(1, 8)]) * slowdown[kind] for kind in sorted({*kinds})
        }
        if rng.random() < 0.1 and len(time_ns) > 1:
            del time_ns["cpu"]
        ops.append(draw.op(i, time_ns, rng.choice([0, 1, 2, 3])))
    if rng.random() < 0.5 and num_ops > 3:
        ops = draw.together(ops, rng.sample(range(num_ops), rng.choice([2, 3])), kinds, "group")
    one_tensor = [rng.random() < 0.6 for _ in range(num_ops)]
    sizes = [rng.randrange(8) for _ in range(num_ops)]
    edges = draw.edges(sorted(pairs), sizes, one_tensor, lambda: rng.randrange(8), "host_time_ns")
    share = rng.choice([4, 6, 8, 10, 12])
    room = max(3, draw.share_of(ops, share, 10 * max(1, num_devices - hosts)))
    devices = draw.devices(kinds, lambda k: room, hosts=hosts)
    return draw.instance_of(f"spine-{seed}", ops, edges, devices)


SIZES = ((5, 2, 1), (6, 2, 1), (6, 2, 0), (5, 3, 1))
"""Ops, devices, hosts among them: as large as brute force takes."""


def spine_draw(seed: int) -> Instance:
    """One of the small sizes."""
    return spine_instance(seed, *SIZES[seed % len(SIZES)])
