"""Time as a knapsack of bytes: never above an optimum, and equal to it where layers are a chain."""

import random
from collections import Counter

import pytest
from draws import draw
from references.brute_force import MAKESPAN_SEMANTICS, oracle

from placegap.experiments.research.bench.offload import (
    DDR4,
    GB,
    GIB,
    MODELS,
    PCIE4,
    Card,
    Decoder,
    cluster_of,
    decode_step,
)
from placegap.instances import Edge, Instance, Makespan, Op, evaluate
from placegap.instances.problem.additive_memory import relax_memory
from placegap.solvers import run_method
from placegap.solvers.bounds import memory_knapsack
from placegap.solvers.bounds.labels import layer_chain
from placegap.solvers.bounds.labels.layer_chain import chain_bound, least_chain, stops_of
from placegap.solvers.bounds.memory_knapsack import Knapsack, knapsack, relaxed, run
from placegap.solvers.core.back_ends.highs import solve_integers
from placegap.solvers.core.back_ends.outcome import bound_ns
from placegap.solvers.core.method import Limits, Task
from placegap.solvers.core.result import PROOF

SMALL = Decoder("small", 4, 1024, 256, 4096, 8000, context=128)
"""Weights of 153 MB: 4 layers of 30 MB, and an embedding and a head of 16 MB each."""


def drawn(seed: int) -> Instance:
    """A chain, a chain with skipping edges, a fork or any graph; unlike devices, little memory."""
    rng = random.Random(seed)
    n, kinds = rng.randint(3, 6), ["fast", "slow", "fast"][: rng.choice((2, 2, 3))]
    groups = rng.choice((0, 2, 3))
    ops = []
    for i in range(n):
        fast = rng.choice((0, 1, 5, 9, 20))
        slow = rng.choice((4 * fast, rng.choice((1, 5, 30))))
        group = f"g{rng.randrange(groups)}" if groups and rng.random() < 0.5 else None
        ops.append(
            Op(
                name=f"op{i}",
                time_ns={"fast": fast, "slow": slow},
                resident_bytes=rng.randint(0, 5),
                colocation=group,
            )
        )
    shape = rng.choice(("chain", "near", "fork", "any"))
    pairs = {(i, i + 1) for i in range(n - 1) if shape in ("chain", "near")}
    if shape == "fork":
        pairs = {(0, i) for i in range(1, n - 1)} | {(i, n - 1) for i in range(1, n - 1)}
    if shape in ("near", "any"):
        share = 0.2 if shape == "near" else 0.4
        pairs |= {(i, j) for j in range(n) for i in range(j) if rng.random() < share}
    edges = draw.edges(sorted(pairs), (), [False] * n, lambda: rng.choice((1, 4, 10, 25)))
    total = sum(op.resident_bytes for op in ops)
    devices = draw.devices(kinds, lambda k: rng.randint(total // 3 + 1, total + 1))
    links = draw.links(len(kinds), lambda a, b: (10**9 // rng.choice((1, 3)), rng.choice((0, 2))))
    return draw.instance_of(f"drawn {seed}", ops, edges, devices, links)


def drawn_fan(seed: int) -> Instance:
    """Three to five ops of one or two kinds between two others, on the devices of `drawn`."""
    rng, cluster = random.Random(seed), drawn(seed).cluster
    kinds = sorted({device.kind for device in cluster.devices})
    times = [{kind: rng.choice((0, 2, 5, 9, 20)) for kind in kinds} for _ in range(2)]
    inner = [
        Op(name=f"e{n}", time_ns=times[n % rng.choice((1, 2))]) for n in range(rng.randint(3, 5))
    ]
    ends = [Op(name=name, time_ns=dict.fromkeys(kinds, 1)) for name in ("in", "out")]
    sizes = {op.name: (rng.choice((1, 3)), rng.choice((1, 3))) for op in (inner[0], inner[1])}
    edges = []
    for n, op in enumerate(inner):
        to, back = sizes[inner[n % 2].name]
        edges.append(Edge(producer="in", consumer=op.name, bytes=to))
        edges.append(Edge(producer=op.name, consumer="out", bytes=back))
    devices = draw.devices([device.kind for device in cluster.devices])
    ops = (ends[0], *inner, ends[1])
    return draw.instance_of(f"fan {seed}", ops, edges, devices, cluster.links)


def drawn_layers(seed: int) -> Instance:
    """Three to five layers of up to three ops in a row, all with activations, some with a state
    that others share, on two or three unlike devices, some of which are full.
    """
    rng = random.Random(f"layers-{seed}")
    kinds = ["fast", "slow", "fast"][: rng.choice((2, 2, 3))]
    ops, edges, last = list[Op](), list[Edge](), -1
    for layer in range(rng.randint(3, 5)):
        size = 1 if len(ops) > 2 else rng.choice((1, 1, 2, 3))
        first, names = len(ops), rng.sample(("tied", "other"), rng.choice((0, 0, 1, 1, 2)))
        for i in range(first, first + size):
            fast = rng.choice((0, 1, 5, 9, 20))
            fields = {
                "state_bytes": rng.choice((0, 3, 20, rng.randint(0, 40))),
                "workspace_bytes": rng.choice((0, 0, 5, rng.randint(0, 30))),
                "shared_state": {name: 25 for name in names if i == first},
            }
            time = {"fast": fast, "slow": rng.choice((2, 4 * fast, rng.choice((1, 5, 30))))}
            group = f"layer{layer % 4 if seed % 5 == 0 else layer}"
            ops.append(draw.op(i, time, group=group, **fields))
        arcs = {(last, first)} if last >= 0 else set[tuple[int, int]]()
        arcs |= {(first, i) for i in range(first + 1, first + size)}
        last = first + size - 1
        arcs |= {(i, last) for i in range(first, last)}
        edges += draw.edges(
            sorted(arcs),
            [rng.choice((1, 8, 20, 40)) for _ in ops],
            [rng.random() < 0.6 for _ in ops],
            lambda: rng.choice((1, 4, 15, 30)),
        )
    total = sum(op.state_bytes for op in ops) + 60
    room = [
        rng.choice((None, total)) if k == 1 else rng.randint(total // 3, total) for k in range(3)
    ]
    devices = draw.devices(kinds, room.__getitem__)
    links = draw.links(len(kinds), lambda a, b: (10**9 // rng.choice((1, 3)), rng.choice((0, 2))))
    return draw.instance_of(f"layers {seed}", ops, edges, devices, links)


def compare_layers(seeds: range) -> Counter[str]:
    """Bounds at the peak beside brute force; how many are optimal, and above those of the floor."""
    seen = Counter[str]()
    for seed in seeds:
        instance = drawn_layers(seed)
        channels = ("free", "link", "port", "half_duplex")[seed % 4]
        transfers = ("per_edge", "per_tensor")[seed % 2]
        semantics = Makespan(channels=channels, transfers=transfers, memory="peak")
        floor, _ = relax_memory(instance, semantics)
        bound, best = chain_bound(floor, instance), oracle(instance, semantics)
        if best is None:
            continue
        assert bound <= best, instance.name
        assert bound >= chain_bound(floor), instance.name
        seen.update(all=1, optimal=bound == best, rose=bound > chain_bound(floor))
    return seen


def test_no_bound_at_the_peak_is_above_an_optimum() -> None:
    seen = compare_layers(range(30))
    assert seen["rose"] > 3
    assert seen["optimal"] > 0.8 * seen["all"]


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(1000, 9000, 1000))
def test_no_bound_at_the_peak_is_above_the_optimum_of_thousands(seed: int) -> None:
    compare_layers(range(seed, seed + 1000))


def compare_ops(seeds: range) -> Counter[str]:
    """Bounds of the MIP and its LP beside brute force, where most ops of a layer may be apart."""
    seen = Counter[str]()
    for seed in seeds:
        instance = drawn_layers(seed)
        groups = [op.colocation if i % 3 else None for i, op in enumerate(instance.graph.ops)]
        instance = draw.with_ops(instance, colocation=groups)
        semantics = MAKESPAN_SEMANTICS[seed % 8].model_copy(update={"memory": "peak"})
        floor, _ = relax_memory(instance, semantics)
        best = oracle(instance, semantics)
        if best is None or floor.arrays.memory_is_slack:
            continue
        least = [
            bounds_of(knapsack(floor, semantics, at_peak=at_peak)) for at_peak in (None, instance)
        ]
        assert max(least[1]) <= best, instance.name
        assert least[0][0] <= least[1][0], instance.name
        seen.update(all=1, optimal=least[1][1] == best, rose=least[0][1] < least[1][1])
    return seen


def bounds_of(model: Knapsack | None) -> tuple[int, int]:
    """What the LP and the MIP of a model prove."""
    assert model is not None
    found, _ = solve_integers(model.form, Limits())
    assert found.ending == "optimal"
    return relaxed(model)[0], bound_ns(found.dual_bound, model.unit_ns, 1) or 0


def test_ops_that_share_a_state_hold_it_on_each_of_their_devices() -> None:
    # The GPU has room for the head with its state of 40 bytes, or for the layer of 20. Both ends on
    # the host take 5 + 1 + 10 + 1 + 20 ns, the layer there 5 + 1 + 100 + 1 + 5. The floor counts
    # the state at the embedding alone, which takes as long on the host: 5 + 1 + 10 + 5.
    tied = {"shared_state": {"tied": 40}}
    ops = [
        draw.op(0, {"gpu": 5, "cpu": 5}, **tied),
        draw.op(1, {"gpu": 10, "cpu": 100}, state_bytes=20),
        draw.op(2, {"gpu": 5, "cpu": 20}, **tied),
    ]
    devices = draw.devices(["gpu", "cpu"], (50, None).__getitem__)
    edges = draw.edges([(0, 1), (1, 2)], [1, 1], [True] * 2, int)
    net = draw.instance_of("tied ops", ops, edges, devices, draw.fast_links(devices))
    semantics = Makespan(memory="peak")
    floor, _ = relax_memory(net, semantics)
    assert bounds_of(knapsack(floor))[1] == 21
    assert bounds_of(knapsack(floor, at_peak=net))[1] == oracle(net, semantics) == 37


def test_what_is_live_while_an_op_runs_counts_at_each_op() -> None:
    # Either op needs 40 bytes of 35 while it runs; the floor counts its workspace at one of them.
    ops = [
        draw.op(i, {"gpu": 10, "cpu": 100}, state_bytes=10, workspace_bytes=30) for i in range(2)
    ]
    devices = draw.devices(["gpu", "cpu"], (35, None).__getitem__)
    net = draw.row(ops, devices, bytes=1)
    semantics = Makespan(memory="peak")
    floor, _ = relax_memory(net, semantics)
    assert bounds_of(knapsack(floor))[1] == 100 + 1 + 10
    assert bounds_of(knapsack(floor, at_peak=net))[1] == oracle(net, semantics) == 200


def test_no_copy_of_a_state_proves_more_than_an_optimum() -> None:
    seen = compare_ops(range(60))
    assert seen["rose"] > 5
    assert seen["optimal"] > 0.5 * seen["all"]


@pytest.mark.deep
def test_no_copy_of_a_state_proves_more_than_optima_of_thousands() -> None:
    assert compare_ops(range(1000, 5000))["rose"] > 300


def test_both_copies_of_a_tied_state_and_what_is_live_count_at_the_peak() -> None:
    # All on the GPU holds 40 (tied) + 40 (layers) + 31 (in a layer, its input of 1 and 30 between
    # its ops) = 111 bytes of 95; the layers and one end as well. So both ends are on the host:
    # 5 + 1 + 40 + 1 + 20 ns. The floor counts the tied state at the embedding alone: 51 ns.
    def half(i: int, layer: str) -> Op:
        return draw.op(i, {"gpu": 10, "cpu": 100}, group=layer, state_bytes=10)

    tied = {"shared_state": {"tied": 40}}
    ops = [
        draw.op(0, {"gpu": 5, "cpu": 5}, **tied),
        *(half(1, "a"), half(2, "a"), half(3, "b"), half(4, "b")),
        draw.op(5, {"gpu": 5, "cpu": 20}, **tied),
    ]
    devices = draw.devices(["gpu", "cpu"], (95, None).__getitem__)
    sizes = draw.edges([(i, i + 1) for i in range(5)], (1, 30, 1, 30, 1), [True] * 5, int)
    net = draw.instance_of("tied", ops, sizes, devices, draw.fast_links(devices))
    semantics = Makespan(memory="peak")
    floor, _ = relax_memory(net, semantics)
    assert (chain_bound(floor), chain_bound(floor, net)) == (51, 67)
    assert chain_bound(floor, net, lambda: True) == 51  # stopped before it divides
    result = run_method(net, semantics, "memory-knapsack")
    assert (result.status, result.value_ns, result.rests_on) == ("optimal", 67, PROOF)


def test_no_bound_is_above_an_optimum_where_ops_side_by_side_are_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_knapsack, "MOST_WAYS", 0)  # no way to share ops out is told apart
    rose = 0
    for seed in range(20):
        instance = drawn_fan(seed)
        semantics = Makespan(channels=("port", "half_duplex", "port", "link", "free")[seed % 5])
        bound = relaxed(knapsack(instance, semantics))[0]
        assert bound <= oracle(instance, semantics)
        rose += bound > relaxed(knapsack(instance))[0]
    assert rose > 0  # rows of ports hold where each edge is a transfer


def test_no_bound_is_above_an_optimum_under_any_channels() -> None:
    reached = 0
    for seed in range(24):
        instance = drawn(seed)
        channels = ("free", "link", "port", "half_duplex")[seed % 4]
        semantics = Makespan(channels=channels, transfers=("per_edge", "per_tensor")[seed % 2])
        best = oracle(instance, semantics)
        if best is None or not instance.arrays.possible.any(axis=1).all():
            continue
        assert relaxed(knapsack(instance))[0] <= best
        assert chain_bound(instance) <= best
        found = run(Task(instance, semantics))
        assert found.plan is None or evaluate(instance, found.plan, semantics).feasible
        assert found.bound_value <= best
        reached += found.bound_value == best
    assert reached > 6  # it is exact on most chains


def test_whole_layers_beside_a_host_are_proven_optimal_in_integers() -> None:
    # 80 MB of 153 on the GPU: two layers and an end, or one layer and both ends
    cluster = cluster_of("tiny", (Card(272 * GB, 80 * 10**6), DDR4), PCIE4)
    instance = decode_step(SMALL, cluster, "layer")
    stops = stops_of(instance)
    assert len(stops.group) == 7  # embedding, four layers, norm, head
    found = least_chain(instance, stops)
    result = run_method(instance, Makespan(), "memory-knapsack")
    assert (result.status, result.rests_on) == ("optimal", "proof")
    assert result.value == result.bound_value == found.ns
    model = knapsack(instance)
    assert relaxed(model)[0] <= found.ns


@pytest.mark.parametrize("num", [32, 64])  # so many impossible times wrap around 64 bits
def test_a_layer_of_many_ops_is_on_no_device_that_cannot_run_it(num: int) -> None:
    ops = [Op(name="op0", time_ns={"a": 5, "b": 5})]
    ops += [Op(name=f"op{i}", time_ns={"b": 1}, colocation="layer") for i in range(1, num + 1)]
    pairs = [pair for i in range(1, num) for pair in ((0, i), (i, num))]
    edges = draw.edges(pairs, [], [False] * num, lambda: 1)
    devices = draw.devices("ab")
    instance = draw.instance_of("layer", ops, edges, devices, draw.fast_links(devices))
    stops = stops_of(instance)
    found = least_chain(instance, stops)
    assert (found.ns, found.at.tolist()) == (5 + num, [1, 1])  # all on b: nothing is sent


def test_prices_prove_as_much_of_terabytes_as_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # 40 layers of 10 to 19 units in a row, half of which fit on the GPU: without prices a label for
    # nearly every set of them is kept
    monkeypatch.setattr(layer_chain, "MOST_LABELS", 300)
    found = []
    for unit in (1, 10**11):
        rng = random.Random(0)
        ops = [
            Op(
                name=f"op{i}",
                time_ns={
                    "gpu": rng.randrange(10, 20) * 10**6,
                    "cpu": rng.randrange(20, 200) * 10**6,
                },
                resident_bytes=rng.randrange(10, 20) * unit,
            )
            for i in range(40)
        ]
        devices = draw.devices(["gpu", "cpu"], (draw.share_of(ops, 1, 2), None).__getitem__)
        instance = draw.row(ops, devices, bytes=1)
        stops = stops_of(instance)
        found.append(least_chain(instance, stops))
    assert found[0].ns == found[1].ns


def test_tied_embeddings_are_on_one_device_at_both_ends_of_the_chain() -> None:
    tied = Decoder("tied", 3, 1024, 256, 4096, 8000, tied=True, context=128)
    cluster = cluster_of("tiny", (Card(272 * GB, 50 * 10**6), DDR4), PCIE4)
    result = run_method(decode_step(tied, cluster, "layer"), Makespan(), "memory-knapsack")
    assert result.status == "optimal"
    assert result.plan.placement[0] == result.plan.placement[-1]


def two_layers_of_experts() -> Instance:
    """A step of a decoder with eight experts in each of its two layers."""
    experts = Decoder("experts", 2, 1024, 256, 8192, 1000, 8, 2, context=16)
    return decode_step(experts, cluster_of("pair", (Card(272 * GB, 500 * 10**6), DDR4), PCIE4))


def test_equal_experts_are_one_class_and_move_by_number() -> None:
    instance = two_layers_of_experts()
    model = knapsack(instance)
    classes = model.classes
    assert sorted(classes.op_count.tolist())[-2:] == [8, 8]
    result = run_method(instance, Makespan(), "memory-knapsack", time_limit_s=10)
    assert evaluate(instance, result.plan, Makespan()).feasible
    assert result.gap < 0.05


def test_where_the_mip_is_too_large_the_plan_is_that_of_the_lp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # what the LP's duals prove stands, and its plan, rounded, costs little more
    instance = two_layers_of_experts()
    monkeypatch.setattr(memory_knapsack, "MOST_MIP", 0)
    found = run(Task(instance, Makespan()))
    model = knapsack(instance)
    assert "too large" in found.message
    assert (found.bound_value, found.rests_on) == (relaxed(model)[0], PROOF)
    value_ns = evaluate(instance, found.plan, Makespan()).value_ns
    assert found.bound_value <= value_ns < 1.2 * found.bound_value


def test_the_bound_is_what_the_bytes_on_each_device_take_to_read() -> None:
    # The GPU is full, and the embedding is on the host, for one row of it is read: the rest of the
    # weights and of the cache is read at the host's speed. Launches are 5 us for each op.
    cluster = cluster_of("8 GB + DDR4", (Card(272 * GB, 7 * GIB), DDR4), PCIE4)
    instance = decode_step(MODELS[0], cluster, "layer")
    model = knapsack(instance)
    held = sum(op.resident_bytes for op in instance.graph.ops)
    on_host = held - 7 * GIB - 32000 * 4096 * 2
    seconds = on_host / (45 * GB) + 7 * GIB / (272 * GB) + 5e-6 * instance.num_ops
    assert abs(relaxed(model)[0] / 1e9 / seconds - 1) < 0.001
