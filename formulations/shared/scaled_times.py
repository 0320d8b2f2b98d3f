"""Durations of a makespan model, in its own unit of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.formulations.shared.families import granularity_ns, time_unit_ns
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED


@dataclass(frozen=True)
class ScaledTimes:
    """Durations in model units; n ops, m edges, K devices.

    Attributes
    ----------
    unit_ns : float
        Nanoseconds per unit (`shared.families.time_unit_ns`).
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
