"""Blocks of stages: what edges of both passes tie together."""

from draws import draw
from draws.pipelines import layer_row, shared_weight_row

from placegap.instances import Edge, Instance, Op
from placegap.instances.problem.nets import gradient_tie, stage_blocks


def instance(edges: list[tuple[str, str]], groups: dict[str, str], devices: int = 1) -> Instance:
    """Forward ops a, b, c and backward ops x, y, z."""
    ops = (
        Op(name=name, time_ns={"gpu": 1}, backward=name in "xyz", colocation=groups.get(name))
        for name in "abcxyz"
    )
    arcs = (Edge(producer=a, consumer=b) for a, b in edges)
    links = draw.links(devices, lambda a, b: (1, 0))
    return draw.instance_of("i", ops, arcs, draw.devices(["gpu"] * devices), links)


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


def test_an_exchange_of_gradients_ties_no_blocks_together() -> None:
    blocks = stage_blocks(shared_weight_row([1, 1, 1], [1, 1, 1], 5))
    assert blocks is not None
    assert blocks.tolist() == [0, 1, 2, 0, 1, 2, 0, 2]


def test_gradients_that_run_with_the_layers_are_named_where_they_leave_too_few_stages() -> None:
    groups = {"a": "1", "x": "1", "b": "2", "y": "2", "c": "3", "z": "3"}
    edges = [("a", "b"), ("b", "c"), ("x", "y"), ("y", "z")]
    assert gradient_tie(instance(edges, groups)) is None  # one device
    tie = gradient_tie(instance(edges, groups, devices=2))
    assert tie is not None
    assert tie.startswith("1 of its parts may be a stage")
    assert "'x' feeds 'y' of a later layer" in tie
