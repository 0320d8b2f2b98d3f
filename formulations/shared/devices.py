"""Sets of devices that belong together: identical ones, GETF's groups, and pools with fast links.

*Identical devices.* Swapping two of them changes no value, so every placement has up to p!
equivalent ones for a class of p devices. One of each orbit is kept, its *representative*: in a
fixed order of the colocation groups (`group_leaders`), the devices of a class are first used in the
order of their numbers. In the 0/1 matrix of groups and devices of a class these are column
inequalities of the packing orbitope (Kaibel and Pfetsch, "Packing and partitioning orbitopes",
Mathematical Programming 114, 2008). This holds for every objective and every model with ``x[i, k]``
and one device per op. It is wrong beside rows that name a device, such as a user's row that pins an
op: these may exclude all representatives.

*Groups* are after Su, Ren, Vardi, Wierman, "Communication-Aware Scheduling of
Precedence-Constrained Tasks on Related Machines" (2020). *Pools* are devices with fast links
between them: what has no room in one crosses slow links.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.problem import Instance, Plan, Semantics, Transfer
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.device_classes import (
    Classes,
    classes_of,
    equal_columns,
    identical_devices,
)
from placegap.instances.problem.graph_index import sum_by
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.referee.channels import NO_CHANNEL, channels_of

MOST_EARLIER = 200  # groups with rows: quadratically many rows, and the late ones cut little
UNLIKE_LINKS = 2.0  # least ratio of the times of slow and fast links
Grouping = Literal["auto", "columns", "speeds"]


# -------------------------------------------------------------------------------- identical devices


class FirstUse(NamedTuple):
    """The op is on one of the devices only if an earlier op is on the earlier device.

    Ops represent their colocation groups. As a row: sum over k in `devices` of x[op, k] <= sum over
    i in `earlier_ops` of x[i, earlier_device]; as clauses: x[op, k] implies one of the latter, for
    every k.
    """

    op: int
    devices: tuple[int, ...]
    earlier_ops: tuple[int, ...]
    earlier_device: int


def group_leaders(instance: Instance) -> list[int]:
    """The topologically first op of each colocation group, the longest-running groups first."""
    # Early decisions should matter: on random graphs HiGHS needs fewer nodes in this order than in
    # topological order, which breaks ties. A group counts the sum of its ops' longest times.
    arrays, first = instance.arrays, dict[int, int]()
    group = arrays.group.tolist()
    for i in arrays.index.topological_order.tolist():
        first.setdefault(group[i], i)
    total = [0] * len(first)
    for g, time_ns in zip(group, arrays.time_ns.max(axis=1).tolist(), strict=True):
        total[g] += time_ns
    return sorted(first.values(), key=lambda i: -total[group[i]])


def representative_devices(
    instance: Instance, possible: Flags | None = None, classes: Classes | None = None
) -> Flags:
    """Devices that an op can be on in a representative, (n, K): the first group takes the first."""
    # Ops can be on `possible` devices (default: `Arrays.able`), alike on identical devices and in
    # groups.
    kept = (instance.arrays.able if possible is None else possible).copy()
    group = instance.arrays.group
    for members in identical_devices(instance) if classes is None else classes:
        able = [i for i in group_leaders(instance) if kept[i, members[0]]]
        for rank, i in enumerate(able[: len(members) - 1]):
            kept[np.ix_(group == group[i], members[rank + 1 :])] = False
    return kept


def first_uses(
    instance: Instance, possible: Flags | None = None, classes: Classes | None = None
) -> list[FirstUse]:
    """The conditions of a representative, beyond `representative_devices`."""
    # For the j-th device of a class, j >= 1, and every group: the group is on it or on a later one
    # only if an earlier group is on the device before it. Only up to `MOST_EARLIER` groups per
    # class: this keeps all representatives and some equivalent placements. Ops that cannot be on a
    # class do not count there.
    where = instance.arrays.able if possible is None else possible
    leaders, found = group_leaders(instance), []
    for members in identical_devices(instance) if classes is None else classes:
        able = [i for i in leaders if where[i, members[0]]][: MOST_EARLIER + 1]
        for rank, i in enumerate(able):
            for j in range(1, min(rank + 1, len(members))):
                devices = members[j : rank + 1]
                found.append(FirstUse(i, devices, tuple(able[j - 1 : rank]), members[j - 1]))
    return found


def count_symmetry_rows(instance: Instance) -> int:
    """An upper bound on the rows of `symmetry_order`: p - 1 per group and class of p devices."""
    groups = min(instance.arrays.num_groups, MOST_EARLIER + 1)
    return groups * sum(len(members) - 1 for members in identical_devices(instance))


def new_names(instance: Instance, plan: Plan, classes: Classes | None = None) -> list[int]:
    """For every device, its number in the plan's representative: a permutation."""
    # Within a class, in the order of first use; devices without an op come last.
    device, names = plan.devices.tolist(), list(range(instance.num_devices))
    used = dict.fromkeys([device[i] for i in group_leaders(instance)])
    for members in identical_devices(instance) if classes is None else classes:
        here = [k for k in used if k in members] + [k for k in members if k not in used]
        for old, new in zip(here, members, strict=True):
            names[old] = new
    return names


def canonical(
    instance: Instance, plan: Plan, semantics: Semantics, classes: Classes | None = None
) -> Plan:
    """A plan's representative: its devices, and the orders on devices and channels, renamed."""
    # Its value is the same. (A makespan only if the plan states its orders: the referee's rule for
    # missing orders breaks ties by the numbers of devices.)
    names = new_names(instance, plan, classes)
    old = sorted(range(len(names)), key=names.__getitem__)  # the inverse permutation
    orders, moves = plan.device_order, plan.channel_order
    if moves is not None and "channel_order" in semantics.plan_fields:
        channel = _channel_names(semantics, names)
        moves = {
            channel[c]: tuple(Transfer(item, names[to]) for item, to in order)
            for c, order in moves.items()
        }
    return replace(
        plan,
        placement=tuple(tuple(names[k] for k in devices) for devices in plan.placement),
        device_order=None if orders is None else tuple(orders[k] for k in old),
        channel_order=None if moves is None else dict(sorted(moves.items())),
    )


def _channel_names(semantics: Semantics, names: list[int]) -> dict[int, int]:
    """The new number of each channel, by those of two devices that it joins."""
    num_devices, new = len(names), dict[int, int]()
    for a in range(num_devices):
        for b in range(num_devices):
            if a != b:
                before = channels_of(semantics.channel_rule, num_devices, a, b)
                after = channels_of(semantics.channel_rule, num_devices, names[a], names[b])
                new.update(zip(before, after, strict=True))
    new.pop(NO_CHANNEL, None)
    return new


# ------------------------------------------------------------------------------------------- groups


@dataclass(frozen=True, eq=False)
class DeviceGroups:
    """A partition of K devices into G groups."""

    #: The devices of each group. Groups by speed come slowest first.
    devices: tuple[tuple[int, ...], ...]
    #: (K,) float64: Relative to the fastest device; 1 everywhere for groups of equal devices, which
    #: may be compared within a group only.
    speed: Floats
    #: Whether the speeds explain all times (`related_speeds`).
    related: bool


def device_groups(instance: Instance, by: Grouping = "auto") -> DeviceGroups:
    """Group the devices of an instance; O(n K)."""
    # ``columns`` groups devices on which every op takes the same time, for unrelated times;
    # ``speeds`` by powers of `speed_factor` below the fastest speed, as in GETF; ``auto`` by speeds
    # where the times are related, else by columns. GETF leaves out devices slower than 1/K of the
    # fastest. They are kept here: a device without which the memory does not suffice may be slow,
    # and a bound must hold for plans that use it.
    speeds = None if by == "columns" else related_speeds(instance.arrays.time_ns)
    if speeds is None:
        if by == "speeds":
            raise ValueError(f"{instance.name}: its times are not those of devices with speeds")
        equal = classes_of(equal_columns(instance.arrays.time_ns))
        return DeviceGroups(equal, np.ones(instance.num_devices), related=False)
    return _of_speeds(speeds, related=True)


def groups_with_a_choice(instance: Instance, by: Grouping = "auto") -> DeviceGroups:
    """`device_groups`; where no two devices have equal times, those of similar mean speeds."""
    # With one device per group, nothing is left to decide after the LP, which has no communication:
    # it scatters a chain over all devices. GETF's groups are devices of similar speeds, anyway.
    groups, times = device_groups(instance, by), instance.arrays.time_ns
    total = times[(times != UNSUPPORTED).all(axis=1)].sum(axis=0)
    if by != "auto" or groups.related or max(map(len, groups.devices)) > 1 or not total.all():
        return groups
    return _of_speeds(total.min() / total, related=False)


def _of_speeds(speeds: Floats, *, related: bool) -> DeviceGroups:
    """Groups of devices whose speeds are within a factor, slowest first."""
    factor = speed_factor(len(speeds))
    levels: dict[int, list[int]] = {}
    for k, speed in enumerate(speeds.tolist()):
        level = math.floor(math.log(1 / speed, factor) + 1e-9)
        levels.setdefault(level, []).append(k)
    slowest_first = sorted(levels, reverse=True)
    return DeviceGroups(tuple(tuple(levels[at]) for at in slowest_first), speeds, related=related)


def speed_factor(num_devices: int) -> float:
    """Ratio of the speeds that one group spans: log K / log log K, but at least 2."""
    # The base 2 of the logarithms and the least ratio are filled in; the quotient is above 2 only
    # for more than 16 devices.
    if num_devices <= 4:
        return 2.0
    return max(2.0, math.log2(num_devices) / math.log2(math.log2(num_devices)))


def related_speeds(time_ns: Ints) -> Floats | None:
    """Speeds of devices whose times are op size / speed, up to rounding; None if there are none."""
    # The op that takes longest on the first device sets the speeds; every other op's times must
    # agree with them up to what rounding to whole nanoseconds explains. Every device must run every
    # op.
    if (time_ns == UNSUPPORTED).any():
        return None
    longest = [int(p) for p in time_ns[np.argmax(time_ns[:, 0])]]
    if min(longest) == 0:
        return None
    for row in time_ns.tolist():
        for p, scale in zip(row, longest, strict=True):
            # All four numbers are rounded by at most 1/2, and row[0] <= longest[0], so the products
            # differ by at most this.
            if abs(p * longest[0] - row[0] * scale) > longest[0] + scale + 1:
                return None
    return np.asarray(min(longest) / np.array(longest, float))


def colocated_times(instance: Instance) -> tuple[Flags, Ints]:
    """Devices possible for each colocation group, and its total time there if so: (B, K) each."""
    arrays = instance.arrays
    possible = instance.arrays.possible
    fits = arrays.group_bytes[:, None] <= arrays.memory_bytes
    possible_together: Flags = arrays.group_runs & fits
    total = sum_by(arrays.group, np.where(possible, arrays.time_ns, 0), arrays.num_groups)
    return possible_together, total


# -------------------------------------------------------------------------------------------- pools


class DevicePools(NamedTuple):
    """Pools of K devices."""

    #: (K,) int64: Pool of each device.
    pool: Ints
    #: (S,) int64: Memory of all devices of a pool. S is 0 if pools exclude nothing: there is only
    #: one, or each has room for everything.
    room_bytes: Ints


def device_pools(arrays: Arrays) -> DevicePools:
    """The pools of an instance's devices."""
    # The time of a link is that of all tensors, in the faster direction. Links are slow above the
    # largest gap between sorted times, and fast links join devices to pools. A pool holds at most
    # the memory of its devices, however pools are chosen, so a bound may use any of them.
    pool = np.zeros(len(arrays.memory_bytes), np.int64)
    time = arrays.transfer_ns.sum(axis=0, dtype=np.float64)[arrays.link_class] + 1.0
    time = np.minimum(time, time.T)
    times = np.unique(time[~np.eye(len(pool), dtype=bool)])
    ratio = times[1:] / times[:-1]
    if len(ratio) and ratio.max() >= UNLIKE_LINKS:
        from scipy.sparse.csgraph import connected_components  # takes 0.1 s to load

        pool = connected_components(time <= times[ratio.argmax()], directed=False)[1]
    all_bytes = int(arrays.group_bytes.sum())
    room = sum_by(pool, np.minimum(arrays.memory_bytes, all_bytes), pool.max() + 1)
    binding = len(room) > 1 and (room < all_bytes).any()
    return DevicePools(pool.astype(np.int64), room if binding else room[:0])
