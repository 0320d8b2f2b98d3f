"""HEFT, PEFT, CPOP and ETF: their papers' examples; and all kernels by their definitions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from draws import draw
from draws.tiny import tiny_instance
from references import placers as definitions
from references.placers import busy_instance, plan_of, pressed_instance, table_instance

from placegap.instances import Device, Instance, Makespan, Op, Plan, evaluate
from placegap.instances.problem.mean_costs import mean_costs
from placegap.solvers import METHODS, Task
from placegap.solvers.core.method import Params
from placegap.solvers.placers.heft_peft_cpop import (
    critical_path,
    downward_ranks,
    heft,
    optimistic_costs,
    upward_ranks,
)
from placegap.solvers.placers.list_problem import problem_of

FREE = Makespan(channels="free")

# Topcuoglu, Hariri, Wu 2002, figure 2
HEFT_PAPER = table_instance(
    (
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
    ),
    "1-2 18, 1-3 12, 1-4 9, 1-5 11, 1-6 14, 2-8 19, 2-9 16, 3-7 23, 4-8 27, 4-9 23, 5-9 13, 6-8 15,"
    " 7-10 17, 8-10 11, 9-10 13",
)

# Arabnejad, Barbosa 2014, figure 1
PEFT_PAPER = table_instance(
    (
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
    ),
    "1-2 17, 1-3 31, 1-4 29, 1-5 13, 1-6 7, 2-8 3, 2-9 30, 3-7 16, 4-8 11, 4-9 7, 5-9 57, 6-8 5,"
    " 7-10 9, 8-10 42, 9-10 7",
)


def plan_by(method: str, instance: Instance) -> Plan:
    plan = METHODS[method].run(Task(instance, FREE), Params()).plan
    assert plan is not None
    return plan


# ----------------------------------------------------------------------------------- the kernels


@pytest.mark.parametrize("method", ["heft", "peft", "etf", "m-etf"])
def test_the_kernel_plans_as_the_definition_does(method: str) -> None:
    define: Callable[..., definitions.Times | None] = getattr(definitions, method.replace("-", "_"))
    semantics = Makespan(channels="half_duplex", transfers="per_tensor")
    for seed in range(8):
        for drawn in (tiny_instance, pressed_instance, busy_instance):
            # of many ops once: gaps are search trees
            instance = drawn(seed, num_ops=24 if seed else 70, num_devices=3)
            task = Task(instance, semantics if method == "m-etf" else FREE)
            found, times = (
                METHODS[method].run(task, METHODS[method].params()).plan,
                define(instance),
            )
            assert found == (None if times is None else plan_of(instance, times))
            if found is not None and times is not None and method in ("heft", "etf"):
                # no op can move forward, so the referee's clock finds the planned times
                assert evaluate(instance, found, FREE).value_ns == max(times[2])


# -------------------------------------------------------------------------------- HEFT and PEFT


def test_the_papers_ten_tasks_have_hefts_ranks() -> None:
    ranks, unit = upward_ranks(HEFT_PAPER)
    # table 1 of the paper
    expected = [108.000, 77.000, 80.000, 80.000, 69.000, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert [round(rank / unit, 3) for rank in ranks.tolist()] == expected


def test_the_papers_ten_tasks_have_pefts_mean_optimistic_costs() -> None:
    arrays = PEFT_PAPER.arrays
    costs = mean_costs(arrays)
    table = optimistic_costs(problem_of(arrays), costs.tensor, costs.scale)
    # table 2 of the paper
    means = np.round(table.mean(axis=1) / costs.scale, 1).tolist()
    assert means == [72.7, 41.0, 37.0, 43.7, 31.0, 41.7, 17.0, 20.7, 16.3, 0.0]


@pytest.mark.parametrize(
    ("method", "instance", "makespan_ns"),
    [
        ("heft", HEFT_PAPER, 80),
        ("cpop", HEFT_PAPER, 86),
        ("peft", PEFT_PAPER, 122),
        ("heft", PEFT_PAPER, 133),
    ],
)
def test_the_papers_ten_tasks_take_what_the_paper_says(
    method: str, instance: Instance, makespan_ns: int
) -> None:
    plan = plan_by(method, instance)
    assert evaluate(instance, plan, FREE).value_ns == makespan_ns
    if method == "cpop":  # the critical path takes 54 on P2, 63 on P3, 66 on P1
        assert {plan.placement[op] for op in (0, 1, 8, 9)} == {(1,)}


def test_an_op_is_inserted_into_an_idle_gap() -> None:
    # T1 (10 on p1) sends for 10 to T2 (10 on p2), T3 (5 on p2) stands alone. Ranks 30, 10, 5: T2
    # takes p2 from 20 to 30, then T3 fits before it, from 0 to 5; behind it it would end at 35.
    instance = table_instance(((10, None), (None, 10), (None, 5)), "1-2 10")
    plan = plan_by("heft", instance)
    assert plan.device_order == ((0,), (2, 1))
    assert evaluate(instance, plan, FREE).value_ns == 30


def test_ranks_that_would_overflow_are_rounded_down() -> None:
    # 3 processors: the exact unit would be 1/6 ns, 6 * 2**61 does not fit; 2**61 // 3 is kept
    ranks, unit = upward_ranks(table_instance(((2**61, 0, 0), (1, 1, 1)), ""))
    assert (ranks.tolist(), unit) == ([2**61 // 3, 0], 1)


def test_the_op_that_most_depends_on_goes_first_where_20_devices_sum_beyond_64_bits() -> None:
    # T3 waits for T2: the mean optimistic cost of T2 is 2**59, that of T1 is 0
    instance = table_instance([[1] * 20, [1] * 20, [2**59] * 20], "2-3 0")
    assert plan_by("peft", instance).placement[:2] == ((1,), (0,))


def test_an_op_that_fits_nowhere_is_named() -> None:
    ops = [Op(name=x, time_ns={"gpu": 1}, resident_bytes=4) for x in "abc"]
    devices = [Device(name=x, kind="gpu", memory_bytes=7) for x in ("g0", "g1")]
    outcome = heft(Task(draw.instance_of("full", ops, (), devices), FREE))
    assert outcome.plan is None
    assert outcome.message == (
        "memory: op 'c' (4 bytes) fits on none of the devices now; bytes left where it can run:"
        " 'g0' 3, 'g1' 3"
    )


# ----------------------------------------------------------------------------------------- CPOP


def test_the_papers_ten_tasks_have_its_downward_ranks_and_critical_path() -> None:
    problem, costs = problem_of(HEFT_PAPER.arrays), mean_costs(HEFT_PAPER.arrays)
    down = downward_ranks(problem, costs)
    # table 1 of the paper
    expected = [0.000, 31.000, 25.000, 22.000, 24.000, 27.000, 62.333, 66.667, 63.667, 93.333]
    assert [round(rank / costs.scale, 3) for rank in down.tolist()] == expected
    # its text: the critical path is T1, T2, T9, T10
    assert critical_path(problem, costs, upward_ranks(HEFT_PAPER)[0]) == [0, 1, 8, 9]


def test_an_edge_past_the_next_op_of_the_path_is_no_part_of_it() -> None:
    # T3 has the path's priority, too, but the way there is by T2: 1 + 5 + 1 + 5 + 1, not 1 + 1 + 1
    instance = table_instance(((1, 1), (1, 1), (1, 1)), "1-3 1, 1-2 5, 2-3 5")
    problem, costs = problem_of(instance.arrays), mean_costs(instance.arrays)
    assert critical_path(problem, costs, upward_ranks(instance)[0]) == [0, 1, 2]


@pytest.mark.parametrize(("bytes_of_p2", "device"), [(3, 0), (4, 1)])
def test_an_op_of_the_path_that_does_not_fit_there_goes_where_it_finishes_first(
    bytes_of_p2: int, device: int
) -> None:
    # The chain T1 -> T2 belongs on p2, which is faster; with 3 bytes T2 (2 bytes) cannot follow.
    instance = draw.with_ops(table_instance(((9, 1), (9, 1)), "1-2 1"), resident_bytes=[2, 2])
    instance = draw.with_devices(instance, memory_bytes=[None, bytes_of_p2])
    assert plan_by("cpop", instance).placement == ((1,), (device,))


def test_the_device_of_the_path_is_one_that_runs_it() -> None:
    # p2 is the faster one for T1, but cannot run T2
    instance = table_instance(((5, 1), (5, None)), "1-2 1")
    assert plan_by("cpop", instance).placement == ((0,), (0,))


# ------------------------------------------------------------------------------------------ ETF


def test_of_ops_that_start_together_the_one_with_the_longer_tail_goes_first() -> None:
    # One processor; T3 follows T2: static levels 3, 2 + 4, 4.
    plan = plan_by("etf", table_instance(((3,), (2,), (4,)), "2-3 0"))
    assert plan.device_order == ((1, 2, 0),)


def test_an_op_goes_where_it_starts_earliest_even_if_it_is_slow_there() -> None:
    # T1 has the higher level (mean 6) and takes p1; T2 starts on p2 at 0, for 9, not on p1 at 2.
    instance = table_instance(((2, 10), (1, 9)), "")
    plan = plan_by("etf", instance)
    assert plan.placement == ((0,), (1,))
    assert evaluate(instance, plan, FREE).value_ns == 9
