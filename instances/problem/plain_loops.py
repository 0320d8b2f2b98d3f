"""What numpy's slices, `diff` and `integers` do, in plain code for kernels.

numba compiles it in a fraction of the time: a slice that is assigned to brings the code of its
error message along, into the kernel and into every kernel that calls it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel


@kernel(nogil=True, allocates=False)
def copy_to(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Write the first entries of an array over all of another one; both have one axis.

    Nobody checks that the source is as long as the target.

    Examples
    --------
    >>> target = np.zeros(2, np.int64)
    >>> copy_to(target, np.array([5, 6, 7]))
    >>> target.tolist()
    [5, 6]
    """
    for at in range(len(target)):
        target[at] = source[at]


@kernel(nogil=True)
def sizes_of(ptr: Ints) -> Ints:
    """How many entries each group has, from pointers to the first of each: `np.diff`.

    Examples
    --------
    >>> sizes_of(np.array([0, 2, 2, 5])).tolist()
    [2, 0, 3]
    """
    sizes = np.empty(len(ptr) - 1, np.int64)
    for at in range(len(sizes)):
        sizes[at] = ptr[at + 1] - ptr[at]
    return sizes


@kernel(nogil=True, allocates=False)
def draw(rng: np.random.Generator, count: int) -> int:
    """One of 0..count - 1, about equally likely; `rng.integers` makes an array for each number.

    Examples
    --------
    >>> draw(np.random.default_rng(0), 10)
    6
    """
    return int(rng.random() * count)
