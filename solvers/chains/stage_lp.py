"""How far one stage of a chain can come: an LP over the ideals before and behind it.

A stage takes the difference S of two ideals, I (before it) and J (with it). With y in {0, 1} for
"in I", z for "in J" and x = z - y for "in S":

- y and z fall along arcs, y <= z, and x = 0 where the device cannot run or hold a block;
- a net costs its weight times (largest x of its pins - least x of its pins);
- compute and communication are at most the limit T, bytes at most the room;
- the work of I lies in one interval and that of J in another.

The intervals fix most blocks: one whose descendants (with itself) are more work than I leaves out
is in I, and one whose ancestors are more work than I has is not. What is left is small, and the LP
relaxation says how much work J has at most. Rows may be violated by a common slack that costs
`PENALTY` times as much: the LP always has a solution, and its duals prove the bound.

Narrower intervals of work leave some blocks open that an LP takes by parts. Where one of them is
settled, all that it needs, or all that needs it, is settled as well (`Settled`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.kernels import kernel
from placegap.solvers.core.back_ends.highs import solve_form
from placegap.solvers.core.back_ends.standard_form import StandardForm

CHUNK = 64
"""Blocks whose descendants are found at once: the bits of a word."""


@dataclass(frozen=True, eq=False)
class BlockArcs:
    """Arcs between b blocks that are numbered topologically."""

    #: tail, head: (a,) int64
    tail: Ints
    head: Ints


@dataclass(frozen=True, eq=False)
class ChainCosts:
    """b blocks, e nets and D kinds of devices."""

    arcs: BlockArcs
    #: time, need: (D, b) int64: Time of each block on each kind; what it takes of a device's room.
    time: Ints
    need: Ints
    #: (D, b) bool: Whether a device of the kind can run and hold the block.
    fits: Flags
    #: (D,) int64
    room: Ints
    #: (D, e) int64: What a device of each kind pays for a net that is cut.
    weight: Ints
    #: net_ptr, pin: (e + 1,): Pins of net i are the blocks ``pin[net_ptr[i]:net_ptr[i + 1]]``.
    net_ptr: Ints
    pin: Ints
    #: (D,) int64: Devices of each kind.
    counts: Ints
    #: Load is the larger of compute and communication, not their sum.
    overlap: bool
    #: (b,) int64: Least time of each block: the measure of how far a chain has come.
    work: Ints
    #: before, after: (b,) int64: Work of each block with all its ancestors, and with all its
    #: descendants.
    before: Ints
    after: Ints

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self.work)

    @property
    def total_work(self) -> int:
        """Work of all blocks."""
        return int(self.work.sum())

    def backwards(self) -> ChainCosts:
        """The same chain from its end: a stage that comes last comes first."""
        arcs = BlockArcs(self.arcs.head, self.arcs.tail)
        return replace(self, arcs=arcs, before=self.after, after=self.before)


def chain_costs(
    arcs: BlockArcs,
    costs: tuple[Ints, Ints, Ints],
    nets: tuple[Ints, Ints, Ints],
    counts: Ints,
    *,
    overlap: bool,
) -> ChainCosts:
    """Costs from arrays; `costs` are time, need and room, `nets` weight, net_ptr and pin.

    Kinds without a device are left out. A block that no kind fits has no work.
    O(b (a + b) / 64) for a arcs.
    """
    used = np.flatnonzero(counts)
    time, need, room = (part[used] for part in costs)
    fits = need <= room[:, None]
    never = np.iinfo(np.int64).max
    least = np.where(fits, time, never).min(axis=0)
    work = np.where(least == never, 0, least)
    before = _gathered(work, *group_by(arcs.head, len(work)), arcs.tail, 1)
    after = _gathered(work, *group_by(arcs.tail, len(work)), arcs.head, -1)
    weight, net_ptr, pin = nets
    return ChainCosts(
        arcs,
        time,
        need,
        np.asarray(fits),
        room,
        weight[used],
        net_ptr,
        pin,
        counts[used],
        overlap,
        work,
        before,
        after,
    )


def as_one_kind(costs: ChainCosts) -> ChainCosts:
    """All devices taken for one kind, with the least costs and the most room: a relaxation."""
    room, never = costs.room.max(), np.iinfo(np.int64).max
    need = np.where(costs.fits, costs.need, never).min(axis=0)
    return replace(
        costs,
        time=costs.work[None],
        need=np.where(need == never, room + 1, need)[None],
        fits=np.asarray(costs.fits.any(axis=0, keepdims=True)),
        room=np.array([room]),
        weight=costs.weight.min(axis=0)[None],
        counts=np.array([costs.counts.sum()]),
    )


@kernel
def _gathered(work: Ints, pointer: Ints, arc: Ints, source: Ints, step: int) -> Ints:
    """Work of each block and of all that lead to it; `step` -1 goes through the blocks backwards.

    For 64 blocks at a time, which of them lead where: one word per block.
    """
    b = len(work)
    total = np.zeros(b, np.int64)
    of_byte = np.zeros((8, 256), np.int64)
    for first in range(0, b, CHUNK):
        last = min(b, first + CHUNK)
        of_byte[:] = 0
        for v in range(first, last):
            byte, bit = (v - first) // 8, 1 << ((v - first) % 8)
            for mask in range(256):
                if mask & bit:
                    of_byte[byte, mask] += work[v]
        leads = np.zeros(b, np.uint64)
        for at in range(b):
            v = at if step > 0 else b - 1 - at
            word = np.uint64(0)
            if first <= v < last:
                word = np.uint64(1) << np.uint64(v - first)
            for j in range(pointer[v], pointer[v + 1]):
                word |= leads[source[arc[j]]]
            leads[v] = word
            if word:
                for byte in range(8):
                    part = (word >> np.uint64(8 * byte)) & np.uint64(255)
                    total[v] += of_byte[byte, np.int64(part)]
    return total


FREE = -1

WHOLE = 1e-6
"""A part of a block that is so near to 0 or 1 is none."""


class Settled(NamedTuple):
    """Of each block 1 if it is in the ideal, 0 if it is out, `FREE` else."""

    #: before, behind: (b,) int64: For the ideals before the stage and with it.
    before: Ints
    behind: Ints


def nothing_settled(num_blocks: int) -> Settled:
    """All blocks are open."""
    return Settled(np.full(num_blocks, FREE), np.full(num_blocks, FREE))


def joined_with(a: Ints, b: Ints) -> Ints | None:
    """What either settles; None if they contradict each other."""
    if ((a != FREE) & (b != FREE) & (a != b)).any():
        return None
    return np.where(a == FREE, b, a)


def close(settled: Settled, arcs: BlockArcs) -> Settled | None:
    """With all that follows from arcs and from nesting; None if nothing is left."""
    y, z = settled.before.copy(), settled.behind.copy()
    left = -1
    while left != (left := int((y == FREE).sum() + (z == FREE).sum())):
        z[(y == 1) & (z == FREE)] = 1
        y[(z == 0) & (y == FREE)] = 0
        for ideal in (y, z):
            needed = arcs.tail[ideal[arcs.head] == 1]
            ideal[needed[ideal[needed] == FREE]] = 1
            needs = arcs.head[ideal[arcs.tail] == 0]
            ideal[needs[ideal[needs] == FREE]] = 0
    broken = any(((i[arcs.tail] == 0) & (i[arcs.head] == 1)).any() for i in (y, z))
    return None if broken or ((y == 1) & (z == 0)).any() else Settled(y, z)


def halves(settled: Settled, before: Floats, behind: Floats) -> tuple[Settled, Settled] | None:
    """With and without the block of which an LP takes nearest to a half; None if it takes none."""
    for level in (1, 0):
        part = (before, behind)[level]
        open_ = np.minimum(part, 1.0 - part)
        v = int(np.argmax(open_))
        if open_[v] > WHOLE:
            changed = [np.array(settled[level]), np.array(settled[level])]
            changed[0][v], changed[1][v] = 1, 0
            if level:
                return Settled(settled.before, changed[0]), Settled(settled.before, changed[1])
            return Settled(changed[0], settled.behind), Settled(changed[1], settled.behind)
    return None


PENALTY = 50.0
"""Price of a slack of the size of T, in T: above what a ns of load is worth in ns of work."""

MOST_SLACK = 1000.0
"""In T. Real stages have none at all."""


class Range(NamedTuple):
    """Least and most work of an ideal."""

    least: int
    most: int


class Reach(NamedTuple):
    """How far a stage can come."""

    #: No ideal behind the stage has more work; below the range asked for: there is none in it.
    most: int
    #: behind, before: (b,) float64: Of each block, how much of it the LP has in the ideals behind
    #: the stage and before it.
    behind: Floats | None
    before: Floats | None = None


class _Levels(NamedTuple):
    """For one ideal: 1 or 0 where a block is or is not in it, `FREE` else; columns of those."""

    fixed: Ints
    column: Ints


def reach(
    costs: ChainCosts,
    kind: int,
    before: Range,
    behind: Range,
    limit: int,
    time_limit_s: float | None,
    settled: Settled | None = None,
) -> Reach:
    """The most work of an ideal in `behind` that a stage reaches from one in `before`.

    Parameters
    ----------
    kind : int
        Kind of the stage's device.
    before, behind : Range
        Work of the ideals before the stage and with it.
    limit : int
        Most load of the stage, at least 1.
    time_limit_s : float or None
        When it is over the range's own end is returned.
    settled : Settled, optional
        Blocks that are in or out of the ideals asked for.
    """
    behind = Range(max(before.least, behind.least), behind.most)
    before = Range(before.least, min(before.most, behind.most))
    refuted = Reach(behind.least - 1, None)
    if behind.least > behind.most or before.least > before.most:
        return refuted
    y, z = _fix(costs, before), _fix(costs, behind)
    if y is None or z is None:
        return refuted
    stays = ~costs.fits[kind]
    y = np.where(stays & (y == FREE), z, y)
    z = np.where(stays & (z == FREE), y, z)
    if settled is not None:
        y, z = joined_with(y, settled.before), joined_with(z, settled.behind)
        closed = None if y is None or z is None else close(Settled(y, z), costs.arcs)
        if closed is None:
            return refuted
        y, z = closed
    if ((y == 1) & (z == 0)).any() or (stays & (y == 0) & (z == 1)).any():
        return refuted
    rows = _Rows(costs, kind, y, z)
    form, constant, scale = rows.form(before, behind, limit)
    if form is None:
        return refuted
    found = solve_form(form, time_limit_s)
    if found.proven is None:
        return Reach(behind.most, None)
    most = constant + math.floor(Fraction(-found.proven) * scale)
    most = max(min(most, behind.most), behind.least - 1)
    if found.values is None:
        return Reach(most, None)
    return Reach(most, _parts(rows.z, found.values), _parts(rows.y, found.values))


def _fix(costs: ChainCosts, work: Range) -> Ints | None:
    """Which blocks are in all ideals of so much work (1), in none (0), or in some (`FREE`)."""
    inside = costs.after > costs.total_work - work.least
    outside = costs.before > work.most
    if (inside & outside).any():
        return None
    return np.where(inside, 1, np.where(outside, 0, FREE))


class _Rows:
    """The rows of the LP of one stage, as they are collected; fixed blocks are constants."""

    def __init__(self, costs: ChainCosts, kind: int, y: Ints, z: Ints) -> None:
        self.costs, self.kind = costs, kind
        free_y, free_z = y == FREE, z == FREE
        column = np.cumsum(np.concatenate([free_y, free_z])) - 1
        b = costs.num_blocks
        self.y = _Levels(y, np.where(free_y, column[:b], FREE))
        self.z = _Levels(z, np.where(free_z, column[b:], FREE))
        self.num_columns = int(free_y.sum() + free_z.sum())
        self.num_rows = 0
        self.row: list[Ints] = []
        self.column: list[Ints] = []
        self.value: list[Floats] = []
        self.lower: list[Floats] = []
        self.upper: list[Floats] = []

    def form(
        self, before: Range, behind: Range, limit: int
    ) -> tuple[StandardForm | None, int, int]:
        """The LP, the work of J that is fixed, and the unit of the objective.

        No LP: what is fixed is too much.
        """
        costs, kind = self.costs, self.kind
        self._orders()
        moved = self._nets()
        slack = self.num_columns
        self.num_columns += 1
        work, time = costs.work, costs.time[kind]
        parts = [moved, self._taken(time)]
        loads = parts if costs.overlap else [_sum(parts)]
        possible = True
        for columns, amounts, constant in loads:
            possible &= self._at_most(columns, amounts, limit - constant, limit, slack)
        columns, amounts, constant = self._taken(costs.need[kind])
        room = int(costs.room[kind])
        if constant + int(amounts.clip(0).sum()) > room:
            possible &= self._at_most(columns, amounts, room - constant, max(room, 1), slack)
        for levels, span in ((self.y, before), (self.z, behind)):
            columns, amounts, constant = _inside(levels, work)
            possible &= self._at_most(columns, amounts, span.most - constant, limit, slack)
            # the lower end of J only fixes blocks: it is the question
            if levels is self.y:
                possible &= self._at_most(columns, -amounts, constant - span.least, limit, slack)
        columns, amounts, constant = _inside(self.z, work)
        if not possible:
            return None, constant, limit
        cost = np.zeros(self.num_columns)
        cost[columns] = -(amounts / limit)
        cost[slack] = PENALTY
        upper = np.ones(self.num_columns)
        upper[slack] = MOST_SLACK
        from scipy import sparse  # takes 0.1 s to load

        matrix = sparse.csc_array(
            (
                np.concatenate(self.value),
                (np.concatenate(self.row), np.concatenate(self.column)),
            ),
            shape=(self.num_rows, self.num_columns),
        )
        form = StandardForm(
            variables=(),
            constraints=(),
            matrix=matrix,
            cost=cost,
            offset=0.0,
            lower=np.zeros(self.num_columns),
            upper=upper,
            is_integer=np.zeros(self.num_columns, np.bool_),
            row_lower=np.concatenate(self.lower),
            row_upper=np.concatenate(self.upper),
        )
        return form, constant, limit

    def _orders(self) -> None:
        """Y and z fall along arcs, and y <= z; the same on both sides where a block stays out."""
        tail, head = self.costs.arcs.tail, self.costs.arcs.head
        for levels in (self.y, self.z):
            self._falls((levels, tail), (levels, head))
        every = np.arange(self.costs.num_blocks)
        self._falls((self.z, every), (self.y, every))
        stays = np.flatnonzero(~self.costs.fits[self.kind])
        self._falls((self.y, stays), (self.z, stays))

    def _falls(self, larger: tuple[_Levels, Ints], smaller: tuple[_Levels, Ints]) -> None:
        """Rows larger - smaller >= 0, where they are not clear."""
        (up, at), (down, of) = larger, smaller
        open_ = (up.fixed[at] != 1) & (down.fixed[of] != 0)
        at, of = at[open_], of[open_]
        columns = np.stack([up.column[at], down.column[of]], axis=1)
        constant = np.maximum(up.fixed[at], 0) - np.maximum(down.fixed[of], 0)
        self._add(columns, np.broadcast_to(np.array([1.0, -1.0]), columns.shape), -constant, np.inf)

    def _nets(self) -> tuple[Ints, Ints, int]:
        """Columns for the largest and the least x of each net that may be cut: what they cost."""
        costs, y, z = self.costs, self.y, self.z
        weight, pin = costs.weight[self.kind], costs.pin
        sizes = np.diff(costs.net_ptr)
        net = np.repeat(np.arange(len(sizes)), sizes)
        known = (y.fixed != FREE) & (z.fixed != FREE)
        x = np.where(known, z.fixed - y.fixed, FREE)
        is_in, is_out, is_open = (np.zeros(len(sizes), np.bool_) for _ in range(3))
        is_in[net[x[pin] == 1]] = True
        is_out[net[x[pin] == 0]] = True
        is_open[net[x[pin] == FREE]] = True
        certain = is_in & is_out
        varies = is_open & ~certain & (weight > 0)
        constant = int(weight[certain].sum())
        columns, amounts = [], []
        for settled, sign in ((is_in, 1), (is_out, -1)):
            # the largest x is 1 if a pin is in for certain, the least 0 if one is out
            constant += int(weight[varies & settled].sum()) if sign > 0 else 0
            chosen = varies & ~settled
            column = np.full(len(sizes), FREE)
            column[chosen] = self.num_columns + np.arange(int(chosen.sum()))
            self.num_columns += int(chosen.sum())
            at = np.flatnonzero(chosen[net])
            v, own = pin[at], column[net[at]]
            both = np.stack([own, z.column[v], y.column[v]], axis=1)
            amount = sign * np.array([1.0, -1.0, 1.0])
            fixed = np.maximum(z.fixed[v], 0) - np.maximum(y.fixed[v], 0)
            self._add(both, np.broadcast_to(amount, both.shape), sign * fixed, np.inf)
            columns.append(column[chosen])
            amounts.append(sign * weight[chosen])
        return np.concatenate(columns), np.concatenate(amounts), constant

    def _taken(self, amount: Ints) -> tuple[Ints, Ints, int]:
        """The sum of an amount over S: columns, coefficients, constant."""
        (to, more, late), (of, less, soon) = _inside(self.z, amount), _inside(self.y, amount)
        return np.concatenate([to, of]), np.concatenate([more, -less]), late - soon

    def _at_most(self, columns: Ints, amounts: Ints, most: int, unit: int, slack: int) -> bool:
        """A row of integers, in parts of a unit; whether it can hold at all."""
        kept = amounts != 0
        columns, amounts = columns[kept], amounts[kept]
        least = int(amounts.clip(max=0).sum())
        if least > most:
            return False
        if int(amounts.clip(0).sum()) <= most:
            return True
        value = np.append(amounts / unit, -1.0)
        self.row.append(np.full(len(value), self.num_rows))
        self.column.append(np.append(columns, slack))
        self.value.append(value)
        self.lower.append(np.array([-np.inf]))
        self.upper.append(np.array([most / unit]))
        self.num_rows += 1
        return True

    def _add(self, columns: Ints, values: Floats, lower: Ints, upper: float) -> None:
        """Rows of few columns each; column `FREE` stands for a constant and is left out."""
        row = self.num_rows + np.repeat(np.arange(len(columns)), columns.shape[1])
        kept = columns.ravel() != FREE
        self.row.append(row[kept])
        self.column.append(columns.ravel()[kept])
        self.value.append(values.ravel()[kept])
        self.lower.append(lower.astype(np.float64))
        self.upper.append(np.full(len(columns), upper))
        self.num_rows += len(columns)


def _inside(levels: _Levels, amount: Ints) -> tuple[Ints, Ints, int]:
    """The sum of an amount over an ideal: columns, coefficients, constant."""
    free = np.flatnonzero(levels.column >= 0)
    return levels.column[free], amount[free], int(amount[levels.fixed == 1].sum())


def _parts(levels: _Levels, values: Floats) -> Floats:
    """How much of each block an LP's solution has in an ideal."""
    found = np.where(levels.fixed == FREE, 0.0, levels.fixed).astype(np.float64)
    found[levels.column >= 0] = values[levels.column[levels.column >= 0]]
    return found


def _sum(parts: list[tuple[Ints, Ints, int]]) -> tuple[Ints, Ints, int]:
    columns, amounts, constants = zip(*parts, strict=True)
    return np.concatenate(columns), np.concatenate(amounts), sum(constants)
