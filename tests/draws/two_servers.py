"""Small training steps on two servers with slow links between, whose memory binds to the byte."""

from __future__ import annotations

import random

from draws import draw

from placegap.instances import Instance, Op


def two_servers_instance(seed: int) -> Instance:
    """A row of two to four layers, forward and often backward, on three or four devices.

    Most backward ops are colocated with their forward op. By seed, an op beside a layer, an edge
    that skips one, devices that are alike or not, and how much slower the links between servers
    are. Capacities are the parts of a random partition of all bytes, so that some plan fits.
    """
    rng = random.Random(f"two-servers-{seed}")
    layers, trains = rng.choice([2, 3, 3, 4]), rng.random() < 0.6
    num_ops = 2 * layers - 1 if trains else layers  # the innermost layer has one op
    pairs = [(i, i + 1) for i in range(num_ops - 1)]
    if rng.random() < 0.4:
        at = rng.randrange(num_ops - 1)
        pairs += [(at, num_ops), (num_ops, rng.randrange(at + 1, num_ops))]
        num_ops += 1
    if num_ops > 2 and rng.random() < 0.3:
        pairs.append((0, 2))
    pairs = sorted(set(pairs))
    num_devices = rng.choice([3, 4])
    first = rng.choice([1, 2, 2])  # devices of the first server
    alike = rng.random() < 0.5
    kinds = ["gpu" if alike else f"gpu{rng.choice([0, k])}" for k in range(num_devices)]
    size = [rng.choice([0, 1, 3, 10]) for _ in range(num_ops)]
    edges = draw.edges(pairs, size, [rng.random() < 0.5] * num_ops, lambda: rng.randrange(6))
    held = [rng.randrange(1, 5) for _ in range(num_ops)]
    ops = [
        Op(
            name=f"op{i}",
            time_ns=draw.times(rng, sorted(set(kinds)), lambda: rng.randrange(10), chance=0.95),
            resident_bytes=held[i],
        )
        for i in range(num_ops)
    ]
    if trains:
        for i in range(layers - 1):
            if rng.random() < 0.8:
                ops = draw.together(ops, [i, 2 * layers - 2 - i], kinds, f"layer{i}")
    room = [0] * num_devices
    places = {op.colocation or op.name: rng.randrange(num_devices) for op in ops}
    for op in ops:
        room[places[op.colocation or op.name]] += op.resident_bytes
    if alike:
        room = [max(room)] * num_devices
    slow = rng.choice([2, 5, 10])
    links = draw.links(
        num_devices, lambda a, b: (10**9 if (a < first) == (b < first) else 10**9 // slow, 0)
    )
    devices = draw.devices(kinds, lambda k: max(1, room[k]))
    return draw.instance_of(f"two-servers-{seed}", ops, edges, devices, links)
