"""What a plan takes for a number of a device."""

import numpy as np

from placegap.instances import Plan


def test_numbers_of_numpy_and_whole_floats_are_numbers() -> None:
    assert Plan.on(np.array([1, 0])) == Plan.on([1.0, np.float64(0)]) == Plan(((1,), (0,)))  # type: ignore[list-item]
