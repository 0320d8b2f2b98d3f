"""When each op can run on each device, if the makespan is to be at most a horizon.

The heads and tails of job-shop scheduling, indexed by device: what precedence, transfer times and
the horizon rule out, no model needs to hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.formulations.shared.families import for_whole_groups, possible_devices
from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY


@dataclass(frozen=True, eq=False)
class Windows:
    """Heads and tails of n ops on K devices, in ns.

    Attributes
    ----------
    possible : (n, K) bool
        Whether a plan of at most the horizon may have op i on device k.
    head_ns : (n, K) int64
        Op i cannot start earlier on k; `NO_WAY` where it is not possible.
    tail_ns : (n, K) int64
        So much time passes at least between the end of i on k and the end of the plan.
    """

    possible: Flags
    head_ns: Ints
    tail_ns: Ints


def windows(instance: Instance, horizon_ns: int) -> Windows:
    """Propagate heads, tails and the horizon until nothing changes; O(m K^2) per round.

    A device is possible for an op if head + time + tail is at most the horizon there, so every
    plan of at most the horizon keeps to the windows.

    Examples
    --------
    >>> from placegap.instances import example
    >>> windows(example(), 43).head_ns.tolist()
    [[0, 0], [5, 5], [5, 5], [25, 25]]
    """
    arrays = instance.arrays
    possible = possible_devices(instance)
    while True:
        head, tail = _heads(arrays, possible), _tails(arrays, possible)
        fits = possible & (head + arrays.time_ns + tail <= horizon_ns)
        fits = for_whole_groups(arrays.group, fits)
        if (fits == possible).all():
            return Windows(possible, head, tail)
        possible = fits


def moves_in_time(instance: Instance, window: Windows, horizon_ns: int) -> list[Flags]:
    """Per edge (i, j), the pairs of devices (a, b) that a plan of at most the horizon may use.

    Those with head_ia + p_ia + T_ab + p_jb + tail_jb <= horizon, as a (K, K) table.

    Examples
    --------
    >>> from placegap.instances import example
    >>> moves_in_time(example(), windows(example(), 34), 34)[1].tolist()
    [[True, False], [False, True]]
    """
    arrays, index = instance.arrays, instance.arrays.index
    until, after = window.head_ns + arrays.time_ns, arrays.time_ns + window.tail_ns
    tables = []
    for i, j, u in zip(index.producer, index.consumer, index.tensor, strict=True):
        move = arrays.transfer_ns[u][arrays.link_class]
        total = until[i][:, None] + move + after[j][None, :]
        may = window.possible[i][:, None] & window.possible[j][None, :]
        tables.append(may & (total <= horizon_ns))
    return tables


def _heads(arrays: Arrays, possible: Flags) -> Ints:
    index = arrays.index
    head = np.where(possible, 0, NO_WAY)
    for i in index.topological_order.tolist():
        for e in index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]].tolist():
            j = index.producer[e]
            move = arrays.transfer_ns[index.tensor[e]][arrays.link_class]
            arrival = (np.minimum(head[j] + arrays.time_ns[j], NO_WAY)[:, None] + move).min(axis=0)
            head[i] = np.minimum(np.maximum(head[i], arrival), NO_WAY)
    return head


def _tails(arrays: Arrays, possible: Flags) -> Ints:
    index = arrays.index
    tail = np.where(possible, 0, NO_WAY)
    for i in index.topological_order[::-1].tolist():
        for e in index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]].tolist():
            j = index.consumer[e]
            move = arrays.transfer_ns[index.tensor[e]][arrays.link_class]
            rest = (np.minimum(tail[j] + arrays.time_ns[j], NO_WAY)[None, :] + move).min(axis=1)
            tail[i] = np.minimum(np.maximum(tail[i], rest), NO_WAY)
    return tail
