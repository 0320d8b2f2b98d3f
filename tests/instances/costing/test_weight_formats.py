"""Formats of weights: by name, by bits, from quantization configurations, and in ONNX files."""

from math import prod
from pathlib import Path
from typing import Any

import pytest
from doubles.onnx_nets import helper, nodes, save, tensor, weight

from placegap.instances import Op
from placegap.instances.costing.weight_formats import configured_format, weight_format
from placegap.instances.importers.onnx_model import load_onnx

UINT8, INT8 = 2, 3
BLOCKS = {"bits": 4, "block_size": 32}
GROUPS = {"g": {"weights": {"num_bits": 4, "group_size": 128}}}


@pytest.mark.parametrize(
    ("raw", "bits"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, 4 + 20 / 64),
        ({"load_in_4bit": True}, 4.5),
        # 64 weights share 8 bits, and 256 such scales a float32
        ({"load_in_4bit": True, "bnb_4bit_use_double_quant": True}, 4 + 8 / 64 + 32 / 64 / 256),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128**2),
        ({"quant_method": "mxfp4"}, 4.25),
        ({"quant_method": "compressed-tensors", "config_groups": GROUPS}, 4 + 16 / 128),
    ],
)
def test_a_quantization_configuration_has_the_bits_of_its_numbers_and_scales(
    raw: dict[str, Any], bits: float
) -> None:
    assert float(configured_format(raw).bits) == bits


def test_mixtures_of_llama_cpp_have_the_bits_of_the_types_of_their_tensors() -> None:
    # Llama-3.1-8B: 32 layers of width 4096, keys and values of 1024, feed-forward of 14336, and an
    # embedding and a head of 128256 rows. Q3_K has 110 bytes for 256 weights, Q4_K 144, Q5_K 176,
    # Q6_K 210; norms are float32. The head is Q6_K; values, outputs of attention and the third
    # matrix of feed-forward are Q5_K under q3_k_l. Under q3_k_m they are Q4_K, but Q5_K are the
    # values and the third matrices of 2 layers. All else is Q3_K.
    q3, q4, q5, q6 = (8 * size / 256 for size in (110, 144, 176, 210))
    wide, narrow, tall, ends = 4096**2, 4096 * 1024, 4096 * 14336, 4096 * 128256
    rest = 32 * (wide + narrow + 2 * tall) * q3 + ends * (q3 + q6) + 65 * 4096 * 32
    weights = 32 * (2 * wide + 2 * narrow + 3 * tall) + 2 * ends + 65 * 4096
    large = rest + 32 * (narrow + wide + tall) * q5
    medium = rest + 32 * wide * q4 + (narrow + tall) * (2 * q5 + 30 * q4)
    for name, bits in (("q3_k_l", large), ("q3_k_m", medium)):
        assert float(weight_format(name).bits) == round(bits / weights, 4)


def test_formats_of_parts_are_found_by_role_and_module() -> None:
    parts = weight_format("experts=q4_0, head=int8,rest=4.25")
    places = {
        "model.layers.0.mlp.experts": (3, "matrix", 4.5),
        "model.layers.0.mlp.experts.7.up_proj": (2, "matrix", 4.5),
        "model.layers.0.mlp.shared_experts.up_proj": (2, "matrix", 4.25),
        "model.layers.0.mlp.gate": (2, "router", None),
        "lm_head": (2, "head", 8),
        "embed_tokens": (2, "embedding", None),  # a number of bits leaves it as it is
    }
    for module, (axes, role, bits) in places.items():
        assert parts.bits_of(module, axes, role) == bits
    assert weight_format("experts=q4_0").bits_of("lm_head", 2) is None


def test_every_name_of_llama_quantize_is_a_format() -> None:
    # llama.cpp tools/quantize/quantize.cpp, QUANT_OPTIONS, in lower case
    names = """q1_0 q4_0 q4_1 mxfp4_moe q5_0 q5_1 iq2_xxs iq2_xs iq2_s iq2_m iq1_s iq1_m tq1_0 tq2_0
    q2_k q2_k_s iq3_xxs iq3_s iq3_m q3_k iq3_xs q3_k_s q3_k_m q3_k_l iq4_nl iq4_xs q4_k q4_k_s
    q4_k_m q5_k q5_k_s q5_k_m q6_k q8_0 f16 bf16 f32"""
    for name in names.split():
        assert weight_format(name).name == name
    assert weight_format("mxfp4_moe").bits_of("mlp.experts", 3) == 4.25
    assert weight_format("Q4_K_XL").bits == weight_format("q4_k_m").bits


def test_what_a_configuration_leaves_out_stays_as_it_is() -> None:
    left_out = ["lm_head", "model.layers.*.self_attn", r"re:.*\.gate$"]
    found = configured_format({"quant_method": "fp8", "modules_to_not_convert": left_out})
    kept = ("lm_head", "model.layers.3.self_attn.q_proj", "model.layers.0.mlp.gate")
    assert [found.bits_of(module, 2) for module in kept] == [None] * 3
    assert found.bits_of("model.layers.3.mlp.up_proj", 2) == 8
    assert found.bits_of("model.layers.3.mlp.up_proj", 1) is None  # a bias


def op_of(folder: Path, made: list[Any], weights: list[Any], form: str | None = None) -> Op:
    """The only op of a model with an input of 1 x 256 numbers."""
    path = save(folder, made, [tensor("x", 1, 256)], initializer=weights)
    (op,) = load_onnx(path, None, None if form is None else weight_format(form)).graph.ops
    return op


@pytest.mark.parametrize(
    ("made", "kind", "shape", "scales"),
    [
        (
            nodes("DequantizeLinear w scale > d", axis=1) + nodes("MatMul x d > y"),
            INT8,
            (256, 512),
            512,
        ),
        # 512 columns of 8 blocks of 32 numbers of 4 bits, and a float32 scale for each block
        (
            nodes("MatMulNBits x w scale > y", domain="com.microsoft", K=256, N=512, **BLOCKS),
            UINT8,
            (512, 8, 16),
            512 * 8,
        ),
    ],
    ids=["dequantized", "in blocks"],
)
def test_weights_of_a_file_are_read_as_they_are_stored(
    made: list[Any], kind: int, shape: tuple[int, ...], scales: int, tmp_path: Path
) -> None:
    packed = helper.make_tensor("w", kind, shape, bytes(prod(shape)), raw=True)
    op = op_of(tmp_path, made, [packed, weight("scale", scales)])
    assert op.parameter_bytes == prod(shape) + 4 * scales
    assert op.flops == 2 * 256 * 512
    assert op.bytes_moved == op.parameter_bytes + 4 * (256 + 512)


def test_the_weights_of_a_file_can_be_stated(tmp_path: Path) -> None:
    made = nodes("Transpose w > t", perm=[1, 0]) + nodes("MatMul x t > y")
    op = op_of(tmp_path, made, [weight("w", 512, 256)], "4.5")
    assert op.parameter_bytes == 256 * 512 * 9 // 16
    assert op.dtype is None  # it computes in float32, as before
