"""Who is asked for a second opinion, and what the answer says about the first result."""

from __future__ import annotations

from dataclasses import replace

import pytest
from references.agreement import little
from references.brute_force import (
    FWD_BWD_SEMANTICS,
    LATENCY_SEMANTICS,
    MAKESPAN_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    STAGE_SEMANTICS,
    makespan_draws,
    max_load_draws,
    stage_draws,
)

from placegap.instances import Instance, Makespan, MaxLoad, Plan, Semantics, example
from placegap.instances.corpus.generate import generate
from placegap.solvers import METHODS, Result, run_method
from placegap.solvers.core.method import ExactParams
from placegap.solvers.core.result import Bound, Outcome, carry_bound, finish, no_plan
from placegap.solvers.solving.second_opinion import (
    ASKED,
    Opinion,
    compare,
    second_methods,
)

MAKESPAN = Makespan()
CHAIN = MaxLoad(plans="chain")
BEST = Plan.on([0, 1, 0, 0])  # 35 (FD-DPS, figure 3)


def ask_about(instance: Instance, semantics: Semantics, first: Result) -> Opinion:
    """What the first of the methods that can check a result says of it."""
    name, params = next(second_methods(instance, semantics, first.method))
    second = run_method(instance, semantics, name, params, time_limit_s=10, incumbent=first.plan)
    return compare(first, second)


def judged(method: str, **fields: object) -> Result:
    """A result on the diamond."""
    return finish(
        example(),
        MAKESPAN,
        method,
        Outcome(**fields),
        solve_s=0.0,  # type: ignore[arg-type]
    )


def large(semantics: Semantics) -> Instance:
    """Too many ops for brute force."""
    graph = generate("layered", {"ops": 12, "width": 3, "kinds": "gpu:1"}, seed=1)
    return example().model_copy(update={"name": "large", "graph": graph})


def asked(semantics: Semantics, method: str) -> str:
    return next((name for name, _ in second_methods(large(semantics), semantics, method)), "")


def test_another_solver_is_asked_than_the_one_that_answered() -> None:
    assert asked(MAKESPAN, "cp-sat") == "moirai"
    assert asked(MAKESPAN, "decomposition") == "moirai"
    assert asked(MAKESPAN, "moirai") == "cp-sat"
    assert asked(CHAIN, "ideal-dp") == "archer-exact"
    assert asked(CHAIN, "archer-exact") == "ideal-dp"
    assert asked(MaxLoad(), "noncontiguous") == "throughput-ip"
    assert asked(MaxLoad(), "throughput-ip") == "noncontiguous"
    assert asked(LATENCY_SEMANTICS[0], "latency") == "latency-ip"
    assert asked(LATENCY_SEMANTICS[0], "latency-ip") == "latency"


def test_where_two_methods_share_their_solver_the_other_model_is_asked() -> None:
    per_tensor = Makespan(transfers="per_tensor")  # Moirai's is per_edge
    assert asked(per_tensor, "decomposition") == "cp-sat"


def test_a_mip_without_rivals_is_solved_by_scip() -> None:
    pytest.importorskip("pyscipopt")
    convex = MaxLoad(plans="convex")
    answers = list(second_methods(large(convex), convex, "throughput-ip"))
    assert answers == [("throughput-ip", {"solver": "scip"})]


def test_the_table_names_methods_that_prove_bounds() -> None:
    for (objective, _), methods in ASKED.items():
        for name, _ in methods:
            assert issubclass(METHODS[name].params, ExactParams) or name == "most-tokens"
            assert objective in METHODS[name].objectives


@pytest.mark.parametrize(
    "semantics",
    [
        *MAKESPAN_SEMANTICS[::4],
        *MAX_LOAD_SEMANTICS[::3],
        FWD_BWD_SEMANTICS[0],
        LATENCY_SEMANTICS[1],
        STAGE_SEMANTICS[-1],
    ],
    ids=lambda semantics: semantics.label,
)
def test_a_handful_of_ops_is_enumerated_and_agrees(semantics: Semantics) -> None:
    method = {"makespan": "cp-sat", "latency_subgraphs": "latency-ip"}.get(
        semantics.objective, "throughput-ip"
    )
    instance = stage_draws()[1]  # it names servers
    first = run_method(instance, semantics, method, little(METHODS[method]), time_limit_s=10)
    opinion = ask_about(instance, semantics, first)
    assert (opinion.verdict, opinion.method) == ("agrees", "brute-force"), opinion.sentence


def test_a_method_without_a_result_as_good_is_weaker() -> None:
    first = judged("first", plan=BEST, bound=Bound(34))
    assert compare(first, judged("second", plan=BEST, bound=Bound(33))).verdict == "weaker"
    assert compare(first, judged("second", plan=BEST)).verdict == "weaker"
    assert compare(first, judged("second", plan=BEST, bound=Bound(34))).verdict == "agrees"
    assert compare(first, judged("second", bound=Bound(35))).verdict == "agrees"


def test_a_plan_below_a_bound_is_a_contradiction_whoever_has_it() -> None:
    low = judged("one", plan=BEST, bound=Bound(35))
    high = judged("other", bound=Bound(36))
    for first, second in ((low, high), (high, low)):
        opinion = compare(first, second)
        assert opinion.verdict == "CONTRADICTS"
        assert (
            "other; proved by placegap: says that no plan is better than 36 ns" in opinion.sentence
        )


def test_no_plan_at_all_is_compared_as_well() -> None:
    none = judged("none", bound=no_plan())
    plan = judged("plan", plan=BEST)
    assert compare(none, none).verdict == "agrees"
    assert compare(none, judged("lost", message="time limit reached")).verdict == "weaker"
    assert compare(none, plan).verdict == compare(plan, none).verdict == "CONTRADICTS"


def test_infeasible_instances_find_agreement() -> None:
    draws = [
        (instance, semantics)
        for instances, semantics in ((makespan_draws(), MAKESPAN), (max_load_draws(), CHAIN))
        for instance in instances
    ]
    seen = 0
    for instance, semantics in draws:
        first = run_method(instance, semantics, "brute-force")
        if first.status == "infeasible" and seen < 4:
            seen += 1
            assert ask_about(instance, semantics, first).verdict == "agrees"
    assert seen == 4


def test_a_bound_is_carried_over_and_a_wrong_one_becomes_a_fault() -> None:
    plan = judged("plan", plan=BEST, bound=Bound(20))
    better = carry_bound(plan, judged("bound", bound=Bound(35)))
    assert (better.status, better.bound_ns, better.method) == ("optimal", 35, "plan")
    assert better.gap == 0
    assert carry_bound(plan, judged("bound", bound=Bound(19))).bound_ns == 20
    wrong = carry_bound(plan, judged("bound", bound=Bound(36)))
    assert (wrong.bound_ns, wrong.status) == (20, "feasible")
    assert wrong.faults == (
        "bound; proved by placegap: says that no plan is better than 36 ns; plan has one of 35 ns",
    )
    empty = carry_bound(plan, judged("none", bound=no_plan()))
    assert "says that no plan exists" in empty.faults[0]


def test_a_bound_of_another_problem_is_left_alone() -> None:
    plan = judged("plan", plan=BEST, bound=Bound(20))
    other = replace(judged("bound", bound=Bound(35)), semantics=CHAIN)
    assert carry_bound(plan, other) == plan
