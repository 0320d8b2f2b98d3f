"""PEFT: its paper's example, and the definition in plain Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from draws.tiny import tiny_instance
from references.placers import peft as slow_peft
from references.placers import plan_of, pressed_instance, table_instance

from placegap.instances import Instance, Makespan, evaluate
from placegap.solvers import METHODS, Task
from placegap.solvers.core.method import Params
from placegap.solvers.placers.heft_peft_cpop import optimistic_costs, peft
from placegap.solvers.placers.list_problem import mean_costs, problem_of

Draw = Callable[..., Instance]
FREE = Makespan(channels="free")

# Arabnejad, Barbosa 2014, figure 1
PAPER_TIMES = (
    (22, 21, 36),
    (22, 18, 18),
    (32, 27, 43),
    (7, 10, 4),
    (29, 27, 35),
    (26, 17, 24),
    (14, 25, 30),
    (29, 23, 36),
    (15, 21, 8),
    (13, 16, 33),
)
PAPER_EDGES = (
    "1-2 17, 1-3 31, 1-4 29, 1-5 13, 1-6 7, 2-8 3, 2-9 30, 3-7 16, 4-8 11, 4-9 7, 5-9 57, 6-8 5,"
    " 7-10 9, 8-10 42, 9-10 7"
)


def test_the_papers_ten_tasks_have_its_mean_optimistic_costs() -> None:
    arrays = table_instance(PAPER_TIMES, PAPER_EDGES).arrays
    costs = mean_costs(arrays)
    table = optimistic_costs(problem_of(arrays), costs.tensor, costs.scale)
    means = np.round(table.mean(axis=1) / costs.scale, 1).tolist()
    # table 2 of the paper
    assert means == [72.7, 41.0, 37.0, 43.7, 31.0, 41.7, 17.0, 20.7, 16.3, 0.0]


@pytest.mark.parametrize(("method", "makespan"), [("peft", 122), ("heft", 133)])
def test_the_papers_ten_tasks_take_122_and_with_heft_133(method: str, makespan: int) -> None:
    instance = table_instance(PAPER_TIMES, PAPER_EDGES)
    plan = METHODS[method].run(Task(instance, FREE), Params()).plan
    assert plan is not None
    assert evaluate(instance, plan, FREE).value_ns == makespan


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("draw", [tiny_instance, pressed_instance])
def test_the_kernel_plans_as_the_definition_does(draw: Draw, seed: int) -> None:
    instance = draw(seed, num_ops=30, num_devices=3)
    outcome, times = peft(Task(instance, FREE)), slow_peft(instance)
    assert outcome.plan == (None if times is None else plan_of(instance, times))


def test_the_op_that_most_depends_on_goes_first_where_20_devices_sum_beyond_64_bits() -> None:
    # T3 waits for T2: the mean optimistic cost of T2 is 2**59, that of T1 is 0
    instance = table_instance([[1] * 20, [1] * 20, [2**59] * 20], "2-3 0")
    plan = peft(Task(instance, FREE)).plan
    assert plan is not None
    assert plan.placement[:2] == ((1,), (0,))
