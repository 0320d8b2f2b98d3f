"""Archer et al.: bounds below every chain, in order; archer-exact finds the optimum."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from draws import draw
from draws.chains import best_chain, chain_instance
from draws.tiny import SHARED, needs_dnn_partitioning
from references.brute_force import max_load_draws, oracle

from placegap.formulations.archer import build_units
from placegap.instances import Device, Edge, Instance, MaxLoad, Op, Plan, Semantics, example
from placegap.instances.importers.reader import load_model
from placegap.solvers import Result, run_method
from placegap.solvers.models import archer
from placegap.solvers.models.archer import heaviest_unit, spread_work

ADD, OVERLAP = (MaxLoad(plans="chain", load=w) for w in ("add", "overlap"))
IN_ORDER = (
    ("archer-combinatorial", {}),
    ("archer-three-blocks", {}),
    ("archer-bottleneck", {"over": "min"}),
    ("archer-bottleneck", {"over": "max"}),
)
MIPS = IN_ORDER[1:]


def bounds(instance: Instance, semantics: Semantics = ADD, **limits: float) -> list[Result]:
    """From the combinatorial bound to the best."""
    return [run_method(instance, semantics, name, params, **limits) for name, params in IN_ORDER]


def check(instance: Instance, semantics: Semantics, optimum: int | None) -> None:
    found = bounds(instance, semantics)
    assert all(result.plan is None for result in found)
    assert all(result.bound_class == "chain" for result in found)
    if optimum is None:
        assert all(result.status in ("bound", "infeasible") for result in found)
        return
    assert {result.status for result in found} == {"bound"}
    values = [result.bound_ns for result in found]
    assert sorted([*values, optimum]) == [*values, optimum], instance.name  # type: ignore[type-var]


def row(*, devices: Sequence[Device] | None = None, times: int = 4, cost: int = 1) -> Instance:
    """a -> b -> c, on three accelerators if nothing else is said; a host takes 7 ns for each."""
    ops = [Op(name=name, time_ns={"gpu": times, "cpu": 7}) for name in "abc"]
    return draw.row(ops, devices or draw.devices(["gpu"] * 3), host_time_ns=cost)


# ---------------------------------------------------------------------------------------- by hand


def test_a_row_of_three_has_bounds_of_6_and_the_models_alone_5() -> None:
    # Combinatorial: 12 / 3, and b with the tensors of 1 ns that it cannot avoid, 4 + 1 + 1. The
    # three superblocks alone reach 5 (a | b c), the second of three places 6 (a | b | c).
    assert [result.bound_ns for result in bounds(row())] == [6, 6, 6, 6]
    assert run_method(row(), ADD, "ideal-dp").value_ns == 6


def test_on_two_devices_the_superblocks_of_the_diamond_are_a_plan() -> None:
    # 23: the third op, 10 ns, with its neighbours of 5 and 8. One other device is before or after
    # the bottleneck: 1 3 | 2 4, which takes 5 + 10 + 1 + 10 and 20 + 8 + 1 + 10 = 39, the optimum.
    found = bounds(example())
    assert [result.bound_ns for result in found] == [23, 39, 39, 39]
    assert [result.bound_origin for result in found] == [
        "archer combinatorial",
        "archer three blocks (highs)",
        "archer bottleneck (highs)",
        "archer bottleneck (highs)",
    ]


def test_work_spreads_over_accelerators_and_hosts() -> None:
    # 12 ns of gpu work, 21 of cpu work; in time T the gpu does T and the host 4 / 7 T: T = 84 / 11
    devices = (Device(name="g", kind="gpu"), Device(name="h", kind="cpu", is_host=True))
    units = build_units(row(devices=devices))
    assert spread_work(units) == 8
    # b on the gpu, 4 + 1 + 1, or 7 on the host
    assert heaviest_unit(units, "add") == 6
    # hosts alone: no tensor is paid
    assert heaviest_unit(build_units(row(devices=devices[1:])), "add") == 7
    assert spread_work(build_units(row(devices=devices[1:]))) == 21


def test_a_neighbour_is_cut_off_or_joins() -> None:
    # b has a and c beside it, 4 ns each, or pays 9 for their tensors: 12 in any case
    assert heaviest_unit(build_units(row(cost=9)), "add") == 12
    assert heaviest_unit(build_units(row(cost=9)), "overlap") == 4
    assert [result.bound_ns for result in bounds(row(cost=9))] == [12, 12, 12, 12]


def test_bounds_are_rounded_up_to_what_loads_are_multiples_of() -> None:
    # 30 ns in thirds are 10, and a load a multiple of 10; over 4 devices 7.5, so 10 as well
    found = bounds(row(devices=draw.devices(["gpu"] * 4), times=10, cost=0))
    assert [result.bound_ns for result in found] == [10, 10, 10, 10]


# ------------------------------------------------------------------------------------- properties


def test_they_are_in_order_and_below_the_optimum_on_equal_devices_and_hosts() -> None:
    for seed in range(10):
        instance = chain_instance(seed)
        check(instance, ADD, best_chain(instance))
        if seed % 2:
            check(instance, OVERLAP, best_chain(instance, overlap=True))


def test_they_are_in_order_and_below_the_optimum_on_unequal_devices() -> None:
    for instance in max_load_draws()[::20]:
        check(instance, ADD, oracle(instance, ADD))


@pytest.mark.deep
def test_they_are_below_the_optimum_on_hundreds() -> None:
    for seed in range(30, 400):
        instance = chain_instance(seed)
        check(instance, ADD, best_chain(instance))
        check(instance, OVERLAP, best_chain(instance, overlap=True))
    for instance in max_load_draws():
        check(instance, ADD, oracle(instance, ADD))
        check(instance, OVERLAP, oracle(instance, OVERLAP))


# ---------------------------------------------------------------------------------------- endings


def test_without_time_the_combinatorial_bound_is_left() -> None:
    for result in bounds(example(), time_limit_s=0.0)[1:]:
        assert (result.status, result.bound_ns) == ("bound", 23)
        assert result.bound_origin == "archer combinatorial"
        assert "time limit" in result.message


def test_too_little_memory_is_proven_infeasible() -> None:
    # an op that no device holds
    ops = (Op(name="a", time_ns={"x": 1}, resident_bytes=3),)
    instance = draw.instance_of("full", ops, (), draw.devices("xx", lambda k: 2))
    for name, params in MIPS:
        result = run_method(instance, ADD, name, params)
        assert result.status == "infeasible"
        assert "no chain plan exists" in result.message


def test_the_middle_comes_first() -> None:
    assert archer._middle_out(5) == [3, 2, 4, 1, 5]
    assert archer._middle_out(4) == [2, 3, 1, 4]


@needs_dnn_partitioning
def test_layer_bert_24_is_bounded_within_a_tenth() -> None:
    # the optimum is 17.789906 ms on 6 accelerators and a CPU
    path = SHARED / "instances/dnn-partitioning/throughput-inputs/LayerGraphs"
    found = bounds(load_model(path / "bert24_inference.json").instance())
    ratios = [(result.bound_ns or 0) / 17_789_906 for result in found]
    assert ratios == pytest.approx([0.8515, 0.8660, 0.8677, 0.9070], abs=1e-4)


# ----------------------------------------------------------------------------------- archer-exact


ADD, OVERLAP = (MaxLoad(plans="chain", load=w) for w in ("add", "overlap"))


def test_a_row_of_three_is_cut_where_that_costs_least() -> None:
    # 4 ns each, tensors of 3 and 1 ns: a b | c is 8 + 1 and 1 + 4; a | b c: 7 and 11
    result = run_method(with_costs((3, 1)), ADD, "archer-exact")
    assert (result.status, result.value_ns) == ("optimal", 9)
    assert result.plan in (Plan.on([0, 0, 1]), Plan.on([1, 1, 0]))


def test_plans_that_exceed_memory_by_a_byte_are_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ops of a little over 10**12 bytes, tensors of 9 ns. The rows of memory, a millionth wide, let
    # two of them onto a device of 2 * 10**12: 8 + 9 and 9 + 4. In truth each has its own device.
    monkeypatch.setattr(archer, "STARTS", ())
    big = 10**12
    instance = with_costs((9, 9), devices=3, memory=2 * big, sizes=(big + 1, big + 2, big + 3))
    result = run_method(instance, ADD, "archer-exact", {"start": False})
    assert (result.status, result.value_ns) == ("optimal", 22)  # b pays 9 + 4 + 9


def with_costs(
    costs: tuple[int, int],
    *,
    devices: int = 2,
    memory: int | None = None,
    sizes: tuple[int, ...] = (0, 0, 0),
) -> Instance:
    """a -> b -> c, 4 ns each."""
    ops = tuple(
        Op(name=name, time_ns={"gpu": 4}, resident_bytes=size)
        for name, size in zip("abc", sizes, strict=True)
    )
    edges = [
        Edge(producer=a, consumer=b, host_time_ns=cost)
        for (a, b), cost in zip(("ab", "bc"), costs, strict=True)
    ]
    return draw.instance_of("row", ops, edges, draw.devices(["gpu"] * devices, lambda k: memory))
