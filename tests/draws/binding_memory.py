"""Random instances at real sizes: memory that binds to the byte, and times of very different size.

Capacities are the parts of a random partition of the sizes, some of them widened, some less a byte:
whether a plan fits is decided by the last byte of 1e9 to 1e12.
"""

from __future__ import annotations

import random

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Op


def binding_instance(
    seed: int, *, hosts: int = 0, sizes: bool = True, far_times: bool = False
) -> Instance:
    """A random instance of 5 to 7 ops on 2 or 3 different devices whose memory binds to the byte.

    Parameters
    ----------
    seed : int
        The same seed gives the same instance.
    hosts : int
        So many of the devices are hosts, which have no memory limit.
    sizes : bool
        Sizes of 1e9 to 1e12 bytes; otherwise there is no memory limit at all.
    far_times : bool
        Times of a few ns stand beside times of up to 1e12 ns.
    """
    rng = random.Random(f"binding-{seed}-{hosts}-{sizes}-{far_times}")
    num_devices = rng.choice((2, 2, 2, 3))
    num_ops = rng.choice((6, 7)) if num_devices == 2 else 5
    low = 10 ** rng.uniform(9, 11)
    size = [int(low * rng.uniform(1.0, 10.0)) for _ in range(num_ops)]
    kinds = ["cpu" if k < hosts else f"gpu{k}" for k in range(num_devices)]
    ops = tuple(
        Op(
            name=f"op{i}",
            time_ns={kind: _time_ns(rng, far=far_times) for kind in kinds},
            resident_bytes=size[i] if sizes else 0,
        )
        for i in range(num_ops)
    )
    pairs = [(a, b) for a in range(num_ops) for b in range(a + 1, num_ops)]
    pairs = sorted(rng.sample(pairs, rng.choice((0, 0, 1, 3))))
    edges = tuple(
        Edge(producer=f"op{a}", consumer=f"op{b}", bytes=_time_ns(rng, far=far_times))
        for a, b in pairs
    )
    links = tuple(
        Link(source=f"d{a}", target=f"d{b}", bandwidth_bytes_per_s=10**9)
        for a in range(num_devices)
        for b in range(num_devices)
        if a != b
    )
    room = _capacities(rng, size, num_devices)
    devices = tuple(
        Device(
            name=f"d{k}",
            kind=kind,
            is_host=k < hosts,
            memory_bytes=room[k] if sizes and k >= hosts else None,
        )
        for k, kind in enumerate(kinds)
    )
    name = f"binding-{seed}"
    return Instance(
        name=name,
        graph=Graph(name=name, ops=ops, edges=edges),
        cluster=Cluster(name=name, devices=devices, links=links),
    )


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
