"""Pesto's ILP: horizons, warm starts, windows, and the strengthened relaxation."""

import pyomo.environ as pyo
import pytest
from draws import draw
from draws.tiny import tiny_instance
from references.brute_force import makespan_draws, oracle, scattered_instance

from placegap.formulations.pesto import (
    SEMANTICS,
    Form,
    build,
    compete,
    extract,
    op_slots,
    warm_start,
)
from placegap.formulations.shared.times import windows
from placegap.instances import Edge, Instance, Op, evaluate, example
from placegap.solvers import Limits, run_method
from placegap.solvers.core.back_ends import solve_model
from placegap.solvers.core.back_ends.outcome import bound_ns

FORMS: tuple[Form, ...] = ("as_published", "strengthened")
both_forms = pytest.mark.parametrize("form", FORMS)


def optimum(instance: Instance, form: Form, horizon_ns: int | None = None) -> int | None:
    """The value that model, bound and referee agree on; None if there is no plan."""
    model = build(instance, SEMANTICS, form=form, horizon_ns=horizon_ns)
    found = solve_model(model, Limits())
    if found.ending == "infeasible":
        return None
    verdict = evaluate(instance, extract(model, instance), SEMANTICS)
    assert verdict.feasible, instance.name
    assert bound_ns(found.dual_bound, pyo.value(model.unit_ns), 1) == verdict.value_ns
    return verdict.value_ns


def lp_bound_ns(instance: Instance, form: Form) -> float:
    model = build(instance, SEMANTICS, form=form)
    found = solve_model(model, Limits(), relax=True)
    assert found.ending == "optimal"
    assert found.objective is not None
    return found.objective * pyo.value(model.unit_ns)


def test_the_optimum_stays_in_the_model_when_it_is_the_horizon() -> None:
    # FD-DPS, figure 3: op2 and op4 on the second device, 5 + 1 + 20 + 8 = 34; op3's 10 + 10 fit
    assert optimum(example(), "strengthened", 34) == 34
    assert optimum(example(), "strengthened", 33) is None
    for instance in makespan_draws()[1::16]:
        best = oracle(instance, SEMANTICS)
        if best is not None:
            assert optimum(instance, "strengthened", best) == best, instance.name


@both_forms
def test_a_warm_start_satisfies_every_row_and_is_read_back(form: Form) -> None:
    for instance in makespan_draws()[::12]:
        for name in ("heft", "brute-force"):
            result = run_method(instance, SEMANTICS, name)
            if result.plan is None:
                continue
            horizon = None if form == "as_published" else result.value_ns
            model = build(instance, SEMANTICS, form=form, horizon_ns=horizon)
            warm_start(model, instance, result.plan)
            rows = model.component_data_objects(pyo.Constraint, active=True)
            assert all(row.slack() >= -1e-9 for row in rows), instance.name
            again = evaluate(instance, extract(model, instance), SEMANTICS)
            assert (again.feasible, again.value_ns) == (True, result.value_ns)


# op2 and op4 on the second device, op2 taking 26: 5 + 1 + 26 + 8 = 40. With 10 op2 alone is there,
# 5 + 1 + 10 + 1 + 8 = 25, beside op3's 10.
@pytest.mark.parametrize(
    ("form", "op2_ns", "best_ns"),
    [("as_published", 10, 25), ("as_published", 26, 40), ("strengthened", 26, 40)],
)
def test_a_changed_duration_is_solved_without_building(
    form: Form, op2_ns: int, best_ns: int
) -> None:
    model = build(example(), SEMANTICS, form=form)
    for k in model.DEVICES:
        model.duration_ns["op2", k] = op2_ns
    assert solve_model(model, Limits()).ending == "optimal"
    changed = draw.with_ops(example(), time_ns=[{"gpu": t} for t in (5, op2_ns, 10, 8)])
    value_ns = evaluate(changed, extract(model, changed), SEMANTICS).value_ns
    assert value_ns == round(pyo.value(model.makespan_ns)) == best_ns


def test_windows_refuse_shorter_times() -> None:
    model = build(example(), SEMANTICS)
    with pytest.raises(ValueError, match="failed parameter validation"):
        model.duration_ns["op2", "gpu0"] = 19


# Linear relaxations in ns, as published and strengthened, and the optimum: fingerprints, which only
# change when the models do.
LP_BOUNDS = (
    (tiny_instance(24, num_ops=4, num_devices=2, max_edges=5), 9.0, 15.5, 16),
    (scattered_instance(39, num_ops=5, num_devices=3, max_edges=5), 17.0, 19.6875, 26),
)


def test_linear_relaxations_are_ordered() -> None:
    for instance, *expected in LP_BOUNDS:
        bounds = [lp_bound_ns(instance, form) for form in FORMS]
        assert [*bounds, oracle(instance, SEMANTICS)] == pytest.approx(expected, rel=1e-6)


def test_windows_close_orders_device_by_device() -> None:
    # a, 5 ns, is on d0; b, 4 ns, starts there at 5, or on d1 at 5 + 6 = 11; c, 4 ns, is free to go
    # anywhere. By 16, c can be first on both devices, and second on d0 only: 11 + 4 + 4 > 16.
    both = {"k0": 4, "k1": 4}
    ops = (Op(name="a", time_ns={"k0": 5}), *(Op(name=x, time_ns=both) for x in "bc"))
    edges = (Edge(producer="a", consumer="b", transfer_ns=((0, 6), (6, 0))),)
    instance = draw.instance_of("windows", ops, edges, draw.devices(["k0", "k1"]))
    b, c = 1, 2
    pairs = compete(op_slots(instance, windows(instance, 16), 16), iter([(b, c)]))
    assert pairs.shared == [("b", "c", "d0"), ("b", "c", "d1")]
    assert pairs.open_at == {("b", "c", "d0"), ("c", "b", "d0"), ("c", "b", "d1")}
    # by 14 b fits on d0 only
    pairs = compete(op_slots(instance, windows(instance, 14), 14), iter([(b, c)]))
    assert pairs.open_at == {("b", "c", "d0"), ("c", "b", "d0")}
    # a and b on d0 from 0 to 9, c on d1
    assert optimum(instance, "strengthened", 16) == 9
