"""Tiny instances of hybrid_pipeline: layers whose modes differ in everything, and tight memory."""

import random
from itertools import pairwise

from draws import draw

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    HybridPipeline,
    Instance,
    Mode,
    Op,
    Plan,
)
from placegap.instances.problem.links import Group, Links


def hybrid_instance(rng: random.Random, most_ops: int = 5, most_devices: int = 8) -> Instance:
    """2 or more layers on equal devices; one in a few has no plan."""
    n, k = rng.randrange(2, most_ops + 1), rng.randrange(1, most_devices + 1)
    names = [f"v{i}" for i in range(n)]
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < 0.5]
    edges = tuple(
        Edge(producer=names[a], consumer=names[b], bytes=rng.randrange(30)) for a, b in pairs
    )
    chosen = sorted(rng.sample([1, 2, 3, 4], rng.randrange(1, 3)))
    tied = rng.sample(range(n), 2) if rng.random() < 0.2 else []
    labels = [rng.sample("xyz", rng.randrange(1, 4)) for _ in range(n)]
    for i in tied:
        labels[i] = labels[tied[0]]
    lacks = [rng.random() < 0.2 and len(chosen) > 1 and i not in tied for i in range(n)]
    big = rng.choice([1, 10**6])

    def mode(i: int, name: str, t: int) -> Mode:
        into = [a for a, b in pairs if b == i]
        out = [b for a, b in pairs if a == i]
        state = [rng.randrange(12), rng.randrange(12), rng.randrange(12)]
        return Mode(
            name=name,
            tensor=t,
            time_ns={"gpu": rng.randrange(40) * big},
            parameter_bytes=rng.randrange(20),
            state_bytes=sum(state),
            sharded_bytes=state[0],
            gradient_bytes=state[1],
            held_bytes=rng.randrange(20),
            workspace_bytes=rng.choice([0, 0, 5, 9]),
            enter_bytes={names[a]: rng.randrange(20) for a in into if rng.random() < 0.5},
            leave_bytes={names[b]: rng.randrange(20) for b in out if rng.random() < 0.5},
        )

    ops = []
    for i in range(n):
        degrees = chosen[1:] if lacks[i] else chosen
        modes = tuple(mode(i, name, t) for t in degrees for name in labels[i])
        group = "tied" if i in tied else None
        ops.append(Op(name=names[i], time_ns={"gpu": 1}, colocation=group, modes=modes))
    memory = rng.choice([None, rng.randrange(40, 120), rng.randrange(80, 300)])
    servers = rng.random() < 0.15 and k in (4, 6, 8)
    devices = tuple(
        Device(
            name=f"d{j}",
            kind="gpu",
            memory_bytes=memory,
            server=f"s{j // (k // 2)}" if servers else None,
        )
        for j in range(k)
    )
    width = rng.choice([10**9, 3 * 10**8, 10**6 + 1])
    links = draw.links(k, lambda a, b: (width, 0))
    return draw.instance_of("tiny", ops, edges, devices, links)


def hybrid_semantics(rng: random.Random) -> HybridPipeline:
    """Any rules, and 1 to 12 microbatches, or 1 to 4 where there may be fewer than stages."""
    rules = HybridPipeline(
        microbatches=rng.randrange(1, 13),
        degrees=rng.choice(["free", "free", "one_t", "one"]),
        recompute=rng.choice(["per_layer", "per_layer", "per_stage", "all_or_none"]),
        sharding=rng.choice(["none", "optimizer", "gradients"]),
    )
    if rng.random() < 0.6:
        return rules
    few = rng.choice([rules.microbatches, rng.randrange(1, 5)])
    return rules.model_copy(update={"bubble": True, "degrees": "one", "microbatches": few})


def hybrid_plan(rng: random.Random, instance: Instance) -> Plan:
    """Some stages, degrees and modes, which may break any rule."""
    n, k = instance.num_ops, instance.num_devices
    count = rng.randrange(1, min(n, k) + 1)
    stage = sorted([*range(count), *(rng.randrange(count) for _ in range(n - count))])
    if rng.random() < 0.1:
        rng.shuffle(stage)
    cuts = sorted(rng.sample(range(1, k), count - 1)) if k > 1 else []
    bounds = [0, *cuts, k]
    tensor, placement = [], []
    for s in range(count):
        devices = list(range(bounds[s], bounds[s + 1]))
        own = {m.tensor for m in instance.graph.ops[stage.index(s)].ways}
        t = rng.choice([t for t in sorted(own) if t <= len(devices)] or [1])
        tensor.append(t)
        left = len(devices) // t * t
        placement.append(tuple(devices[: rng.choice([left, max(t, left // 2 // t * t)])]))
    mode = []
    for i, op in enumerate(instance.graph.ops):
        able = [m.name for m in op.ways if m.tensor == tensor[stage[i]]]
        mode.append(rng.choice(able or ["x"]))
    return Plan(
        tuple(placement[s] for s in stage),
        stage=tuple(stage),
        tensor=tuple(tensor),
        mode=tuple(mode),
    )


LAYERS = 6
LAYER_NAMES = ("embedding", *(f"layer{n}" for n in range(LAYERS)), "loss")
LAYER_MODES = {"keep": (30, 9), "selective": (31, 5), "full": (40, 1)}
"""Time and bytes held of a layer; half of both for t = 2."""


def layer_row(memory: int = 200, modes: dict[str, tuple[int, int]] = LAYER_MODES) -> Instance:
    """An embedding, six layers in several modes and a loss, on eight devices."""
    ops = []
    for name in LAYER_NAMES:
        is_layer = name.startswith("layer")
        own = modes if is_layer else {"keep": (8, 2)}
        ways = tuple(
            Mode(
                name=mode,
                tensor=t,
                time_ns={"gpu": time // t},
                held_bytes=-(-held // t),
                state_bytes=8 // t,
                sharded_bytes=4 // t,
                gradient_bytes=2 // t,
                parameter_bytes=2,
            )
            for t in (1, 2)
            for mode, (time, held) in own.items()
        )
        ops.append(Op(name=name, time_ns={"gpu": 1}, modes=ways))
    edges = [Edge(producer=a, consumer=b, bytes=1) for a, b in pairwise(LAYER_NAMES)]
    names = tuple(f"g{k}" for k in range(8))
    devices = tuple(Device(name=n, kind="gpu", memory_bytes=memory) for n in names)
    cluster = Cluster(name="eight", devices=devices, links=Links((Group(names, 10**9),)))
    graph = Graph(name="net", ops=tuple(ops), edges=tuple(edges))
    return Instance(name="net@eight", graph=graph, cluster=cluster)
