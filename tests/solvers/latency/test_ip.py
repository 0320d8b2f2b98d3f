"""The method latency-ip: equal to brute force, honest about how it ended."""

from collections.abc import Mapping

import pytest
from draws.latency.tiny import ONCE, TWICE, by_hand, latency_draws, optimum
from references.agreement import proves

from placegap.instances import Instance, LatencySubgraphs, Op, Plan, Semantics, evaluate, example
from placegap.instances.reading.errors import InputError
from placegap.solvers import run_method
from placegap.solvers.core.method import Task
from placegap.solvers.core.result import solver_and_version
from placegap.solvers.latency import ip as latency_ip
from placegap.solvers.latency.slices import best_slices, with_slices

MODELS: tuple[Mapping[str, object], ...] = (
    {"model": "cp-sat", "workers": 1},
    {"model": "mip"},
    {"model": "mip", "form": "as_published"},
)
every_model = pytest.mark.parametrize("params", MODELS, ids=["cp-sat", "mip", "as-published"])


def agrees(instance: Instance, semantics: Semantics, params: Mapping[str, object]) -> None:
    result = run_method(instance, semantics, "latency-ip", params)
    proves(result, optimum(instance, semantics), instance.name)


@every_model
def test_it_equals_brute_force_without_a_start(
    params: Mapping[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency_ip, "STARTS", ())
    monkeypatch.setattr(latency_ip, "with_slices", lambda task: task)
    for instance in latency_draws()[::16]:
        agrees(instance, ONCE, {**params, "start": False})


def test_the_start_cuts_an_order_where_memory_and_transfers_say() -> None:
    # three ops of 1, two fit on each accelerator, the tensors take 9 and 2: a b | c takes
    # 1 + 1 + 2, then 2 + 1
    ops = [Op(name=x, time_ns={"gpu": 1}, resident_bytes=1) for x in "abc"]
    instance = by_hand(ops, "a b 9, b c 2", room=2)
    plan = best_slices(Task(instance, ONCE))
    assert plan.devices.tolist() == [0, 0, 1]
    assert evaluate(instance, plan, ONCE).value_ns == 7


def test_an_incumbent_that_is_better_than_the_slices_is_kept() -> None:
    # two ops side by side: slices put them one after the other, apart they take 5
    instance = by_hand(Op(name=x, time_ns={"gpu": 5}) for x in "ab")
    apart = Plan.on([0, 1])
    assert with_slices(Task(instance, ONCE, incumbent=apart)).incumbent == apart
    assert with_slices(Task(instance, ONCE)).incumbent is not None


@every_model
def test_stopped_at_once_it_returns_its_start_or_says_that_there_is_none(
    params: Mapping[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_method(example(), ONCE, "latency-ip", params, time_limit_s=0.0)
    assert result.status in ("feasible", "optimal")
    assert result.value_ns == 43
    assert result.status == "optimal" or "time limit" in result.message
    monkeypatch.setattr(latency_ip, "STARTS", ())
    monkeypatch.setattr(latency_ip, "with_slices", lambda task: task)
    params = {**params, "start": False}
    result = run_method(example(), ONCE, "latency-ip", params, time_limit_s=0.0)
    assert (result.status, result.plan) == ("no_plan", None)
    assert "no plan found" in result.message


@pytest.mark.parametrize(
    ("error", "ending"), [(KeyboardInterrupt, "interrupted"), (MemoryError, "memory_limit")]
)
def test_a_cp_sat_model_that_is_not_built_keeps_the_start(
    error: type[BaseException], ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("placegap.formulations.latency_ip.cp.build", fail)
    result = run_method(example(), ONCE, "latency-ip", {"workers": 1})
    assert (result.value_ns, result.details["ending"]) == (43, ending)
    assert result.bound_ns == 43  # of the chains
    assert f"before {solver_and_version('ortools')} answered" in result.message


def test_a_plan_that_fits_nowhere_is_proven_infeasible() -> None:
    instance = by_hand((Op(name=x, time_ns={"gpu": 1}, resident_bytes=2) for x in "abc"), room=3)
    for params in MODELS:
        assert run_method(instance, TWICE, "latency-ip", params).status == "infeasible"


def test_large_models_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placegap.solvers.models.run_mip.MOST_ROWS", 20)
    with pytest.raises(InputError, match="than 20"):
        run_method(example(), ONCE, "latency-ip")


@every_model
def test_a_cluster_of_hosts_only_runs_everything_on_them(params: Mapping[str, object]) -> None:
    # five ops of 1 ns in a row
    ops = [Op(name=x, time_ns={"cpu": 1}) for x in "abcde"]
    instance = by_hand(ops, "a b 3, b c 3, c d 3, d e 3", ["cpu"])
    result = run_method(instance, LatencySubgraphs(), "latency-ip", params)
    assert (result.value_ns, result.bound_ns) == (5, 5)
