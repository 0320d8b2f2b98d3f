"""The constraint program of latency_subgraphs: equal to brute force, hints complete enough."""

from __future__ import annotations

import pytest
from draws.latency.tiny import LATENCY_SEMANTICS, best_plan, latency_draws, optimum
from ortools.sat.python import cp_model

from placegap.formulations.latency_ip.cp import LatencyModel, build, read_plan, warm_start
from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    Op,
    Semantics,
    evaluate,
    example,
)

every_q = pytest.mark.parametrize("semantics", LATENCY_SEMANTICS, ids=["once", "twice"])


def search(model: LatencyModel) -> tuple[cp_model.CpSolver, object]:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return solver, solver.solve(model.cp)


@every_q
def test_it_equals_brute_force(semantics: Semantics) -> None:
    for instance in latency_draws():
        model = build(instance, semantics, symmetry=True)
        solver, status = search(model)
        value = optimum(instance, semantics)
        assert (status == cp_model.INFEASIBLE) == (value is None), instance.name
        if value is not None:
            verdict = evaluate(instance, read_plan(model, solver.value), semantics)
            assert verdict.feasible, instance.name
            found = solver.value(model.latency) * model.unit_ns
            assert (status, verdict.value_ns, found) == (cp_model.OPTIMAL, value, value)


@every_q
def test_a_hinted_plan_is_found_within_its_own_latency(semantics: Semantics) -> None:
    for instance in latency_draws()[::2]:
        best = best_plan(instance, semantics)
        if best is not None:
            model = build(instance, semantics, horizon_ns=best[0])
            warm_start(model, best[1], semantics)
            solver, status = search(model)
            assert status == cp_model.OPTIMAL, instance.name
            assert solver.value(model.latency) * model.unit_ns == best[0]


@every_q
def test_no_plan_is_below_the_optimum(semantics: Semantics) -> None:
    for instance in latency_draws()[::3]:
        value = optimum(instance, semantics)
        if value:
            model = build(instance, semantics, horizon_ns=value - 1)
            assert search(model)[1] == cp_model.INFEASIBLE, instance.name


def scaled(instance: Instance, factor: int, extra: int) -> Instance:
    """All op times times a factor, plus a number that is no multiple of any unit."""
    ops = tuple(
        Op(
            **{
                **dict(op),
                "time_ns": {k: t * factor + extra * (t > 0) for k, t in op.time_ns.items()},
            }
        )
        for op in instance.graph.ops
    )
    edges = tuple(Edge(**dict(edge)) for edge in instance.graph.edges)
    graph = Graph(name=instance.graph.name, ops=ops, edges=edges)
    return Instance(name=instance.name, graph=graph, cluster=instance.cluster)


def test_where_times_are_rounded_the_bound_is_just_below_the_optimum() -> None:
    semantics = LATENCY_SEMANTICS[0]
    for drawn in latency_draws()[:12]:
        instance = scaled(drawn, 10**11, 17)
        value = optimum(instance, semantics)
        if not value:
            continue
        model = build(instance, semantics)
        solver, status = search(model)
        assert status == cp_model.OPTIMAL
        assert not model.exact
        bound = solver.value(model.latency) * model.unit_ns
        assert bound <= value < bound + 20 * model.unit_ns
        verdict = evaluate(instance, read_plan(model, solver.value), semantics)
        assert verdict.feasible
        assert verdict.value_ns is not None
        assert value <= verdict.value_ns < value + 20 * model.unit_ns


def test_its_unit_is_that_of_its_times_where_they_are_small() -> None:
    model = build(example(), LATENCY_SEMANTICS[0])
    assert (model.unit_ns, model.exact) == (1, True)


def test_a_tensor_that_takes_longer_than_the_horizon_does_so_in_the_models_units() -> None:
    # all times are multiples of 2000 ns, which is the unit: of a horizon of 5000 ns the model has 2
    # units, and what takes 8000 takes at least 3; at a horizon of 0 it takes at least 1
    ops = tuple(Op(name=name, time_ns={"gpu": 2000}) for name in "ab")
    edges = (Edge(producer="a", consumer="b", host_time_ns=8000),)
    devices = (Device(name="d", kind="gpu"), Device(name="e", kind="gpu"))
    pair = Instance(
        name="pair",
        graph=Graph(name="pair", ops=ops, edges=edges),
        cluster=Cluster(name="two", devices=devices),
    )
    for horizon_ns, units in ((5000, 3), (0, 1)):
        model = build(pair, LATENCY_SEMANTICS[0], horizon_ns=horizon_ns)
        assert (model.unit_ns, model.exact) == (2000, True)
        assert model.host(0, 0) == units
