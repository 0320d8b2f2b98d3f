"""The least time through a section that paths alone prove, and sections without ops in between."""

from __future__ import annotations

import numpy as np

from placegap.formulations.shared.families import possible_devices
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import Section
from placegap.instances.problem.semantics import Makespan


def path_bounds(instance: Instance, section: Section) -> Ints:
    """Device-indexed longest path from the end of the entry to the end of the exit, in ns.

    Row a: the entry is on device a; column b: the exit is on b; of one row or column where there is
    no entry or exit. `NO_WAY` where an end cannot be on a device. A lower bound on the time through
    the section under every semantics. O(e K^3) for e edges.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.instances.problem.sections import sections_between
    >>> path_bounds(example(), sections_between(example(), (0, 3))[1]).tolist()
    [[28, 29], [29, 28]]
    """
    arrays, num_devices = instance.arrays, instance.num_devices
    end = _ends(instance, section)
    if section.exit is not None:
        lengths: Ints = np.minimum(end[:, -1], NO_WAY)
        if section.entry is not None and arrays.group[section.entry] == arrays.group[section.exit]:
            lengths[~np.eye(num_devices, dtype=np.bool_)] = NO_WAY
        return lengths
    through: Ints = np.minimum(end.min(axis=2).max(axis=1)[:, None], NO_WAY)
    return through


def _ends(instance: Instance, section: Section) -> Ints:
    """Earliest end of each op on each device, by the device of the entry: (rows, ops, K), in ns."""
    arrays, num_devices = instance.arrays, instance.num_devices
    index, possible = arrays.index, possible_devices(instance)[list(section.ops)]
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


def ways_through(instance: Instance, section: Section) -> tuple[Ints, Ints]:
    """Longest paths from the ends of a section to each op on each device, (K, ops, K) each, in ns.

    First entry [a, i, c]: with the entry on device a, the i-th op ends on c no earlier after it.
    Second entry [b, i, c]: with the i-th op on c, so much passes at least until the exit has ended
    on b. By paths alone, under every semantics; `NO_WAY` where that cannot be. O(e K^3), e edges.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.instances.problem.sections import sections_between
    >>> before, after = ways_through(example(), sections_between(example(), (0, 3))[1])
    >>> (before[0, 1:3] + after[0, 1:3]).tolist()
    [[28, 30], [18, 48]]
    """
    arrays, num_devices, index = instance.arrays, instance.num_devices, instance.arrays.index
    local = {i: at for at, i in enumerate(section.ops)}
    tail = np.zeros((num_devices, len(section.ops), num_devices), np.int64)
    tail[:, -1] = np.where(np.eye(num_devices, dtype=np.bool_), 0, NO_WAY)
    time = np.where(possible_devices(instance), arrays.time_ns, NO_WAY)[list(section.ops)]
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


def bare_lengths(instance: Instance, section: Section, semantics: Makespan) -> Ints:
    """Exact times through a section that has nothing but its ends, in the form of `path_bounds`.

    All its transfers go from the one device to the other: one after the other on the channels
    that they share, or all at once if channels are free.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.instances.problem.sections import sections_between
    >>> last = sections_between(example(), (2, 3))[1]
    >>> bare_lengths(example(), last, Makespan()).tolist()
    [[8, 18], [18, 8]]
    """
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
