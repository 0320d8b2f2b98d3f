"""The latency IP: every rule by hand, equal to brute force, warm starts without slack."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pyomo.environ as pyo
import pytest
from draws.latency.tiny import LATENCY_SEMANTICS, ONCE, TWICE, best_plan, latency_draws, optimum

from placegap.formulations.latency_ip import Form, build, count_rows, extract, warm_start
from placegap.formulations.latency_ip.chain_bound import chain_bound_ns
from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    Makespan,
    Op,
    Semantics,
    evaluate,
    example,
)
from placegap.solvers.core.back_ends import solve_model
from placegap.solvers.core.method import Limits

FORMS: tuple[Form, ...] = get_args(Form)
both_forms = pytest.mark.parametrize("form", FORMS)
every_q = pytest.mark.parametrize("semantics", LATENCY_SEMANTICS, ids=["once", "twice"])


def solved(instance: Instance, semantics: Semantics, form: Form) -> int | None:
    """The optimum of the model, which its plan and its bound have to the nanosecond."""
    model = build(instance, semantics, form, symmetry=form == "strengthened")
    found = solve_model(model, Limits())
    if found.ending == "infeasible":
        return None
    assert found.ending == "optimal", (instance.name, found)
    verdict = evaluate(instance, extract(model, instance), semantics)
    assert verdict.feasible, (instance.name, verdict.violations)
    assert found.dual_bound is not None
    assert verdict.value_ns == round(found.dual_bound * pyo.value(model.unit_ns))
    return verdict.value_ns


def instance(
    ops: dict[str, tuple[int | None, int | None]],
    edges: list[tuple[str, str, int]],
    *,
    gpus: int = 1,
    cpus: int = 1,
    sizes: int = 0,
    memory: int | None = None,
    group: str | None = None,
) -> Instance:
    """Ops with their times on accelerators and on hosts, edges with their host times."""
    devices = [Device(name=f"g{k}", kind="gpu", memory_bytes=memory) for k in range(gpus)]
    devices += [Device(name=f"c{k}", kind="cpu", is_host=True) for k in range(cpus)]
    made = (
        Op(
            name=name,
            resident_bytes=sizes,
            colocation=group,
            time_ns={
                kind: t for kind, t in zip(("gpu", "cpu"), times, strict=True) if t is not None
            },
        )
        for name, times in ops.items()
    )
    carried = (Edge(producer=a, consumer=b, host_time_ns=t, tensor="out") for a, b, t in edges)
    return Instance(
        name="rule",
        graph=Graph(name="rule", ops=tuple(made), edges=tuple(carried)),
        cluster=Cluster(name="rule", devices=tuple(devices)),
    )


RULES: dict[str, tuple[Callable[[], Instance], int, int]] = {
    # b runs on the accelerator only: 5, in 2, 1, out 3, 7; a and c on the host
    "a call pays in and out": (
        lambda: instance(
            {"a": (None, 5), "b": (1, None), "c": (None, 7)}, [("a", "b", 2), ("b", "c", 3)]
        ),
        18,
        18,
    ),
    # one tensor to b and c: 5 + 2 + 1 + 1, then the host takes nothing
    "a tensor enters once": (
        lambda: instance(
            {"a": (None, 5), "b": (1, None), "c": (1, None)}, [("a", "b", 2), ("a", "c", 2)]
        ),
        9,
        9,
    ),
    # a 1 + out 2 once; b beside c on the one host: 5
    "a tensor leaves once and hosts are parallel": (
        lambda: instance(
            {"a": (1, None), "b": (None, 5), "c": (None, 5)}, [("a", "b", 2), ("a", "c", 2)]
        ),
        8,
        8,
    ),
    # b is on the host: with one call, a or c is, too: 1 + 2, 1, 10; twice: 1 + 2, 1, 2 + 1
    "a second call is another call": (
        lambda: instance(
            {"a": (1, 10), "b": (None, 1), "c": (1, 10)}, [("a", "b", 2), ("b", "c", 2)]
        ),
        14,
        7,
    ),
    # 5 bytes hold one op of 3, so a second accelerator has the other: 1 + 2, 2 + 1
    "memory is that of all calls": (
        lambda: instance(
            {"a": (1, None), "b": (1, None)}, [("a", "b", 2)], gpus=2, sizes=3, memory=5
        ),
        6,
        6,
    ),
    # the only call waits for b, 6 + 1 + 1; of two calls a1 is the first, and a2 ends at 6 + 1
    "calls wait for what feeds them": (
        lambda: instance({"a1": (1, None), "b": (None, 6), "a2": (1, 20)}, [("b", "a2", 0)]),
        8,
        7,
    ),
    # a group is on the accelerator, 4 + 4, or on hosts, where its ops are side by side
    "a group is on hosts together": (
        lambda: instance({"a": (4, 5), "b": (4, 5)}, [], group="g", cpus=2),
        5,
        5,
    ),
    # no host: 4 + 4 in one call, or 4 on each
    "no host is needed": (
        lambda: instance({"a": (4, None), "b": (4, None)}, [], gpus=2, cpus=0),
        4,
        4,
    ),
    # p and q take no time on the accelerator, nor does x, which is on the host between them: one
    # call would wait for itself, so p or q is on the host, 9; two calls take nothing
    "calls without time do not wait in a circle": (
        lambda: instance(
            {"p": (0, 9), "x": (None, 0), "q": (0, 9)}, [("p", "x", 0), ("x", "q", 0)]
        ),
        9,
        0,
    ),
}


@both_forms
@pytest.mark.parametrize("name", RULES, ids=lambda name: name.replace(" ", "-"))
def test_each_rule_has_its_optimum(name: str, form: Form) -> None:
    make, once, twice = RULES[name]
    assert optimum(make(), ONCE) == once
    assert optimum(make(), TWICE) == twice
    assert solved(make(), ONCE, form) == once
    assert solved(make(), TWICE, form) == twice


@every_q
@both_forms
def test_it_equals_brute_force(semantics: Semantics, form: Form) -> None:
    for drawn in latency_draws()[:: 8 if form == "as_published" else 4]:
        assert solved(drawn, semantics, form) == optimum(drawn, semantics), drawn.name


@pytest.mark.deep
@every_q
@both_forms
def test_it_equals_brute_force_on_many(semantics: Semantics, form: Form) -> None:
    for drawn in latency_draws(400):
        assert solved(drawn, semantics, form) == optimum(drawn, semantics), drawn.name


@every_q
@both_forms
def test_a_plan_fits_the_model_that_has_its_value_as_horizon(
    semantics: Semantics, form: Form
) -> None:
    for drawn in latency_draws()[::4]:
        best = best_plan(drawn, semantics)
        if best is None:
            continue
        value, plan = best
        model = build(drawn, semantics, form, horizon_ns=value, symmetry=True)
        warm_start(model, drawn, plan, semantics)
        rows = list(model.component_data_objects(pyo.Constraint))
        assert [row.name for row in rows if row.slack() < -1e-9] == [], drawn.name
        for variable in model.component_data_objects(pyo.Var):
            assert variable.value is not None, variable.name
            lower, upper = variable.bounds
            assert lower is None or variable.value >= lower - 1e-9, variable.name
            assert upper is None or variable.value <= upper + 1e-9, variable.name
        again = evaluate(drawn, extract(model, drawn), semantics)
        assert again.feasible, drawn.name
        assert again.value_ns == value, drawn.name


@every_q
def test_chains_bound_every_plan(semantics: Semantics) -> None:
    tight = 0
    for drawn in latency_draws():
        value = optimum(drawn, semantics)
        if value is not None:
            assert chain_bound_ns(drawn, semantics) <= value, drawn.name
            tight += chain_bound_ns(drawn, semantics) == value
    assert tight >= 5


def test_a_chain_that_memory_cuts_pays_at_the_cheapest_place() -> None:
    # a (1) -> b (1) -> c (1), two of three fit: cut before c, where the tensor takes 2: 2 + 2, then
    # 2 + 1
    chain = instance(
        dict.fromkeys("abc", (1, None)), [("a", "b", 9), ("b", "c", 2)], gpus=2, sizes=1, memory=2
    )
    assert chain_bound_ns(chain, ONCE) == 7
    assert optimum(chain, ONCE) == 7


def test_rows_are_counted_without_building() -> None:
    for semantics in LATENCY_SEMANTICS:
        for form in FORMS:
            for drawn in latency_draws()[:12]:
                model = build(drawn, semantics, form, symmetry=True)
                rows = sum(1 for _ in model.component_data_objects(pyo.Constraint))
                extra = drawn.num_devices * (1 + drawn.num_ops)  # memory and colocation
                assert rows <= count_rows(drawn, semantics, form) + extra


def test_the_strengthened_relaxation_is_the_stronger_one() -> None:
    # LP bounds of the diamond of `example` as fingerprints, in ns
    bounds = {}
    for form in FORMS:
        found = solve_model(build(example(), ONCE, form, horizon_ns=43), Limits(), relax=True)
        bounds[form] = found.objective
    assert bounds["as_published"] is not None
    assert bounds["strengthened"] is not None
    assert bounds["as_published"] < bounds["strengthened"] <= 43


def test_a_user_may_add_constraints() -> None:
    model = build(example(), ONCE)
    model.apart = pyo.Constraint(expr=model.x[0, 0] + model.x[1, 0] == 1)
    assert solve_model(model, Limits()).ending == "optimal"
    devices = extract(model, example()).devices
    assert devices[0] != devices[1]


def test_other_objectives_are_refused() -> None:
    with pytest.raises(ValueError, match="makespan port per_edge"):
        build(example(), Makespan())
