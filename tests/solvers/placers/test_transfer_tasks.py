"""Celeritas with transfers as tasks: what they occupy, and the definition in plain Python."""

from __future__ import annotations

import pytest
from draws.tiny import tiny_instance
from references.placers import Facts, pressed_instance, table_instance

from placegap.instances import Edge, Instance, Makespan, evaluate, load_cluster, load_corpus
from placegap.instances.corpus.generate import mirror_training
from placegap.instances.costing.costing import cost_graph
from placegap.instances.oracle.recheck import recheck
from placegap.instances.problem import parse_semantics
from placegap.instances.problem.mean_costs import flow_of
from placegap.instances.problem.weighted_dag import cpd_topo
from placegap.solvers import Task, run_method
from placegap.solvers.placers.celeritas import CeleritasParams, celeritas

HALF_DUPLEX = Makespan(channels="half_duplex", transfers="per_tensor")
TASKS = CeleritasParams(reach=1, transfer_tasks=True)
PLAIN = CeleritasParams(reach=1, transfer_tasks=False)


def devices_of(instance: Instance, params: CeleritasParams) -> list[int] | None:
    plan = celeritas(Task(instance, HALF_DUPLEX), params).plan
    return None if plan is None else [int(k) for k in plan.devices]


def slow_celeritas(instance: Instance) -> list[int] | None:
    """Adjusting Placement of single ops with transfers as tasks, by walks over busy intervals."""
    facts = Facts(instance)
    device: list[int | None] = [None] * facts.n
    end = [0] * facts.n
    busy: list[list[tuple[int, int]]] = [[] for _ in range(instance.num_devices)]
    sent: dict[tuple[int, int], int] = {}
    before: int | None = None

    def first(on: tuple[int, ...], ready: int, duration: int) -> int:
        """First start at which all these devices are idle for the duration."""
        start = ready
        while True:
            clash = [b for k in on for a, b in busy[k] if a < start + duration and start < b]
            if not clash:
                return start
            start = min(clash)

    def inputs(i: int, k: int) -> tuple[int, list[tuple[int, int, int, int]]]:
        """Arrival on k, and the transfers that it takes: (start, end, source, tensor)."""
        arrival, lacking = 0, []
        for at, (j, u) in enumerate(facts.inputs[i]):
            source = device[j]
            assert source is not None
            if source == k:
                arrival = max(arrival, end[j])
            elif (u, k) in sent:
                arrival = max(arrival, sent[u, k])
            elif u not in [other for *_, other in lacking]:
                lacking.append((end[j], at, source, u))
        made, free_from = [], 0
        for ready, _, source, u in sorted(lacking):
            duration = facts.transfer(u, source, k)
            start = first((source, k), max(ready, free_from), duration) if duration else ready
            free_from = start + duration if duration else free_from
            made.append((start, start + duration, source, u))
            arrival = max(arrival, start + duration)
        return arrival, made

    for i in cpd_topo(flow_of(instance.arrays)).tolist():
        homes = {device[j] for j in facts.group[i]} - {None}
        if not homes:
            options = [
                (begin, begin + facts.time[i][k], k)
                for k in sorted(facts.admitting(i, device))
                for begin in [first((k,), inputs(i, k)[0], facts.time[i][k])]
            ]
            if not options:
                return None
            begin, _, at = min(options)
            here = [b for b, _, k in options if k == before]
            if here and at != before:
                assert before is not None
                back = max((facts.transfer(u, at, before) for _, u in facts.outputs[i]), default=0)
                if here[0] - begin <= back:
                    at = before
            before = at
            for j in facts.group[i]:
                device[j] = at
        k = device[i]
        assert k is not None
        arrival, made = inputs(i, k)
        for a, b, source, u in made:
            sent[u, k] = b
            if b > a:
                busy[source].append((a, b))
                busy[k].append((a, b))
        start = first((k,), arrival, facts.time[i][k])
        end[i] = start + facts.time[i][k]
        if end[i] > start:
            busy[k].append((start, end[i]))
    return [k for k in device if k is not None]


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
    edges = tuple(
        Edge(producer=e.producer, consumer=e.consumer, bytes=3, tensor="out")
        for e in instance.graph.edges
    )
    shared = instance.model_copy(
        update={"graph": instance.graph.model_copy(update={"edges": edges})}
    )
    assert devices_of(shared, TASKS) == slow_celeritas(shared)


@pytest.mark.parametrize("seed", range(40))
def test_the_kernel_plans_as_the_definition_does(seed: int) -> None:
    draw = (tiny_instance, pressed_instance)[seed % 2]
    instance = draw(seed, num_ops=22, num_devices=3)
    devices = devices_of(instance, TASKS)
    assert devices == slow_celeritas(instance)


def test_fused_ops_with_transfer_tasks_give_plans_that_the_referee_accepts() -> None:
    different = 0
    for seed in range(30):
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
    assert different > 5


@pytest.mark.parametrize("channels", ["free", "port", "half_duplex", "link"])
def test_transfers_are_tasks_by_default_wherever_channels_are_not_free(channels: str) -> None:
    semantics = parse_semantics({"objective": "makespan", "channels": channels})
    for seed in range(10):
        task = Task(pressed_instance(seed, num_ops=40, num_devices=3), semantics)
        by_default = celeritas(task, CeleritasParams(reach=1)).plan
        chosen = CeleritasParams(reach=1, transfer_tasks=channels != "free")
        assert by_default == celeritas(task, chosen).plan
        assert celeritas(task).plan == celeritas(task, CeleritasParams()).plan


@pytest.mark.parametrize("channels", ["free", "port", "half_duplex"])
@pytest.mark.parametrize("method", ["order-place", "celeritas"])
def test_a_training_step_that_fits_no_device_is_spread_and_fits(method: str, channels: str) -> None:
    # four devices, each with 30 % of what all ops hold together: at least four are needed
    graph = mirror_training(load_corpus("inception_v1").graph)
    share = 3 * sum(op.resident_bytes for op in graph.ops) // 10
    cluster = load_cluster("celeritas-4xV100-pcie")
    devices = tuple(device.model_copy(update={"memory_bytes": share}) for device in cluster.devices)
    instance = Instance(
        name="tight",
        graph=cost_graph(graph, cluster),
        cluster=cluster.model_copy(update={"devices": devices}),
    )
    semantics = parse_semantics({"objective": "makespan", "channels": channels})
    result = run_method(instance, semantics, method)
    assert result.plan is not None
    assert result.evaluation is not None
    assert all(use.num_ops > 0 for use in result.evaluation.uses)
    assert all(use.memory_bytes <= share for use in result.evaluation.uses)
    assert recheck(instance, result.plan, semantics).value_ns == result.value_ns
    groups: dict[str, set[tuple[int, ...]]] = {}
    for op, on in zip(graph.ops, result.plan.placement, strict=True):
        groups.setdefault(op.colocation or op.name, set()).add(on)
    assert all(len(homes) == 1 for homes in groups.values())
