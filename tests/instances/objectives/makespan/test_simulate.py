"""Orders that the referee's clock cannot keep, and schedules that `check_schedule` rejects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from draws.tiny import drawn_devices, tiny_instance
from references.brute_force import MAKESPAN_SEMANTICS, scattered_instance

from placegap.instances import (
    Instance,
    Makespan,
    Plan,
    Schedule,
    Semantics,
    Transfer,
    check,
    example,
    simulate,
)
from placegap.instances.kernels.array_types import Ints
from placegap.instances.objectives.makespan.referee import check_schedule
from placegap.instances.problem.plan import TransferTimes

LABEL = {"ids": lambda semantics: semantics.label.replace(" ", "-")}
PORT = Makespan()


def draws(number: int) -> Iterator[Instance]:
    """Instances with busy channels, equal devices, shared tensors, zero-time ops and transfers."""
    for seed in range(number):
        yield tiny_instance(seed, num_ops=7, num_devices=3, density=0.5)
        yield scattered_instance(seed, num_ops=8, num_devices=3, max_edges=12)


def test_an_op_order_against_an_edge_is_named() -> None:
    backwards = Plan.on([0] * 4, [[1, 0, 2, 3], []])
    (violation,) = check(example(), backwards, PORT)
    assert violation.rule == "order"
    assert "op 'op1' waits for op 'op2' waits for op 'op1'" in violation.message or (
        "op 'op2' waits for op 'op1' waits for op 'op2'" in violation.message
    )


def test_channel_orders_that_cross_are_named() -> None:
    # op1's two outputs leave gpu0 in one order and enter gpu1 in the other
    first, second = Transfer(0, 1), Transfer(1, 1)
    crossed = Plan(((0,), (1,), (1,), (1,)), None, {0: (first, second), 3: (second, first)})
    (violation,) = check(example(), crossed, PORT)
    assert violation.rule == "order"
    assert violation.message.count("the transfer of 'op1' to 'gpu1'") == 3


def test_a_ready_op_is_not_delayed_for_a_more_urgent_one() -> None:
    # op3 (10 + 8) is ready on gpu0 at 5; op2 (20 + 1 + 8), more urgent, would be there too, but
    # nothing waits: with op2 on gpu1, op3 runs 5-15, and op4 27-35 after op2's output.
    schedule = simulate(example(), Plan.on([0, 1, 0, 0]), PORT)
    assert schedule.start_ns.tolist() == [0, 6, 5, 27]


def moved(times: Schedule | TransferTimes, i: int, *, shorter: bool) -> dict[str, Ints]:
    """Starts and ends of ops or of transfers; the i-th ends earlier, and starts, too, or not."""
    start, end = times.start_ns.copy(), times.end_ns.copy()
    end[i] -= 1
    start[i] -= not shorter
    return {"start_ns": start, "end_ns": end}


@pytest.mark.parametrize("semantics", MAKESPAN_SEMANTICS, **LABEL)
def test_a_schedule_with_a_moved_op_or_a_changed_transfer_is_rejected(semantics: Semantics) -> None:
    rng, changed = np.random.default_rng(3), 0
    for instance in draws(4):
        plan = Plan.on(drawn_devices(instance, rng).tolist())
        schedule = simulate(instance, plan, semantics)
        assert check_schedule(instance, schedule, semantics) == ()
        # the clock never waits, so nothing that takes time can be earlier or shorter
        wrong = [
            replace(schedule, **moved(schedule, i, shorter=shorter))
            for i in np.flatnonzero(schedule.end_ns > schedule.start_ns).tolist()
            for shorter in (False, True)
        ]
        table = schedule.transfers
        for row in np.flatnonzero(table.end_ns > table.start_ns).tolist():
            kept = {name: np.delete(column, row) for name, column in vars(table).items()}
            changes = [moved(table, row, shorter=shorter) for shorter in (False, True)]
            wrong += [replace(schedule, transfers=replace(table, **x)) for x in (*changes, kept)]
        assert all(check_schedule(instance, each, semantics) for each in wrong)
        changed += len(wrong)
    assert changed > 50
