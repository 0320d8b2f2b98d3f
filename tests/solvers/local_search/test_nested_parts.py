"""Nested parts: what is dear to cut is together, none is too large, equal layers look equal."""

import numpy as np
from draws import draw
from draws.tiny import tiny_instance

from placegap.instances import Edge, Instance, Op, example
from placegap.instances.problem.mean_costs import flow_of
from placegap.solvers.local_search.nested_parts import SHARE, alike, nested_parts


def layered(layers: int) -> Instance:
    """A row of layers: an op forward, one back that reads its large output again, a gradient."""
    ops, edges = list[Op](), list[Edge]()
    for at in range(layers):
        weights = {"colocation": f"w{at}"}
        ops.append(Op(name=f"f{at}", time_ns={"gpu": 10}, module=f"net.{at}", **weights))
        ops.append(Op(name=f"b{at}", time_ns={"gpu": 10}, module=f"net.{at}"))
        ops.append(Op(name=f"g{at}", time_ns={"gpu": 10}, **weights))
        edges.append(Edge(producer=f"f{at}", consumer=f"b{at}", bytes=100_000))
        edges.append(Edge(producer=f"b{at}", consumer=f"g{at}", bytes=100_000))
        if at:
            edges.append(Edge(producer=f"f{at - 1}", consumer=f"f{at}", bytes=1))
            edges.append(Edge(producer=f"b{at}", consumer=f"b{at - 1}", bytes=1))
    return draw.changed(example(), ops=ops, edges=edges)


def test_what_comes_back_to_a_layer_is_in_its_part_and_equal_layers_look_the_same() -> None:
    instance = layered(20)
    order = instance.arrays.group_order
    place = instance.arrays.place_of_ops(order)
    parts = nested_parts(instance, order)
    for at in range(20):  # three ops in two groups
        assert tuple(sorted({int(place[3 * at]), int(place[3 * at + 1])})) in parts
    # and then neighbours, within an eighth of the work: two layers of the twenty
    assert max(map(len, parts)) == 4
    sizes = {(len(parts[row[0]]), len(row)) for row in alike(instance, order, parts)}
    # forward groups with their gradients, ops of the way back, and layers
    assert {(1, 20), (2, 20)} <= sizes


def test_parts_are_nested_or_apart_and_hold_no_more_than_their_share() -> None:
    for seed in range(12):
        instance = tiny_instance(seed, num_ops=30, num_devices=3, density=0.2)
        arrays = instance.arrays
        order = arrays.group_order
        parts = [set(part) for part in nested_parts(instance, order)]
        assert {p for part in parts for p in part} == set(range(arrays.num_groups))
        for one in parts:
            assert all(one <= other or other <= one or not one & other for other in parts)
        place = arrays.place_of_ops(order)
        work = np.bincount(place, flow_of(arrays).node_ns, arrays.num_groups)
        for part in parts:
            assert len(part) == 1 or work[sorted(part)].sum() <= work.sum() / SHARE
