"""Callbacks hear of better plans and bounds, and may end the search with the plan so far."""

from __future__ import annotations

import threading
import time

import pytest
from draws.tiny import tiny_instance

import placegap
from placegap.instances import Makespan, Plan, example
from placegap.solvers import run_method
from placegap.solvers.core.progress import StopSearch

PORT = Makespan()


def test_callbacks_hear_of_each_better_plan_and_bound() -> None:
    values: list[int] = []
    bounds: list[tuple[int, str]] = []
    found = run_method(
        example(),
        PORT,
        "cp-sat",
        {"workers": 1},
        on_plan=lambda value_ns, plan: values.append(value_ns),
        on_bound=lambda bound_ns, by: bounds.append((bound_ns, by)),
    )
    assert values == sorted(values, reverse=True)
    assert bounds[0] == (33, "critical path")  # the doctest of `quick_bound`
    assert (values[-1], found.value_ns) == (34, 34)


@pytest.mark.parametrize("method", ["auto", "disjunctive-search"])
def test_a_callback_that_returns_false_ends_the_search(method: str) -> None:
    instance = tiny_instance(9, num_ops=30, num_devices=4, density=0.3)  # minutes from a proof
    found = run_method(
        instance, PORT, method, {"workers": 1}, time_limit_s=300, on_plan=lambda value, plan: False
    )
    assert found.value_ns is not None
    assert found.solve_s < 60


def test_a_callback_may_raise_what_ends_the_search_at_the_plan_that_it_starts_from() -> None:
    plans: list[Plan | None] = []

    def stop(value_ns: int, plan: Plan | None) -> None:
        plans.append(plan)
        raise StopSearch

    start = Plan.on([0] * 4)
    found = placegap.solve(example(), objective="makespan", start=start, on_plan=stop)
    assert found.plan == start
    assert len(plans) == 1
    assert isinstance(plans[0], Plan)


def test_a_callback_in_another_thread_leaves_the_main_thread_alone() -> None:
    def run() -> None:
        run_method(example(), PORT, "heft", on_plan=lambda value_ns, plan: False)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    time.sleep(0.05)
