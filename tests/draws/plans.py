"""Random plans, feasible and not, for the comparison of the two referees."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import permutations

from draws import draw
from draws.corners import odd_instance
from draws.peak import add_state
from draws.pipelines import pipeline_instance, stage_plan
from draws.twins import CLUSTERS, twin_instance
from references.brute_force import (
    FWD_BWD_SEMANTICS,
    LATENCY_SEMANTICS,
    MAKESPAN_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    more_latency,
    more_makespan,
    more_max_load,
    more_stages,
)

from placegap.instances import (
    Device,
    Edge,
    Instance,
    LatencySubgraphs,
    Link,
    Makespan,
    MaxLoad,
    Op,
    PipelineIteration,
    Plan,
    Semantics,
    Transfer,
)

STAGES = tuple(
    MaxLoad(plans=plans, load=load, replicas=replicas, levels=levels)
    for plans in ("any", "convex", "chain")
    for load in ("add", "overlap")
    for replicas, levels in ((True, 1), (False, 2), (True, 2))
)
LATENCY = (*LATENCY_SEMANTICS, LatencySubgraphs(subgraphs=3))
ITERATIONS = tuple(
    PipelineIteration(
        schedule=schedule,
        microbatches=m,
        sending=sending,
        stages_per_device=v if schedule == "interleaved" else 1,
    )
    for schedule in ("gpipe", "1f1b", "interleaved", "zero_bubble")
    for m, v, sending in ((1, 2, "overlap"), (2, 2, "blocking"), (6, 3, "overlap"))
)


def instances(seed: int) -> Iterator[Instance]:
    """Instances of every kind in turn, without end."""
    rng = random.Random(f"instances-{seed}")
    kinds = (more_makespan(seed), more_max_load(seed), more_latency(seed), more_stages(seed))
    while True:
        number = rng.randrange(10**9)
        yield from (next(kind) for kind in kinds)
        yield odd_instance(number)
        cluster = list(rng.choice(CLUSTERS))
        yield twin_instance(number, num_ops=rng.randrange(3, 13), kinds=cluster, max_edges=20)
        yield from (wide_instance(number + more) for more in range(4))


def regrouped(instance: Instance, rng: random.Random) -> Instance:
    """The instance with one colocation group, of any three ops, and all ops on all kinds."""
    kinds = sorted({device.kind for device in instance.cluster.devices})
    chosen = rng.sample(range(instance.num_ops), min(3, instance.num_ops))
    ops = tuple(
        op.model_copy(
            update={
                "time_ns": {kind: op.time_ns.get(kind, 1) for kind in kinds},
                "colocation": "group" if i in chosen else None,
            }
        )
        for i, op in enumerate(instance.graph.ops)
    )
    return draw.changed(instance, ops=ops)


def every_instance(seed: int) -> Iterator[Instance]:
    """All that the other draws have, layers too: as they are, and with state."""
    rng = random.Random(f"every-{seed}")
    for plain in instances(seed):
        number, weights = rng.randrange(10**9), rng.random() < 0.5
        for instance in (plain, pipeline_instance(number, weights=weights)):
            yield add_state(instance, number) if rng.random() < 0.3 else instance


def wide_instance(seed: int) -> Instance:
    """Up to 40 ops on up to 6 devices, numbers from 0 and 1 to 1e12; links may be missing."""
    rng = random.Random(f"wide-{seed}")
    n, count = rng.choice([2, 5, 12, 40]), rng.randrange(1, 7)
    largest = rng.choice([3, 1000, 10**12])
    kinds = [rng.choice(["gpu", "npu", "cpu"]) for _ in range(count)]
    stated = rng.choice(["bytes", "host", "matrix", "mixed"])
    servers = rng.randrange(1, 4)
    ops = []
    for i in range(n):
        runs = [kind for kind in sorted(set(kinds)) if rng.random() < 0.9] or kinds[:1]
        time_ns = {kind: _number(rng, largest) for kind in runs}
        size, parameters = _number(rng, largest), _number(rng, largest)
        back = rng.random() < 0.3
        group = f"g{rng.randrange(n)}" if rng.random() < 0.15 else None
        ops.append(draw.op(i, time_ns, size, group, parameter_bytes=parameters, backward=back))
    ops = _possible_groups(ops)
    order = rng.sample(range(n), n)
    edges: dict[tuple[int, int, str | None], Edge] = {}
    for a in range(n):
        costs = {name: _costs(rng, stated, count, largest) for name in ("x", "y")}
        for b in range(a + 1, n):
            for _ in range(rng.choice([1, 1, 2])):
                if rng.random() < 4 / n:
                    tensor = rng.choice(["x", "y", None])
                    own = _costs(rng, stated, count, largest) if tensor is None else costs[tensor]
                    edges[order[a], order[b], tensor] = Edge(
                        producer=f"op{order[a]}", consumer=f"op{order[b]}", tensor=tensor, **own
                    )  # type: ignore[arg-type]
    total = sum(op.resident_bytes for op in ops)
    devices = tuple(
        Device(
            name=f"d{k}",
            kind=kind,
            is_host=kind == "cpu" and rng.random() < 0.7,
            memory_bytes=rng.choice([None, None, total // count, total, 2 * total // count]),
            server=f"s{rng.randrange(servers)}",
        )
        for k, kind in enumerate(kinds)
    )
    links = _links(rng, count, stated)
    return draw.instance_of(f"wide-{seed}", ops, edges.values(), devices, links)


def _number(rng: random.Random, largest: int) -> int:
    return rng.choice([0, 1, rng.randrange(largest + 1), rng.randrange(largest + 1), largest])


def _costs(rng: random.Random, stated: str, count: int, largest: int) -> dict[str, object]:
    way = rng.choice(["bytes", "host", "matrix", "both"]) if stated == "mixed" else stated
    costs: dict[str, object] = {"bytes": _number(rng, largest)}
    if way in ("host", "both"):
        costs["host_time_ns"] = _number(rng, largest)
    if way in ("matrix", "both"):
        costs["transfer_ns"] = tuple(
            tuple(_number(rng, largest) for _ in range(count)) for _ in range(count)
        )
    return costs


def _possible_groups(ops: list[Op]) -> list[Op]:
    """The ops, each without its group where no kind runs all of the group so far."""
    together: dict[str, set[str]] = {}
    for i, op in enumerate(ops):
        if op.colocation is not None:
            common = together.get(op.colocation, set(op.time_ns)) & set(op.time_ns)
            if common:
                together[op.colocation] = common
            else:
                ops[i] = op.model_copy(update={"colocation": None})
    return ops


def _links(rng: random.Random, count: int, stated: str) -> tuple[Link, ...]:
    """All links; or a ring and some more; or, where no tensor needs them, only some."""
    style = rng.choice(["all", "ring", "some"] if stated in ("host", "matrix") else ["all", "ring"])
    pairs = [
        (a, b)
        for a, b in permutations(range(count), 2)
        if style == "all" or rng.random() < 0.3 or (style == "ring" and (b - a) % count == 1)
    ]
    widths = [10**9, 3 * 10**8, rng.randrange(1, 10**12)]
    return tuple(
        Link(
            source=f"d{a}",
            target=f"d{b}",
            latency_ns=rng.choice([0, 1, 7, 10**6]),
            bandwidth_bytes_per_s=rng.choice([10**9, *widths]),
        )
        for a, b in rng.sample(pairs, len(pairs))
    )


def semantics_for(instance: Instance, rng: random.Random, *, iterations: bool = False) -> Semantics:
    """One of all semantics of one sample that the instance can have; or of `iterations`, too."""
    kinds = ["makespan", "makespan", "load", "load", "fwd_bwd", "stages", "latency"]
    kind = rng.choice(kinds + ["iteration"] * 3 * iterations)
    if kind == "iteration":
        backward = [op for op in instance.graph.ops if op.backward]
        splits = any(op.weight_gradient for op in backward) or not backward
        return rng.choice([each for each in ITERATIONS if splits or each.schedule != "zero_bubble"])
    if kind == "stages":
        semantics = rng.choice(STAGES)
        servers = {device.server for device in instance.cluster.devices}
        lacks = None in servers or any(
            edge.host_time_ns is not None and edge.transfer_ns is None
            for edge in instance.graph.edges
        )
        return semantics.model_copy(update={"levels": 1}) if lacks else semantics
    return rng.choice(
        {
            "makespan": MAKESPAN_SEMANTICS,
            "load": MAX_LOAD_SEMANTICS,
            "fwd_bwd": FWD_BWD_SEMANTICS,
            "latency": LATENCY,
        }[kind]
    )


def random_plan(instance: Instance, semantics: Semantics, rng: random.Random) -> Plan:
    """A plan that may break any rule, but mostly can be executed."""
    if isinstance(semantics, PipelineIteration) and rng.random() < 0.9:
        return _with_stages(instance, semantics, rng)
    n, count = instance.num_ops, instance.num_devices
    style = rng.choice(["free", "few", "slices", "slices", "wild"])
    runs = [
        [k for k, d in enumerate(instance.cluster.devices) if d.kind in op.time_ns]
        for op in instance.graph.ops
    ]
    few = rng.sample(range(count), min(count, 2))
    order = rng.sample(range(count), count)
    topological = instance.graph.index.topological_position.tolist()
    placement: list[tuple[int, ...]] = []
    group: dict[str, int] = {}
    for i, op in enumerate(instance.graph.ops):
        wish = {
            "free": rng.randrange(count),
            "wild": rng.randrange(count),
            "few": rng.choice(few),
            "slices": order[topological[i] * count // n],
        }[style]
        k = wish if wish in runs[i] else rng.choice(runs[i])
        if op.colocation is not None and rng.random() < 0.9:
            k = group.setdefault(op.colocation, k)
        placement.append((k,))
    if semantics.has_replicas and rng.random() < 0.6:
        kind = rng.choice([None, *(device.kind for device in instance.cluster.devices)])
        alike = [
            k for k, d in enumerate(instance.cluster.devices) if kind is None or d.kind == kind
        ]
        shared = tuple(sorted(rng.sample(alike, min(len(alike), rng.choice([2, 2, 3])))))
        placement = [shared if on[0] in shared else on for on in placement]
    if style == "wild" and rng.random() < 0.3:
        i = rng.randrange(n)
        wrong = [(), (count,), (-1,), (0, 0), (1, 0), (rng.randrange(count),), tuple(range(count))]
        placement[i] = rng.choice(wrong)
    if rng.random() < 0.01:
        placement = placement[:-1]
    return _with_orders(instance, semantics, Plan(tuple(placement)), rng)


def _with_orders(instance: Instance, semantics: Semantics, plan: Plan, rng: random.Random) -> Plan:
    home = [on[0] if on else 0 for on in plan.placement]
    device_order, channel_order, call = None, None, None
    is_makespan = semantics.objective == "makespan"
    if rng.random() < (0.5 if is_makespan else 0.02):
        device_order = _device_orders(instance, home, rng)
    if rng.random() < (0.5 if is_makespan else 0.02):
        rules = semantics if isinstance(semantics, Makespan) else Makespan()
        channel_order = _channel_orders(instance, rules, home, rng)
    if rng.random() < (0.7 if semantics.objective == "latency_subgraphs" else 0.02):
        calls = semantics.subgraphs if isinstance(semantics, LatencySubgraphs) else 1
        last = calls + (rng.random() < 0.1)
        position = instance.graph.index.topological_position.tolist()
        if rng.random() < 0.6:  # calls by position: seldom in each other's way
            call = tuple(position[i] * last // instance.num_ops for i in range(len(home)))
        else:
            call = tuple(rng.randrange(-1 if rng.random() < 0.1 else 0, last) for _ in home)
    return Plan(plan.placement, device_order, channel_order, call)


def _device_orders(
    instance: Instance, home: Sequence[int], rng: random.Random
) -> tuple[tuple[int, ...] | None, ...]:
    position = instance.graph.index.topological_position.tolist()
    orders: list[tuple[int, ...] | None] = []
    for k in range(instance.num_devices + (rng.random() < 0.02)):
        ops = sorted((i for i, on in enumerate(home) if on == k), key=lambda i: position[i])
        if ops and rng.random() < 0.3:  # two neighbours change places: cyclic or not
            at = rng.randrange(len(ops))
            ops[at - 1], ops[at] = ops[at], ops[at - 1]
        if ops and rng.random() < 0.03:
            ops[0] = rng.randrange(instance.num_ops)
        orders.append(None if rng.random() < 0.3 else tuple(ops))
    return tuple(orders)


def _channel_orders(
    instance: Instance, semantics: Makespan, home: Sequence[int], rng: random.Random
) -> dict[int, tuple[Transfer, ...]]:
    """Orders by the producers' positions, now and then mixed up."""
    index, count = instance.graph.index, instance.num_devices
    position = index.topological_position.tolist()
    on: dict[int, dict[Transfer, int]] = {}
    ends = zip(index.producer.tolist(), index.consumer.tolist(), strict=True)
    for e, (a, b) in enumerate(ends):
        if max(a, b) >= len(home) or home[a] == home[b]:
            continue
        item = e if semantics.transfers == "per_edge" else int(index.tensor[e])
        channels = {
            "free": [],
            "link": [home[a] * count + home[b]],
            "port": [home[a], count + home[b]],
            "half_duplex": [home[a], home[b]],
        }[semantics.channels]
        for channel in channels:
            on.setdefault(channel, {})[Transfer(item, home[b])] = position[a]
    orders = {}
    for channel, moves in on.items():
        if rng.random() < 0.2:
            continue
        order = sorted(moves, key=lambda move: (moves[move], move))
        if rng.random() < 0.3:
            rng.shuffle(order)
        if rng.random() < 0.02:
            order = order[1:]
        orders[channel + 1000 * (rng.random() < 0.01)] = tuple(order)
    return orders


def _with_stages(instance: Instance, semantics: PipelineIteration, rng: random.Random) -> Plan:
    """Slices of the passes as stages, in rounds over some devices; often with something amiss."""
    if rng.random() < 0.3 and all(op.name[1:].isdigit() for op in instance.graph.ops):
        return stage_plan(instance, semantics, rng)
    sizes = range(1, instance.num_devices + 1)
    few = [p for p in sizes if p * semantics.stages_per_device <= instance.num_ops / 2]
    whole = [p for p in few if semantics.microbatches % p == 0] or [1]
    devices = rng.sample(
        range(instance.num_devices), rng.choice(whole if rng.random() < 0.9 else sizes)
    )
    count = len(devices) * semantics.stages_per_device
    ops, position = instance.graph.ops, instance.graph.index.topological_position.tolist()
    passes = [
        sorted((position[i], i) for i, op in enumerate(ops) if op.backward == back)
        for back in (False, True)
    ]
    keeps, group, stage = rng.random() < 0.5, dict[str, int](), [0] * len(ops)
    for back, line in enumerate(passes):
        for place, (_, i) in enumerate(line):
            s = place * count // len(line)
            stage[i] = count - 1 - s if back else s
            name = ops[i].colocation
            if keeps and name is not None:
                stage[i] = group.setdefault(name, stage[i])
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        stage[rng.randrange(len(ops))] = rng.randrange(count)
    if rng.random() < 0.05:
        rng.shuffle(stage)
    placement = [(devices[s % len(devices)],) for s in stage]
    if rng.random() < 0.1:
        placement[rng.randrange(len(ops))] = (rng.randrange(instance.num_devices),)
    if rng.random() < 0.05:
        stage[rng.randrange(len(ops))] = rng.choice([-1, count, len(ops), 10**20])
    if rng.random() < 0.02:
        stage = stage[1:]
    states = rng.random() < (0.95 if semantics.schedule == "interleaved" else 0.7)
    return Plan(tuple(placement), stage=tuple(stage) if states else None)
