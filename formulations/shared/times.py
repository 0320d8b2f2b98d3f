"""Times in models: their unit, durations, windows of ops, and paths through sections.

Windows are the heads and tails of job-shop scheduling, indexed by device: a model needs no variable
for what precedence, transfer times and the horizon exclude.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.graph_index import all_by
from placegap.instances.problem.integers import NO_WAY, UNSUPPORTED
from placegap.instances.problem.sections import Section

LARGEST_TIME = 1000.0  # models count time in a unit that keeps their horizon within it
LARGEST_HORIZON_NS = 2**59  # windows use sums near `NO_WAY` for what is impossible


# ------------------------------------------------------------------------------ units and durations


def granularity_ns(instance: Instance, *, transfers: bool) -> int:
    """Greatest common divisor of all times that add up to a value; 1 if all of them are 0."""
    # Every makespan (``transfers=True``: op and transfer times) and every load of a device
    # (``transfers=False``: op and host times) is a multiple of it.
    arrays = instance.arrays
    ops = arrays.time_ns[arrays.time_ns != UNSUPPORTED]
    moves = arrays.transfer_ns[:, 1:] if transfers else arrays.host_ns[:, ~arrays.is_host]
    return math.gcd(*np.unique(ops).tolist(), *np.unique(moves).tolist()) or 1


def time_unit_ns(horizon_ns: int, granularity: int) -> float:
    """Nanoseconds per unit of model time: the granularity, unless that leaves large numbers."""
    # Multiples of the granularity make every duration an integer, which solvers keep exact. The
    # horizon is at most `LARGEST_TIME` units, because an integrality error of 1e-6 times a big-M of
    # that size is still small beside one unit.
    return max(float(granularity), horizon_ns / LARGEST_TIME)


# ------------------------------------------------------------------------------------------ windows


Cross = Callable[[Ints, int, bool], Ints]
WholeGroups = Callable[[Flags], Flags]


@dataclass(frozen=True, eq=False)
class Windows:
    """Heads and tails of n ops on K devices, in ns."""

    #: (n, K) bool: Whether a plan of at most the horizon may have op i on device k.
    possible: Flags
    #: (n, K) int64: Earliest start of op i on k; `NO_WAY` where it is not possible.
    head_ns: Ints
    #: (n, K) int64: Least time between the end of op i on k and the end of the plan.
    tail_ns: Ints


def windows(instance: Instance, horizon_ns: int) -> Windows:
    """Propagate heads, tails and the horizon until nothing changes; O(m K^2) per round."""
    # A device is possible for an op if head + time + tail is at most the horizon there, so every
    # plan of at most the horizon keeps to the windows.
    arrays = instance.arrays

    def cross(done: Ints, tensor: int, back: bool) -> Ints:
        move = arrays.transfer_ns[tensor][arrays.link_class]
        least: Ints = (done[:, None] + (move.T if back else move)).min(axis=0)
        return least

    def whole_groups(possible: Flags) -> Flags:
        return all_by(arrays.group, possible, arrays.num_groups)[arrays.group]

    return settled_windows(arrays, arrays.able, horizon_ns, cross, whole_groups)


def settled_windows(
    arrays: Arrays, possible: Flags, horizon_ns: int, cross: Cross, whole_groups: WholeGroups
) -> Windows:
    """Heads and tails that agree with the horizon, from the devices possible for each op.

    `cross` maps the times at which an op is done on each device to the times at which its neighbour
    across a tensor can begin on each device, also backwards in time; `whole_groups` keeps the
    devices that are possible for whole colocation groups.
    """
    # A device that is excluded for an op may raise the heads of all ops after it, and so exclude
    # more: until nothing changes.
    while True:
        head = _longest(arrays, possible, cross, back=False)
        tail = _longest(arrays, possible, cross, back=True)
        fits = whole_groups(possible & (head + arrays.time_ns + tail <= horizon_ns))
        if (fits == possible).all():
            return Windows(possible, head, tail)
        possible = fits


def _longest(arrays: Arrays, possible: Flags, cross: Cross, *, back: bool) -> Ints:
    """Longest paths to each op on each device, or from it to the end, (n, K); at most `NO_WAY`."""
    # For each device of an op, the least over devices of a producer, and the largest of that over
    # its producers: every producer must have arrived, wherever it is.
    index = arrays.index
    order, ptr, edges, other = (
        (index.topological_order[::-1], index.succ_ptr, index.succ_edge, index.consumer)
        if back
        else (index.topological_order, index.pred_ptr, index.pred_edge, index.producer)
    )
    way = np.where(possible, 0, NO_WAY)
    for i in order.tolist():
        for e in edges[ptr[i] : ptr[i + 1]].tolist():
            j = other[e]
            done = np.minimum(way[j] + arrays.time_ns[j], NO_WAY)
            way[i] = np.minimum(np.maximum(way[i], cross(done, index.tensor[e], back)), NO_WAY)
    return way


def moves_in_time(instance: Instance, window: Windows, horizon_ns: int) -> list[Flags]:
    """For each edge (i, j), the pairs of devices (a, b) that a plan within the horizon may use."""
    # These are the pairs with head_ia + p_ia + T_ab + p_jb + tail_jb <= horizon, as a (K, K) table.
    arrays, index = instance.arrays, instance.arrays.index
    until, after = window.head_ns + arrays.time_ns, arrays.time_ns + window.tail_ns
    tables = []
    for i, j, u in zip(index.producer, index.consumer, index.tensor, strict=True):
        move = arrays.transfer_ns[u][arrays.link_class]
        total = until[i][:, None] + move + after[j][None, :]
        may = window.possible[i][:, None] & window.possible[j][None, :]
        tables.append(may & (total <= horizon_ns))
    return tables


# -------------------------------------------------------------------------- paths through a section


def path_bounds(instance: Instance, section: Section) -> Ints:
    """Device-indexed longest path from the end of the entry to the end of the exit, in ns."""
    # Row a: the entry is on device a; column b: the exit is on b; a single row or column if there
    # is no entry or exit. `NO_WAY` if an end cannot be on a device. A lower bound on the time
    # through the section under every semantics. O(e K^3) for e edges.
    arrays, num_devices = instance.arrays, instance.num_devices
    end = _ends(instance, section)
    if section.exit is not None:
        lengths: Ints = np.minimum(end[:, -1], NO_WAY)
        if section.entry is not None and arrays.group[section.entry] == arrays.group[section.exit]:
            lengths[~np.eye(num_devices, dtype=np.bool_)] = NO_WAY
        return lengths
    through: Ints = np.minimum(end.min(axis=2).max(axis=1)[:, None], NO_WAY)
    return through


def ways_through(instance: Instance, section: Section) -> tuple[Ints, Ints]:
    """Longest paths from a section's ends to each op on each device, (K, ops, K) each, in ns."""
    # First [a, i, c]: with the entry on device a, the earliest end of the i-th op on c after it.
    # Second [b, i, c]: with the i-th op on c, the least time until the exit has ended on b. By
    # paths alone, under every semantics; `NO_WAY` if impossible. O(e K^3) for e edges.
    arrays, num_devices, index = instance.arrays, instance.num_devices, instance.arrays.index
    local = {i: at for at, i in enumerate(section.ops)}
    tail = np.zeros((num_devices, len(section.ops), num_devices), np.int64)
    tail[:, -1] = np.where(np.eye(num_devices, dtype=np.bool_), 0, NO_WAY)
    time = np.where(arrays.able, arrays.time_ns, NO_WAY)[list(section.ops)]
    out_of: list[list[tuple[int, int]]] = [[] for _ in section.ops]
    for e in section.edges:
        i, j = local[int(index.producer[e])], local[int(index.consumer[e])]
        out_of[i].append((j, int(index.tensor[e])))
    for i in range(len(out_of) - 1, -1, -1):
        for j, u in out_of[i]:
            move = arrays.transfer_ns[u][arrays.link_class]
            rest = np.minimum(tail[:, j] + time[j], NO_WAY)[:, None, :]
            tail[:, i] = np.maximum(tail[:, i], np.minimum((move + rest).min(axis=2), NO_WAY))
    return _ends(instance, section), tail


def _ends(instance: Instance, section: Section) -> Ints:
    """Earliest end of each op on each device, by the device of the entry: (rows, ops, K), in ns."""
    arrays, num_devices = instance.arrays, instance.num_devices
    index, possible = arrays.index, arrays.able[list(section.ops)]
    local = {i: at for at, i in enumerate(section.ops)}
    time = arrays.time_ns[list(section.ops)]
    rows = 1 if section.entry is None else num_devices
    head = np.broadcast_to(np.where(possible, 0, NO_WAY), (rows, *time.shape)).copy()
    if section.entry is not None:
        head[:, 0] = np.where(np.eye(num_devices, dtype=np.bool_) & possible[0], 0, NO_WAY)
        time[0] = 0
    into: list[list[tuple[int, int]]] = [[] for _ in section.ops]
    for e in section.edges:
        i, j = local[int(index.producer[e])], local[int(index.consumer[e])]
        into[j].append((i, int(index.tensor[e])))
    for j, edges in enumerate(into):
        for i, u in edges:
            move = arrays.transfer_ns[u][arrays.link_class]
            arrival = ((head[:, i] + time[i])[:, :, None] + move).min(axis=1)
            head[:, j] = np.minimum(np.maximum(head[:, j], arrival), NO_WAY)
    end: Ints = np.where(head >= NO_WAY, NO_WAY, head + time)
    return end


def bare_lengths(instance: Instance, section: Section, semantics: Makespan) -> Ints:
    """Exact times through a section without inner ops, in the form of `path_bounds`."""
    # All its transfers go from one device to the other: one after the other on the channels that
    # they share, or all at once if channels are free.
    paths = lengths = path_bounds(instance, section)
    if section.entry is None or section.exit is None:
        return paths
    arrays, edges = instance.arrays, list(section.edges)
    tensors = arrays.index.tensor[edges]
    if semantics.transfers == "per_tensor":
        tensors = np.unique(tensors)
    moves = arrays.transfer_ns[tensors][:, arrays.link_class]
    if semantics.channels != "free":
        lengths = moves.sum(axis=0) + arrays.time_ns[section.exit][None, :]
    return np.where(paths < NO_WAY, lengths, NO_WAY)
