"""What the models of latency_subgraphs share: horizon, windows, empty cycles, equal accelerators.

Tarnawski et al. 2020; `instances.referee.simulate_calls` says what a call takes. In all bounds an
op counts as done when its call has brought its inputs in and run its members up to it, in
topological order: no later than the call ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.formulations.shared.devices import identical_devices
from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY, UNSUPPORTED

LARGEST_HORIZON_NS = 2**59
"""Longer horizons are refused: the windows could not tell them from never."""


@dataclass(frozen=True, eq=False)
class CallWindows:
    """Heads and tails of n ops on K devices, in ns.

    Attributes
    ----------
    possible : (n, K) bool
        Whether a plan of at most the horizon needs op i on device k.
    head_ns : (n, K) int64
        What comes before op i on k takes so long at least; `NO_WAY` where it is not possible.
    tail_ns : (n, K) int64
        So much time passes at least between op i on k being done and the end of the plan.
    """

    possible: Flags
    head_ns: Ints
    tail_ns: Ints


def serial_horizon_ns(instance: Instance) -> int:
    """Every plan ends by then: all ops one after the other, each tensor out once, in per consumer.

    Examples
    --------
    >>> from placegap.instances import example
    >>> serial_horizon_ns(example())
    107
    """
    arrays = instance.arrays
    ops = np.where(arrays.time_ns == UNSUPPORTED, 0, arrays.time_ns).max(axis=1).tolist()
    tensors = _host_ns(instance).max(axis=1, initial=0).tolist()
    return int(sum(ops) + sum(tensors) + sum(tensors[u] for u in arrays.index.tensor.tolist()))


def _host_ns(instance: Instance) -> Ints:
    """Time of each tensor into and out of each device, 0 on hosts."""
    return np.where(instance.arrays.is_host, 0, instance.arrays.host_ns)


# ---------------------------------------------------------------------------------- where and when


def where_needed(instance: Instance) -> Flags:
    """Devices that some optimal plan may use for an op, (n, K).

    Hosts are one pool: a group may be spread over them, and a host that can hold all ops makes
    every other host superfluous for the ops that it runs at least as fast (of equal ones the first
    is kept).
    """
    arrays = instance.arrays
    possible = arrays.time_ns != UNSUPPORTED
    total = int(arrays.resident_bytes.sum())
    roomy = np.flatnonzero(arrays.is_host & (arrays.memory_bytes >= total)).tolist()
    for i in range(instance.num_ops):
        able = [k for k in roomy if possible[i, k]]
        if able:
            best = min(able, key=lambda k: arrays.time_ns[i, k])
            slower = arrays.is_host & (arrays.time_ns[i] >= arrays.time_ns[i, best])
            slower[best] = False
            possible[i, slower] = False
    return _for_pooled_groups(instance, possible)


def _for_pooled_groups(instance: Instance, possible: Flags) -> Flags:
    """What is possible for whole groups: the same accelerator for all ops, or a host for each."""
    group, is_host = instance.arrays.group, instance.arrays.is_host
    together = np.ones((int(group.max()) + 1, len(is_host)), np.bool_)
    np.logical_and.at(together, group, np.where(is_host, True, possible))
    pooled = np.ones(len(together), np.bool_)
    np.logical_and.at(pooled, group, possible[:, is_host].any(axis=1))
    together[~pooled] &= ~is_host
    return possible & together[group]


def call_windows(instance: Instance, horizon_ns: int) -> CallWindows:
    """Propagate heads, tails and the horizon until nothing changes; O(m K) per round.

    Along an edge an op stays on its device (its call may, too), or pays host_time out of an
    accelerator and into one.

    Examples
    --------
    >>> from placegap.instances import example
    >>> call_windows(example(), 43).tail_ns.tolist()
    [[28, 28], [8, 8], [8, 8], [0, 0]]
    """
    times, possible = instance.arrays.time_ns, where_needed(instance)
    while True:
        head, tail = _heads(instance, possible), _tails(instance, possible)
        fits = possible & (head + times + tail <= horizon_ns)
        fits = _for_pooled_groups(instance, fits)
        if (fits == possible).all():
            return CallWindows(possible, head, tail)
        possible = fits


def _heads(instance: Instance, possible: Flags) -> Ints:
    arrays, index, host = instance.arrays, instance.arrays.index, _host_ns(instance)
    head = np.where(possible, 0, NO_WAY)
    for i in index.topological_order.tolist():
        for e in index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]].tolist():
            j, u = index.producer[e], index.tensor[e]
            done = head[j] + arrays.time_ns[j]
            arrival = np.minimum(done, (done + host[u]).min() + host[u])
            head[i] = np.minimum(np.maximum(head[i], arrival), NO_WAY)
    return head


def _tails(instance: Instance, possible: Flags) -> Ints:
    arrays, index, host = instance.arrays, instance.arrays.index, _host_ns(instance)
    tail = np.where(possible, 0, NO_WAY)
    for i in index.topological_order[::-1].tolist():
        for e in index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]].tolist():
            j, u = index.consumer[e], index.tensor[e]
            rest = arrays.time_ns[j] + tail[j]
            after = np.minimum(rest, (rest + host[u]).min() + host[u])
            tail[i] = np.minimum(np.maximum(tail[i], after), NO_WAY)
    return tail


def empty_edges(instance: Instance, possible: Flags, largest_ns: int) -> list[int]:
    """Edges that a cycle of calls may consist of without taking time, in input order.

    Times up to `largest_ns` count as none. Both ends of such an edge take no time on devices where
    the tensor takes none. Clocks exclude every other cycle, because something on it takes time.

    Examples
    --------
    >>> from placegap.instances import example
    >>> empty_edges(example(), np.ones((4, 2), bool), 0), empty_edges(example(), np.ones((4, 2)), 8)
    ([], [])
    """
    index, is_host = instance.arrays.index, instance.arrays.is_host
    idle = (np.asarray(possible) > 0) & (instance.arrays.time_ns <= largest_ns)
    if not idle[:, ~is_host].any():  # hosts alone have no cycle
        return []
    free = _host_ns(instance)[index.tensor] <= largest_ns
    ends = [(idle[op] & free).any(axis=1) for op in (index.producer, index.consumer)]
    return np.flatnonzero(ends[0] & ends[1]).tolist()


# --------------------------------------------------------------------------- one plan out of many


def equal_accelerators(instance: Instance) -> list[tuple[int, ...]]:
    """Classes of two or more accelerators that are alike."""
    is_host = instance.arrays.is_host
    return [members for members in identical_devices(instance) if not is_host[members[0]]]
