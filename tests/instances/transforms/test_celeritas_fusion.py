"""Celeritas' orders and fusion: its rules, its figures as described, and brute force over cuts."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from draws import draw
from draws.tiny import tiny_instance

from placegap.instances import Edge, Instance, Op
from placegap.instances.corpus.generate import generate
from placegap.instances.problem.mean_costs import Flow, communication_ratio, contracted, flow_of
from placegap.instances.problem.weighted_dag import cpd_topo, critical_paths, dfs_topo
from placegap.instances.transforms.celeritas_fusion import fuse, fusion_segments


def two_gpus(pairs: str, *, num_ops: int, costs: dict[str, int] | None = None) -> Instance:
    """Ops "0", "1", ... of 1 ns and edges "0-1, ..." of 1 ns, other costs by name, on two GPUs."""
    costs = costs or {}
    ops = tuple(
        Op(name=str(i), time_ns={"gpu": costs.get(str(i), 1)}, resident_bytes=1)
        for i in range(num_ops)
    )
    edges = []
    for pair in pairs.split(", "):
        a, b = pair.split("-")
        edges.append(Edge(producer=a, consumer=b, bytes=costs.get(pair, 1)))
    devices = draw.devices(["gpu"] * 2, lambda k: num_ops // 2)
    return draw.instance_of("two", ops, edges, devices, draw.links(2, lambda a, b: (10**9, 0)))


def cut_by_halves(instance: Instance, order: list[int]) -> int:
    """Edges between the first half of an order and the second."""
    half, index = len(order) // 2, instance.arrays.index
    first = set(order[:half])
    ends = zip(index.producer.tolist(), index.consumer.tolist(), strict=True)
    return sum((a in first) != (b in first) for a, b in ends)


def test_after_figure_3_breadth_first_order_cuts_4_edges_and_depth_first_none() -> None:
    # after Celeritas, figure 3, by its caption: four disjoint edges, 8 equal ops, 2 devices
    instance = two_gpus("0-4, 1-5, 2-6, 3-7", num_ops=8)
    flow = flow_of(instance.arrays)
    breadth_first = instance.arrays.index.topological_order.tolist()
    assert cut_by_halves(instance, breadth_first) == 4
    assert cut_by_halves(instance, dfs_topo(flow).tolist()) == 0
    assert cut_by_halves(instance, cpd_topo(flow).tolist()) == 0


def test_after_figure_4_ops_that_a_second_path_joins_are_not_fused_across_it() -> None:
    # after Celeritas, figure 4: M -> Y -> Z -> N and M -> N; M with N alone would be a cycle
    instance = two_gpus("0-1, 1-2, 2-3, 0-3", num_ops=4, costs={"0-3": 99})
    segment = fuse(instance, reach=2).op.tolist()
    assert segment[0] != segment[3]


def test_the_most_critical_ready_child_comes_next() -> None:
    # cpaths: 0-1 1+1+1 = 3, 0-2 1+1+9 = 11, 0-3 1+5+1 = 7; the source 4 alone: 2
    costs = {"2": 9, "0-3": 5, "4": 2}
    instance = two_gpus("0-1, 0-2, 0-3", num_ops=5, costs=costs)
    flow = flow_of(instance.arrays)
    assert critical_paths(flow).tolist() == [11, 3, 11, 7, 2]
    assert cpd_topo(flow).tolist() == [0, 2, 3, 1, 4]
    # newly ready ops come before older ones
    instance = two_gpus("0-1, 2-3, 0-3", num_ops=4)
    assert dfs_topo(flow_of(instance.arrays)).tolist() == [0, 1, 2, 3]


def crossing_ns(flow: Flow, segment: np.ndarray) -> int:
    """Time of the edges between segments."""
    source = np.repeat(segment, np.diff(flow.ptr))
    return int(flow.edge_ns[source != segment[flow.succ]].sum())


def test_edges_between_segments_add_up_their_tensors() -> None:
    # Segments {0, 1} and {2, 3}: edges 0-2 of 4 and 1-3 of 5 are 9 on one edge of the coarse graph;
    # 1 sends 2 and 3 the same tensor, once. Level (3) of {0, 1}: 1 + 1 + 9 + 1 + 1, not 2 + 5 + 2.
    instance = two_gpus("0-2, 1-2, 1-3, 3-4", num_ops=5, costs={"0-2": 4, "1-2": 5, "1-3": 5})
    shared = [edge.model_copy(update={"tensor": edge.producer}) for edge in instance.graph.edges]
    arrays = draw.changed(instance, edges=shared).arrays
    tensor = arrays.index.tensor[arrays.index.succ_edge]
    coarse = contracted(flow_of(arrays), tensor, np.array([0, 0, 1, 1, 2]))
    assert (coarse.succ.tolist(), coarse.edge_ns.tolist()) == ([1, 2], [9, 1])
    assert critical_paths(coarse)[0] == 13 + 2  # and on to 4, edge and op of 1 ns each


@pytest.mark.parametrize("seed", range(6))
def test_no_other_cuts_of_the_order_cross_less_communication(seed: int) -> None:
    instance = tiny_instance(seed, num_ops=9)
    arrays, n, reach = instance.arrays, instance.num_ops, 4
    flow = flow_of(arrays)
    order = cpd_topo(flow)
    least_memory = int(arrays.memory_bytes.min())
    runs = np.ones((arrays.num_groups, instance.num_devices), np.bool_)
    np.logical_and.at(runs, arrays.group, arrays.time_ns >= 0)

    def allowed(ops: list[int]) -> bool:
        return len(ops) == 1 or (
            len(ops) <= reach
            and 2 * int(arrays.resident_bytes[ops].sum()) <= least_memory
            and bool(runs[arrays.group[ops]].all(axis=0).any())
        )

    best = None
    for number in range(n):
        for cuts in combinations(range(1, n), number):
            ends = [0, *cuts, n]
            parts = [order[a:b].tolist() for a, b in pairwise(ends)]
            if all(map(allowed, parts)):
                segment = np.empty(n, np.int64)
                for s, part in enumerate(parts):
                    segment[part] = s
                value = crossing_ns(flow, segment)
                best = value if best is None else min(best, value)
    found = fusion_segments(arrays, flow, order, reach, 0.5)
    parts = [order[found[order] == s].tolist() for s in range(int(found.max()) + 1)]
    assert all(map(allowed, parts))
    assert crossing_ns(flow, found) == best


def test_training_graphs_of_the_papers_sizes_shrink_and_communicate_less() -> None:
    # Celeritas, table 2, Tensor Holography: 3,810 ops to 37, CCR 49.1 to 7.4
    params = {"ops": 1300, "width": 8, "communication_ratio": 20.0}
    graph = generate("training", params, seed=1)
    devices = draw.devices(["gpu"] * 4, lambda k: 10**12)
    links = draw.links(4, lambda a, b: (10**10, 0))
    instance = draw.instance_of("training", graph.ops, graph.edges, devices, links)
    flow = flow_of(instance.arrays)
    segment = fusion_segments(instance.arrays, flow, cpd_topo(flow))
    tensor = instance.arrays.index.tensor[instance.arrays.index.succ_edge]
    fused = contracted(flow, tensor, segment)
    assert instance.num_ops >= 50 * len(fused.node_ns)
    assert 2 * communication_ratio(fused) < communication_ratio(flow)
