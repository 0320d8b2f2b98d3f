"""Is there a hybrid plan within a limit per batch? A dynamic program over ideals.

fewest[I, s] is the least number of devices for the layers outside of ideal I, in a row of stages
that have at most s replicas in all, each within the limit and the memory. The first of these stages
takes J - I for a larger ideal J, with d replicas of t devices; it is allowed up to s = d Y, where Y
is the most microbatches in flight at which some choice of modes fits, found by bisection, as fewer
always fit where more do. So the number of devices is no dimension of the table.

An ideal, and a pair of ideals, falls where the devices known to be used, and the least work of the
rest divided by the limit, are more than there are.

placegap's own; the model is Piper's (Tarnawski, Narayanan, Phanishayee, NeurIPS 2021).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.solvers.core.clock import Clock
from placegap.solvers.hybrid.modes import NO, UNKNOWN, YES, can_choose, choose, greedy_rows
from placegap.solvers.hybrid.problem import EVERY_MODE, GREEDY, HybridProblem, Tables

NEVER = 2**30
"""More devices than there are."""

PAIRS = 4_000_000
"""Pairs of ideals between two looks at the clock: a fraction of a second."""


class Choice(NamedTuple):
    """What stages may choose: numbers of tensor degrees, degrees, and names of modes."""

    tensors: Ints
    degrees: Ints
    names: Ints


class StageRows(NamedTuple):
    """One stage for one tensor degree: its modes as rows, item by item (of `Tables`)."""

    ptr: Ints
    row: Ints
    cost: Ints
    crosses: Flags


class RowStage(NamedTuple):
    """One stage of a row: ideals before and after it, tensor number, replicas."""

    before: int
    after: int
    tensor: int
    replicas: int


@kernel(allocates=False)
def border(tables: Tables, crosses: Flags, small: int, large: int) -> int:
    """Mark the edges that cross the border of a stage; what they cost it."""
    before, after, total = tables.inside[small], tables.inside[large], np.int64(0)
    for e in range(len(tables.tail)):
        a, b = tables.tail[e], tables.head[e]
        crosses[e] = (after[a] and not before[a]) != (after[b] and not before[b])
        if crosses[e]:
            total += tables.edge_cost[e]
    return int(total)


@kernel(allocates=False)
def fill(tables: Tables, stage: StageRows, q: int, small: int, large: int) -> int:
    """Write down the modes of a stage's layers, whose border is marked; how many layers."""
    count, rows = 0, 0
    stage.ptr[0] = 0
    for i in range(tables.inside.shape[1]):
        if not tables.inside[large, i] or tables.inside[small, i]:
            continue
        for r in range(tables.row_ptr[q, i], tables.row_ptr[q, i + 1]):
            cost = tables.cost[r]
            for at in range(tables.extra_ptr[r], tables.extra_ptr[r + 1]):
                if stage.crosses[tables.extra_edge[at]]:
                    cost += tables.extra_cost[at]
            stage.row[rows], stage.cost[rows] = r, cost
            rows += 1
        count += 1
        stage.ptr[count] = rows
    return count


@kernel
def listed(
    tables: Tables,
    stage: StageRows,
    count: int,
    replicas: int,
    in_flight: int,
    name: int,
    most: int,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Rows, costs, sizes and pointers of the modes of one name, or all, with at most so much
    workspace; an item that has a single mode keeps it. No rows: some item has none.

    Sizes are those of all replicas together.
    """
    rows = stage.ptr[count]
    row, cost, size = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    ptr = np.zeros(count + 1, np.int64)
    length = 0
    for i in range(count):
        alone = stage.ptr[i + 1] - stage.ptr[i] == 1
        for at in range(stage.ptr[i], stage.ptr[i + 1]):
            r = stage.row[at]
            if tables.workspace[r] > most or not (alone or name < 0 or tables.name[r] == name):
                continue
            row[length] = r
            cost[length] = stage.cost[at] + (replicas - 1) * tables.sync[r]
            whole = tables.held[r] * in_flight + tables.fixed[r]
            size[length] = replicas * whole + tables.shared[r]
            length += 1
        ptr[i + 1] = length
        if ptr[i + 1] == ptr[i]:
            return row[:0], cost[:0], size[:0], ptr
    return row[:length], cost[:length], size[:length], ptr


@kernel
def workspaces(tables: Tables, stage: StageRows, count: int) -> Ints:
    """The distinct workspaces of a stage's modes."""
    rows = stage.ptr[count]
    most = np.int64(0)
    for at in range(rows):
        most = max(most, tables.workspace[stage.row[at]])
    if most == 0:
        return np.zeros(1, np.int64)
    found = np.empty(rows, np.int64)
    for at in range(rows):
        found[at] = tables.workspace[stage.row[at]]
    return np.unique(found)


@kernel(allocates=False)
def _at_a_glance(
    tables: Tables,
    stage: StageRows,
    count: int,
    replicas: int,
    in_flight: int,
    limits: tuple[int, int],
) -> int:
    """What the fastest and the smallest mode of each layer decide, whatever their names."""
    budget, memory = limits
    fast_cost = fast_size = small_cost = small_size = np.int64(0)
    fast_scratch = small_scratch = np.int64(0)
    for i in range(count):
        first = True
        f_cost = f_size = f_scratch = s_cost = s_size = s_scratch = np.int64(0)
        for at in range(stage.ptr[i], stage.ptr[i + 1]):
            r = stage.row[at]
            cost = stage.cost[at] + (replicas - 1) * tables.sync[r]
            size = replicas * (tables.held[r] * in_flight + tables.fixed[r]) + tables.shared[r]
            if first or cost < f_cost or (cost == f_cost and size < f_size):
                f_cost, f_size, f_scratch = cost, size, tables.workspace[r]
            if first or size < s_size or (size == s_size and cost < s_cost):
                s_cost, s_size, s_scratch = cost, size, tables.workspace[r]
            first = False
        fast_cost += f_cost
        fast_size += f_size
        small_cost += s_cost
        small_size += s_size
        fast_scratch = max(fast_scratch, f_scratch)
        small_scratch = max(small_scratch, s_scratch)
    if fast_cost > budget or -(-int(small_size) // replicas) > memory:
        return NO
    if -(-int(fast_size) // replicas) + fast_scratch <= memory:
        return YES
    if small_cost <= budget and -(-int(small_size) // replicas) + small_scratch <= memory:
        return YES
    return UNKNOWN


@kernel
def fits(
    tables: Tables,
    stage: StageRows,
    count: int,
    names: Ints,
    replicas: int,
    in_flight: int,
    limits: tuple[int, int],
) -> int:
    """Whether some choice of modes is within a budget and the memory of a device."""
    budget, memory = limits
    answer = _at_a_glance(tables, stage, count, replicas, in_flight, limits)
    if answer == NO or (answer == YES and names[0] == EVERY_MODE):
        return answer
    answer = NO
    for scratch in workspaces(tables, stage, count):
        if scratch > memory:
            break
        for name in names:
            _, cost, size, ptr = listed(tables, stage, count, replicas, in_flight, name, scratch)
            if len(cost) == 0:
                continue
            total = np.int64(0)
            for at in range(len(size)):
                total += size[at]
            room = memory - scratch
            # more than the sum of all rows is never needed, and the product stays small
            room = total if room > total // replicas else room * replicas
            if name == GREEDY:
                spent = taken = np.int64(0)
                for i in greedy_rows(cost, size, ptr, int(room)):
                    spent += cost[i]
                    taken += size[i]
                here = YES if spent <= budget and taken <= room else NO
            else:
                here = can_choose(cost, size, ptr, budget, int(room))
            if here == YES:
                return YES
            if here == UNKNOWN:
                answer = UNKNOWN
    return answer


class Setting(NamedTuple):
    """Numbers that a decision needs besides the tables.

    `hopes` says that what modes cannot be decided for counts as fitting: then the answer no is
    proven, else the answer yes.
    """

    devices: int
    replicas: int
    memory: int
    budget: int
    largest: int
    hopes: bool


@kernel(allocates=False)
def nests(tables: Tables, small: int, large: int) -> bool:
    """Whether one ideal is part of the other, by their numbers."""
    for w in range(tables.members.shape[1]):
        if tables.members[small, w] & ~tables.members[large, w]:
            return False
    return True


@kernel
def fewest_devices(
    tables: Tables,
    choice: Choice,
    setting: Setting,
    fewest: Ints,
    first: Ints,
    rows: tuple[int, int],
) -> int:
    """Fill rows of the table of fewest devices, from the first down to the second, and the first
    stage of each entry; how often it hoped.
    """
    n, top, k = len(tables.members), setting.replicas, setting.devices
    stage = StageRows(
        np.zeros(tables.inside.shape[1] + 1, np.int64),
        np.zeros(len(tables.cost), np.int64),
        np.zeros(len(tables.cost), np.int64),
        np.zeros(len(tables.tail), np.bool_),
    )
    hoped = 0
    per_device = max(1, setting.budget)
    for small in range(rows[0], rows[1] - 1, -1):
        for s in range(top + 1):
            fewest[small, s] = NEVER
        before = -(-tables.work[small] // per_device)
        if before > k:
            continue
        for large in range(n - 1, small, -1):  # of plans that are alike, one of few stages
            behind = fewest[large, top]
            if behind + before >= k:
                continue
            work = tables.work[large] - tables.work[small]
            if behind + before + max(1, -(-work // per_device)) > k:
                continue
            if not nests(tables, small, large):
                continue
            base = -1
            for q in choice.tensors:
                if tables.unable[q, large] > tables.unable[q, small]:
                    continue
                held = tables.least_held[q, large] - tables.least_held[q, small]
                fixed = tables.least_fixed[q, large] - tables.least_fixed[q, small]
                if held + fixed > setting.memory:
                    continue
                if base < 0:
                    base = border(tables, stage.crosses, small, large)
                cost = tables.least_cost[q, large] - tables.least_cost[q, small] + base
                sync = tables.least_sync[q, large] - tables.least_sync[q, small]
                t, count, reach = tables.tensor[q], 0, 0
                for d in choice.degrees:
                    used = d * t
                    if d > top or behind + before + used > k or reach >= top:
                        break
                    budget = setting.largest
                    if setting.budget < setting.largest // d + 1:
                        budget = setting.budget * d
                    if cost + (d - 1) * sync > budget:
                        continue
                    low, high = 0, top - d  # the fewest replicas behind, with devices for the rest
                    if fewest[large, high] + used + before > k:
                        continue
                    while low < high:
                        middle = (low + high) // 2
                        if fewest[large, middle] + used + before <= k:
                            high = middle
                        else:
                            low = middle + 1
                    y = max(-(-(low + d) // d), reach // d + 1)
                    most = -(-top // d)
                    if y > most or held * y + fixed > setting.memory:
                        continue
                    if count == 0:
                        count = fill(tables, stage, q, small, large)
                    limits = (budget - base, setting.memory)
                    answer = fits(tables, stage, count, choice.names, d, y, limits)
                    if answer == NO or (answer == UNKNOWN and not setting.hopes):
                        continue
                    hoped += answer == UNKNOWN
                    answer = fits(tables, stage, count, choice.names, d, most, limits)
                    if answer == YES:
                        y = most
                    else:
                        above = most
                        if answer == UNKNOWN and setting.hopes:
                            hoped += 1
                            y = most
                        while above - y > 1:
                            middle = (above + y) // 2
                            answer = fits(tables, stage, count, choice.names, d, middle, limits)
                            if answer == YES or (answer == UNKNOWN and setting.hopes):
                                hoped += answer == UNKNOWN
                                y = middle
                            else:
                                above = middle
                    reach = min(top, d * y)
                    here = (large * len(tables.tensor) + q) * (top + 1) + d
                    for s in range(low + d, reach + 1):
                        if fewest[large, s - d] + used < fewest[small, s]:
                            fewest[small, s] = fewest[large, s - d] + used
                            first[small, s] = here
        for s in range(top + 1):
            if s > 0 and fewest[small, s - 1] < fewest[small, s]:
                fewest[small, s] = fewest[small, s - 1]
            if fewest[small, s] + before > k:
                fewest[small, s] = NEVER
    return hoped


class Decision(NamedTuple):
    """Whether there is a plan, if it is known, and the row of stages of one."""

    answer: int
    stages: tuple[RowStage, ...] = ()


class Decider:
    """Decides limit after limit for one problem; the tables are made once."""

    def __init__(self, problem: HybridProblem, clock: Clock) -> None:
        self.problem, self.clock = problem, clock
        shape = len(problem.tables.members), problem.most_replicas + 1
        self._fewest, self._first = np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    def decide(self, choice: Choice, limit_ns: int) -> Decision:
        """Whether some plan takes at most `limit_ns` per batch; LimitReached once time is over."""
        for hopes in (True, False):
            hoped = self._fill(choice, limit_ns, hopes=hopes)
            top = self.problem.most_replicas
            if self._fewest[0, top] > self.problem.devices:
                return Decision(NO if hopes else UNKNOWN)
            if not hoped:
                return Decision(YES, self._stages())
        raise AssertionError("without hope there is none")

    def _fill(self, choice: Choice, limit_ns: int, *, hopes: bool) -> int:
        problem = self.problem
        setting = Setting(
            problem.devices,
            problem.most_replicas,
            problem.memory,
            problem.budget(limit_ns),
            problem.largest,
            hopes,
        )
        hoped, n = 0, len(self._fewest)
        self._fewest[n - 1] = 0
        for last in range(n - 2, -1, -max(1, PAIRS // n)):
            self.clock.check()
            rows = last, max(0, last - max(1, PAIRS // n) + 1)
            tables = problem.tables
            hoped += fewest_devices(tables, choice, setting, self._fewest, self._first, rows)
        return hoped

    def _stages(self) -> tuple[RowStage, ...]:
        """The row of stages behind the entry of all layers."""
        found, at, s = [], 0, self.problem.most_replicas
        tensors = len(self.problem.tables.tensor)
        while at < len(self._fewest) - 1:
            while s > 0 and self._fewest[at, s - 1] == self._fewest[at, s]:
                s -= 1  # the stage was noted where the number fell
            rest, d = divmod(int(self._first[at, s]), self.problem.most_replicas + 1)
            after, q = divmod(rest, tensors)
            found.append(RowStage(at, after, q, d))
            at, s = after, s - d
        return tuple(found)


def best_rows(
    problem: HybridProblem, found: RowStage, names: Ints, in_flight: int, budget: int
) -> Ints | None:
    """The modes of least cost that a stage has within a budget, rows of its layers in order."""
    tables = problem.tables
    stage = StageRows(
        np.zeros(tables.inside.shape[1] + 1, np.int64),
        np.zeros(len(tables.cost), np.int64),
        np.zeros(len(tables.cost), np.int64),
        np.zeros(len(tables.tail), np.bool_),
    )
    budget -= border(tables, stage.crosses, found.before, found.after)
    count = fill(tables, stage, found.tensor, found.before, found.after)
    best: tuple[int, Ints] | None = None
    for scratch in workspaces(tables, stage, count).tolist():
        for name in names.tolist():
            row, cost, size, ptr = listed(
                tables, stage, count, found.replicas, in_flight, name, scratch
            )
            room = min((problem.memory - scratch) * found.replicas, int(size.sum()))
            if len(row) == 0 or room < 0:
                continue
            if name == GREEDY:
                chosen: Ints | None = greedy_rows(cost, size, ptr, room)
                assert chosen is not None
                fits_all = cost[chosen].sum() <= budget and size[chosen].sum() <= room
                chosen = chosen if fits_all else None
            else:
                chosen = choose(cost, size, ptr, budget, room)
            if chosen is None:
                continue
            total = int(cost[chosen].sum())
            if best is None or total < best[0]:
                best, budget = (total, row[chosen]), total
    return None if best is None else best[1]
