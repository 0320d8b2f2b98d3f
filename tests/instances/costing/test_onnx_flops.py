"""FLOPs of ONNX nodes: by hand for each rule, and which ops have none."""

import re

import pytest

from placegap.instances.costing.onnx_flops import Node, count_flops, has_rule, product_sizes


@pytest.mark.parametrize(
    ("node", "sizes"),
    [  # batch, m, n, k
        # 2 x 3 rows meet one matrix, also of a batch of one
        (Node("MatMul", [(2, 3, 4), (4, 5)], [(2, 3, 5)], {}), (1, 6, 5, 4)),
        (Node("MatMul", [(2, 3, 4), (1, 4, 5)], [(2, 3, 5)], {}), (1, 6, 5, 4)),
        (Node("MatMul", [(2, 3, 4), (2, 4, 5)], [(2, 3, 5)], {}), (2, 3, 5, 4)),
        (Node("MatMul", [(3, 4), (7, 4, 5)], [(7, 3, 5)], {}), (7, 3, 5, 4)),
        (Node("MatMul", [(4,), (7, 4, 5)], [(7, 5)], {}), (7, 1, 5, 4)),
        (Node("MatMul", [(3, 4), (4,)], [(3,)], {}), (1, 3, 1, 4)),
        (Node("Gemm", [(4, 3), (5, 4)], [(3, 5)], {"transA": 1, "transB": 1}), (1, 3, 5, 4)),
        # 2 samples of 4 x 4 pixels; 6 channels meet 4 x 9 numbers, in groups 3 meet 2 x 9
        (Node("Conv", [(2, 4, 6, 6), (6, 4, 3, 3)], [(2, 6, 4, 4)], {}), (1, 32, 6, 36)),
        (Node("Conv", [(2, 4, 6, 6), (6, 2, 3, 3)], [(2, 6, 4, 4)], {}), (2, 32, 3, 18)),
        # of 4 x 4 pixels of 2 channels each makes 3 x 2 x 2 numbers
        (Node("ConvTranspose", [(1, 2, 4, 4), (2, 3, 2, 2)], [(1, 3, 8, 8)], {}), (1, 16, 12, 2)),
        # depthwise, though no attribute says so
        (Node("CausalConvWithState", [(1, 8, 9), (8, 1, 4)], [(1, 8, 9)], {}), (8, 9, 1, 4)),
    ],
)
def test_sizes_of_a_product(node: Node, sizes: tuple[int, int, int, int]) -> None:
    assert product_sizes(node) == sizes


PACKED = [(2, 5, 32), (2, 6, 16), (2, 6, 16), None, (2, 2, 10, 8), (2, 2, 10, 8)]
LINEAR = [(1, 6, 8), (1, 6, 8), (1, 6, 6)]
TWO = {"kv_num_heads": 2}


@pytest.mark.parametrize(
    ("node", "flops"),
    [
        # depthwise: 8 groups of one channel, 2 x outputs x 1 x 9
        (Node("Conv", [(1, 8, 6, 6), (8, 1, 3, 3)], [(1, 8, 4, 4)], {"group": 8}), 2 * 128 * 9),
        # each of 32 inputs meets 3 x 2 x 2 weights
        (Node("ConvTranspose", [(1, 2, 4, 4), (2, 3, 2, 2)], [(1, 3, 8, 8)], {}), 2 * 32 * 12),
        (Node("MatMul", [(2, 3, 4), (2, 4, 5)], [(2, 3, 5)], {}), 2 * 30 * 4),
        (Node("Einsum", [(2, 3), (3, 4)], [(2, 4)], {"equation": b"ij,jk->ik"}), 2 * 24),
        # 5 steps x 2 samples meet 4 gates x 6 units x (3 inputs + 6 states)
        (Node("LSTM", [(5, 2, 3), (1, 24, 3), (1, 24, 6)], [(5, 1, 2, 6)], {}), 2 * 10 * 24 * 9),
        (Node("GlobalAveragePool", [(1, 4, 5, 5)], [(1, 4, 1, 1)], {}), 100),
        (Node("AveragePool", [(1, 1, 4, 4)], [(1, 1, 2, 2)], {"kernel_shape": [2, 2]}), 16),
        (Node("LRN", [(1, 4, 1, 1)], [(1, 4, 1, 1)], {"size": 5}), 4 * 13),
        (Node("Sum", [(6,), (6,), (6,)], [(6,)], {}), 12),
        (Node("BatchNormalization", [(1, 3)] + [(3,)] * 4, [(1, 3)], {}), 6),
        (Node("Softmax", [(1, 10)], [(1, 10)], {}), 50),
        (Node("Concat", [(2,), (3,)], [(5,)], {}), 0),
        (Node("MatMulInteger", [(2, 3), (3, 5)], [(2, 5)], {}), 2 * 10 * 3),
        # activations, scale and zero point, then the weights, and theirs
        (Node("QLinearMatMul", [(2, 3), (), (), (3, 5), (), ()], [(2, 5)], {}), 2 * 10 * 3),
        (
            Node("QLinearConv", [(1, 8, 6, 6), (), (), (4, 8, 3, 3), (), ()], [(1, 4, 4, 4)], {}),
            2 * 64 * 72,
        ),
        # 3 gates of 6 units, both directions
        (Node("GRU", [(5, 2, 3), (2, 18, 3), (2, 18, 6)], [(5, 2, 2, 6)], {}), 2 * 10 * 2 * 18 * 9),
        (Node("RNN", [(5, 2, 3), (1, 6, 3), (1, 6, 6)], [(5, 1, 2, 6)], {}), 2 * 10 * 6 * 9),
        # a batch of 7 before the matrices: 7 x 2 x 3 x 4 products
        (
            Node("Einsum", [(7, 2, 3), (3, 4)], [(7, 2, 4)], {"equation": b"...ij,jk->...ik"}),
            2 * 7 * 24,
        ),
        # 2 samples, 4 heads, 5 queries, 6 keys of size 8, values of size 3; 5 for each softmax
        (
            Node("Attention", [(2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 3)], [(2, 4, 5, 3)], {}),
            240 * (2 * 8 + 2 * 3 + 5),
        ),
        # packed: 4 heads of 8 share 2 heads of keys; 10 past keys and 6 new ones
        (Node("Attention", PACKED, [(2, 5, 32)], {"q_num_heads": 4, **TWO}), 640 * (32 + 5)),
        # 6 tokens, 2 heads with a state of 4 x 3: outer product 2, decay 1, delta 2, query 2
        (Node("LinearAttention", LINEAR, [(1, 6, 6)], {"q_num_heads": 2, **TWO}), 6 * 12 * 2 * 7),
        (Node("CausalConvWithState", [(1, 8, 9), (8, 1, 4)], [(1, 8, 9)], {}), 2 * 72 * 4),
        (Node("LayerNormalization", [(2, 6), (6,)], [(2, 6)], {}), 96),
        (Node("RMSNormalization", [(2, 6), (6,)], [(2, 6)], {}), 48),
        (Node("RotaryEmbedding", [(2, 6)], [(2, 6)], {}), 36),
        # bilinear, two axes resized: 4 neighbours of each of 64 outputs; nearest copies
        (Node("Resize", [(1, 1, 4, 4)], [(1, 1, 8, 8)], {"mode": b"linear"}), 2 * 64 * 4),
        (Node("Resize", [(1, 1, 4, 4)], [(1, 1, 8, 8)], {}), 0),
        (Node("DFT", [(3, 8, 1)], [(3, 8, 2)], {}), 3 * 5 * 8 * 3),
        (Node("STFT", [(1, 64)], [(1, 7, 9, 2)], {}), 7 * 5 * 16 * 4),
        (Node("Det", [(2, 3, 3)], [(2,)], {}), 36),
        (Node("AffineGrid", [(1, 2, 3)], [(1, 4, 4, 2)], {}), 2 * 32 * 3),
        (Node("RoiAlign", [(1, 1, 8, 8)], [(2, 1, 3, 3)], {"sampling_ratio": 2}), 18 * 4 * 9),
        # of another domain, whatever it is called: 1 for each element
        (Node("Attention", [(2, 3)], [(2, 3)], {}, "com.example"), 6),
    ],
    ids=lambda value: value.op_type if isinstance(value, Node) else "",
)
def test_flops_are_counted_from_shapes(node: Node, flops: int) -> None:
    assert count_flops(node) == flops


def test_the_standard_s_ops_on_tensors_have_rules_but_for_a_few() -> None:
    defs = pytest.importorskip("onnx.defs", reason="needs the onnx extra")
    kinds = {schema.name for schema in defs.get_all_schemas() if schema.domain == ""}
    without = {kind for kind in kinds if not has_rule(Node(kind, [], [], {}))}
    # control flow, sequences, optional values and texts are no tensors of numbers; the rest writes
    # what its input's values decide
    known = (
        "If Loop Scan TfIdfVectorizer ImageDecoder MelWeightMatrix Multinomial NonMaxSuppression"
    )
    others = {kind for kind in without if re.search("Sequence|Optional|String|Regex", kind)}
    assert without - others <= set(known.split())
