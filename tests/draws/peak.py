"""Random instances whose memory binds under the rule `peak`: state, tied weights, workspace."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle

from draws import draw
from draws.tiny import tiny_instance

from placegap.instances import Edge, Instance, MaxLoad, Op, Plan, Semantics, evaluate

TIED = {"tied": 3, "table": 2, "cache": 1}
"""Names of shared state, and their sizes relative to the largest tensor."""


def with_peak(semantics: Semantics) -> Semantics:
    """The semantics with memory counted at its peak."""
    return semantics.model_copy(update={"memory": "peak"})


def add_state(instance: Instance, seed: int) -> Instance:
    """The instance with random state, shared state and workspace, about as large as its tensors."""
    rng = random.Random(f"state-{seed}")
    unit = 1 + max((edge.bytes for edge in instance.graph.edges), default=3)
    ops = tuple(_with_state(op, unit, rng) for op in instance.graph.ops)
    state = sum(op.state_bytes or 0 for op in ops)
    tensors = sum(edge.bytes for edge in instance.graph.edges)
    total = (state + tensors) * rng.choice([2, 3, 5]) // (3 * instance.num_devices)
    devices = tuple(
        device.model_copy(update={"memory_bytes": rng.choice([None, total, 2 * total])})
        for device in instance.cluster.devices
    )
    return draw.changed(instance, ops=ops, devices=devices)


def peak_instances(seed: int, semantics: Semantics) -> Iterator[Instance]:
    """Small instances without end, for brute force; about one in ten has no plan that fits."""
    is_makespan = semantics.objective == "makespan"
    load_sizes = ((5, 2), (6, 3), (7, 2), (6, 2))
    sizes = cycle(((4, 2), (5, 2), (4, 3)) if is_makespan else load_sizes)
    while True:
        seed += 1
        num_ops, num_devices = next(sizes)
        plain = tiny_instance(
            seed,
            num_ops=num_ops,
            num_devices=num_devices,
            density=0.5,
            max_edges=5 if is_makespan else 10,
            backward=seed % 2 == 0,
        )
        rng = random.Random(f"peak-{seed}")
        ops = tuple(_with_state(op, 6, rng) for op in plain.graph.ops)
        edges = plain.graph.edges
        if seed % 2 == 0:
            ops, edges = _like_training(ops, edges)
        loose = draw.with_memory(draw.changed(plain, ops=ops, edges=edges), None)
        yield _tightened(loose, semantics, rng)


def _with_state(op: Op, unit: int, rng: random.Random) -> Op:
    held = {name: size * unit for name, size in TIED.items() if rng.random() < 0.2}
    return op.model_copy(
        update={
            "parameter_bytes": rng.choice([0, unit]),
            "state_bytes": rng.choice([None, 0, rng.randrange(unit + 1)]),
            "workspace_bytes": rng.choice([0, 0, rng.randrange(unit + 1)]),
            "shared_state": held,
        }
    )


def _like_training(
    ops: tuple[Op, ...], edges: tuple[Edge, ...]
) -> tuple[tuple[Op, ...], tuple[Edge, ...]]:
    """The first ops forward, the last ones backward, each in one group with its forward op."""
    half = len(ops) // 2
    kinds = [
        tuple(kind for kind in op.time_ns if kind in ops[-1 - i].time_ns)
        for i, op in enumerate(ops[:half])
    ]
    made, stash = list(ops), list(edges)
    ends = {(edge.producer, edge.consumer) for edge in edges}
    for i in range(half):
        mirror = len(ops) - 1 - i
        paired = bool(kinds[i])
        for at, backward in ((i, False), (mirror, True)):
            colocation = f"layer{i}" if paired else None
            made[at] = made[at].model_copy(update={"backward": backward, "colocation": colocation})
        if paired and (made[i].name, made[mirror].name) not in ends:
            stash.append(Edge(producer=made[i].name, consumer=made[mirror].name, bytes=4))
    if len(ops) % 2:
        made[half] = made[half].model_copy(update={"backward": False, "colocation": None})
    return tuple(made), tuple(stash)


def _tightened(loose: Instance, semantics: Semantics, rng: random.Random) -> Instance:
    """The instance with as much memory as a random plan needs, on some device a byte less."""
    home: dict[int, int] = {}
    device = []
    for group in loose.arrays.group.tolist():
        mates = loose.arrays.group == group
        able = (loose.arrays.time_ns[mates] >= 0).all(axis=0).nonzero()[0].tolist()
        device.append(home.setdefault(group, rng.choice(able)))
    rules = semantics.with_plans("any")
    if isinstance(rules, MaxLoad):
        rules = MaxLoad(plans="any", load=rules.load)
    uses = evaluate(loose, Plan.on(device), with_peak(rules)).uses
    less = rng.randrange(len(uses) * 3)
    room = [max(0, use.memory_bytes - (k == less)) for k, use in enumerate(uses)]
    return draw.with_memory(loose, *room)
