"""Small training steps: backward ops mirror forward ops, and share their devices."""

import random
from itertools import pairwise

from draws import draw

from placegap.instances import Edge, Instance, Op


def mirrored_instance(seed: int) -> Instance:
    """Two to four layers forward and backward, with branches, under memory that binds."""
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
    ops = draw.ops(
        num_ops,
        lambda: draw.times(rng, pool, lambda: rng.choice([0, *range(1, 10)]), chance=0.95),
        lambda: rng.randrange(5),
    )
    for i in range(layers):
        if rng.random() < 0.8:
            ops = draw.together(ops, [i, 2 * layers - 1 - i], kinds, f"layer{i}")
    memory = [draw.share_of(ops, rng.choice([4, 5, 6, 8]), 10) for _ in kinds]
    alike = rng.random() < 0.5
    devices = draw.devices(kinds, lambda k: memory[0 if alike else k])
    links = draw.links(num_devices, lambda a, b: (10**9, 0 if alike else rng.choice([0, 0, 1, 2])))
    return draw.instance_of(f"mirrored-{seed}", ops, edges, devices, links)


def nested_instance(seed: int, *, layers: int = 2) -> Instance:
    """Layers forward, layers backward, and a last op; colocated by layer, at most 9 ops for two."""
    rng = random.Random(f"nested-{seed}-{layers}")
    group, pairs = list[str](), list[tuple[int, int]]()

    def add(layer: str, *before: int) -> int:
        group.append(layer)
        pairs.extend((u, len(group) - 1) for u in before)
        return len(group) - 1

    at = [add("")] if rng.random() < 0.3 else []
    forward = list[int]()
    for x in range(layers):
        at = [add(f"layer{x}", *at)]
        forward += at
    if layers > 2 and rng.random() < 0.3:
        pairs.append((forward[0], forward[2]))
    for x in reversed(range(layers)):
        came = at
        at = [add(f"layer{x}" if rng.random() < 0.85 else "", *came)]
        if rng.random() < 0.4:
            pairs.append((forward[x], at[0]))
        if rng.random() < 0.7:
            add(f"layer{x}", *came, *(forward[x : x + 1] if rng.random() < 0.3 else []))
        elif rng.random() < 0.4:  # beside the layer; the next op waits for both
            at.append(add(rng.choice(["", f"layer{x}"]), *came))
    add("", *at)
    pairs = list(dict.fromkeys((u, v) for u, v in pairs if u < v))
    size = [rng.choice([0, 1, 3, 8]) for _ in group]
    edges = draw.edges(pairs, size, [rng.random() < 0.5] * len(group), lambda: rng.randrange(6))
    kinds = [f"gpu{rng.choice([0, 0, k])}" for k in range(rng.choice([2, 2, 2, 3]))]
    pool, chance = sorted(set(kinds)), rng.choice([1, 1, 0.9])
    ops = draw.ops(
        len(group),
        lambda: draw.times(rng, pool, lambda: rng.choice([0, *range(1, 10)]), chance=chance),
    )
    for name in dict.fromkeys(filter(None, group)):
        members = [i for i, layer in enumerate(group) if layer == name]
        if len(members) > 1:
            ops = draw.together(ops, members, kinds, name)
    alike = rng.random() < 0.5
    links = draw.links(len(kinds), lambda a, b: (10**9, 0 if alike else rng.choice([0, 0, 1, 2])))
    return draw.instance_of(f"nested-{seed}", ops, edges, draw.devices(kinds, lambda k: 100), links)


def tight_instance(seed: int, *, layers: int = 2) -> Instance:
    """A nested instance under memory that binds, mostly on devices of unlike speed."""
    rng = random.Random(f"tight-{seed}-{layers}")
    plain = nested_instance(rng.randrange(10**9), layers=layers)
    large, kinds = rng.choice([1, 1, 10**9]), [device.kind for device in plain.cluster.devices]
    if rng.random() < 0.8:  # each device is a kind of its own
        kinds = [f"gpu{k}" for k in range(len(kinds))]
    slow = {kind: rng.choice([1, 1, 2, 3, 10]) for kind in sorted(set(kinds))}

    def scaled(small: int) -> int:
        return small * rng.choice([1, large]) + (rng.randrange(2) if large > 1 else 0)

    ops = list[Op]()
    for op in plain.graph.ops:
        base = scaled(next(iter(op.time_ns.values())))
        times = {kind: -(-base * slow[kind] // 2) for kind in slow}
        size = scaled(rng.choice([0, 1, 1, 2, 3, 5]))
        ops.append(op.model_copy(update={"time_ns": times, "resident_bytes": size}))
    devices = []
    for device, kind in zip(plain.cluster.devices, kinds, strict=True):
        shares = [None, *(draw.share_of(ops, share, 10) for share in (3, 4, 5, 5, 6, 7))]
        fields = {"kind": kind, "memory_bytes": rng.choice(shares)}
        devices.append(device.model_copy(update=fields))
    widths = [10**9, 10**9, 2] if large > 1 else [10**9]
    links = draw.links(len(kinds), lambda a, b: (rng.choice(widths), rng.choice([0, 0, 1, 2])))
    return draw.instance_of(f"tight-{seed}", ops, plain.graph.edges, devices, links)


def training_step(layers: int, transfer_ns: int, num_devices: int = 2) -> Instance:
    """A row of layers, a loss that takes no time, and the layers back, on equal devices."""
    numbers = range(num_devices)
    rows = tuple(tuple(transfer_ns * (a != b) for b in numbers) for a in numbers)
    there, back = ([f"{way}{x}" for x in range(layers)] for way in "fb")
    chain = [*there, "loss", *reversed(back)]
    pairs = [*pairwise(chain)]
    pairs += [(back[x], f"w{x}") for x in range(layers)]
    names = [*there, *back, *(f"w{x}" for x in range(layers))]
    ops = [Op(name=name, time_ns={"gpu": 10}, colocation=f"layer{name[1:]}") for name in names]
    ops.append(Op(name="loss", time_ns={"gpu": 0}, colocation=f"layer{layers - 1}"))
    edges = tuple(Edge(producer=u, consumer=v, transfer_ns=rows) for u, v in pairs)
    links = draw.links(num_devices, lambda a, b: (10**9, 0))
    return draw.instance_of("step", ops, edges, draw.devices(["gpu"] * num_devices), links)


def two_servers_instance(seed: int) -> Instance:
    """A row of two to four layers, forward and often backward, on three or four devices."""
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
    sizes = iter(held)
    ops = draw.ops(
        num_ops,
        lambda: draw.times(rng, sorted(set(kinds)), lambda: rng.randrange(10), chance=0.95),
        lambda: next(sizes),
    )
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
