"""Small random instances with identical devices."""

from __future__ import annotations

import random
from itertools import permutations

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Op

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
        devices=tuple(
            Device(name=f"d{k}", kind=kind, memory_bytes=memory_bytes)
            for k, kind in enumerate(kinds)
        ),
        links=tuple(
            Link(
                source=f"d{a}",
                target=f"d{b}",
                bandwidth_bytes_per_s=10**9,
                latency_ns=int(kinds[a] != kinds[b]),
            )
            for a, b in permutations(range(len(kinds)), 2)
        ),
    )


def twin_instance(seed: int, *, num_ops: int, kinds: list[str], max_edges: int = 5) -> Instance:
    """A random instance whose devices of one kind are identical; alike for the same arguments.

    Drawn at random: times, also zero, unsupported kinds, shared tensors, memory that may be too
    small, and a colocation group.
    """
    rng = random.Random(f"twins-{seed}-{num_ops}-{kinds}")
    pool = sorted(set(kinds))
    ops = []
    for i in range(num_ops):
        always = rng.choice(pool)
        ops.append(
            Op(
                name=f"op{i}",
                time_ns={
                    kind: rng.randrange(8) for kind in pool if kind == always or rng.random() < 0.8
                },
                resident_bytes=rng.randrange(1, 4),
            )
        )
    shared = [kind for kind in pool if all(kind in op.time_ns for op in ops[1:3])]
    if shared and rng.random() < 0.4:
        ops[1:3] = [op.model_copy(update={"colocation": "pair"}) for op in ops[1:3]]
    pairs = [(a, b) for a in range(num_ops) for b in range(a + 1, num_ops) if rng.random() < 0.5]
    pairs = sorted(rng.sample(pairs, min(max_edges, len(pairs))))
    size = [rng.randrange(5) for _ in ops]
    tensor = [rng.choice(["out", None]) for _ in ops]
    edges = tuple(
        Edge(producer=f"op{a}", consumer=f"op{b}", bytes=size[a], tensor=tensor[a])
        for a, b in pairs
    )
    total = sum(op.resident_bytes for op in ops)
    limit = rng.choice([None, None, -(-total // len(kinds)) + 2])
    return Instance(
        name=f"twins-{seed}",
        graph=Graph(name=f"twins-{seed}", ops=tuple(ops), edges=edges),
        cluster=gpus(kinds, limit),
    )
