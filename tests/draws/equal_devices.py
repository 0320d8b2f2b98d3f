"""Random instances whose devices are alike and in servers, for replicas and two levels."""

import contextlib
import random
from functools import cache

from draws import draw
from draws.tiny import tiny_instance

from placegap.instances import Device, Edge, Instance, Op, generate


def staged_instance(seed: int) -> Instance:
    """4 or 5 ops with parameters on 3 or 4 devices, most of them alike, in one to three servers."""
    if seed % 4 == 1:
        return _two_pairs(seed)
    rng = random.Random(f"staged-{seed}")
    hosts, backward, num_devices = rng.choice([0, 0, 1]), seed % 3 == 0, rng.choice([3, 3, 4])
    base = tiny_instance(
        seed, num_ops=rng.choice([4, 5]), num_devices=num_devices, hosts=hosts, backward=backward
    )
    ops = tuple(
        op.model_copy(update={"parameter_bytes": rng.choice([0, 0, 1, 2, 3])})
        for op in base.graph.ops
    )
    server = [f"s{rng.randrange(rng.choice([1, 2, 3]))}" for _ in range(num_devices)]
    odd = rng.random() < 0.2
    last = base.cluster.devices[-1].kind
    devices = [
        device.model_copy(
            update={"kind": device.kind if device.is_host or odd else last, "server": server[k]}
        )
        for k, device in enumerate(base.cluster.devices)
    ]
    kinds = {device.kind for device in devices}
    ops = [
        op
        if kinds & set(op.time_ns)
        else op.model_copy(update={"time_ns": dict.fromkeys(sorted(kinds), 3)})
        for op in ops
    ]
    uneven = rng.random() < 0.3
    near = [10**9, 2 * 10**9] if uneven else [10**9]
    links = draw.links(
        num_devices, lambda a, b: (rng.choice(near) if server[a] == server[b] else 10**9 // 2, 0)
    )
    if rng.random() < 0.5:
        ops = [op.model_copy(update={"colocation": None}) for op in ops]
    return draw.instance_of(f"staged-{seed}", ops, base.graph.edges, devices, links)


def _two_pairs(seed: int) -> Instance:
    """a -> b and c -> d with next to no bytes on two or three equal devices."""
    rng = random.Random(f"pairs-{seed}")
    times = [8 + rng.randrange(3), 1 + rng.randrange(3), 8 + rng.randrange(3), 1 + rng.randrange(3)]
    num_devices = rng.choice([2, 2, 3])
    server = [f"s{k % rng.choice([1, 2])}" for k in range(num_devices)]
    ops = [
        Op(name=name, time_ns={"gpu": time}, parameter_bytes=rng.choice([9, 15]))
        for name, time in zip("abcd", times, strict=True)
    ]
    edges = [Edge(producer=a, consumer=b, bytes=rng.choice([0, 0, 1])) for a, b in ("ab", "cd")]
    devices = [Device(name=f"d{k}", kind="gpu", server=s) for k, s in enumerate(server)]
    links = draw.links(num_devices, lambda a, b: (10**9, 0))
    return draw.instance_of(f"staged-{seed}", ops, edges, devices, links)


@cache
def equal_device_draws() -> tuple[Instance, ...]:
    """60 of them that can be made: a group may find no kind that runs all of it."""
    drawn: list[Instance] = []
    seed = 0
    while len(drawn) < 60:
        with contextlib.suppress(ValueError):
            drawn.append(staged_instance(seed))
        seed += 1
    return tuple(drawn)


def layered(num_ops: int) -> Instance:
    """A random layered graph on three equal devices."""
    graph = generate("layered", {"ops": num_ops, "width": 4}, seed=1)
    devices = draw.devices(["gpu"] * 3)
    links = draw.fast_links(devices)
    return draw.instance_of(f"layered-{num_ops}", graph.ops, graph.edges, devices, links)
