"""Memory along the order of the colocation groups: the frontier is known, and the rest forgotten.

Groups are placed one after the other (`modules.group_order`). At every step the *frontier* are
the groups that later ones exchange tensors with. Labels (`frontier_labels`) know the devices of the
frontier, what these hold, and ways from the beginning to ops (forward ops, say) and from ops to the
end (backward ops). What a device holds is forgotten when no group of the frontier is there any
more: it may be filled twice. That is the relaxation, besides that little waits for a device or a
channel. Where links are of unlike speed, what each *pool* of devices with fast links holds is
remembered: a model that no server has room for has to cross the slow links.

Any plan passes these steps, with no more bytes and no longer ways than its own. So the least path
over all sequences of labels that fit is a bound. Labels of one *signature* (the devices of the
frontier, alike ones by first appearance) are thinned, and joined where they are too many; both
leave the least path where it is or lower. Labels that cannot end below an *aim* are left out: where
none is left, the aim is a bound. Aims rise from what is known.

The method frontier-paths makes the plan of the least path that memory leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from placegap.formulations.shared.devices import device_pools, identical_devices
from placegap.formulations.shared.times import serial_horizon_ns
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.graph_index import GraphIndex, group_by
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.modules import group_order, place_of_ops
from placegap.solvers.bounds.cheap_bounds import directions, least_starts, quick_bound
from placegap.solvers.bounds.labels.frontier_labels import (
    HEAD,
    TAIL,
    UNKNOWN,
    FrontierLabels,
    OpenPlaces,
    PlacedGraph,
    extended,
    few_labels,
    value_columns,
)
from placegap.solvers.core.clock import never
from placegap.solvers.core.method import Cost, Params, Task
from placegap.solvers.core.progress import Incumbent
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome

MOST_WIDTH = 5
"""Places of a frontier whose devices are remembered; those needed last are forgotten first."""

MOST_CELLS = 30_000_000
"""Of the tables of all labels of a step: where devices are many and unlike, fewer places are
remembered."""

FEW_ROWS, MOST_ROWS, MORE_ROWS = 256, 2_048, 8_192
"""Labels of a step: where there are more, each signature keeps fewer. The first are enough for most
aims, and the last are for where something is proven."""

HOPELESS = 0.85
"""Of what is known: a path below that is left by joining few labels, and by joining more."""

MOST_OPS = 5_000
"""Larger graphs are not tried."""

STRIDE, LEAST_STRIDE = 0.06, 0.004
"""By what shares aims rise; halved where a path below the aim is found."""

MORE_AIMS = 2
"""Aims that a path is below, until which plans are made: the second may fit, and be shorter."""


class LeastPath(NamedTuple):
    """The least path below an aim.

    `ns` is None if there is none. With `joined`, it may be less than the least. `traces` are the
    labels of all steps.
    """

    ns: int | None
    joined: bool
    traces: list[FrontierLabels]


def frontier_bound(
    instance: Instance,
    semantics: Makespan,
    known_ns: int,
    stop: Callable[[], bool] = never,
    rows: int = MOST_ROWS,
) -> int:
    """What memory along the order of the groups proves of every makespan, in ns.

    Parameters
    ----------
    instance : Instance
        Whose resident bytes add up (`additive_memory`).
    known_ns : int
        What is proven already; the result is no less.
    stop : callable
        Asked at each step whether to end with what is proven so far.
    rows : int
        Labels of a step, at most.

    Notes
    -----
    O(P L K (w + L)) for each aim, with P groups, at most `rows` labels L and w numbers in each.
    """
    if instance.num_ops > MOST_OPS or instance.arrays.memory_is_slack:
        return known_ns
    best, stride, steps = known_ns, STRIDE, steps_of(instance, semantics)
    now = FEW_ROWS if rows <= MOST_ROWS else rows
    most_ns = serial_horizon_ns(instance)
    while stride >= LEAST_STRIDE:
        aim = int(best * (1 + stride)) + 1
        if aim > most_ns + 1:  # no plan at all, or nothing left to prove
            return best
        found = least_below(steps, aim, stop, rows=now)
        if found is None:
            return best
        if found.ns is None:
            best = aim
            continue
        if not found.joined:
            return max(best, found.ns)
        if now < rows and (best > known_ns or found.ns > best * HOPELESS):
            now = rows
            continue
        if found.ns < best * (1 - STRIDE):  # too much is lost in joining
            return best
        best, stride = max(best, found.ns), stride / 2
    return best


def least_below(
    steps: PlacingSteps,
    aim_ns: int,
    stop: Callable[[], bool] = never,
    *,
    rows: int = MOST_ROWS,
    trace: bool = False,
) -> LeastPath | None:
    """The least path, if it is below the aim; None where it was stopped or has too many labels."""
    k, none = steps.graph.able.shape[1], np.zeros(0, np.int64)
    columns = value_columns(0, k, len(steps.graph.pool_room_bytes))
    old, joined, traces = (
        OpenPlaces(none, none, none, np.zeros((0, 3), np.int64), columns),
        False,
        [],
    )
    nowhere, nothing = np.zeros((1, 0), np.int64), np.zeros((1, columns.end), np.int64)
    known = FrontierLabels(nowhere, nothing, none, none)
    for here, new in enumerate(steps.frontiers):
        if stop():
            return None
        found, signature, cost = extended(
            steps.graph, known, old, new, here, steps.ops[here], aim_ns
        )
        if not len(cost):
            return LeastPath(None, joined, [])
        old = new
        fitting = MOST_CELLS // (k * (len(new.ops) + 8 * k))  # rows of the next step's tables
        known, lost = few_labels(steps.graph, found, signature, cost, min(rows, fitting))
        if len(known.value) > 2 * fitting + 1:  # of one label per signature
            return None
        joined = joined or bool(lost)
        if trace:
            traces.append(known)
    return LeastPath(int(known.value[:, 0].min()), joined, traces)


@method(
    "frontier-paths",
    objectives=("makespan",),
    paper="placegap",
    starts={"makespan": Cost(10.0, 400.0, most_parts=5_000)},
    packages=("numba",),
)
def run(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """The least path that memory leaves along the order of the groups.

    Where memory forces transfers, a plan is good if its longest path is short. The labels know that
    path, forward and backward, and what the devices of the frontier and pools of devices hold. They
    do not know what a device still holds that has left the frontier: the emptiest one of its kind
    is taken, and a plan that does not fit is no plan. Aims rise from what is proven by paths until
    there is a path below, and once more; the plan with the shortest schedule counts. With slack
    memory nothing forces transfers, and there is no plan. A heuristic, for at most 5,000 ops. O(P L
    K (w + L)) for each aim, with P groups, at most 2,048 labels L and w numbers in each.
    """
    instance, semantics, clock = task.instance, task.semantics, task.limits.clock()
    if instance.num_ops > MOST_OPS:
        return Outcome(message=f"{instance.num_ops} ops are more than {MOST_OPS}")
    if instance.arrays.memory_is_slack:
        return Outcome(message="memory is slack: it forces no transfers")

    steps, most_ns = steps_of(instance, semantics), serial_horizon_ns(instance)
    best = Incumbent()
    aim, more = quick_bound(instance, semantics).ns, MORE_AIMS
    while more > 0 and aim <= most_ns + 1:
        aim = int(aim * (1 + STRIDE)) + 1
        found = least_below(steps, aim, clock.is_over, trace=True)
        if found is None:
            break
        if found.ns is None:
            continue
        more -= 1
        best.offer_plan(task, plan_by(steps, found.traces))
        if best.plan is not None and not found.joined:
            break
    if best.plan is None:
        return Outcome(message="memory: no path of labels makes a plan that fits")
    return Outcome(best.plan)


def plan_by(steps: PlacingSteps, traces: Sequence[FrontierLabels]) -> Plan:
    """Each op on the device of its group's place, by the first label of the last step.

    A label knows the devices of its frontier by names of its own; any other one is a device of its
    class that has most room left. It may be too full.
    """
    graph, frontiers = steps.graph, steps.frontiers
    row, path = 0, list[int]()
    for trace in reversed(traces):
        path.append(row)
        row = int(trace.source[row])
    path.reverse()
    at, room = np.full(len(path), -1), graph.room_bytes.astype(np.float64)
    for here, row in enumerate(path):
        named: dict[int, int] = {}
        if here:
            names = traces[here - 1].device[path[here - 1]].tolist()
            named = dict(zip(names, at[frontiers[here - 1].places].tolist(), strict=True))
        name = int(traces[here].on[row])
        if name not in named:
            others = np.flatnonzero(graph.peers == graph.peers[name]).tolist()
            free = [k for k in others if k not in named.values()]
            named[name] = max(free, key=lambda k: room[k])
        at[here] = named[name]
        room[at[here]] -= graph.size_bytes[here]
    return Plan.on(at[graph.place].tolist())


class PlacingSteps(NamedTuple):
    """The graph, the ops of each place in topological order, and the frontier after each."""

    graph: PlacedGraph
    ops: list[Ints]
    frontiers: list[OpenPlaces]


def steps_of(instance: Instance, semantics: Makespan) -> PlacingSteps:
    """The steps of an instance whose resident bytes add up."""
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
    mode = _modes(index, place)
    narrow, section = _sections(index, mode, place)
    graph = PlacedGraph(
        mode,
        narrow,
        section,
        place,
        np.where(instance.arrays.able, arrays.time_ns, NO_WAY),
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
        arrays.memory_bytes,
        peers,
        pools.pool,
        pools.room_bytes,
        semantics.transfers == "per_edge" and semantics.channels in ("port", "half_duplex"),
    )
    return PlacingSteps(graph, ops, _frontiers(instance, graph, ops, most_width(peers)))


def most_width(peers: Ints) -> int:
    """Places that are remembered, by the first device of each one's class: so few that there are
    labels for all their signatures.
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
    instance: Instance, graph: PlacedGraph, members: list[Ints], width: int
) -> list[OpenPlaces]:
    known = (graph.mode[graph.producer] != UNKNOWN) & (graph.mode[graph.consumer] != UNKNOWN)
    u, v = graph.producer[known], graph.consumer[known]
    last_op, last = np.full(len(graph.mode), -1), np.full(len(members), -1)
    np.maximum.at(last_op, u, graph.place[v])
    np.maximum.at(last_op, v, graph.place[u])
    np.maximum.at(last, graph.place, last_op)
    index, least = instance.arrays.index, graph.time_ns.min(axis=1)
    order, bare = index.topological_order, directions(instance, transfers=False)
    head, tail = (least_starts(way, least[:, None])[:, 0] for way in bare)
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
        columns = value_columns(len(ops), len(graph.peers), len(graph.pool_room_bytes))
        open_ways = np.concatenate(between)
        frontiers.append(OpenPlaces(np.array(places, np.int64), ops, rest[ops], open_ways, columns))
    return frontiers


@kernel
def _ways_from(graph: PlacedGraph, order: Ints, least: Ints, source: int) -> Ints:
    """Least time from the end of an op to the start of each, (n,), -1 where no way leads."""
    way = np.full(len(order), -1)
    for j in order:
        for e in graph.pred_edge[graph.pred_ptr[j] : graph.pred_ptr[j + 1]]:
            i = graph.producer[e]
            if i == source:
                way[j] = max(way[j], 0)
            elif way[i] >= 0:
                way[j] = min(NO_WAY, max(way[j], way[i] + least[i]))
    return way
