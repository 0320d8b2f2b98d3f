"""The integers that all costs are counted in: limits, the one rounding rule, bytes as people read
them.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints

NS_PER_MS, NS_PER_S = 10**6, 10**9

LARGEST_SUM = 2**62  # sums of times or of bytes above this are input errors: kernels add in int64
NO_LIMIT = LARGEST_SUM  # memory of a device without a limit
NEVER = LARGEST_SUM  # a time that no plan takes: what cannot be, in minima over times
NO_WAY = NEVER // 4  # length of a way that does not exist: two of them can be added
UNSUPPORTED = -1  # time of an op on a device that cannot run it


def ceil_div(numerator: int, denominator: int) -> int:
    """Round a quotient of non-negative integers up: the one rounding rule of all costs."""
    return -(-numerator // denominator)


def times_written(factor: float, whole: int) -> int:
    """A whole number times what a decimal says, not its binary neighbour, rounded down."""
    return floor(Fraction(str(factor)) * whole)


def to_whole(numbers: Floats) -> Ints:
    """Numbers cut to integers; those beyond `LARGEST_SUM` become it, and what is no number 0."""
    # A plain cast makes of a number beyond 64 bits a negative one.
    known = np.where(np.isnan(numbers), 0.0, numbers)
    return np.clip(known, -float(LARGEST_SUM), float(LARGEST_SUM)).astype(np.int64)


def format_bytes(size: int) -> str:
    """Bytes in decimal units."""
    for unit, step in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= step:
            return f"{_strip(f'{size / step:.2f}')} {unit}"
    return f"{size} B"


def _strip(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
