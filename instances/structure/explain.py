"""Why no plan fits: cheap necessary conditions on memory, each in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placegap.instances.problem.instance import Instance

MAX_SETS = 4096
"""Sets of devices that the capacity check looks at; the smallest come first."""


@dataclass(frozen=True)
class _Group:
    """A colocation group, or an op of its own, and the devices that run all of it."""

    label: str
    num_ops: int
    size_bytes: int
    runs_on: frozenset[int]
    fits_on: frozenset[int]


def explain_infeasible(instance: Instance) -> tuple[str, ...]:
    """Reasons why no plan can fit into memory; an empty tuple if none was found.

    Three conditions are checked, all necessary, none sufficient: every op, or colocation group,
    fits on a device that runs it; what can only be on a set of devices fits on them together
    (Hall's condition, over unions of the sets that occur); of ops or groups that need more than
    half of each device they fit on, there are no more than devices. Ops that no device runs, and
    groups without a common device kind, are refused when an instance is made. O(n K + g S) for g
    groups and S sets of devices, S <= 4096.

    Examples
    --------
    >>> from placegap.instances import Cluster, Device, Graph, Op
    >>> instance = Instance(
    ...     name="tight",
    ...     graph=Graph(name="g", ops=(Op(name="a", time_ns={"gpu": 1}, resident_bytes=9),)),
    ...     cluster=Cluster(name="c", devices=(Device(name="d", kind="gpu", memory_bytes=8),)),
    ... )
    >>> explain_infeasible(instance)
    ("op 'a' needs 9 bytes; the devices that run it have at most 8 (d)",)
    """
    groups = list(_groups(instance))
    placeable = [group for group in groups if group.fits_on]
    return (
        *(_too_large(instance, group) for group in groups if not group.fits_on),
        *_over_capacity(instance, placeable),
        *_too_many_large(instance, placeable),
    )


def _groups(instance: Instance) -> Iterator[_Group]:
    arrays, ops = instance.arrays, instance.graph.ops
    _, first, count = np.unique(arrays.group, return_index=True, return_counts=True)
    size, runs = arrays.group_bytes, arrays.group_runs
    fits = runs & (size[:, None] <= arrays.memory_bytes)
    sets: dict[bytes, frozenset[int]] = {}  # few differ, so they are made once
    rows = zip(first.tolist(), count.tolist(), size.tolist(), runs, fits, strict=True)
    for at, num_ops, total, *masks in rows:
        op = ops[at]
        for mask in masks:
            if mask.tobytes() not in sets:
                sets[mask.tobytes()] = frozenset(np.flatnonzero(mask).tolist())
        runs_on, fits_on = (sets[mask.tobytes()] for mask in masks)
        single = op.colocation is None or num_ops == 1
        yield _Group(
            label=f"op {op.name!r}" if single else f"colocation group {op.colocation!r}",
            num_ops=num_ops,
            size_bytes=total,
            runs_on=runs_on,
            fits_on=fits_on,
        )


def _too_large(instance: Instance, group: _Group) -> str:
    devices = instance.cluster.devices
    largest = max(sorted(group.runs_on), key=lambda k: devices[k].memory_bytes or 0)
    ops = "" if group.num_ops == 1 else f" for its {group.num_ops} ops"
    return (
        f"{group.label} needs {group.size_bytes} bytes{ops}; the devices that run it have at most"
        f" {devices[largest].memory_bytes} ({devices[largest].name})"
    )


def _over_capacity(instance: Instance, groups: list[_Group]) -> Iterator[str]:
    devices = instance.cluster.devices
    demand: dict[frozenset[int], tuple[int, int]] = {}
    for group in groups:
        num_ops, size = demand.get(group.fits_on, (0, 0))
        demand[group.fits_on] = (num_ops + group.num_ops, size + group.size_bytes)
    found: list[frozenset[int]] = []
    for where in _unions(list(demand)):
        limits = [devices[k].memory_bytes for k in sorted(where)]
        if any(limit is None for limit in limits) or any(other < where for other in found):
            continue
        capacity = sum(limit or 0 for limit in limits)
        inside = [demand[known] for known in demand if known <= where]
        needed = sum(size for _, size in inside)
        if needed > capacity:
            found.append(where)
            num_ops = sum(number for number, _ in inside)
            yield (
                f"{_what(instance, num_ops)} {needed} bytes on {_names(instance, where)}:"
                f" {capacity} bytes together"
            )


def _unions(sets: list[frozenset[int]]) -> list[frozenset[int]]:
    """The sets and their unions, smallest first, at most `MAX_SETS` of them and the largest."""
    known: dict[frozenset[int], None] = dict.fromkeys(sets)
    for one in sets:
        for other in list(known):
            if len(known) < MAX_SETS:
                known[one | other] = None
    known[frozenset().union(*sets)] = None
    return sorted(known, key=lambda where: (len(where), sorted(where)))


def _too_many_large(instance: Instance, groups: list[_Group]) -> Iterator[str]:
    """Two groups that each need more than half of every device they fit on cannot share one."""
    devices = instance.cluster.devices
    large = []
    for group in groups:
        limits = [devices[k].memory_bytes for k in group.fits_on]
        if all(limit is not None and 2 * group.size_bytes > limit for limit in limits):
            large.append(group)
    where = frozenset[int]().union(*(group.fits_on for group in large))
    if len(large) > len(where):
        yield (
            f"{len(large)} ops or colocation groups, such as {large[0].label}, need more than half"
            f" of any device they fit on, and there are {len(where)}: {_names(instance, where)}"
        )


def _what(instance: Instance, num_ops: int) -> str:
    if num_ops == instance.num_ops:
        return f"all {num_ops} ops need"
    return f"{num_ops} of {instance.num_ops} ops need"


def _names(instance: Instance, where: frozenset[int]) -> str:
    names = [instance.cluster.devices[k].name for k in sorted(where)]
    shown = names if len(names) <= 6 else [*names[:5], f".. {len(names)} devices"]
    return ", ".join(shown)
