"""Layers and modules of a graph, and colocation groups that keep them whole."""

import pytest
from draws import draw

from placegap.instances import Edge, InputError, Instance, Op, Plan
from placegap.instances.exporters.modules import layer_devices
from placegap.instances.problem.modules import (
    homes_by_layer,
    layer_of,
    leaf_module_of,
    with_granularity,
)


def chain(*modules: str | None) -> Instance:
    """Ops of 1 ns, named after their position, each of which feeds the next."""
    ops = tuple(Op(name=f"op{i}", time_ns={"gpu": 1}, module=m) for i, m in enumerate(modules))
    return draw.row(ops, draw.devices(["gpu"] * 2), bytes=8)


def groups(instance: Instance) -> list[str | None]:
    return [op.colocation for op in instance.graph.ops]


def test_a_layer_is_a_numbered_module_or_a_module_beside_the_list_of_them() -> None:
    net = chain("m.embed.tokens", "m.layers.0.attn", "m.layers.0", "m.layers.1.mlp", "head")
    assert layer_of(net.graph) == ("m.embed", "m.layers.0", "m.layers.0", "m.layers.1", "head")


def test_a_numbered_module_that_does_nothing_itself_and_holds_numbered_ones_is_divided() -> None:
    # a stage of a ResNet: its blocks add their residuals themselves
    net = chain("stages.0.layers.0.conv.1", "stages.0.layers.0", "stages.0.layers.1")
    assert layer_of(net.graph) == ("stages.0.layers.0", "stages.0.layers.0", "stages.0.layers.1")


def test_leaf_modules_leave_the_ops_of_their_parents_free() -> None:
    net = chain("h.0.attn", "h.0", "h.0.mlp", None)
    assert leaf_module_of(net.graph) == ("h.0.attn", None, "h.0.mlp", None)
    assert groups(with_granularity(net, "module")) == ["h.0.attn", None, "h.0.mlp", None]


def test_an_op_outside_of_all_layers_is_with_what_feeds_it() -> None:
    net = chain("m.wte", "m", "m.h.0", None, "m.h.1")
    assert groups(with_granularity(net, "layer")) == ["m.wte", "m.wte", "m.h.0", "m.h.0", "m.h.1"]


@pytest.mark.parametrize("table_first", [True, False])
def test_an_op_that_reads_both_ends_of_a_model_is_with_the_later_one(table_first: bool) -> None:
    # the first module steers the blocks and, through an op of the root, what the head reads
    net = chain("steer", "h.0", "h.1", None, "head")
    sum_of = Op(name="sum", time_ns={"gpu": 1})
    late = [("op0", "sum"), ("sum", "op3")]
    both = [*(late if table_first else late[::-1]), ("op0", "op2")]
    edges = [Edge(producer=a, consumer=b, bytes=1) for a, b in both]
    all_edges = (*edges, *net.graph.edges) if table_first else (*net.graph.edges, *edges)
    ops = (*net.graph.ops, sum_of)
    net = net.with_graph(net.graph.model_copy(update={"ops": ops, "edges": all_edges}))
    assert groups(with_granularity(net, "layer")) == ["steer", "h.0", "h.1", "h.1", "head", "steer"]
    assert homes_by_layer(net, [0, 1, 2, 3]) == [0, 1, 2, 2, 3, 0]
    later = Plan.on([0, 0, 1, 1, 1, 0])
    assert layer_devices(net, later) == {"steer": 0, "h.0": 0, "h.1": 1, "head": 1}
    with pytest.raises(InputError, match="'op2'"):
        layer_devices(net, Plan.on([0, 0, 1, 0, 1, 0]))


def test_a_group_of_the_graph_joins_the_layers_of_its_ops() -> None:
    net = chain("m.h.0", "m.h.1", "m.h.2")
    tied = [
        op.model_copy(update={"colocation": "tied" if i != 1 else None})
        for i, op in enumerate(net.graph.ops)
    ]
    net = net.model_copy(update={"graph": net.graph.model_copy(update={"ops": tuple(tied)})})
    assert groups(with_granularity(net, "layer")) == ["m.h.0", "m.h.1", "m.h.0"]


def test_joined_ends_are_one_group_before_the_layers_and_one_after_them() -> None:
    net = chain("wte", "ln", "h.0", "h.1", "norm", "head")
    before, after = "(before the layers)", "(after the layers)"
    found = groups(with_granularity(net, "layer", join_ends=True))
    assert found == [before, before, "h.0", "h.1", after, after]


def test_experts_are_groups_beside_the_rest_of_their_layers() -> None:
    net = chain("wte", "h.0.attn", "h.0.mlp.gate", "h.0.mlp.experts", "h.1", "h.1.mlp.experts.0.up")
    found = groups(with_granularity(net, "experts"))
    assert found == ["wte", "h.0", "h.0", "h.0.experts", "h.1", "h.1.experts"]
