"""The unit of time that the models share.

Windows keep every plan of at most the horizon, and nothing that they can rule out.
"""

from itertools import product

import numpy as np
import pytest
from draws import draw
from references.brute_force import makespan_draws

from placegap.formulations.shared.times import granularity_ns, time_unit_ns, windows
from placegap.instances import Edge, Makespan, Op, Plan, evaluate, example


def test_granularity_divides_all_times_that_a_value_is_a_sum_of() -> None:
    # ops 40, 60, 0; one tensor of 30 ns with a link of 15 ns latency: 45 both ways
    ops = [Op(name=f"op{i}", time_ns={"gpu": time}) for i, time in enumerate((40, 60, 0))]
    edge = Edge(producer="op0", consumer="op1", bytes=30)
    pair = draw.devices(["gpu"] * 2), draw.links(2, lambda a, b: (10**9, 15))
    instance = draw.instance_of("i", ops, (edge,), *pair)
    assert granularity_ns(instance, transfers=True) == 5
    assert granularity_ns(instance, transfers=False) == 5
    loose = draw.instance_of("i", ops, (), *pair)
    assert granularity_ns(loose, transfers=True) == granularity_ns(loose, transfers=False) == 20
    assert granularity_ns(draw.instance_of("i", ops[2:], (), *pair), transfers=True) == 1


def test_the_unit_is_the_granularity_while_numbers_stay_moderate() -> None:
    assert time_unit_ns(1000 * 7, 7) == 7
    assert time_unit_ns(2000 * 7, 7) == 14


FREE = Makespan(channels="free")


@pytest.mark.parametrize("number", [0, 30, 60, 91])
def test_every_plan_keeps_to_the_windows_of_its_value(number: int) -> None:
    instance = makespan_draws()[number]
    ops = np.arange(instance.num_ops)
    for devices in product(range(instance.num_devices), repeat=instance.num_ops):
        verdict = evaluate(instance, Plan.on(devices), FREE)
        if verdict.feasible and verdict.value_ns is not None and verdict.schedule is not None:
            window = windows(instance, verdict.value_ns)
            schedule = verdict.schedule
            assert window.possible[ops, schedule.device].all()
            assert (window.head_ns[ops, schedule.device] <= schedule.start_ns).all()
            latest = verdict.value_ns - window.tail_ns[ops, schedule.device]
            assert (schedule.end_ns <= latest).all()


def test_heads_and_tails_include_the_cheaper_of_transfer_and_detour() -> None:
    # op1 (5) -> op3 (10) -> op4 (8): staying costs 0, moving 20 and 10; op2 (20) is the longer way
    window = windows(example(), 75)
    assert window.head_ns.tolist() == [[0, 0], [5, 5], [5, 5], [25, 25]]
    assert window.tail_ns.tolist() == [[28, 28], [8, 8], [8, 8], [0, 0]]


def test_a_horizon_below_the_critical_path_leaves_nothing() -> None:
    # 5 + 20 + 8 = 33 ns
    assert windows(example(), 33).possible.all()
    assert not windows(example(), 32).possible.any()
