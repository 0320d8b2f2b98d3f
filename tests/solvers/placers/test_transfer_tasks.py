"""Celeritas with transfers as tasks: what they occupy."""

from __future__ import annotations

import pytest
from draws import draw
from references.placers import pressed_instance, table_instance

from placegap.instances import Edge, Instance, Makespan, evaluate, load_cluster, load_corpus
from placegap.instances.corpus.generate import mirror_training
from placegap.instances.costing.costing import cost_graph
from placegap.instances.oracle.recheck import recheck
from placegap.instances.problem import parse_semantics
from placegap.solvers import Task, run_method
from placegap.solvers.placers.celeritas import CeleritasParams, celeritas

HALF_DUPLEX = Makespan(channels="half_duplex", transfers="per_tensor")
TASKS = CeleritasParams(reach=1, transfer_tasks=True)
PLAIN = CeleritasParams(reach=1, transfer_tasks=False)


def devices_of(instance: Instance, params: CeleritasParams) -> list[int] | None:
    plan = celeritas(Task(instance, HALF_DUPLEX), params).plan
    return None if plan is None else [int(k) for k in plan.devices]


def test_a_transfer_keeps_its_receiver_busy() -> None:
    # T1 0-4 on d0. T2 stays on d0 (it would gain 4, and its transfer back takes 9). T3: d0 from 8,
    # or d1 from 4 + 2 = 6; it gains 2, more than nothing back: d1. As a task the transfer T1 -> T3
    # waits until d0 has run T2, 8 to 10: T3 stays.
    instance = table_instance([(4, 4), (4, 4), (3, 3)], "1-2 9, 1-3 2")
    assert devices_of(instance, PLAIN) == [0, 0, 1]
    assert devices_of(instance, TASKS) == [0, 0, 0]


def test_a_tensor_is_sent_once_to_each_device() -> None:
    # T1 0-2 on d0; T2 (20) stays there: 2-22. T3 and T4 need T1's tensor of 3: it is sent to d1
    # from 22 to 25, if at all as a task, so that both stay; sent first, they would start at 5
    instance = table_instance([(2, 2), (20, 20), (4, 4), (4, 4)], "1-2 50, 1-3 3, 1-4 3")
    assert devices_of(instance, PLAIN) == [0, 0, 1, 1]
    edges = [
        Edge(producer=e.producer, consumer=e.consumer, bytes=3, tensor="out")
        for e in instance.graph.edges
    ]
    shared = draw.instance_of(
        "shared", instance.graph.ops, edges, instance.cluster.devices, instance.cluster.links
    )
    assert devices_of(shared, TASKS) == [0, 0, 0, 0]


def test_fused_ops_with_transfer_tasks_give_plans_that_the_referee_accepts() -> None:
    different = 0
    for seed in range(6):
        instance = pressed_instance(seed, num_ops=40, num_devices=3)
        for reach in (1, 4, 200):
            params = CeleritasParams(reach=reach, transfer_tasks=True)
            outcome = celeritas(Task(instance, HALF_DUPLEX), params)
            if outcome.plan is None:
                assert "bytes" in outcome.message
                continue
            assert evaluate(instance, outcome.plan, HALF_DUPLEX).feasible
            plain = CeleritasParams(reach=reach, transfer_tasks=False)
            other = celeritas(Task(instance, HALF_DUPLEX), plain).plan
            different += outcome.plan != other
    assert different > 1


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
    assert result.plan is not None
    assert result.evaluation is not None
    assert all(use.num_ops > 0 for use in result.evaluation.uses)
    assert all(use.memory_bytes <= share for use in result.evaluation.uses)
    assert recheck(instance, result.plan, semantics).value_ns == result.value_ns
