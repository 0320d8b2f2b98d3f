"""Windows keep every plan of at most the horizon, and nothing that they can rule out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from references.brute_force import makespan_draws

from placegap.formulations.shared.times import windows
from placegap.instances import Makespan, Plan, evaluate, example

FREE = Makespan(channels="free")


@pytest.mark.parametrize("number", range(0, 110, 5))
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
