"""Parts that the CP-SAT models share: rows of small numbers only, and a check of the whole model.

CP-SAT 9.15 adds coefficients of Boolean terms in 32 bits in a part of its presolve
(google/or-tools issue 5293), and then proves wrong optima. So rows must stay far below: sums of
large numbers are stated digit by digit, and `refuse_large_rows` checks the finished model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from placegap.formulations.shared import NO_SOLUTION
from placegap.formulations.shared.or_tools import cp_model
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance, Semantics
from placegap.instances.problem.integers import ceil_div
from placegap.instances.reading.errors import InputError

Literal = cp_model.IntVar  # a Boolean variable
Expression = cp_model.LinearExpr | cp_model.IntVar
Values = Callable[[Expression], int]  # the value of a variable or expression in a solution

# Largest absolute value that a linear expression of a model may reach. CP-SAT was right on all
# models within it, and wrong on some from twice as much on: presolve sometimes adds two rows.
LARGEST_ACTIVITY = 2**30
DIGIT_BITS = 16  # of a variable that `at_most` splits: the largest digit stays within the cap
MOST_UNITS = LARGEST_ACTIVITY - 2**DIGIT_BITS  # of a time, and of a sum of times in a row


class RowTooLarge(ValueError):
    """A model has a row whose coefficients times ranges pass `LARGEST_ACTIVITY`."""


@dataclass(frozen=True)
class Derived:
    """A variable of a model that follows from others."""

    variable: cp_model.IntVar
    #: Values of variables, by index -> its value.
    value: Callable[[Mapping[int, int]], int]


@dataclass(kw_only=True)
class CpModel:
    """What every constraint program of an instance has, beside its variables.

    Its module has the verbs of all models: `build`, `warm_start`, and `extract` after `solve`.
    """

    cp: cp_model.CpModel
    instance: Instance
    semantics: Semantics
    #: No plan of the model takes longer.
    horizon_ns: int
    #: All times of the model are in this unit.
    unit_ns: int
    #: Whether every time is a multiple of the unit; otherwise times are rounded down.
    exact: bool
    #: What is minimized, in units.
    objective: cp_model.IntVar
    #: Variables that follow from the others.
    derived: list[Derived] = field(default_factory=list)
    #: The values in the solution of the last `solve`, if it has found any.
    values: Values | None = None

    def solve(
        self, solver: cp_model.CpSolver, *callbacks: cp_model.CpSolverSolutionCallback
    ) -> cp_model.CpSolverStatus:
        """Run a solver and return its status. It must run nothing else before `extract`."""
        self.values = None  # a solver without a solution returns numbers as well
        status = solver.solve(self.cp, *callbacks)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            self.values = solver.value
        return status


@dataclass(frozen=True)
class Term:
    """Coefficient times variable, which is at least 0 and at most `most`."""

    coefficient: int
    variable: cp_model.IntVar
    most: int = 1


def memory_capacity(
    cp: cp_model.CpModel, instance: Instance, x: Sequence[Mapping[int, cp_model.IntVar]]
) -> list[Derived]:
    """Sum over i of m_i x[i, k] <= M_k, to the byte: `at_most`, in units of the sizes' gcd."""
    # Ops of one literal count together. A literal that exceeds a device alone is false.
    size, derived = instance.arrays.resident_bytes.tolist(), list[Derived]()
    for k, limit in enumerate(instance.arrays.memory_bytes.tolist()):
        held, literal = dict[int, int](), dict[int, cp_model.IntVar]()
        for i, row in enumerate(x):
            if k in row:
                literal[row[k].index] = row[k]
                held[row[k].index] = held.get(row[k].index, 0) + size[i]
        for index, total in held.items():
            if total > limit:
                cp.add_bool_or([literal[index].negated()])
        fitting = {index: total for index, total in held.items() if 0 < total <= limit}
        if sum(fitting.values()) > limit:
            unit = math.gcd(*fitting.values())
            terms = [Term(total // unit, literal[index]) for index, total in fitting.items()]
            derived += at_most(cp, terms, limit // unit)
    return derived


def at_most(
    cp: cp_model.CpModel, terms: Sequence[Term], limit: int | cp_model.IntVar
) -> list[Derived]:
    """Sum of terms <= limit, exactly, in rows within `LARGEST_ACTIVITY`; returns new variables."""
    # Coefficients and limit are at least 0; a limit that is a variable is at most `MOST_UNITS`.
    # A sum of numbers a = low + B high is at most r + B q if and only if some carry c >= 0 has
    # sum low <= r + B c and sum high + c <= q: c is the excess of the low parts over r, in units of
    # B, rounded up. The second row is split again if its numbers are still too large. By hand, with
    # B = 10: 17 + 25 <= 43, as 7 + 5 <= 3 + 10 c with c = 1, and 1 + 2 + 1 <= 4.
    terms = [term for term in terms if term.coefficient]
    if sum(term.coefficient * term.most for term in terms) <= LARGEST_ACTIVITY:
        cp.add(_sum(terms) <= limit)
        return []
    width = _digit_bits(terms)
    if not isinstance(limit, int):
        width = min(width, DIGIT_BITS)
    base = 1 << width
    low = [Term(t.coefficient % base, t.variable, t.most) for t in terms if t.coefficient % base]
    high = [Term(t.coefficient >> width, t.variable, t.most) for t in terms]
    derived: list[Derived] = []
    quotient: int | cp_model.IntVar
    remainder: int | cp_model.IntVar
    if isinstance(limit, int):
        quotient, remainder = divmod(limit, base)
    else:
        quotient = cp.new_int_var(0, MOST_UNITS >> width, "")
        remainder = cp.new_int_var(0, base - 1, "")
        cp.add(base * quotient + remainder == limit)
        at = limit.index
        derived.append(Derived(quotient, lambda value: value[at] >> width))
        derived.append(Derived(remainder, lambda value: value[at] % base))
    least = remainder if isinstance(remainder, int) else 0
    most = ceil_div(max(0, sum(t.coefficient * t.most for t in low) - least), base)
    if most:
        carry = cp.new_int_var(0, most, "")
        cp.add(_sum(low) <= remainder + base * carry)
        derived.append(Derived(carry, lambda value: _carried(low, remainder, base, value)))
        high.append(Term(1, carry, most))
    return derived + at_most(cp, high, quotient)


def _digit_bits(terms: Sequence[Term]) -> int:
    """Bits of the lowest digit, for the least number of digits of about equal size."""
    count = sum(term.most for term in terms)
    excess = 1
    while sum((t.coefficient >> excess) * t.most for t in terms) + count + 1 > LARGEST_ACTIVITY:
        excess += 1
    widest = (LARGEST_ACTIVITY // (count + 2)).bit_length() - 1
    return ceil_div(excess, ceil_div(excess, widest))


def _carried(
    low: Sequence[Term], remainder: int | cp_model.IntVar, base: int, value: Mapping[int, int]
) -> int:
    total = sum(term.coefficient * value[term.variable.index] for term in low)
    room = remainder if isinstance(remainder, int) else value[remainder.index]
    return ceil_div(max(0, total - room), base)


def _sum(terms: Sequence[Term]) -> cp_model.LinearExpr:
    total: cp_model.LinearExpr = cp_model.LinearExpr.weighted_sum(
        [term.variable for term in terms], [term.coefficient for term in terms]
    )
    return total


def by_device(x: Mapping[int, cp_model.IntVar], table: Ints) -> cp_model.LinearExpr:
    """Sum over k of table[k] x[k], exactly one of which is 1: the least entry and the excess."""
    # Coefficients are smaller without the least entry, and the row's reach with them.
    least = min((int(table[k]) for k in x), default=0)
    return least + _sum([Term(int(table[k]) - least, literal) for k, literal in x.items()])


def require_solution(model: CpModel, instance: Instance) -> Values:
    """The values in a model's solution; an InputError if it has none of the instance."""
    if [op.name for op in model.instance.graph.ops] != [op.name for op in instance.graph.ops]:
        raise InputError(f"the model is not of {instance.name}: its ops are others")
    if model.values is None:
        raise InputError(NO_SOLUTION)
    return model.values


def placed(x: Iterable[Mapping[int, cp_model.IntVar]], value: Values) -> list[int]:
    """The device of each op in a solution."""
    return [next(k for k, literal in row.items() if value(literal)) for row in x]


def largest_spread(table: Ints, possible: Flags) -> int:
    """The largest sum of coefficients in `by_device`, over the rows of a table."""
    least = np.where(possible, table, table.max()).min(axis=1, keepdims=True)
    above = np.where(possible, table - least, 0).astype(object)  # K of them may pass 2**63
    return int(above.sum(axis=1).max())


def hint_derived(cp: cp_model.CpModel, derived: Sequence[Derived]) -> None:
    """Hint variables that follow from others, which are hinted already."""
    if derived:
        hint = cp.proto.solution_hint
        value = dict(zip(hint.vars, hint.values, strict=True))
        for part in derived:
            value[part.variable.index] = part.value(value)
            cp.add_hint(part.variable, value[part.variable.index])


def refuse_large_rows(cp: cp_model.CpModel) -> None:
    """Raise `RowTooLarge` if an expression of the model can pass `LARGEST_ACTIVITY`."""
    # Rows, intervals and the objective are checked, and other kinds of constraints refused; O(size
    # of the model).
    proto = cp.proto
    domain = [(min(v.domain), max(v.domain)) for v in proto.variables]

    def check(name: str, variables: Iterable[int], factors: Iterable[int], offset: int) -> None:
        above = below = offset
        for at, coefficient in zip(variables, factors, strict=True):
            low, high = domain[at]
            if coefficient < 0:
                low, high = high, low
            above += max(0, coefficient * high)
            below += min(0, coefficient * low)
        reach = max(above, -below)
        if reach > LARGEST_ACTIVITY:
            raise RowTooLarge(f"{name} can reach {reach}, above {LARGEST_ACTIVITY}")

    for number, row in enumerate(proto.constraints):
        if row.has_linear():
            check(f"row {number}", row.linear.vars, row.linear.coeffs, 0)
        elif row.has_interval():
            for part in (row.interval.start, row.interval.size, row.interval.end):
                check(f"interval {number}", part.vars, part.coeffs, part.offset)
        elif not (
            row.has_bool_or()
            or row.has_bool_and()
            or row.has_exactly_one()
            or row.has_at_most_one()
            or row.has_no_overlap()
        ):
            raise RowTooLarge(f"row {number} is of a kind that is not checked")
    objective = proto.objective
    check("the objective", objective.vars, objective.coeffs, 0)
