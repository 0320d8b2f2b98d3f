"""Only the referee's value is reported, disagreement is loud; and what a method starts from."""

import pytest

from placegap.instances import Makespan, MaxLoad, Plan, Semantics, evaluate, example
from placegap.solvers import Limits, SolverDisagreement, Task, run_method
from placegap.solvers.core.result import Bound, Outcome, Result, finish, no_plan
from placegap.solvers.core.starts import best_start

MAKESPAN = Makespan()
CHAIN = MaxLoad(plans="chain")
BEST = Plan.on([0, 1, 0, 0])  # 35 (FD-DPS, figure 3)


def judge(outcome: Outcome, semantics: Semantics = MAKESPAN, gap: float = 0.0) -> Result:
    return finish(example(), semantics, "test", outcome, solve_s=0.0, requested_gap=gap)


def test_value_equal_to_bound_is_optimal() -> None:
    result = judge(Outcome(plan=BEST, bound=Bound(35)))
    assert (result.status, result.value_ns, result.gap) == ("optimal", 35, 0.0)


def test_a_gap_as_requested_is_named_so() -> None:
    assert judge(Outcome(plan=BEST, bound=Bound(28)), gap=0.2).status == "gap_met"
    assert judge(Outcome(plan=BEST, bound=Bound(27)), gap=0.2).status == "feasible"


def test_without_a_bound_there_is_no_gap() -> None:
    result = judge(Outcome(plan=BEST))
    assert (result.status, result.bound_ns, result.gap) == ("feasible", None, None)


@pytest.mark.parametrize(
    ("outcome", "semantics", "words"),
    [
        (Outcome(BEST, claim=34), MAKESPAN, "claims 34, the referee finds 35"),
        (Outcome(BEST, bound=Bound(36)), MAKESPAN, "better than 36 ns"),
        (Outcome(BEST, bound=no_plan()), MAKESPAN, "no plan exists"),
        (Outcome(Plan.on([0, 1, 1, 0]), claim=99), CHAIN, "chain"),
        (Outcome(BEST, bound=Bound(1, plan_class="chain")), MaxLoad(plans="any"), "does not hold"),
    ],
)
def test_what_the_referee_or_a_plan_refutes_is_a_disagreement(
    outcome: Outcome, semantics: Semantics, words: str
) -> None:
    with pytest.raises(SolverDisagreement, match=words):
        judge(outcome, semantics)


def test_a_claim_worse_than_the_referee_finds_is_not() -> None:
    assert judge(Outcome(plan=BEST, claim=36)).value_ns == 35


def test_a_heuristics_plan_that_breaks_a_rule_is_no_plan() -> None:
    result = judge(Outcome(plan=Plan.on([0, 1, 1, 0])), CHAIN)
    assert (result.status, result.plan, result.value_ns) == ("no_plan", None, None)
    assert "chain" in result.message


def test_proven_infeasibility_is_told_from_finding_nothing() -> None:
    assert judge(Outcome(bound=no_plan())).status == "infeasible"
    assert judge(Outcome(message="time limit")).status == "no_plan"


# ----------------------------------------------------------------------------------------- starts


def test_the_best_of_incumbent_and_methods_is_taken() -> None:
    poor = Plan.on([0, 0, 1, 0])  # 53 ns; one device alone takes 43
    task = Task(example(), MAKESPAN, incumbent=poor)
    assert best_start(task, []) == (poor, 53)
    start = best_start(task, ["single-device"])
    assert start.value == 43
    assert start.plan.devices.tolist() in ([0] * 4, [1] * 4)


def test_a_plan_that_breaks_a_rule_is_no_start() -> None:
    too_short = Plan.on([0])
    assert best_start(Task(example(), MAKESPAN, incumbent=too_short), []) is None


def test_without_plans_there_is_no_start() -> None:
    assert best_start(Task(example(), MAKESPAN), []) is None


def test_chains_serve_where_any_plan_does() -> None:
    instance = example()
    chain = MaxLoad(plans="chain")
    best = run_method(instance, chain, "ideal-dp").value_ns
    start = best_start(Task(instance, MaxLoad(plans="any"), Limits(time_limit_s=10)), ["ideal-dp"])
    assert start.value == best == evaluate(instance, start.plan, MaxLoad(plans="any")).value_ns
    assert best_start(Task(instance, MAKESPAN), ["ideal-dp"]) is None
