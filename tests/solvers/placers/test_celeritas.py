"""Celeritas and Order-Place: when fused ops leave a device, and what is done about memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from draws import draw
from references.placers import table_instance

from placegap.instances import Edge, Instance, Makespan, evaluate
from placegap.solvers import Task
from placegap.solvers.placers.celeritas import (
    CeleritasParams,
    OrderPlaceParams,
    celeritas,
    order_place,
)

FREE = Makespan(channels="free")
SINGLE = CeleritasParams(reach=1)


def equal_devices(
    times: Sequence[int], edges: str, *, memory: int | None = None, sizes: Sequence[int] = ()
) -> Instance:
    """Ops T1, T2, ... on two equal devices, with bytes, and bytes that a device holds."""
    drawn = table_instance([(time, time) for time in times], edges)
    drawn = draw.with_ops(drawn, resident_bytes=sizes or [0] * len(times))
    return draw.with_devices(drawn, memory_bytes=[memory, memory])


def devices_of(instance: Instance, params: CeleritasParams = SINGLE) -> list[int]:
    """Where Celeritas puts each op, without fusion unless the parameters say so."""
    plan = celeritas(Task(instance, FREE), params).plan
    assert plan is not None
    return [int(k) for k in plan.devices]


@pytest.mark.parametrize(("back", "device"), [(2, 1), (3, 0)])
def test_an_op_leaves_the_device_before_only_to_gain_more_than_the_transfer_back(
    back: int, device: int
) -> None:
    # T1 (3) before T2 (3); T2 could start at 3 there, at 0 on the other: it gains 3
    instance = equal_devices((3, 3, 2), f"1-3 9, 2-3 {back}")
    assert devices_of(instance)[1] == device


def test_an_op_starts_in_an_idle_gap() -> None:
    # T1 0-2 on d0. T2 stays: 2-7. T3 (cpath 8): d0 from 7 or d1 from 0, more than 2 earlier: d1
    # 0-6. T4 needs T3 on d1 and T2 + 9: on d1 16 or on d0 max(7, 6 + 2) = 8: d0. T5 alone: its
    # gap on d0, 7-8, is as long as it: not after T4 at 9, and d1 from 6 is earlier by 1 > 0.
    instance = equal_devices((2, 5, 6, 1, 1), "1-2 1, 2-4 9, 3-4 2")
    assert devices_of(instance) == [0, 0, 1, 0, 1]


def test_adjusting_can_be_worse_than_order_place() -> None:
    # Against the paper's "never worse". CPD-TOPO: T1, T2, T3, T4. T2 leaves for d1: it gains 3,
    # more than its transfer of 2. T3 could start on d0 at 3 + 2 = 5, on d1 at 3 + 5 = 8; it stays
    # on d1, as 3 is less than its transfer back of 6; T4 ends at 11. All on one device: 9.
    instance = equal_devices((3, 3, 2, 1), "1-3 5, 2-3 2, 3-4 6")
    task = Task(instance, FREE)
    values = []
    for outcome in (celeritas(task, SINGLE), order_place(task, OrderPlaceParams(reach=1))):
        assert outcome.plan is not None
        values.append(evaluate(instance, outcome.plan, FREE).value_ns)
    assert values == [11, 9]


def test_order_place_fills_a_device_then_the_next() -> None:
    # a chain of four ops of 2 bytes, 5 bytes per device: two each, whatever the transfers
    instance = equal_devices((1, 1, 1, 1), "1-2 9, 2-3 9, 3-4 9", memory=5, sizes=(2, 2, 2, 2))
    plan = order_place(Task(instance, FREE), OrderPlaceParams(reach=1)).plan
    assert plan is not None
    assert plan.devices.tolist() == [0, 0, 1, 1]


def test_fused_ops_are_placed_together() -> None:
    # two chains of two; each device holds one of them: fusion cuts between the chains
    instance = equal_devices((1, 1, 1, 1), "1-3 5, 2-4 5", memory=4, sizes=(2, 2, 2, 2))
    found = devices_of(instance, CeleritasParams(reach=2, memory_share=1))
    assert found in ([0, 1, 0, 1], [1, 0, 1, 0])


def test_fused_ops_that_no_device_has_room_for_are_taken_apart() -> None:
    # Fused by threes, 1-3 take 6 of 7 bytes of d0; 4-6 find 6 of 7 on d1; the last, of 1 + 1
    # bytes, fit on no device together, but on both
    instance = equal_devices(
        (1,) * 8, "1-2 9, 2-3 9, 4-5 9, 5-6 9, 7-8 9", memory=7, sizes=(2, 2, 2, 2, 2, 2, 1, 1)
    )
    for plan in (
        order_place(Task(instance, FREE), OrderPlaceParams(reach=3, memory_share=1)).plan,
        celeritas(Task(instance, FREE), CeleritasParams(reach=3, memory_share=1)).plan,
    ):
        assert plan is not None
        assert evaluate(instance, plan, FREE).feasible
        assert plan.placement[6] != plan.placement[7]


def test_where_the_paper_would_overfill_a_device_there_is_no_plan() -> None:
    instance = equal_devices((1, 1, 1), "1-2 1", memory=3, sizes=(2, 2, 2))
    for outcome in (celeritas(Task(instance, FREE)), order_place(Task(instance, FREE))):
        assert outcome.plan is None
        assert "fits on no device any more" in outcome.message


def test_a_group_is_committed_with_its_first_op() -> None:
    # T1 and T4 share a device; T4 follows T1 although all its inputs are on the other
    drawn = equal_devices((5, 5, 1, 1), "2-3 9, 3-4 9")
    instance = draw.with_ops(drawn, colocation=["pair", None, None, "pair"])
    found = devices_of(instance)
    assert found[0] == found[3]
    assert evaluate(instance, celeritas(Task(instance, FREE)).plan, FREE).feasible  # type: ignore[arg-type]


def test_dfs_order_without_fusion_is_the_papers_sequential_placement() -> None:
    # after figure 3: four disjoint edges, 8 equal ops, 2 devices: no edge is cut
    pairs = ", ".join(f"{i}-{i + 4} 1" for i in (1, 2, 3, 4))
    instance = equal_devices((1,) * 8, pairs, memory=4, sizes=(1,) * 8)
    plan = order_place(Task(instance, FREE), OrderPlaceParams(reach=1, order="dfs")).plan
    assert plan is not None
    assert all(_is_local(edge, instance, plan.placement) for edge in instance.graph.edges)


def _is_local(edge: Edge, instance: Instance, placement: Sequence[tuple[int, ...]]) -> bool:
    where = instance.graph.op_index
    return placement[where[edge.producer]] == placement[where[edge.consumer]]


def test_with_best_effort_the_emptiest_device_is_overfilled() -> None:
    # three single ops of 2 bytes, 3 bytes per device: one each, and the third on the emptiest
    instance = equal_devices((1, 1, 1), "1-2 1", memory=3, sizes=(2, 2, 2))
    for outcome in (
        celeritas(Task(instance, FREE), CeleritasParams(reach=1, best_effort=True)),
        order_place(Task(instance, FREE), OrderPlaceParams(reach=1, best_effort=True)),
    ):
        assert outcome.plan is not None
        verdict = evaluate(instance, outcome.plan, FREE)
        assert sorted(use.memory_bytes for use in verdict.uses) == [2, 4]
        assert [broken.rule for broken in verdict.violations] == ["memory"]


def test_best_effort_changes_no_plan_that_fits() -> None:
    instance = equal_devices((1,) * 4, "1-3 5, 2-4 5", memory=4, sizes=(2, 2, 2, 2))
    params = {"reach": 2, "memory_share": 1}
    for place, kind in ((celeritas, CeleritasParams), (order_place, OrderPlaceParams)):
        usual = place(Task(instance, FREE), kind(**params))
        effort = place(Task(instance, FREE), kind(**params, best_effort=True))
        assert usual.plan == effort.plan
