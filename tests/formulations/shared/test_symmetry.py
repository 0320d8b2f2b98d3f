"""Of plans that differ in the names of identical devices, one is kept."""

from __future__ import annotations

from itertools import permutations, product

import pyomo.environ as pyo
import pytest
from draws import draw
from draws.twins import CLUSTERS, twin_instance

from placegap.formulations import latency_ip, moirai, throughput_ip
from placegap.formulations.shared import devices as alike
from placegap.formulations.shared.data import new_model, set_placement
from placegap.formulations.shared.devices import (
    canonical,
    count_symmetry_rows,
    first_uses,
    group_leaders,
    new_names,
    representative_devices,
)
from placegap.formulations.shared.families import assign_once, place_ops, symmetry_order
from placegap.instances import Instance, LatencySubgraphs, Makespan, MaxLoad, Op, Plan
from placegap.instances.problem.device_classes import identical_devices
from placegap.solvers import Limits
from placegap.solvers.core.back_ends import solve_model

PORT = Makespan()


def loose(*times_ns: int) -> Instance:
    """Ops without edges on three identical devices."""
    ops = (Op(name=f"op{i}", time_ns={"gpu": time}) for i, time in enumerate(times_ns))
    links = draw.links(3, lambda a, b: (10**9, 0))
    return draw.instance_of("loose", ops, (), draw.devices(["gpu"] * 3), links)


# -------------------------------------------------------------------------------- representatives


def survivors(instance: Instance) -> set[tuple[int, ...]]:
    """Placements that the rows of `symmetry_order` and the fixed variables leave."""
    model = new_model("x alone", instance, PORT)
    place_ops(model, instance.arrays.able)
    assign_once(model)
    symmetry_order(model, instance)
    rows = list(model.component_data_objects(pyo.Constraint))
    found = set()
    for devices in placements(instance):
        set_placement(model, list(devices))
        if all(row.slack() >= 0 for row in rows):
            found.add(devices)
    return found


def placements(instance: Instance) -> list[tuple[int, ...]]:
    """Every placement that keeps groups together and ops where they can run."""
    group, possible = instance.arrays.group.tolist(), instance.arrays.able
    homes = product(range(instance.num_devices), repeat=max(group) + 1)
    each = [tuple(home[g] for g in group) for home in homes]
    return [devices for devices in each if possible[range(len(group)), devices].all()]


def orbit(instance: Instance, devices: tuple[int, ...]) -> frozenset[tuple[int, ...]]:
    """All placements that renaming identical devices leads to."""
    found = {devices}
    for members in identical_devices(instance):
        found = {
            tuple(dict(zip(members, names, strict=True)).get(k, k) for k in placement)
            for placement in found
            for names in permutations(members)
        }
    return frozenset(found)


def test_four_ops_on_three_identical_devices_have_14_placements() -> None:
    # partitions of 4 ops into at most 3 parts: 1 + 7 + 6 (Stirling numbers), of 3^4 = 81
    assert len(survivors(loose(4, 3, 2, 1))) == 14


def test_of_every_orbit_one_placement_is_left() -> None:
    smaller = 0
    for seed in range(8):
        kinds = list(CLUSTERS[seed % len(CLUSTERS)])
        instance = twin_instance(seed, num_ops=4, kinds=kinds)
        orbits = {orbit(instance, devices) for devices in placements(instance)}
        left = survivors(instance)
        assert [len(each & left) for each in orbits] == [1] * len(orbits), seed
        assert len(left) == len(orbits)
        assert len(first_uses(instance)) <= count_symmetry_rows(instance)
        smaller += len(left) < len(placements(instance))
    assert smaller > 4
    assert count_symmetry_rows(loose(1, 1, 1, 1)) == 8  # 4 groups, 2 rows each


def test_fewer_rows_leave_at_least_one_of_every_orbit(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = loose(5, 4, 3, 2, 1)
    monkeypatch.setattr(alike, "MOST_EARLIER", 2)
    left = survivors(instance)
    orbits = {orbit(instance, devices) for devices in placements(instance)}
    assert all(each & left for each in orbits)
    assert len(orbits) < len(left) < 3**5
    for each in orbits:
        assert tuple(canonical(instance, Plan.on(min(each)), PORT).devices.tolist()) in left


def test_the_longest_group_takes_the_first_device() -> None:
    instance = loose(1, 9, 5)
    assert group_leaders(instance) == [1, 2, 0]
    assert representative_devices(instance).tolist() == [
        [True, True, True],
        [True, False, False],
        [True, True, False],
    ]


def test_groups_count_as_one_op() -> None:
    # the group 1 + 1 + 1 comes before the op of 2; its first op stands for it
    ops = [Op(name=f"op{i}", time_ns={"gpu": 1}, colocation="g") for i in range(3)]
    alone = Op(name="alone", time_ns={"gpu": 2})
    instance = draw.instance_of("g", [alone, *ops], (), draw.devices(["gpu"] * 2))
    assert group_leaders(instance) == [1, 0]
    assert representative_devices(instance)[1:].tolist() == [[True, False]] * 3
    assert first_uses(instance) == [alike.FirstUse(0, (1,), (1,), 0)]


BUILDS = {
    "makespan": (moirai.build, PORT),
    "max_load": (throughput_ip.build, MaxLoad(plans="chain")),
    "latency_subgraphs": (latency_ip.build, LatencySubgraphs()),
}


@pytest.mark.parametrize("objective", BUILDS)
def test_a_model_as_built_takes_constraints_that_name_devices(objective: str) -> None:
    # on identical devices some optimum has the longest op wherever it is pinned
    build, semantics = BUILDS[objective]
    instance = loose(3, 5, 7)
    model = build(instance, semantics)
    model.pinned = pyo.Constraint(expr=model.x["op2", "d2"] + model.x["op0", "d0"] == 2)
    found = solve_model(model, Limits())
    assert found.objective is not None
    # three ops on three devices: the longest decides
    assert round(found.objective * pyo.value(model.unit_ns)) == 7


# ------------------------------------------------------------------------------ plans, relabelled


def test_names_within_a_class_follow_the_first_use() -> None:
    # ops 1, 2, 0 in this order: device 2 is used first, then 0; 1 is not used
    assert new_names(loose(1, 9, 5), Plan.on([0, 2, 0])) == [1, 2, 0]


def test_orders_that_a_plan_leaves_open_stay_open() -> None:
    instance = loose(3, 2)
    kept = canonical(instance, Plan.on([1, 2]), PORT)
    assert kept == Plan.on([0, 1])
    part = Plan(((1,), (2,)), device_order=(None, (0,), None))
    assert canonical(instance, part, PORT).device_order == ((0,), None, None)
