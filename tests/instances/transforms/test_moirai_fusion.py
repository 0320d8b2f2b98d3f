"""Fusion by rules: Moirai's example, what may and may not be fused, and real op types."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    Link,
    Op,
    load_cluster,
    load_corpus,
    load_model,
)
from placegap.instances.transforms.moirai_fusion import FusionRules, fuse_by_rules

TABLE_I = FusionRules(rules=(("conv", "bn"), ("conv", "bn", "relu"), ("conv", "bn", "add", "relu")))


def net(pairs: str, **fields: Any) -> Instance:
    """Ops named "conv1", "bn1", .. by kind and number, and edges "conv1-bn1 ..", on two gpus.

    `fields` are those of single ops, by name; `memory` is each device's.
    """
    memory = fields.pop("memory", None)
    ends = [pair.split("-") for pair in pairs.split()]
    names = list(dict.fromkeys(name for end in ends for name in end))
    ops = tuple(
        Op(
            **{
                "name": name,
                "kind": name.rstrip("0123456789"),
                "time_ns": {"gpu": 1},
                **fields.get(name, {}),
            }
        )
        for name in names
    )
    devices = tuple(Device(name=d, kind="gpu", memory_bytes=memory) for d in ("g0", "g1"))
    edges = tuple(Edge(producer=a, consumer=b, bytes=1) for a, b in ends)
    return Instance(
        name="net",
        graph=Graph(name="net", ops=ops, edges=edges),
        cluster=Cluster(
            name="two",
            devices=devices,
            links=tuple(
                Link(source=a, target=b, bandwidth_bytes_per_s=10**9)
                for a, b in (("g0", "g1"), ("g1", "g0"))
            ),
        ),
    )


def fused(instance: Instance, rules: FusionRules = TABLE_I) -> list[str]:
    """What was fused: the names of the ops of each, joined."""
    merge = fuse_by_rules(instance, rules)
    groups: dict[int, list[str]] = {}
    order = instance.graph.index.topological_order.tolist()
    for i in order:
        groups.setdefault(int(merge.op[i]), []).append(instance.graph.ops[i].name)
    return sorted(" ".join(names) for names in groups.values() if len(names) > 1)


def test_after_figure_7_the_lower_branch_ends_in_the_last_add_and_relu() -> None:
    # after Moirai, figure 7, as its text tells it: add1 feeds both branches. add1-relu1: add1 has
    # two consumers. add2-relu2 and add3-relu3 are parts of rule 3, tagged. conv1-bn1 and conv2-bn2:
    # rule 1; bn2 joins the last pair through a multi-input connection: rule 3. add2-relu2 is
    # released: 10 ops become 6.
    instance = net(
        "add1-relu1 relu1-add2 add2-relu2 relu2-add3 add3-relu3"
        " add1-conv1 conv1-bn1 bn1-conv2 conv2-bn2 bn2-add3"
    )
    merge = fuse_by_rules(instance, TABLE_I)
    assert fused(instance) == ["conv1 bn1", "conv2 bn2 add3 relu3"]
    kinds = [op.kind for op in merge.coarse.graph.ops]
    assert kinds == ["add", "relu", "add", "relu", "conv+bn", "conv+bn+add+relu"]
    assert [op.time_ns["gpu"] for op in merge.coarse.graph.ops] == [1, 1, 1, 1, 2, 4]


def test_a_producer_of_several_consumers_is_not_fused_with_any() -> None:
    assert fused(net("conv1-bn1 conv1-x1")) == []
    assert fused(net("conv1-bn1 x1-bn1")) == ["conv1 bn1"]  # multi-input


def test_what_is_part_of_a_rule_is_released_down_to_whole_rules() -> None:
    # conv bn add is part of rule 3, but no relu follows: conv bn is whole and stays
    assert fused(net("conv1-bn1 bn1-add1 add1-x1")) == ["conv1 bn1"]
    assert fused(net("bn1-add1 add1-relu1")) == []


def test_an_input_of_two_rules_is_fused_to_one() -> None:
    # both branches end in add1; the one that is met first has it
    two = net("conv1-bn1 bn1-add1 conv2-bn2 bn2-add1 add1-relu1")
    assert fused(two) == ["conv1 bn1 add1 relu1", "conv2 bn2"]


def test_only_the_first_op_of_what_was_fused_takes_more() -> None:
    # bn2-relu1 would match rule 2, but relu1 is the end of another path already
    instance = net("conv1-bn1 bn1-relu1 conv2-bn2 bn2-relu1")
    assert fused(instance) == ["conv1 bn1 relu1", "conv2 bn2"]


def test_passes_memory_and_groups_keep_ops_apart() -> None:
    assert fused(net("conv1-bn1", bn1={"backward": True})) == []
    heavy = {"conv1": {"resident_bytes": 3}, "bn1": {"resident_bytes": 3}}
    assert fused(net("conv1-bn1", memory=5, **heavy)) == []
    assert fused(net("conv1-bn1", memory=6, **heavy)) == ["conv1 bn1"]
    # bn1's group holds 3 more bytes elsewhere, which would have to come along
    tied = {**heavy, "bn1": {"colocation": "w"}, "x1": {"colocation": "w", "resident_bytes": 3}}
    assert fused(net("conv1-bn1 bn1-x1", memory=5, **tied)) == []


def test_two_tensors_between_two_ops_are_one_connection() -> None:
    instance = net("conv1-bn1")
    more = (*instance.graph.edges, Edge(producer="conv1", consumer="bn1", tensor="t"))
    graph = instance.graph.model_copy(update={"edges": more})
    merge = fuse_by_rules(instance.model_copy(update={"graph": graph}), TABLE_I)
    assert merge.coarse.num_ops == 1


@pytest.mark.parametrize(
    ("name", "kinds"),
    [  # counted in the corpus, edge by edge, from producers with one consumer:
        # each of the 57 convolutions is followed by its ReLU
        ("inception_v1", {"Conv+Relu": 57, "Gemm+Softmax": 1}),
        # 53 convolutions, all with normalization: 33 before a ReLU, 16 before a sum that keeps the
        # other branch as input, 4 in front of a sum that is taken
        (
            "resnet50",
            {
                "Conv+BatchNormalization": 4,
                "Conv+BatchNormalization+Relu": 33,
                "Conv+BatchNormalization+Sum+Relu": 16,
                "Gemm+Softmax": 1,
            },
        ),
        # a normalization's scale and shift are ops: 59 follow a convolution that has no other use
        (
            "densenet121",
            {
                "BatchNormalization+Mul+Add+Relu": 62,
                "Conv+BatchNormalization+Mul+Add+Relu": 59,
            },
        ),
    ],
)
def test_the_default_rules_fit_the_op_types_of_the_corpus(name: str, kinds: dict[str, int]) -> None:
    instance = load_corpus(name).instance(load_cluster("8xH100-nvlink"))
    found = Counter(op.kind for op in fuse_by_rules(instance).coarse.graph.ops)
    assert {kind: count for kind, count in found.items() if "+" in kind} == kinds


def test_the_default_rules_fit_a_transformer_that_onnx_exports(tmp_path: Path) -> None:
    helper = pytest.importorskip("onnx.helper", reason="needs the onnx extra")
    nodes, weights = [], []

    def node(kind: str, reads: str, writes: str, **more: Any) -> None:
        nodes.append(helper.make_node(kind, reads.split(), writes.split(), name=writes, **more))

    def weight(name: str, *dims: int) -> None:
        size = 4
        for dim in dims:
            size *= dim
        weights.append(helper.make_tensor(name, 1, dims, bytes(size), raw=True))

    for name, *dims in (("w", 4, 4), ("b", 4), ("s", 1), ("g", 4), ("m", 4, 4)):
        weight(name, *dims)
    for head in "qkv":
        node("MatMul", "x w", f"{head}0")
        node("Add", f"{head}0 b", head)
    node("Transpose", "k", "kt", perm=(0, 1, 3, 2))
    node("MatMul", "q kt", "scores")
    node("Div", "scores s", "scaled")
    node("Add", "scaled m", "masked")
    node("Softmax", "masked", "weights")
    node("MatMul", "weights v", "heads")
    node("MatMul", "heads w", "out0")
    node("Add", "out0 b", "out")
    node("Add", "out x", "residual")
    node("LayerNormalization", "residual g g", "normed")
    node("MatMul", "normed w", "up0")
    node("Add", "up0 b", "up")
    node("Div", "up s", "half")  # GELU by the error function: up has two consumers
    node("Erf", "half", "erf")
    node("Add", "erf s", "one")
    node("Mul", "up one", "product")
    node("Mul", "product s", "gelu")
    node("MatMul", "gelu w", "down")
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", 1, (1, 3, 4, 4))],
        [helper.make_empty_tensor_value_info("down")],
        initializer=weights,
    )
    path = tmp_path / "layer.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    instance = load_model(path).instance(load_cluster("8xH100-nvlink"))
    kinds = Counter(op.kind for op in fuse_by_rules(instance).coarse.graph.ops)
    assert kinds == {
        "MatMul+Add": 4,  # q, k, v and the first of the feed-forward layer
        "Transpose": 1,
        "MatMul+Div+Add+Softmax": 1,
        "MatMul": 2,  # heads: `heads w` is another product; and the last one
        "MatMul+Add+Add+LayerNormalization": 1,
        "Div+Erf+Add+Mul+Mul": 1,
    }
