"""Random instances at real sizes: memory that binds to the byte, and times of very different size.

Capacities are sums of random subsets of the sizes, less a byte or not, so that whether a plan fits
is decided by the last byte of 1e9 to 1e12.
"""

from __future__ import annotations

import random

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Op


def tight_instance(seed: int, *, hosts: int = 0, far_times: bool = False) -> Instance:
    """A random instance of 5 to 7 ops on 2 or 3 devices whose memory binds to the byte.

    Parameters
    ----------
    seed : int
        The same seed gives the same instance.
    hosts : int
        So many of the devices are hosts.
    far_times : bool
        Times of 1 ns stand beside times of up to 1e12 ns.
    """
    rng = random.Random(f"tight-{seed}-{hosts}-{far_times}")
    num_devices = rng.choice((2, 2, 3))
    num_ops = rng.choice((5, 6, 7)) if num_devices == 2 else rng.choice((4, 5))
    low = rng.choice((1e9, 1e10, 1e11))
    size = [int(low * rng.uniform(1.0, 10.0)) for _ in range(num_ops)]
    kinds = ["cpu" if k < hosts else f"gpu{k}" for k in range(num_devices)]
    ops = []
    for i in range(num_ops):
        always = rng.choice(kinds)
        time_ns = {
            kind: _time_ns(rng, far=far_times)
            for kind in kinds
            if kind == always or rng.random() < 0.95
        }
        ops.append(Op(name=f"op{i}", time_ns=time_ns, resident_bytes=size[i]))
    pairs = [(a, b) for a in range(num_ops) for b in range(a + 1, num_ops)]
    pairs = sorted(rng.sample(pairs, rng.choice((0, 0, 2, 4))))
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
        Device(name=f"d{k}", kind=kind, is_host=k < hosts, memory_bytes=limit)
        for k, (kind, limit) in enumerate(zip(kinds, room, strict=True))
    )
    name = f"tight-{seed}"
    return Instance(
        name=name,
        graph=Graph(name=name, ops=tuple(ops), edges=edges),
        cluster=Cluster(name=name, devices=devices, links=links),
    )


def _capacities(rng: random.Random, size: list[int], num_devices: int) -> list[int]:
    """Sums of the parts of a random partition, most of them widened by another size or so."""
    held = [0] * num_devices
    for bytes_ in size:
        held[rng.randrange(num_devices)] += bytes_
    if rng.random() < 0.7:
        for k in range(num_devices):
            if rng.random() < 0.5:
                held[k] += rng.choice((rng.choice(size), 10**9, 10**10))
    return [max(1, total - (rng.random() < 0.2)) for total in held]


def _time_ns(rng: random.Random, *, far: bool) -> int:
    if far and rng.random() < 0.3:
        return int(10 ** rng.uniform(9, 12))
    return rng.randrange(1, 10)
