"""What CP-SAT says against a known plan is a fault in the result, and nothing is built on it."""

from collections.abc import Callable

import pytest
from ortools.sat.python import cp_model

from placegap.formulations import makespan_cp
from placegap.formulations.latency_ip import cp as latency_cp
from placegap.formulations.shared.cp_families import LARGEST_ACTIVITY, CpModel
from placegap.instances import LatencySubgraphs, Makespan, Plan, example
from placegap.solvers import Result, run_method
from placegap.solvers.core.back_ends import cp_sat as cp_sat_run
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import Start, Task
from placegap.solvers.core.result import PROOF, solver_and_version
from placegap.solvers.decomposition import section_jobs
from placegap.solvers.decomposition.section_jobs import Job, work
from placegap.solvers.models import cp_sat

PORT = Makespan()
ONCE = LatencySubgraphs()
ONE = {"workers": 1}
WORD = solver_and_version("ortools")
LONGEST_PATH_NS = 33
"""Of example(): 5 + 20 + 8 on one device; the optimum, 34, is what the best placer finds."""


class Response:
    """Of a solver that proves too much."""

    inner_objective_lower_bound = 10**6


class Liar(cp_model.CpSolver):
    """Says what it is told to."""

    status: object = cp_model.INFEASIBLE

    def solve(self, model: object, callback: object = None) -> object:
        honest = super().solve(model)  # type: ignore[arg-type]
        return honest if honest == cp_model.INFEASIBLE else self.status

    @property
    def response_proto(self) -> object:
        return Response()


class Optimist(Liar):
    """Says that it has not finished, and proves a bound that is above the optimum."""

    status = cp_model.FEASIBLE


def is_answered_from_the_rest(result: Result, words: str) -> None:
    """The start's plan, the path's bound, and what the solver said, with name and version."""
    assert 34 <= result.value_ns <= 43
    assert (result.bound_ns, result.rests_on) == (LONGEST_PATH_NS, PROOF)
    assert result.status == "feasible"
    assert any(fault.startswith(f"{WORD} on ") and words in fault for fault in result.faults)
    assert "contradicts a known plan" in result.message


@pytest.mark.parametrize(
    ("kind", "words"),
    [(Liar, "but there is one of 34 ns"), (Optimist, "no plan is better than 1000000 ns")],
)
def test_what_a_known_plan_refutes_is_not_believed(
    kind: type[Liar], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cp_sat_run.cp_model, "CpSolver", kind)
    is_answered_from_the_rest(run_method(example(), PORT, "cp-sat", ONE), words)
    # nor by the latency model: 43, on one device, is the optimum; the chains prove it
    result = run_method(example(), ONCE, "latency-ip", ONE)
    assert (result.value_ns, result.bound_ns, result.rests_on) == (43, 43, PROOF)
    assert len(result.faults) == 1


def test_a_claim_that_the_referee_cannot_confirm_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A reader of the solution that puts everything on one device: 43, and not the 34 it claims.
    monkeypatch.setattr(cp_sat, "extract", lambda model, instance: Plan.on([0] * 4))
    result = run_method(example(), PORT, "cp-sat", {**ONE, "start": False})
    is_answered_from_the_rest(result, "claims 34 ns for a plan that takes 43 ns")


def test_a_plan_that_breaks_a_rule_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp_sat, "extract", lambda model, instance: Plan.on([0, 0, 0, 7]))
    is_answered_from_the_rest(run_method(example(), PORT, "cp-sat", ONE), "infeasible plan")


def test_decomposition_keeps_its_plan_and_names_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: object) -> cp_sat_run.Answer:
        return cp_sat_run.Answer("fault", faults=(f"{WORD} on a section: says nonsense",))

    monkeypatch.setattr(cp_sat_run, "run_cp_sat", faulty)
    result = run_method(example(), PORT, "decomposition", ONE)
    assert 0 < result.bound_ns < 34 <= result.value_ns
    assert len(result.faults) >= 2
    assert "contradicts a known plan" in result.message


def test_a_section_with_a_faulty_answer_keeps_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp_sat_run.cp_model, "CpSolver", Liar)
    answer = work(Job(example(), PORT, "cp", None, 10.0, 0, None))
    assert (answer.lower_ns, answer.upper_ns, answer.final) == (0, 43, True)
    assert len(answer.faults) == 1


def test_a_section_lp_that_contradicts_a_plan_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section_jobs, "bound_ns", lambda *_: 99)
    answer = work(Job(example(), PORT, "lp", None, 10.0, 0, None))
    assert answer.lower_ns == 0
    assert answer.faults[0].startswith(f"{solver_and_version('highspy')} on ")


@pytest.mark.parametrize("method", ["cp-sat", "decomposition", "latency-ip"])
def test_a_model_of_too_large_numbers_is_not_run(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(build: Callable[..., object]) -> Callable[..., object]:
        def build_spoiled(*arguments: object, **named: object) -> object:
            model = build(*arguments, **named)
            model.cp.add((LARGEST_ACTIVITY + 1) * model.objective >= 0)  # type: ignore[attr-defined]
            return model

        return build_spoiled

    for module in (cp_sat, makespan_cp, latency_cp):
        monkeypatch.setattr(module, "build", spoiled(module.build))  # type: ignore[attr-defined]
    semantics = ONCE if method == "latency-ip" else PORT
    result = run_method(example(), semantics, method, ONE)
    assert result.plan is not None
    assert result.faults == ()
    assert f"no CP-SAT: its model is not safe for {WORD}" in result.message


def test_a_far_better_plan_gets_a_finer_unit_and_refutes_what_was_proven_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # first a plan of 43 ns within 1000 and a bound of 40, then one of 35 within 43
    answers = [
        cp_sat_run.Answer("optimal", plan=Plan.on([0] * 4), value_ns=43, bound_ns=40),
        cp_sat_run.Answer("optimal", plan=Plan.on([0, 1, 0, 0]), value_ns=35, bound_ns=34),
    ]
    monkeypatch.setattr(cp_sat_run, "run_cp_sat", lambda *_: answers.pop(0))
    horizons = []

    def prepare(start: Start | None) -> CpModel:
        horizons.append(1000 if start is None else start.value)
        cp = cp_model.CpModel()
        return CpModel(
            cp=cp,
            instance=example(),
            semantics=PORT,
            horizon_ns=horizons[-1],
            unit_ns=2,
            exact=False,  # times are no multiples of the unit
            objective=cp.new_int_var(0, 1, ""),
        )

    outcome = cp_sat_run.search(
        Task(example(), PORT),
        None,
        prepare,
        lambda model, instance: Plan.on([0] * 4),
        lambda model: (LONGEST_PATH_NS, "path"),
        cp_sat_run.Settings(),
        Clock(None),
    )
    assert horizons == [1000, 43]
    assert (outcome.plan, outcome.bound_value) == (Plan.on([0, 1, 0, 0]), LONGEST_PATH_NS)
    assert outcome.rests_on == PROOF
    assert "no plan is better than 40 ns, but there is one of 35 ns" in outcome.faults[0]


def test_a_model_that_is_rejected_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rejects(Liar):
        status = cp_model.MODEL_INVALID

    monkeypatch.setattr(cp_sat_run.cp_model, "CpSolver", Rejects)
    result = run_method(example(), PORT, "cp-sat", ONE)
    assert (result.value_ns, result.bound_ns) == (34, LONGEST_PATH_NS)
    assert f"no CP-SAT: {WORD} rejects its model" in result.message


@pytest.mark.parametrize("method", ["cp-sat", "latency-ip", "decomposition"])
def test_no_search_runs_the_unsound_part_of_presolve(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    class Watched(cp_model.CpSolver):
        def solve(self, model: object, callback: object = None) -> object:
            limits.append(self.parameters.presolve_inclusion_work_limit)
            return super().solve(model)  # type: ignore[arg-type]

    monkeypatch.setattr(cp_sat_run.cp_model, "CpSolver", Watched)
    run_method(example(), ONCE if method == "latency-ip" else PORT, method, ONE)
    assert limits
    assert set(limits) == {0}


def test_what_a_bound_rests_on_is_said() -> None:
    result = run_method(example(), PORT, "cp-sat", ONE)
    assert (result.bound_ns, result.bound_origin, result.rests_on) == (34, "cp-sat", WORD)
    stopped = run_method(example(), PORT, "cp-sat", ONE, time_limit_s=0.0)
    assert stopped.rests_on == (PROOF if stopped.bound_origin == "path" else WORD)


@pytest.mark.parametrize("horizon_ns", [None, 20])
def test_ctrl_c_is_heard_even_if_the_search_ends_by_itself(
    horizon_ns: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 20 ns is below the longest path: the second search ends as infeasible
    real = cp_sat_run.run_stoppable

    def stopped(search: Callable[[], object], stop: Callable[[], None]) -> tuple[object, bool]:
        return real(search, stop)[0], True

    monkeypatch.setattr(cp_sat_run, "run_stoppable", stopped)
    answer = work(Job(example(), PORT, "cp", horizon_ns, 10.0, 0, None))
    assert answer.interrupted
    assert answer.decided
