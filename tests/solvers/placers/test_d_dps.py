"""D-DPS: its paper's figure 3, and the definition in plain Python."""

from __future__ import annotations

import numpy as np
from draws import draw
from references.placers import table_instance

from placegap.instances import Makespan, Plan, evaluate, example
from placegap.instances.problem.additive_memory import with_resident
from placegap.solvers import Task
from placegap.solvers.placers.dynamic_critical_path import DDpsParams, d_dps

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
