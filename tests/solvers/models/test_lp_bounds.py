"""getf-lp and m-sct-lp: valid bounds and honest endings."""

from draws.tiny import tiny_instance
from features.makespan import anywhere, instance
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, oracle

from placegap.formulations.getf import critical_path_ns
from placegap.instances import Makespan
from placegap.solvers import run_method

PORT = Makespan()
BOUNDS = ("getf-lp", "m-sct-lp")


def test_bounds_hold_under_every_makespan_semantics() -> None:
    for number, case in enumerate(makespan_draws()[:12]):
        semantics = MAKESPAN_SEMANTICS[number % len(MAKESPAN_SEMANTICS)]
        optima = [oracle(case, each) for each in MAKESPAN_SEMANTICS]
        for bound in (run_method(case, semantics, name).bound_ns for name in BOUNDS):
            assert all(bound <= optimum for optimum in optima if optimum is not None)


def test_a_bound_may_be_the_optimum() -> None:
    # one op after the other on one device: nothing is left out
    case = instance("chain", [anywhere(op, 5) for op in "abc"], [("a", "b", 3), ("b", "c", 3)])
    for name in BOUNDS:
        bound = run_method(case, PORT, name)
        assert (bound.status, bound.bound_ns, bound.plan) == ("bound", 15, None)
        assert bound.bound_origin == "critical path"  # as good, and a proof


def test_the_critical_path_costs_no_tolerance() -> None:
    # a millionth of 10 ms is 10 ns; the op of 7 ns keeps the times from having a common divisor
    case = instance("long", [anywhere("a", 10_000_019), anywhere("b", 7)], [])
    for name in BOUNDS:
        result = run_method(case, PORT, name)
        assert (result.bound_ns, result.bound_origin) == (10_000_019, "critical path")


def test_the_origin_is_the_lp_where_it_is_better_than_the_critical_path() -> None:
    # 12 ns of work on two devices, no path longer than 4
    case = instance("work", [anywhere(op, 4) for op in "abc"], [])
    result = run_method(case, PORT, "getf-lp")
    assert (result.bound_ns, result.bound_origin) == (8, "getf-lp")  # 6, in multiples of 4


def test_missing_memory_is_reported() -> None:
    # three ops of 3 bytes, two devices of 4: also their memories together are too small
    ops = [anywhere(op, 5, resident_bytes=3) for op in "abc"]
    result = run_method(instance("full", ops, [], memory_bytes=4), PORT, "getf-lp")
    assert (result.status, result.bound_ns) == ("infeasible", None)
    assert "no plan exists" in result.message


def test_no_time_is_reported() -> None:
    case = tiny_instance(1, num_ops=60, num_devices=3)  # more than presolve alone solves
    result = run_method(case, PORT, "m-sct-lp", time_limit_s=0.0)
    assert "time limit" in result.message
    assert (result.bound_ns, result.bound_origin) == (critical_path_ns(case), "critical path")


def test_details_say_whether_communication_times_are_small() -> None:
    ops = [anywhere("a", 2), anywhere("b", 3), anywhere("c", 4)]
    for move, expected in ((2, (1, 0)), (4, (0, 1))):  # b takes 3: the transfer to c is cut to 3
        case = instance("fork", ops, [("a", "b", move), ("a", "c", move)])
        details = run_method(case, PORT, "m-sct-lp").details
        assert (details["small_communication"], details["truncated"]) == expected
