"""Ops of zero time that hold bytes: the same optimum, with far fewer ideals."""

import random

import numpy as np
import pytest
from draws import draw
from draws.chains import best_chain, idle_instance
from draws.equal_devices import equal_device_draws
from references.brute_force import oracle, stage_draws

from placegap.experiments.research.workloads.partitioning_like import (
    KINDS,
    on_devices,
    partitioning_graph,
)
from placegap.instances import Device, Edge, Instance, MaxLoad, Op, Semantics
from placegap.solvers import Result, run_method
from placegap.solvers.chains import bracket
from placegap.solvers.chains.idle_steps import most_held
from placegap.solvers.core.result import PROOF

CHAIN = MaxLoad(plans="chain")
OVERLAP = MaxLoad(plans="chain", load="overlap")
STAGES = tuple(
    MaxLoad(plans="chain", load=load, replicas=replicas, levels=levels)
    for load, replicas, levels in (
        ("add", False, 1),
        ("overlap", False, 1),
        ("add", True, 1),
        ("add", False, 2),
        ("add", True, 2),
    )
)


FEW = bracket.FEW


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run over few ideals comes first, which would leave nothing to do for the steps."""
    monkeypatch.setattr(bracket, "FEW", 0)


def dp(instance: Instance, semantics: Semantics = CHAIN, **limits: object) -> Result:
    return run_method(instance, semantics, "ideal-dp", **limits)  # type: ignore[arg-type]


def judge(result: Result, optimum: int | None) -> None:
    expected = ("infeasible", None) if optimum is None else ("optimal", optimum)
    assert (result.status, result.value_ns) == expected, result.instance
    assert result.rests_on == PROOF


def agrees(seeds: range) -> int:
    """Compare with the enumeration of all chains; how many instances are feasible."""
    feasible = 0
    for seed in seeds:
        instance = idle_instance(seed, most_ops=6)
        for semantics, overlap in ((CHAIN, False), (OVERLAP, True)):
            optimum = best_chain(instance, overlap=overlap)
            judge(dp(instance, semantics), optimum)
            feasible += optimum is not None
    return feasible


def test_idle_ops_with_bytes_change_no_optimum() -> None:
    assert agrees(range(30)) > 30


def test_one_run_over_few_ideals_ends_only_where_nothing_is_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # All on a GPU takes 24 ns, which moving the bytes of "b" to "a" finds. Work alone proves 6, and
    # a first run looks up to 13. "a" on the CPU and "b", which has no room there, on the GPU: 19
    ops = (
        Op(name="a", time_ns={"gpu": 24, "cpu": 6}, resident_bytes=5),
        Op(name="b", time_ns={"gpu": 0, "cpu": 0}, resident_bytes=9),
    )
    edges = (Edge(producer="a", consumer="b", host_time_ns=19),)
    devices = [
        *(Device(name=f"g{k}", kind="gpu") for k in range(2)),
        Device(name="c", kind="cpu", memory_bytes=7, is_host=True),
    ]
    monkeypatch.setattr(bracket, "FEW", FEW)
    judge(dp(draw.instance_of("pair", ops, edges, devices)), 19)


def test_each_step_alone_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without slices first, so that no step has a plan to start from."""
    monkeypatch.setattr(bracket.Bracket, "cut", lambda bracket, max_ideals: None)
    assert agrees(range(1000, 1016)) > 10


def with_idle_ops(instance: Instance) -> Instance:
    """Every second op takes no time."""
    ops = instance.graph.ops
    times = [dict.fromkeys(op.time_ns, 0) if i % 2 else op.time_ns for i, op in enumerate(ops)]
    return draw.with_ops(instance, time_ns=times)


@pytest.mark.parametrize("semantics", STAGES, ids=lambda semantics: semantics.label)
def test_unequal_devices_replicas_and_servers_keep_their_optimum(semantics: Semantics) -> None:
    for plain in [*stage_draws()[::10], *equal_device_draws()[::10]]:
        instance = with_idle_ops(plain)
        judge(dp(instance, semantics), oracle(instance, semantics))


@pytest.mark.deep
@pytest.mark.parametrize("few", [0, FEW])
@pytest.mark.parametrize("start", range(10_000, 14_000, 500))
def test_thousands_of_instances_with_idle_ops_agree(
    start: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bracket, "FEW", few)
    assert agrees(range(start, start + 500)) > 500


def test_a_translator_with_items_and_last_states_has_few_ideals() -> None:
    # 16 last states, sinks that only hold bytes, would make two million ideals of 95 blocks
    result = dp(on_devices(partitioning_graph("translator"), 6, 1))
    assert result.status == "optimal"
    assert result.details["blocks"] == 78
    assert int(result.details["ideals"]) < 20_000


def test_with_eight_hosts_and_memory_that_binds_it_is_proven() -> None:
    graph = partitioning_graph("translator", 1, transfers="heavy", apart=False)
    result = dp(on_devices(graph, 5, 8, memory_share=1.5))
    assert result.status == "optimal"
    assert int(result.details["ideals"]) < 20_000


@pytest.mark.parametrize("family", KINDS)
def test_weights_apart_cost_no_ideals(family: str) -> None:
    result = dp(on_devices(partitioning_graph(family, training=len(family) % 2 == 0), 6, 1))
    assert result.status == "optimal"
    assert int(result.details["ideals"]) < 20_000


def weighted(memory_bytes: int, *, gpus: int = 2) -> Instance:
    """A weight of 6 bytes and the op of 10 ns that it feeds, then an op of 10 ns and 6 bytes."""
    ops = (
        Op(name="w", time_ns={"gpu": 0}, resident_bytes=6),
        Op(name="a", time_ns={"gpu": 10}, resident_bytes=6),
        Op(name="b", time_ns={"gpu": 10}, resident_bytes=6),
    )
    edges = [Edge(producer=p, consumer=c, host_time_ns=1) for p, c in ("wa", "ab")]
    devices = draw.devices(["gpu"] * gpus, lambda k: memory_bytes)
    return draw.instance_of("weighted", ops, edges, devices)


def test_memory_that_no_good_plan_fills_does_not_count() -> None:
    # {w, a} and {b}: 10 + 1 each. At loads below 11 a device does one op, and holds 12 of 18 bytes
    result = dp(weighted(12))
    judge(result, 11)
    assert result.details["blocks"] == 2


def test_a_weight_is_stored_elsewhere_where_its_user_has_no_room() -> None:
    # three devices of 6 bytes: w, a and b part, and a's device pays for both of its tensors
    judge(dp(weighted(6, gpus=3)), 12)
    assert dp(weighted(6)).status == "infeasible"


def test_a_limit_in_the_first_step_leaves_a_plan_and_a_bound() -> None:
    graph = partitioning_graph("encoder", 1, layers=2)
    result = dp(on_devices(graph, 4, 8, memory_share=1.1), params={"max_ideals": 50})
    assert "more than 50 ideals" in result.message
    assert result.bound_ns <= result.value_ns


def test_most_held_is_the_fractional_knapsack() -> None:
    rng = random.Random("held")
    for _ in range(60):
        n = rng.randrange(1, 7)
        time = [rng.choice([0, rng.randrange(1, 20)]) for _ in range(n)]
        size = [rng.choice([0, rng.randrange(10), rng.randrange(10**9, 10**12)]) for _ in range(n)]
        capacity = rng.randrange(0, 40)
        best = max(
            sum(s for i, s in enumerate(size) if chosen >> i & 1)
            for chosen in range(1 << n)
            if sum(t for i, t in enumerate(time) if chosen >> i & 1) <= capacity
        )
        left, most = float(capacity), 0.0
        for s, t in sorted(
            zip(size, time, strict=True), key=lambda item: -item[0] / max(item[1], 1e-9)
        ):
            part = min(1.0, left / t) if t else 1.0
            most, left = most + part * s, left - part * t
        found = most_held(np.array(time), np.array(size), capacity)
        assert best <= found <= most + 1 + 1e-9 * most
