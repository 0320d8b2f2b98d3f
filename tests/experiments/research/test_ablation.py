"""The ablation: every part that it leaves out is there, is left out, and comes back."""

from __future__ import annotations

from typing import cast

import pytest

from placegap.experiments.research.ablation import CONFIG, PARTS, left_out, moved
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.gaps import GapCell
from placegap.experiments.studies.plan import Cell
from placegap.instances import Makespan, example
from placegap.solvers import METHODS, Limits, Task
from placegap.solvers.core.starts import cheapest_first
from placegap.solvers.solving.steps import plans, proofs


@pytest.mark.parametrize("part", PARTS)
def test_what_a_part_names_exists_and_comes_back(part: str) -> None:
    without, task = PARTS[part], Task(example(), Makespan(), Limits(60.0))
    assert {*without.placers, *without.methods} <= set(METHODS)
    before = list(cheapest_first(task)), [step.method for step in proofs(task)]
    with left_out(without):  # a function that is not there raises
        asked = {name for name, _ in cheapest_first(task)} | {s.method for s in proofs(task)}
        assert not asked & {*without.placers, *without.methods}
    assert (list(cheapest_first(task)), [step.method for step in proofs(task)]) == before


def test_without_searches_nothing_looks_for_plans() -> None:
    with left_out(PARTS["searches"]):
        assert list(plans(Task(example(), Makespan(), Limits(60.0)), 0)) == []


def test_the_study_asks_for_parts_that_there_are() -> None:
    asked = {method.name for row in load_study(CONFIG).tables for method in row.methods}
    assert asked - {"auto"} == {f"auto-without-{part}" for part in PARTS}


def ended(status: str, value_ns: int, bound_ns: int, solve_s: float) -> GapCell:
    where = cast("Cell", None)
    return GapCell(where, status, value_ns, bound_ns, build_s=0.0, solve_s=solve_s)


def test_a_part_moves_value_and_bound_and_the_time_of_a_proof_that_takes_long() -> None:
    whole = ended("optimal", 200, 200, 2.0)
    assert moved(whole, ended("optimal", 200, 200, 3.0)) == (0.0, 0.0, 0.5)
    assert moved(whole, ended("feasible", 202, 150, 10.0)) == (pytest.approx(0.01), 0.25, 0.0)
    soon = ended("optimal", 200, 200, 0.2)
    assert moved(soon, ended("optimal", 200, 200, 0.9)) == (0.0, 0.0, 0.0)  # too short to tell
