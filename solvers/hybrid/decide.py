"""Whether a hybrid plan exists within a limit of T ns per batch: a dynamic program over ideals.

State: fewest[I, s] is the least number of devices for the layers outside of ideal I, in a row of
stages that have at most s replicas in all, each within T and the memory. The first of these stages
takes J - I for a larger ideal J, with d replicas of t devices each. It has ceil(s / d) microbatches
in flight, so it is allowed up to s = d Y, where Y is the most at which some choice of modes fits.
Fewer always fit where more do, so bisection finds Y. Piper's table (Tarnawski, Narayanan,
Phanishayee, NeurIPS 2021) has the least T for each number of devices; with T fixed and devices as
the value, that dimension is not needed. This exchange is placegap's own; the model is Piper's.

Windows: all work of I, spread evenly, needs at least work / T devices. An ideal is dropped if these
and its fewest devices are more than there are, and a pair of ideals likewise.

Example by hand: layers a, b, c in a row of 2, 1 and 1 ns per microbatch, 4 microbatches, 3 devices,
no bytes: 8, 4 and 4 ns per batch. With T = 6: c alone takes 4 ns, so fewest[ab, 1] = 1. {b, c}
takes 4 ns on 2 replicas, but a needs ceil(8 / 6) = 2 more devices: ideal a is dropped. {a, b} takes
6 ns on 2 replicas, so fewest[{}, 3] = 2 + 1 = 3 devices: yes. With T = 5, ab needs ceil(12 / 5) = 3
devices beside c's one: no. So the optimum is 6 ns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.solvers.core.clock import Clock
from placegap.solvers.hybrid.modes import NO, UNKNOWN, YES, can_choose, choose, greedy_rows
from placegap.solvers.hybrid.problem import EVERY_MODE, GREEDY, HybridProblem, Tables

NEVER = 2**30  # number of devices of what is impossible: more than there are
PAIRS = 4_000_000  # pairs of ideals between two checks of the clock: a fraction of a second


class Choice(NamedTuple):
    """What stages may choose from: numbers of tensor degrees, of replicas, and names of modes."""

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
    """Mark the edges that cross the border of a stage; returns their cost."""
    before, after, total = tables.inside[small], tables.inside[large], np.int64(0)
    for e in range(len(tables.tail)):
        a, b = tables.tail[e], tables.head[e]
        crosses[e] = (after[a] and not before[a]) != (after[b] and not before[b])
        if crosses[e]:
            total += tables.edge_cost[e]
    return int(total)


@kernel(allocates=False)
def fill(tables: Tables, stage: StageRows, q: int, small: int, large: int) -> int:
    """List the modes of a stage's layers, with the border marked; returns the number of layers."""
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
    """Rows, costs, sizes, pointers of the modes of one name (or all) within a workspace limit."""
    # A layer with a single mode keeps it. Without rows, some layer has no such mode.
    # Sizes are those of all replicas together: shared bytes are divided among them, so that sums
    # over one replica would be fractions.
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
def _quick_answer(
    tables: Tables,
    stage: StageRows,
    count: int,
    replicas: int,
    in_flight: int,
    limits: tuple[int, int],
) -> int:
    """The answer if the fastest and the smallest mode of each layer decide it."""
    # Names do not matter then.
    # No choice is faster than all fastest modes or smaller than all smallest; either of these two
    # choices may fit by itself. Workspaces count only for a yes: a no must hold for any of them.
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
        # The workspace of a stage is the largest of its layers', as one layer runs at a time.
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
    answer = _quick_answer(tables, stage, count, replicas, in_flight, limits)
    # Where all layers must have one mode's name, a yes of mixed modes says nothing; a no holds.
    if answer == NO or (answer == YES and names[0] == EVERY_MODE):
        return answer
    answer = NO
    # Try each workspace as the largest one of the chosen modes: modes above it are left out, and
    # the memory shrinks by it. Then both limits are plain sums.
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
            # Room above the sum of all rows is never needed: capped, its product with the replicas
            # stays within 64 bits.
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
    """Numbers that a decision needs besides the tables."""

    # With `optimistic`, stages whose modes cannot be decided count as fitting: then a no is proven,
    # else a yes.
    devices: int
    replicas: int
    memory: int
    budget: int
    largest: int
    optimistic: bool


@kernel(allocates=False)
def nests(tables: Tables, small: int, large: int) -> bool:
    """Whether the first ideal is a subset of the second."""
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
    """Fill rows of the table of fewest devices, and the first stage of each entry."""
    # From the first row down to the second; returns the number of guesses (`optimistic`).
    # Ideals are sorted by size, so when row I is filled all rows of larger ideals J are ready. The
    # four nested loops (I, J, t, d) run cheap tests first, as the knapsack in the innermost one
    # takes nearly all time.
    n, top, k = len(tables.members), setting.replicas, setting.devices
    stage = StageRows(
        np.zeros(tables.inside.shape[1] + 1, np.int64),
        np.zeros(len(tables.cost), np.int64),
        np.zeros(len(tables.cost), np.int64),
        np.zeros(len(tables.tail), np.bool_),
    )
    guesses = 0
    per_device = max(1, setting.budget)
    for small in range(rows[0], rows[1] - 1, -1):
        for s in range(top + 1):
            fewest[small, s] = NEVER
        # The least number of devices of the stages before: all work of I at full use.
        before = -(-tables.work[small] // per_device)
        if before > k:
            continue
        # Large J first and a strict < below: if plans tie, one of few stages is kept.
        for large in range(n - 1, small, -1):
            # With `top` replicas the row behind has its fewest devices; this stage needs one more,
            # or as many as its work does.
            behind = fewest[large, top]
            if behind + before >= k:
                continue
            work = tables.work[large] - tables.work[small]
            if behind + before + max(1, -(-work // per_device)) > k:
                continue
            if not nests(tables, small, large):
                continue
            # The border of a stage does not depend on t or d: it is computed once, when needed.
            base = -1
            for q in choice.tensors:
                if tables.unable[q, large] > tables.unable[q, small]:
                    continue
                # Every mode takes at least these bytes, with one microbatch in flight.
                held = tables.least_held[q, large] - tables.least_held[q, small]
                fixed = tables.least_fixed[q, large] - tables.least_fixed[q, small]
                if held + fixed > setting.memory:
                    continue
                if base < 0:
                    base = border(tables, stage.crosses, small, large)
                cost = tables.least_cost[q, large] - tables.least_cost[q, small] + base
                sync = tables.least_sync[q, large] - tables.least_sync[q, small]
                # `reach`: up to this s, a smaller d of the same t is allowed already. It uses fewer
                # devices and leaves more replicas for the stages behind, so a larger d counts only
                # beyond it.
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
                    # The fewest replicas behind for which the devices suffice: fewest falls with s.
                    low, high = 0, top - d
                    if fewest[large, high] + used + before > k:
                        continue
                    while low < high:
                        middle = (low + high) // 2
                        if fewest[large, middle] + used + before <= k:
                            high = middle
                        else:
                            low = middle + 1
                    # The least useful number in flight: that of s = low + d, and above what `reach`
                    # covers. At s = top it is `most`.
                    y = max(-(-(low + d) // d), reach // d + 1)
                    most = -(-top // d)
                    if y > most or held * y + fixed > setting.memory:
                        continue
                    if count == 0:
                        count = fill(tables, stage, q, small, large)
                    limits = (budget - base, setting.memory)
                    answer = fits(tables, stage, count, choice.names, d, y, limits)
                    if answer == NO or (answer == UNKNOWN and not setting.optimistic):
                        continue
                    guesses += answer == UNKNOWN
                    # Y is often the most there is; only otherwise bisection looks for it.
                    answer = fits(tables, stage, count, choice.names, d, most, limits)
                    if answer == YES:
                        y = most
                    else:
                        above = most
                        if answer == UNKNOWN and setting.optimistic:
                            guesses += 1
                            y = most
                        while above - y > 1:
                            middle = (above + y) // 2
                            answer = fits(tables, stage, count, choice.names, d, middle, limits)
                            if answer == YES or (answer == UNKNOWN and setting.optimistic):
                                guesses += answer == UNKNOWN
                                y = middle
                            else:
                                above = middle
                    reach = min(top, d * y)
                    # J, t and d in one number, which `Decider._stages` takes apart again.
                    here = (large * len(tables.tensor) + q) * (top + 1) + d
                    for s in range(low + d, reach + 1):
                        if fewest[large, s - d] + used < fewest[small, s]:
                            fewest[small, s] = fewest[large, s - d] + used
                            first[small, s] = here
        # At most s replicas: whatever s - 1 allow counts as well. What the window excludes becomes
        # NEVER, so that no stage before it is looked at.
        for s in range(top + 1):
            if s > 0 and fewest[small, s - 1] < fewest[small, s]:
                fewest[small, s] = fewest[small, s - 1]
            if fewest[small, s] + before > k:
                fewest[small, s] = NEVER
    return guesses


class Decision(NamedTuple):
    """Whether there is a plan (`NO`, `YES` or `UNKNOWN`), and the row of stages of one."""

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
        # A no of the optimistic table is a proof. A yes of it is one only without guesses; else the
        # pessimistic table is filled, whose yes is one.
        for optimistic in (True, False):
            guesses = self._fill(choice, limit_ns, optimistic=optimistic)
            top = self.problem.most_replicas
            if self._fewest[0, top] > self.problem.devices:
                return Decision(NO if optimistic else UNKNOWN)
            if not guesses:
                return Decision(YES, self._stages())
        raise AssertionError("a pessimistic table has no guesses")

    def _fill(self, choice: Choice, limit_ns: int, *, optimistic: bool) -> int:
        problem = self.problem
        setting = Setting(
            problem.devices,
            problem.most_replicas,
            problem.memory,
            problem.budget(limit_ns),
            problem.largest,
            optimistic,
        )
        guesses, n = 0, len(self._fewest)
        self._fewest[n - 1] = 0
        for last in range(n - 2, -1, -max(1, PAIRS // n)):
            self.clock.check()
            rows = last, max(0, last - max(1, PAIRS // n) + 1)
            tables = problem.tables
            guesses += fewest_devices(tables, choice, setting, self._fewest, self._first, rows)
        return guesses

    def _stages(self) -> tuple[RowStage, ...]:
        """The row of stages of the entry of all layers."""
        found, at, s = [], 0, self.problem.most_replicas
        tensors = len(self.problem.tables.tensor)
        while at < len(self._fewest) - 1:
            while s > 0 and self._fewest[at, s - 1] == self._fewest[at, s]:
                s -= 1  # the stage is noted at the least s that has this number
            rest, d = divmod(int(self._first[at, s]), self.problem.most_replicas + 1)
            after, q = divmod(rest, tensors)
            found.append(RowStage(at, after, q, d))
            at, s = after, s - d
        return tuple(found)


def best_rows(
    problem: HybridProblem, found: RowStage, names: Ints, in_flight: int, budget: int
) -> Ints | None:
    """The modes of least cost of a stage within a budget: a row for each of its layers."""
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
                # What follows only matters if it costs less, so this cost is its budget.
                best, budget = (total, row[chosen]), total
    return None if best is None else best[1]
