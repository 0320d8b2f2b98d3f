"""Fusion by rules: Moirai's example, what may and may not be fused, and real op types."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from draws import draw

from placegap.instances import Edge, Instance, Op, load_cluster, load_corpus
from placegap.instances.importers.onnx_model import load_onnx
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
    edges = [Edge(producer=a, consumer=b, bytes=1) for a, b in ends]
    devices = draw.devices(["gpu"] * 2, lambda k: memory)
    return draw.instance_of("net", ops, edges, devices, draw.links(2, lambda a, b: (10**9, 0)))


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
    ],
)
def test_the_default_rules_fit_the_op_types_of_the_corpus(name: str, kinds: dict[str, int]) -> None:
    instance = load_corpus(name).instance(load_cluster("8xH100-nvlink"))
    found = Counter(op.kind for op in fuse_by_rules(instance).coarse.graph.ops)
    assert {kind: count for kind, count in found.items() if "+" in kind} == kinds


def test_the_default_rules_fit_a_transformer_that_onnx_exports(tmp_path: Path) -> None:
    doubles = pytest.importorskip("doubles.onnx_transformers", reason="needs the onnx extra")
    path = doubles.write_transformer(tmp_path / "layer.onnx", "gpt", layers=1)
    model = load_onnx(path, dims={"batch": 2, "seq": 4})
    merge = fuse_by_rules(model.instance(load_cluster("8xH100-nvlink")))
    kinds = Counter(op.kind for op in merge.coarse.graph.ops if "MatMul" in op.kind)
    assert kinds == {
        "MatMul+Add": 3,  # q, k and v
        "MatMul+Div+Add+Softmax": 1,
        "MatMul": 1,  # weights times values
        "MatMul+Add+Add": 2,  # out of either block, with the residual
        "MatMul+Add+Relu": 1,
    }


@pytest.mark.parametrize(
    "chain",
    [
        "MatMul1-Add1 Add1-Add2 Add2-LayerNormalization1",
        "Div1-Erf1 Erf1-Add1 Add1-Mul1 Mul1-Mul2",  # GELU by the error function
    ],
)
def test_the_default_rules_have_a_chain_as_one_kernel(chain: str) -> None:
    assert fuse_by_rules(net(chain)).coarse.num_ops == 1
