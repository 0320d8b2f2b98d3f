"""Models by the header of a GGUF file: every tensor as it is stored, by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from doubles.configs import config
from doubles.gguf_files import LLAMA, ROUTED, llama_tensors, with_experts, write_gguf, write_parts

from placegap.experiments.cli import main
from placegap.instances import Graph, load_model
from placegap.instances.problem.modules import is_expert
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.model import read_traced_model
from placegap.instances.torch_models.options import TraceOptions

pytestmark = pytest.mark.torch

pytest.importorskip("gguf", reason="needs the gguf extra")

STEP = TraceOptions(decode=True, kv_tokens=1024)

Q4_K, Q6_K = 144 / 256, 210 / 256
"""Bytes of a weight: blocks of 256, ggml-common.h."""


def weights_of(graph: Graph, module: str) -> int:
    """Bytes of weights of the products of a module."""
    return sum(op.parameter_bytes for op in graph.ops if op.module == module and op.flops)


def test_every_product_holds_its_tensor_as_it_is_stored(tmp_path: Path) -> None:
    # the mixture of q4_k_m: more bits in the first eighth, the last, and every third layer between
    more = dict.fromkeys((0, 3, 6, 7), "Q6_K")
    name = write_gguf(tmp_path / "m.gguf", llama_tensors(more))
    document = read_traced_model(name, STEP)
    graph = document.graph
    for at in range(8):
        mlp = f"model.layers.{at}.mlp"
        assert weights_of(graph, f"{mlp}.down_proj") == 512 * 1024 * (Q6_K if at in more else Q4_K)
        assert weights_of(graph, f"{mlp}.up_proj") == 512 * 1024 * Q4_K
    assert weights_of(graph, "lm_head") == 512_000 * Q6_K
    attention = [op for op in graph.ops if op.kind == "scaled_dot_product_attention"]
    # 2 heads of keys and of values, 64 channels of 2 bytes
    assert [cache.token_bytes for op in attention for cache in op.caches] == [2 * 2 * 64 * 2] * 8
    # in a layer q and o, k and v, gate and up and down; norms in float32
    layer = (2 * 512 * 512 + 2 * 128 * 512 + 3 * 512 * 1024) * Q4_K + 2 * 512 * 4
    whole = 8 * layer + 4 * 512 * 1024 * (Q6_K - Q4_K) + 512_000 * (Q4_K + Q6_K) + 512 * 4
    said = document.graph.provenance.parameters["traced_as"]
    assert said == f"batch 1, 1 token and a cache of 1024, float16, {whole / 1e6:.2f} MB of" + (
        " weights as stored"
    )


def test_the_ops_are_those_of_the_configuration(tmp_path: Path) -> None:
    name = write_gguf(tmp_path / "m.gguf", llama_tensors())
    same = config(tmp_path, "llama", "512 8 8 2 1024 1000", torch_dtype="float16")
    found, known = (read_traced_model(each, STEP).graph for each in (name, same))
    assert [(op.name, op.module, op.flops) for op in found.ops] == [
        (op.name, op.module, op.flops) for op in known.ops
    ]
    assert [edge.bytes for edge in found.edges] == [edge.bytes for edge in known.edges]
    assert read_traced_model(f"hf:{name}", STEP).name == "m"
    with pytest.raises(InputError, match=r"placegap\.solve"):
        load_model(name)


def test_a_model_in_parts_is_that_of_one_file(tmp_path: Path) -> None:
    whole = read_traced_model(write_gguf(tmp_path / "m.gguf", llama_tensors()), STEP).graph
    first, second, third = write_parts(tmp_path, llama_tensors(), 3)
    for name in (first, third):
        assert read_traced_model(name, STEP).graph.ops == whole.ops
    Path(second).unlink()
    with pytest.raises(InputError, match=r"m-00002-of-00003\.gguf: "):
        read_traced_model(first, STEP)
    renamed = Path(first).rename(tmp_path / "one.gguf")
    with pytest.raises(InputError, match="parts; name the first"):
        read_traced_model(str(renamed), STEP)


def test_experts_are_read_as_they_are_stored_and_routed(tmp_path: Path) -> None:
    attends = {
        name: llama_tensors()[f"blk.0.{name}.weight"]
        for name in ("attn_q", "attn_k", "attn_v", "attn_output")
    }
    normed = dict.fromkeys(("attn_q_norm", "attn_k_norm"), ((64,), "F32"))
    tensors = with_experts({**attends, **normed})
    values = {**LLAMA, "block_count": 3, "attention.key_length": 64, **ROUTED}
    graph = read_traced_model(
        write_gguf(tmp_path / "m.gguf", tensors, values, "qwen3moe"), STEP
    ).graph
    products = [op for op in graph.ops if op.flops and is_expert(op)]
    # gate and up are one product of transformers; 2 of 8 experts are read, beside the rows of two:
    # 512 channels in and 512 out, then 256 in and 512 out, of 2 bytes, and the ends of 8 runs
    ahead, back = 8 * 2 * 256 * 512 * Q4_K, 8 * 512 * 256 * Q6_K
    assert [op.parameter_bytes for op in products] == [ahead, back] * 3
    moved = [ahead / 4 + 2 * 2 * (512 + 512) + 8 * 4, back / 4 + 2 * 2 * (256 + 512) + 8 * 4]
    assert [op.bytes_moved for op in products] == moved * 3


def test_latent_attention_in_parts_and_a_layer_of_more_tokens(tmp_path: Path) -> None:
    attends = {
        "attn_q_a": ((256, 512), "Q4_K"),
        "attn_q_a_norm": ((256,), "F32"),
        "attn_q_b": ((4 * 192, 256), "Q4_K"),
        "attn_kv_a_mqa": ((256 + 64, 512), "Q4_K"),
        "attn_kv_a_norm": ((256,), "F32"),
        # what transformers has as one matrix: keys without their rotated part, and values
        "attn_k_b": ((4, 256, 128), "Q8_0"),
        "attn_v_b": ((4, 96, 256), "F16"),
        "attn_output": ((512, 4 * 96), "Q5_0"),
    }
    values = {
        **{name: LLAMA[name] for name in ("embedding_length", "feed_forward_length")},
        "block_count": 3,
        "nextn_predict_layers": 1,
        "leading_dense_block_count": 1,
        "attention.head_count": 4,
        "attention.head_count_kv": 1,
        "attention.key_length": 256 + 64,
        "attention.key_length_mla": 128 + 64,
        "attention.value_length_mla": 96,
        "attention.q_lora_rank": 256,
        "attention.kv_lora_rank": 256,
        "rope.dimension_count": 64,
        **ROUTED,
        "expert_gating_func": 2,
        "expert_shared_count": 1,
        "expert_group_count": 1,
        "expert_group_used_count": 1,
    }
    shared = {
        "ffn_gate_shexp": (256, 512),
        "ffn_up_shexp": (256, 512),
        "ffn_down_shexp": (512, 256),
    }
    tensors = with_experts(attends, dense=1)
    for at in (1, 2):
        tensors |= {f"blk.{at}.{name}.weight": (own, "Q4_K") for name, own in shared.items()}
        tensors[f"blk.{at}.exp_probs_b.bias"] = (8,), "F32"
    name = write_gguf(tmp_path / "m.gguf", tensors, values, "deepseek2")
    graph = read_traced_model(name, STEP).graph
    assert graph.provenance.parameters["layers_left_out"] == "num_nextn_predict_layers=1"
    # Q8_0 has 34 bytes for 32 weights, Q5_0 has 22
    joint = 4 * 256 * (128 * 34 / 32 + 96 * 2)
    for at in (0, 1):
        assert weights_of(graph, f"model.layers.{at}.self_attn.kv_b_proj") == joint
        assert weights_of(graph, f"model.layers.{at}.self_attn.o_proj") == 512 * 4 * 96 * 22 / 32
    assert not any("layers.2." in (op.module or "") for op in graph.ops)
    # of a token the latent and the rotated key, in 2 bytes
    caches = [cache.token_bytes for op in graph.ops for cache in op.caches]
    assert caches == [2 * (256 + 64)] * 2


def damaged(data: bytes) -> dict[str, tuple[bytes, str]]:
    """Files that are no GGUF, or not whole, and what is said of them."""
    lists = pack("<QQ", 0, 1) + pack("<Q1sI", 1, b"x", 9) + pack("<IQ", 9, 1) * 10**4
    return {
        "another kind": (b"GGML" + data[4:], "it does not begin with GGUF"),
        "old": (data[:4] + b"\1" + data[5:], "it is of version 1, not 2 or 3"),
        "no fields": (data[:20], "ends too early; download the file again"),
        "half": (data[: len(data) // 2], "ends too early; download the file again"),
        "a long text": (data[:24] + b"\xff" * 8 + data[32:], "a text has 18446744073709551615 by"),
        "lists in lists": (data[:8] + lists, "maximum recursion depth"),
        "many tensors": (
            data[:8] + b"\xff" * 8 + data[16:],
            "ends too early; download the file again",
        ),
    }


@pytest.mark.parametrize("damage", damaged(b""))
def test_a_damaged_file_is_one_line(damage: str, tmp_path: Path) -> None:
    path = Path(write_gguf(tmp_path / "m.gguf", llama_tensors()))
    data, line = damaged(path.read_bytes())[damage]
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_traced_model(str(path), STEP)
    found = str(caught.value)
    assert found.startswith(f"{path}: its header ")
    assert line in found
    assert "\n" not in found


SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "missing": (
        {"blk.3.attn_q.weight": None},
        {},
        "has 'model.layers.3.self_attn.q_proj.weight' of (512, 512)",
    ),
    "of another size": (
        {"blk.3.attn_k.weight": ((256, 512), "Q4_K")},
        {},
        "has 'model.layers.3.self_attn.k_proj.weight' of (128, 512)",
    ),
    "left over": (
        {"blk.3.attn_gate.weight": ((512, 512), "Q4_K")},
        {},
        "has no 'blk.3.attn_gate.weight'",
    ),
    "no layers": ({}, {"block_count": None}, "states no block_count"),
    "layers that differ": ({}, {"feed_forward_length": [1024] * 7 + [2048]}, "its layers differ"),
    "a huge layer": ({}, {"feed_forward_length": 2**31}, "intermediate_size is above 1000000000"),
}


@pytest.mark.parametrize("case", SHAPES)
def test_what_does_not_fit_the_metadata_is_refused(case: str, tmp_path: Path) -> None:
    tensors, values, line = SHAPES[case]
    changed = {**llama_tensors(), **tensors}, {**LLAMA, **values}
    own, stated = ({k: v for k, v in each.items() if v is not None} for each in changed)
    with pytest.raises(InputError) as caught:
        read_traced_model(write_gguf(tmp_path / "m.gguf", own, stated), STEP)
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / 'm.gguf'}: ")
    assert line in text
    assert "\n" not in text


def test_an_architecture_that_transformers_lacks_is_named(tmp_path: Path) -> None:
    name = write_gguf(tmp_path / "m.gguf", llama_tensors(), LLAMA, "unheard")
    with pytest.raises(InputError, match="'unheard'; place a"):
        read_traced_model(name, STEP)


def test_the_extra_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_gguf(tmp_path / "m.gguf", llama_tensors())
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert main(["place", name, "--cluster", "RTX4090"]) == 2
    line = f"placegap: {name}: needs gguf: pip install 'placegap[gguf]'\n"
    assert capsys.readouterr().err.endswith(line)


def test_place_reads_a_file_and_says_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_gguf(tmp_path / "m.gguf", llama_tensors())
    asked = ["place", name, "--cluster", "RTX4090", "--decode", "--context", "1024"]
    assert main(asked) == 0
    out, err = capsys.readouterr()
    assert "m@RTX4090: makespan" in out
    # 8 x (2,228,224 weights in Q4_K + 2 norms), embedding and head, the last norm
    assert "float16, 10.77 MB of weights as stored; --batch" in err
    assert main([*asked[:4], "--train"]) == 2
    assert "leave out --train" in capsys.readouterr().err
