"""What the corpus records is a bound, until something contradicts it."""

from __future__ import annotations

import pytest

from placegap.instances import BestKnown, Instance, Makespan, Plan, example
from placegap.instances.problem import Semantics
from placegap.solvers import run_method
from placegap.solvers.core.result import Outcome, fault_words, finish
from placegap.solvers.solving import known_bounds
from placegap.solvers.solving.known_bounds import with_known_bound

BEST = Plan.on([0, 1, 0, 0])
"""35 ns; the optimum of the diamond is 34 (brute force), and paths prove 33."""


def record(monkeypatch: pytest.MonkeyPatch, **known: int | str) -> None:
    best = BestKnown.model_validate({"semantics": Makespan(), **known})

    def of(instance: Instance, semantics: Semantics) -> tuple[BestKnown, ...]:
        return (best,) if semantics == Makespan() else ()

    monkeypatch.setattr(known_bounds, "known_of", of)


def test_a_recorded_bound_makes_a_plan_of_its_value_optimal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = finish(example(), Makespan(), "mine", Outcome(BEST), solve_s=0.0)
    record(monkeypatch, bound_ns=35, bound_origin="by hand")
    assert with_known_bound(example(), found).status == "optimal"


def test_a_recorded_bound_that_a_plan_refutes_is_no_fault_of_a_solver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record(monkeypatch, bound_ns=35, bound_origin="by hand")
    found = with_known_bound(example(), run_method(example(), Makespan(), "brute-force"))
    assert (found.status, found.bound_ns, found.bound_origin) == ("optimal", 34, "brute-force")
    (fault,) = found.faults
    assert fault_words(fault).startswith("recorded: by hand: claims that no plan is better than 35")


def test_a_recorded_value_refutes_a_proof_of_more(monkeypatch: pytest.MonkeyPatch) -> None:
    # were there a plan of 33 ns, whoever has proven 34 would be wrong, and paths would not
    record(monkeypatch, value_ns=33)
    found = with_known_bound(example(), run_method(example(), Makespan(), "brute-force"))
    assert (found.status, found.value_ns, found.bound_ns) == ("feasible", 34, 33)
    assert found.gap == 1 / 34
    (fault,) = found.faults
    assert "no plan is better than 34 ns, and the corpus records one of 33 ns" in fault


def test_what_an_instance_s_file_states_is_none_of_the_corpus() -> None:
    said = BestKnown(semantics=Makespan(), value_ns=1, bound_ns=35, rests_on="proof")
    claimed = example().model_copy(update={"best_known": (said,)})
    found = finish(claimed, Makespan(), "mine", Outcome(BEST), solve_s=0.0)
    known = with_known_bound(claimed, found)
    assert (known.status, known.bound_ns, known.faults) == ("feasible", 33, ())
