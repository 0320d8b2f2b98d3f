"""Moirai's MILP as a method: equal to brute force, honest about every ending."""

from __future__ import annotations

import pytest
from draws.tiny import SHARED, needs_moirai
from draws.twins import CLUSTERS, twin_instance
from references.brute_force import makespan_draws, oracle

from placegap.formulations import moirai
from placegap.formulations.moirai import Form, count_rows
from placegap.instances import Cluster, Device, Instance, Link, Makespan, Plan, example
from placegap.instances.corpus.generate import generate
from placegap.instances.importers.reader import load_model
from placegap.instances.problem import Channels
from placegap.instances.reading.errors import InputError
from placegap.solvers import Result, run_method
from placegap.solvers.core.back_ends.outcome import MipOutcome
from placegap.solvers.core.result import solver_and_version
from placegap.solvers.models import run_mip as mip

PORT = Makespan()
FORMS: tuple[Form, ...] = ("as_published", "strengthened")
both_forms = pytest.mark.parametrize("form", FORMS)
other_channels = pytest.mark.parametrize("channels", ["free", "link", "half_duplex"])


def layered(num_ops: int) -> Instance:
    """A random layered graph on three equal devices."""
    names = ("a", "b", "c")
    cluster = Cluster(
        name="three",
        devices=tuple(Device(name=name, kind="gpu") for name in names),
        links=tuple(
            Link(source=a, target=b, bandwidth_bytes_per_s=10**9)
            for a in names
            for b in names
            if a != b
        ),
    )
    graph = generate("layered", {"ops": num_ops, "width": 4}, seed=1)
    return Instance(name=f"layered-{num_ops}", graph=graph, cluster=cluster)


@pytest.mark.deep  # test_agreement_makespan.py has some of them
@both_forms
def test_it_equals_brute_force(form: Form) -> None:
    for instance in makespan_draws():
        result = run_method(instance, PORT, "moirai", {"form": form})
        optimum = oracle(instance, PORT)
        assert result.status == ("infeasible" if optimum is None else "optimal"), instance.name
        assert (result.value_ns, result.bound_ns) == (optimum, optimum), instance.name


@pytest.mark.deep
@pytest.mark.parametrize("channels", ["free", "link", "port", "half_duplex"])
def test_it_equals_brute_force_on_many_instances(channels: Channels) -> None:
    semantics = Makespan(channels=channels)
    twins = tuple(
        twin_instance(seed, num_ops=4 + seed % 2, kinds=list(CLUSTERS[seed % len(CLUSTERS)]))
        for seed in range(200)
    )
    for instance in makespan_draws() + twins:
        for symmetry in (True, False):
            result = run_method(instance, semantics, "moirai", {"symmetry": symmetry})
            optimum = oracle(instance, semantics)
            assert (result.value_ns, result.bound_ns) == (optimum, optimum), instance.name


def test_identical_devices_change_no_optimum() -> None:
    for seed in range(12):
        instance = twin_instance(seed, num_ops=5, kinds=list(CLUSTERS[seed % len(CLUSTERS)]))
        for channels in ("port", "link"):
            semantics = Makespan(channels=channels)
            optimum = oracle(instance, semantics)
            for symmetry in (True, False):
                result = run_method(instance, semantics, "moirai", {"symmetry": symmetry})
                assert (result.value_ns, result.bound_ns) == (optimum, optimum), instance.name


@needs_moirai
def test_moirais_example_1_takes_30_ms_by_both_forms() -> None:
    # the published optimum; the strengthened form starts from nothing, the published one from it
    instance = load_model(SHARED / "instances/moirai/example-1.xls").instance()
    strengthened = run_method(instance, PORT, "moirai")
    published = run_method(
        instance, PORT, "moirai", {"form": "as_published"}, incumbent=strengthened.plan
    )
    for result in (strengthened, published):
        assert result.status == "optimal"
        assert result.value_ns == result.bound_ns == 30_000_000
    # 14 ops, 19 edges, 3 devices, memory rows included; a horizon only makes the strengthened less
    assert (published.details["rows"], published.details["columns"]) == (1760, 362)
    assert int(strengthened.details["rows"]) <= 883
    assert int(strengthened.details["columns"]) <= 451


@needs_moirai
def test_googlenet_has_fewer_rows_than_the_target() -> None:
    # a tenth of the 257,113 rows of the program that Moirai's authors published
    instance = load_model(SHARED / "instances/moirai/GoogLeNet.xls").instance()
    for channels in ("port", "link"):
        semantics = Makespan(channels=channels)
        assert count_rows(instance, "strengthened", semantics) <= 25_711


@needs_moirai
def test_googlenet_has_as_many_rows_as_recorded() -> None:
    instance = load_model(SHARED / "instances/moirai/GoogLeNet.xls").instance()
    rows = {
        channels: run_method(
            instance, Makespan(channels=channels), "moirai", time_limit_s=0
        ).details["rows"]
        for channels in ("port", "link")
    }
    assert rows == {"port": 14_064, "link": 17_812}


@both_forms
def test_stopped_at_once_it_returns_the_incumbent(form: Form) -> None:
    incumbent = Plan.on([0, 1, 0, 0])
    params = {"form": form, "symmetry": False}  # with symmetry breaking, presolve proves it
    result = run_method(example(), PORT, "moirai", params, incumbent=incumbent, time_limit_s=0.0)
    assert result.status == "feasible"
    assert result.value_ns is not None
    assert result.value_ns <= 35
    assert "time limit" in result.message


def test_stopped_at_once_without_a_plan_it_says_so() -> None:
    result = run_method(example(), PORT, "moirai", {"start": False}, time_limit_s=0.0)
    assert (result.status, result.plan) == ("no_plan", None)
    assert (result.bound_ns, result.bound_origin) == (33, "critical path")
    assert result.message.startswith("time limit of 0 s reached, no plan found in ")


def test_a_time_limit_is_kept_and_the_bound_is_valid() -> None:
    instance = layered(60)
    result = run_method(instance, PORT, "moirai", time_limit_s=1.0)
    assert result.status == "feasible"
    assert result.value_ns is not None
    assert result.bound_ns is not None
    assert 0 < result.bound_ns < result.value_ns <= run_method(instance, PORT, "heft").value_ns  # type: ignore[operator]
    assert result.build_s + result.solve_s < 60  # not minutes, however slow the machine


def test_the_requested_gap_ends_the_search() -> None:
    result = run_method(layered(12), PORT, "moirai", gap=0.9)
    assert result.status in ("gap_met", "optimal")


def test_other_semantics_are_refused() -> None:
    per_tensor = Makespan(transfers="per_tensor")
    with pytest.raises(InputError, match="states makespan per_edge"):
        run_method(example(), per_tensor, "moirai")


@other_channels
def test_other_channels_than_the_papers_need_the_strengthened_form(channels: Channels) -> None:
    semantics = Makespan(channels=channels)
    with pytest.raises(InputError, match=f"port per_edge as published, not makespan {channels}"):
        run_method(example(), semantics, "moirai", {"form": "as_published"})


def test_models_that_are_too_large_are_refused_unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = layered(300)
    monkeypatch.setattr(moirai, "build", None)
    with pytest.raises(InputError, match=r"\(as_published\) would have \d+ rows"):
        run_method(instance, PORT, "moirai", {"form": "as_published"})
    with pytest.raises(InputError, match="at most 20000 edges"):
        run_method(layered(15_000), PORT, "moirai")


def is_a_fault(result: Result, words: str) -> None:
    """The result is answered from the start and the path, and names solver and version."""
    assert (result.status, result.value_ns, result.bound_ns) == ("feasible", 34, 33)
    assert len(result.faults) == 1
    assert result.faults[0].startswith(f"{solver_and_version('highspy')} on ")
    assert words in result.faults[0]
    assert "HiGHS contradicts a known plan" in result.message
    assert result.details["ending"] == "fault"


def test_a_broken_plan_of_the_solver_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moirai, "extract", lambda model, instance, semantics: Plan.on([0, 0, 0, 7]))
    monkeypatch.setattr(mip, "exclude_overload", lambda model, instance, plan: False)
    is_a_fault(run_method(example(), PORT, "moirai"), "device number 7")


def test_infeasibility_is_not_believed_when_a_plan_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mip, "solve_model", lambda *_, **__: MipOutcome("infeasible"))
    is_a_fault(
        run_method(example(), PORT, "moirai"), "reports infeasible, but a plan of 34 ns is known"
    )


def test_a_bound_above_a_known_plan_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = MipOutcome("optimal", objective=99.0, dual_bound=99.0)
    monkeypatch.setattr(mip, "solve_model", lambda *_, **__: wrong)
    is_a_fault(run_method(example(), PORT, "moirai"), "a bound of 99 ns")


def test_the_same_seed_gives_the_same_plan() -> None:
    plans = {str(run_method(layered(10), PORT, "moirai", seed=3).plan) for _ in range(2)}
    assert len(plans) == 1
