"""Memory rows that the models share."""

from itertools import product

import pyomo.environ as pyo
from draws import draw

from placegap.formulations.shared.old_families import (
    LARGEST_CAPACITY,
    assign_once,
    exclude_overload,
    memory_capacity,
    place_ops,
    set_placement,
)
from placegap.instances import Instance, Op, Plan


def machines(memory_bytes: tuple[int, ...], sizes: tuple[int, ...]) -> Instance:
    """Ops of the given sizes, without edges, on devices of the given memory."""
    ops = (
        Op(name=f"op{i}", time_ns={"gpu": 1}, resident_bytes=size) for i, size in enumerate(sizes)
    )
    devices = draw.devices(["gpu"] * len(memory_bytes), lambda k: memory_bytes[k])
    return draw.instance_of("sizes", ops, (), devices)


def admits(model: pyo.ConcreteModel, plan: Plan) -> bool:
    """Whether a plan's placement keeps to all rows."""
    set_placement(model, plan)
    rows = model.component_data_objects(pyo.Constraint, active=True)
    return all(row.slack() >= -1e-9 for row in rows)


def test_memory_rows_of_small_numbers_are_exact() -> None:
    # in units of gcd 6 the sizes are 1, 2 and the capacities floor(17 / 6) = 2 and 3
    instance = machines((17, 18), (6, 12))
    model = pyo.ConcreteModel()
    place_ops(model, instance.arrays.able)
    memory_capacity(model, instance)
    assert list(model.memory_capacity) == [0]  # the second device holds everything
    assert admits(model, Plan.on([1, 0]))
    assert not admits(model, Plan.on([0, 0]))


def test_memory_rows_of_large_numbers_are_a_millionth_wider_until_a_plan_is_excluded() -> None:
    giant = LARGEST_CAPACITY**2
    # the first two ops exceed either device by 1 byte, and none of the others
    sizes = (giant // 2, giant // 2 + 1, 5, 3)
    instance = machines((giant, giant, giant // 4), sizes)
    model = pyo.ConcreteModel()
    place_ops(model, instance.arrays.able)
    assign_once(model, instance)
    memory_capacity(model, instance)
    overloaded = Plan.on([0, 0, 1, 1])
    assert admits(model, overloaded)
    assert not admits(model, Plan.on([0, 2, 1, 1]))  # twice the third device's memory
    assert not exclude_overload(model, instance, Plan.on([0, 1, 1, 1]))
    assert exclude_overload(model, instance, overloaded)
    for pair in product(range(2), repeat=2):
        for rest in product(range(3), repeat=2):
            assert admits(model, Plan.on([*pair, *rest])) == (pair[0] != pair[1])
