"""Moirai's MILP as a method: equal to brute force, honest about every ending."""

from __future__ import annotations

import pytest
from oracles import makespan_draws, oracle
from support import SHARED, needs_shared

from placegap.formulations import moirai
from placegap.formulations.moirai import Form, count_rows
from placegap.instances import Cluster, Device, Instance, Link, Plan, Semantics, example
from placegap.instances.errors import InputError
from placegap.instances.generate import generate
from placegap.instances.reader import read_model
from placegap.solvers import SolverDisagreement, mip, moirai_milp, solve
from placegap.solvers.highs import MipOutcome

PORT = Semantics(objective="makespan")
FORMS: tuple[Form, ...] = ("as_published", "strengthened")
both_forms = pytest.mark.parametrize("form", FORMS)


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


@both_forms
def test_it_equals_brute_force(form: Form) -> None:
    for instance in makespan_draws():
        result = solve(instance, PORT, "moirai", {"form": form})
        optimum = oracle(instance, PORT)
        assert result.status == ("infeasible" if optimum is None else "optimal"), instance.name
        assert (result.value_ns, result.bound_ns) == (optimum, optimum), instance.name


@needs_shared
def test_moirais_example_1_takes_30_ms_by_both_forms() -> None:
    # the published optimum; the strengthened form starts from nothing, the published one from it
    instance = read_model(SHARED / "instances/moirai/example-1.xls").instance()
    strengthened = solve(instance, PORT, "moirai")
    published = solve(
        instance, PORT, "moirai", {"form": "as_published"}, incumbent=strengthened.plan
    )
    for result in (strengthened, published):
        assert result.status == "optimal"
        assert result.value_ns == result.bound_ns == 30_000_000
    # 14 ops, 19 edges, 3 devices, memory rows included; a horizon only makes the strengthened less
    assert (published.details["rows"], published.details["columns"]) == (1760, 362)
    assert int(strengthened.details["rows"]) <= 883
    assert int(strengthened.details["columns"]) <= 451


@needs_shared
def test_googlenet_has_fewer_rows_than_the_target() -> None:
    # a tenth of the 257,113 rows of the program that Moirai's authors published
    instance = read_model(SHARED / "instances/moirai/GoogLeNet.xls").instance()
    assert count_rows(instance, "strengthened") <= 25_711


@both_forms
def test_stopped_at_once_it_returns_the_incumbent(form: Form) -> None:
    incumbent = Plan.on([0, 1, 0, 0])
    result = solve(example(), PORT, "moirai", {"form": form}, incumbent=incumbent, time_limit_s=0.0)
    assert result.status == "feasible"
    assert result.value_ns is not None
    assert result.value_ns <= 35
    assert "time limit" in result.message


def test_stopped_at_once_without_a_plan_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moirai_milp, "STARTS", ())
    result = solve(example(), PORT, "moirai", time_limit_s=0.0)
    assert (result.status, result.plan, result.bound_ns) == ("no_plan", None, None)
    assert result.message == "time limit reached, no plan found"


def test_a_time_limit_is_kept_and_the_bound_is_valid() -> None:
    instance = layered(60)
    result = solve(instance, PORT, "moirai", time_limit_s=2.0)
    assert result.status == "feasible"
    assert result.value_ns is not None
    assert result.bound_ns is not None
    assert 0 < result.bound_ns < result.value_ns <= solve(instance, PORT, "heft").value_ns  # type: ignore[operator]
    assert result.build_s + result.solve_s < 10


def test_the_requested_gap_ends_the_search() -> None:
    result = solve(layered(12), PORT, "moirai", gap=0.9)
    assert result.status in ("gap_met", "optimal")


def test_other_semantics_are_refused() -> None:
    with pytest.raises(InputError, match="makespan free per_edge"):
        solve(example(), Semantics(objective="makespan", channels="free"), "moirai")


def test_models_that_are_too_large_are_refused_unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = layered(300)
    monkeypatch.setattr(moirai, "build", None)
    with pytest.raises(InputError, match=r"\(as_published\) would have \d+ rows"):
        solve(instance, PORT, "moirai", {"form": "as_published"})
    with pytest.raises(InputError, match="at most 20000 edges"):
        solve(layered(15_000), PORT, "moirai")


def test_a_broken_plan_of_the_solver_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moirai, "extract", lambda model, instance: Plan.on([0, 0, 0, 7]))
    monkeypatch.setattr(mip, "exclude_overload", lambda model, instance, plan: False)
    with pytest.raises(SolverDisagreement, match="device number 7"):
        solve(example(), PORT, "moirai")


def test_infeasibility_is_not_believed_when_a_plan_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mip, "solve_model", lambda *_, **__: MipOutcome("infeasible"))
    with pytest.raises(SolverDisagreement, match="infeasible"):
        solve(example(), PORT, "moirai")


def test_a_bound_above_a_known_plan_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = MipOutcome("optimal", objective=99.0, dual_bound=99.0)
    monkeypatch.setattr(mip, "solve_model", lambda *_, **__: wrong)
    with pytest.raises(SolverDisagreement, match="bound 99 is above"):
        solve(example(), PORT, "moirai")


def test_the_same_seed_gives_the_same_plan() -> None:
    plans = {str(solve(layered(10), PORT, "moirai", seed=3).plan) for _ in range(2)}
    assert len(plans) == 1
