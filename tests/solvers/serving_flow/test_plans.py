"""Plans of serving_flow: Helix's released inputs, and the rules of other systems."""

from __future__ import annotations

import pytest
from references.serving_bounds import needs_helix, pair, released

from placegap.instances import Provenance, ServingFlow, evaluate
from placegap.instances.importers.serving import as_document
from placegap.instances.objectives.flow.referee import ranges_of
from placegap.instances.problem.flow_problem import FlowProblem, Machine, Range
from placegap.solvers import run_method
from placegap.solvers.serving_flow.flow import flow_of, machines_of
from placegap.solvers.serving_flow.rules import petals_ranges, swarm_ranges

RULES = ServingFlow()


@needs_helix
@pytest.mark.parametrize("name", ["single-24", "a100-4", "t4-12", "regions-24"])
def test_released_inputs_are_solved(name: str) -> None:
    result = run_method(released(name), RULES, "auto", time_limit_s=60)
    assert result.status == "optimal"


@needs_helix
def test_seven_kinds_are_nearly_solved() -> None:
    result = run_method(released("kinds-42"), RULES, "auto", time_limit_s=60, gap=0.015)
    assert result.gap is not None
    assert result.gap <= 0.015


@needs_helix
@pytest.mark.parametrize(
    ("name", "tokens"), [("single-24", 757.853), ("kinds-42", 4892.242), ("regions-24", 616.455)]
)
def test_swarm_s_rule_gives_the_plans_of_helix_s_authors(name: str, tokens: float) -> None:
    problem = released(name).flow_problem
    found = flow_of(machines_of(problem), swarm_ranges(problem))
    assert found / 1e6 == pytest.approx(tokens, abs=1e-3)


def test_petals_rule_fills_what_is_passed_least() -> None:
    machines = tuple(Machine(name, "one") for name in "abc")
    # a holds layers 0 and 1, b the last one and the first one before it of least rate, c what a has
    found = petals_ranges(FlowProblem(4, machines, {"one": (10, 6)}, {}))
    assert found == (Range(0, 2), Range(2, 2), Range(0, 2))


@pytest.mark.parametrize("method", ["flow-row", "flow-blocks", "flow-moves", "serving-flow"])
def test_two_machines_in_a_row(method: str) -> None:
    instance = as_document(pair(5), "pair", Provenance(), "pair").instance()
    result = run_method(instance, RULES, method, time_limit_s=20)
    assert result.value == 5  # what the link passes
    assert result.plan is not None
    assert evaluate(instance, result.plan, RULES).value == 5
    assert sorted(filter(None, ranges_of(instance, result.plan))) == [(0, 1), (1, 1)]
