"""D-DPS: its paper's figure 3, and the definition in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from draws.tiny import tiny_instance
from references.placers import Facts, plan_of, pressed_instance, table_instance

from placegap.instances import Instance, Makespan, Plan, evaluate, example
from placegap.instances.problem.additive_memory import with_resident
from placegap.solvers import Task
from placegap.solvers.placers.dynamic_critical_path import DDpsParams, d_dps

Draw = Callable[..., Instance]
FREE = Makespan(channels="free")


def with_ops_1_and_4_together(instance: Instance) -> Instance:
    """The instance with its first and its last op colocated."""
    names = (instance.graph.ops[0].name, instance.graph.ops[-1].name)
    ops = tuple(
        op.model_copy(update={"colocation": "ends" if op.name in names else None})
        for op in instance.graph.ops
    )
    return instance.model_copy(update={"graph": instance.graph.model_copy(update={"ops": ops})})


def test_figure_3_takes_35_with_op_3_beside_op_1_and_53_the_other_way() -> None:
    # FD-DPS, figure 3 (recovered): ops 1 and 4 on device 0
    instance = with_ops_1_and_4_together(example())
    plan = d_dps(Task(instance, FREE)).plan
    assert plan is not None
    assert plan.placement == ((0,), (1,), (0,), (0,))
    assert evaluate(instance, plan, FREE).value_ns == 35
    static = Plan.on([0, 0, 1, 0])  # op 2, of the largest static rank but one, beside op 1
    assert evaluate(instance, static, FREE).value_ns == 53


def test_an_op_that_fits_its_parents_device_goes_there() -> None:
    # T2 could start at 2 on the other device, too
    plan = d_dps(Task(table_instance(((2, 2), (3, 3)), "1-2 0"), FREE)).plan
    assert plan is not None
    assert plan.placement == ((0,), (0,))


def test_an_op_goes_where_it_and_its_most_urgent_child_take_least_time() -> None:
    # T1 would take 1 on p1, 3 on p2; with T2 it is 1 + 9 on p1, 3 + 2 on p2
    plan = d_dps(Task(table_instance(((1, 3), (9, 2)), "1-2 1"), FREE)).plan
    assert plan is not None
    assert plan.placement == ((1,), (1,))


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("draw", [tiny_instance, pressed_instance])
def test_the_kernel_plans_as_the_definition_does(draw: Draw, seed: int) -> None:
    instance = draw(seed, num_ops=14, num_devices=3)
    outcome, times = d_dps(Task(instance, FREE)), slow_d_dps(instance)
    assert outcome.plan == (None if times is None else plan_of(instance, times))


Times = tuple[list[int], list[int], list[int]]


def slow_d_dps(instance: Instance) -> Times | None:
    """Algorithms 1 to 3 with EST and LST of all ops computed anew at every step."""
    facts = Facts(instance)
    device: list[int | None] = [None] * facts.n
    start, end = [0] * facts.n, [0] * facts.n
    while None in device:
        est, lst = _bounds(facts, device, start, end)
        ready = [
            i
            for i in range(facts.n)
            if device[i] is None and all(device[j] is not None for j, _ in facts.inputs[i])
        ]
        i = min(ready, key=lambda i: (lst[i] - est[i], facts.position[i]))
        at = _device(facts, device, start, end, est, lst, i)
        if at is None:
            return None
        start[i] = _slot(facts, device, start, end, i, at, _arrival(facts, device, end, i, at))
        device[i], end[i] = at, start[i] + facts.time[i][at]
    return [k for k in device if k is not None], start, end


def _bounds(
    facts: Facts, device: list[int | None], start: list[int], end: list[int]
) -> tuple[list[Fraction], list[Fraction]]:
    """EST (6) and LST (7) of all ops: those of placed ones are their starts."""
    est, ends = [Fraction(0)] * facts.n, [Fraction(0)] * facts.n
    for i in facts.topological:
        if device[i] is None:
            sent = [ends[j] + facts.mean_transfer(u) for j, u in facts.inputs[i]]
            est[i] = max(sent, default=Fraction(0))
            ends[i] = est[i] + facts.mean_time(i)
        else:
            est[i], ends[i] = Fraction(start[i]), Fraction(end[i])
    length = max(ends)  # (10)
    lst = [length] * facts.n
    for i in reversed(facts.topological):
        if device[i] is None:
            followers = [lst[j] - facts.mean_transfer(u) for j, u in facts.outputs[i]]
            lst[i] = min(followers, default=length) - facts.mean_time(i)
    return est, lst


def _arrival(facts: Facts, device: list[int | None], end: list[int], i: int, k: int) -> int:
    placed = [(j, u, device[j]) for j, u in facts.inputs[i]]
    return max(
        (end[j] + facts.transfer(u, where, k) for j, u, where in placed if where is not None),
        default=0,
    )


def _slot(
    facts: Facts,
    device: list[int | None],
    start: list[int],
    end: list[int],
    i: int,
    k: int,
    ready: int,
) -> int:
    """Where op i fits first on device k, from `ready` on."""
    begin = 0
    for a, b in sorted((start[j], end[j]) for j in range(facts.n) if device[j] == k):
        if max(begin, ready) + facts.time[i][k] <= a:
            break
        begin = b
    return max(begin, ready)


def _device(
    facts: Facts,
    device: list[int | None],
    start: list[int],
    end: list[int],
    est: list[Fraction],
    lst: list[Fraction],
    i: int,
) -> int | None:
    """Algorithm 2."""
    admitting = sorted(facts.admitting(i, device))
    arrival = {k: _arrival(facts, device, end, i, k) for k in admitting}
    begin = {k: _slot(facts, device, start, end, i, k, arrival[k]) for k in admitting}
    fitting = [k for k in admitting if begin[k] <= lst[i] + arrival[k] - est[i]]  # (11)
    near = [k for k in fitting if k in {device[j] for j, _ in facts.inputs[i]}]
    if near:
        return min(near, key=lambda k: (begin[k], k))
    if fitting:
        return _beside_child(facts, device, start, end, lst, i, fitting, begin)
    if not admitting:
        return None
    length = max(lst[j] + facts.mean_time(j) for j in range(facts.n))

    def least(k: int) -> Fraction:
        tails = [start[j] + _tail(facts, j) for j in range(facts.n) if device[j] == k]
        return min(tails, default=length)

    return min(admitting, key=lambda k: (least(k), k))


def _tail(facts: Facts, i: int) -> Fraction:
    behind = [facts.mean_transfer(u) + _tail(facts, j) for j, u in facts.outputs[i]]
    return facts.mean_time(i) + max(behind, default=Fraction(0))


def _beside_child(
    facts: Facts,
    device: list[int | None],
    start: list[int],
    end: list[int],
    lst: list[Fraction],
    i: int,
    fitting: list[int],
    begin: dict[int, int],
) -> int:
    """The child rule (12), else the earliest start."""
    children = list(dict.fromkeys(j for j, _ in facts.outputs[i]))
    if children:

        def known_est(c: int) -> Fraction:
            placed = [
                end[j] + facts.mean_transfer(u) for j, u in facts.inputs[c] if device[j] is not None
            ]
            return max(placed, default=Fraction(0))

        child = min(children, key=lambda c: lst[c] - known_est(c))  # the first of equals
        both = []
        for k in fitting:
            trial, trial_start, trial_end = list(device), list(start), list(end)
            trial[i], trial_start[i] = k, begin[k]
            trial_end[i] = begin[k] + facts.time[i][k]
            if k not in facts.admitting(child, trial):
                continue
            ready = _arrival(facts, trial, trial_end, child, k)
            ready = max(ready, trial_end[i])
            slot = _slot(facts, trial, trial_start, trial_end, child, k, ready)
            if slot <= lst[child]:
                both.append((facts.time[i][k] + facts.time[child][k], k))
        if both:
            return min(both)[1]
    return min(fitting, key=lambda k: (begin[k], k))


def test_by_the_papers_cost_one_device_takes_all() -> None:
    # (4) adds up the times of all ops and transfers: any transfer makes a plan dearer, and no plan
    # on equal devices is cheaper than one on a single device. It is 5 + 20 + 10 + 8 ns
    plan = d_dps(Task(example(), FREE), DDpsParams(choose="cost")).plan
    assert plan is not None
    assert plan.placement == ((0,),) * 4
    assert evaluate(example(), plan, FREE).value_ns == 43


def test_where_parameters_alone_count_a_plan_may_overfill_a_device() -> None:
    # each op has 2 bytes of outputs and no parameters, each device 1 byte: by (3) nothing is held
    devices = tuple(
        device.model_copy(update={"memory_bytes": 1}) for device in example().cluster.devices
    )
    cluster = example().cluster.model_copy(update={"devices": devices})
    full = with_resident(example(), np.full(4, 2))
    task = Task(full.model_copy(update={"cluster": cluster}), FREE)
    assert d_dps(task).plan is None
    plan = d_dps(task, DDpsParams(memory="parameters")).plan
    assert plan is not None
    assert not evaluate(task.instance, plan, FREE).feasible
