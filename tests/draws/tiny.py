"""Small random instances for property tests, and what the tests share."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Op

SHARED = Path(__file__).resolve().parents[3] / "shared"


def needs_inputs(name: str, source: str) -> pytest.MarkDecorator:
    """Skip a test where published inputs are absent, and say where they can be had."""
    folder = SHARED / "instances" / name
    reason = f"no ../shared/instances/{name} beside this checkout: {source}"
    return pytest.mark.skipif(not folder.is_dir(), reason=reason)


needs_dnn_partitioning = needs_inputs(
    "dnn-partitioning",
    "it holds throughput-inputs, latency-inputs and human-experts of"
    " github.com/msr-fiddle/dnn-partitioning (commit b207b6a), and ../shared/reference what the"
    " programs of that repository print",
)
needs_moirai = needs_inputs(
    "moirai", "it holds the workbooks of sample-data in github.com/moirai-placement/moirai"
)


def tiny_instance(
    seed: int,
    *,
    num_ops: int = 5,
    num_devices: int = 2,
    density: float = 0.4,
    hosts: int = 0,
    backward: bool = False,
    max_edges: int | None = None,
) -> Instance:
    """A random instance with integer times of a few ns; the same seed gives the same instance.

    Drawn at random: device kinds (also all alike), unsupported ops, zero times, shared tensors,
    asymmetric links with latency, tight memory (a plan that fits exists for every single op, not
    always for all together), colocation groups, and on request hosts and backward ops.
    """
    rng = random.Random(f"tiny-{seed}-{num_ops}-{num_devices}")
    kinds = ["cpu" if k < hosts else f"gpu{rng.choice([0, 0, k])}" for k in range(num_devices)]
    devices = tuple(
        Device(name=f"d{k}", kind=kind, is_host=k < hosts) for k, kind in enumerate(kinds)
    )
    is_backward = [backward and i >= num_ops - num_ops // 2 for i in range(num_ops)]
    pool = sorted(set(kinds))
    ops = []
    for i in range(num_ops):
        always = rng.choice(pool)
        time_ns = {
            kind: rng.choice([0, *range(1, 10)])
            for kind in pool
            if kind == always or rng.random() < 0.9
        }
        ops.append(
            Op(
                name=f"op{i}",
                time_ns=time_ns,
                resident_bytes=rng.choice([0, 1, 2, 3]),
                backward=is_backward[i],
            )
        )
    pairs = [
        (a, b) for a in range(num_ops) for b in range(a + 1, num_ops) if rng.random() < density
    ]
    if max_edges is not None and len(pairs) > max_edges:
        pairs = sorted(rng.sample(pairs, max_edges))
    shared_size = [rng.randrange(6) for _ in range(num_ops)]
    shares = [rng.random() < 0.5 for _ in range(num_ops)]
    edges = tuple(
        Edge(
            producer=f"op{a}",
            consumer=f"op{b}",
            bytes=shared_size[a] if shares[a] else rng.randrange(6),
            tensor="out" if shares[a] else None,
        )
        for a, b in pairs
    )
    links = tuple(
        Link(
            source=f"d{a}",
            target=f"d{b}",
            bandwidth_bytes_per_s=rng.choice([10**9, 5 * 10**8]),
            latency_ns=rng.choice([0, 0, 1]),
        )
        for a in range(num_devices)
        for b in range(num_devices)
        if a != b
    )
    ops = _with_colocation(ops, kinds, rng)
    total = sum(op.resident_bytes for op in ops)
    if rng.random() < 0.5:
        limit = max(3, -(-total * rng.choice([5, 7, 9]) // (10 * max(1, num_devices - hosts))))
        devices = tuple(
            d if d.is_host else d.model_copy(update={"memory_bytes": limit}) for d in devices
        )
    return Instance(
        name=f"tiny-{seed}",
        graph=Graph(name=f"tiny-{seed}", ops=tuple(ops), edges=edges),
        cluster=Cluster(name="tiny", devices=devices, links=links),
    )


def _with_colocation(ops: list[Op], kinds: list[str], rng: random.Random) -> list[Op]:
    if len(ops) < 3 or rng.random() < 0.5:
        return ops
    chosen = rng.sample(range(len(ops)), 2)
    if any(all(kind in ops[i].time_ns for i in chosen) for kind in kinds):
        for i in chosen:
            ops[i] = ops[i].model_copy(update={"colocation": "pair"})
    return ops
