"""Which devices are equal, and which are interchangeable: any two of a class may change places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem.graph_index import numbered
from placegap.instances.problem.instance import Instance

Classes = tuple[tuple[int, ...], ...]  # of devices in the order of their first ones, each ascending


def equal_columns(*tables: Any) -> Ints:
    """Number of each column (of a device), (K,): equal ones are equal in all tables."""
    columns = np.ascontiguousarray(np.vstack(tables).T)
    return np.array(numbered(column.tobytes() for column in columns), np.int64)


def classes_of(number: Sequence[int] | Ints) -> Classes:
    """The devices of each number."""
    number = np.asarray(number)
    return tuple(
        tuple(np.flatnonzero(number == c).tolist()) for c in range(number.max(initial=-1) + 1)
    )


def device_kinds(instance: Instance, labels: Sequence[object] | None = None) -> Ints:
    """Number of each device, (K,): equal ones are equal but for their links."""
    # All ops take the same time on them, they have the same memory and host times, and they are
    # both hosts or both not. Kinds and names decide nothing; `labels` make devices differ as well.
    arrays = instance.arrays
    own = arrays.time_ns, arrays.host_ns, arrays.memory_bytes, arrays.is_host
    return equal_columns(*own, numbered(labels or [None] * instance.num_devices))


def interchangeable(number: Sequence[int] | Ints, link: Ints) -> Classes:
    """Classes of devices of one number that change no link when two of them are swapped."""
    # ``link[a, b]`` numbers the links. Swaps that are automorphisms generate each other, (a c) = (a
    # b)(b c)(a b), so a device is compared with the first one of each class: O(K^2 c) for c
    # classes.
    classes: list[list[int]] = []
    for b, own in enumerate(number):
        for members in classes:
            if number[members[0]] == own and _may_be_swapped(link, members[0], b):
                members.append(b)
                break
        else:
            classes.append([b])
    return tuple(map(tuple, classes))


def identical_devices(instance: Instance, labels: Sequence[object] | None = None) -> Classes:
    """Classes of devices, two or more each, any two of which may be swapped."""
    # Devices are identical if they are equal (`device_kinds`), and if all tensors take the same
    # time from and to every other device and both ways between the two. Devices with different
    # `labels`, such as the servers that they are in, differ.
    arrays = instance.arrays
    times = np.unique(arrays.transfer_ns, axis=1, return_inverse=True)[1].ravel()
    # links over which all tensors take equally long are equal
    classes = interchangeable(device_kinds(instance, labels), times[arrays.link_class])
    return tuple(members for members in classes if len(members) > 1)


def first_identical(instance: Instance, labels: Sequence[object] | None = None) -> Ints:
    """The first device of each one's class of identical devices, (K,)."""
    first = np.arange(instance.num_devices)
    for members in identical_devices(instance, labels):
        first[list(members)] = members[0]
    return first


def links_alike(instance: Instance) -> bool:
    """Whether all transfers take the same time from any device to any other."""
    between = instance.arrays.link_class[~np.eye(instance.num_devices, dtype=np.bool_)]
    return len(np.unique(between)) <= 1


def _may_be_swapped(link: Ints, a: int, b: int) -> bool:
    """Whether exchanging two devices changes no link."""
    swap = np.arange(len(link))
    swap[[a, b]] = b, a
    return bool((link[a] == link[b][swap]).all() and (link[:, a] == link[swap, b]).all())
