"""The throughput IP as a method: equal to the enumeration of all assignments."""

from __future__ import annotations

import pytest
from draws import draw
from draws.equal_devices import equal_device_draws
from draws.tiny import SHARED, needs_dnn_partitioning
from references.brute_force import (
    STAGE_SEMANTICS,
    max_load_draws,
    oracle,
    scattered_instance,
)

from placegap.instances import (
    Instance,
    MaxLoad,
    MaxLoadFwdBwd,
    Op,
    Semantics,
    example,
)
from placegap.instances.importers.reader import read_model
from placegap.instances.reading.errors import InputError
from placegap.solvers import run_method
from placegap.solvers.models import milps
from placegap.solvers.models.run_mip import exclude_overload

ADD, OVERLAP = (MaxLoad(load=load) for load in ("add", "overlap"))


def agree(instance: Instance, semantics: Semantics, *, start: bool = True) -> None:
    result = run_method(instance, semantics, "throughput-ip", {"start": start})
    best = oracle(instance, semantics)
    assert result.status == ("infeasible" if best is None else "optimal"), instance.name
    assert (result.value_ns, result.bound_ns) == (best, best), instance.name


@pytest.mark.parametrize(
    "semantics",
    [
        MaxLoad(plans="chain"),
        MaxLoadFwdBwd(plans="convex", load="overlap"),
        MaxLoad(replicas=True, levels=2),
    ],
    ids=lambda semantics: semantics.label,
)
def test_it_equals_brute_force_without_a_start(
    semantics: MaxLoad | MaxLoadFwdBwd, monkeypatch: pytest.MonkeyPatch
) -> None:
    # test_agreement_load.py has the large samples; these devices are alike in threes and fours
    monkeypatch.setattr(milps, "STARTS", ())
    staged = semantics == MaxLoad(replicas=True, levels=2)
    for instance in (equal_device_draws() if staged else max_load_draws())[::30]:
        agree(instance, semantics, start=False)


@pytest.mark.deep
@pytest.mark.parametrize("semantics", STAGE_SEMANTICS, ids=lambda semantics: semantics.label)
def test_it_equals_brute_force_on_all_equal_devices(semantics: Semantics) -> None:
    for instance in equal_device_draws():
        agree(instance, semantics)


def test_a_replicated_plan_may_be_the_start() -> None:
    semantics, instance = MaxLoad(plans="chain", replicas=True), equal_device_draws()[0]
    best = run_method(instance, semantics, "brute-force")
    assert best.plan is not None
    given = best.plan
    result = run_method(instance, semantics, "throughput-ip", time_limit_s=0.0, incumbent=given)
    assert result.value_ns == best.value_ns


def test_contiguous_names_the_class_of_plans() -> None:
    result = run_method(example(), ADD, "throughput-ip", {"contiguous": "no"})
    assert result.value_ns == oracle(example(), ADD)


@pytest.mark.parametrize("seed", [123, 234])
def test_the_installed_highs_does_not_lose_optima_in_presolve(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # HiGHS 1.14.0 calls larger values optimal on these: 15 and 11
    monkeypatch.setattr(milps, "STARTS", ())
    instance = scattered_instance(seed, num_ops=4, num_devices=2, max_edges=5)
    optimum = {123: 13, 234: 9}[seed]
    assert oracle(instance, ADD) == optimum
    result = run_method(instance, ADD, "throughput-ip", {"start": False})
    assert (result.value_ns, result.bound_ns) == (optimum, optimum)


def test_plans_that_exceed_memory_by_one_byte_are_excluded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Three ops of a little over 10**12 bytes; a device holds one of them, and lacks a few bytes of
    # 2 * 10**12 for two. So one each, the least (1 ns) no better on the slow device: 50.
    excluded = []

    def counted(*arguments: object) -> bool:
        excluded.append(exclude_overload(*arguments))  # type: ignore[arg-type]
        return excluded[-1]

    monkeypatch.setattr("placegap.solvers.models.run_mip.exclude_overload", counted)
    monkeypatch.setattr(milps, "STARTS", ())
    big = 10**12
    ops = tuple(
        Op(name=f"op{i}", time_ns={"gpu": time, "cpu": 50}, resident_bytes=big + extra)
        for i, (time, extra) in enumerate(((9, 1), (5, 3), (1, 5)))
    )
    devices = draw.devices(["gpu", "gpu", "cpu"], lambda k: 2 * big)
    instance = draw.instance_of("tight", ops, (), devices)
    result = run_method(instance, ADD, "throughput-ip", {"start": False})
    assert (result.status, result.value_ns) == ("optimal", 50)
    assert any(excluded)


@needs_dnn_partitioning
def test_operator_bert_3_is_solved_to_a_millionth() -> None:
    # 21.908377 ms: Tarnawski et al.'s operator graph of BERT-3, inference, 3 accelerators, 1 CPU;
    # the best known split has 21.9084, its bound 21.9062; the contiguous optimum is 27.9186
    path = SHARED / "instances/dnn-partitioning/throughput-inputs/OperatorGraphs"
    instance = read_model(path / "bert_l-3_inference.json").instance()
    result = run_method(instance, ADD, "throughput-ip", gap=1e-5, time_limit_s=60)
    assert result.status == "gap_met"
    assert result.bound_ns <= 21_908_377 <= result.value_ns <= 21_908_377 * (1 + 1e-5)


@pytest.mark.parametrize(("parameter_bytes", "start"), [(10**4, True), (10**12, False)])
def test_weights_too_large_to_synchronise_do_not_blunt_the_bound(
    parameter_bytes: int, start: bool
) -> None:
    # A unit of time that fits the synchronisation of all weights leaves nothing of 26 ns: the
    # model's optimum of 0 units was said to be proven, with a bound of 0.
    sizes = (parameter_bytes, 2 * parameter_bytes, parameter_bytes // 2, parameter_bytes)
    ops = tuple(
        Op(name=f"op{i}", time_ns={"gpu": 5 + i}, resident_bytes=size, parameter_bytes=size)
        for i, size in enumerate(sizes)
    )
    devices, links = draw.devices(["gpu"] * 3), draw.links(3, lambda a, b: (10**6, 0))
    instance = draw.instance_of("weights", ops, draw.row(ops, devices).graph.edges, devices, links)
    # 5, 6, 7 and 8 ns on three devices: 11, 7 and 8, and replicas would take milliseconds
    result = run_method(instance, MaxLoad(replicas=True), "throughput-ip", {"start": start})
    assert (result.status, result.value_ns, result.bound_ns) == ("optimal", 11, 11)


def test_other_classes_of_plans_are_refused() -> None:
    chain = MaxLoad(plans="chain")
    with pytest.raises(InputError, match="max_load chain add"):
        run_method(example(), chain, "throughput-ip", {"contiguous": "convex"})
    with pytest.raises(InputError, match="contiguous"):
        run_method(example(), ADD, "throughput-ip", {"contiguous": "perhaps"})
