"""The throughput IP counts as the referee does, and rounds no share."""

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

from placegap.formulations.throughput_ip import build, extract, warm_start
from placegap.instances import MaxLoad, Op, Semantics, evaluate
from placegap.solvers import Limits, run_method
from placegap.solvers.core.back_ends import solve_model

REPLICAS = MaxLoad(plans="any", replicas=True)
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
        warm_start(model, instance, best.plan)
        assert best.value_ns == pytest.approx(pyo.value(model.load_ns))
        rows = list(model.component_data_objects(pyo.Constraint, active=True))
        assert [row.name for row in rows if row.slack() < -1e-9] == []
        plan = extract(model, instance)
        assert evaluate(instance, plan, semantics).value_ns == best.value_ns
        if not symmetry and not semantics.has_replicas:
            assert plan == best.plan
        largest = model.largest[model.PASSES.first()]
        largest.set_value(largest.value - 1e-3)
        assert largest.value < 0 or any(row.slack() < -1e-9 for row in rows)


def test_a_share_of_many_nanoseconds_is_not_rounded() -> None:
    # 10**6 + 1 ns on two devices: 500001 by the referee, 500000.5 in units of 1000 ns
    op = Op(name="a", time_ns={"gpu": 10**6 + 1})
    links = draw.links(2, lambda a, b: (10**9, 0))
    on = draw.instance_of("one", [op], (), draw.devices(["gpu"] * 2), links)
    model = build(on, REPLICAS)
    assert solve_model(model, Limits()).ending == "optimal"
    assert pyo.value(model.load_ns) == pytest.approx(500_000.5)
    assert evaluate(on, extract(model, on), REPLICAS).value_ns == 500_001
