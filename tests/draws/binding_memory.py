"""Random instances whose memory binds to the last byte of 1e9 to 1e12, or times far apart."""

import random
from itertools import combinations

from draws import draw

from placegap.instances import Instance


def binding_instance(
    seed: int, *, hosts: int = 0, sizes: bool = True, far_times: bool = False
) -> Instance:
    """5 to 7 ops on 2 or 3 different devices; sizes that bind to the byte, or times far apart."""
    rng = random.Random(f"binding-{seed}-{hosts}-{sizes}-{far_times}")
    num_devices = rng.choice((2, 2, 2, 3))
    num_ops = rng.choice((6, 7)) if num_devices == 2 else 5
    low = 10 ** rng.uniform(9, 11)
    size = [int(low * rng.uniform(1.0, 10.0)) for _ in range(num_ops)]
    kinds = ["cpu" if k < hosts else f"gpu{k}" for k in range(num_devices)]
    ops = [
        draw.op(i, {kind: _time_ns(rng, far=far_times) for kind in kinds}, size[i] if sizes else 0)
        for i in range(num_ops)
    ]
    pairs = draw.some(rng, list(combinations(range(num_ops), 2)), rng.choice((0, 0, 1, 3)))
    own = [False] * num_ops
    edges = draw.edges(pairs, (), own, lambda: _time_ns(rng, far=far_times))
    links = draw.links(num_devices, lambda a, b: (10**9, 0))
    room = _capacities(rng, size, num_devices)
    devices = draw.devices(kinds, lambda k: room[k] if sizes else None, hosts=hosts)
    return draw.instance_of(f"binding-{seed}", ops, edges, devices, links)


def _capacities(rng: random.Random, size: list[int], num_devices: int) -> list[int]:
    held = [0] * num_devices
    for bytes_ in size:
        held[rng.randrange(num_devices)] += bytes_
    if rng.random() < 0.5:
        held[rng.randrange(num_devices)] += rng.choice(size)
    return [max(1, total - (rng.random() < 0.1)) for total in held]


def _time_ns(rng: random.Random, *, far: bool) -> int:
    if far and rng.random() < 0.3:
        return int(10 ** rng.uniform(9, 12))
    return rng.randrange(1, 10)
