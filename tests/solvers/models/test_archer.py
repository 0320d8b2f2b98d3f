"""Archer et al.: archer-combinatorial is below every chain; archer-exact finds the optimum."""

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
from placegap.solvers import run_method
from placegap.solvers.models import archer
from placegap.solvers.models.archer import heaviest_unit, spread_work

ADD, OVERLAP = (MaxLoad(plans="chain", load=w) for w in ("add", "overlap"))
BOUND = "archer-combinatorial"


def check(instance: Instance, semantics: Semantics, optimum: int | None) -> None:
    found = run_method(instance, semantics, BOUND)
    assert (found.plan, found.bound_class, found.status) == (None, "chain", "bound")
    assert optimum is None or found.bound_ns <= optimum, instance.name


def row(*, devices: Sequence[Device] | None = None, times: int = 4, cost: int = 1) -> Instance:
    """a -> b -> c, on three accelerators if nothing else is said; a host takes 7 ns for each."""
    ops = [Op(name=name, time_ns={"gpu": times, "cpu": 7}) for name in "abc"]
    return draw.row(ops, devices or draw.devices(["gpu"] * 3), host_time_ns=cost)


# ---------------------------------------------------------------------------------------- by hand


def test_a_row_of_three_has_a_bound_of_6() -> None:
    # 12 / 3, and b with the tensors of 1 ns that it cannot avoid, 4 + 1 + 1
    assert run_method(row(), ADD, BOUND).bound_ns == 6
    assert run_method(row(), ADD, "ideal-dp").value_ns == 6


def test_the_bound_of_the_diamond_is_its_third_op_with_its_neighbours() -> None:
    # 10 ns with neighbours of 5 and 8; the best chain is 1 3 | 2 4: 39
    found = run_method(example(), ADD, BOUND)
    assert (found.bound_ns, found.bound_origin) == (23, "archer combinatorial")


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
    assert run_method(row(cost=9), ADD, BOUND).bound_ns == 12


def test_bounds_are_rounded_up_to_what_loads_are_multiples_of() -> None:
    # 30 ns in thirds are 10, and a load a multiple of 10; over 4 devices 7.5, so 10 as well
    tens = row(devices=draw.devices(["gpu"] * 4), times=10, cost=0)
    assert run_method(tens, ADD, BOUND).bound_ns == 10


# ------------------------------------------------------------------------------------- properties


def test_it_is_below_the_optimum_on_equal_devices_and_hosts() -> None:
    for seed in range(10):
        instance = chain_instance(seed)
        check(instance, ADD, best_chain(instance))
        if seed % 2:
            check(instance, OVERLAP, best_chain(instance, overlap=True))


def test_it_is_below_the_optimum_on_unequal_devices() -> None:
    for instance in max_load_draws()[::20]:
        check(instance, ADD, oracle(instance, ADD))


@pytest.mark.deep
def test_it_is_below_the_optimum_on_hundreds() -> None:
    for seed in range(30, 400):
        instance = chain_instance(seed)
        check(instance, ADD, best_chain(instance))
        check(instance, OVERLAP, best_chain(instance, overlap=True))
    for instance in max_load_draws():
        check(instance, ADD, oracle(instance, ADD))
        check(instance, OVERLAP, oracle(instance, OVERLAP))


@needs_dnn_partitioning
def test_layer_bert_24_is_bounded_within_15_percent() -> None:
    # the optimum is 17.789906 ms on 6 accelerators and a CPU
    path = SHARED / "instances/dnn-partitioning/throughput-inputs/LayerGraphs"
    found = run_method(load_model(path / "bert24_inference.json").instance(), ADD, BOUND)
    assert (found.bound_ns or 0) / 17_789_906 == pytest.approx(0.8515, abs=1e-4)


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
