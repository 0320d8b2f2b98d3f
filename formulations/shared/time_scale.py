"""The unit in which a model counts time, and the durations of a makespan model in it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED

LARGEST_TIME = 1000.0
"""Models count time in a unit that keeps their horizon at or below this number."""


def granularity_ns(instance: Instance, *, transfers: bool) -> int:
    """Greatest common divisor of all times that a value is a sum of; 1 if all of them are 0.

    Every makespan (``transfers=True``: op and transfer times) and every load of a device
    (``transfers=False``: op and host times) is a multiple of it.

    Examples
    --------
    >>> from placegap.instances import example
    >>> granularity_ns(example(), transfers=True)
    1
    """
    arrays = instance.arrays
    ops = arrays.time_ns[arrays.time_ns != UNSUPPORTED]
    moves = arrays.transfer_ns[:, 1:] if transfers else arrays.host_ns[:, ~arrays.is_host]
    return math.gcd(*np.unique(ops).tolist(), *np.unique(moves).tolist()) or 1


def time_unit_ns(horizon_ns: int, granularity: int) -> float:
    """Nanoseconds per unit of model time: the granularity, unless that leaves large numbers.

    Multiples of the granularity make every duration an integer, which solvers keep exact. The
    horizon is at most `LARGEST_TIME` units, because an integrality error of 1e-6 times a big-M of
    that size is still small beside one unit.

    Examples
    --------
    >>> time_unit_ns(60_000_000, 1_000_000), time_unit_ns(5_000_000, 1)
    (1000000.0, 5000.0)
    """
    return max(float(granularity), horizon_ns / LARGEST_TIME)


@dataclass(frozen=True)
class ScaledTimes:
    """Durations in model units; n ops, m edges, K devices.

    Attributes
    ----------
    unit_ns : float
        Nanoseconds per unit (`time_unit_ns`).
    horizon : float
        No plan of interest lasts longer.
    op : n lists of K
        Time of op i on device k; meaningless where it is not possible.
    move : m lists of K lists of K
        Time of the transfer of edge q from device a to device b; 0 for a == b.
    """

    unit_ns: float
    horizon: float
    op: list[list[float]]
    move: list[list[list[float]]]


def scale_times(instance: Instance, horizon_ns: int) -> ScaledTimes:
    """Scale the times of an instance so that the horizon is a moderate number; O(n K + m K^2).

    Examples
    --------
    >>> from placegap.instances import example
    >>> times = scale_times(example(), 43)
    >>> times.horizon, times.op[0], times.move[1]
    (43.0, [5.0, 5.0], [[0.0, 20.0], [20.0, 0.0]])
    """
    arrays = instance.arrays
    unit_ns = time_unit_ns(horizon_ns, granularity_ns(instance, transfers=True))
    move = (arrays.transfer_ns / unit_ns)[:, arrays.link_class]
    return ScaledTimes(
        unit_ns,
        horizon_ns / unit_ns,
        (arrays.time_ns / unit_ns).tolist(),
        move[arrays.index.tensor].tolist(),
    )


def serial_horizon_ns(instance: Instance) -> int:
    """Every placement, run one op and one transfer at a time, ends by then.

    Examples
    --------
    >>> from placegap.instances import example
    >>> serial_horizon_ns(example())
    75
    """
    arrays = instance.arrays
    ops = np.where(arrays.time_ns == UNSUPPORTED, 0, arrays.time_ns).max(axis=1)
    moves = arrays.transfer_ns[arrays.index.tensor].max(axis=1, initial=0)
    return int(sum(ops.tolist()) + sum(moves.tolist()))
