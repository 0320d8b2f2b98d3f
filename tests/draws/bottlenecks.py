"""Small random instances with bottlenecks, and what spoils an exact decomposition."""

from __future__ import annotations

import random
from itertools import pairwise

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Op

SPOILS = ("nothing", "skip", "colocation", "memory", "everything")
"""What may keep the schedules of sections from being independent; drawn by `seed % 5`."""


def bottleneck_instance(seed: int, *, num_ops: int = 7, most_edges: int = 9) -> Instance:
    """Layers of one to three ops, each op of a layer joined with some of the next.

    Every second layer has one op, so that most graphs have bottlenecks; by seed, a few edges skip
    layers, two ops are colocated, or memory is tight. Drawn besides: 2 or 3 devices, identical or
    not, zero times, unsupported ops, tensors that are shared or sent twice between two ops.
    """
    rng = random.Random(f"bottlenecks-{seed}-{num_ops}")
    spoils = SPOILS[seed % len(SPOILS)]
    layers = _layers(rng, num_ops)
    pairs = _pairs(rng, layers)
    if spoils in ("skip", "everything"):
        far = [(a, b) for s, layer in enumerate(layers) for a in layer
               for later in layers[s + 2 :] for b in later]  # fmt: skip
        pairs += rng.sample(far, min(len(far), rng.choice([1, 2])))
    pairs = sorted(rng.sample(pairs, min(len(pairs), most_edges)))
    shares = [rng.random() < 0.5 for _ in range(num_ops)]
    size = [rng.randrange(6) for _ in range(num_ops)]
    edges = [
        Edge(
            producer=f"op{a}", consumer=f"op{b}", bytes=size[a] if shares[a] else rng.randrange(6),
            tensor="out" if shares[a] else None,
        )
        for a, b in pairs
    ]  # fmt: skip
    if len(edges) < most_edges and rng.random() < 0.3:  # a second tensor along the first edge
        a, b = pairs[0]
        edges.append(
            Edge(producer=f"op{a}", consumer=f"op{b}", bytes=rng.randrange(6), tensor="second")
        )
    num_devices = rng.choice([2, 2, 3])
    kinds = [f"gpu{rng.choice([0, 0, k])}" for k in range(num_devices)]
    ops = _ops(rng, num_ops, sorted(set(kinds)))
    if spoils in ("colocation", "everything"):
        ops = _colocate(rng, ops, kinds)
    tight = spoils in ("memory", "everything")
    total = sum(op.resident_bytes for op in ops)
    memory = [-(-total * rng.choice([4, 6, 8]) // 10) if tight else None for _ in kinds]
    alike = rng.random() < 0.5
    return Instance(
        name=f"bottlenecks-{seed}",
        graph=Graph(name=f"bottlenecks-{seed}", ops=tuple(ops), edges=tuple(edges)),
        cluster=Cluster(
            name="cluster",
            devices=tuple(
                Device(name=f"d{k}", kind=kind, memory_bytes=memory[0 if alike else k])
                for k, kind in enumerate(kinds)
            ),
            links=tuple(
                Link(
                    source=f"d{a}", target=f"d{b}", bandwidth_bytes_per_s=10**9,
                    latency_ns=0 if alike else rng.choice([0, 0, 1, 2]),
                )
                for a in range(num_devices) for b in range(num_devices) if a != b
            ),
        ),
    )  # fmt: skip


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


def _ops(rng: random.Random, num_ops: int, pool: list[str]) -> list[Op]:
    ops = []
    for i in range(num_ops):
        always = rng.choice(pool)
        times = {k: rng.choice([0, *range(1, 10)]) for k in pool
                 if k == always or rng.random() < 0.9}  # fmt: skip
        ops.append(Op(name=f"op{i}", time_ns=times, resident_bytes=rng.randrange(4)))
    return ops


def _colocate(rng: random.Random, ops: list[Op], kinds: list[str]) -> list[Op]:
    chosen = rng.sample(range(len(ops)), rng.choice([2, 2, 3]))
    if not any(all(kind in ops[i].time_ns for i in chosen) for kind in kinds):
        return ops
    return [
        op.model_copy(update={"colocation": "group"}) if i in chosen else op
        for i, op in enumerate(ops)
    ]
