"""ETF: its choices on small graphs, and the definition in plain Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from draws.tiny import tiny_instance
from references.placers import etf as slow_etf
from references.placers import plan_of, pressed_instance, table_instance

from placegap.instances import Instance, Makespan, evaluate
from placegap.solvers import Task
from placegap.solvers.placers.earliest_start import etf

Draw = Callable[..., Instance]
FREE = Makespan(channels="free")


def test_of_ops_that_start_together_the_one_with_the_longer_tail_goes_first() -> None:
    # One processor; T3 follows T2: static levels 3, 2 + 4, 4.
    instance = table_instance(((3,), (2,), (4,)), "2-3 0")
    plan = etf(Task(instance, FREE)).plan
    assert plan is not None
    assert plan.device_order == ((1, 2, 0),)


def test_an_op_goes_where_it_starts_earliest_even_if_it_is_slow_there() -> None:
    # T1 has the higher level (mean 6) and takes p1; T2 starts on p2 at 0, for 9, not on p1 at 2.
    instance = table_instance(((2, 10), (1, 9)), "")
    plan = etf(Task(instance, FREE)).plan
    assert plan is not None
    assert plan.placement == ((0,), (1,))
    assert evaluate(instance, plan, FREE).value_ns == 9


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("draw", [tiny_instance, pressed_instance])
def test_the_kernel_plans_as_the_definition_does(draw: Draw, seed: int) -> None:
    instance = draw(seed, num_ops=30, num_devices=3)
    outcome, times = etf(Task(instance, FREE)), slow_etf(instance)
    if times is None:
        assert outcome.plan is None
        return
    assert outcome.plan == plan_of(instance, times)
    assert evaluate(instance, outcome.plan, FREE).value_ns == max(times[2])
