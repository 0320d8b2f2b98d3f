"""The ops of a section that a search places, and the ways between them.

A search over all ops of a large section would not end. So the ops of the most bytes are placed, and
the others may be anywhere: they lengthen the ways between those that are, and their bytes are where
they cost least.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.formulations.shared.families import possible_devices
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.semantics import Makespan
from placegap.instances.structure.sections import Section
from placegap.solvers.bounds.placed_sections import SectionEdges, channel_table, section_edges

FREE, WITH_ENTRY, WITH_EXIT = -1, -2, -3
"""Where an op may be: anywhere, or where the op of its colocation group is that is an end."""


class SectionOps(NamedTuple):
    """The m placed ops of a section, in topological order, and the ways between them.

    Attributes
    ----------
    time_ns : (m, K) int64
        `NO_WAY` where an op cannot be. The last one is the exit.
    tied : (m,) int64
        An earlier op of the same colocation group, `FREE`, `WITH_ENTRY` or `WITH_EXIT`.
    way_ptr : (m + 1,) int64
        Ways to op x are those from ``way_ptr[x]`` on.
    producer, consumer : (e,) int64
        Where a way begins and ends; -1 is the entry.
    way_ns : (e, K, K) int64
        What it takes at least, by the devices of both.
    sent_ns : (e, K, K) int64
        For how long it holds the channels between them; 0: not at all, as far as is known.
    previous : (e,) int64
        An earlier way that may share its transfer, or -1.
    """

    time_ns: Ints
    tied: Ints
    way_ptr: Ints
    producer: Ints
    consumer: Ints
    way_ns: Ints
    sent_ns: Ints
    previous: Ints


class Way(NamedTuple):
    """As in `SectionOps`, with the numbers of a section's inner ops and its exit; `tensor` is that
    of ways that may share a transfer.
    """

    producer: int
    consumer: int
    way_ns: Ints
    sent_ns: Ints
    tensor: int


def section_ops(
    instance: Instance, section: Section, semantics: Makespan, most: int
) -> tuple[SectionOps, Ints]:
    """What a search places of a section with an entry and an exit, and which ops these are.

    Parameters
    ----------
    instance, section, semantics
    most : int
        Ops that are placed, the exit among them.

    Returns
    -------
    tuple of (SectionOps, (m,) int64)
        Positions are those behind the entry, in `section.ops`. O(placed ops x edges x K^3).
    """
    arrays, ops = instance.arrays, np.array(section.ops[1:], np.int64)
    time = np.where(possible_devices(instance)[ops], arrays.time_ns[ops], NO_WAY)
    work = time.min(axis=1)
    inner = np.lexsort((work[:-1], arrays.resident_bytes[ops[:-1]]))[::-1][: most - 1]
    placed = np.append(np.sort(inner), len(ops) - 1)
    ways = _ways(instance, section, semantics, time, placed)
    ways.sort(key=lambda way: way.consumer)
    number = {-1: -1, **{x: at for at, x in enumerate(placed.tolist())}}
    last: dict[int, int] = {}
    previous = []
    for e, way in enumerate(ways):
        previous.append(-1 if way.tensor < 0 else last.get(way.tensor, -1))
        last[way.tensor] = e
    group = arrays.group[ops[placed]].tolist()
    ends = {group[-1]: WITH_EXIT, int(arrays.group[section.ops[0]]): WITH_ENTRY}
    tied = [ends.setdefault(g, x) for x, g in enumerate(group)]
    consumer = np.array([number[way.consumer] for way in ways], np.int64)
    shape = (len(ways), instance.num_devices, instance.num_devices)
    return SectionOps(
        time[placed],
        np.array([FREE if at == x else at for x, at in enumerate(tied)], np.int64),
        np.searchsorted(consumer, np.arange(len(placed) + 1)),
        np.array([number[way.producer] for way in ways], np.int64),
        consumer,
        np.array([way.way_ns for way in ways], np.int64).reshape(shape),
        np.array([way.sent_ns for way in ways], np.int64).reshape(shape),
        np.array(previous, np.int64),
    ), placed


def _ways(
    instance: Instance, section: Section, semantics: Makespan, time: Ints, placed: Ints
) -> list[Way]:
    """Edges between placed ops, and ways over the others."""
    edges = section_edges(instance, section, semantics)
    fixed, found = {-1, *placed.tolist()}, list[Way]()
    leaving: list[list[int]] = [[] for _ in range(len(time) + 1)]  # the last one is the entry
    for e in np.argsort(edges.consumer, kind="stable").tolist():
        leaving[edges.producer[e]].append(e)
        if {int(edges.producer[e]), int(edges.consumer[e])} <= fixed:
            move, tensor = edges.move_ns[e], int(edges.tensor[e])
            found.append(Way(int(edges.producer[e]), int(edges.consumer[e]), move, move, tensor))
    over = {
        (u, v): way
        for u in sorted(fixed)
        for v, way in _over_others(edges, leaving, time, u, fixed).items()
    }
    sent = _certain_transfers(instance, semantics, edges, fixed)
    none = np.zeros((instance.num_devices, instance.num_devices), np.int64)
    for (u, v), way in over.items():
        found += [Way(u, v, way, each, -1) for each in sent.get((u, v), [none])]
    return found


def _over_others(
    edges: SectionEdges, leaving: list[list[int]], time: Ints, u: int, fixed: set[int]
) -> dict[int, Ints]:
    """Least ways from a placed op over ops that are not, to placed ones, (K, K) each."""
    head, found = dict[int, Ints](), dict[int, Ints]()
    for e in leaving[u]:
        x = int(edges.consumer[e])
        if x not in fixed:
            head[x] = np.maximum(head.get(x, 0), edges.move_ns[e])
    for x in range(len(time)):
        if x not in head:
            continue
        end = np.minimum(head[x] + time[x], NO_WAY)
        for e in leaving[x]:
            y = int(edges.consumer[e])
            way = np.minimum((end[:, :, None] + edges.move_ns[e]).min(axis=1), NO_WAY)
            known = found if y in fixed else head
            known[y] = np.maximum(known.get(y, 0), way)
    return found


def _certain_transfers(
    instance: Instance, semantics: Makespan, edges: SectionEdges, fixed: set[int]
) -> dict[tuple[int, int], list[Ints]]:
    """Of ways over ops that each read and feed one op: what is sent out of, and into, their ends.

    Somewhere on such a way something leaves the first device, and something comes to the last.
    """
    into: dict[int, list[int]] = {}
    behind: dict[int, int] = {}
    for e, (y, x) in enumerate(zip(edges.producer.tolist(), edges.consumer.tolist(), strict=True)):
        into.setdefault(x, []).append(e)
        behind[y] = behind.get(y, 0) + 1
    found: dict[tuple[int, int], list[Ints]] = {}
    num_devices = instance.num_devices
    apart = ~np.eye(num_devices, dtype=np.bool_)
    if not channel_table(semantics, num_devices)[2]:
        return found
    for x in sorted(fixed - {-1}):
        for e in into.get(x, []):
            y, least = int(edges.producer[e]), int(edges.least_ns[e])
            is_way = y not in fixed
            while y not in fixed and behind[y] == 1 and len(into.get(y, [])) == 1:
                least = min(least, int(edges.least_ns[into[y][0]]))
                y = int(edges.producer[into[y][0]])
            if is_way and y in fixed:
                found.setdefault((y, x), []).append(np.where(apart, least, 0))
    return found
