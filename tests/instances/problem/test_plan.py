"""Plans and files that are none: one line, whatever stands in place of a number or a name."""

from decimal import Decimal
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from placegap.instances import InputError, Plan, load_cluster, load_model, load_plan


@pytest.mark.parametrize("odd", [inf, nan, 1.5, "1", None, Decimal("NaN"), 1j])
def test_what_is_no_whole_number_is_no_device_and_no_op(odd: Any) -> None:
    for devices, orders in (([odd, 0], None), ([0, 0], [[0, odd], []])):
        with pytest.raises(InputError, match=r"whole numbers.*, not "):
            Plan.on(devices, orders)


def test_numbers_of_numpy_and_whole_floats_are_numbers() -> None:
    assert Plan.on(np.array([1, 0])) == Plan.on([1.0, np.float64(0)]) == Plan(((1,), (0,)))  # type: ignore[list-item]


@pytest.mark.parametrize("odd", [None, 3, nan, True])
def test_a_plan_without_a_list_of_devices_is_refused_before_any_referee(odd: Any) -> None:
    with pytest.raises(InputError, match="placement"):
        Plan(placement=odd)
    if odd is not None:
        with pytest.raises(InputError, match="device_order"):
            Plan(((0,),), device_order=odd)


@pytest.mark.parametrize("odd", [-(2**63), 2**70, 0, nan, None, True])
def test_a_number_is_no_file(odd: Any) -> None:
    for load in (load_model, load_cluster, lambda path: load_plan(None, path)):  # type: ignore[arg-type]
        with pytest.raises(InputError, match="has a name"):
            load(odd)
