"""CPOP: its paper's example, and where the critical path goes."""

from __future__ import annotations

import pytest
from references.placers import table_instance

from placegap.instances import Makespan, Op, evaluate
from placegap.solvers import Task
from placegap.solvers.placers.heft_peft_cpop import (
    cpop,
    critical_path,
    downward_ranks,
    upward_ranks,
)
from placegap.solvers.placers.list_problem import mean_costs, problem_of

FREE = Makespan(channels="free")

# Topcuoglu, Hariri, Wu 2002, figure 2
PAPER_TIMES = (
    (14, 16, 9),
    (13, 19, 18),
    (11, 13, 19),
    (13, 8, 17),
    (12, 13, 10),
    (13, 16, 9),
    (7, 15, 11),
    (5, 11, 14),
    (18, 12, 20),
    (21, 7, 16),
)
PAPER_EDGES = (
    "1-2 18, 1-3 12, 1-4 9, 1-5 11, 1-6 14, 2-8 19, 2-9 16, 3-7 23, 4-8 27, 4-9 23, 5-9 13, 6-8 15,"
    " 7-10 17, 8-10 11, 9-10 13"
)


def test_the_papers_ten_tasks_have_its_downward_ranks_and_critical_path() -> None:
    instance = table_instance(PAPER_TIMES, PAPER_EDGES)
    problem, costs = problem_of(instance.arrays), mean_costs(instance.arrays)
    down = downward_ranks(problem, costs)
    # table 1 of the paper
    expected = [0.000, 31.000, 25.000, 22.000, 24.000, 27.000, 62.333, 66.667, 63.667, 93.333]
    assert [round(rank / costs.scale, 3) for rank in down.tolist()] == expected
    # its text: the critical path is T1, T2, T9, T10
    assert critical_path(problem, costs, upward_ranks(instance)[0]) == [0, 1, 8, 9]


def test_an_edge_past_the_next_op_of_the_path_is_no_part_of_it() -> None:
    # T3 has the path's priority, too, but the way there is by T2: 1 + 5 + 1 + 5 + 1, not 1 + 1 + 1
    instance = table_instance(((1, 1), (1, 1), (1, 1)), "1-3 1, 1-2 5, 2-3 5")
    problem, costs = problem_of(instance.arrays), mean_costs(instance.arrays)
    assert critical_path(problem, costs, upward_ranks(instance)[0]) == [0, 1, 2]


def test_the_papers_ten_tasks_take_86() -> None:
    instance = table_instance(PAPER_TIMES, PAPER_EDGES)
    plan = cpop(Task(instance, FREE)).plan
    assert plan is not None
    assert evaluate(instance, plan, FREE).value_ns == 86
    # the path takes 54 on P2, 63 on P3, 66 on P1
    assert {plan.placement[op] for op in (0, 1, 8, 9)} == {(1,)}


@pytest.mark.parametrize(("bytes_of_p2", "device"), [(3, 0), (4, 1)])
def test_an_op_of_the_path_that_does_not_fit_there_goes_where_it_finishes_first(
    bytes_of_p2: int, device: int
) -> None:
    # The chain T1 -> T2 belongs on p2, which is faster; with 3 bytes T2 (2 bytes) cannot follow.
    drawn = table_instance(((9, 1), (9, 1)), "1-2 1")
    ops = tuple(op.model_copy(update={"resident_bytes": 2}) for op in drawn.graph.ops)
    first, second = drawn.cluster.devices
    second = second.model_copy(update={"memory_bytes": bytes_of_p2})
    instance = drawn.model_copy(
        update={
            "graph": drawn.graph.model_copy(update={"ops": ops}),
            "cluster": drawn.cluster.model_copy(update={"devices": (first, second)}),
        }
    )
    plan = cpop(Task(instance, FREE)).plan
    assert plan is not None
    assert plan.placement == ((1,), (device,))


def test_the_device_of_the_path_is_one_that_runs_it() -> None:
    # p2 is the faster one for T1, but cannot run T2
    drawn = table_instance(((5, 1), (5, 99)), "1-2 1")
    ops = (drawn.graph.ops[0], Op(name="T2", time_ns={"p1": 5}))
    instance = drawn.model_copy(update={"graph": drawn.graph.model_copy(update={"ops": ops})})
    plan = cpop(Task(instance, FREE)).plan
    assert plan is not None
    assert plan.placement == ((0,), (0,))
