"""GETF's groups of devices: who belongs together, and which group an op is rounded to.

After Su, Ren, Vardi, Wierman, "Communication-Aware Scheduling of Precedence-Constrained Tasks on
Related Machines" (2020), and Chudak, Shmoys, "Approximation algorithms for precedence-constrained
scheduling problems on parallel machines that run at different speeds" (1999).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from placegap.formulations.shared.families import for_whole_groups
from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED

Grouping = Literal["auto", "columns", "speeds"]


@dataclass(frozen=True, eq=False)
class DeviceGroups:
    """A partition of K devices into G groups.

    Attributes
    ----------
    devices : tuple of G tuples of int
        The devices of each group. Groups by speed come slowest first.
    speed : (K,) float64
        Relative to the fastest device; 1 everywhere for groups of equal devices, which may be
        compared within a group only.
    related : bool
        Whether the speeds explain all times (`related_speeds`).
    """

    devices: tuple[tuple[int, ...], ...]
    speed: Floats
    related: bool


def device_groups(instance: Instance, by: Grouping = "auto") -> DeviceGroups:
    """Group the devices of an instance; O(n K).

    Parameters
    ----------
    instance : Instance
    by : {"auto", "columns", "speeds"}
        ``columns``: devices on which every op takes the same time, for unrelated times.
        ``speeds``: powers of `speed_factor` below the fastest speed, as in GETF.
        ``auto``: speeds where the times are related, else columns.

    Raises
    ------
    ValueError
        ``speeds`` where no speeds explain the times.

    Notes
    -----
    GETF leaves out devices slower than 1/K of the fastest. They are kept here: a device without
    which the memory does not suffice may be slow, and a bound must hold for plans that use it.

    Examples
    --------
    Two devices of one kind:

    >>> from placegap.instances import example
    >>> device_groups(example()).devices
    ((0, 1),)
    """
    speeds = None if by == "columns" else related_speeds(instance.arrays.time_ns)
    if speeds is None:
        if by == "speeds":
            raise ValueError(f"{instance.name}: its times are not those of devices with speeds")
        columns: dict[bytes, list[int]] = {}
        for k, column in enumerate(instance.arrays.time_ns.T):
            columns.setdefault(column.tobytes(), []).append(k)
        equal = np.ones(instance.num_devices)
        return DeviceGroups(tuple(map(tuple, columns.values())), equal, related=False)
    factor = speed_factor(len(speeds))
    levels: dict[int, list[int]] = {}
    for k, speed in enumerate(speeds.tolist()):
        level = math.floor(math.log(1 / speed, factor) + 1e-9)
        levels.setdefault(level, []).append(k)
    slowest_first = sorted(levels, reverse=True)
    return DeviceGroups(tuple(tuple(levels[at]) for at in slowest_first), speeds, related=True)


def speed_factor(num_devices: int) -> float:
    """Ratio of the speeds that one group spans: log K / log log K, but at least 2.

    The base 2 of the logarithms and the least ratio are filled in; the quotient is above 2 only for
    more than 16 devices.

    Examples
    --------
    >>> speed_factor(2), speed_factor(2**8)
    (2.0, 2.6666666666666665)
    """
    if num_devices <= 4:
        return 2.0
    return max(2.0, math.log2(num_devices) / math.log2(math.log2(num_devices)))


def related_speeds(time_ns: Ints) -> Floats | None:
    """Speeds of devices whose times are op size / speed, up to rounding; None if there are none.

    The op that takes longest on the first device sets the speeds; every other op's times must agree
    with them up to what rounding to whole nanoseconds explains. Every device must run every op.

    Parameters
    ----------
    time_ns : (n, K) int64

    Examples
    --------
    >>> related_speeds(np.array([[10, 20], [31, 62]])).tolist()
    [1.0, 0.5]
    >>> related_speeds(np.array([[10, 20], [62, 31]])) is None
    True
    """
    if (time_ns == UNSUPPORTED).any():
        return None
    longest = [int(p) for p in time_ns[np.argmax(time_ns[:, 0])]]
    if min(longest) == 0:
        return None
    for row in time_ns.tolist():
        for p, scale in zip(row, longest, strict=True):
            # with all four numbers off by at most 1/2, and row[0] <= longest[0], the products
            # differ by no more than this
            if abs(p * longest[0] - row[0] * scale) > longest[0] + scale + 1:
                return None
    return np.asarray(min(longest) / np.array(longest, float))


def possible_placements(instance: Instance) -> Flags:
    """Devices that run an op's whole colocation group and can hold it, (n, K)."""
    arrays = instance.arrays
    fits = arrays.group_bytes[arrays.group][:, None] <= arrays.memory_bytes
    return for_whole_groups(arrays.group, (arrays.time_ns != UNSUPPORTED) & fits)


def colocated_times(instance: Instance) -> tuple[Flags, Ints]:
    """Where each of B colocation groups can be, and its ops' total time there: (B, K) each.

    The time means nothing where the group cannot be.

    Examples
    --------
    >>> from placegap.instances import example
    >>> colocated_times(example())[1][:2].tolist()
    [[5, 5], [20, 20]]
    """
    arrays = instance.arrays
    possible = possible_placements(instance)
    fits = arrays.group_bytes[:, None] <= arrays.memory_bytes
    possible_together: Flags = arrays.group_runs & fits
    total = np.zeros(possible_together.shape, np.int64)
    np.add.at(total, arrays.group, np.where(possible, arrays.time_ns, 0))
    return possible_together, total


def round_to_groups(share: Floats, time: Floats, capacity: Floats) -> list[int]:
    """Round fractions over groups to one group each (Chudak, Shmoys).

    For each row, sort the groups it can use from slow to fast. The group of the row is the one of
    largest capacity among the fastest that together hold at least half of its fractions, as few as
    possible. Groups at least as slow as the slowest of these hold half as well: so the time in the
    chosen group is at most twice the fractional time. And with c the chosen capacity, the row's
    1 / c is at most twice its fractional sum of 1 / capacity, so that with related speeds no
    group's load per capacity is more than the sum of twice all groups' fractional ones.

    Parameters
    ----------
    share : (B, G) float64
        Fractions of each row over the groups; they sum to 1.
    time : (B, G) float64
        Time in each group; infinite where the group is not possible.
    capacity : (B, G) float64
        Work that a group does per time: the total speed of its devices, for this row.

    Returns
    -------
    list of int
        Ties go to the lower number.

    Examples
    --------
    A slow group of large capacity with less than half of an op is left out; with half, the fast
    group alone holds half and is chosen; with more than half, the larger capacity decides:

    >>> time, capacity = np.array([[4.0, 1.0]] * 3), np.array([[8.0, 1.0]] * 3)
    >>> round_to_groups(np.array([[0.4, 0.6], [0.5, 0.5], [0.6, 0.4]]), time, capacity)
    [1, 1, 0]
    """
    chosen = []
    for shares, times, rates in zip(share.tolist(), time.tolist(), capacity.tolist(), strict=True):
        held, candidates = 0.0, []
        fastest_first = sorted((t, g) for g, t in enumerate(times) if math.isfinite(t))
        for _, g in fastest_first:
            candidates.append(g)
            held += shares[g]
            if held >= 0.5 - 1e-9:  # a solver's half
                break
        chosen.append(max(candidates, key=lambda g: (rates[g], -g)))
    return chosen
