"""memory-knapsack: time as a knapsack of bytes, where nearly all ops wait for each other.

Where a model does not fit the fast devices, what goes to the slow ones is a knapsack: each group of
colocated ops is on one device, groups fill up the devices' memory, and along a path the times of
its ops add up. This is one mixed-integer model of the whole graph:

- N[G, k] groups of class G on device k, all of them somewhere, their bytes within the memory; at
  the peak with a copy of each state that groups there share, and with the most that is live at one;
- starts s[v]: an edge (u, v) leaves s[v] >= s[u] + time of u + transfer. The transfers between two
  groups are a flow z from where the first one is to where the second one is;
- between the two ops of an interval (`problem.sections`), each device has the work of the ops that
  it runs there, and colocated ops run one after another;
- T >= the end of each op, and all work of each device.

Where each edge is a transfer, those of one op to, or from, ops of an interval go one after another.
Every schedule satisfies these rows, so that the least T is a bound: it is one for the LP, whose
duals are checked (`back_ends.standard_form`), and for the MIP on HiGHS, not checked. Along a chain
that no two devices share the MIP is exact. Waiting for channels and devices in other places is what
it leaves out.

**Classes.** Ops that colour refinement of the graph cannot distinguish (such as equal experts) are
one class, with one start. As each op of a class has as many edges to each other class, the average
of a solution over the classes satisfies their rows; no bound of the LP is lost (Grohe, Kersting,
Mladenov, Selman, "Dimension reduction via colour refinement", ESA 2014).

Where groups run one after another, `layer_chain` finds the least sum in integers, at the peak of
memory under that rule, and no model is solved. Else the plan is the better one of the LP's
solution, rounded, and of the MIP's, unless that is too large to have a plan in time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, product
from typing import NamedTuple

import numpy as np
from scipy import sparse

from placegap.formulations.shared.devices import colocated_times
from placegap.formulations.shared.times import time_unit_ns
from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.additive_memory import ceiling_bytes, group_live_bytes
from placegap.instances.problem.graph_index import numbered, sum_by
from placegap.instances.problem.integers import NO_LIMIT
from placegap.instances.problem.sections import Interval, intervals
from placegap.instances.referee.evaluate import feasible_value
from placegap.solvers.bounds.labels.layer_chain import CHAIN, Stops, least_chain, stops_of
from placegap.solvers.core.back_ends import word
from placegap.solvers.core.back_ends.highs import solve_form, solve_integers
from placegap.solvers.core.back_ends.outcome import bound_ns, say_ending
from placegap.solvers.core.back_ends.standard_form import StandardForm
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.progress import Known
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome, no_plan
from placegap.solvers.local_search.quick_schedule import inserted

KNAPSACK = "memory knapsack"  # origin of its bounds
MOST_COLUMNS = 60_000  # larger models are not built
MOST_WAYS = 60  # ways to share out the ops between two others that have columns of their own
MOST_SHARED = 20_000  # columns of such ways by the devices of their ends, of all intervals

# With at most so many columns HiGHS finds plans in seconds; beyond, the MIP has no columns for
# ends, which raise the bound of the LP by 2 % for 80 layers on three devices. The LP has at most
# this share of the time.
MOST_MIP, LP_SHARE = 10_000, 0.75
MOST_INNER = 1_000  # ops of an interval, at most
LEVELS = (0.5, 0.75, 1.0)  # shares of the most live bytes from which groups count
MOST_LIVE = 500  # groups with live bytes that count, about a millisecond each
MOST_MEMBERS = 200_000  # ops of all intervals that have rows


class OpClasses(NamedTuple):
    """Ops and colocation groups in classes, numbered by their first members."""

    #: of_op, of_group: (n,)
    of_op: Ints
    of_group: Ints
    #: op, group: (C,): A member of each.
    op: Ints
    group: Ints
    #: op_count, group_count: (C,): Members of each.
    op_count: Ints
    group_count: Ints


def classes_of(instance: Instance, trait: Sequence[Hashable], move: Ints) -> OpClasses:
    """The coarsest classes of ops that colour refinement ends with."""
    # Ops with different `trait`, or edges with different `move`, are different from the start. Each
    # round is O(n + m).
    # Plain refinement takes as many rounds as the graph is deep. Two passes number each op by all
    # that leads to it, and by all that it leads to, which is nearly the end of it; the rounds only
    # add what groups and mixed paths distinguish.
    index, group = instance.arrays.index, instance.arrays.group.tolist()
    into: list[list[tuple[int, int]]] = [[] for _ in group]
    out: list[list[tuple[int, int]]] = [[] for _ in group]
    for u, v, m in zip(
        index.producer.tolist(), index.consumer.tolist(), move.tolist(), strict=True
    ):
        into[v].append((u, m))
        out[u].append((v, m))
    order = index.topological_order.tolist()
    alone = numbered(trait)
    ahead = _along(order, into, alone)
    colour = numbered(list(zip(ahead, _along(order[::-1], out, alone), strict=True)))
    count = len(set(colour))
    while True:
        held: list[list[int]] = [[] for _ in range(instance.arrays.num_groups)]
        for v, g in enumerate(group):
            held[g].append(colour[v])
        of_group = numbered([tuple(sorted(each)) for each in held])
        colour = numbered(
            [
                (
                    colour[v],
                    of_group[group[v]],
                    tuple(sorted((colour[u], m, group[u] == group[v]) for u, m in into[v])),
                    tuple(sorted((colour[w], m, group[w] == group[v]) for w, m in out[v])),
                )
                for v in range(len(group))
            ]
        )
        # a round only divides classes: with as many as before they are stable
        before, count = count, len(set(colour))
        if count == before:
            break
    of_op, groups = np.array(colour, np.int64), np.array(of_group, np.int64)
    _, op, op_count = np.unique(of_op, return_index=True, return_counts=True)
    _, first, group_count = np.unique(groups, return_index=True, return_counts=True)
    return OpClasses(of_op, groups, op, first, op_count, group_count)


def _along(order: list[int], into: list[list[tuple[int, int]]], alone: list[int]) -> list[int]:
    """A number for each op, the same for ops with equal ancestors and edges between them."""
    number: dict[Hashable, int] = {}
    found = [0] * len(order)
    for v in order:
        key = alone[v], tuple(sorted((found[u], m) for u, m in into[v]))
        found[v] = number.setdefault(key, len(number))
    return found


class Knapsack(NamedTuple):
    """The model of an instance."""

    form: StandardForm  # counts are its integer columns
    unit_ns: float
    classes: OpClasses
    column: Ints  # (G, K): Of the number of groups of a class on a device; -1 where they cannot be


class _Rows:
    """Rows and columns as they are collected."""

    def __init__(self) -> None:
        self.upper: list[float] = []
        self.lower_row: list[float] = []
        self.upper_row: list[float] = []
        self.row: list[int] = []
        self.col: list[int] = []
        self.value: list[float] = []

    def add_column(self, upper: float) -> int:
        self.upper.append(upper)
        return len(self.upper) - 1

    def add(self, terms: dict[int, float], lower: float, upper: float) -> None:
        number = len(self.lower_row)
        self.lower_row.append(lower)
        self.upper_row.append(upper)
        self.row += [number] * len(terms)
        self.col += terms.keys()
        self.value += terms.values()

    def form(self, cost: int, num_integers: int) -> StandardForm:
        num = len(self.upper)
        matrix = sparse.csc_array(
            (self.value, (self.row, self.col)), shape=(len(self.lower_row), num)
        )
        objective = np.zeros(num)
        objective[cost] = 1.0
        return StandardForm(
            variables=(),
            constraints=(),
            matrix=matrix,
            cost=objective,
            offset=0.0,
            lower=np.zeros(num),
            upper=np.array(self.upper, float),
            is_integer=np.arange(num) < num_integers,
            row_lower=np.array(self.lower_row, float),
            row_upper=np.array(self.upper_row, float),
        )


class _Crossing(NamedTuple):
    """Transfers within an interval."""

    #: move, ways: (K, K) float: The least time of an edge, and of a path of such edges, from one
    #: device to another.
    move: Floats
    ways: Floats
    #: into, out: Classes of ops that the entry feeds, and that feed the exit.
    into: set[int]
    out: set[int]


def _sends_each(semantics: Makespan | None) -> str:
    """Whether each edge is a transfer, which waits for others of its port or link."""
    if semantics is None or semantics.transfers != "per_edge" or semantics.channels == "free":
        return ""
    return "link" if semantics.channels == "link" else "port"


def knapsack(
    instance: Instance,
    semantics: Makespan | None = None,
    most_shared: int = MOST_SHARED,
    at_peak: Instance | None = None,
) -> Knapsack | None:
    """The model of an instance whose resident bytes add up; None if it is too large."""
    # Every op can be on some device. Without semantics it holds for all rules of transfers and
    # channels. `instance` may be the floor of `at_peak`.
    arrays = instance.arrays
    moves, move = np.unique(arrays.transfer_ns, axis=0, return_inverse=True)
    move = move.ravel()[arrays.index.tensor]
    _, bytes_class = np.unique(arrays.resident_bytes, return_inverse=True)
    _, time_class = np.unique(arrays.time_ns, axis=0, return_inverse=True)
    trait = list(zip(bytes_class.ravel().tolist(), time_class.ravel().tolist(), strict=True))
    classes = classes_of(instance, trait, move)
    num_devices = instance.num_devices
    if len(classes.op) * num_devices * num_devices > MOST_COLUMNS:
        return None
    sums = _sums(instance, at_peak, classes)
    return _Builder(instance, classes, moves, move, semantics, most_shared, sums).knapsack()


class _Sum(NamedTuple):
    """Bytes that no device may have more of than it has room for."""

    size: Ints  # (G,): Of each group of a class
    once: list[tuple[int, list[int]]]  # what counts once if a device has any group of some classes


def _sums(instance: Instance, at_peak: Instance | None, classes: OpClasses) -> list[_Sum]:
    """The bytes of all ops; at the peak with copies of tied states, also beside the most live."""
    size = instance.arrays.group_bytes[classes.group]
    if at_peak is None:
        return [_Sum(size, [])]
    sizes, tied = at_peak.memory_arrays, list[tuple[int, list[int]]]()
    group, num_groups = at_peak.arrays.group, at_peak.arrays.num_groups
    # by classes of a single group: of the members of others a solution says no devices
    holds = classes.of_group[group[sizes.shared_op]]
    for name, each in enumerate(sizes.shared_bytes.tolist()):
        holders = [*dict.fromkeys(holds[sizes.shared_name == name].tolist())]
        alone = [g for g in holders if classes.group_count[g] == 1]
        if len(alone) > 1 and alone[0] == holders[0]:
            tied.append((each, alone))
            size[holders[0]] -= each  # the floor counts it there
    # Beside their state and copies, devices hold the most that is live at a start in any of their
    # groups: in steps, each of which those with as much or more share.
    held = sum_by(group, sizes.state_bytes, num_groups)
    likely = sum_by(group, ceiling_bytes(at_peak), num_groups) - held
    near, known = np.argsort(-likely, kind="stable")[:MOST_LIVE], np.zeros(num_groups, np.int64)
    known[near] = group_live_bytes(at_peak, near)
    state, live = np.full((2, len(size)), NO_LIMIT)  # the least of any group of a class
    np.minimum.at(state, classes.of_group, held)
    np.minimum.at(live, classes.of_group, known)
    steps = np.unique([live[live >= part * live.max()].min() for part in LEVELS])
    levels = [
        (int(step), np.flatnonzero(live >= level).tolist())
        for level, step in zip(steps, np.diff(steps, prepend=0), strict=True)
        if step
    ]
    return [_Sum(size, tied), _Sum(state, tied + levels)]


class _Builder:
    """Adds the rows of an instance, in model units."""

    def __init__(
        self,
        instance: Instance,
        classes: OpClasses,
        moves: Ints,
        move: Ints,
        semantics: Makespan | None,
        most_shared: int,
        sums: list[_Sum],
    ) -> None:
        self.instance, self.classes, self.sums = instance, classes, sums
        self.unit_ns = time_unit_ns(instance.arrays.serial_horizon_ns, 1)
        self.moves, self.move = moves / self.unit_ns, move
        self.rows = _Rows()
        arrays = instance.arrays
        possible = colocated_times(instance)[0][classes.group]
        # counts come first: the MIP's integers are a prefix of the columns
        self.group_of = classes.of_group[arrays.group[classes.op]]  # of op classes
        self.time = np.where(possible[self.group_of], arrays.time_ns[classes.op], 0) / self.unit_ns
        self.column = np.full(possible.shape, -1)
        for g, k in zip(*np.nonzero(possible), strict=True):
            self.column[g, k] = self.rows.add_column(float(classes.group_count[g]))
        self.num_integers = len(self.rows.upper)
        self.horizon = instance.arrays.serial_horizon_ns / self.unit_ns
        self.start = [self.rows.add_column(self.horizon) for _ in classes.op]
        self.end = self.rows.add_column(self.horizon)
        self.flows: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self.ways_left = most_shared
        self.sends_each = _sends_each(semantics)

    def knapsack(self) -> Knapsack:
        """All rows."""
        # Small intervals first: ways to share out ops get columns once per op, and those of a small
        # interval are few.
        self._assign_once()
        for each in self.sums:
            self._memory_capacity(each)
        self._paths()
        self._work()
        covered = set[int]()
        for part in self._parts():
            if covered.isdisjoint(part.inner):
                self._numbers_between(part)
                covered.update(part.inner)
            self._work_between(part)
            self._colocated_between(part)
        form = self.rows.form(self.end, self.num_integers)
        return Knapsack(form, self.unit_ns, self.classes, self.column)

    def _share(self, terms: dict[int, float], group: int, factor: Floats) -> None:
        """Add factor[k] times the share of a class of groups that is on k."""
        count = float(self.classes.group_count[group])
        for at, each in zip(self.column[group].tolist(), factor.tolist(), strict=True):
            if at >= 0 and each:
                terms[at] = terms.get(at, 0.0) + each / count

    def _assign_once(self) -> None:
        for columns, count in zip(self.column, self.classes.group_count.tolist(), strict=True):
            self.rows.add({at: 1.0 for at in columns.tolist() if at >= 0}, count, count)

    def _memory_capacity(self, part: _Sum) -> None:
        count = self.classes.group_count
        for k, room in enumerate(self.instance.arrays.memory_bytes.tolist()):
            # a row that can bind, in about thousandths of the room: a power of two keeps it exact
            columns = self.column[:, k]
            most = int((part.size * count * (columns >= 0)).sum()) + sum(b for b, _ in part.once)
            if room >= NO_LIMIT or most <= room:
                continue
            unit = 2.0 ** max(0, room.bit_length() - 10)
            able = np.flatnonzero((columns >= 0) & (part.size > 0))
            taken = {int(columns[G]): part.size[G] / unit for G in able}
            for each, groups in part.once:
                copy = self.rows.add_column(1.0)
                taken[copy] = each / unit
                for at, number in zip(
                    columns[groups].tolist(), count[groups].tolist(), strict=True
                ):
                    if at >= 0:
                        self.rows.add({copy: 1.0, at: -1.0 / number}, 0.0, np.inf)
            self.rows.add(taken, -np.inf, room / unit)

    def _paths(self) -> None:
        """Starts after producers and their transfers; T after the last ops."""
        # one row for all edges between two classes that take equally long: averages over a class
        # satisfy it if all its edges do
        index, of = self.instance.arrays.index, self.classes.of_op
        group = self.instance.arrays.group
        seen = set[tuple[int, int, int, bool]]()
        for u, v, m in zip(
            index.producer.tolist(), index.consumer.tolist(), self.move.tolist(), strict=True
        ):
            key = int(of[u]), int(of[v]), m, bool(group[u] == group[v])
            if key in seen:
                continue
            seen.add(key)
            terms = {self.start[key[1]]: 1.0, self.start[key[0]]: -1.0}
            self._share(terms, int(self.group_of[key[0]]), -self.time[key[0]])
            if not key[3]:
                self._transfer(terms, key[0], key[1], self.moves[m])
            self.rows.add(terms, 0.0, np.inf)
        leads = np.bincount(of[index.producer], minlength=len(self.start))
        for c in np.flatnonzero(leads == 0).tolist():
            terms = {self.end: 1.0, self.start[c]: -1.0}
            self._share(terms, int(self.group_of[c]), -self.time[c])
            self.rows.add(terms, 0.0, np.inf)

    def _transfer(self, terms: dict[int, float], u: int, v: int, move: Floats) -> None:
        """Subtract the transfer from one class to another."""
        link = self.instance.arrays.link_class
        for at, a, b in self._flow(int(self.group_of[u]), int(self.group_of[v])):
            cost = float(move[link[a, b]])
            if cost:
                terms[at] = terms.get(at, 0.0) - cost

    def _flow(self, one: int, other: int) -> list[tuple[int, int, int]]:
        """Columns of the flow from a class of groups on a to another one on b, with a and b."""
        # A transportation problem: what is on k of the one and not of the other leaves k. The flow
        # is shared by all edges between the two classes, so its least cost is for all of them
        # together.
        if one == other:
            return []
        if (one, other) in self.flows:
            return self.flows[one, other]
        ends = [np.flatnonzero(self.column[G] >= 0).tolist() for G in (one, other)]
        found = [(self.rows.add_column(1.0), a, b) for a in ends[0] for b in ends[1] if a != b]
        for k in sorted({*ends[0], *ends[1]}):
            terms = {at: (a == k) - (b == k) + 0.0 for at, a, b in found if k in (a, b)}
            here = np.arange(self.instance.num_devices) == k
            self._share(terms, other, here + 0.0)
            self._share(terms, one, here * -1.0)
            self.rows.add(terms, 0.0, 0.0)
        self.flows[one, other] = found
        return found

    def _work(self) -> None:
        """T is no less than what a device has to do."""
        for k in range(self.instance.num_devices):
            terms = {self.end: 1.0}
            for c, count in enumerate(self.classes.op_count.tolist()):
                self._share(terms, int(self.group_of[c]), self._on(k, c, -count))
            self.rows.add(terms, 0.0, np.inf)

    def _on(self, k: int, op_class: int, count: float) -> Floats:
        factor = np.zeros(self.instance.num_devices)
        factor[k] = count * self.time[op_class, k]
        return factor

    def _parts(self) -> list[Interval]:
        """Intervals between ops that are alone in their classes, the small ones first."""
        count, of, left = self.classes.op_count, self.classes.of_op, MOST_MEMBERS
        found = []
        for part in sorted(intervals(self.instance, MOST_INNER), key=lambda part: len(part.inner)):
            left -= len(part.inner)
            if left < 0:
                break
            if len(part.inner) > 1 and count[of[part.entry]] == count[of[part.exit]] == 1:
                found.append(part)
        return found

    def _between(self, part: Interval) -> dict[int, float]:
        """Terms of the time from the end of the entry to the start of the exit."""
        u, v = int(self.classes.of_op[part.entry]), int(self.classes.of_op[part.exit])
        terms = {self.start[v]: 1.0, self.start[u]: -1.0}
        self._share(terms, int(self.group_of[u]), -self.time[u])
        return terms

    def _work_between(self, part: Interval) -> None:
        inside = Counter(self.classes.of_op[list(part.inner)].tolist())
        for k in range(self.instance.num_devices):
            terms = self._between(part)
            for c, count in inside.items():
                self._share(terms, int(self.group_of[c]), self._on(k, c, -count))
            self.rows.add(terms, 0.0, np.inf)

    def _numbers_between(self, part: Interval) -> None:
        """Columns for each way to share out a few ops in whole numbers, and rows of their times."""
        # l[j, a, b] >= 0 of way j, with n[j, c, k] ops of class c on k, the entry on a and the exit
        # on b, sum to the shares of entry and exit, and give N. A way takes D[j, a, b]: the longest
        # of its devices' work, each between what it gets and what it sends, and of its ports. Where
        # columns are too many, there is one for all a and b, which takes the least.
        arrays, classes = self.instance.arrays, self.classes
        inside = Counter(classes.of_op[list(part.inner)].tolist())
        columns = {c: self.column[int(self.group_of[c])] for c in inside}
        members = np.bincount(arrays.group)[arrays.group[list(part.inner)]]
        # `_colocated_between` is for groups of several ops
        if (members > 1).any():
            return
        able = {c: np.flatnonzero(columns[c] >= 0).tolist() for c in inside}
        ends = [int(self.group_of[classes.of_op[end]]) for end in (part.entry, part.exit)]
        homes = [np.flatnonzero(self.column[G] >= 0).tolist() for G in ends]
        pairs = tuple((a, b) for a, b in product(*homes) if a == b or ends[0] != ends[1])
        # Without these columns an LP halves an op: two devices with half of its work each, at the
        # same time. Equal ops of a class are only counted, so that there are few ways.
        ways = math.prod(math.comb(q + len(able[c]) - 1, q) for c, q in inside.items())
        if ways > MOST_WAYS:
            self._spread_between(part, inside, pairs)
            return
        # a column for each way and pair of ends, or one for all pairs where columns run out
        is_shared = ways * len(pairs) <= self.ways_left
        self.ways_left -= ways * len(pairs) if is_shared else 0
        crossing = self._crossing(part)
        share: dict[tuple[int, int], dict[int, float]] = {}
        one: dict[int, float] = {}
        numbers: dict[int, dict[int, float]] = {}
        takes = self._between(part)
        for way in product(*(combinations_with_replacement(able[c], q) for c, q in inside.items())):
            on = list(zip(inside, way, strict=True))
            for at_ends in [(pair,) for pair in pairs] if is_shared else [pairs]:
                at = self.rows.add_column(1.0)
                one[at] = 1.0
                for c, homes_of_c in on:
                    for k in homes_of_c:
                        of = numbers.setdefault(int(columns[c][k]), {})
                        of[at] = of.get(at, 0.0) + 1.0
                takes[at] = -min(self._takes(on, a, b, crossing) for a, b in at_ends)
                for end, k in enumerate(at_ends[0] if is_shared else ()):
                    share.setdefault((end, k), {})[at] = 1.0
        self.rows.add(one, 1.0, 1.0)
        self._sums_of_ends(part, share, numbers, takes)

    def _crossing(self, part: Interval) -> _Crossing:
        """The transfers of an interval, and the classes next to its entry and its exit."""
        arrays, of = self.instance.arrays, self.classes.of_op
        index = arrays.index
        ops = {part.entry, *part.inner, part.exit}
        edges = [
            e
            for i in (part.entry, *part.inner)
            for e in index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]].tolist()
            if int(index.consumer[e]) in ops
        ]
        # a path may take several of the interval's edges: all-pairs shortest paths over the devices
        move = self.moves[self.move[edges]].min(axis=0)[arrays.link_class]
        np.fill_diagonal(move, 0.0)
        ways = move.copy()
        for via in range(len(ways)):
            ways = np.minimum(ways, ways[:, via, None] + ways[None, via, :])
        into = {int(of[index.consumer[e]]) for e in edges if index.producer[e] == part.entry}
        out = {int(of[index.producer[e]]) for e in edges if index.consumer[e] == part.exit}
        return _Crossing(move, ways, into, out)

    def _takes(
        self, on: Sequence[tuple[int, Sequence[int]]], a: int, b: int, crossing: _Crossing
    ) -> float:
        """The least time from the end of an entry on a to the start of an exit on b."""
        # each device that is used gets its first input over some path, does all its work, and sends
        # its last output
        work = np.zeros(self.instance.num_devices)
        for c, homes in on:
            for k in homes:
                work[k] += self.time[c, k]
        used = sorted({k for _, homes in on for k in homes})
        ways = crossing.ways
        longest = max(work[k] + ways[a, k] + ways[k, b] for k in used)
        if self.sends_each:
            sent = [(c, k) for c, homes in on if c in crossing.into for k in homes if k != a]
            got = [(c, k) for c, homes in on if c in crossing.out for k in homes if k != b]
            if sent:  # the last one that is sent still has to run
                rest = min(self.time[c, k] + ways[k, b] for c, k in sent)
                longest = max(longest, self._port((k, crossing.move[a, k]) for _, k in sent) + rest)
            if got:  # the first one that is sent has run before
                rest = min(self.time[c, k] + ways[a, k] for c, k in got)
                longest = max(longest, self._port((k, crossing.move[k, b]) for _, k in got) + rest)
        return float(longest)

    def _port(self, moves: Iterable[tuple[int, float]]) -> float:
        """Time of transfers between one device and others, in its port or on the busiest link."""
        on: dict[int, float] = {}
        for k, move in moves:
            on[k] = on.get(k, 0.0) + move
        return sum(on.values()) if self.sends_each == "port" else max(on.values())

    def _spread_between(
        self, part: Interval, inside: Mapping[int, int], pairs: Sequence[tuple[int, int]]
    ) -> None:
        """Columns for the numbers of ops on each device, for each pair of ends."""
        # With y[a, b] the share of the entry on a and the exit on b, n[a, b, c, k] ops sum to y
        # times their number and to N; T[a, b] is no less than the work on k with the way there and
        # back, and the transfers of a port, after the last or before the first of which an op runs.
        # That way, or that op, counts only if something is on k, or passes the port. If nothing
        # does, all work is elsewhere and takes some time as well: the lesser of the two holds for y
        # as a whole.
        crossing = self._crossing(part)
        ways, num_devices, is_port = crossing.ways, len(crossing.ways), self.sends_each == "port"
        counts = np.array(list(inside.values()), float)
        able = self.column[self.group_of[list(inside)]] >= 0
        time_of = np.where(able, self.time[list(inside)], np.inf)  # (classes, devices)
        elsewhere = [  # the least that all takes without k
            counts @ np.delete(time_of, k, 1).min(axis=1, initial=np.inf) / max(1, num_devices - 1)
            for k in range(num_devices)
        ]
        fed, feeds = (np.array([c in to for c in inside]) for to in (crossing.into, crossing.out))
        share: dict[tuple[int, int], dict[int, float]] = {}
        numbers: dict[int, dict[int, float]] = {}
        takes = self._between(part)
        # Rows are multiplied by y, the share of the pair: in a fraction of a solution, this
        # fraction of each constant holds.
        for a, b in pairs:
            chosen, took = self.rows.add_column(1.0), self.rows.add_column(self.horizon)
            for end, k in enumerate((a, b)):
                share.setdefault((end, k), {})[chosen] = 1.0
            takes[took] = -1.0
            way = ways[a] + ways[:, b]
            held = np.minimum(way, elsewhere)
            work = [{took: 1.0, chosen: -float(each)} for each in held]
            sent, got = {took: 1.0}, {took: 1.0}
            for terms, near, far, of in ((sent, a, ways[:, b], fed), (got, b, ways[a], feeds)):
                if is_port and of.any():
                    rest = np.delete((time_of + far)[of], near, 1).min(initial=np.inf)
                    alone = counts[of] @ time_of[of, near] + ways[a, b]
                    terms[chosen] = -float(min(rest, alone))
            for c, count in inside.items():
                columns = self.column[int(self.group_of[c])]
                spread = {chosen: -float(count)}
                for k in np.flatnonzero(columns >= 0).tolist():
                    at = self.rows.add_column(float(count))
                    spread[at] = 1.0
                    numbers.setdefault(int(columns[k]), {})[at] = 1.0
                    # of one class: the rest of the way in equal parts, one for each op on k
                    more = (way[k] - held[k]) / count if len(inside) == 1 else 0.0
                    work[k][at] = -float(self.time[c, k] + more)
                    if c in crossing.into and is_port:
                        sent[at] = -float(crossing.move[a, k])
                    if c in crossing.out and is_port:
                        got[at] = -float(crossing.move[k, b])
                self.rows.add(spread, 0.0, 0.0)
            for terms in (*work, sent, got):
                self.rows.add(terms, 0.0, np.inf)
        self._sums_of_ends(part, share, numbers, takes)

    def _sums_of_ends(
        self,
        part: Interval,
        share: Mapping[tuple[int, int], dict[int, float]],
        numbers: Mapping[int, dict[int, float]],
        takes: dict[int, float],
    ) -> None:
        """Columns by the ends of an interval sum to the shares of these, and to N."""
        ends = [int(self.group_of[self.classes.of_op[end]]) for end in (part.entry, part.exit)]
        for (end, k), terms in share.items():
            here = np.arange(self.instance.num_devices) == k
            self._share(terms, ends[end], here * -1.0)
            self.rows.add(terms, 0.0, 0.0)
        for column, terms in numbers.items():
            self.rows.add({**terms, column: -1.0}, 0.0, 0.0)
        self.rows.add(takes, 0.0, np.inf)

    def _colocated_between(self, part: Interval) -> None:
        """Colocated ops run one after another, the exit included; and after what they wait for."""
        group, of = self.instance.arrays.group, self.classes.of_op
        members: dict[int, list[int]] = {}
        for i in (*part.inner, part.exit):
            members.setdefault(int(group[i]), []).append(i)
        for g, ops in members.items():
            # a row needs the share of this very group: its class must have no other
            home = int(self.classes.of_group[g])
            if len(ops) < 2 or self.classes.group_count[home] > 1:
                continue
            terms = self._between(part)
            inner = [int(of[i]) for i in ops if i != part.exit]
            self._share(terms, home, -self.time[inner].sum(axis=0))
            if len(members) == 1 and g != int(group[part.entry]):
                self._entry(terms, part.entry, g)
            self.rows.add(terms, 0.0, np.inf)

    def _entry(self, terms: dict[int, float], u: int, group: int) -> None:
        """Subtract the transfer from `u` that the first op of a group waits for."""
        arrays = self.instance.arrays
        index = arrays.index
        edges = index.succ_edge[index.succ_ptr[u] : index.succ_ptr[u + 1]]
        edges = edges[arrays.group[index.consumer[edges]] == group]
        least = self.moves[self.move[edges]].min(axis=0)
        v = int(self.classes.of_op[index.consumer[edges[0]]])
        self._transfer(terms, int(self.classes.of_op[u]), v, least)


def relaxed(model: Knapsack, time_limit_s: float | None = None) -> tuple[int, Floats | None]:
    """The LP: its bound on every makespan, 0 if there is none; its solution, if any."""
    no = np.zeros_like(model.form.is_integer)
    found = solve_form(replace(model.form, is_integer=no), time_limit_s, interior=True)
    floor = 0 if found.proven is None else max(0, math.ceil(found.proven * model.unit_ns))
    return floor, found.values


def rounded_plan(instance: Instance, model: Knapsack, values: Floats) -> Plan | None:
    """The plan of a solution in fractions, the largest groups first; None where one has no room."""
    # Each group goes where most of its class's number is left, among devices with room.
    arrays, classes = instance.arrays, model.classes
    size = arrays.group_bytes[classes.group]
    left = np.zeros(model.column.shape)
    free = np.where(arrays.memory_bytes >= NO_LIMIT, NO_LIMIT, arrays.memory_bytes).astype(float)
    for group in np.argsort(-size, kind="stable").tolist():
        able = model.column[group] >= 0
        wish = np.where(able, values[model.column[group]], -1.0)
        for _ in range(int(classes.group_count[group])):
            fits = able & (free >= size[group])
            if not fits.any():
                return None
            k = int(np.argmax(np.where(fits, wish, -np.inf)))
            left[group, k] += 1
            wish[k] -= 1
            free[k] -= size[group]
    return _plan(instance, np.full(arrays.num_groups, -1), left, classes.of_group)


def plan_of(instance: Instance, model: Knapsack, values: Floats) -> Plan:
    """The plan of a solution in whole numbers."""
    # A group goes where most of what feeds it is, among the devices that its class still has.
    left: Floats = np.where(model.column >= 0, np.rint(values[model.column]), 0.0).astype(float)
    return _plan(instance, np.full(instance.arrays.num_groups, -1), left, model.classes.of_group)


def plan_of_stops(instance: Instance, stops: Stops, at: Ints) -> Plan:
    """The stops where they are, and each other group with what feeds it, if there is room."""
    arrays = instance.arrays
    home = np.full(arrays.num_groups, -1)
    home[stops.group] = at
    free = arrays.memory_bytes.copy()
    np.subtract.at(free, at, stops.size_bytes[np.arange(len(at)), at])
    allowed = arrays.group_runs & (arrays.group_bytes[:, None] <= free)
    return _plan(instance, home, allowed.astype(float), np.arange(arrays.num_groups))


def _plan(instance: Instance, home: Ints, left: Floats, kind: Ints) -> Plan:
    """Groups that have no home yet go where most of what feeds them is, as far as `left` allows."""
    # the model does not distinguish the members of a class: here is the choice of which goes where
    arrays = instance.arrays
    feeds: list[list[int]] = [[] for _ in home]
    for u, v in zip(
        arrays.group[arrays.index.producer].tolist(),
        arrays.group[arrays.index.consumer].tolist(),
        strict=True,
    ):
        feeds[v].append(u)
    for g in dict.fromkeys(arrays.group[arrays.index.topological_order].tolist()):
        if home[g] >= 0:
            continue
        near = np.bincount(home[feeds[g]] + 1, minlength=instance.num_devices + 1)[1:]
        open_ = left[kind[g]]
        home[g] = int(np.argmax(np.where(open_ > 0, near, -1)))
        open_[home[g]] -= 1
    return Plan.on(home[arrays.group].tolist())


@method(
    "memory-knapsack",
    objectives=("makespan",),
    paper="placegap",
    applies=lambda task, params: (
        "memory is slack" if task.instance.arrays.memory_is_slack else None
    ),
    packages=("highspy", "numba"),
    solver="highs",
)
def run(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Chooses ops for the host by a knapsack of bytes, with a bound, by a MIP of all ops.

    The best plan of the solutions of LP and MIP, and the better one of their bounds.
    O(n + m) rows beside K^2 columns for each pair of classes that exchange tensors.
    """
    instance, clock = task.instance, task.limits.clock()
    if not instance.arrays.possible.any(axis=1).all():
        return Outcome(message="memory: an op fits no device")
    # A row of groups needs no model. First with the bytes of the peak: where its plan misses its
    # sum, or labels are too many, the plain bytes may still have the optimum.
    for at_peak in (task.at_peak, None) if task.at_peak is not None else (None,):
        stops = stops_of(instance, at_peak)
        chain = stops and least_chain(instance, stops, clock.part(0.5).is_over)
        if stops is not None and chain is not None:
            row = plan_of_stops(instance, stops, chain.at)
            if feasible_value(instance, row, task.semantics) == chain.ns:
                return Outcome(row, chain.ns, Bound(chain.ns, CHAIN))
    model = knapsack(instance, task.semantics, at_peak=task.at_peak)
    if model is None:
        return Outcome(message="its model is too large")
    built_s, left_s = clock.spent_s, clock.left_s
    # the LP first: its bound is checked, and its solution rounded is a plan even if the MIP fails
    floor, shares = relaxed(model, None if left_s is None else LP_SHARE * left_s)
    plans = [] if shares is None else [rounded_plan(instance, model, shares)]
    if model.form.matrix.shape[1] > MOST_MIP:
        model = knapsack(instance, task.semantics, 0, task.at_peak) or model
    if model.form.matrix.shape[1] > MOST_MIP:
        return Outcome(
            _best(task, plans),
            bound=Bound(floor, KNAPSACK),
            message="its MIP is too large: the plan is that of the LP, rounded",
        )
    found, values = solve_integers(model.form, task.limits.left(clock))
    by_solver = bound_ns(found.dual_bound, model.unit_ns, 1)
    if found.ending == "infeasible":
        bound = no_plan(word("highs"))
    elif by_solver is not None and by_solver > floor:
        bound = Bound(by_solver, KNAPSACK, word("highs"))
    else:
        bound = Bound(floor, KNAPSACK)
    plans += [] if values is None else [plan_of(instance, model, values)]
    plan = _best(task, plans)
    message = say_ending(
        found.ending, "HiGHS", task.limits, clock.spent_s, start=False, better=plan is not None
    )
    return Outcome(
        plan,
        bound=bound,
        message=message,
        build_s=built_s,
        details={"rows": found.rows, "columns": found.columns, "nodes": found.nodes},
    )


def _best(task: Task[Makespan], plans: Iterable[Plan | None]) -> Plan | None:
    """The plan that ends first, of those that fit, in the referee's order and in our own."""
    known = [plan for plan in plans if plan is not None]
    known += [inserted(task.instance, task.semantics, plan) for plan in known]
    best = Known()
    for plan in known:
        best.offer_plan(task, plan)
    return best.plan
