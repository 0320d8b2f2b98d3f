"""Devices whose memory cannot end in any plan up to a load, by a fractional knapsack."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED


def roomy_within(instance: Instance, limit_ns: int, replicas: int = 1) -> Flags:
    """Devices that hold every set of ops which they can run within a load, (K,).

    A device's compute is at most its load, of a stage of r replicas at most r times that. What it
    then holds at most is a knapsack's optimum: ops are worth their bytes and take their time.

    Examples
    --------
    Two ops of 10 ns and 5 bytes each, of which a device of 7 bytes does but one in 19 ns:

    >>> from placegap.instances import Cluster, Device, Graph, Op
    >>> ops = tuple(Op(name=n, time_ns={"gpu": 10}, resident_bytes=5) for n in "ab")
    >>> gpu = Device(name="gpu", kind="gpu", memory_bytes=7)
    >>> instance = Instance(name="i", graph=Graph(name="g", ops=ops, edges=()),
    ...                     cluster=Cluster(name="c", devices=(gpu,), links=()))
    >>> roomy_within(instance, 13).tolist(), roomy_within(instance, 20).tolist()
    ([True], [False])
    """
    arrays = instance.arrays
    size, most = arrays.resident_bytes, replicas * limit_ns
    known: dict[bytes, int] = {}
    roomy = np.zeros(instance.num_devices, np.bool_)
    for k in range(instance.num_devices):
        time = arrays.time_ns[:, k]
        key = time.tobytes()
        if key not in known:
            runs = (time != UNSUPPORTED) & (time <= most)
            known[key] = most_held(time[runs], size[runs], most)
        roomy[k] = known[key] <= arrays.memory_bytes[k]
    return roomy


def most_held(time_ns: Ints, size: Ints, capacity_ns: int) -> int:
    """At least the most bytes of things whose times sum up to a capacity; in exact integers.

    For any price p of a ns, it is at most p * capacity + the sum of max(0, bytes - p * ns): linear
    programming duality. The best p is bytes / ns of the thing that no longer fits as a whole.

    Examples
    --------
    >>> most_held(np.array([0, 4, 6]), np.array([1, 8, 6]), 7)
    12
    """
    total = int(size.sum())
    if int(time_ns.sum()) <= capacity_ns:
        return total
    order = np.argsort(-size / np.maximum(time_ns, 1e-9), kind="stable")
    at = int(np.searchsorted(np.cumsum(time_ns[order]), capacity_ns, side="right"))
    worth, takes = int(size[order[at]]), int(time_ns[order[at]])
    times, sizes = time_ns.tolist(), size.tolist()
    spare = sum(max(0, s * takes - worth * t) for s, t in zip(sizes, times, strict=True))
    most: int = (worth * capacity_ns + spare) // takes
    return min(total, most)
