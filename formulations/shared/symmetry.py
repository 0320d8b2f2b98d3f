"""Identical devices: which they are, and one placement out of those that differ in their names.

Swapping two identical devices changes no value, so every placement has up to p! twins for a class
of p of them. One of each orbit is kept, its *representative*: in a fixed order of the colocation
groups (`group_leaders`), the devices of a class are first used in the order of their numbers. In
the 0/1 matrix of groups and devices of a class these are column inequalities of the packing
orbitope (Kaibel and Pfetsch, "Packing and partitioning orbitopes", Mathematical Programming 114,
2008).

All of it holds for every objective and every model: it needs nothing but ``x[i, k]`` and one device
per op. What names a device, though, such as a user's row that pins an op, may exclude all
representatives, and does not go together with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placegap.formulations.shared.families import Linear, possible_devices
from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan, Transfer
from placegap.instances.problem.semantics import Makespan, Semantics
from placegap.instances.referee.channels import NO_CHANNEL, channels_of

if TYPE_CHECKING:
    import pyomo.environ as pyo

Classes = tuple[tuple[int, ...], ...]
"""Classes of two or more identical devices, each in ascending order."""

MOST_EARLIER = 200
"""Rows stop after this many groups: they are quadratic in number, and the late ones cut little."""


class FirstUse(NamedTuple):
    """The op is on one of the devices only if an earlier op is on the earlier device.

    Ops stand for their colocation groups. As a row: sum over k in `devices` of x[op, k] <= sum over
    i in `earlier_ops` of x[i, earlier_device]; as clauses: x[op, k] implies one of the latter, for
    every k.
    """

    op: int
    devices: tuple[int, ...]
    earlier_ops: tuple[int, ...]
    earlier_device: int


# ------------------------------------------------------------------------------------ the devices


def identical_devices(instance: Instance, labels: Sequence[object] | None = None) -> Classes:
    """Classes of devices, two or more each, any two of which may be swapped.

    Devices are identical if all ops take the same time on them, if they have the same memory and
    host times and are both hosts or both not, and if all tensors take the same time from and to
    every other device and both ways between the two. Kinds and names decide nothing.

    Parameters
    ----------
    instance : Instance
    labels : sequence of K, optional
        What else tells devices apart under some semantics, such as the servers they are in.

    Notes
    -----
    Swaps that are automorphisms generate each other, (a c) = (a b)(b c)(a b), so a device is
    compared with the first one of each class: O(K^2 c) for c classes, after sorting (t, L) times.

    Examples
    --------
    >>> from placegap.instances import example
    >>> identical_devices(example()), identical_devices(example(), labels=["one", "other"])
    (((0, 1),), ())
    """
    arrays, num_devices = instance.arrays, instance.num_devices
    own = np.vstack([arrays.time_ns, arrays.host_ns, arrays.memory_bytes, arrays.is_host])
    traits = np.unique(own, axis=1, return_inverse=True)[1].ravel().tolist()
    alike = np.unique(arrays.transfer_ns, axis=1, return_inverse=True)[1].ravel()
    move = alike[arrays.link_class]  # equal where all tensors take equally long
    found: dict[tuple[object, ...], list[list[int]]] = {}
    for b in range(num_devices):
        key = (traits[b], None if labels is None else labels[b])
        classes = found.setdefault(key, [])
        for members in classes:
            if _may_be_swapped(move, members[0], b):
                members.append(b)
                break
        else:
            classes.append([b])
    classes = sorted(members for group in found.values() for members in group)
    return tuple(tuple(members) for members in classes if len(members) > 1)


def _may_be_swapped(move: Ints, a: int, b: int) -> bool:
    """Whether exchanging two devices changes no transfer time."""
    swap = np.arange(len(move))
    swap[[a, b]] = b, a
    return bool((move[a] == move[b][swap]).all() and (move[:, a] == move[swap, b]).all())


# -------------------------------------------------------------------------------- representatives


def group_leaders(instance: Instance) -> list[int]:
    """The topologically first op of each colocation group, the longest-running groups first.

    What is decided on early should matter: on random graphs HiGHS needs fewer nodes in this order
    than in the topological one, which breaks ties. A group runs for the sum of its ops' longest
    times.

    Examples
    --------
    >>> from placegap.instances import example
    >>> group_leaders(example())
    [1, 2, 3, 0]
    """
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
    """Devices that an op can be on in a representative, (n, K): the first group takes the first.

    Parameters
    ----------
    instance : Instance
    possible : (n, K) bool, optional
        Where ops can be otherwise, alike on identical devices and within groups; the default is
        `possible_devices`.
    classes : Classes, optional
        The default is `identical_devices`.

    Examples
    --------
    >>> from placegap.instances import example
    >>> representative_devices(example()).tolist()
    [[True, True], [True, False], [True, True], [True, True]]
    """
    kept = (possible_devices(instance) if possible is None else possible).copy()
    group = instance.arrays.group
    for members in identical_devices(instance) if classes is None else classes:
        able = [i for i in group_leaders(instance) if kept[i, members[0]]]
        for rank, i in enumerate(able[: len(members) - 1]):
            kept[np.ix_(group == group[i], members[rank + 1 :])] = False
    return kept


def first_uses(
    instance: Instance, possible: Flags | None = None, classes: Classes | None = None
) -> list[FirstUse]:
    """What makes a placement a representative, beyond `representative_devices`.

    For the j-th device of a class, j >= 1, and every group: the group is on it or on a later one
    only if an earlier group is on the one before it. Up to `MOST_EARLIER` groups per class, after
    which it is dropped: that keeps all representatives, and some of their twins.

    Parameters
    ----------
    instance, possible, classes
        As in `representative_devices`; the ops that cannot be on a class do not count there.

    Examples
    --------
    >>> from placegap.instances import example
    >>> first_uses(example())[1]
    FirstUse(op=3, devices=(1,), earlier_ops=(1, 2), earlier_device=0)
    """
    where = possible_devices(instance) if possible is None else possible
    leaders, found = group_leaders(instance), []
    for members in identical_devices(instance) if classes is None else classes:
        able = [i for i in leaders if where[i, members[0]]][: MOST_EARLIER + 1]
        for rank, i in enumerate(able):
            for j in range(1, min(rank + 1, len(members))):
                devices = members[j : rank + 1]
                found.append(FirstUse(i, devices, tuple(able[j - 1 : rank]), members[j - 1]))
    return found


def symmetry_order(
    model: pyo.ConcreteModel,
    instance: Instance,
    possible: Flags | None = None,
    classes: Classes | None = None,
) -> None:
    """The rows of `first_uses`, for a model with x[i, k].

    Sum over k in devices of x[i, k] <= sum over earlier ops j of x[j, earlier device]. What
    `representative_devices` rules out is fixed to 0, unless the model has done so already.
    """
    x, kept = model.x, representative_devices(instance, possible, classes)
    for i, k in zip(*(axis.tolist() for axis in np.nonzero(~kept)), strict=True):
        x[i, k].fix(0)
    rows = first_uses(instance, possible, classes)

    @model.Constraint(range(len(rows)))
    def symmetry_order(_: pyo.ConcreteModel, row: int) -> Linear:
        op, devices, earlier_ops, earlier_device = rows[row]
        earlier = sum(x[i, earlier_device] for i in earlier_ops)
        return sum(x[op, k] for k in devices) <= earlier


def count_rows(instance: Instance) -> int:
    """At most so many rows of `symmetry_order`: p - 1 per group and class of p devices."""
    groups = min(instance.arrays.num_groups, MOST_EARLIER + 1)
    return groups * sum(len(members) - 1 for members in identical_devices(instance))


# ------------------------------------------------------------------------------ plans, relabelled


def new_names(instance: Instance, plan: Plan, classes: Classes | None = None) -> list[int]:
    """For every device, which device it is in the plan's representative: a permutation.

    Within a class, in the order of first use; devices without an op come last.

    Examples
    --------
    >>> from placegap.instances import example
    >>> new_names(example(), Plan.on([0, 1, 0, 0]))
    [1, 0]
    """
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
    """A plan's representative: its devices, and the orders on devices and channels, renamed.

    Its value is the same. (Of a makespan, only if the plan gives its orders: the referee fills in
    missing ones by a rule whose ties look at the numbers of devices.)

    Examples
    --------
    >>> from placegap.instances import example
    >>> port = Makespan()
    >>> plan = canonical(example(), Plan.on([1, 1, 0, 1], [[2], [0, 1, 3]]), port)
    >>> plan.devices.tolist(), plan.device_order
    ([0, 0, 1, 0], ((0, 1, 3), (2,)))
    """
    names = new_names(instance, plan, classes)
    old = sorted(range(len(names)), key=names.__getitem__)  # the inverse permutation
    orders, moves = plan.device_order, plan.channel_order
    if moves is not None and isinstance(semantics, Makespan):
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


def _channel_names(semantics: Makespan, names: list[int]) -> dict[int, int]:
    """The new number of each channel, by those of two devices that it joins."""
    num_devices, new = len(names), dict[int, int]()
    for a in range(num_devices):
        for b in range(num_devices):
            if a != b:
                before = channels_of(semantics.channels, num_devices, a, b)
                after = channels_of(semantics.channels, num_devices, names[a], names[b])
                new.update(zip(before, after, strict=True))
    new.pop(NO_CHANNEL, None)
    return new
