"""An exact method starts from the best plan that is to be had."""

from __future__ import annotations

from placegap.instances import Makespan, MaxLoad, Plan, evaluate, example
from placegap.solvers import Limits, Task, run_method
from placegap.solvers.core.starts import best_start

PORT = Makespan()
LOAD = MaxLoad()


def test_the_best_of_incumbent_and_methods_is_taken() -> None:
    poor = Plan.on([0, 0, 1, 0])  # 53 ns; one device alone takes 43
    task = Task(example(), PORT, incumbent=poor)
    assert best_start(task, []) == (poor, 53)
    start = best_start(task, ["single-device"])
    assert start.value_ns == 43
    assert start.plan.devices.tolist() in ([0] * 4, [1] * 4)


def test_a_plan_that_breaks_a_rule_is_no_start() -> None:
    too_short = Plan.on([0])
    assert best_start(Task(example(), PORT, incumbent=too_short), []) is None


def test_without_plans_there_is_no_start() -> None:
    assert best_start(Task(example(), PORT), []) is None


def test_chains_serve_where_any_plan_does() -> None:
    instance = example()
    chain = MaxLoad(plans="chain")
    best = run_method(instance, chain, "ideal-dp").value_ns
    start = best_start(Task(instance, LOAD, Limits(time_limit_s=10)), ["ideal-dp"])
    assert start.value_ns == best == evaluate(instance, start.plan, LOAD).value_ns
    assert best_start(Task(instance, PORT), ["ideal-dp"]) is None
