"""Random instances from the corners: one op, no edge, one device, no time, no room, many groups."""

import random
from itertools import permutations

from draws import draw

from placegap.instances import Device, Edge, Instance, Link


def odd_instance(seed: int, *, largest: int = 7) -> Instance:
    """At most `largest` ops on 1 to 3 devices."""
    rng = random.Random(f"odd-{seed}")
    n = rng.choice([size for size in (1, 1, 2, 3, 4, 5, 6, 7) if size <= largest])
    sizes = [rng.randrange(rng.choice([1, 2, 5])) for _ in range(n)]
    devices = _devices(rng, sum(sizes))
    kinds = sorted({device.kind for device in devices})
    longest = rng.choice([0, 1, 9, 1000])
    is_training = rng.random() < 0.4
    ops = []
    for i in range(n):
        runs = [kind for kind in kinds if rng.random() < 0.75] or [rng.choice(kinds)]
        time_ns = {kind: rng.randrange(longest + 1) for kind in runs}
        late = is_training and i >= n - n // 2
        work = rng.randrange(3)
        ops.append(draw.op(i, time_ns, sizes[i], workspace_bytes=work, backward=late))
    for number in range(rng.choice([0, 0, 1, 2, n])):
        chosen = rng.sample(range(n), min(n, rng.choice([2, 2, 3])))
        free = [i for i in chosen if ops[i].colocation is None]
        ops = draw.together(ops, free, kinds, f"group{number}")
    widths, latencies = [10**9, 5 * 10**8, 10**7], [0, 0, 1, 5]
    delays = [
        Link(
            source=a.name,
            target=b.name,
            latency_ns=rng.choice(latencies),
            bandwidth_bytes_per_s=rng.choice(widths),
        )
        for a, b in permutations(devices, 2)
    ]
    return draw.instance_of(f"odd-{seed}", ops, _edges(rng, n), devices, delays)


def _devices(rng: random.Random, total: int) -> tuple[Device, ...]:
    count = rng.choice([1, 2, 2, 3])
    hosts = rng.choice([0, 0, 1, count])
    style = rng.choice(["same", "different", "mixed"])
    room = rng.choice([None, None, 10, 11, 14])
    devices = []
    for k in range(count):
        kind = {"same": "gpu", "different": f"gpu{k}", "mixed": rng.choice(["gpu", "npu"])}[style]
        limit = None if room is None else -(-total * room // (10 * count))
        if rng.random() < 0.05:
            limit = 0
        devices.append(
            Device(
                name=f"d{k}",
                kind="cpu" if k < hosts else kind,
                memory_bytes=limit,
                is_host=k < hosts,
                server=f"s{k % 2}",
            )
        )
    rng.shuffle(devices)
    return tuple(devices)


def _edges(rng: random.Random, n: int) -> tuple[Edge, ...]:
    density, order = rng.choice([0, 0.2, 0.5, 1.0]), list(range(n))
    if rng.random() < 0.3:
        rng.shuffle(order)
    edges = []
    for a in range(n):
        size, shares = rng.randrange(6), rng.random() < 0.5
        for b in range(a + 1, n):
            if rng.random() < density:
                edges.append(
                    Edge(
                        producer=f"op{order[a]}",
                        consumer=f"op{order[b]}",
                        bytes=size if shares else rng.randrange(6),
                        tensor="out" if shares else None,
                    )
                )
    return tuple(edges)
