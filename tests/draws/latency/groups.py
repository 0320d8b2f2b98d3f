"""Random instances for latency_subgraphs whose colocation groups spread over the whole graph."""

import random
from itertools import pairwise

from draws import draw

from placegap.instances import Instance

SIZES = ((5, 1, 1), (5, 2, 1), (6, 1, 1), (4, 2, 0), (6, 2, 0), (5, 2, 2), (6, 1, 0), (4, 3, 1))
"""Ops, accelerators, hosts: as large as brute force takes."""

TIMES = {"small": (0, 0, 1, 2, 3, 5, 7), "real": (0, 1, 1, 10**3, 10**9, 3 * 10**11, 10**12)}
BYTES = {"small": (0, 1, 2, 3), "real": (0, 1, 2 * 10**9 + 1, 24_579_416_992, 10**12 - 1)}


def grouped_draw(seed: int, scale: str = "small") -> Instance:
    """Four to six ops, most of them in one of two groups; constants, copies, unused outputs."""
    rng = random.Random(f"grouped-{scale}-{seed}")
    num_ops, accelerators, hosts = SIZES[seed % len(SIZES)]
    alike = rng.random() < 0.5
    kinds = ["gpu" if alike else f"gpu{k}" for k in range(accelerators)] + ["cpu"] * hosts
    times, sizes = TIMES[scale], BYTES[scale]
    home = {group: rng.choice(sorted({*kinds})) for group in ("one", "two")}  # runs all of it
    ops = []
    for i in range(num_ops):
        group = rng.choice([None, "one", "one", "two"])
        always = home.get(group or "", rng.choice(sorted({*kinds})))
        time_ns = draw.times(
            rng, sorted({*kinds}), lambda: rng.choice(times), chance=0.93, always=always
        )
        time_ns = {kind: time * (3 if kind == "cpu" else 1) for kind, time in time_ns.items()}
        size = rng.choice(sizes) - (rng.choice([0, 0, 1]) if scale == "real" else 0)
        ops.append(draw.op(i, time_ns, max(0, size), group))
    # a line through most ops, so that there are bottlenecks, and some edges beside it
    line = [i for i in range(num_ops) if rng.random() < 0.7]
    pairs = dict.fromkeys(pairwise(line))
    pairs |= dict.fromkeys(draw.pairs(rng, range(num_ops), num_ops, 0.2))
    one_tensor = [rng.random() < 0.6 for _ in range(num_ops)]
    moves = [rng.choice(times) for _ in range(num_ops)]
    edges = draw.edges(sorted(pairs), moves, one_tensor, lambda: rng.choice(times), "host_time_ns")
    total, largest = (f([op.resident_bytes for op in ops]) for f in (sum, max))
    share = rng.choice([5, 8, 10, 12])
    least = largest if rng.random() < 0.8 else 1
    rooms = [
        max(least, total * share // (10 * accelerators) - rng.choice([0, 1]))
        for _ in range(accelerators)
    ]
    if alike:
        rooms = rooms[:1] * accelerators
    devices = draw.hosts_by_kind(kinds, rooms + [0] * hosts)
    return draw.instance_of(f"grouped-{scale}-{seed}", ops, edges, devices)
