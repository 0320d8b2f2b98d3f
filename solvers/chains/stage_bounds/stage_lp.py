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
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy import sparse

from placegap.instances.problem.array_types import Floats, Ints
from placegap.solvers.chains.stage_lp import FREE, ChainCosts, Settled, close, joined_with
from placegap.solvers.core.back_ends.highs import solve_form
from placegap.solvers.core.back_ends.standard_form import StandardForm

PENALTY = 50.0
"""Price of a slack of the size of T, in T: above what a ns of load is worth in ns of work."""

MOST_SLACK = 1000.0
"""In T. Real stages have none at all."""


class Range(NamedTuple):
    """Least and most work of an ideal."""

    least: int
    most: int


class Reach(NamedTuple):
    """How far a stage can come.

    Attributes
    ----------
    most : int
        No ideal behind the stage has more work; below the range asked for: there is none in it.
    behind, before : (b,) float64 or None
        Of each block, how much of it the LP has in the ideals behind the stage and before it.
    """

    most: int
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
    costs : ChainCosts
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
