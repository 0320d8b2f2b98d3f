"""The integers that all costs are counted in: their limits, and the one rounding rule."""

from __future__ import annotations

NS_PER_S = 10**9

LARGEST_SUM = 2**62
"""Sums of times or of bytes above this are input errors: kernels add in int64."""

NO_LIMIT = LARGEST_SUM
"""Memory of a device without a limit."""

NEVER = LARGEST_SUM
"""A time that no plan takes: what cannot be, in minima over times."""

UNSUPPORTED = -1
"""Time of an op on a device that cannot run it."""


def ceil_div(numerator: int, denominator: int) -> int:
    """Round a quotient of non-negative integers up: the one rounding rule of all costs.

    Examples
    --------
    >>> ceil_div(7, 2), ceil_div(6, 2)
    (4, 3)
    """
    return -(-numerator // denominator)
