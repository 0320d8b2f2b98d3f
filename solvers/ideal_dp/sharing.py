"""How the replicas of a stage share its load, and what they pay to sum up its parameters.

With base the load of one device, r devices have ceil(base / r) + ceil(fraction * parameter_bytes).
All is in integers.
"""

from __future__ import annotations

from typing import NamedTuple

from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.kinds_problem import Stage

SLOPE_BITS = 30
"""Precision of the first guess at a stage's synchronisation."""


class Sharing(NamedTuple):
    """Replicas and synchronisation of a stage, for the kernel.

    Attributes
    ----------
    replicas, top, bottom : int
        ``top / bottom`` ns per byte; ``bottom == 0``: no parameters allowed.
    slope, cut_bits, shift : int
        ``(P >> cut_bits) * slope >> shift`` (to the left if negative) is at most P top / bottom.
    """

    replicas: int
    top: int
    bottom: int
    slope: int
    cut_bits: int
    shift: int


def share(stage: Stage, parameter_bytes: int) -> Sharing:
    """How a stage shares its load, with at most so many parameters in all.

    Examples
    --------
    >>> sharing = share(Stage(0, (2,), 2, (4, 3)), 1000)
    >>> [sync_ns(sharing, size) for size in (0, 1, 3, 1000)]
    [0, 2, 4, 1334]
    """
    top, bottom = stage.sync
    if top == 0 or bottom == 0:
        return Sharing(stage.replicas, top, bottom, 0, 0, 0)
    shift = SLOPE_BITS - 1 - (top // bottom).bit_length()
    if top < bottom:
        shift = SLOPE_BITS - 1 + (bottom // top).bit_length()
    slope = (top << shift) // bottom if shift >= 0 else (top >> -shift) // bottom
    cut_bits = max(0, parameter_bytes.bit_length() - SLOPE_BITS)
    return Sharing(stage.replicas, top, bottom, slope, cut_bits, shift - cut_bits)


@kernel(allocates=False)
def least_sync_ns(s: Sharing, parameter_bytes: int) -> int:
    """At most the synchronisation of so many parameters, nearly as much."""
    product = (parameter_bytes >> s.cut_bits) * s.slope
    return int(product >> s.shift if s.shift >= 0 else product << -s.shift)


@kernel(allocates=False)
def sync_ns(s: Sharing, parameter_bytes: int) -> int:
    """ceil(parameter_bytes * top / bottom).

    The products wrap around 2**64, their difference does not: the guess is that good.
    """
    if s.top == 0 or parameter_bytes == 0:
        return 0
    guess = least_sync_ns(s, parameter_bytes)
    missing = parameter_bytes * s.top - guess * s.bottom
    return int(guess - (-missing) // s.bottom)


@kernel(allocates=False)
def least_shared_sync(sharing: Sharing, parameter_bytes: int, limit: int) -> int:
    """At most replicas * the synchronisation of at least so many parameters."""
    if parameter_bytes <= 0:
        return 0
    if sharing.bottom == 0:
        return int(sharing.replicas * limit)
    return int(sharing.replicas * min(limit, least_sync_ns(sharing, parameter_bytes)))


@kernel(allocates=False)
def shared_load(s: Sharing, base: int, parameter_bytes: int, limit: int) -> int:
    """Load of a stage of which one device alone would have `base`; `limit` or more if too large."""
    if base > s.replicas * (limit - 1):
        return limit
    if parameter_bytes > 0 and (s.bottom == 0 or least_sync_ns(s, parameter_bytes) >= limit):
        return limit
    return int(sync_ns(s, parameter_bytes) - (-base) // s.replicas)
