"""getf-milp, getf-lp and m-sct-lp: valid bounds, honest endings, plans that the referee judges."""

import pytest
from draws.tiny import tiny_instance
from features.makespan import anywhere, instance, pinned
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, oracle

from placegap.formulations.getf import critical_path_ns
from placegap.instances import Edge, Makespan
from placegap.instances.reading.errors import InputError
from placegap.solvers import run_method

PORT = Makespan()
FREE = Makespan(channels="free")
BOUNDS = ("getf-lp", "m-sct-lp")


def test_bounds_and_plans_hold_under_every_makespan_semantics() -> None:
    # `run_method` raises if a bound is above the method's own plan
    for number, case in enumerate(makespan_draws()[:12]):
        semantics = MAKESPAN_SEMANTICS[number % len(MAKESPAN_SEMANTICS)]
        bounds = [run_method(case, semantics, name).bound_ns for name in BOUNDS]
        milp = run_method(case, semantics, "getf-milp")
        optima = [oracle(case, each) for each in MAKESPAN_SEMANTICS]
        best = oracle(case, semantics)
        if best is None:
            assert milp.status == "infeasible"
            continue
        for bound in (*bounds, milp.bound_ns):
            assert all(bound <= optimum for optimum in optima if optimum is not None)
        assert milp.value_ns >= best


def test_the_plan_is_the_models_own() -> None:
    # The model takes every transfer out of d0 for that to d1, of 1 ns. As w keeps d1 busy, it has
    # one of b and c on d2: 2 + 1 + 9. But d2 is 50 away: 2 + 50 + 9. (All on d0: 2 + 9 + 9.)
    base = instance(
        "far",
        [pinned("a", 0, 2), *(anywhere(op, 9) for op in "bc"), pinned("w", 1, 12)],
        [],
        devices=3,
    )
    far = ((0, 1, 50), (1, 0, 50), (50, 50, 0))
    edges = tuple(Edge(producer="a", consumer=op, transfer_ns=far) for op in "bc")
    case = base.model_copy(update={"graph": base.graph.model_copy(update={"edges": edges})})
    result = run_method(case, FREE, "getf-milp")
    assert (result.bound_ns, result.value_ns, result.status) == (12, 61, "feasible")
    assert result.bound_origin == "critical path"  # w alone takes as long


def test_value_and_bound_may_meet() -> None:
    # one op after the other on one device: nothing is left out
    case = instance("chain", [anywhere(op, 5) for op in "abc"], [("a", "b", 3), ("b", "c", 3)])
    result = run_method(case, PORT, "getf-milp")
    assert (result.status, result.value_ns) == ("optimal", 15)
    for name in BOUNDS:
        bound = run_method(case, PORT, name)
        assert (bound.status, bound.bound_ns, bound.plan) == ("bound", 15, None)
        assert bound.bound_origin == "critical path"  # as good, and a proof


def test_the_critical_path_costs_no_tolerance() -> None:
    # a millionth of 10 ms is 10 ns; the op of 7 ns keeps the times from having a common divisor
    case = instance("long", [anywhere("a", 10_000_019), anywhere("b", 7)], [])
    for name in ("getf-milp", *BOUNDS):
        result = run_method(case, PORT, name)
        assert (result.bound_ns, result.bound_origin) == (10_000_019, "critical path")
    assert run_method(case, PORT, "getf-milp").status == "optimal"


def test_the_origin_is_the_lp_where_it_is_better_than_the_critical_path() -> None:
    # 12 ns of work on two devices, no path longer than 4
    case = instance("work", [anywhere(op, 4) for op in "abc"], [])
    result = run_method(case, PORT, "getf-lp")
    assert (result.bound_ns, result.bound_origin) == (8, "getf-lp")  # 6, in multiples of 4


@pytest.mark.parametrize("name", ["getf-milp", "getf-lp"])
def test_missing_memory_is_reported(name: str) -> None:
    # three ops of 3 bytes, two devices of 4: also their memories together are too small
    ops = [anywhere(op, 5, resident_bytes=3) for op in "abc"]
    result = run_method(instance("full", ops, [], memory_bytes=4), PORT, name)
    assert (result.status, result.bound_ns) == ("infeasible", None)
    assert "no plan exists" in result.message


@pytest.mark.parametrize("name", ["getf-milp", "m-sct-lp"])
def test_no_time_is_reported(name: str) -> None:
    case = tiny_instance(1, num_ops=60, num_devices=3)  # more than presolve alone solves
    result = run_method(case, PORT, name, time_limit_s=0.0)
    assert "time limit" in result.message
    assert (result.bound_ns, result.bound_origin) == (critical_path_ns(case), "critical path")


def test_details_say_whether_communication_times_are_small() -> None:
    ops = [anywhere("a", 2), anywhere("b", 3), anywhere("c", 4)]
    for move, expected in ((2, (1, 0)), (4, (0, 1))):  # b takes 3: the transfer to c is cut to 3
        case = instance("fork", ops, [("a", "b", move), ("a", "c", move)])
        details = run_method(case, PORT, "m-sct-lp").details
        assert (details["small_communication"], details["truncated"]) == expected


def test_a_grouping_that_does_not_apply_is_refused() -> None:
    case = instance("pinned", [pinned("a", 0, 1), pinned("b", 1, 1)], [])
    with pytest.raises(InputError, match="use groups=auto"):
        run_method(case, PORT, "getf-lp", {"groups": "speeds"})
