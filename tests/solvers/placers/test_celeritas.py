"""Celeritas and Order-Place: fused ops, memory, and transfers as tasks."""

from collections.abc import Sequence

import pytest
from draws import draw
from references.placers import pressed_instance, table_instance

from placegap.instances import Edge, Instance, Makespan, evaluate, load_cluster, load_corpus
from placegap.instances.corpus.generate import mirror_training
from placegap.instances.costing.costing import cost_graph
from placegap.instances.oracle.recheck import recheck
from placegap.instances.problem import parse_semantics
from placegap.solvers import Task, run_method
from placegap.solvers.placers.celeritas import (
    CeleritasParams,
    MTopoFillParams,
    OrderPlaceParams,
    celeritas,
    m_topo_fill,
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
    return [int(k) for k in plan.devices]


@pytest.mark.parametrize(("back", "device"), [(2, 1), (3, 0)])
def test_an_op_leaves_the_device_before_only_to_gain_more_than_the_transfer_back(
    back: int, device: int
) -> None:
    # T1 (3) before T2 (3); T2 could start at 3 there, at 0 on the other: it gains 3
    instance = equal_devices((3, 3, 2), f"1-3 9, 2-3 {back}")
    assert devices_of(instance)[1] == device


@pytest.mark.parametrize(("tensors", "device"), [((1, 1), 1), ((2, 1), 0)])
def test_parallel_tensors_add_up_on_an_edge_of_the_coarse_graph(
    tensors: tuple[int, int], device: int
) -> None:
    # CPD-TOPO: T1, T2, .. T5. In pairs the least is cut between T1, T2 + T3 and T4 + T5 (equation
    # 4): 9 + 2 tensors; any other cut also cuts a 5. T2 + T3 of 1 + 2 ns find d0 busy until 3 and
    # d1 idle, so that they gain 3 there. Equation (8): 1 + 1 < 3 leaves; 2 + 1 is not less.
    first, second = tensors
    edges = f"1-4 9, 2-3 5, 2-5 {first}, 3-4 {second}, 4-5 5"
    instance = equal_devices((3, 1, 2, 1, 1), edges)
    params = CeleritasParams(reach=2, transfer_tasks=False)
    assert devices_of(instance, params)[1:3] == [device] * 2


def test_a_tensor_for_two_ops_of_a_cluster_is_on_the_edge_once() -> None:
    # T3's tensor of 2 goes to T4 and to T5, and T2 + T3 gain 3, as above: 2 < 3, where 2 + 2 > 3
    instance = equal_devices((3, 1, 2, 1, 1), "1-4 9, 2-3 5, 3-4 2, 3-5 2, 4-5 5")
    edges = [
        Edge(producer=e.producer, consumer=e.consumer, bytes=e.bytes, tensor=e.producer)
        for e in instance.graph.edges
    ]
    shared = draw.changed(instance, edges=edges)
    params = CeleritasParams(reach=2, transfer_tasks=False)
    found = [devices_of(instance, params), devices_of(shared, params)]
    assert [devices[1:3] for devices in found] == [[0, 0], [1, 1]]


def test_inputs_arrive_when_all_tensors_of_their_edge_have() -> None:
    # Equation (7) adds them up, too. T1 + T2 (1 + 1) are on d0 until 2, T3 (4) until 6; T3 and T4
    # hold too much to be fused. T4 starts at 6 on d0; on d1 at 2 + 2 = 4 with one tensor of 2, a
    # gain of 2, more than nothing back; with two at 2 + 2 + 2 = 6, no gain.
    pairs, sizes = "1-2 9, 2-3 9, 1-4 2", (0, 0, 2, 2)
    params = CeleritasParams(reach=2, memory_share=0.5, transfer_tasks=False)
    for edges, device in ((pairs, 1), (f"{pairs}, 2-4 2", 0)):
        instance = equal_devices((1, 1, 4, 3), edges, memory=7, sizes=sizes)
        assert devices_of(instance, params) == [0, 0, 0, device]


def test_adjusting_can_be_worse_than_order_place() -> None:
    # Against the paper's "never worse". CPD-TOPO: T1, T2, T3, T4. T2 leaves for d1: it gains 3,
    # more than its transfer of 2. T3 could start on d0 at 3 + 2 = 5, on d1 at 3 + 5 = 8; it stays
    # on d1, as 3 is less than its transfer back of 6; T4 ends at 11. All on one device: 9.
    instance = equal_devices((3, 3, 2, 1), "1-3 5, 2-3 2, 3-4 6")
    task = Task(instance, FREE)
    values = []
    for outcome in (celeritas(task, SINGLE), order_place(task, OrderPlaceParams(reach=1))):
        values.append(evaluate(instance, outcome.plan, FREE).value_ns)
    assert values == [11, 9]


def test_order_place_fills_a_device_then_the_next() -> None:
    # a chain of four ops of 2 bytes, 5 bytes per device: two each, whatever the transfers
    instance = equal_devices((1, 1, 1, 1), "1-2 9, 2-3 9, 3-4 9", memory=5, sizes=(2, 2, 2, 2))
    plan = order_place(Task(instance, FREE), OrderPlaceParams(reach=1)).plan
    assert plan.devices.tolist() == [0, 0, 1, 1]


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
        assert evaluate(instance, plan, FREE).feasible
        assert plan.placement[6] != plan.placement[7]


def test_where_the_paper_would_overfill_a_device_there_is_no_plan() -> None:
    instance = equal_devices((1, 1, 1), "1-2 1", memory=3, sizes=(2, 2, 2))
    for outcome in (celeritas(Task(instance, FREE)), order_place(Task(instance, FREE))):
        assert outcome.plan is None
        assert "fits on none of the devices now" in outcome.message


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
    assert all(_is_local(edge, instance, plan.placement) for edge in instance.graph.edges)


def _is_local(edge: Edge, instance: Instance, placement: Sequence[tuple[int, ...]]) -> bool:
    where = instance.graph.op_index
    return placement[where[edge.producer]] == placement[where[edge.consumer]]


def test_m_topo_cuts_all_four_edges_where_dfs_topo_cuts_none() -> None:
    # Figure 3: four disjoint edges, 8 equal ops, 2 devices. M-TOPO: T1 .. T4 on d0, T5 .. T8 on d1
    pairs = ", ".join(f"{i}-{i + 4} 1" for i in (1, 2, 3, 4))
    instance = equal_devices((1,) * 8, pairs, memory=4, sizes=(1,) * 8)
    plan = m_topo_fill(Task(instance, FREE)).plan
    assert plan.devices.tolist() == [0] * 4 + [1] * 4
    assert not any(_is_local(edge, instance, plan.placement) for edge in instance.graph.edges)


def test_m_topo_fill_fills_to_the_limit_where_m_topo_shares() -> None:
    # six ops of 1 byte, 4 bytes per device: 4 and 2; Baechi's cap is 6 / 2 + 1 = 4 here, too, and
    # with 5 bytes per device 5 and 1 against 4 and 2
    for memory, filled, shared in ((4, [4, 2], [4, 2]), (5, [5, 1], [4, 2])):
        instance = equal_devices((1,) * 6, "1-2 1", memory=memory, sizes=(1,) * 6)
        for name, counts in (("m-topo-fill", filled), ("m-topo", shared)):
            result = run_method(instance, FREE, name)
            assert [use.num_ops for use in result.evaluation.uses] == counts


def test_m_topo_fill_may_count_the_first_op_of_a_group_alone() -> None:
    # Section 6.5.2. T1 (1 byte) is of a group with T3 (4), T2 has 1; 4 bytes per device. By the
    # first op T1, T3 and T2 take 1 + 1 of d0's 4 bytes and overfill it with 6; by all of them no
    # device has room for 5
    drawn = equal_devices((1, 1, 1), "1-3 1, 2-3 1", memory=4, sizes=(1, 1, 4))
    instance = draw.with_ops(drawn, colocation=["pair", None, "pair"])
    assert m_topo_fill(Task(instance, FREE)).plan is None
    plan = m_topo_fill(Task(instance, FREE), MTopoFillParams(group_bytes="first")).plan
    assert plan.devices.tolist() == [0, 0, 0]
    assert evaluate(instance, plan, FREE).uses[0].memory_bytes == 6


def test_with_best_effort_the_emptiest_device_is_overfilled() -> None:
    # three single ops of 2 bytes, 3 bytes per device: one each, and the third on the emptiest
    instance = equal_devices((1, 1, 1), "1-2 1", memory=3, sizes=(2, 2, 2))
    for outcome in (
        celeritas(Task(instance, FREE), CeleritasParams(reach=1, best_effort=True)),
        order_place(Task(instance, FREE), OrderPlaceParams(reach=1, best_effort=True)),
        m_topo_fill(Task(instance, FREE), MTopoFillParams(best_effort=True)),
    ):
        verdict = evaluate(instance, outcome.plan, FREE)
        assert sorted(use.memory_bytes for use in verdict.uses) == [2, 4]
        assert [broken.rule for broken in verdict.violations] == ["memory"]


# ----------------------------------------------------------------------------- transfers as tasks


HALF_DUPLEX = Makespan(channels="half_duplex", transfers="per_tensor")
TASKS = CeleritasParams(reach=1, transfer_tasks=True)
PLAIN = CeleritasParams(reach=1, transfer_tasks=False)


def devices_under_half_duplex(instance: Instance, params: CeleritasParams) -> list[int] | None:
    plan = celeritas(Task(instance, HALF_DUPLEX), params).plan
    return None if plan is None else [int(k) for k in plan.devices]


def test_a_transfer_keeps_its_receiver_busy() -> None:
    # T1 0-4 on d0. T2 stays on d0 (it would gain 4, and its transfer back takes 9). T3: d0 from 8,
    # or d1 from 4 + 2 = 6; it gains 2, more than nothing back: d1. As a task the transfer T1 -> T3
    # waits until d0 has run T2, 8 to 10: T3 stays.
    instance = table_instance([(4, 4), (4, 4), (3, 3)], "1-2 9, 1-3 2")
    assert devices_under_half_duplex(instance, PLAIN) == [0, 0, 1]
    assert devices_under_half_duplex(instance, TASKS) == [0, 0, 0]


def test_a_tensor_is_sent_once_to_each_device() -> None:
    # T1 0-2 on d0; T2 (20) stays there: 2-22. T3 and T4 need T1's tensor of 3: it is sent to d1
    # from 22 to 25, if at all as a task, so that both stay; sent first, they would start at 5
    instance = table_instance([(2, 2), (20, 20), (4, 4), (4, 4)], "1-2 50, 1-3 3, 1-4 3")
    assert devices_under_half_duplex(instance, PLAIN) == [0, 0, 1, 1]
    edges = [
        Edge(producer=e.producer, consumer=e.consumer, bytes=3, tensor="out")
        for e in instance.graph.edges
    ]
    shared = draw.instance_of(
        "shared", instance.graph.ops, edges, instance.cluster.devices, instance.cluster.links
    )
    assert devices_under_half_duplex(shared, TASKS) == [0, 0, 0, 0]


@pytest.mark.parametrize("channels", ["free", "port"])
def test_transfers_are_tasks_by_default_wherever_channels_are_not_free(channels: str) -> None:
    semantics = parse_semantics({"objective": "makespan", "channels": channels})
    for seed in range(3):
        task = Task(pressed_instance(seed, num_ops=40, num_devices=3), semantics)
        by_default = celeritas(task, CeleritasParams(reach=1)).plan
        chosen = CeleritasParams(reach=1, transfer_tasks=channels != "free")
        assert by_default == celeritas(task, chosen).plan
        assert celeritas(task).plan == celeritas(task, CeleritasParams()).plan


@pytest.mark.parametrize(
    ("method", "channels"), [("order-place", "free"), ("celeritas", "half_duplex")]
)
def test_a_training_step_that_fits_no_device_is_spread_and_fits(method: str, channels: str) -> None:
    # four devices, each with 30 % of what all ops hold together: at least four are needed
    graph = mirror_training(load_corpus("inception_v1").graph)
    share = 3 * sum(op.resident_bytes for op in graph.ops) // 10
    cluster = load_cluster("celeritas-4xV100-pcie")
    instance = Instance(name="tight", graph=cost_graph(graph, cluster), cluster=cluster)
    instance = draw.with_devices(instance, memory_bytes=[share] * 4)
    semantics = parse_semantics({"objective": "makespan", "channels": channels})
    result = run_method(instance, semantics, method)
    assert all(use.num_ops > 0 for use in result.evaluation.uses)
    assert all(use.memory_bytes <= share for use in result.evaluation.uses)
    assert recheck(instance, result.plan, semantics).value_ns == result.value_ns
