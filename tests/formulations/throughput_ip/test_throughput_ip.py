"""The throughput IP counts as the referee does; replicas, servers and the number of its rows."""

from __future__ import annotations

import pyomo.environ as pyo
import pytest
from draws import draw
from draws.equal_devices import equal_device_draws
from references.brute_force import (
    FWD_BWD_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    STAGE_SEMANTICS,
    max_load_draws,
)

from placegap.formulations.throughput_ip import build, count_rows, extract, warm_start
from placegap.instances import Device, Edge, Instance, MaxLoad, Op, Semantics, evaluate
from placegap.instances.problem import has_replicas
from placegap.solvers import Limits, run_method
from placegap.solvers.core.back_ends import solve_model


def edge(producer: str, consumer: str, size: int) -> Edge:
    return Edge(producer=producer, consumer=consumer, bytes=size)


def row(*times: int, devices: int = 2, **fields: object) -> Instance:
    """Ops op0 -> op1 -> ... in a row, tensors of 1 ns, equal devices of one server."""
    ops = tuple(Op(name=f"op{i}", time_ns={"gpu": t}, **fields) for i, t in enumerate(times))  # type: ignore[arg-type]
    edges = tuple(edge(f"op{i}", f"op{i + 1}", 1) for i in range(len(times) - 1))
    return alike(ops, edges, "s" * devices)


def alike(ops: tuple[Op, ...], edges: tuple[Edge, ...], servers: str) -> Instance:
    """Devices of kind gpu in servers, 1 byte per ns between any two."""
    devices = tuple(Device(name=f"d{k}", kind="gpu", server=name) for k, name in enumerate(servers))
    links = draw.links(len(servers), lambda a, b: (10**9, 0))
    return draw.instance_of("alike", ops, edges, devices, links)


def rules(**more: object) -> Semantics:
    return MaxLoad(**more)  # type: ignore[arg-type]


ALL_RULES = [*MAX_LOAD_SEMANTICS, *FWD_BWD_SEMANTICS, *STAGE_SEMANTICS]


@pytest.mark.parametrize("symmetry", [True, False], ids=["ordered", "free"])
@pytest.mark.parametrize("semantics", ALL_RULES, ids=lambda s: s.label.replace(" ", "-"))
def test_a_plan_is_a_solution_of_the_referees_value(semantics: Semantics, symmetry: bool) -> None:
    staged = semantics in STAGE_SEMANTICS
    draws = equal_device_draws() if staged else max_load_draws()
    for instance in draws[ALL_RULES.index(semantics) :: 80]:
        best = run_method(instance, semantics, "brute-force")
        if best.plan is None:
            continue
        model = build(instance, semantics, symmetry=symmetry)
        warm_start(model, instance, best.plan, semantics, symmetry)
        assert best.value_ns == pytest.approx(pyo.value(model.objective) * pyo.value(model.unit_ns))
        rows = list(model.component_data_objects(pyo.Constraint, active=True))
        assert [row.name for row in rows if row.slack() < -1e-9] == []
        plan = extract(model, instance, semantics, symmetry)
        assert evaluate(instance, plan, semantics).value_ns == best.value_ns
        if not symmetry and not has_replicas(semantics):
            assert plan == best.plan
        largest = next(v for v in model.component_objects(pyo.Var) if "largest" in v.name)
        largest.set_value(pyo.value(largest) - 1e-3)
        assert pyo.value(largest) < 0 or any(row.slack() < -1e-9 for row in rows)


def test_a_share_of_many_nanoseconds_is_not_rounded() -> None:
    # 10**6 + 1 ns on two devices: 500001 by the referee, 500000.5 in units of 1000 ns
    on = row(10**6 + 1)
    model = build(on, rules(replicas=True))
    assert solve_model(model, Limits()).ending == "optimal"
    assert pyo.value(model.objective) * pyo.value(model.unit_ns) == pytest.approx(500_000.5)
    verdict = evaluate(on, extract(model, on, rules(replicas=True)), rules(replicas=True))
    assert verdict.value_ns == 500_001


@pytest.mark.parametrize("semantics", ALL_RULES[::3], ids=lambda s: s.label.replace(" ", "-"))
def test_rows_are_counted_without_building(semantics: Semantics) -> None:
    draws = equal_device_draws() if semantics in STAGE_SEMANTICS else max_load_draws()
    for instance in draws[:9:4]:
        model = build(instance, semantics)
        beside = ("memory", "colocate")
        rows = sum(
            len(part)
            for part in model.component_objects(pyo.Constraint)
            if not any(word in part.name for word in beside)
        )
        assert count_rows(instance, semantics) >= rows


def test_many_equal_devices_with_uneven_links_are_refused() -> None:
    on = row(1, devices=7)
    first, *others = on.cluster.links
    slow = first.model_copy(update={"bandwidth_bytes_per_s": 10**8})
    uneven = on.model_copy(
        update={"cluster": on.cluster.model_copy(update={"links": (slow, *others)})}
    )
    with pytest.raises(ValueError, match="at most 6 equal devices"):
        build(uneven, rules(replicas=True))
