"""MP-DPS: which ops are merged, and that nothing is left to merge."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from draws.tiny import tiny_instance
from references.placers import pressed_instance, table_instance

from placegap.instances import Makespan, evaluate
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.mean_costs import flow_of
from placegap.instances.transforms.merge import Merge
from placegap.instances.transforms.power_merge import merge_by_power
from placegap.solvers import Task, run_method
from placegap.solvers.placers.heft_peft_cpop import by_path_costs, mp_dps, peft

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
    instance = table_instance(times, edges)
    assert merge_by_power(instance).op.tolist() == merged


def test_merged_ops_hold_no_more_than_their_share_of_a_device() -> None:
    drawn = table_instance(((5, 5),) * 4, "1-2 9, 2-3 9, 3-4 9")
    ops = tuple(op.model_copy(update={"resident_bytes": 5}) for op in drawn.graph.ops)
    devices = tuple(d.model_copy(update={"memory_bytes": 100}) for d in drawn.cluster.devices)
    instance = drawn.model_copy(
        update={
            "graph": drawn.graph.model_copy(update={"ops": ops}),
            "cluster": drawn.cluster.model_copy(update={"devices": devices}),
        }
    )
    assert merge_by_power(instance, 0.1).op.tolist() == [0, 0, 1, 1]
    assert merge_by_power(instance, 0.2).op.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(40))
def test_no_two_merged_ops_are_left_that_belong_together(seed: int) -> None:
    draw = pressed_instance if seed % 2 else tiny_instance
    instance = draw(seed, num_ops=24 if seed % 2 else 12, num_devices=3)
    merge = merge_by_power(instance, 0.5)
    assert mergeable(merge, 0.5) == []


def mergeable(merge: Merge, memory_share: float) -> list[tuple[int, int]]:
    """Edges of the merged graph that the rule would merge, by its definition."""
    arrays, flow = merge.coarse.arrays, flow_of(merge.fine.arrays)
    source = np.repeat(np.arange(merge.fine.num_ops), np.diff(flow.ptr))
    network: nx.DiGraph[int] = nx.DiGraph()
    for a, b, time_ns in zip(
        merge.op[source].tolist(), merge.op[flow.succ].tolist(), flow.edge_ns.tolist(), strict=True
    ):
        if a != b:
            before = network.edges[a, b]["ns"] if network.has_edge(a, b) else 0
            network.add_edge(a, b, ns=before + time_ns)
    assert nx.is_directed_acyclic_graph(network)
    found = []
    for a, b, time_ns in network.edges(data="ns"):
        ones = [k for k in range(3) if arrays.time_ns[a, k] != UNSUPPORTED]
        twos = [k for k in range(3) if arrays.time_ns[b, k] != UNSUPPORTED]
        both = [k for k in ones if k in twos]
        groups = {int(arrays.group[a]), int(arrays.group[b])}
        members = [i for i in range(merge.coarse.num_ops) if arrays.group[i] in groups]
        held = int(arrays.resident_bytes[members].sum())
        hosts = [
            k
            for k in both
            if all(arrays.time_ns[i, k] != UNSUPPORTED for i in members)
            and held <= arrays.memory_bytes[k]
        ]
        most = int(memory_share * arrays.memory_bytes.min())
        if not hosts or (len(groups) > 1 and held > most):
            continue
        if network.in_degree(b) > 1 and network.out_degree(a) > 1:
            continue
        delay = 0.0
        if network.in_degree(b) > 1:
            delay = float(np.mean(arrays.time_ns[a, ones]))
        elif network.out_degree(a) > 1:
            delay = float(np.mean(arrays.time_ns[b, twos]))
        together = min(int(arrays.time_ns[a, k] + arrays.time_ns[b, k]) for k in both)
        loss = together - int(arrays.time_ns[a, ones].min()) - int(arrays.time_ns[b, twos].min())
        if time_ns >= delay + loss:
            found.append((a, b))
    return found


@pytest.mark.parametrize("seed", range(10))
def test_the_plan_of_the_merged_ops_is_one_of_the_ops(seed: int) -> None:
    instance = pressed_instance(seed, num_ops=30)
    outcome = mp_dps(Task(instance, FREE))
    if outcome.plan is None:
        assert outcome.message.startswith("memory: ")
        return
    assert evaluate(instance, outcome.plan, FREE).feasible
    if outcome.details["merged_ops"] < instance.num_ops:
        device = np.array([on[0] for on in outcome.plan.placement])
        op = merge_by_power(instance).op
        assert all(len(set(device[op == c].tolist())) == 1 for c in range(int(op.max()) + 1))


def test_where_the_merged_ops_do_not_fit_the_ops_are_placed_unmerged() -> None:
    unmerged = 0
    for seed in range(30):
        instance = pressed_instance(seed, num_ops=12, num_devices=2)
        merge = merge_by_power(instance, 1.0)
        whole, parts = by_path_costs(merge.coarse), by_path_costs(instance)
        result = run_method(instance, FREE, "mp-dps", {"memory_share": 1.0})
        if whole.plan is None and parts.plan is not None:
            assert result.plan == parts.plan
            assert result.details["merged_ops"] == instance.num_ops
            unmerged += 1
    assert unmerged >= 1


def test_path_costs_without_merging_rank_an_op_with_its_own_time() -> None:
    # T1 and T2 are ready, nothing follows T1; T2's follower costs 3: PEFT takes T2 first, but
    # with their own times T1 (9) comes before T2 (2 + 3)
    instance = table_instance(((9,), (2,), (3,)), "2-3 0")
    mine, pefts = by_path_costs(instance).plan, peft(Task(instance, FREE)).plan
    assert mine is not None
    assert pefts is not None
    assert mine.device_order == ((0, 1, 2),)
    assert pefts.device_order == ((1, 0, 2),)
