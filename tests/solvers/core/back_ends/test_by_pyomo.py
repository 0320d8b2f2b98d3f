"""Solvers that Pyomo runs: their options, and claims that are not believed."""

from collections.abc import Iterator
from typing import Any

import pyomo.environ as pyo
import pytest
from doubles import tiny_mip
from doubles.tiny_mip import registered  # noqa: F401

from placegap.instances import InputError, Plan
from placegap.solvers import Limits, run_method
from placegap.solvers.core.back_ends import by_pyomo, require, solve_model

pytestmark = pytest.mark.usefixtures("registered")

TIMES = (9, 7, 6, 5, 4)  # 16 at best: 9 + 7, 6 + 5 + 4


class FakeSolver:
    """Pyomo's HiGHS under another name, which may claim something else."""

    is_here, claim = True, ""
    given: dict[str, Any] = {}  # noqa: RUF012 (of the last solve)

    def available(self, exception_flag: bool = True) -> bool:
        return self.is_here

    def version(self) -> tuple[int, ...]:
        return 1, 2

    def warm_start_capable(self) -> bool:
        return False

    def solve(self, model: pyo.ConcreteModel, **options: Any) -> Any:
        FakeSolver.given = options
        if self.claim == "crash":
            raise RuntimeError("no licence\nsee the manual")
        found = pyo.SolverFactory("appsi_highs").solve(model, load_solutions=False)
        if self.claim == "bound":
            found.problem.lower_bound = 17.0
        if self.claim == "infeasible":
            found.solver.termination_condition = pyo.TerminationCondition.infeasible
        if self.claim == "plan":  # all ops on no device
            for value in found.solution[0].variable.values():
                value["Value"] = 0.0
        return found


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeSolver]]:
    """A fake CPLEX that is installed."""
    pyo.SolverFactory.register("fake")(FakeSolver)
    monkeypatch.setitem(by_pyomo.KNOWN, "fake", by_pyomo.KNOWN["cplex"])
    yield FakeSolver
    pyo.SolverFactory.unregister("fake")


def run(**limits: Any) -> Any:
    instance = tiny_mip.ops_on(*TIMES)
    return run_method(instance, tiny_mip.ANY, tiny_mip.NAME, {"solver": "fake"}, **limits)


def test_it_gets_the_limits_in_its_own_words(fake: type[FakeSolver]) -> None:
    found = run(time_limit_s=60.0, gap=0.25, seed=3)
    assert found.value_ns == 16
    assert found.rests_on == "fake 1.2"
    options = fake.given["options"]
    assert 0 < options.pop("timelimit") <= 60
    assert options == {"mip_tolerances_mipgap": 0.25, "randomseed": 3, "threads": 1}
    # HiGHS ran without the gap; a quarter of 16 is what may be claimed when it was allowed
    assert found.bound_ns == 12


@pytest.mark.parametrize("claim", ["bound", "infeasible"])
def test_a_claim_that_a_known_plan_refutes_is_a_fault(
    claim: str, fake: type[FakeSolver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "claim", claim)
    found = run(incumbent=Plan.on([0, 0, 1, 1, 1]))
    assert (found.value_ns, found.details["ending"]) == (16, "fault")
    assert found.bound_origin != "fake"
    (fault,) = found.faults
    assert "fake" in str(fault)


def test_values_that_break_rows_are_no_solution(
    fake: type[FakeSolver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "claim", "plan")
    model = tiny_mip.build(tiny_mip.ops_on(*TIMES))
    assert not solve_model(model, Limits(), solver="fake").has_solution
    assert all(variable.value is None for variable in model.x.values())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gurobbi", "did you mean 'gurobi'?"),
        ("ls", "there is no solver 'ls' among highs, scip, gurobi"),  # a program, and no solver
        ("fake", "solver=fake: Pyomo does not find it, or its licence; install it (pip install"),
    ],
)
def test_a_solver_that_cannot_run_is_refused_in_one_line(
    name: str, sentence: str, fake: type[FakeSolver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "is_here", False)
    with pytest.raises(InputError) as refused:
        require(name)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_a_solver_raises_is_one_line(
    fake: type[FakeSolver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "claim", "crash")
    with pytest.raises(InputError, match=r"^solver=fake failed: no licence$"):
        solve_model(tiny_mip.build(tiny_mip.ops_on(1)), Limits(), solver="fake")
