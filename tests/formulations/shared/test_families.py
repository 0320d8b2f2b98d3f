"""Memory rows that the models share."""

from itertools import product

import pyomo.environ as pyo
import pytest
from draws import draw

from placegap.formulations.shared.data import new_model, set_placement
from placegap.formulations.shared.families import (
    LARGEST_CAPACITY,
    assign_once,
    exclude_overload,
    memory_capacity,
    place_ops,
)
from placegap.instances import Instance, MaxLoad, Op, Plan


def machines(memory_bytes: tuple[int, ...], sizes: tuple[int, ...]) -> Instance:
    """Ops of the given sizes, without edges, on devices of the given memory."""
    ops = (
        Op(name=f"op{i}", time_ns={"gpu": 1}, resident_bytes=size) for i, size in enumerate(sizes)
    )
    devices = draw.devices(["gpu"] * len(memory_bytes), lambda k: memory_bytes[k])
    return draw.instance_of("sizes", ops, (), devices)


def memory_model(instance: Instance) -> pyo.ConcreteModel:
    """A model of nothing but places and their memory."""
    model = new_model("memory", instance, MaxLoad())
    place_ops(model, instance.arrays.able)
    assign_once(model)
    memory_capacity(model, instance)
    return model


def admits(model: pyo.ConcreteModel, devices: list[int]) -> bool:
    """Whether a placement keeps to all rows."""
    set_placement(model, devices)
    rows = model.component_data_objects(pyo.Constraint, active=True)
    return all(row.slack() >= -1e-9 for row in rows)


def test_memory_rows_of_small_numbers_are_exact() -> None:
    # in units of gcd 6 the sizes are 1, 2 and the capacities 17 / 6 < 3 and 3
    model = memory_model(machines((17, 18), (6, 12)))
    assert dict(model.memory_unit_bytes.items()) == {"d0": 6, "d1": 6}
    assert admits(model, [1, 0])
    assert admits(model, [1, 1])
    assert not admits(model, [0, 0])


def test_less_memory_excludes_what_no_longer_fits_and_more_needs_a_build() -> None:
    model = memory_model(machines((100, 100), (6, 12)))
    assert model.capacity_bytes["d0"].value == 18  # that of all ops: more changes nothing
    model.capacity_bytes["d0"] = 17
    assert not admits(model, [0, 0])
    assert admits(model, [1, 1])
    with pytest.raises(ValueError, match="capacity_bytes"):
        model.capacity_bytes["d1"] = 19


def test_memory_rows_of_large_numbers_are_a_millionth_wider_until_a_plan_is_excluded() -> None:
    giant = LARGEST_CAPACITY**2
    # the first two ops exceed either device by 1 byte, and none of the others
    sizes = (giant // 2, giant // 2 + 1, 5, 3)
    model = memory_model(machines((giant, giant, giant // 4), sizes))
    overloaded = [0, 0, 1, 1]
    assert admits(model, overloaded)
    assert not admits(model, [0, 2, 1, 1])  # twice the third device's memory
    assert not exclude_overload(model, Plan.on([0, 1, 1, 1]))
    assert exclude_overload(model, Plan.on(overloaded))
    for pair in product(range(2), repeat=2):
        for rest in product(range(3), repeat=2):
            assert admits(model, [*pair, *rest]) == (pair[0] != pair[1])
