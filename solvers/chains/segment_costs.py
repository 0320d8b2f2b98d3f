"""What the segments of an order cost in cut nets, without looking at their blocks again.

An order is cut at some stops; what lies between two of them is a bucket, and a segment is a run of
buckets. A segment pays a net that has a pin in it and one outside. With the segment's first bucket
fixed, bucket j that joins it adds the nets whose first pin from there on is in j, and takes off the
nets whose last pin is in j if the segment began at or before their first one. Both change for the
nets of a bucket alone when the segment begins behind it: all segments together take O(s^2 + pins)
for s stops, in place of O(s pins).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.problem import CutNets


class Touched(NamedTuple):
    """Which nets have pins in each of B buckets.

    Attributes
    ----------
    ptr, net, next : (B + 1,), (q,), (q,) int64
        Nets of bucket j are ``net[ptr[j]:ptr[j + 1]]``, and ``next`` is the bucket that each of
        them comes to after it, or -1.
    first, last : (e,) int64
        Buckets of each net's first and last pin.
    """

    ptr: Ints
    net: Ints
    next: Ints
    first: Ints
    last: Ints


@kernel
def touched_nets(order: Ints, stops: Ints, nets: CutNets) -> Touched:
    """Walk through the order once; O(pins).

    Examples
    --------
    Blocks 0, 1 and 2 in a row with a net between neighbours, and a bucket for each:

    >>> nets = CutNets(*map(np.array, ([0, 1, 3, 4], [0, 0, 1, 1], [2, 2], [7, 5])))
    >>> touched = touched_nets(np.arange(3), np.arange(4), nets)
    >>> touched.net.tolist(), touched.next.tolist()
    ([0, 0, 1, 1], [1, -1, 2, -1])
    """
    ptr = np.zeros(len(stops), np.int64)
    net, follows = np.zeros(len(nets.net), np.int64), np.full(len(nets.net), -1)
    first, last = np.full(len(nets.size), -1), np.full(len(nets.size), -1)
    latest = np.full(len(nets.size), -1)  # entry of each net
    count = 0
    for j in range(len(stops) - 1):
        for v in order[stops[j] : stops[j + 1]]:
            for e in nets.net[nets.block_ptr[v] : nets.block_ptr[v + 1]]:
                if last[e] == j:
                    continue
                if latest[e] < 0:
                    first[e] = j
                else:
                    follows[latest[e]] = j
                net[count], latest[e], last[e] = e, count, j
                count += 1
        ptr[j + 1] = count
    return Touched(ptr, net[:count], follows[:count], first, last)


@kernel
def joining_costs(touched: Touched, weight: Ints) -> Ints:
    """What each bucket adds to the cut of the segment that begins with the first one.

    Parameters
    ----------
    touched : Touched
    weight : (e, d) int64
        What a cut net costs each of d payers.

    Returns
    -------
    (B, d) int64
    """
    joining = np.zeros((len(touched.ptr) - 1, weight.shape[1]), np.int64)
    for e in range(len(weight)):
        joining[touched.first[e]] += weight[e]
        joining[touched.last[e]] -= weight[e]
    return joining


@kernel(allocates=False)
def leave_behind(touched: Touched, weight: Ints, joining: Ints, bucket: int) -> None:
    """Let segments begin behind a bucket, and no longer with it: change `joining` in place."""
    for at in range(touched.ptr[bucket], touched.ptr[bucket + 1]):
        e = touched.net[at]
        for p in range(weight.shape[1]):
            if touched.next[at] >= 0:
                joining[touched.next[at], p] += weight[e, p]
            if touched.first[e] == bucket:
                joining[touched.last[e], p] += weight[e, p]
