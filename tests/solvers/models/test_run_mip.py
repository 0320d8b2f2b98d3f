"""What all MIP models share: how they end, what they refuse, and what is a fault of the solver."""

from __future__ import annotations

import pytest
from draws.equal_devices import layered

from placegap.formulations import moirai, pesto
from placegap.instances import InputError, Makespan, MaxLoad, Plan, Semantics, example
from placegap.solvers import Result, run_method
from placegap.solvers.core.back_ends.outcome import MipOutcome
from placegap.solvers.core.result import solver_and_version
from placegap.solvers.models import archer, milps
from placegap.solvers.models import run_mip as mip

PORT = Makespan()
CHAIN = MaxLoad(plans="chain")


@pytest.mark.parametrize(
    ("method", "semantics", "bound"),
    [
        ("moirai", PORT, (33, "critical path")),
        ("pesto", pesto.SEMANTICS, (33, "critical path")),
        ("throughput-ip", MaxLoad(plans="any"), (22, "work")),  # 43 ns on two devices
        ("archer-exact", CHAIN, (23, "archer combinatorial")),
    ],
)
def test_stopped_at_once_a_model_returns_its_start_if_it_has_one(
    method: str, semantics: Semantics, bound: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # with symmetry breaking, presolve proves Moirai's
    params = {"symmetry": False} if method == "moirai" else {}
    result = run_method(example(), semantics, method, params, time_limit_s=0.0)
    assert (result.status, result.plan is None) == ("feasible", False)
    assert "time limit" in result.message
    for module in (archer, milps):
        monkeypatch.setattr(module, "STARTS", ())
    result = run_method(example(), semantics, method, {"start": False}, time_limit_s=0.0)
    assert (result.status, result.plan) == ("no_plan", None)
    assert (result.bound_ns, result.bound_origin) == bound
    assert result.message.startswith("time limit of 0 s reached, no plan found in ")


def test_a_time_limit_is_kept_and_the_bound_is_valid() -> None:
    result = run_method(layered(60), PORT, "moirai", time_limit_s=0.5)
    assert result.status == "feasible"
    assert 0 < result.bound_ns < result.value_ns
    assert result.build_s + result.solve_s < 60  # not minutes, however slow the machine


def test_the_requested_gap_ends_the_search() -> None:
    result = run_method(layered(12), PORT, "moirai", gap=0.9)
    assert result.status in ("gap_met", "optimal")


def test_models_that_are_too_large_are_refused_unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moirai, "build", None)
    with pytest.raises(InputError, match=r"\d+ rows"):
        run_method(layered(300), PORT, "moirai", {"form": "as_published"})
    monkeypatch.setattr(milps, "MOST_EDGES", 3)
    with pytest.raises(InputError, match=r"at most 3 edges.*num_ops"):
        run_method(example(), pesto.SEMANTICS, "pesto")
    monkeypatch.setattr(mip, "MOST_ROWS", 20)
    for method, semantics, rows in (
        ("throughput-ip", MaxLoad(plans="any"), 28),
        ("archer-exact", CHAIN, 30),
    ):
        with pytest.raises(InputError, match=f"{rows} rows"):
            run_method(example(), semantics, method)


def is_a_fault(result: Result, words: str) -> None:
    """The result is answered from the start and the path, and names solver and version."""
    assert (result.status, result.value_ns, result.bound_ns) == ("feasible", 34, 33)
    assert len(result.faults) == 1
    assert result.faults[0].startswith(f"{solver_and_version('highspy')} on ")
    assert words in result.faults[0]
    assert "HiGHS contradicts a known plan" in result.message
    assert result.details["ending"] == "fault"


def test_a_broken_plan_of_the_solver_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moirai, "extract", lambda model, instance, *, check: Plan.on([0, 0, 0, 7]))
    monkeypatch.setattr("placegap.formulations.shared.families.exclude_overload", lambda *_: False)
    is_a_fault(run_method(example(), PORT, "moirai"), "device number 7")


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (MipOutcome("infeasible"), "claims that no plan exists, but there is one of 34 ns"),
        (MipOutcome("optimal", objective=99.0, dual_bound=99.0), "no plan is better than 99 ns"),
    ],
)
def test_what_a_known_plan_refutes_is_a_fault(
    outcome: MipOutcome, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mip, "solve_model", lambda *_, **__: outcome)
    is_a_fault(run_method(example(), PORT, "moirai"), words)
