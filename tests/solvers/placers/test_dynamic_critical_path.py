"""D-DPS: its paper's figure 3. FD-DPS: what it splits, and what its value is a value of."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from draws import draw
from draws.splittable import splittable_diamond, splittable_instance
from references.brute_force import MAKESPAN_SEMANTICS, oracle
from references.placers import pressed_instance, table_instance

from placegap.instances import Makespan, Plan, evaluate, example
from placegap.instances.kernels.kernel import all_compiled
from placegap.instances.problem.additive_memory import with_resident
from placegap.instances.problem.mean_costs import mean_costs
from placegap.solvers import Outcome, SolverDisagreement, Task, run_method
from placegap.solvers.core.result import finish
from placegap.solvers.placers.dynamic_critical_path import DDpsParams, d_dps, schedule_dynamic_path
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    admission_of,
    levels,
    outcome_of,
    problem_of,
)

# ------------------------------------------------------------------------------------------ D-DPS


FREE = Makespan(channels="free")


def test_figure_3_takes_35_with_op_3_beside_op_1_and_53_the_other_way() -> None:
    # FD-DPS, figure 3 (recovered): ops 1 and 4 on device 0
    instance = draw.with_ops(example(), colocation=["ends", None, None, "ends"])
    plan = d_dps(Task(instance, FREE)).plan
    assert plan.placement == ((0,), (1,), (0,), (0,))
    assert evaluate(instance, plan, FREE).value_ns == 35
    static = Plan.on([0, 0, 1, 0])  # op 2, of the largest static rank but one, beside op 1
    assert evaluate(instance, static, FREE).value_ns == 53


def test_an_op_that_fits_its_parents_device_goes_there() -> None:
    # T2 could start at 2 on the other device, too
    plan = d_dps(Task(table_instance(((2, 2), (3, 3)), "1-2 0"), FREE)).plan
    assert plan.placement == ((0,), (0,))


def test_an_op_goes_where_it_and_its_most_urgent_child_take_least_time() -> None:
    # T1 would take 1 on p1, 3 on p2; with T2 it is 1 + 9 on p1, 3 + 2 on p2
    plan = d_dps(Task(table_instance(((1, 3), (9, 2)), "1-2 1"), FREE)).plan
    assert plan.placement == ((1,), (1,))


@pytest.mark.parametrize(("duration", "order"), [(17, (3, 2)), (18, (2, 3))])
def test_a_slot_ends_at_the_latest_start_of_the_op_behind_it(
    duration: int, order: tuple[int, ...]
) -> None:
    # (11). T1 (10), T2 (10) with a tensor of 50 between are the critical path, 20, on p1. T3 of 17
    # has less slack than T4 of 3, and is on p2 from 0 by then; it may begin at 20 - 17 = 3. T4 ends
    # at 3, so it goes before T3, which is put off to 3. T3 of 18 may begin at 2: T4 stays behind.
    times = [(time, time) for time in (10, 10, duration, 3)]
    plan = d_dps(Task(table_instance(times, "1-2 50"), FREE)).plan
    assert plan.device_order == ((0, 1), order)


def test_what_is_put_off_puts_off_what_waits_for_it_if_all_may_wait() -> None:
    # As above, T3 of 14 and after it T5 of 3, on p2 from 14: T3 may begin at 20 - 3 - 14 = 3, and
    # T4 of 3 goes before it. They end at 20, T2 does, too.
    times = [(time, time) for time in (10, 10, 14, 3, 3)]
    instance = table_instance(times, "1-2 50, 3-5 9")
    plan = d_dps(Task(instance, FREE)).plan
    assert plan.device_order == ((0, 1), (3, 2, 4))
    assert evaluate(instance, plan, FREE).value_ns == 20


def test_a_new_round_has_the_costs_of_the_devices_of_the_round_before() -> None:
    # Algorithm 3 on figure 3. Round 1 is figure 3(c), 35: op 2 on device 1. By its devices C12 is
    # 1, C13 = 0, C24 = 2, C34 = 0: now op 2 is critical (5 + 1 + 20 + 2 + 8), goes beside op 1, and
    # op 3 to device 1: figure 3(b), 53. By these C12 = 0, C13 = 20, C24 = 0, C34 = 10: op 3 is
    # critical (53) and goes beside op 1, op 2 to device 1. That is round 1 again.
    instance = draw.with_ops(example(), colocation=["ends", None, None, "ends"])
    outcomes = [d_dps(Task(instance, FREE), DDpsParams(rounds=rounds)) for rounds in (1, 9)]
    assert [outcome.details["rounds"] for outcome in outcomes] == [1, 3]
    assert outcomes[0].plan == outcomes[1].plan


def test_the_round_of_the_shortest_path_is_the_plan() -> None:
    # as free channels are what it plans with, no plan of more rounds takes longer; some take less
    shorter = 0
    for seed in range(20):
        task = Task(pressed_instance(seed, num_ops=20, num_devices=3), FREE)
        values = []
        for rounds in (1, 20):
            plan = d_dps(task, DDpsParams(rounds=rounds)).plan
            values.append(plan and evaluate(task.instance, plan, FREE).value_ns)
        if values[0] is not None:
            assert values[1] <= values[0], seed
            shorter += values[1] < values[0]
    assert shorter >= 3


def planned_as_simulated(seeds: range, num_ops: int) -> None:
    """With free channels the referee finds every op to start when it was planned to."""
    for seed in seeds:
        instance = pressed_instance(seed, num_ops=num_ops, num_devices=2 + seed % 4)
        arrays = instance.arrays
        problem, admission, costs = problem_of(arrays), admission_of(arrays), mean_costs(arrays)
        tail = levels(problem, costs.op, costs.tensor)
        edge_cost, position = costs.tensor[problem.succ_tensor], arrays.index.topological_position
        times = schedule_dynamic_path(problem, admission, tail, edge_cost, costs.scale, position)
        if times.stuck == NOWHERE:
            plan = outcome_of(instance, times, admission).plan
            found = evaluate(instance, plan, FREE)
            assert found.value_ns == times.end_ns.max(), seed


@pytest.mark.parametrize("compiled", [False, True])
def test_ops_that_are_put_off_start_when_the_referee_says(compiled: bool) -> None:
    with all_compiled() if compiled else nullcontext():
        planned_as_simulated(range(60), num_ops=30)


def test_by_the_papers_cost_one_device_takes_all() -> None:
    # (4) adds up the times of all ops and transfers: any transfer makes a plan dearer, and no plan
    # on equal devices is cheaper than one on a single device. It is 5 + 20 + 10 + 8 ns
    plan = d_dps(Task(example(), FREE), DDpsParams(choose="cost")).plan
    assert plan.placement == ((0,),) * 4
    assert evaluate(example(), plan, FREE).value_ns == 43


def test_where_parameters_alone_count_a_plan_may_overfill_a_device() -> None:
    # each op has 2 bytes of outputs and no parameters, each device 1 byte: by (3) nothing is held
    full = with_resident(example(), np.full(4, 2))
    task = Task(draw.with_devices(full, memory_bytes=[1, 1]), FREE)
    assert d_dps(task).plan is None
    plan = d_dps(task, DDpsParams(memory="parameters")).plan
    assert not evaluate(task.instance, plan, FREE).feasible


# ----------------------------------------------------------------------------------------- FD-DPS


SPLIT_ALL = {"min_share": 0.1, "max_parameters": 10**12}


def test_a_plan_of_the_parts_is_a_plan_of_another_instance() -> None:
    instance = splittable_diamond()
    result = run_method(instance, FREE, "fd-dps", {"min_share": 0.4, "parts": 3})
    assert result.split.coarse is instance
    assert result.instance == result.split.fine.name == f"{instance.name}-split"
    assert result.instance_hash == result.split.fine.content_hash != instance.content_hash
    assert result.message == f"the plan of another instance, {result.instance}: " + (
        "1 op split into 3 parts"
    )
    # the whole ops take 34 at best: op 2 in parts of 7, 7 and 6 ns takes less
    assert (result.value_ns, oracle(instance, FREE)) == (30, 34)
    assert evaluate(result.split.fine, result.plan, FREE).value_ns == 30


def test_without_an_op_to_split_it_is_d_dps() -> None:
    result = run_method(example(), FREE, "fd-dps")
    assert result.split is None
    assert result.instance_hash == example().content_hash
    assert result.plan == run_method(example(), FREE, "d-dps").plan


def test_parts_that_do_not_fit_leave_the_ops_whole() -> None:
    # 20 ops that fill the memory to 10 % of it: copies of parameters and outputs do not fit
    instance = pressed_instance(1, num_ops=20)
    held = [op.resident_bytes for op in instance.graph.ops]
    instance = draw.with_ops(instance, splittable_axes=[("batch",)] * 20, parameter_bytes=held)
    whole = run_method(instance, FREE, "d-dps")
    split = run_method(instance, FREE, "fd-dps", {"min_share": 0, "max_parameters": 10**12})
    assert split.split is None
    assert split.plan == whole.plan is not None
    assert split.message.startswith("ops left whole: memory: ")


def test_axes_and_kinds_can_be_given_as_text() -> None:
    instance = splittable_diamond()
    wanted = {"min_share": "0.1", "axes": "in_channel, batch", "kinds": "op,Conv"}
    result = run_method(instance, FREE, "fd-dps", wanted)
    assert result.options["axes"] == ["in_channel", "batch"]
    assert result.split is not None


def test_the_referee_judges_a_claim_on_the_instance_of_the_plan() -> None:
    result = run_method(splittable_diamond(), FREE, "fd-dps", {"min_share": 0.4, "parts": 3})
    outcome = Outcome(result.plan, claim=29, split=result.split)
    with pytest.raises(SolverDisagreement, match=r"-split: claims 29, the referee finds 30"):
        finish(splittable_diamond(), FREE, "fake", outcome, solve_s=0.0)
    whole = replace(outcome, split=None, claim=None)
    rejected = finish(splittable_diamond(), FREE, "fake", whole, solve_s=0.0)
    assert rejected.value_ns is None  # of the whole ops it is no plan at all
    assert rejected.message.startswith("its plan is infeasible: ")


def compared_with_brute_force(seeds: range) -> int:
    """How many plans of parts were compared with the optimum of the parts."""
    compared = 0
    for seed in seeds:
        instance = splittable_instance(seed, num_ops=2 + seed % 2)
        semantics = MAKESPAN_SEMANTICS[seed % len(MAKESPAN_SEMANTICS)]
        result = run_method(instance, semantics, "fd-dps", SPLIT_ALL)
        if result.split is None or result.split.fine.num_ops > 6 or result.value_ns is None:
            continue
        assert result.value_ns >= oracle(result.split.fine, semantics), seed
        compared += 1
    return compared


def test_plans_of_parts_are_no_better_than_the_optimum_of_the_parts() -> None:
    assert compared_with_brute_force(range(12)) >= 3


@pytest.mark.deep
def test_nor_are_they_on_many_instances() -> None:
    assert compared_with_brute_force(range(1000, 3000)) >= 500
