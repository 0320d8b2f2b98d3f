"""List schedules with booked channels: ops see transfers queue."""

import numpy as np
import pytest
from draws.binding_memory import binding_instance
from features.makespan import anywhere, instance, pinned

from placegap.instances import Makespan, Op, Plan, evaluate
from placegap.instances.problem import Channels
from placegap.solvers.local_search.disjunctive_graph import machines_of
from placegap.solvers.local_search.list_schedules import (
    WindowLists,
    contended_lists,
    list_ops,
    nothing_booked,
)


@pytest.mark.parametrize(("channels", "device"), [("free", 2), ("port", 1)])
def test_an_op_sees_its_inputs_queue(channels: Channels, device: int) -> None:
    # a and b end at 10 on devices 0 and 1. On device 1, c has a at 18 and ends at 48. On device 2
    # it has a at 18 and b at 19, and ends at 39; through one port it has b at 27, and ends at 47.
    # With 0.3 of what is sent (8 or 17 ns) that is 50.4 on device 1, and 44.1 or 52.1 on device 2.
    ops = [pinned("a", 0, 10), pinned("b", 1, 10)]
    ops.append(Op(name="c", time_ns={"kind0": 30, "kind1": 30, "kind2": 20}))
    queue = instance("queue", ops, [("a", "c", 8), ("b", "c", 9)], devices=3)
    plan = next(contended_lists(queue, Makespan(channels=channels)))
    assert plan.devices.tolist() == [0, 1, device]


def test_plans_fit_into_memory() -> None:
    found = 0
    for seed in range(20):
        tight = binding_instance(seed)
        for plan in contended_lists(tight, Makespan()):
            assert evaluate(tight, plan, Makespan()).feasible
            found += 1
    assert found > 20


@pytest.mark.parametrize(("ahead_weight", "device"), [(0.0, 0), (1.0, 1)])
def test_an_op_sees_where_its_consumers_were(ahead_weight: float, device: int) -> None:
    # a ends at 10 on both devices, and of equals the first one counts. Its consumer was on device
    # 1: from device 0 its output takes 5 ns, so that a costs 15 there, and 10 on device 1.
    row = instance("row", [anywhere("a", 10), anywhere("b", 10)], [("a", "b", 5)], devices=2)
    machines = machines_of(row, Makespan())
    booked = nothing_booked(row, machines)
    booked.before[:] = 1
    assert list_ops(machines, booked, np.arange(2), 0.0, ahead_weight)
    assert booked.home[0] == device


def test_windows_are_placed_anew_within_memory_and_all_else_stays() -> None:
    moved, rng = 0, np.random.default_rng(0)
    for seed in range(60):
        tight = binding_instance(seed)
        start = next(contended_lists(tight, Makespan()), None)
        if start is None:
            continue
        lists = WindowLists(tight, machines_of(tight, Makespan()))
        by_start = tight.arrays.index.topological_order
        for _ in range(20):
            device = lists.draw(start.devices, by_start, rng)
            if device is not None:
                assert evaluate(tight, Plan.on(device.tolist()), Makespan()).feasible
                moved += int(0 < (device != start.devices).sum() < tight.num_ops)
    assert moved > 20


def test_rolled_lists_keep_to_memory_and_start_from_where_ops_are() -> None:
    moved = 0
    for seed in range(60):
        tight, rng = binding_instance(seed), np.random.default_rng(seed)
        drawn = rng.integers(tight.num_devices, size=tight.arrays.num_groups)
        device = drawn[tight.arrays.group]
        for rules in (Makespan(), Makespan(channels="port", transfers="per_edge")):
            if not evaluate(tight, Plan.on(device.tolist()), rules).feasible:
                continue
            lists = WindowLists(tight, machines_of(tight, rules))
            found = lists.roll(device, rng, lambda: False)
            assert evaluate(tight, Plan.on(found.tolist()), rules).feasible
            assert lists.roll(found, rng, lambda: True).tolist() == found.tolist()
            moved += found.tolist() != device.tolist()
    assert moved > 10


@pytest.mark.parametrize("rules", [Makespan(), Makespan(transfers="per_edge", channels="port")])
def test_rolled_lists_spread_ops_that_a_device_does_in_a_row(rules: Makespan) -> None:
    # forty ops of 10 ns without edges, all on device 0: two devices have 20 each, 200 ns, as a list
    # that puts one on either device ends no later
    row = instance("row", [anywhere(f"op{i}", 10) for i in range(40)], [], devices=2)
    lists = WindowLists(row, machines_of(row, rules))
    device = lists.roll(np.zeros(40, np.int64), np.random.default_rng(0), lambda: False)
    assert evaluate(row, Plan.on(device.tolist()), rules).value == 200
