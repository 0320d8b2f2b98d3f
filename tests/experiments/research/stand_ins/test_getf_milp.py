"""getf-milp: a valid bound, an honest ending, a plan that the referee judges."""

from __future__ import annotations

import itertools

import pyomo.environ as pyo
import pytest
from draws.tiny import tiny_instance
from features.makespan import anywhere, instance, pinned
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, oracle

from placegap.instances import Edge, Instance, Makespan, Plan, evaluate
from placegap.solvers import Limits, run_method
from placegap.solvers.core.back_ends import solve_model

NAME = "getf-milp"
PORT, FREE = Makespan(), Makespan(channels="free")


def test_bounds_and_plans_hold_under_every_makespan_semantics() -> None:
    # `run_method` raises if a bound is above the method's own plan
    for number, case in enumerate(makespan_draws()[:12]):
        semantics = MAKESPAN_SEMANTICS[number % len(MAKESPAN_SEMANTICS)]
        milp = run_method(case, semantics, NAME)
        optima = [oracle(case, each) for each in MAKESPAN_SEMANTICS]
        best = oracle(case, semantics)
        if best is None:
            assert milp.status == "infeasible"
            continue
        assert all(milp.bound_ns <= optimum for optimum in optima if optimum is not None)
        assert milp.value_ns >= best


def with_edges(base: Instance, *edges: Edge) -> Instance:
    return base.model_copy(update={"graph": base.graph.model_copy(update={"edges": edges})})


def test_the_plan_is_the_models_own() -> None:
    # The model takes every transfer out of d0 for that to d1, of 1 ns. As w keeps d1 busy, it has
    # one of b and c on d2: 2 + 1 + 9. But d2 is 50 away: 2 + 50 + 9. (All on d0: 2 + 9 + 9.)
    base = instance(
        "far",
        [pinned("a", 0, 2), *(anywhere(op, 9) for op in "bc"), pinned("w", 1, 12)],
        [],
        devices=3,
    )
    far = ((0, 1, 50), (1, 0, 50), (50, 50, 0))
    case = with_edges(base, *(Edge(producer="a", consumer=op, transfer_ns=far) for op in "bc"))
    result = run_method(case, FREE, NAME)
    assert (result.bound_ns, result.value_ns, result.status) == (12, 61, "feasible")
    assert result.bound_origin == "critical path"  # w alone takes as long


def test_value_and_bound_may_meet() -> None:
    # one op after the other on one device: nothing is left out
    case = instance("chain", [anywhere(op, 5) for op in "abc"], [("a", "b", 3), ("b", "c", 3)])
    result = run_method(case, PORT, NAME)
    assert (result.status, result.value_ns) == ("optimal", 15)


def test_missing_memory_is_reported() -> None:
    # three ops of 3 bytes, two devices of 4: also their memories together are too small
    ops = [anywhere(op, 5, resident_bytes=3) for op in "abc"]
    result = run_method(instance("full", ops, [], memory_bytes=4), PORT, NAME)
    assert (result.status, result.bound_ns) == ("infeasible", None)
    assert "no plan exists" in result.message


def test_the_model_is_the_best_placement_by_its_own_account() -> None:
    from placegap.experiments.research.stand_ins import getf_milp

    for seed in range(3):
        case = tiny_instance(seed, num_ops=4, num_devices=2)
        model, values = getf_milp.build(case, FREE), []
        rows = list(model.component_data_objects(pyo.Constraint, active=True))
        for devices in itertools.product(range(2), repeat=4):
            plan = Plan.on(list(devices))
            if evaluate(case, plan, FREE).feasible:
                getf_milp.warm_start(model, case, plan)
                assert all(row.slack() >= -1e-9 for row in rows)
                values.append(pyo.value(model.makespan * model.unit_ns))
                assert getf_milp.extract(model, case).devices.tolist() == list(devices)
        found = solve_model(getf_milp.build(case, FREE), Limits())
        assert (found.objective is None) == (not values)
        if found.objective is not None:
            assert found.objective * pyo.value(model.unit_ns) == pytest.approx(min(values))
