"""m-SCT: favourites by the LP, and devices that wait for them."""

from collections.abc import Callable

import numpy as np
import pytest
from draws.tiny import tiny_instance
from references.placers import busy_instance, pressed_instance, table_instance

from placegap.instances import Instance, Makespan, evaluate
from placegap.solvers import Limits, Task
from placegap.solvers.placers.baechi import m_etf
from placegap.solvers.placers.earliest_start import earliest_start_first, no_footprint
from placegap.solvers.placers.list_problem import KernelTimes, admission_of, outcome_of, problem_of
from placegap.solvers.placers.m_sct import SctParams, favourites, m_sct

Draw = Callable[..., Instance]
SEMANTICS = Makespan(channels="half_duplex", transfers="per_tensor")


def scheduled(instance: Instance, favourite: list[int]) -> KernelTimes:
    """The kernel's plan for these favourite children."""
    arrays = instance.arrays
    order = np.array(arrays.index.topological_order)
    admission, nothing = admission_of(arrays), no_footprint(instance)
    return earliest_start_first(
        problem_of(arrays), admission, nothing, order, True, np.array(favourite)
    )


@pytest.mark.parametrize("draw", [tiny_instance, pressed_instance, busy_instance])
def test_without_favourites_it_is_m_etf(draw: Draw) -> None:
    instance = draw(1, num_ops=30, num_devices=3)
    times = scheduled(instance, [-1] * instance.num_ops)
    found = outcome_of(instance, times, admission_of(instance.arrays)).plan
    assert found == m_etf(Task(instance, SEMANTICS)).plan


# T1 (2) feeds T3 (2) and T4 (2), at 9 elsewhere; T2 (3) runs beside T1
FAMILY = table_instance(((2, 2), (3, 3), (2, 2), (2, 2)), "1-3 9, 1-4 9")


def test_a_device_runs_the_favourite_child_before_others() -> None:
    # both children are ready on d0 at 2; T3 is first in order, unless T4 is the favourite
    assert scheduled(FAMILY, [-1, -1, -1, -1]).start_ns.tolist() == [0, 0, 2, 4]
    assert scheduled(FAMILY, [3, -1, -1, -1]).start_ns.tolist() == [0, 0, 4, 2]


@pytest.mark.parametrize(
    ("transfer", "starts"),
    [
        # T4 could not start on p2 before 2 + 9: p1 waits with it for T3, which starts at 4
        (9, [0, 0, 4, 6]),
        # from 3 on T4 could start on p2, too: it is urgent then, and p1 is the first of equals
        (1, [0, 0, 8, 3]),
    ],
)
def test_a_device_waits_for_the_favourite_child_until_others_are_urgent(
    transfer: int, starts: list[int]
) -> None:
    # T1 runs on p1 from 0 to 2, T2 on p2 from 0 to 3; what T2 sends to T3 is on p1 at 4
    times = ((2, None), (None, 3), (2, None), (5, 5))
    instance = table_instance(times, f"1-3 1, 2-3 1, 1-4 {transfer}")
    assert scheduled(instance, [-1, -1, -1, -1]).start_ns.tolist() == [0, 0, 7, 2]
    assert scheduled(instance, [2, -1, -1, -1]).start_ns.tolist() == starts


def test_the_lp_makes_the_dearer_child_the_favourite() -> None:
    instance = table_instance(((2, 2), (2, 2), (2, 2)), "1-2 1, 1-3 9")
    found = favourites(Task(instance, SEMANTICS), SctParams())
    assert found.child.tolist() == [2, -1, -1]


def test_in_pieces_there_are_favourites_within_each() -> None:
    # a chain: every child is its parent's only one, but for the edge between the pieces
    instance = table_instance(((1, 1),) * 4, "1-2 5, 2-3 5, 3-4 5")
    whole = favourites(Task(instance, SEMANTICS), SctParams())
    pieces = favourites(Task(instance, SEMANTICS), SctParams(window=2))
    assert whole.child.tolist() == [1, 2, 3, -1]
    assert (pieces.child.tolist(), pieces.pieces) == ([1, -1, 3, -1], 2)


def test_without_time_for_the_lp_there_is_still_a_plan() -> None:
    instance = tiny_instance(0, num_ops=40, num_devices=3)
    outcome = m_sct(Task(instance, SEMANTICS, Limits(time_limit_s=0.0)))
    if outcome.plan is not None:
        assert evaluate(instance, outcome.plan, SEMANTICS).feasible
    assert "LP" in outcome.message
