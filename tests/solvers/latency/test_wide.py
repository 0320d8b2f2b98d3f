"""`latency` on sections of many nodes, and its bounds on instances full of colocation groups."""

from __future__ import annotations

import numpy as np
import pytest
from draws.latency.groups import grouped_draw
from draws.latency.tiny import by_hand, optimum
from references.agreement import few_and_many, keeps_sides, proves

from placegap.formulations.latency_ip.chain_bound import chain_bound_ns
from placegap.instances import Instance, LatencySubgraphs, Op, Semantics
from placegap.solvers import run_method
from placegap.solvers.latency import latency
from placegap.solvers.latency import spine as latency_spine
from placegap.solvers.latency.call_rows import best_row
from placegap.solvers.latency.spine import absorbed, build_nodes, build_spine

ONCE, TWICE, THRICE = (LatencySubgraphs(subgraphs=q) for q in (1, 2, 3))
BESIDE = (None, 0, 1, 2)


def branches(count: int, width: int, accelerators: int = 1, host: bool = False) -> Instance:
    """A section of `count` ops of 1 ns and 1 byte in `width` lines, between two others."""
    lines = np.array_split(np.arange(1, count + 1), width)
    pairs = [(a, b) for line in lines for a, b in zip([0, *line], [*line, count + 1], strict=False)]
    kinds = {"gpu": 1, "cpu": 5} if host else {"gpu": 1}
    ops = tuple(Op(name=f"o{i}", time_ns=kinds, resident_bytes=1) for i in range(count + 2))
    edges = ", ".join(f"o{a} o{b} 3" for a, b in pairs)
    room = -(-(count + 2) // accelerators) + 1
    return by_hand(ops, edges, ["gpu"] * accelerators + ["cpu"] * host, room)


@pytest.mark.parametrize("count", [64, 65])
def test_sections_of_any_size_are_enumerated(count: int) -> None:
    # one call holds all, without a transfer: count + 2 ns; two lines, so that all ideals are listed
    result = run_method(branches(count, 2), ONCE, "latency", {"finish": False, "moves": 0})
    assert (result.value_ns, result.bound_ns) == (count + 2, count + 2)
    assert (result.status, result.bound_origin) == ("optimal", "sections")


def test_wide_sections_give_a_plan_and_a_bound() -> None:
    count, width = 120, 8
    instance = branches(count, width, accelerators=3, host=True)
    for semantics in (ONCE, TWICE):
        params = {"finish": False, "moves": 200, "rounds": 1}
        result = run_method(instance, semantics, "latency", params, time_limit_s=0.5)
        assert "failed" not in result.details
        # a path of that many ops, each at least 1 ns
        assert count // width + 2 <= (result.bound_ns or 0) <= result.value_ns


def test_a_phase_that_fails_costs_neither_plan_nor_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OverflowError("too many nodes")

    instance = branches(9, 3, accelerators=2, host=True)
    best = run_method(instance, ONCE, "latency", {"workers": 1, "moves": 100})
    assert best.status == "optimal"
    for where in ("best_row", "chain_bound_ns", "anneal_calls", "best_start", "row_places"):
        with monkeypatch.context() as patch:
            patch.setattr(latency, where, fails)
            result = run_method(instance, ONCE, "latency", {"workers": 1, "moves": 100})
        assert (result.status, result.value_ns) == ("optimal", best.value_ns), where
        assert "failed: OverflowError: too many nodes" in str(result.details["failed"]), where
        assert str(result.details["failed"]) in result.message, where
    monkeypatch.setattr(latency.latency_ip, "solve_cp", fails)
    monkeypatch.setattr(latency, "best_row", fails)
    result = run_method(instance, ONCE, "latency", {"workers": 1, "moves": 10}, time_limit_s=0.5)
    assert result.value_ns is not None
    assert result.bound_ns
    assert "rows failed" in result.message
    assert result.rests_on == "proof"


def test_a_constant_goes_where_its_consumer_goes() -> None:
    # w feeds b of its group, a copy c takes b's tensor and passes it on: one set; d is another
    ops = [
        Op(name=x, time_ns={"gpu": 0 if x in "wc" else 2}, colocation="g" if x in "wbc" else None)
        for x in "wbcd"
    ]
    instance = by_hand(ops, "w b 1, b c 1, c d 1", ["gpu"])
    assert absorbed(instance).tolist() == [1, 1, 1, 3]


def compare_bounds(instance: Instance, semantics: Semantics) -> bool:
    """No row and no chain is above the optimum; whether one is equal to it."""
    best, q = optimum(instance, semantics), semantics.subgraphs
    if best is None:
        return False
    accelerators = ~instance.arrays.is_host
    room = int(instance.arrays.memory_bytes[accelerators].max(initial=0))
    found = [chain_bound_ns(instance, semantics)]
    for apart in (False, True)[: 1 + (q == 1)]:
        nodes = build_nodes(instance, q, apart=apart)
        most_calls = min(int(accelerators.sum()) * q, len(nodes.own_ns))
        for beside in BESIDE:
            for representatives_only in (False, True):
                spine = build_spine(nodes, beside, representatives_only=representatives_only)
                found.append(best_row(spine, room, most_calls).cost_ns)
    assert max(found) <= best, (instance.name, semantics.label)
    return max(found) == best


def grouped(scale: str, seeds: range) -> list[tuple[Instance, Semantics]]:
    """Instances and semantics that brute force takes few ms for."""
    return [
        (instance, semantics)
        for seed in seeds
        for semantics in (ONCE, TWICE, THRICE)
        if (instance := grouped_draw(seed, scale)) and slots(instance, semantics) <= 8000
    ]


def slots(instance: Instance, semantics: Semantics) -> int:
    hosts = int(instance.arrays.is_host.sum())
    calls = (instance.num_devices - hosts) * semantics.subgraphs
    return int((hosts + calls) ** instance.num_ops)


@few_and_many(6, 4000)
@pytest.mark.parametrize("scale", ["small", "real"])
def test_no_bound_is_above_the_optimum_of_groups(
    scale: str, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = grouped(scale, seeds)
    exact = [compare_bounds(*pair) for pair in pairs]
    monkeypatch.setattr(latency_spine, "MOST_IDEALS", 3)
    for pair in pairs[::4]:
        compare_bounds(*pair)
    assert len(pairs) >= len(seeds)
    assert sum(exact) >= len(seeds) // 2


@few_and_many(6, 1000)
@pytest.mark.parametrize("scale", ["small", "real"])
def test_it_agrees_with_brute_force_on_groups(scale: str, seeds: range) -> None:
    for instance, semantics in grouped(scale, seeds):
        result = run_method(instance, semantics, "latency", {"workers": 1, "moves": 300})
        assert "failed" not in result.details
        best, where = optimum(instance, semantics), f"{instance.name} {semantics.label}"
        keeps_sides(result, best, where)
        if best is not None and scale == "small":  # CP-SAT counts long times in larger units
            proves(result, best, where)
