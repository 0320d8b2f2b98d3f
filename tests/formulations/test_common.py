"""Reachability, units and memory rows that the models share."""

from __future__ import annotations

from itertools import combinations, product

import networkx as nx
import pyomo.environ as pyo
import pytest
from support import tiny_instance

from placegap.formulations.common import (
    LARGEST_CAPACITY,
    assign_once,
    count_unordered_pairs,
    exclude_overload,
    flow_reach,
    granularity_ns,
    memory_capacity,
    op_reach,
    place_ops,
    possible_devices,
    set_placement,
    time_unit_ns,
    unordered_pairs,
)
from placegap.instances import Cluster, Device, Graph, Instance, Op, Plan


def machines(memory_bytes: tuple[int, ...], sizes: tuple[int, ...]) -> Instance:
    """Ops of the given sizes, without edges, on devices of the given memory."""
    return Instance(
        name="sizes",
        graph=Graph(
            name="sizes",
            ops=tuple(
                Op(name=f"op{i}", time_ns={"gpu": 1}, resident_bytes=size)
                for i, size in enumerate(sizes)
            ),
        ),
        cluster=Cluster(
            name="machines",
            devices=tuple(
                Device(name=f"d{k}", kind="gpu", memory_bytes=limit)
                for k, limit in enumerate(memory_bytes)
            ),
        ),
    )


def admits(model: pyo.ConcreteModel, plan: Plan) -> bool:
    """Whether a plan's placement keeps to all rows."""
    set_placement(model, plan)
    rows = model.component_data_objects(pyo.Constraint, active=True)
    return all(row.slack() >= -1e-9 for row in rows)


@pytest.mark.parametrize("seed", range(10))
def test_reachability_is_that_of_the_line_graph(seed: int) -> None:
    index = tiny_instance(seed, num_ops=8, density=0.3).graph.index
    edges = list(zip(index.producer.tolist(), index.consumer.tolist(), strict=True))
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(range(8))
    paths = nx.transitive_closure(graph)
    ancestors, descendants = op_reach(index)
    before, after = flow_reach(index)
    for i, j in product(range(8), repeat=2):
        assert (descendants[i] >> j & 1) == (ancestors[j] >> i & 1) == paths.has_edge(i, j)
    for (q, (_, middle)), (r, (start, _)) in product(enumerate(edges), repeat=2):
        follows = middle == start or paths.has_edge(middle, start)
        assert (after[q] >> r & 1) == (before[r] >> q & 1) == follows
    pairs = [
        (i, j)
        for i, j in combinations(range(8), 2)
        if not paths.has_edge(i, j) and not paths.has_edge(j, i)
    ]
    assert list(unordered_pairs(ancestors, descendants)) == pairs
    assert count_unordered_pairs(descendants) == len(pairs)


def test_granularity_divides_ops_and_the_transfers_that_count() -> None:
    # ops 4, 6 and host times 9 (links' least) leave 1; without the tensor, gcd(4, 6) = 2
    instance = tiny_instance(0, num_ops=3, num_devices=2, density=0.0)
    ops = tuple(Op(name=f"op{i}", time_ns={"gpu0": t}) for i, t in enumerate((4, 6, 0)))
    cluster = instance.cluster.model_copy(
        update={"devices": tuple(Device(name=f"d{k}", kind="gpu0") for k in range(2))}
    )
    alone = Instance(name="no-edges", graph=Graph(name="g", ops=ops), cluster=cluster)
    assert granularity_ns(alone, transfers=True) == granularity_ns(alone, transfers=False) == 2
    idle = Instance(
        name="idle",
        graph=Graph(name="g", ops=(Op(name="a", time_ns={"gpu0": 0}),)),
        cluster=cluster,
    )
    assert granularity_ns(idle, transfers=True) == 1


def test_the_unit_is_the_granularity_while_numbers_stay_moderate() -> None:
    assert time_unit_ns(1000 * 7, 7) == 7
    assert time_unit_ns(2000 * 7, 7) == 14


def test_memory_rows_of_small_numbers_are_exact() -> None:
    # in units of gcd 6 the sizes are 1, 2 and the capacities floor(17 / 6) = 2 and 3
    instance = machines((17, 18), (6, 12))
    model = pyo.ConcreteModel()
    place_ops(model, possible_devices(instance))
    memory_capacity(model, instance)
    assert list(model.memory_capacity) == [0]  # the second device holds everything
    assert admits(model, Plan.on([1, 0]))
    assert not admits(model, Plan.on([0, 0]))


def test_memory_rows_of_large_numbers_are_a_millionth_wider_until_a_plan_is_excluded() -> None:
    giant = LARGEST_CAPACITY**2
    # the first two ops exceed either device by 1 byte, and none of the others
    sizes = (giant // 2, giant // 2 + 1, 5, 3)
    instance = machines((giant, giant, giant // 4), sizes)
    model = pyo.ConcreteModel()
    place_ops(model, possible_devices(instance))
    assign_once(model, instance)
    memory_capacity(model, instance)
    overloaded = Plan.on([0, 0, 1, 1])
    assert admits(model, overloaded)
    assert not admits(model, Plan.on([0, 2, 1, 1]))  # twice the third device's memory
    assert not exclude_overload(model, instance, Plan.on([0, 1, 1, 1]))
    assert exclude_overload(model, instance, overloaded)
    for pair in product(range(2), repeat=2):
        for rest in product(range(3), repeat=2):
            assert admits(model, Plan.on([*pair, *rest])) == (pair[0] != pair[1])
