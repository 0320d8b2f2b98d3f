"""Random chains of layers and op graphs for pipeline_iteration, their semantics and plans."""

import random

from draws import draw

from placegap.instances import Device, Edge, Instance, Op, PipelineIteration, Plan

SCALES = (3, 1000, 10**9)
"""Largest numbers: ties abound, the usual, and seconds beside nanoseconds."""


def pipeline_instance(
    seed: int,
    *,
    most_layers: int = 7,
    most_devices: int = 4,
    wide: bool | None = None,
    weights: bool = False,
    updates: bool = False,
) -> Instance:
    """Layers with or without backward ops, in a row with skips, or (`wide`) in a random DAG."""
    rng = random.Random(f"pipeline-{seed}")
    n, count = rng.randrange(1, most_layers + 1), rng.randrange(1, most_devices + 1)
    trains, scale = rng.random() < 0.7, rng.choice(SCALES)
    wide = rng.random() < 0.3 if wide is None else wide
    alike = rng.random() < 0.5
    kinds = ["gpu" if alike else rng.choice(["gpu", "npu"]) for _ in range(count)]
    hosts = [not alike and rng.random() < 0.2 for _ in kinds]

    def number() -> int:
        return rng.choice([0, 1, rng.randrange(scale), rng.randrange(scale)])

    every = sorted(set(kinds))
    able = [[kind for kind in every if rng.random() < 0.95] or kinds[:1] for _ in range(n)]

    def op(name: str, backward: bool, group: str | None) -> Op:
        runs = able[int(name[1:])]
        return Op(
            name=name,
            time_ns={kind: number() for kind in runs},
            resident_bytes=rng.randrange(5),
            backward=backward,
            colocation=group,
        )

    groups = [f"layer{i}" if rng.random() < 0.95 else None for i in range(n)]
    ops = [op(f"f{i}", False, groups[i] if trains else None) for i in range(n)]
    pairs = {(i, i + 1) for i in range(n - 1)} if not wide else set()
    pairs |= {(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.1 + 0.2 * wide}
    named = [(f"f{a}", f"f{b}") for a, b in sorted(pairs)]
    if trains:
        ops += [op(f"b{i}", True, groups[i]) for i in reversed(range(n))]
        named += [(f"b{b}", f"b{a}") for a, b in sorted(pairs) if rng.random() < 0.9]
        named += [(f"f{i}", f"b{i}") for i in range(n) if rng.random() < 0.9]
        named += [
            (f"f{i}", f"b{j}") for i in range(n) for j in range(n) if i != j and rng.random() < 0.1
        ]
    if trains and weights:
        own = random.Random(f"weights-{seed}")
        split = [i for i in range(n) if own.random() < 0.8] or [0]
        ops += [
            op(f"w{i}", True, groups[i]).model_copy(update={"weight_gradient": True}) for i in split
        ]
        named += [(f"b{b}", f"w{a}") for a, b in sorted(pairs) if a in split and own.random() < 0.9]
        named += [(f"{of}{i}", f"w{i}") for of in "fb" for i in split if own.random() < 0.6]
        named += [(f"w{a}", f"w{b}") for a in split for b in split if a > b and own.random() < 0.1]
    if trains and updates:
        own = random.Random(f"updates-{seed}")
        late = [i for i in range(n) if own.random() < 0.8] or [0]
        marks = {"update": True, "weight_gradient": weights}
        ops += [op(f"u{i}", True, groups[i]).model_copy(update=marks) for i in late]
        made = {one.name for one in ops}
        named += [(f"{of}{i}", f"u{i}") for of in "bw" for i in late if f"{of}{i}" in made]
        named += [(f"b{a}", f"u{b}") for a in late for b in late if a > b and own.random() < 0.1]
    stated = rng.choice(["bytes", "bytes", "host", "matrix"])
    sizes = {one.name: number() for one in ops}
    shares = {one.name: rng.random() < 0.5 for one in ops}

    def matrix() -> tuple[tuple[int, ...], ...] | None:
        rows = [[0 if a == b else number() for b in range(count)] for a in range(count)]
        return tuple(map(tuple, rows)) if stated == "matrix" else None

    moves = {one.name: (number() if stated == "host" else None, matrix()) for one in ops}
    edges = tuple(
        Edge(
            producer=a,
            consumer=b,
            tensor="t" if shares[a] else None,
            bytes=sizes[a],
            host_time_ns=moves[a][0],
            transfer_ns=moves[a][1],
        )
        for a, b in dict.fromkeys(named)
    )
    speed = [10**9] if alike else [10**9, 5 * 10**8]
    links = draw.links(
        count, lambda a, b: (rng.choice(speed), 0 if alike else rng.choice([0, 0, 1]))
    )
    needed = sum(one.resident_bytes for one in ops)
    limit = None
    if rng.random() < 0.5:
        limit = max(needed // count, 1) + rng.randrange(2 + needed // 2) + rng.choice([0, scale])
    devices = tuple(
        Device(
            name=f"d{k}",
            kind=kind,
            is_host=host,
            memory_bytes=None if limit is None else limit + (0 if alike else rng.randrange(3)),
        )
        for k, (kind, host) in enumerate(zip(kinds, hosts, strict=True))
    )
    return draw.instance_of(f"pipeline-{seed}", ops, edges, devices, links)


def iteration_semantics(rng: random.Random, most: int = 6) -> PipelineIteration:
    """A schedule, with few microbatches."""
    schedule = rng.choice(["gpipe", "1f1b", "1f1b", "interleaved"])
    return PipelineIteration(
        schedule=schedule,
        stages_per_device=rng.choice([2, 3]) if schedule == "interleaved" else 1,
        microbatches=rng.randrange(1, most + 1),
        sending=rng.choice(["overlap", "blocking"]),
    )


def zero_bubble(rng: random.Random, most: int = 6) -> PipelineIteration:
    """The schedule that runs gradients of weights late, with few microbatches."""
    sending = rng.choice(["overlap", "blocking"])
    rules = {"schedule": "zero_bubble", "sending": sending, "microbatches": rng.randint(1, most)}
    return PipelineIteration.model_validate(rules)


def stage_plan(instance: Instance, semantics: PipelineIteration, rng: random.Random) -> Plan:
    """A plan of layers in their order mostly, on some of the devices in any order."""
    n = max(int(op.name[1:]) for op in instance.graph.ops) + 1
    devices = list(range(instance.num_devices))
    rng.shuffle(devices)
    used = devices[: rng.randrange(1, len(devices) + 1)]
    count = len(used) * semantics.stages_per_device
    cuts = sorted(rng.randrange(1, n) for _ in range(count - 1)) if n > 1 else []
    if count <= n:
        cuts = sorted(rng.sample(range(1, n), count - 1))
    stage_of = [sum(cut <= i for cut in cuts) for i in range(n)]
    if rng.random() < 0.1:
        rng.shuffle(stage_of)
    stage = [stage_of[int(op.name[1:])] for op in instance.graph.ops]
    if rng.random() < 0.1:
        stage[rng.randrange(len(stage))] = rng.randrange(count)
    placement = tuple((used[s % len(used)],) for s in stage)
    states = semantics.schedule == "interleaved" or rng.random() < 0.7
    return Plan(placement, stage=tuple(stage) if states else None)


def layer_row(
    forward_ns: list[int],
    backward_ns: list[int] | None,
    *,
    num_devices: int | None = None,
    bytes_each: int = 0,
    stash_bytes: int = 0,
    resident_bytes: int = 0,
) -> Instance:
    """Layers in a row with these times, on equal devices, by default one for each layer."""
    n = len(forward_ns)
    ops = [
        Op(
            name=f"f{i}",
            time_ns={"gpu": time},
            colocation=f"layer{i}",
            resident_bytes=resident_bytes,
        )
        for i, time in enumerate(forward_ns)
    ]
    edges = [Edge(producer=f"f{i}", consumer=f"f{i + 1}", bytes=bytes_each) for i in range(n - 1)]
    for i, time in enumerate(backward_ns or ()):
        ops.append(Op(name=f"b{i}", time_ns={"gpu": time}, colocation=f"layer{i}", backward=True))
        edges.append(Edge(producer=f"f{i}", consumer=f"b{i}", bytes=stash_bytes, tensor="kept"))
        if i:
            edges.append(Edge(producer=f"b{i}", consumer=f"b{i - 1}", bytes=bytes_each))
    count = n if num_devices is None else num_devices
    links = draw.links(count, lambda a, b: (10**9, 0))
    return draw.instance_of("row", ops, edges, draw.devices(["gpu"] * count), links)


def split_row(
    forward_ns: list[int],
    backward_ns: list[int],
    weight_ns: list[int],
    *,
    read_bytes: int = 0,
    gradient_bytes: int = 0,
    **options: int | None,
) -> Instance:
    """A `layer_row` whose layers have weight gradients of their own."""
    row = layer_row(forward_ns, backward_ns, **options)  # type: ignore[arg-type]
    marks = {"backward": True, "weight_gradient": True}
    gradients = [
        Op(name=f"w{i}", time_ns={"gpu": time}, colocation=f"layer{i}", **marks)
        for i, time in enumerate(weight_ns)
    ]
    reads = [
        Edge(producer=f"{of}{i}", consumer=f"w{i}", bytes=size, tensor="read")
        for i in range(len(weight_ns))
        for of, size in (("f", read_bytes), ("b", gradient_bytes))
    ]
    return draw.changed(row, ops=(*row.graph.ops, *gradients), edges=(*row.graph.edges, *reads))


def shared_weight_row(forward_ns: list[int], backward_ns: list[int], bytes_each: int) -> Instance:
    """A `layer_row` whose first and last layers update copies of one weight, in no time."""
    row, last = layer_row(forward_ns, backward_ns), len(forward_ns) - 1
    layers = ("layer0", f"layer{last}")
    updates = [
        Op(name=f"u{at}", time_ns={"gpu": 0}, backward=True, colocation=layer)
        for at, layer in enumerate(layers)
    ]
    sums = [Edge(producer="b0", consumer=f"u{at}", bytes=bytes_each, tensor="sum") for at in (0, 1)]
    tied = draw.changed(row, ops=(*row.graph.ops, *updates), edges=(*row.graph.edges, *sums))
    return tied.model_copy(update={"name": "tied"})


def model_row(
    num_layers: int, num_devices: int, seed: int, bytes_each: int = 0, *, split: bool = False
) -> Instance:
    """A light first layer, a heavy last one, the others about alike; backward about twice."""
    rng = random.Random(f"model-{num_layers}-{seed}")
    weight = [0.2, *(rng.uniform(0.7, 1.3) for _ in range(num_layers - 2)), rng.uniform(2, 5)]
    forward = [int(1e6 * each) for each in weight]
    backward = [int(each * rng.uniform(1.8, 2.2)) for each in forward]
    if split:
        late = [time // 2 for time in backward]
        inputs = [time - other for time, other in zip(backward, late, strict=True)]
        return split_row(forward, inputs, late, num_devices=num_devices, bytes_each=bytes_each)
    return layer_row(forward, backward, num_devices=num_devices, bytes_each=bytes_each)
