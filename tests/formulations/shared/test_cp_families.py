"""Rows of small numbers say exactly what rows of large ones would; large ones are refused."""

import itertools
import random
from collections.abc import Callable, Sequence

import pytest
from ortools.sat.python import cp_model

from placegap.formulations.shared.cp_families import (
    LARGEST_ACTIVITY,
    MOST_UNITS,
    Derived,
    RowTooLarge,
    Term,
    at_most,
    hint_derived,
    refuse_large_rows,
)


def fits(sizes: Sequence[int], limit: int, taken: Sequence[int]) -> bool:
    """Whether the rows of `at_most` allow a choice."""
    cp = cp_model.CpModel()
    x = [cp.new_bool_var(f"x{i}") for i in range(len(sizes))]
    at_most(cp, [Term(size, literal) for size, literal in zip(sizes, x, strict=True)], limit)
    refuse_large_rows(cp)
    for literal, value in zip(x, taken, strict=True):
        cp.add(literal == value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return bool(solver.solve(cp) == cp_model.OPTIMAL)


@pytest.mark.parametrize("bits", [3, 29, 31, 32, 33, 62])
def test_sums_are_limited_to_the_unit_at_any_size(bits: int) -> None:
    rng = random.Random(bits)
    sizes = [rng.randrange(1, 2**bits) for _ in range(4)]
    for limit in (sum(sizes[:3]) - 1, sum(sizes[:3]), rng.randrange(2**bits)):
        for taken in itertools.product((0, 1), repeat=4):
            total = sum(size for size, value in zip(sizes, taken, strict=True) if value)
            assert fits(sizes, limit, taken) == (total <= limit)


@pytest.mark.parametrize("total", [2**20, 2**32, 2**45])
def test_a_variable_may_be_the_limit(total: int) -> None:
    # the least limit that the first two of three terms allow is their sum
    parts = [total // 5, total // 3 + 1, total]
    most = min(total, MOST_UNITS)
    cp = cp_model.CpModel()
    limit = cp.new_int_var(0, most, "limit")
    x = [cp.new_bool_var(f"x{i}") for i in range(3)]
    terms = [Term(part, literal) for part, literal in zip(parts, x, strict=True)]
    derived = at_most(cp, terms, limit)
    refuse_large_rows(cp)
    cp.minimize(limit)
    taken = [i for i in (0, 1) if sum(parts[: i + 1]) <= most]
    for i, literal in enumerate(x):
        cp.add(literal == int(i in taken))
    solver = cp_model.CpSolver()
    assert solver.solve(cp) == cp_model.OPTIMAL
    assert solver.value(limit) == sum(parts[i] for i in taken)
    assert (len(derived) > 0) == (sum(parts) > LARGEST_ACTIVITY)


def test_what_follows_is_hinted_to_a_solution() -> None:
    rng = random.Random(3)
    sizes = [rng.randrange(2**58) for _ in range(12)]
    cp = cp_model.CpModel()
    x = [cp.new_bool_var(f"x{i}") for i in range(12)]
    derived: list[Derived] = at_most(
        cp, [Term(size, literal) for size, literal in zip(sizes, x, strict=True)], sum(sizes[::2])
    )
    for i, literal in enumerate(x):
        cp.add_hint(literal, int(i % 2 == 0))
    hint_derived(cp, derived)
    solver = cp_model.CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    assert len(cp.proto.solution_hint.vars) == len(cp.proto.variables)
    assert solver.solve(cp) == cp_model.OPTIMAL


LARGEST, PART = LARGEST_ACTIVITY, LARGEST_ACTIVITY // 4 + 1
TOO_LARGE: dict[str, Callable[[cp_model.CpModel], object]] = {
    "coefficient": lambda cp: cp.add((LARGEST + 1) * cp.new_bool_var("x") <= 5),
    "negative": lambda cp: cp.add(
        cp.new_bool_var("x") - LARGEST // 2 * cp.new_int_var(0, 3, "y") <= 5
    ),
    "sum": lambda cp: cp.add(sum(PART * cp.new_bool_var(f"x{i}") for i in range(4)) <= PART),
    "range": lambda cp: cp.add(cp.new_int_var(0, 2**40, "y") >= 1),
    "objective": lambda cp: cp.minimize(2**40 * cp.new_bool_var("x")),
    "interval": lambda cp: cp.add_no_overlap(
        [cp.new_fixed_size_interval_var(cp.new_int_var(0, LARGEST, "start"), 2, "late")]
    ),
    "other kind": lambda cp: cp.add_multiplication_equality(
        cp.new_int_var(0, 9, "p"), [cp.new_int_var(0, 3, "a")] * 2
    ),
}


@pytest.mark.parametrize("spoiled", TOO_LARGE)
def test_a_model_that_may_pass_the_cap_is_refused(spoiled: str) -> None:
    cp = cp_model.CpModel()
    cp.add(cp.new_int_var(0, LARGEST, "y") >= cp.new_bool_var("x"))
    refuse_large_rows(cp)
    TOO_LARGE[spoiled](cp)
    with pytest.raises(RowTooLarge, match=r"can reach|not checked"):
        refuse_large_rows(cp)
