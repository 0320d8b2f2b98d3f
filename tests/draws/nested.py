"""Small random training steps whose gradients of weights wait for what comes back, and none waits
for them.
"""

from __future__ import annotations

import random

from draws import draw

from placegap.instances import Instance, Op


def nested_instance(seed: int, *, layers: int = 2) -> Instance:
    """Layers forward, layers backward, and a last op; colocated by layer, at most 9 ops for two.

    By seed: a first op of no layer, gradients of weights, an op beside a layer on the way back, ops
    without colocation, an edge from a forward op to its backward op or over a layer, 2 or 3
    devices, alike or not, and unsupported ops. Memory does not bind.
    """
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
            add(f"layer{x}", *came, *(forward[x:x + 1] if rng.random() < 0.3 else []))
        elif rng.random() < 0.4:  # beside the layer; the next op waits for both
            at.append(add(rng.choice(["", f"layer{x}"]), *came))
    add("", *at)
    pairs = list(dict.fromkeys((u, v) for u, v in pairs if u < v))
    size = [rng.choice([0, 1, 3, 8]) for _ in group]
    edges = draw.edges(pairs, size, [rng.random() < 0.5] * len(group), lambda: rng.randrange(6))
    kinds = [f"gpu{rng.choice([0, 0, k])}" for k in range(rng.choice([2, 2, 2, 3]))]
    pool, chance = sorted(set(kinds)), rng.choice([1, 1, 0.9])
    ops = [
        Op(
            name=f"op{i}",
            time_ns=draw.times(rng, pool, lambda: rng.choice([0, *range(1, 10)]), chance=chance),
        )
        for i in range(len(group))
    ]
    for name in dict.fromkeys(filter(None, group)):
        members = [i for i, layer in enumerate(group) if layer == name]
        if len(members) > 1:
            ops = draw.together(ops, members, kinds, name)
    alike = rng.random() < 0.5
    links = draw.links(len(kinds), lambda a, b: (10**9, 0 if alike else rng.choice([0, 0, 1, 2])))
    return draw.instance_of(f"nested-{seed}", ops, edges, draw.devices(kinds, lambda k: 100), links)
