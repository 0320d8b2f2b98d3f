"""The constraint program of latency_subgraphs: hints, horizons and rounded times."""

import pytest
from draws import draw
from draws.latency.tiny import LATENCY_SEMANTICS, best_plan, latency_draws, optimum
from ortools.sat.python import cp_model

from placegap.formulations.latency_ip.cp import LatencyModel, build, extract, warm_start
from placegap.instances import Edge, InputError, Instance, Op, Semantics, evaluate

every_q = pytest.mark.parametrize("semantics", LATENCY_SEMANTICS, ids=["once", "twice"])


def search(model: LatencyModel) -> tuple[cp_model.CpSolver, object]:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return solver, model.solve(solver)


@every_q
def test_a_hinted_plan_is_found_within_its_own_latency_and_none_below(semantics: Semantics) -> None:
    for instance in latency_draws()[::8]:
        best = best_plan(instance, semantics)
        if best is not None:
            model = build(instance, semantics, horizon_ns=best[0])
            warm_start(model, instance, best[1])
            solver, status = search(model)
            assert status == cp_model.OPTIMAL, instance.name
            assert solver.value(model.latency_ns) == best[0]
            if best[0] > 0:
                model = build(instance, semantics, horizon_ns=best[0] - 1)
                solver, status = search(model)
                assert status == cp_model.INFEASIBLE, instance.name
                with pytest.raises(InputError, match="no solution"):
                    extract(model, instance)


def test_where_times_are_rounded_the_bound_is_just_below_the_optimum() -> None:
    semantics = LATENCY_SEMANTICS[0]
    for drawn in latency_draws()[:6]:
        ops = tuple(
            op.model_copy(update={"time_ns": {k: t * 10**11 + 17 for k, t in op.time_ns.items()}})
            for op in drawn.graph.ops
        )
        graph = drawn.graph.model_copy(update={"ops": ops})
        instance = Instance(name=drawn.name, graph=graph, cluster=drawn.cluster)
        value = optimum(instance, semantics)
        if not value:
            continue
        model = build(instance, semantics)
        solver, status = search(model)
        assert status == cp_model.OPTIMAL
        assert not model.exact
        bound = solver.value(model.latency_ns)
        assert bound <= value < bound + 20 * model.unit_ns
        verdict = evaluate(instance, extract(model, instance), semantics)
        assert verdict.feasible
        assert verdict.value_ns is not None
        assert value <= verdict.value_ns < value + 20 * model.unit_ns


def test_a_tensor_that_takes_longer_than_the_horizon_does_so_in_the_models_units() -> None:
    # all times are multiples of 2000 ns, which is the unit: of a horizon of 5000 ns the model has 2
    # units, and what takes 8000 takes at least 3; at a horizon of 0 it takes at least 1
    ops = tuple(Op(name=name, time_ns={"gpu": 2000}) for name in "ab")
    edges = (Edge(producer="a", consumer="b", host_time_ns=8000),)
    pair = draw.instance_of("pair", ops, edges, draw.devices(["gpu"] * 2))
    for horizon_ns, units in ((5000, 3), (0, 1)):
        model = build(pair, LATENCY_SEMANTICS[0], horizon_ns=horizon_ns)
        assert (model.unit_ns, model.exact) == (2000, True)
        assert model.host(0, 0) == units
