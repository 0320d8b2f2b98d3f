"""Small random instances with identical devices."""

import random

from draws import draw

from placegap.instances import Cluster, Edge, Instance

CLUSTERS = (
    ("gpu", "gpu"),
    ("gpu", "gpu", "gpu"),
    ("cpu", "gpu", "gpu"),
    ("gpu", "cpu", "gpu", "cpu"),
)
"""Kinds of the devices; those of one kind are identical."""


def gpus(kinds: list[str], memory_bytes: int | None = None) -> Cluster:
    """Devices d0, d1, ... whose links take 0 or 1 ns of latency by the kinds of their ends."""
    return Cluster(
        name="-".join(kinds),
        devices=tuple(draw.devices(kinds, lambda k: memory_bytes)),
        links=tuple(draw.links(len(kinds), lambda a, b: (10**9, int(kinds[a] != kinds[b])))),
    )


def twin_instance(seed: int, *, num_ops: int, kinds: list[str], max_edges: int = 5) -> Instance:
    """A random instance whose devices of one kind are identical; alike for the same arguments."""
    rng = random.Random(f"twins-{seed}-{num_ops}-{kinds}")
    pool = sorted(set(kinds))
    ops = draw.ops(
        num_ops,
        lambda: draw.times(rng, pool, lambda: rng.randrange(8), chance=0.8),
        lambda: rng.randrange(1, 4),
    )
    shared = [kind for kind in pool if all(kind in op.time_ns for op in ops[1:3])]
    if shared and rng.random() < 0.4:
        ops = draw.together(ops, range(num_ops)[1:3], kinds, "pair")
    pairs = draw.some(rng, draw.pairs(rng, range(num_ops), num_ops, 0.5), max_edges)
    size = [rng.randrange(5) for _ in ops]
    tensor = [rng.choice(["out", None]) for _ in ops]
    edges = [
        Edge(producer=f"op{a}", consumer=f"op{b}", bytes=size[a], tensor=tensor[a])
        for a, b in pairs
    ]
    limit = rng.choice([None, None, draw.share_of(ops, 1, len(kinds)) + 2])
    cluster = gpus(kinds, limit)
    return draw.instance_of(f"twins-{seed}", ops, edges, cluster.devices, cluster.links)


def single_and_paired_instance(seed: int) -> Instance:
    """A row of 3 to 5 ops, on devices that stand alone and on pairs with a fast link."""
    rng = random.Random(f"single-and-paired-{seed}")
    alone, num_ops = rng.choice([0, 1, 2, 2]), rng.choice([3, 4, 5])
    pool = [*range(alone), alone, alone] + [1, 1] * (alone == 0)
    num_devices = len(pool)
    kinds = ["single" if k < alone else "pair" for k in range(num_devices)]
    ops = draw.ops(
        num_ops,
        lambda: {kind: rng.choice([1, 1, 2, 5, 100]) for kind in sorted(set(kinds))},
        lambda: rng.choice([0, 1, 1, 2]),
    )
    pairs = [(i, i + 1) for i in range(num_ops - 1)] + [(0, num_ops - 1)] * (rng.random() < 0.3)
    edges = draw.edges(pairs, [], [False] * num_ops, lambda: rng.choice([1, 2, 3]))
    room = rng.choice([1, 2])
    links = draw.links(num_devices, lambda a, b: (10**9 if pool[a] == pool[b] else 10**8, 0))
    devices = draw.devices(kinds, lambda k: room)
    return draw.instance_of(f"single-and-paired-{seed}", ops, edges, devices, links)
