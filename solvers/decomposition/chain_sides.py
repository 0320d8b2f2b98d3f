"""A chain with the work beside it (`bounds.side_cuts`): a bound for the search, and plans.

The method chain-sides turns the sides of the bound into plans: a chain on one device or elsewhere,
by least cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from pydantic import Field

from placegap.formulations.shared.devices import identical_devices
from placegap.formulations.shared.times import serial_horizon_ns
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.integers import NO_WAY, UNSUPPORTED
from placegap.instances.problem.sections import Interval, choose_chain, intervals, memory_is_slack
from placegap.solvers.bounds.side_cuts import FREE, HERE, MOST_NODES, Branches, SideArcs, TwoSides
from placegap.solvers.bounds.work_windows import chain_arcs, work_windows
from placegap.solvers.core.clock import stop_asked
from placegap.solvers.core.method import EFFORT, Method, Params, Start, Task
from placegap.solvers.core.progress import Incumbent
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start
from placegap.solvers.decomposition.arcs import (
    ArcTable,
    Chain,
    Lengths,
    Use,
    interval_chain,
    lower_table,
)
from placegap.solvers.local_search.disjunctive_search import improve_start

NAME = "chain-sides"

MOST_OPS = 20_000
"""Larger graphs are not searched for intervals."""

CUTS_SHARE, CUT_NODES = 0.3, 400
"""Of the time, for cuts; and of their search."""

MOST_SIDES, MOST_OTHERS = 30, 3
"""Sides that are judged, the last that cuts have found; and devices that stand for elsewhere."""

HOPELESS = 1.1
"""Nothing is improved that takes so many times as long as the best plan known."""

MOVES_PER_OP = 100
"""Moves where there is neither a time limit nor a number of steps."""


class ChainSidesParams(Params):
    """Parameters of ``chain-sides``."""

    #: Moves of the walk that improves the best sides. By default they go on for the whole time
    #: limit; without one there are 100 for each op.
    steps: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    #: Walks side by side, in threads.
    workers: int = Field(default=1, ge=1, le=1024)


def run(task: Task[Makespan], params: ChainSidesParams) -> Outcome:
    """Turn the sides of a bound into plans, and improve the best of them.

    The bound (docs/decomposition.md) weighs a path along a chain of intervals against the work of
    one device and the load of its port, and finds which ops had best leave that device together. No
    move of one op finds that: work beside a chain gains where an op of the chain goes with it.
    Here, what is elsewhere is on one other device, one after the other of the fastest, and a local
    search in the disjunctive graph goes on from the best plan. A heuristic, for slack memory, up to
    20,000 ops, and channels on which transfers wait. Cuts take O(cuts (n + m)^2 m) at worst, and
    near to O(n + m) each in practice.
    """
    instance, semantics, clock = task.instance, task.semantics, task.limits.clock()
    if semantics.channels == "free":
        return Outcome(message="channels are free: no port keeps work on a device")
    if instance.num_devices == 1 or instance.num_ops > MOST_OPS:
        return Outcome(message=f"not for one device, nor for more than {MOST_OPS} ops")
    if not memory_is_slack(instance):
        return Outcome(message="memory is tight")
    candidates = intervals(instance)
    sections = choose_chain(instance, candidates)
    if not sections:
        return Outcome(message="no chain of intervals")
    known = best_start(task, ("single-device", "heft"))
    limit_ns = serial_horizon_ns(instance) if known is None else known.value_ns
    part = clock.part(CUTS_SHARE)

    chain = interval_chain(ArcTable(instance, semantics), sections, limit_ns)
    raise_by_work(instance, chain, candidates)
    beside = SideWork(instance, semantics, chain, limit_ns, part.is_over, CUT_NODES)
    beside.shortest(lower_table)
    best = _best_sides(task, beside)
    if best is None:
        return Outcome(message="the sides of no cut are a plan")
    if known is not None and best.value_ns > HOPELESS * known.value_ns:
        return Outcome(best.plan)
    plan, _, message = improve_start(
        task,
        [best],
        NAME,
        clock,
        steps=params.steps,
        usual=MOVES_PER_OP * instance.num_ops,
        workers=params.workers,
    )
    return Outcome(plan, message=message, details={"sides": len(beside.branches.kept)})


def _best_sides(task: Task[Makespan], beside: SideWork) -> Start | None:
    """The best plan of the last sides that cuts have found."""
    best = Incumbent()
    for devices in _placements(task, beside):
        if stop_asked():
            break
        best.offer_plan(task, Plan.on(devices.tolist()))
    return best.found


def _placements(task: Task[Makespan], beside: SideWork) -> Iterator[Ints]:
    """Sides as placements: what is elsewhere is on one device, where that can run it."""
    arrays, device = task.instance.arrays, beside.device
    able = arrays.time_ns != UNSUPPORTED
    others = sorted(beside.others, key=lambda k: int(np.where(able, arrays.time_ns, 0)[:, k].sum()))
    seen = set()
    for here in beside.branches.kept[::-1][:MOST_SIDES]:
        for other in others[:MOST_OTHERS]:
            devices = np.where(here[arrays.group], device, other)
            unable = ~able[np.arange(len(devices)), devices]
            devices[unable] = able[unable].argmax(axis=1)
            if devices.tobytes() not in seen:
                seen.add(devices.tobytes())
                yield devices


class SideWork:
    """A chain whose paths cost what one device cannot give away.

    Parameters
    ----------
    instance : Instance
        With two devices or more.
    chain : Chain
        Of intervals; it begins and ends with an op.
    limit_ns : int
        Longer paths are of no interest.
    is_over : callable
        Whether time is over.
    most_nodes : int
        Of a search over sides.
    """

    def __init__(
        self,
        instance: Instance,
        semantics: Makespan,
        chain: Chain,
        limit_ns: int,
        is_over: Callable[[], bool],
        most_nodes: int = MOST_NODES,
    ) -> None:
        self.chain, self.limit_ns = chain, limit_ns
        self.is_over, self.most_nodes = is_over, most_nodes
        entries = [section.entry for section in chain.sections]
        ops = [op for op in (*entries, chain.sections[-1].exit) if op is not None]
        self.device = _fastest(instance)
        num = instance.num_devices
        self.others = [k for k in range(num) if k != self.device]
        sides = TwoSides(instance, semantics, self.device, ops)
        begin = sides.fixed.copy()
        alike = max(map(len, identical_devices(instance)), default=1) == instance.num_devices
        if alike and begin[sides.chain[0]] == FREE:
            begin[sides.chain[0]] = HERE  # the device is called by where the chain begins
        self.branches = Branches(sides, begin)

    def shortest(self, lengths: Lengths) -> tuple[int, list[Use]]:
        """What no plan is below, by the lengths of the arcs, and the arcs that it is made of."""
        tables = [np.minimum(lengths(uses), self.limit_ns + 1) for uses in self.chain.uses]
        ends = (self.chain.before_ns, self.chain.after_ns)
        head, tail = (np.minimum(end, self.limit_ns + 1) for end in ends)
        arcs = SideArcs(self._sides(head), self._sides(tail), self._pairs(tables))
        found = self.branches.search(arcs, self.limit_ns, self.is_over, self.most_nodes)
        return min(found.bound_ns, NO_WAY), self._path(tables, head, tail, found.here)

    def _sides(self, time_ns: Ints) -> Ints:
        return np.array([time_ns[self.others].min(), time_ns[self.device]], np.int64)

    def _pairs(self, tables: Sequence[Ints]) -> Ints:
        sets = (self.others, [self.device])
        return np.array(
            [[[table[np.ix_(a, b)].min() for b in sets] for a in sets] for table in tables],
            np.int64,
        )

    def _path(self, tables: Sequence[Ints], head: Ints, tail: Ints, here: Flags) -> list[Use]:
        """The shortest path whose devices are on these sides."""
        allowed = [[self.device] if side else self.others for side in here]
        rest, ways = tail, list[Ints]()
        for table, after in zip(tables[::-1], allowed[:0:-1], strict=True):
            choice = table[:, after] + rest[after]
            ways.append(np.array(after)[choice.argmin(axis=1)])
            rest = choice.min(axis=1)
        at = min(allowed[0], key=lambda k: int(head[k] + rest[k]))
        path = []
        for uses, way in zip(self.chain.uses, ways[::-1], strict=True):
            path.append(uses[at][way[at]])
            at = int(way[at])
        return path


def _fastest(instance: Instance) -> int:
    """The device on which all ops together take least."""
    time = instance.arrays.time_ns
    unable = (time == UNSUPPORTED).sum(axis=0)
    total = np.where(time == UNSUPPORTED, 0, time).sum(axis=0)
    return int(np.lexsort((total, unable))[0])


def raise_by_work(instance: Instance, chain: Chain, candidates: Sequence[Interval]) -> None:
    """Raise the arcs of a chain to what paths and work prove of its intervals (`interval_arcs`)."""
    windows = work_windows(instance, candidates=candidates)
    if windows is None:
        return
    _, _, tables = chain_arcs(instance, chain.sections, windows)
    for uses, table in zip(chain.uses, tables.tolist(), strict=False):  # there may be fewer arcs
        for row, least in zip(uses, table, strict=True):
            for use, least_ns in zip(row, least, strict=True):
                use.arc.lower_ns = max(use.arc.lower_ns, least_ns)


register(
    Method(
        name=NAME,
        claim="heuristic",
        objectives=("makespan",),
        paper="placegap",
        summary="which ops leave the device of a chain together, by least cuts; then local search",
        run=run,
        params=ChainSidesParams,
        packages=("ortools", "numba"),
    )
)
