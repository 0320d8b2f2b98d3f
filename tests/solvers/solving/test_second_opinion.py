"""Second opinions and the corpus' records: who is asked, and what the answer does to a result."""

from __future__ import annotations

from dataclasses import replace

import pytest
from draws import draw
from references.agreement import little
from references.brute_force import LATENCY_SEMANTICS, STAGE_SEMANTICS, stage_draws

from placegap.instances import BestKnown, Instance, Makespan, MaxLoad, Plan, Semantics, example
from placegap.instances.corpus.generate import generate
from placegap.instances.problem import BY_OBJECTIVE
from placegap.solvers import METHODS, Result, Task, run_method
from placegap.solvers.core.method import ExactParams
from placegap.solvers.core.objective import strategy
from placegap.solvers.core.result import Bound, Outcome, carry_bound, fault_words, finish, no_plan
from placegap.solvers.solving import known_bounds
from placegap.solvers.solving.known_bounds import with_known_bound
from placegap.solvers.solving.second_opinion import Opinion, compare, second_methods

MAKESPAN = Makespan()
CHAIN = MaxLoad(plans="chain")
BEST = Plan.on([0, 1, 0, 0])  # 35 (FD-DPS, figure 3); the optimum is 34, and paths prove 33


def ask_about(instance: Instance, semantics: Semantics, first: Result) -> Opinion:
    """The answer of the first of the methods that can check a result."""
    name, params = next(second_methods(instance, semantics, first.method))
    second = run_method(instance, semantics, name, params, time_limit_s=10, incumbent=first.plan)
    return compare(first, second)


def judged(method: str, **fields: object) -> Result:
    """A result on the diamond."""
    outcome = Outcome(**fields)  # type: ignore[arg-type]
    return finish(example(), MAKESPAN, method, outcome, solve_s=0.0)


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
    assert asked(MaxLoad(plans="any"), "noncontiguous") == "throughput-ip"
    assert asked(MaxLoad(plans="any"), "throughput-ip") == "noncontiguous"
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


@pytest.mark.parametrize("kind", BY_OBJECTIVE.values(), ids=BY_OBJECTIVE)
def test_the_methods_of_every_objective_prove_bounds(kind: type[Semantics]) -> None:
    found = strategy(Task(example(), kind()))
    for name in (*(name for name, _ in found.opinions), *(step.method for step in found.provers)):
        maximizes = name in ("most-tokens", "serving-flow")  # exact methods minimize
        assert issubclass(METHODS[name].params, ExactParams) or maximizes
        assert kind().objective in METHODS[name].objectives


@pytest.mark.parametrize(
    "semantics",
    [MAKESPAN, LATENCY_SEMANTICS[1], STAGE_SEMANTICS[-1]],
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
        said = "other; proved by placegap: claims that no plan is better than 36 ns"
        assert said in opinion.sentence


def test_no_plan_at_all_is_compared_as_well() -> None:
    none = judged("none", bound=no_plan())
    plan = judged("plan", plan=BEST)
    assert compare(none, none).verdict == "agrees"
    assert compare(none, judged("lost", message="time limit reached")).verdict == "weaker"
    assert compare(none, plan).verdict == compare(plan, none).verdict == "CONTRADICTS"


def test_infeasible_instances_find_agreement() -> None:
    full = draw.with_ops(example(), resident_bytes=[1] * 4)
    full = draw.with_devices(full, memory_bytes=[1, 1])
    for semantics in (MAKESPAN, CHAIN):
        first = run_method(full, semantics, "brute-force")
        assert first.status == "infeasible"
        assert ask_about(full, semantics, first).verdict == "agrees"


def test_a_bound_is_carried_over_and_a_wrong_one_becomes_a_fault() -> None:
    plan = judged("plan", plan=BEST, bound=Bound(20))
    better = carry_bound(plan, judged("bound", bound=Bound(35)))
    assert (better.status, better.bound_ns, better.method) == ("optimal", 35, "plan")
    assert better.gap == 0
    assert carry_bound(plan, judged("bound", bound=Bound(19))).bound_ns == 20
    wrong = carry_bound(plan, judged("bound", bound=Bound(36)))
    assert (wrong.bound_ns, wrong.status) == (20, "feasible")
    assert wrong.faults == (
        "bound; proved by placegap: claims that no plan is better than 36 ns,"
        " but plan has one of 35 ns",
    )
    empty = carry_bound(plan, judged("none", bound=no_plan()))
    assert "claims that no plan exists" in empty.faults[0]


def test_a_bound_of_another_problem_is_left_alone() -> None:
    plan = judged("plan", plan=BEST, bound=Bound(20))
    other = replace(judged("bound", bound=Bound(35)), semantics=CHAIN)
    assert carry_bound(plan, other) == plan


# ------------------------------------------------------------------------ what the corpus records


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
    assert "no plan is better than 34 ns, but the corpus records one of 33 ns" in fault


def test_what_an_instance_s_file_states_is_none_of_the_corpus() -> None:
    said = BestKnown(semantics=Makespan(), value_ns=1, bound_ns=35, rests_on="proof")
    claimed = example().model_copy(update={"best_known": (said,)})
    found = finish(claimed, Makespan(), "mine", Outcome(BEST), solve_s=0.0)
    known = with_known_bound(claimed, found)
    assert (known.status, known.bound_ns, known.faults) == ("feasible", 33, ())
