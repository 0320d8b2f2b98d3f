"""Pools of devices with fast links between them: what has no room in one crosses slow links."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.arrays import Arrays

UNLIKE_LINKS = 2.0
"""How many times as long slow links take, at least."""


class DevicePools(NamedTuple):
    """Pools of K devices.

    Attributes
    ----------
    pool : (K,) int64
        That each device is in.
    room_bytes : (S,) int64
        Of all devices of a pool. S is 0 where pools say nothing: there is one, or each has room for
        everything.
    """

    pool: Ints
    room_bytes: Ints


def device_pools(arrays: Arrays) -> DevicePools:
    """The pools of an instance's devices.

    Times of links are those of all tensors, the faster way of two. Links are slow beyond the
    largest ratio of neighbouring times, and pools are what fast ones join. Whatever the pools are,
    what a pool holds is at most the room of its devices: a bound may rest on any.

    Examples
    --------
    >>> from placegap.instances import example
    >>> device_pools(example().arrays)
    DevicePools(pool=array([0, 0]), room_bytes=array([], dtype=int64))
    """
    pool = np.zeros(len(arrays.memory_bytes), np.int64)
    time = arrays.transfer_ns.sum(axis=0, dtype=np.float64)[arrays.link_class] + 1.0
    time = np.minimum(time, time.T)
    times = np.unique(time[~np.eye(len(pool), dtype=bool)])
    ratio = times[1:] / times[:-1]
    if len(ratio) and ratio.max() >= UNLIKE_LINKS:
        pool = connected_components(time <= times[ratio.argmax()], directed=False)[1]
    all_bytes = int(arrays.group_bytes.sum())
    room = np.zeros(pool.max() + 1, np.int64)
    np.add.at(room, pool, np.minimum(arrays.memory_bytes, all_bytes))
    binding = len(room) > 1 and (room < all_bytes).any()
    return DevicePools(pool.astype(np.int64), room if binding else room[:0])
