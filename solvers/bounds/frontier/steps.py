"""The steps of `frontier.bound`: one place after the other, and what later ones ask for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.formulations.shared.devices import device_pools, identical_devices
from placegap.formulations.shared.families import possible_devices
from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.graph_index import GraphIndex, group_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_LIMIT, NO_WAY
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.modules import group_order, place_of_ops
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.bounds.frontier.labels import HEAD, TAIL, UNKNOWN, OpenPlaces, PlacedGraph

MOST_WIDTH = 5
"""Places of a frontier whose devices are remembered; those needed last are forgotten first."""

MOST_CELLS = 30_000_000
"""Of the tables of all labels of a step: where devices are many and unlike, fewer places are
remembered."""


class PlacingSteps(NamedTuple):
    """The graph, the ops of each place in topological order, and the frontier after each."""

    graph: PlacedGraph
    ops: list[Ints]
    frontiers: list[OpenPlaces]


def steps_of(instance: Instance, semantics: Makespan) -> PlacingSteps:
    """The steps of an instance whose resident bytes add up.

    Examples
    --------
    The second op is asked for until the fourth, which is the last one, is placed:

    >>> from placegap.instances import example
    >>> [frontier.places.tolist() for frontier in steps_of(example(), Makespan()).frontiers]
    [[0], [0, 1], [1, 2], []]
    """
    arrays, index = instance.arrays, instance.arrays.index
    order = group_order(arrays)
    place = place_of_ops(arrays, order)
    member_ptr, member = group_by(place, len(order))
    ops = [
        part[np.argsort(index.topological_position[part], kind="stable")]
        for part in np.split(member, member_ptr[1:-1])
    ]
    pools, peers = device_pools(arrays), np.arange(instance.num_devices)
    for alike in identical_devices(instance, pools.pool.tolist()):  # a pool is filled once
        peers[list(alike)] = alike[0]
    room, mode = arrays.memory_bytes, _modes(index, place)
    narrow, section = _sections(index, mode, place)
    graph = PlacedGraph(
        mode,
        narrow,
        section,
        place,
        np.where(possible_devices(instance), arrays.time_ns, NO_WAY),
        arrays.transfer_ns,
        arrays.link_class,
        index.pred_ptr,
        index.pred_edge,
        index.succ_ptr,
        index.succ_edge,
        index.producer,
        index.consumer,
        index.tensor,
        arrays.group_runs[order],
        arrays.group_bytes[order],
        np.where(room == NO_LIMIT, np.iinfo(np.int64).max, room),
        peers,
        pools.pool,
        pools.room_bytes,
        semantics.transfers == "per_edge" and semantics.channels in ("port", "half_duplex"),
    )
    return PlacingSteps(graph, ops, _frontiers(index, graph, ops, most_width(peers)))


def most_width(peers: Ints) -> int:
    """Places that are remembered, by the first device of each one's class: so few that there are
    labels for all their signatures.

    Examples
    --------
    Alike devices have no names; unlike ones do:

    >>> most_width(np.zeros(64, np.int64)), most_width(np.arange(64))
    (5, 1)
    """
    num_devices, classes = len(peers), len(np.unique(peers))
    width, signatures = 0, 1
    while width < MOST_WIDTH:
        signatures *= min(num_devices, classes + width)  # one that is named, or of some class
        if width and signatures * num_devices * 8 * num_devices > MOST_CELLS:
            break
        width += 1
    return width


def _modes(index: GraphIndex, place: Ints) -> Ints:
    """Whose ways are known with their place, (n,): all that comes before, or after, is placed."""
    mode = np.full(len(place), UNKNOWN)
    order = index.topological_order.tolist()
    for i in order:
        before = index.producer[index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]]]
        if ((mode[before] == HEAD) & (place[before] <= place[i])).all():
            mode[i] = HEAD
    for i in reversed(order):
        after = index.consumer[index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]]]
        if mode[i] != HEAD and ((mode[after] == TAIL) & (place[after] <= place[i])).all():
            mode[i] = TAIL
    return mode


def _sections(index: GraphIndex, mode: Ints, place: Ints) -> tuple[Flags, Ints]:
    """Whether all other ops of an op's mode come before or after it, as they are placed, (n,); and
    how many such ops are placed before each.
    """
    narrow, section = np.zeros(len(mode), np.bool_), np.zeros(len(mode), np.int64)
    position, order = index.topological_position, index.topological_order
    forward = (order, index.succ_ptr, index.consumer[index.succ_edge])
    backward = (order[::-1], index.pred_ptr, index.producer[index.pred_edge])
    for kind, sign in ((HEAD, 1), (TAIL, -1)):
        inside = mode == kind
        ops = np.flatnonzero(inside)
        ops = ops[np.lexsort((sign * position[ops], place[ops]))]
        rank = np.arange(len(ops))
        earlier, later = (_how_many_lead_to(*way, inside) for way in (forward, backward)[::sign])
        narrow[ops] = (earlier[ops] == rank) & (later[ops] == len(ops) - 1 - rank)
        section[ops] = np.cumsum(narrow[ops])
    return narrow, section


def _how_many_lead_to(order: Ints, pointer: Ints, target: Ints, inside: Flags) -> Ints:
    """How many of the ops inside lead to each of them, (n,); sets are bits of integers."""
    sets = [0] * len(order)
    for i in order[inside[order]].tolist():
        for j in target[pointer[i] : pointer[i + 1]].tolist():
            sets[j] |= sets[i] | (1 << i)
    return np.array([each.bit_count() for each in sets], np.int64)


def _frontiers(
    index: GraphIndex, graph: PlacedGraph, members: list[Ints], width: int
) -> list[OpenPlaces]:
    known = (graph.mode[graph.producer] != UNKNOWN) & (graph.mode[graph.consumer] != UNKNOWN)
    u, v = graph.producer[known], graph.consumer[known]
    last_op, last = np.full(len(graph.mode), -1), np.full(len(members), -1)
    np.maximum.at(last_op, u, graph.place[v])
    np.maximum.at(last_op, v, graph.place[u])
    np.maximum.at(last, graph.place, last_op)
    least, order = graph.time_ns.min(axis=1), index.topological_order
    head, tail = _ways_from(graph, order, least, -1), _ways_to_the_end(graph, order, least)
    rest, ways = np.where(graph.mode == HEAD, tail, head), dict[int, Ints]()
    frontiers, places, ops = list[OpenPlaces](), list[int](), np.zeros(0, np.int64)
    for here, added in enumerate(members):
        places = [q for q in [*places, here] if last[q] > here]
        places = sorted(sorted(places, key=lambda q: (last[q], q))[:width])
        ops = np.concatenate([ops, added])
        ops = ops[last_op[ops] > here]
        heads = np.flatnonzero(graph.mode[ops] == HEAD)
        others = np.flatnonzero(graph.mode[ops] != HEAD)
        # no ways where there is nothing between: wide graphs have many open ops
        asked = ops[heads].tolist() if len(others) else []
        ways = {i: ways[i] if i in ways else _ways_from(graph, order, least, i) for i in asked}
        between = [np.zeros((0, 3), np.int64)]
        for s, i in zip(heads.tolist(), asked, strict=False):
            reached = others[ways[i][ops[others]] >= 0]
            between.append(
                np.column_stack([np.full(len(reached), s), reached, ways[i][ops[reached]]])
            )
        frontiers.append(
            OpenPlaces(np.array(places, np.int64), ops, rest[ops], np.concatenate(between))
        )
    return frontiers


@kernel
def _ways_from(graph: PlacedGraph, order: Ints, least: Ints, source: int) -> Ints:
    """Least time from the end of an op to the start of each, (n,), -1 where no way leads; from the
    beginning for source -1.
    """
    way = np.full(len(order), -1)
    for j in order:
        if source < 0:
            way[j] = 0
        for e in graph.pred_edge[graph.pred_ptr[j] : graph.pred_ptr[j + 1]]:
            i = graph.producer[e]
            if i == source:
                way[j] = max(way[j], 0)
            elif way[i] >= 0:
                way[j] = min(NO_WAY, max(way[j], way[i] + least[i]))
    return way


@kernel
def _ways_to_the_end(graph: PlacedGraph, order: Ints, least: Ints) -> Ints:
    """Least time from the end of each op to the end of all, (n,)."""
    way = np.zeros(len(order), np.int64)
    for i in order[::-1]:
        for e in graph.succ_edge[graph.succ_ptr[i] : graph.succ_ptr[i + 1]]:
            j = graph.consumer[e]
            way[i] = min(NO_WAY, max(way[i], way[j] + least[j]))
    return way
