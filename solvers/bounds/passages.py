"""What lies between two stops of `memory_runs`: its times, and the bytes that are there.

Groups are left out by *modes*: mode 0 leaves out none, the others all those whose way there and
back takes no longer than some threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import Section

MODES = 4
"""Ways to count what lies between two stops on one device."""


class Passage(NamedTuple):
    """One section between two neighbouring stops.

    Attributes
    ----------
    section : int
        Its place in the chain.
    backward : bool
        Whether it leads to the earlier stop.
    way_ns : (G, K, K, K) int64
        Entry [g, a, b, c]: at least so long if the earlier stop is on a, the later one on b, and
        group g of the link on c. Without ``is_wide``, (G, K, 1, K): for both on a alone.
    work_ns : (G, K) int64
        Time of group g's ops in the section on each device.
    rest_ns : (K,) int64
        Time of the ops of both stops in it, the entry aside.
    """

    section: int
    backward: bool
    way_ns: Ints
    work_ns: Ints
    rest_ns: Ints


class BetweenStops(NamedTuple):
    """What lies between a stop and the next one: sections, and the bytes of the groups inside."""

    passages: tuple[Passage, ...]
    size_bytes: Ints


def passage_of(
    at: tuple[int, bool],
    section: Section,
    groups: tuple[list[int], list[int]],
    group: Ints,
    time: Ints,
    through: tuple[Ints, Ints] | None,
    *,
    is_wide: bool,
) -> Passage:
    """What a section says of the groups of its link, and of those of its two stops."""
    inner, stops = groups
    num_devices = time.shape[1]
    way = np.zeros((len(inner), num_devices, num_devices if is_wide else 1, num_devices), np.int64)
    work = np.zeros((len(inner), num_devices), np.int64)
    rest = np.zeros(num_devices, np.int64)
    places = {g: place for place, g in enumerate(inner)}
    for place, i in enumerate(section.ops):
        g = int(group[i])
        if g in places and through is not None:
            before, after = (part[:, place] for part in (through if not at[1] else through[::-1]))
            length = before[:, None] + (after[None, :] if is_wide else after[:, None])
            work[places[g]] = np.minimum(work[places[g]] + time[i], NO_WAY)
            way[places[g]] = np.maximum(way[places[g]], np.minimum(length, NO_WAY))
        elif g in stops and place > 0:
            rest = np.minimum(rest + time[i], NO_WAY)
    return Passage(*at, way, work, rest)


def ways_of(link: BetweenStops, tables: Sequence[Ints]) -> Ints:
    """The least time between two stops with a group of the link on a device, as in `Passage`."""
    ways = np.zeros((1, 1, 1, 1), np.int64)
    for passage in link.passages:
        table = tables[passage.section]
        table = table.T if passage.backward else table
        if passage.way_ns.shape[2] == 1:
            table = np.diag(table)[:, None]
        ways = np.minimum(ways + np.maximum(passage.way_ns, table[None, :, :, None]), NO_WAY)
    return ways


def fill_modes(
    link: BetweenStops, tables: Sequence[Ints], ways: Ints, together: Ints, cost: Ints, held: Ints
) -> None:
    """Fill in the least times between two stops on one device, (K, MODES), and the bytes held.

    Mode 0 has all groups there. In every other one some are elsewhere; those that may be are all
    whose least time elsewhere is no more than a threshold, and the first of them costs its time.
    """
    num_devices, num = len(together), len(link.size_bytes)
    same = np.arange(num_devices)
    away = np.zeros((num, num_devices, num_devices), np.int64)
    if num:
        away[:] = ways[:, same, same % ways.shape[2]]
    away[:, same, same] = NO_WAY  # elsewhere: not on the device of the run
    least = away.min(axis=2) if num else np.zeros((0, num_devices), np.int64)
    for a in range(num_devices):
        keys = np.unique(least[:, a])
        keys = keys[keys < NO_WAY]
        parts = np.array_split(keys, min(MODES - 1, len(keys))) if len(keys) else []
        begins = [int(together[a]), *(int(part[0]) for part in parts)]
        for mode in range(len(parts) + 1):
            stays = np.ones(num, np.bool_) if mode == 0 else least[:, a] > parts[mode - 1][-1]
            serial = 0
            for passage in link.passages:
                work = int(passage.rest_ns[a]) + sum(passage.work_ns[stays, a].tolist())
                serial += max(work, int(tables[passage.section][a, a]))
            cost[a, mode] = min(NO_WAY, max(begins[mode], serial))
            held[a, mode] = link.size_bytes[stays].sum()
