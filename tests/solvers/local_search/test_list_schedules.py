"""List schedules with booked channels: ops see transfers queue."""

import pytest
from draws.binding_memory import binding_instance
from features.makespan import instance, pinned

from placegap.instances import Makespan, Op, evaluate
from placegap.instances.problem import Channels
from placegap.solvers.local_search.list_schedules import contended_lists


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
