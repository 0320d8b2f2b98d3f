"""Reachability, units and memory rows that the models share."""

from __future__ import annotations

from itertools import combinations, product

import networkx as nx
import pyomo.environ as pyo
import pytest
from draws.tiny import tiny_instance

from placegap.formulations.shared.families import (
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
from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Op, Plan


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


def test_granularity_divides_all_times_that_a_value_is_a_sum_of() -> None:
    # ops 40, 60, 0; one tensor of 30 ns with a link of 15 ns latency: 45 both ways
    ops = tuple(Op(name=f"op{i}", time_ns={"gpu": time}) for i, time in enumerate((40, 60, 0)))
    edge = Edge(producer="op0", consumer="op1", bytes=30)
    devices = (Device(name="a", kind="gpu"), Device(name="b", kind="gpu"))
    links = tuple(
        Link(source=x, target=y, bandwidth_bytes_per_s=10**9, latency_ns=15)
        for x, y in (("a", "b"), ("b", "a"))
    )
    pair = Cluster(name="pair", devices=devices, links=links)
    instance = Instance(name="i", graph=Graph(name="g", ops=ops, edges=(edge,)), cluster=pair)
    assert granularity_ns(instance, transfers=True) == 5
    assert granularity_ns(instance, transfers=False) == 5
    loose = Instance(name="i", graph=Graph(name="g", ops=ops), cluster=pair)
    assert granularity_ns(loose, transfers=True) == granularity_ns(loose, transfers=False) == 20
    idle = Instance(name="i", graph=Graph(name="g", ops=ops[2:]), cluster=pair)
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
