"""HiGHS: bounds are safe, every ending is told as it is."""

from __future__ import annotations

import random
import signal
import threading
from itertools import islice

import highspy
import pyomo.environ as pyo
import pytest
from draws.tiny import tiny_instance
from references.brute_force import max_load_draws, more_stages, oracle

from placegap.instances import MaxLoad, Plan, evaluate
from placegap.solvers import Limits, run_method
from placegap.solvers.core.back_ends.highs import solve_model
from placegap.solvers.core.back_ends.outcome import BOUND_MARGIN, bound_ns


def market_split(num_rows: int = 4, num_columns: int = 30) -> pyo.ConcreteModel:
    """Split columns so that every row is halved, up to slack: hopeless for branch and bound.

    x = 0 is feasible, with the right-hand sides as slack. After Cornuejols & Dawande (1998).
    """
    rng = random.Random(3)
    rows = [[rng.randrange(100) for _ in range(num_columns)] for _ in range(num_rows)]
    model = pyo.ConcreteModel()
    model.x = pyo.Var(range(num_columns), domain=pyo.Binary, initialize=0)
    model.missing = pyo.Var(
        range(num_rows),
        domain=pyo.NonNegativeReals,
        initialize={r: sum(row) // 2 for r, row in enumerate(rows)},
    )
    model.beyond = pyo.Var(range(num_rows), domain=pyo.NonNegativeReals, initialize=0)

    @model.Constraint(range(num_rows))
    def half(model: pyo.ConcreteModel, r: int) -> object:
        taken = sum(a * x for a, x in zip(rows[r], model.x.values(), strict=True))
        return taken + model.missing[r] - model.beyond[r] == sum(rows[r]) // 2

    model.objective = pyo.Objective(
        expr=sum(model.missing.values()) + sum(model.beyond.values()), sense=pyo.minimize
    )
    return model


def knapsack(**domain: object) -> pyo.ConcreteModel:
    """Minimize -(5 a + 4 b + 3 c) with 2 a + 3 b + c <= 5, 4 a + b + 2 c <= 11, <= 3 each."""
    model = pyo.ConcreteModel()
    model.x = pyo.Var("abc", bounds=(0, 3), **domain)
    x = model.x
    model.one = pyo.Constraint(expr=2 * x["a"] + 3 * x["b"] + x["c"] <= 5)
    model.two = pyo.Constraint(expr=4 * x["a"] + x["b"] + 2 * x["c"] <= 11)
    model.objective = pyo.Objective(expr=10 - (5 * x["a"] + 4 * x["b"] + 3 * x["c"]))
    return model


@pytest.mark.parametrize(
    ("dual", "unit_ns", "granularity", "expected"),
    [
        (29.2, 1e6, 1_000_000, 30_000_000),  # 29.2 ms: the next whole ms
        (30.0, 1e6, 1_000_000, 30_000_000),
        (30.0 + 1e-6, 1e6, 1_000_000, 30_000_000),  # within the margin of 30e-6: no 31
        (30.0 + 1e-3, 1e6, 1_000_000, 31_000_000),
        (0.0, 1e6, 1_000_000, 0),
        (-1e-9, 1.0, 1, 0),  # no time is negative
        (500.0, 1e6, 1, 499_999_500),  # margin 500e-6 units = 500 ns
        (None, 1.0, 1, None),
    ],
)
def test_bounds_give_way_by_a_margin_and_rise_to_the_granularity(
    dual: float | None, unit_ns: float, granularity: int, expected: int | None
) -> None:
    assert BOUND_MARGIN == 1e-6
    assert bound_ns(dual, unit_ns, granularity) == expected


def test_an_optimum_comes_with_its_bound_and_solution() -> None:
    # per unit of the first row c yields 3, a 2.5 and b 4/3: c = 3, then a = 1; 10 - 14 = -4
    model = knapsack(domain=pyo.Integers)
    found = solve_model(model, Limits())
    assert (found.ending, found.has_solution) == ("optimal", True)
    assert (found.objective, found.dual_bound) == (pytest.approx(-4), pytest.approx(-4))
    assert [round(variable.value) for variable in model.x.values()] == [1, 0, 3]
    assert (found.rows, found.columns) == (2, 3)


def test_an_lp_is_solved_as_one() -> None:
    continuous = solve_model(knapsack(), Limits())
    relaxed = solve_model(knapsack(domain=pyo.Integers), Limits(), relax=True)
    assert continuous.objective == relaxed.objective == pytest.approx(-4)
    assert continuous.dual_bound == pytest.approx(-4)


def test_equalities_lower_bounds_and_ranges_are_handed_over() -> None:
    model = pyo.ConcreteModel()
    model.x = pyo.Var("ab", bounds=(-5, None))
    model.equal = pyo.Constraint(expr=model.x["a"] + model.x["b"] == 3)
    model.range = pyo.Constraint(expr=(1, model.x["a"], 2))
    model.objective = pyo.Objective(expr=2 * model.x["a"] + model.x["b"])
    found = solve_model(model, Limits())
    # a + 3 with a >= 1
    assert found.objective == pytest.approx(4)


def test_fixed_variables_count_with_their_values() -> None:
    model = knapsack(domain=pyo.Integers)
    model.x["a"].fix(1)
    model.x["b"].fix(1)
    # c <= 5 - 2 - 3 = 0: 10 - 9
    assert solve_model(model, Limits()).objective == pytest.approx(1)


def test_an_infeasible_model_has_neither_plan_nor_bound() -> None:
    model = knapsack(domain=pyo.Integers)
    model.none = pyo.Constraint(expr=sum(model.x.values()) >= 7)
    found = solve_model(model, Limits())
    assert (found.ending, found.has_solution) == ("infeasible", False)
    assert found.objective is found.dual_bound is None


def test_rows_of_fixed_variables_only_can_be_infeasible() -> None:
    model = knapsack(domain=pyo.Integers)
    model.x.fix(3)
    assert solve_model(model, Limits()).ending == "infeasible"


def test_an_unbounded_model_is_not_called_infeasible() -> None:
    model = pyo.ConcreteModel()
    model.x = pyo.Var(domain=pyo.Integers)
    model.row = pyo.Constraint(expr=model.x <= 3)
    model.objective = pyo.Objective(expr=model.x)
    found = solve_model(model, Limits())
    assert found.ending in ("unbounded", "unknown")
    assert found.dual_bound is None


def test_a_time_limit_of_zero_leaves_nothing_that_was_not_there() -> None:
    found = solve_model(market_split(), Limits(time_limit_s=0.0))
    assert (found.ending, found.has_solution, found.objective) == ("time_limit", False, None)


def test_a_time_limit_keeps_the_best_solution_and_the_bound() -> None:
    model = market_split()
    start = sum(variable.value for variable in model.missing.values())
    found = solve_model(model, Limits(time_limit_s=0.5), warm=True)
    assert found.ending == "time_limit"
    assert found.has_solution
    assert found.dual_bound is not None
    assert found.objective is not None
    assert 0 <= found.dual_bound < found.objective <= start
    assert found.solve_s < 5
    assert pyo.value(model.objective) == pytest.approx(found.objective)


def test_a_warm_start_is_taken_over() -> None:
    model = knapsack(domain=pyo.Integers)
    for name, value in {"a": 2, "b": 0, "c": 1}.items():
        model.x[name].set_value(value)
    found = solve_model(model, Limits(time_limit_s=0.0), warm=True)
    assert found.has_solution
    assert found.objective == pytest.approx(-3)


def test_the_requested_gap_suffices() -> None:
    model = market_split(num_rows=1)
    found = solve_model(model, Limits(time_limit_s=20, gap=1.0), warm=True)
    assert found.ending == "optimal"
    assert found.dual_bound is not None


def test_ctrl_c_stops_the_solver_and_keeps_the_best_solution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = highspy.Highs.run

    def interrupted(solver: highspy.Highs) -> object:
        # the clock starts with the solver: an earlier interrupt would be the caller's
        threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
        return real(solver)

    monkeypatch.setattr(highspy.Highs, "run", interrupted)
    found = solve_model(market_split(), Limits(time_limit_s=30), warm=True)
    assert found.ending == "interrupted"
    assert found.has_solution
    assert found.dual_bound is not None
    assert found.solve_s < 10


def test_running_out_of_memory_is_an_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: highspy.Highs) -> None:
        raise MemoryError

    monkeypatch.setattr(highspy.Highs, "run", fail)
    found = solve_model(market_split(), Limits())
    assert (found.ending, found.has_solution, found.dual_bound) == ("memory_limit", False, None)


def test_other_failures_are_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: highspy.Highs) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(highspy.Highs, "run", fail)
    with pytest.raises(RuntimeError, match="broken"):
        solve_model(market_split(), Limits())


def test_the_seed_decides_the_search() -> None:
    runs = [solve_model(market_split(2, 14), Limits(seed=seed)) for seed in (1, 1, 2)]
    assert runs[0].nodes == runs[1].nodes
    assert len({round(run.objective or 0, 6) for run in runs}) == 1


def test_models_that_presolve_by_enumeration_got_wrong_are_solved() -> None:
    # With that rule, HiGHS 1.13.1 takes the first for infeasible, and proves 12 for the second.
    first = tiny_instance(50_146, num_ops=6, num_devices=3, hosts=1, backward=True)
    chain = MaxLoad(plans="chain")
    assert run_method(first, chain, "archer-three-blocks").bound_ns == oracle(first, chain) == 17
    (second,) = islice(more_stages(210_090), 4, 5)
    stages = MaxLoad(plans="chain", replicas=True, levels=2)
    result = run_method(second, stages, "throughput-ip")
    assert (result.value_ns, result.bound_ns) == (11, 11) == (oracle(second, stages),) * 2


def test_a_model_that_presolve_by_probing_got_wrong_from_a_start_is_solved() -> None:
    # With that rule, HiGHS 1.13.1 proves the start's 11 for half of all random seeds.
    (instance,) = (draw for draw in max_load_draws() if draw.name == "tiny-97")
    overlap = MaxLoad(plans="any", load="overlap")
    start = Plan.on([0, 1, 0, 0, 1, 1, 2])
    assert evaluate(instance, start, overlap).value_ns == 11
    for seed in range(3):
        result = run_method(instance, overlap, "throughput-ip", incumbent=start, seed=seed)
        assert (result.value_ns, result.bound_ns) == (10, 10) == (oracle(instance, overlap),) * 2
