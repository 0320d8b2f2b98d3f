"""MP-DPS: which ops are merged, and that nothing is left to merge."""

import pytest
from draws import draw
from references.placers import pressed_instance, table_instance

from placegap.instances import Makespan
from placegap.solvers import Task, run_method
from placegap.solvers.placers.heft_peft_cpop import peft

FREE = Makespan(channels="free")


@pytest.mark.parametrize(
    ("times", "edges", "merged"),
    [
        # a chain on equal devices, even if nothing is sent
        (((5, 5), (5, 5), (5, 5)), "1-2 0, 2-3 0", [0, 0, 0]),
        # T1 is faster on p1, T2 on p2: together 11 instead of 2, a loss of 9
        (((1, 10), (10, 1)), "1-2 9", [0, 0]),
        (((1, 10), (10, 1)), "1-2 8", [0, 1]),
        # T3 would wait for T2 (5) if T1 ran with T2; T2 for T3 (4)
        (((7, 7), (5, 5), (4, 4)), "1-2 4, 1-3 3", [0, 1, 2]),
        # with T3, T2 comes after T1 and T3 and is in a chain with them
        (((7, 7), (5, 5), (4, 4)), "1-2 4, 1-3 4", [0, 0, 0]),
        # T1 would wait for T2, and T2 for T1, of which nothing is sent
        (((5, 5), (9, 9), (4, 4)), "1-3 4, 2-3 0", [0, 1, 2]),
        (((5, 5), (9, 9), (4, 4)), "1-3 5, 2-3 0", [0, 0, 0]),
        # T1 -> T3 goes over T2 as well
        (((1, 1), (9, 9), (1, 1)), "1-2 0, 2-3 0, 1-3 50", [0, 1, 2]),
    ],
)
def test_ops_are_merged_where_the_transfer_outweighs_power_and_delay(
    times: tuple[tuple[int, int], ...], edges: str, merged: list[int]
) -> None:
    from placegap.experiments.research.stand_ins.mp_dps import merge_by_power

    instance = table_instance(times, edges)
    assert merge_by_power(instance).op.tolist() == merged


def test_merged_ops_hold_no_more_than_their_share_of_a_device() -> None:
    from placegap.experiments.research.stand_ins.mp_dps import merge_by_power

    drawn = table_instance(((5, 5),) * 4, "1-2 9, 2-3 9, 3-4 9")
    instance = draw.with_ops(drawn, resident_bytes=[5] * 4)
    instance = draw.with_devices(instance, memory_bytes=[100] * 2)
    assert merge_by_power(instance, 0.1).op.tolist() == [0, 0, 1, 1]
    assert merge_by_power(instance, 0.2).op.tolist() == [0, 0, 0, 0]


def test_where_the_merged_ops_do_not_fit_the_ops_are_placed_unmerged() -> None:
    from placegap.experiments.research.stand_ins.mp_dps import by_path_costs, merge_by_power

    # of 30 drawn instances the one in which the merged ops do not fit, but the ops do
    instance = pressed_instance(28, num_ops=12, num_devices=2)
    whole, parts = by_path_costs(merge_by_power(instance, 1.0).coarse), by_path_costs(instance)
    assert whole.plan is None
    assert parts.plan is not None
    result = run_method(instance, FREE, "mp-dps", {"memory_share": 1.0})
    assert result.plan == parts.plan
    assert result.details["merged_ops"] == instance.num_ops


def test_path_costs_without_merging_rank_an_op_with_its_own_time() -> None:
    from placegap.experiments.research.stand_ins.mp_dps import by_path_costs

    # T1 and T2 are ready, nothing follows T1; T2's follower costs 3: PEFT takes T2 first, but
    # with their own times T1 (9) comes before T2 (2 + 3)
    instance = table_instance(((9,), (2,), (3,)), "2-3 0")
    mine, pefts = by_path_costs(instance).plan, peft(Task(instance, FREE)).plan
    assert mine.device_order == ((0, 1, 2),)
    assert pefts.device_order == ((1, 0, 2),)
