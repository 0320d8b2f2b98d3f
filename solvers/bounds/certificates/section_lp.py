"""Multipliers of a relaxation of the makespan: duals of an LP, made integers; and trees of cases.

The LP, over the ops, edges and windows of a section:

- x[i, k] and route[e, a, b] in [0, 1]: op i is on device k; edge e goes from a to b. The x of an op
  sum to 1, and so do the routes of an edge: those from a are x[i, a], those to b are x[j, b];
- start[i] and end, times: an op starts after its producers and their transfers, and all ends by
  `end`, which is minimized;
- for every window of ops between two others (or all ops) and every device or channel: its work,
  or what it carries, fits between the two (or before `end`).

The duals of precedence are flows along edges, those of windows are weights, and those of the links
between x and route are prices. The checker proves something from any such numbers, so that nothing
depends on how exact the solver is; the better the duals, the higher the bound. A tree branches the
LP over the devices of its ops (`grow_tree`).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any

import highspy
import numpy as np
from scipy.sparse import csc_array

from placegap.instances.certificates.certificate_checker import Able, Terms
from placegap.instances.certificates.certificate_file import Branch, Leaf, WorkWindow
from placegap.instances.kernels.array_types import Floats
from placegap.instances.referee.channels import NO_CHANNEL, channels_of
from placegap.solvers.core.back_ends.outcome import THREADS
from placegap.solvers.core.back_ends.silent_highs import silent_highs
from placegap.solvers.core.clock import Clock, stop_requested

BITS = 40  # multipliers are integers: a dual of 1 becomes 2**BITS
TIME = 1000.0  # all work of the LP, in its unit of time
MOST_ROUTES = 60_000  # columns of an LP for ways of its edges from device to device, at most
INTEGRAL = 1e-6  # shares so close to 0 or 1 are not branched over


def num_routes(problem: Terms, able: Able) -> int:
    """Ways of the edges between some ops from device to device, which an LP has as columns."""
    ways = 0
    for i in able:
        ends = (problem.edges[e][1] for e in problem.out[i])
        ways += len(able[i]) * sum(len(able[j]) for j in ends if j in able)
    return ways


class SectionLp:
    """The LP of some ops of a problem, solved again and again with other cases."""

    def __init__(
        self,
        problem: Terms,
        able: Able,
        first: int | None = None,
        windows: Sequence[tuple[int, ...] | None] = (None,),
        clock: Clock | None = None,
    ) -> None:
        # `able` are the devices of the ops. Time counts from the end of op `first`, or from the
        # start of the schedule. A window has the op before, those between (None: all of the
        # section) and the op after. `LimitReached` is raised if the clock is over before the LP is
        # built.
        self.clock = Clock(None) if clock is None else clock
        self.problem, self.able, self.first = problem, able, first
        self.windows, self.channels = list(windows), problem.rules["channels"]
        self.per_tensor = problem.rules["transfers"] == "per_tensor"
        edges = sorted(e for i in able for e in problem.out[i] if problem.edges[e][1] in able)
        self.edges = {e: problem.edges[e] for e in edges}
        self._entries: list[tuple[int, int, float]] = []
        self._low: list[float] = []
        self._high: list[float] = []
        self._columns = 0
        self._build()

    def time(self, i: int, k: int) -> int:
        """Time of an op on a device that it can be on; the first op of a section takes none."""
        return 0 if i == self.first else int(self.problem.time[i][k])

    def _row(self, low: float, high: float) -> int:
        self._low.append(low)
        self._high.append(high)
        return len(self._low) - 1

    def _column(self) -> int:
        self._columns += 1
        return self._columns - 1

    def _build(self) -> None:
        """All rows and columns; rows that become multipliers are remembered by what they are of."""
        problem, infinity = self.problem, highspy.kHighsInf
        longest = sum(max(self.time(i, k) for k in able) for i, able in self.able.items())
        self.unit = (longest or 1) / TIME
        entry = self._entries.append
        self.x = {i: {k: self._column() for k in sorted(able)} for i, able in self.able.items()}
        start, end = {i: self._column() for i in self.able}, self._column()
        for columns in self.x.values():
            row = self._row(1.0, 1.0)
            for column in columns.values():
                entry((row, column, 1.0))
        self._colocated()
        # A transfer takes time by both devices, which would be a product of two x. Routes make it
        # linear: row and column sums of an edge's routes are the x of its ends. The duals of these
        # sums are prices, by which ends and edges are then minimized apart.
        self.flow_rows, self.price_rows = dict[int, int](), dict[tuple[int, int, int], int]()
        route: dict[int, dict[tuple[int, int], int]] = {}
        for e, (i, j, u) in self.edges.items():
            self.clock.check()
            ways = {(a, b): self._column() for a, b in product(self.x[i], self.x[j])}
            route[e] = ways
            for side, op in ((0, i), (1, j)):
                for k, column in self.x[op].items():
                    row = self.price_rows[e, side, k] = self._row(0.0, 0.0)
                    entry((row, column, -1.0))
            # start[j] - start[i] - time of i - transfer >= 0; the duals are a flow along edges
            row = self._row(0.0, infinity)
            self.flow_rows[e] = row
            entry((row, start[j], 1.0))
            entry((row, start[i], -1.0))
            self._work(row, i)
            for (a, b), column in ways.items():
                entry((self.price_rows[e, 0, a], column, 1.0))
                entry((self.price_rows[e, 1, b], column, 1.0))
                if move := problem.moves[u][a][b]:
                    entry((row, column, -move / self.unit))
        self.end_rows = {i: self._row(0.0, infinity) for i in self.able}
        for i, row in self.end_rows.items():
            entry((row, end, 1.0))
            entry((row, start[i], -1.0))
            self._work(row, i)
        self.window_rows = [self._window(ops, start, end, route) for ops in self.windows]
        self.memory_rows: dict[int, int] = {}
        for k, room in enumerate(problem.room):
            held = [(problem.bytes[i], x[k]) for i, x in self.x.items() if k in x]
            if sum(size for size, _ in held) > room:
                # as shares of the room: bytes and times in one matrix would be far apart
                self.memory_rows[k] = self._row(-infinity, 1.0)
                for size, column in held:
                    entry((self.memory_rows[k], column, size / max(1, room)))
        lower, upper = np.zeros(self._columns), np.full(self._columns, infinity)
        for columns in self.x.values():
            upper[list(columns.values())] = 1.0
        self._pass(lower, upper, end)

    def _work(self, row: int, i: int) -> None:
        """Subtract the time of an op in a row."""
        for k, column in self.x[i].items():
            if time := self.time(i, k):
                self._entries.append((row, column, -time / self.unit))

    def _colocated(self) -> None:
        """Ops of a group have the x of its first op."""
        first: dict[int, int] = {}
        for i in self.able:
            leader = first.setdefault(self.problem.group[i], i)
            for k in self.x[i] if leader != i else ():
                row = self._row(0.0, 0.0)
                self._entries.append((row, self.x[i][k], 1.0))
                if k in self.x[leader]:
                    self._entries.append((row, self.x[leader][k], -1.0))

    def _window(
        self,
        ops: tuple[int, ...] | None,
        start: dict[int, int],
        end: int,
        route: dict[int, dict[tuple[int, int], int]],
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Rows of a window by device and by channel."""
        self.clock.check()
        num, inside = self.problem.num, frozenset(self.able if ops is None else ops)

        def row() -> int:
            made = self._row(0.0, highspy.kHighsInf)
            if ops is None:
                self._entries.append((made, end, 1.0))
            else:
                self._entries.append((made, start[ops[-1]], 1.0))
                self._entries.append((made, start[ops[0]], -1.0))
                self._work(made, ops[0])
            return made

        inner = sorted(inside) if ops is None else ops[1:-1]
        devices = {k: row() for k in range(num) if any(k in self.x[i] for i in inner)}
        for i in inner:
            for k, column in self.x[i].items():
                if time := self.time(i, k):
                    self._entries.append((devices[k], column, -time / self.unit))
        # Per tensor, one transfer serves all edges of a tensor into a device. Each edge then counts
        # a share: together they are no more than the transfers, on whichever devices the readers
        # are.
        alike: dict[object, list[int]] = defaultdict(list)
        leaving = (e for i in inside for e in self.problem.out[i])
        for e in sorted(e for e in leaving if self.problem.edges[e][1] in inside):
            alike[self.edges[e][2] if self.per_tensor else (e,)].append(e)
        channels: dict[int, int] = {}
        for edges in alike.values() if self.channels != "free" else ():
            for e in edges:
                moves = self.problem.moves[self.edges[e][2]]
                for (a, b), column in route[e].items():
                    for c in channels_of(self.channels, num, a, b) if moves[a][b] else ():
                        if c != NO_CHANNEL:
                            channels[c] = channels[c] if c in channels else row()
                            share = moves[a][b] / len(edges) / self.unit
                            self._entries.append((channels[c], column, -share))
        return devices, channels

    def _pass(self, lower: Floats, upper: Floats, end: int) -> None:
        """Hand the LP to HiGHS, once: later cases only change bounds of columns."""
        rows, columns, values = (np.array(part) for part in zip(*self._entries, strict=True))
        shape = len(self._low), self._columns
        matrix = csc_array((values, (rows, columns)), shape=shape)
        lp = highspy.HighsLp()
        lp.num_row_, lp.num_col_ = shape
        lp.col_cost_ = np.zeros(self._columns)
        lp.col_lower_, lp.col_upper_ = lower, upper
        lp.row_lower_, lp.row_upper_ = np.array(self._low), np.array(self._high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = matrix.indptr, matrix.indices
        lp.a_matrix_.value_ = matrix.data
        self.solver = silent_highs(threads=THREADS, random_seed=0)
        self.solver.passModel(lp)
        self.solver.changeColCost(end, 1.0)

    def solve(
        self, able: Able, time_limit_s: float = float("inf")
    ) -> tuple[Leaf, dict[int, dict[int, float]]] | None:
        """The multipliers for some cases, and the x of the LP; None where it found none."""
        # Of an infeasible LP the multipliers are a ray, which proves that, and there is no x.
        # HiGHS counts the time of all its runs; the basis of the last case is a good start for this
        # one
        solver = self.solver
        solver.setOptionValue("time_limit", max(0.01, time_limit_s) + solver.getRunTime())
        for i, columns in self.x.items():
            for k, column in columns.items():
                solver.changeColBounds(column, 0.0, 1.0 if k in able[i] else 0.0)
        solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kOptimal:
            solution = solver.getSolution()
            values, dual = solution.col_value, np.array(solution.row_dual, float)
            shares = {i: {k: values[at] for k, at in row.items()} for i, row in self.x.items()}
            return self._leaf(dual), shares
        if status == highspy.HighsModelStatus.kInfeasible:
            _, found, ray = solver.getDualRay()
            if found:
                # its sign is not certain: one of the two proves it, and the other nothing
                dual = np.array(ray, float)
                both = [self._leaf(side * dual / (abs(dual).max() or 1.0)) for side in (1, -1)]
                return max(both, key=lambda leaf: self.proven(leaf, able)), {}
        return None

    def proven(self, leaf: Leaf, able: Able) -> Any:
        """The bound of a leaf on some cases by the checker, in ns; infinite: no plan."""
        content = leaf.model_dump(mode="json", exclude_none=True)
        return self.problem.leaf(content, able, -1 if self.first is None else self.first)

    def _leaf(self, dual: Floats) -> Leaf:
        """The duals as integers."""
        # Rounded to integers, and cut at 0, they are no longer exactly dual feasible: the checker
        # repairs that, and proves a little less than the LP.
        whole = 2.0**BITS

        def weight(row: int) -> int:
            return max(0, round(float(dual[row]) * whole))

        # Flow that arrives at an op and does not go on counts as going to the end. So a weight of
        # its own is only for an op without flow.
        flows = [(e, weight(row)) for e, row in self.flow_rows.items()]
        tied = {i for e, f in flows if f for i in self.edges[e][:2]}
        alone = [(i, weight(row)) for i, row in self.end_rows.items() if i not in tied]
        windows = []
        for ops, (devices, channels) in zip(self.windows, self.window_rows, strict=True):
            work = [weight(devices[k]) if k in devices else 0 for k in range(self.problem.num)]
            busy = [(c, weight(row)) for c, row in sorted(channels.items()) if weight(row)]
            if busy or any(work):
                windows.append(WorkWindow(ops=ops, devices=tuple(work), channels=tuple(busy)))
        # prices are in ns, flows and weights are shares of the end
        prices = [
            (e, side, k, -round(float(dual[row]) * whole * self.unit))
            for (e, side, k), row in self.price_rows.items()
            if round(float(dual[row]) * whole * self.unit)
        ]
        memory = [0] * self.problem.num
        for k, row in self.memory_rows.items():
            room = max(1, int(self.problem.room[k]))
            memory[k] = max(0, round(float(-dual[row]) * whole * self.unit / room))
        return Leaf(
            flows=tuple((e, f) for e, f in flows if f),
            alone=tuple((i, f) for i, f in alone if f),
            windows=tuple(windows),
            prices=tuple(prices),
            memory=tuple(memory) if any(memory) else None,
        )


@dataclass
class _Node:
    able: Able
    leaf: Leaf
    bound: Any  # an integer, or infinite
    shares: dict[int, dict[int, float]]
    branch: tuple[int, tuple[frozenset[int], ...]] | None = None
    children: list[_Node] = field(default_factory=list)


def grow_tree(
    lp: SectionLp,
    able: Able,
    *,
    most_leaves: int = 1,
    target_ns: float = math.inf,
    clock: Clock | None = None,
) -> tuple[Branch | Leaf, Any]:
    """Branch over devices, the lowest leaf first; the tree and the bound that it proves, in ns."""
    # `able` are the devices of each op at the root. The tree so far is returned when it proves
    # `target_ns` or the clock is over.
    root = _solved(lp, able, None, clock)
    number, heap = count(), list[tuple[Any, int, _Node]]()
    heap.append((root.bound, next(number), root))
    leaves = 1
    least: Any = math.inf
    while heap and leaves < most_leaves:
        # the leaf with the least bound is what the tree proves, and only its split can raise that
        bound, _, node = heap[0]
        if (
            bound >= min(target_ns, least)
            or stop_requested()
            or (clock is not None and clock.left_s == 0)
        ):
            break
        heapq.heappop(heap)
        chosen = _choose(lp, node)
        if chosen is None:  # nothing to branch over: this leaf is what the tree proves
            least = min(least, bound)
            continue
        i, k = chosen
        # on k, or on any other device: two cases whatever the number of devices
        node.branch = i, (frozenset({k}), node.able[i] - {k})
        for case in node.branch[1]:
            child = _solved(lp, node.able | {i: case}, node, clock)
            node.children.append(child)
            heapq.heappush(heap, (child.bound, next(number), child))
        leaves += 1
    return _written(root), min(least, min((bound for bound, _, _ in heap), default=math.inf))


def _solved(lp: SectionLp, able: Able, parent: _Node | None, clock: Clock | None) -> _Node:
    """The leaf of some cases: new multipliers, or those of the parent where they prove more."""
    left_s = math.inf if clock is None or clock.left_s is None else clock.left_s
    found = lp.solve(able, left_s)
    leaf, shares = found if found is not None else (Leaf(), {})
    bound = lp.proven(leaf, able)
    if parent is not None and bound < (old := lp.proven(parent.leaf, able)):
        leaf, bound = parent.leaf, old
    return _Node(able, leaf, bound, shares)


def _choose(lp: SectionLp, node: _Node) -> tuple[int, int] | None:
    """The op whose split over devices hides the most work, and the device that has most of it."""
    best, chosen = 0.0, None
    for i, shares in node.shares.items():
        k = max(sorted(node.able[i]), key=shares.__getitem__)
        worth = (1 - shares[k]) * (1 + lp.time(i, k))
        if len(node.able[i]) > 1 and shares[k] < 1 - INTEGRAL and worth > best:
            best, chosen = worth, (i, k)
    return chosen


def _written(node: _Node) -> Branch | Leaf:
    """The tree as a certificate has it."""
    if node.branch is None:
        return node.leaf
    op, cases = node.branch
    return Branch(
        op=op,
        cases=tuple(tuple(sorted(case)) for case in cases),
        nodes=tuple(_written(child) for child in node.children),
    )
