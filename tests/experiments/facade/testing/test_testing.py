"""The package as an oracle for the tests of others."""

import re
import sys

import pytest

import placegap
from placegap.instances import Makespan, MaxLoad, Plan, example
from placegap.instances.corpus.corpus import load_best_known
from placegap.solvers import run_method
from placegap.solvers.core.result import Outcome
from placegap.testing import KnownOptimum, assert_gap, known_optima, prove_optimum

CONFTEST = 'pytest_plugins = ["placegap.testing.fixtures"]\n'

SUITE = """
from placegap.testing import assert_gap

def test_all_ops_on_the_first_device(proven_optimum):
    assert_gap(proven_optimum, [0] * proven_optimum.instance.num_ops, at_most=0.9)

def test_one_stage(proven_chain):
    assert_gap(proven_chain, [0] * proven_chain.instance.num_ops, at_most=0.0)
"""


@pytest.fixture(scope="module")
def problem() -> KnownOptimum:
    return next(known_optima(Makespan(), max_ops=50))


def test_the_plan_of_a_placer_passes_where_it_is_close_enough(problem: KnownOptimum) -> None:
    found = run_method(problem.instance, problem.semantics, "etf")
    assert found.plan is not None
    assert found.value_ns is not None
    gap = (found.value_ns - problem.optimum_ns) / found.value_ns
    assert_gap(problem, found.plan, at_most=gap)
    if gap > 0:
        with pytest.raises(AssertionError, match="above the optimum"):
            assert_gap(problem, found.plan, at_most=0.99 * gap)


def test_an_infeasible_plan_fails_with_the_rule_that_it_breaks(problem: KnownOptimum) -> None:
    with pytest.raises(AssertionError, match="not feasible: shape"):
        assert_gap(problem, [0], at_most=1.0)


def test_a_result_without_a_plan_fails_with_its_message(problem: KnownOptimum) -> None:
    cluster = problem.instance.cluster
    devices = tuple(d.model_copy(update={"memory_bytes": 1}) for d in cluster.devices)
    small = problem.instance.model_copy(
        update={"cluster": cluster.model_copy(update={"devices": devices})}
    )
    result = run_method(small, problem.semantics, "etf")
    assert result.plan is None
    assert "memory" in result.message
    tight = KnownOptimum(small, problem.semantics, problem.optimum_ns)
    solution = placegap.solve(small, objective=problem.semantics, method="etf")
    for given, message in ((result, result.message), (solution, solution.result.message)):
        with pytest.raises(AssertionError, match=re.escape(message)):
            assert_gap(tight, given, at_most=1.0)
    with pytest.raises(AssertionError, match="my placer"):
        assert_gap(tight, Outcome(message="my placer gave up"), at_most=1.0)
    with pytest.raises(AssertionError, match="None"):
        assert_gap(tight, result.plan, at_most=1.0)
    assert_gap(problem, run_method(problem.instance, problem.semantics, "etf"), at_most=1.0)


def test_an_optimum_that_a_plan_undercuts_is_reported(problem: KnownOptimum) -> None:
    wrong = KnownOptimum(problem.instance, problem.semantics, 2 * problem.optimum_ns + 10**9)
    with pytest.raises(AssertionError, match="please report"):
        assert_gap(wrong, Plan.on([0] * problem.instance.num_ops), at_most=1.0)


def test_only_proven_values_of_small_graphs_are_given() -> None:
    for semantics in (Makespan(), MaxLoad(plans="chain")):
        found = list(known_optima(semantics, max_ops=25))
        assert found
        assert all(problem.instance.num_ops <= 25 for problem in found)
        assert all(problem.semantics == semantics for problem in found)


def test_an_exact_method_proves_the_optimum_of_an_instance_of_ones_own() -> None:
    found = prove_optimum(example(), Makespan(), "brute-force")
    assert found.optimum_ns == 34  # instances/problem/example.py derives it
    assert_gap(found, [0] * 4, at_most=(43 - 34) / 43)  # 5 + 20 + 10 + 8 on one device


def test_the_fixtures_serve_another_suite(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [best for best in load_best_known() if best.graph in ("squeezenet", "zfnet512")]
    monkeypatch.setattr("placegap.testing.load_best_known", lambda: known)
    monkeypatch.delitem(sys.modules, "placegap.testing.fixtures", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(SUITE)
    result = pytester.runpytest("-p", "no:cacheprovider", "-q")
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] >= 4  # one device is often enough for a small graph
    assert set(outcomes) <= {"passed", "failed", "warnings"}
    result.stdout.fnmatch_lines(["*test_one_stage*squeezenet@celeritas-4xV100-pcie*"])
