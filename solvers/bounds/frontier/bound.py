"""Memory along the order of the colocation groups: the frontier is known, and the rest forgotten.

Groups are placed one after the other (`structure.group_order`). At every step the *frontier* are
the groups that later ones exchange tensors with. Labels (`labels`) know the devices of the
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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.sections import memory_is_slack
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.bounds.frontier.few_labels import few_labels
from placegap.solvers.bounds.frontier.labels import (
    FrontierLabels,
    OpenPlaces,
    PlacedGraph,
    extended,
)
from placegap.solvers.bounds.frontier.steps import MOST_CELLS, PlacingSteps, steps_of
from placegap.solvers.core.interrupts import never

FEW_ROWS, MOST_ROWS, MORE_ROWS = 256, 2_048, 8_192
"""Labels of a step: where there are more, each signature keeps fewer. The first are enough for most
aims, and the last are for where something is proven."""

HOPELESS = 0.85
"""Of what is known: a path below that is left by joining few labels, and by joining more."""

MOST_OPS = 5_000
"""Larger graphs are not tried."""

STRIDE, LEAST_STRIDE = 0.06, 0.004
"""By what shares aims rise; halved where a path below the aim is found."""


class StepTrace(NamedTuple):
    """How the labels of a step came about: `labels.FrontierLabels.source`, `on` and `device`."""

    source: Ints
    on: Ints
    device: Ints


class LeastPath(NamedTuple):
    """The least path below an aim.

    `ns` is None if there is none. With `joined`, it may be less than the least. `traces` are those
    of all steps.
    """

    ns: int | None
    joined: bool
    traces: list[StepTrace]


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
        Whose resident bytes add up (`structure.additive_memory`).
    semantics : Makespan
    known_ns : int
        What is proven already; the result is no less.
    stop : callable
        Asked at each step whether to end with what is proven so far.
    rows : int
        Labels of a step, at most.

    Notes
    -----
    O(P L K (w + L)) for each aim, with P groups, at most `rows` labels L and w numbers in each.

    Examples
    --------
    Each of two devices holds one of two ops, and the tensor between them takes 5 ns:

    >>> from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Op
    >>> ops = tuple(Op(name=x, time_ns={"gpu": 1}, resident_bytes=1) for x in "ab")
    >>> devices = tuple(Device(name=x, kind="gpu", memory_bytes=1) for x in ("g0", "g1"))
    >>> links = tuple(Link(source=x, target=y, bandwidth_bytes_per_s=10**9)
    ...               for x, y in (("g0", "g1"), ("g1", "g0")))
    >>> graph = Graph(name="two", ops=ops, edges=(Edge(producer="a", consumer="b", bytes=5),))
    >>> cluster = Cluster(name="two", devices=devices, links=links)
    >>> frontier_bound(Instance(name="two", graph=graph, cluster=cluster), Makespan(), 2)
    7
    """
    if instance.num_ops > MOST_OPS or memory_is_slack(instance):
        return known_ns
    best, stride, steps = known_ns, STRIDE, steps_of(instance, semantics)
    now = FEW_ROWS if rows <= MOST_ROWS else rows
    most_ns = longest_ns(instance)
    while stride >= LEAST_STRIDE:
        aim = int(best * (1 + stride)) + 1
        if aim > most_ns:  # no plan at all, or nothing left to prove: nothing that this bound says
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


def longest_ns(instance: Instance) -> int:
    """What everything takes one after the other, each at its longest, if not more."""
    arrays = instance.arrays
    work = arrays.time_ns.max(axis=1).astype(object).sum()
    moves = arrays.transfer_ns.max(axis=1)[arrays.index.tensor].astype(object).sum()
    return int(work) + int(moves) + 1


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
    old, joined, traces = OpenPlaces(none, none, none, np.zeros((0, 3), np.int64)), False, []
    known = FrontierLabels(
        np.zeros((1, 0), np.int64),
        np.zeros((1, 0), np.int64),
        np.zeros((1, k), np.int64),
        np.zeros((1, len(steps.graph.pool_room_bytes)), np.int64),
        np.zeros((1, 6 * k), np.int64),
        np.zeros((1, 2), np.int64),
        np.zeros(1, np.int64),
        none,
        none,
    )
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
        if len(known.done_ns) > 2 * fitting + 1:  # of one label per signature
            return None
        joined = joined or bool(lost)
        if trace:
            traces.append(StepTrace(known.source, known.on, known.device))
    return LeastPath(int(known.done_ns.min()), joined, traces)


def devices_of(
    graph: PlacedGraph, frontiers: Sequence[OpenPlaces], traces: Sequence[StepTrace]
) -> Ints:
    """Devices of the places, (P,), by the first label of the last step.

    A label knows the devices of its frontier by names of its own; any other one is a device of its
    class that has most room left. It may be too full.
    """
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
    return at


def plan_on(graph: PlacedGraph, at: Ints) -> Plan:
    """The plan that has each op on the device of its group's place."""
    return Plan.on(at[graph.place].tolist())
