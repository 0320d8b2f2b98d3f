"""The latency IP: warm starts without slack, calls without time, and bounds of chains."""

from typing import get_args

import pyomo.environ as pyo
import pytest
from draws import draw
from draws.latency.tiny import LATENCY_SEMANTICS, ONCE, TWICE, best_plan, latency_draws, optimum

from placegap.formulations.latency_ip import Form, build, extract, warm_start
from placegap.formulations.latency_ip.calls import serial_horizon_ns
from placegap.formulations.latency_ip.chain_bound import chain_bound_ns
from placegap.instances import Device, Edge, InputError, Instance, Op, Semantics, evaluate, example
from placegap.solvers.core.back_ends import solve_model
from placegap.solvers.core.method import Limits

FORMS: tuple[Form, ...] = get_args(Form)
both_forms = pytest.mark.parametrize("form", FORMS)
every_q = pytest.mark.parametrize("semantics", LATENCY_SEMANTICS, ids=["once", "twice"])


def instance(
    ops: dict[str, tuple[int | None, int | None]],
    edges: list[tuple[str, str, int]],
    *,
    gpus: int = 1,
    memory: int | None = None,
) -> Instance:
    """Ops of 1 byte, their times on accelerators and on a host; edges with their host times."""
    devices = [Device(name=f"g{k}", kind="gpu", memory_bytes=memory) for k in range(gpus)]
    devices.append(Device(name="c", kind="cpu", is_host=True))
    made = (
        Op(
            name=name,
            resident_bytes=1,
            time_ns={
                kind: t for kind, t in zip(("gpu", "cpu"), times, strict=True) if t is not None
            },
        )
        for name, times in ops.items()
    )
    carried = (Edge(producer=a, consumer=b, host_time_ns=t, tensor="out") for a, b, t in edges)
    return draw.instance_of("rule", made, carried, devices)


@both_forms
def test_calls_without_time_do_not_wait_in_a_circle(form: Form) -> None:
    # p and q take no time on the accelerator, nor does x, which is on the host between them: one
    # call would wait for itself, so p or q is on the host, 9; two calls take nothing
    ops: dict[str, tuple[int | None, int | None]] = {"p": (0, 9), "x": (None, 0), "q": (0, 9)}
    circle = instance(ops, [("p", "x", 0), ("x", "q", 0)])
    for semantics, value in ((ONCE, 9), (TWICE, 0)):
        model = build(circle, semantics, form=form)
        assert solve_model(model, Limits()).ending == "optimal"
        assert evaluate(circle, extract(model, circle), semantics).value_ns == value


@every_q
@both_forms
def test_a_plan_fits_the_model_that_has_its_value_as_horizon(
    semantics: Semantics, form: Form
) -> None:
    for drawn in latency_draws()[::8]:
        best = best_plan(drawn, semantics)
        if best is None:
            continue
        value, plan = best
        symmetry = form == "strengthened"
        model = build(drawn, semantics, form=form, horizon_ns=value, symmetry=symmetry)
        warm_start(model, drawn, plan)
        rows = list(model.component_data_objects(pyo.Constraint))
        assert [row.name for row in rows if row.slack() < -1e-9] == [], drawn.name
        for variable in model.component_data_objects(pyo.Var):
            assert variable.value is not None, variable.name
            lower, upper = variable.bounds
            assert lower is None or variable.value >= lower - 1e-9, variable.name
            assert upper is None or variable.value <= upper + 1e-9, variable.name
        again = evaluate(drawn, extract(model, drawn), semantics)
        assert again.feasible, drawn.name
        assert again.value_ns == value == round(pyo.value(model.latency_ns)), drawn.name


def longer(drawn: Instance) -> Instance:
    """Ops take 2 more ns on accelerators, and tensors that take any time 1 more."""
    on_host = {device.kind for device in drawn.cluster.devices if device.is_host}
    ops = tuple(
        op.model_copy(
            update={"time_ns": {k: t + 2 * (k not in on_host) for k, t in op.time_ns.items()}}
        )
        for op in drawn.graph.ops
    )
    edges = tuple(
        edge.model_copy(update={"host_time_ns": edge.host_time_ns + 1})
        if edge.host_time_ns
        else edge
        for edge in drawn.graph.edges
    )
    graph = drawn.graph.model_copy(update={"ops": ops, "edges": edges})
    return Instance(name=drawn.name, graph=graph, cluster=drawn.cluster)


@every_q
@both_forms
def test_a_model_with_longer_times_has_the_optimum_of_that_instance(
    semantics: Semantics, form: Form
) -> None:
    for drawn in latency_draws()[::8]:
        changed = longer(drawn)
        other = build(changed, semantics, form=form)
        model = build(drawn, semantics, form=form, horizon_ns=serial_horizon_ns(changed))
        for name in ("duration_ns", "host_ns"):
            given = model.component(name)
            for at in given:
                given[at] = other.component(name)[at].value
        best, found = optimum(changed, semantics), solve_model(model, Limits())
        assert found.has_solution == (best is not None), drawn.name
        if best is not None:
            assert round(pyo.value(model.latency_ns)) == best, drawn.name
            verdict = evaluate(changed, extract(model, changed), semantics)
            assert (verdict.feasible, verdict.value_ns) == (True, best), drawn.name


def test_changes_that_the_rows_do_not_cover_are_refused() -> None:
    # windows and the bound of chains rest on 5 ns; as published, order is by clocks while a takes
    # more than nothing: the unit is 1 ns
    pair = instance({"a": (5, 9), "b": (5, 9)}, [("a", "b", 3)])
    for form, refused, taken in (("strengthened", 4, 6), ("as_published", 0, 1)):
        model = build(pair, ONCE, form=form)
        with pytest.raises(ValueError, match="duration_ns"):
            model.duration_ns["a", "g0"] = refused
        with pytest.raises(ValueError, match="host_ns"):
            model.host_ns["a", "g0"] = 2 * (form == "strengthened")
        model.duration_ns["a", "g0"] = taken
        assert model.duration_ns["a", "g0"].value == taken
    # of two hosts only the faster one is kept, which may be no slower than the other, nor smaller
    ops = (Op(name="a", time_ns={"cpu": 5, "slow": 7}, resident_bytes=1),)
    hosts = [Device(name=kind, kind=kind, is_host=True) for kind in ("cpu", "slow")]
    model = build(draw.instance_of("hosts", ops, (), hosts), ONCE)
    model.duration_ns["a", "cpu"] = 7
    with pytest.raises(ValueError, match="duration_ns"):
        model.duration_ns["a", "cpu"] = 8
    with pytest.raises(ValueError, match="capacity_bytes"):
        model.capacity_bytes["cpu"] = 0
    model.capacity_bytes["slow"] = 0


def test_no_plan_is_read_after_a_solve_without_one() -> None:
    model = build(example(), ONCE)
    assert solve_model(model, Limits()).ending == "optimal"
    assert evaluate(example(), extract(model, example()), ONCE).value_ns == 43
    model.short = pyo.Constraint(expr=model.latency_ns <= 42)
    assert solve_model(model, Limits()).ending == "infeasible"
    with pytest.raises(InputError, match="no solution"):
        extract(model, example())


@every_q
def test_chains_bound_every_plan(semantics: Semantics) -> None:
    tight = 0
    for drawn in latency_draws()[::2]:
        value = optimum(drawn, semantics)
        if value is not None:
            assert chain_bound_ns(drawn, semantics) <= value, drawn.name
            tight += chain_bound_ns(drawn, semantics) == value
    assert tight >= 2


def test_a_chain_that_memory_cuts_pays_at_the_cheapest_place() -> None:
    # a (1) -> b (1) -> c (1), two of three fit: cut before c, where the tensor takes 2: 2 + 2, then
    # 2 + 1
    chain = instance(
        dict.fromkeys("abc", (1, None)), [("a", "b", 9), ("b", "c", 2)], gpus=2, memory=2
    )
    assert chain_bound_ns(chain, ONCE) == 7
    assert optimum(chain, ONCE) == 7


def test_the_strengthened_relaxation_is_the_stronger_one() -> None:
    # LP bounds of the diamond of `example` as fingerprints, in ns
    bounds = {}
    for form in FORMS:
        found = solve_model(build(example(), ONCE, form=form, horizon_ns=43), Limits(), relax=True)
        bounds[form] = found.objective
    assert bounds["as_published"] is not None
    assert bounds["strengthened"] is not None
    assert bounds["as_published"] < bounds["strengthened"] <= 43
