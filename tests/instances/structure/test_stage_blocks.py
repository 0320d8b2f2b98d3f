"""Blocks of stages: what edges of both passes tie together."""

from __future__ import annotations

from draws.pipelines import layer_row

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Op
from placegap.instances.structure.stage_blocks import stage_blocks


def instance(edges: list[tuple[str, str]], groups: dict[str, str]) -> Instance:
    """Forward ops a, b, c and backward ops x, y, z."""
    ops = tuple(
        Op(name=name, time_ns={"gpu": 1}, backward=name in "xyz", colocation=groups.get(name))
        for name in "abcxyz"
    )
    graph = Graph(name="g", ops=ops, edges=tuple(Edge(producer=a, consumer=b) for a, b in edges))
    one = Cluster(name="c", devices=(Device(name="d", kind="gpu"),))
    return Instance(name="i", graph=graph, cluster=one)


def test_layers_with_their_backward_ops_are_blocks_in_a_row() -> None:
    blocks = stage_blocks(layer_row([1, 1, 1], [1, 1, 1]))
    assert blocks is not None
    assert blocks.tolist() == [0, 1, 2, 0, 1, 2]


def test_backward_edges_run_against_the_stages_and_may_tie_blocks_together() -> None:
    # a -> b forward and x -> y backward, where x belongs to a and y to b: gradients would go up
    tied = stage_blocks(
        instance([("a", "b"), ("x", "y")], {"a": "1", "x": "1", "b": "2", "y": "2"})
    )
    assert tied is not None
    assert tied[0] == tied[1]
    loose = stage_blocks(
        instance([("a", "b"), ("y", "x")], {"a": "1", "x": "1", "b": "2", "y": "2"})
    )
    assert loose is not None
    assert loose[0] < loose[1]


def test_a_backward_op_that_feeds_a_forward_op_leaves_no_passage() -> None:
    assert stage_blocks(instance([("x", "a")], {})) is None
