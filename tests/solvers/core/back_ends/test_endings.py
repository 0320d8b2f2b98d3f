"""However a solve ends, the result says so, and keeps what is known by then."""

import re
import signal
import threading
from importlib.util import find_spec

import highspy
import pyomo.environ as pyo
import pytest
from doubles import tiny_mip
from doubles.tiny_mip import registered  # noqa: F401

from placegap.instances import Makespan, Plan, example
from placegap.solvers import Result, run_method
from placegap.solvers.core import clock
from placegap.solvers.core.back_ends import LABELS, SolverName
from placegap.solvers.core.result import solver_and_version
from placegap.solvers.models import cp_sat
from placegap.solvers.models import run_mip as mip
from placegap.solvers.models.run_mip import MipOutcome

pytestmark = pytest.mark.usefixtures("registered")

PORT = Makespan()
ONE = {"workers": 1, "start": False}
TIMES = (3, 4, 5)
START = Plan.on([0, 0, 0])
"""12 ns; the best is 7."""

both_solvers = pytest.mark.parametrize(
    "solver",
    [
        "highs",
        pytest.param(
            "scip",
            marks=pytest.mark.skipif(not find_spec("pyscipopt"), reason="needs placegap[scip]"),
        ),
    ],
)
with_and_without = pytest.mark.parametrize("start", [None, START], ids=["no-start", "start"])


def run(
    start: Plan | None,
    solver: str = "highs",
    memory: int | None = None,
    time_limit_s: float | None = None,
) -> Result:
    task = tiny_mip.ops_on(*TIMES, memory=memory), tiny_mip.ANY, tiny_mip.NAME, {"solver": solver}
    return run_method(*task, incumbent=start, time_limit_s=time_limit_s)


def says(result: Result, start: Plan | None, ending: str, words: str) -> None:
    """The start is returned where there is one; the result says how the solve ended."""
    assert result.details["ending"] == ending
    if start is None:
        assert (result.status, result.plan) == ("no_plan", None)
        assert re.fullmatch(rf"{words}, no plan found in \d+\.\d s", result.message)
    else:
        assert (result.status, result.value_ns) == ("feasible", 12)
        what = "no better plan than the start was found"
        assert re.fullmatch(rf"{words}, {what} in \d+\.\d s", result.message)


# ------------------------------------------------------------------------------------------- MIPs


@with_and_without
@pytest.mark.parametrize(
    ("status", "ending", "words"),
    [
        (highspy.HighsModelStatus.kTimeLimit, "time_limit", "time limit of 5 s reached"),
        (highspy.HighsModelStatus.kMemoryLimit, "memory_limit", "out of memory"),
        (highspy.HighsModelStatus.kSolveError, "unknown", "HiGHS ended without a reason"),
        (highspy.HighsModelStatus.kUnbounded, "unbounded", "HiGHS reports an unbounded model"),
    ],
)
def test_what_highs_says_is_what_the_result_says(
    monkeypatch: pytest.MonkeyPatch, start: Plan | None, status: object, ending: str, words: str
) -> None:
    monkeypatch.setattr(highspy.Highs, "run", lambda self: None)
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda self: status)
    monkeypatch.setattr("placegap.solvers.core.back_ends.highs._load_solution", lambda *_: False)
    monkeypatch.setattr("placegap.solvers.core.back_ends.highs._dual_bound", lambda *_, **__: None)
    says(run(start, time_limit_s=5.0), start, ending, words)


@both_solvers
def test_infeasible_is_a_proof_not_a_failure(solver: SolverName) -> None:
    # three ops of 1 byte, two devices of 1 byte
    result = run(None, solver, memory=1)
    assert (result.status, result.plan, result.bound_ns) == ("infeasible", None, None)
    assert result.details["ending"] == "infeasible"
    assert result.message == f"{LABELS[solver]} proves that no plan exists"


def test_scip_stops_at_its_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pyscipopt = pytest.importorskip("pyscipopt")

    class Small(pyscipopt.Model):
        def optimizeNogil(self) -> None:  # noqa: N802
            self.setParam("limits/memory", 0.0)
            super().optimizeNogil()

    monkeypatch.setattr(pyscipopt, "Model", Small)
    result = run(START, "scip")
    says(result, START, "memory_limit", "out of memory")


@with_and_without
@pytest.mark.parametrize(
    ("error", "ending", "words"),
    [
        (KeyboardInterrupt, "interrupted", "interrupted"),
        (MemoryError, "memory_limit", "out of memory"),
    ],
)
def test_a_model_that_is_not_even_built_keeps_the_start(
    monkeypatch: pytest.MonkeyPatch,
    start: Plan | None,
    error: type[BaseException],
    ending: str,
    words: str,
) -> None:
    def fail(instance: object) -> pyo.ConcreteModel:
        raise error

    monkeypatch.setattr(tiny_mip, "build", fail)
    says(run(start), start, ending, words)


def test_an_interrupted_search_is_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # its solution exceeds a device's memory by a little: on any other ending the search goes on
    calls = []

    def stopped(*_: object, **__: object) -> MipOutcome:
        calls.append(1)
        return MipOutcome("interrupted", objective=7.0, dual_bound=7.0, has_solution=True)

    monkeypatch.setattr(mip, "solve_model", stopped)
    monkeypatch.setattr("placegap.formulations.shared.families.exclude_overload", lambda *_: True)
    monkeypatch.setattr(tiny_mip, "extract", lambda model: Plan.on([0, 0, 1]))
    result = run(START)
    assert (len(calls), result.value_ns, result.bound_ns) == (1, 12, 7)
    assert result.message.startswith("interrupted, no better plan than the start was found in ")


# ----------------------------------------------------------------------------------------- CP-SAT


def test_cp_sat_proves_that_no_plan_exists() -> None:
    result = run_method(tiny_mip.ops_on(*TIMES, memory=1), PORT, "cp-sat", ONE)
    assert (result.status, result.details["ending"]) == ("infeasible", "infeasible")
    assert result.message == f"{solver_and_version('ortools')} proves that no plan exists"
    assert result.rests_on == solver_and_version("ortools")


@pytest.mark.parametrize(
    ("error", "ending"), [(KeyboardInterrupt, "interrupted"), (MemoryError, "memory_limit")]
)
def test_a_cp_sat_model_that_is_not_built_keeps_the_start(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException], ending: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cp_sat, "build", fail)
    words = {"interrupted": "interrupted", "memory_limit": "out of memory"}[ending]
    instance = tiny_mip.ops_on(*TIMES)
    assert run_method(instance, PORT, "cp-sat", ONE).status == "no_plan"
    result = run_method(instance, PORT, "cp-sat", ONE, incumbent=START)
    assert (result.value_ns, result.details["ending"]) == (12, ending)
    assert result.message == f"{words} before {solver_and_version('ortools')} answered"


def test_a_solver_that_hears_no_interrupt_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "PATIENCE_S", 0.3)
    ended = threading.Event()
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        clock.run_stoppable(lambda: ended.wait(60), stop=lambda: None)
    ended.set()


def test_large_seeds_are_seeds() -> None:
    assert run_method(example(), PORT, "cp-sat", ONE, seed=2**40).value_ns == 34
