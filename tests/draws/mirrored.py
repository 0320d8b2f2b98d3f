"""Small random training steps: backward ops mirror forward ops and share their devices."""

from __future__ import annotations

import random

from draws import draw

from placegap.instances import Instance, Op


def mirrored_instance(seed: int) -> Instance:
    """Two to four layers forward and backward, with branches, under memory that binds.

    Most backward ops are colocated with their forward op; some are not, and some have none. By
    seed, an op beside a layer forward or backward, an edge from a forward op to its backward op, an
    edge that skips a layer, 2 or 3 devices, alike or not, unsupported ops and slow links.
    """
    rng = random.Random(f"mirrored-{seed}")
    layers = rng.choice([2, 3, 3, 4])
    pairs = [(i, i + 1) for i in range(2 * layers - 1)]  # u0 u1 ... v1 v0
    num_ops = 2 * layers
    for _ in range(rng.choice([0, 0, 1, 1, 2]) if layers < 4 else 0):  # a branch beside a layer
        at = rng.randrange(num_ops - 1 if num_ops == 2 * layers else 2 * layers - 2)
        end = min(2 * layers - 1, at + rng.choice([1, 1, 2]))
        pairs += [(at, num_ops), (num_ops, end)]
        num_ops += 1
    pairs += [(i, 2 * layers - 1 - i) for i in range(layers - 1) if rng.random() < 0.4]
    if rng.random() < 0.3 and layers > 2:
        pairs.append((0, 2))
    pairs = list(dict.fromkeys(pairs))
    size = [rng.choice([0, 1, 3, 10, 30]) for _ in range(num_ops)]
    edges = draw.edges(pairs, size, [rng.random() < 0.5] * num_ops, lambda: rng.randrange(6))
    num_devices = rng.choice([2, 2, 3])
    kinds = [f"gpu{rng.choice([0, 0, k])}" for k in range(num_devices)]
    pool = sorted(set(kinds))
    ops = [
        Op(
            name=f"op{i}",
            time_ns=draw.times(rng, pool, lambda: rng.choice([0, *range(1, 10)]), chance=0.95),
            resident_bytes=rng.randrange(5),
        )
        for i in range(num_ops)
    ]
    for i in range(layers):
        if rng.random() < 0.8:
            ops = draw.together(ops, [i, 2 * layers - 1 - i], kinds, f"layer{i}")
    memory = [draw.share_of(ops, rng.choice([4, 5, 6, 8]), 10) for _ in kinds]
    alike = rng.random() < 0.5
    devices = draw.devices(kinds, lambda k: memory[0 if alike else k])
    links = draw.links(num_devices, lambda a, b: (10**9, 0 if alike else rng.choice([0, 0, 1, 2])))
    return draw.instance_of(f"mirrored-{seed}", ops, edges, devices, links)
