"""Small random instances for property tests, and what the tests share."""

import random
from pathlib import Path

import numpy as np
import pytest
from draws import draw

from placegap.instances import Instance
from placegap.instances.problem.integers import UNSUPPORTED

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


def drawn_devices(instance: Instance, rng: np.random.Generator) -> np.ndarray:
    """A random device that runs each op."""
    runs = instance.arrays.time_ns != UNSUPPORTED
    return np.array([rng.choice(np.flatnonzero(row)) for row in runs], np.int64)


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
    """A few ns each; kinds, support, tensors, links, memory and colocation by seed."""
    rng = random.Random(f"tiny-{seed}-{num_ops}-{num_devices}")
    kinds = ["cpu" if k < hosts else f"gpu{rng.choice([0, 0, k])}" for k in range(num_devices)]
    pool = sorted(set(kinds))
    ops = draw.ops(
        num_ops,
        lambda: draw.times(rng, pool, lambda: rng.choice([0, *range(1, 10)]), chance=0.9),
        lambda: rng.choice([0, 1, 2, 3]),
    )
    for i in range(num_ops - num_ops // 2, num_ops if backward else 0):
        ops[i] = ops[i].model_copy(update={"backward": True})
    pairs = draw.pairs(rng, range(num_ops), num_ops, density)
    if max_edges is not None and len(pairs) > max_edges:
        pairs = draw.some(rng, pairs, max_edges)
    size = [rng.randrange(6) for _ in range(num_ops)]
    shares = [rng.random() < 0.5 for _ in range(num_ops)]
    edges = draw.edges(pairs, size, shares, lambda: rng.randrange(6))
    links = draw.links(
        num_devices, lambda a, b: (rng.choice([10**9, 5 * 10**8]), rng.choice([0, 0, 1]))
    )
    if len(ops) >= 3 and rng.random() >= 0.5:
        ops = draw.together(ops, rng.sample(range(num_ops), 2), kinds, "pair")
    limit = None
    if rng.random() < 0.5:
        accelerators = max(1, num_devices - hosts)
        limit = max(3, draw.share_of(ops, rng.choice([5, 7, 9]), 10 * accelerators))
    devices = draw.devices(kinds, lambda k: limit, hosts=hosts)
    return draw.instance_of(f"tiny-{seed}", ops, edges, devices, links)
