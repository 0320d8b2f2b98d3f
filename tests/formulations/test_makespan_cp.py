"""The constraint program: exact under every semantics, whatever the horizon and the unit."""

import pytest
from draws.tiny import tiny_instance
from ortools.sat.python import cp_model
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, oracle

from placegap.formulations.makespan_cp import MakespanModel, build, extract, warm_start
from placegap.formulations.shared.cp_families import MOST_UNITS
from placegap.instances import (
    InputError,
    Instance,
    Makespan,
    Plan,
    Semantics,
    evaluate,
    example,
    simulate,
)
from placegap.solvers import run_method

PORT = Makespan()


def solver() -> cp_model.CpSolver:
    found = cp_model.CpSolver()
    found.parameters.num_workers = 1
    found.parameters.linearization_level = 0
    found.parameters.cp_model_probing_level = 0
    return found


def optimum(model: MakespanModel) -> int | None:
    running = solver()
    status = model.solve(running)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    return running.value(model.makespan_ns) if status == cp_model.OPTIMAL else None


def stretched(instance: Instance, factor: int) -> Instance:
    """All op times times the factor, plus a little, so that no unit divides them all."""
    ops = tuple(
        op.model_copy(update={"time_ns": {k: t * factor + i for k, t in op.time_ns.items()}})
        for i, op in enumerate(instance.graph.ops)
    )
    links = tuple(
        link.model_copy(update={"latency_ns": link.latency_ns * factor + 1})
        for link in instance.cluster.links
    )
    return Instance(
        name=instance.name,
        graph=instance.graph.model_copy(update={"ops": ops}),
        cluster=instance.cluster.model_copy(update={"links": links}),
    )


@pytest.mark.parametrize("semantics", MAKESPAN_SEMANTICS, ids=lambda s: s.label.replace(" ", "-"))
def test_a_horizon_at_the_optimum_keeps_it_and_one_below_excludes_it(semantics: Semantics) -> None:
    feasible = [i for i in makespan_draws() if oracle(i, semantics) is not None]
    for instance in feasible[MAKESPAN_SEMANTICS.index(semantics) :: 16]:
        best = oracle(instance, semantics)
        assert best is not None
        assert optimum(build(instance, semantics, horizon_ns=best)) == best
        if best > 0:
            assert optimum(build(instance, semantics, horizon_ns=best - 1)) is None


def test_no_plan_is_read_where_the_solver_has_none() -> None:
    model, running = build(example(), PORT, horizon_ns=34), solver()  # the optimum is 34
    with pytest.raises(InputError, match="no solution"):
        extract(model, example())
    assert model.solve(running) == cp_model.OPTIMAL
    with pytest.raises(InputError, match="its ops are others"):
        extract(model, makespan_draws()[0])
    assert evaluate(example(), extract(model, example()), PORT).value_ns == 34
    # the plan of the solve before is not kept, nor are the numbers of a solver without a plan
    model.cp.add(model.makespan <= 33)
    assert model.solve(running) == cp_model.INFEASIBLE
    with pytest.raises(InputError, match="no solution"):
        extract(model, example())
    stopped = build(example(), PORT)
    running.parameters.max_time_in_seconds = 0.0
    assert stopped.solve(running) == cp_model.UNKNOWN
    with pytest.raises(InputError, match="no solution"):
        extract(stopped, example())


def test_of_placements_with_other_names_of_identical_devices_one_is_kept() -> None:
    # the longest op, 20 ns, is first: it is on device 0 in the representative
    for symmetry, devices in ((True, [0, 0, 1, 0]), (False, [1, 1, 0, 1])):
        model, running = build(example(), PORT, symmetry=symmetry), solver()
        warm_start(model, example(), Plan.on([1, 1, 0, 1]))
        running.parameters.fix_variables_to_their_hinted_value = True
        assert model.solve(running) == cp_model.OPTIMAL
        assert extract(model, example()).devices.tolist() == devices
    pinned = build(example(), PORT, symmetry=True)
    pinned.cp.add(pinned.x[1][1] == 1)
    assert pinned.solve(solver()) == cp_model.INFEASIBLE


@pytest.mark.parametrize("semantics", MAKESPAN_SEMANTICS, ids=lambda s: s.label.replace(" ", "-"))
def test_a_warm_start_states_every_variable_of_a_feasible_plan(semantics: Semantics) -> None:
    for instance in makespan_draws()[MAKESPAN_SEMANTICS.index(semantics) :: 16]:
        plan = run_method(instance, semantics, "heft").plan
        if plan is None:
            continue
        schedule = simulate(instance, plan, semantics)
        model = build(instance, semantics, horizon_ns=schedule.makespan_ns)
        warm_start(model, instance, plan)
        assert len(model.cp.proto.solution_hint.vars) == len(model.cp.proto.variables)
        running = solver()
        running.parameters.fix_variables_to_their_hinted_value = True
        assert model.solve(running) == cp_model.OPTIMAL
        assert running.value(model.makespan_ns) == schedule.makespan_ns
        again = extract(model, instance)
        assert again.placement == plan.placement
        assert evaluate(instance, again, semantics).value_ns == schedule.makespan_ns


@pytest.mark.parametrize("semantics", MAKESPAN_SEMANTICS[::3], ids=lambda s: s.label)
def test_huge_times_are_rounded_down_to_a_bound(semantics: Semantics) -> None:
    for seed in range(3):
        instance = stretched(tiny_instance(seed, num_ops=4, max_edges=4), 2**50)
        best = oracle(instance, semantics)
        model = build(instance, semantics)
        assert not model.exact
        assert model.horizon <= MOST_UNITS
        found = optimum(model)
        assert (found is None) == (best is None)
        if best is not None and found is not None:
            # at most 4 ops and 4 transfers on a path, each rounded by less than a unit
            assert best - 8 * model.unit_ns < found <= best


def test_a_short_horizon_has_a_fine_unit_however_slow_a_device_is() -> None:
    slow = stretched(example(), 10**9)
    assert not build(slow, PORT).exact
    # no op fits within this horizon: their times are in no row
    model = build(slow, PORT, horizon_ns=2**29)
    assert (model.unit_ns, model.exact) == (1, True)
