"""The excess of memory of a quick schedule at its peak, in one compiled call.

The rule is that of the referee (`instances.referee.memory`), for a device per op and the times of
all items; only the referee's value counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import copy_to, kernel, stable_order
from placegap.instances.problem import Instance, Makespan
from placegap.solvers.local_search.disjunctive_graph import (
    DURATION,
    START,
    Machines,
    Orders,
    carrier,
    num_transfers,
)


class Peak(NamedTuple):
    """Whether the best schedule must fit into memory `at_peak`, and arrays to decide it."""

    # First the bytes of an instance; the rest is scratch for t tensors, n ops and K devices, and
    # `start` and `end` for the times of all items.
    at_peak: bool
    state_bytes: Ints
    workspace_bytes: Ints
    tensor_bytes: Ints
    shared_op: Ints
    shared_name: Ints
    shared_bytes: Ints
    memory_bytes: Ints
    first: Ints
    last: Ints
    has_shared: Ints
    level: Ints
    most: Ints
    moment: Ints
    change: Ints
    at_device: Ints
    start: Ints
    end: Ints


def peak_of(instance: Instance, semantics: Makespan, *, at_peak: bool = True) -> Peak:
    """The arrays of an instance; the scratch is empty without `at_peak`."""
    sizes, k = instance.memory_arrays, instance.num_devices
    pairs = len(sizes.tensor_bytes) * k if at_peak else 0
    spans = 2 * (pairs + instance.num_ops) if at_peak else 0
    items = instance.num_ops + num_transfers(instance, semantics) if at_peak else 0
    first, last = np.full((2, pairs), -1)
    level, most = np.zeros((2, k), np.int64)
    return Peak(
        at_peak,
        sizes.state_bytes,
        sizes.workspace_bytes,
        sizes.tensor_bytes,
        sizes.shared_op,
        sizes.shared_name,
        sizes.shared_bytes,
        instance.arrays.memory_bytes,
        first,
        last,
        np.zeros(len(sizes.shared_bytes) * k, np.int64),
        level,
        most,
        *np.zeros((3, spans), np.int64),
        *np.zeros((2, items), np.int64),
    )


@kernel(nogil=True)
def peak_excess(machines: Machines, peak: Peak, device: Ints, start: Ints, end: Ints) -> float:
    """The sum over devices of the excess, as a share of their memory; 0.0 if the schedule fits."""
    # Items are the ops, each on its device, then the edges, or each tensor to each device
    # (per_tensor); `start` and `end` are their times. O((n + m) log(n + m)).
    # State is there all the time. A tensor is on a device from its first to its last use there: by
    # its producer, by transfers in or out, and by consumers. The levels are summed over the
    # changes, sorted by time.
    k, level, most = len(peak.memory_bytes), peak.level, peak.most
    held = peak.has_shared
    for a in range(k):
        level[a] = 0
    for at in range(len(held)):
        held[at] = 0
    for i in range(len(device)):
        level[device[i]] += peak.state_bytes[i]
    for at in range(len(peak.shared_op)):  # shared state once for each name
        a = device[peak.shared_op[at]]
        name = peak.shared_name[at]
        if held[name * k + a] == 0:
            held[name * k + a] = 1
            level[a] += peak.shared_bytes[name]
    copy_to(most, level)
    # At one instant memory is freed before other memory is taken (`_put`), and spans without
    # length hold nothing.
    first, last = peak.first, peak.last
    count = 0
    for i in range(len(device)):
        if peak.workspace_bytes[i] > 0 and start[i] < end[i]:
            count = _put(peak, count, device[i], start[i], end[i], peak.workspace_bytes[i])
    for t in range(len(peak.tensor_bytes)):
        if peak.tensor_bytes[t] == 0:
            continue
        edges = machines.tensor_edge[machines.tensor_ptr[t] : machines.tensor_ptr[t + 1]]
        if len(edges) == 0:
            continue
        producer = machines.producer[edges[0]]
        home = device[producer]
        first[t * k + home], last[t * k + home] = start[producer], end[producer]
        for e in edges:
            j = machines.consumer[e]
            a = device[j]
            _use(first, last, t * k + a, start[j], end[j])
            if a != home:
                item = carrier(machines, e, a)
                _use(first, last, t * k + a, start[item], end[item])
                _use(first, last, t * k + home, start[item], end[item])
        for a in range(k):
            at = t * k + a
            if last[at] >= 0:
                if first[at] < last[at]:
                    count = _put(peak, count, a, first[at], last[at], peak.tensor_bytes[t])
                first[at] = last[at] = -1
    moment = peak.moment[:count]
    for at in stable_order(moment):
        a = peak.at_device[at]
        level[a] += peak.change[at]
        most[a] = max(most[a], level[a])
    excess = 0.0
    for a in range(k):
        if most[a] > peak.memory_bytes[a]:
            excess += (most[a] - peak.memory_bytes[a]) / max(1, peak.memory_bytes[a])
    return excess


@kernel(nogil=True, allocates=False)
def _use(first: Ints, last: Ints, at: int, begin: int, end: int) -> None:
    """Extend the span of a tensor on a device by a use."""
    if last[at] < 0:
        first[at], last[at] = begin, end
    else:
        first[at], last[at] = min(first[at], begin), max(last[at], end)


@kernel(nogil=True, allocates=False)
def _put(peak: Peak, count: int, a: int, begin: int, end: int, size: int) -> int:
    """Note bytes that are taken at one time and freed at another; returns the number of changes."""
    peak.moment[count], peak.change[count] = 2 * begin + 1, size
    peak.moment[count + 1], peak.change[count + 1] = 2 * end, -size
    peak.at_device[count] = peak.at_device[count + 1] = a
    return count + 2


@kernel(nogil=True, allocates=False)
def schedule_fits(machines: Machines, orders: Orders, peak: Peak) -> bool:
    """Whether no device overfills its memory at its peak. O((n + m) log(n + m))."""
    item, device, start, end = orders.item, orders.device, peak.start, peak.end
    for x in range(machines.num_items):
        start[x], end[x] = item[x, START], item[x, START] + item[x, DURATION]
    if machines.free:  # transfers are no items: they run as soon as their tensor is made
        for e in range(len(machines.producer)):
            a, b = device[machines.producer[e]], device[machines.consumer[e]]
            c, t = carrier(machines, e, b), machines.tensor[e]
            start[c] = item[machines.producer[e], START] + item[machines.producer[e], DURATION]
            end[c] = start[c] + machines.transfer_ns[t, machines.link_class[a, b]]
    return peak_excess(machines, peak, device, start, end) == 0.0
