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

from placegap.formulations.throughput_ip import Form, build, extract, warm_start, why_not
from placegap.instances import (
    InputError,
    Instance,
    MaxLoad,
    MaxLoadFwdBwd,
    Op,
    Plan,
    Semantics,
    evaluate,
    example,
)
from placegap.instances.problem import Loads
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


@pytest.mark.parametrize(
    ("rules", "form", "adds"),
    [
        ({}, "plain", []),
        ({"replicas": True}, "replicas", ["stage", "share"]),
        ({"levels": 2}, "servers", ["in_server", "server_load"]),
        ({"replicas": True, "levels": 2}, "servers", ["stage", "in_server"]),
    ],
)
def test_the_form_follows_from_the_semantics(
    rules: dict[str, object], form: Form, adds: list[str]
) -> None:
    semantics = MaxLoad.model_validate({"plans": "chain", **rules})
    instance = next(one for one in equal_device_draws() if len(servers(one)) > 1)
    model, stated = (build(instance, semantics, form=given) for given in (None, form))
    assert list(model.component_map()) == list(stated.component_map())
    found = [
        name for name in ("stage", "share", "in_server", "server_load") if hasattr(model, name)
    ]
    assert set(adds) <= set(found)
    assert ("stage" in found, "in_server" in found) == ("replicas" in rules, "levels" in rules)


def servers(instance: Instance) -> set[str | None]:
    return {device.server for device in instance.cluster.devices}


def test_a_column_of_devices_has_their_names() -> None:
    op = Op(name="a", time_ns={"gpu": 9}, parameter_bytes=2)
    links = draw.links(2, lambda a, b: (10**9, 0))
    on = draw.instance_of("one", [op], (), draw.devices(["gpu"] * 2), links)
    model = build(on, REPLICAS)
    assert list(model.COLUMNS) == ["d0", "d1", "d0+d1"]
    warm_start(model, on, Plan(((0, 1),)))
    # ceil(9 / 2) = 5 ns each, and 2 (2 - 1) 2 / 2 = 2 ns for weights at 1 byte/ns
    assert (model.share["d0+d1"].value, model.sync["d0+d1"].value) == (5, 2)
    assert pyo.value(model.load_ns) == 7
    assert extract(model, on) == Plan(((0, 1),))


@pytest.mark.parametrize(
    "semantics",
    [
        MaxLoad(plans="any"),
        MaxLoad(plans="chain", load="overlap"),
        MaxLoadFwdBwd(plans="convex"),
        MaxLoad(plans="chain", levels=2),
    ],
    ids=lambda semantics: semantics.label.replace(" ", "-"),
)
def test_changed_times_are_solved_without_a_build(semantics: Loads) -> None:
    for instance in equal_device_draws()[::40]:
        if why_not(instance, semantics) is not None:
            continue
        model = build(instance, semantics)
        if solve_model(model, Limits()).ending != "optimal":
            continue
        plan, before = extract(model, instance), pyo.value(model.load_ns)
        for data in model.component_objects(pyo.Param):
            if data.local_name in ("duration_ns", "host_ns"):
                for index, time in data.items():
                    data[index] = 3 * time.value
        # all that adds up to a load is three times what it was
        warm_start(model, instance, plan)
        assert pyo.value(model.load_ns) == pytest.approx(3 * before)
        assert solve_model(model, Limits()).ending == "optimal"
        assert pyo.value(model.load_ns) == pytest.approx(3 * before)


def test_less_memory_leaves_no_place() -> None:
    ops = [Op(name=name, time_ns={"gpu": 5}, resident_bytes=2) for name in "ab"]
    on = draw.instance_of("two", ops, (), draw.devices(["gpu", "tpu"], lambda _: 4))
    model = build(on, MaxLoad(plans="any"))
    assert solve_model(model, Limits()).ending == "optimal"
    assert pyo.value(model.load_ns) == pytest.approx(10)
    model.capacity_bytes["d0"] = 3
    assert solve_model(model, Limits()).ending == "infeasible"
    with pytest.raises(InputError, match="no solution"):
        extract(model, on)


def test_within_a_horizon_times_only_get_longer() -> None:
    # where an op takes longer than the horizon, x is fixed to 0: shorter times need a build
    model = build(example(), MaxLoad(plans="any"), horizon_ns=22)
    model.duration_ns["op2", "gpu0"] = 21
    with pytest.raises(ValueError, match="duration_ns"):
        model.duration_ns["op2", "gpu0"] = 19
    build(example(), MaxLoad(plans="any")).duration_ns["op2", "gpu0"] = 19
