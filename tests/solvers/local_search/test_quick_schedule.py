"""Insertion: the most urgent op first, into the first gap; its orders take what it says."""

import numpy as np
import pytest
from draws.tiny import drawn_devices, tiny_instance
from features.makespan import anywhere
from features.makespan import instance as instance_of
from references.brute_force import MAKESPAN_SEMANTICS

from placegap.instances import Makespan, evaluate
from placegap.solvers.local_search.disjunctive_graph import machines_of
from placegap.solvers.local_search.quick_schedule import insert_all, new_work, plan_of


@pytest.mark.parametrize("semantics", MAKESPAN_SEMANTICS, ids=lambda semantics: semantics.label)
def test_the_orders_of_an_insertion_take_no_longer_than_it_says(semantics: Makespan) -> None:
    equal = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        instance = tiny_instance(seed, num_ops=9, num_devices=3, density=0.4)
        data, device = machines_of(instance, semantics), drawn_devices(instance, rng)
        work = new_work(data)
        makespan = insert_all(data, device, rng.integers(0, 20, 9), work)
        verdict = evaluate(instance, plan_of(instance, semantics, data, device, work), semantics)
        # sooner only what stands behind a gap that has closed
        assert verdict.schedule.makespan_ns <= makespan
        equal += verdict.schedule.makespan_ns == makespan
    assert equal >= 7


def test_a_long_op_waits_for_the_urgent_chain_and_a_short_one_fills_its_gap() -> None:
    # a chain of a (2 ns on g0), b (4 ns on g1), c (2 ns on g0), with transfers of 1 ns, needs g0
    # from 0 to 2 and from 8 on: x (5 ns) fits in between at 2, y (7 ns) only behind c, at 10
    ops = [anywhere(name, ns) for name, ns in zip("abcxy", (2, 4, 2, 5, 7), strict=True)]
    gap = instance_of("gap", ops, [("a", "b", 1), ("b", "c", 1)])
    data = machines_of(gap, Makespan())
    work = new_work(data)
    device = np.array([0, 1, 0, 0, 0])
    makespan = insert_all(data, device, np.array([9, 8, 7, 1, 2]), work)
    assert work.start[:5].tolist() == [0, 3, 8, 2, 10]
    assert makespan == 17
    assert work.stretches.tolist() == [2, 1, 1, 1, 1, 1]  # g0, g1, then each port one transfer


def test_an_op_without_time_stands_right_behind_its_input() -> None:
    # behind a (2 ns) comes z (no time), behind z the urgent b (3 ns); c (4 ns) waits for nothing
    ops = [anywhere(name, ns) for name, ns in zip("azbc", (2, 0, 3, 4), strict=True)]
    row = instance_of("z", ops, [("a", "z", 0), ("z", "b", 0)], devices=1)
    data = machines_of(row, Makespan())
    work = new_work(data)
    insert_all(data, np.zeros(4, np.int64), np.array([9, 1, 8, 5]), work)
    # c is booked behind a before z is: z starts at 2 all the same, and b behind c
    assert work.start[:4].tolist() == [0, 2, 6, 2]
