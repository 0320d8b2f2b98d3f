"""Decoding and prefill: what a step reads and holds, derived by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from doubles import configs

from placegap.instances import Graph
from placegap.instances.torch_models.model import read_traced_model
from placegap.instances.torch_models.options import TraceOptions

pytestmark = pytest.mark.torch

TOKENS = 8192
"""In the cache of the large models."""


def config(folder: Path, kind: str, sizes: str, **fields: Any) -> str:
    """Channels, layers, heads of queries and of keys, channels of the MLP, tokens known."""
    known = {"torch_dtype": "bfloat16", "max_position_embeddings": 2 * TOKENS}
    return configs.config(folder, kind, sizes, **{**known, **fields})


def total(graph: Graph, field: str) -> int:
    return sum(getattr(op, field) or 0 for op in graph.ops)


def attention(graph: Graph) -> Any:
    return [op for op in graph.ops if op.kind == "scaled_dot_product_attention"]


def test_a_decode_step_of_mixtral_reads_two_experts_of_eight_and_its_cache(tmp_path: Path) -> None:
    routed = {"num_local_experts": 8, "num_experts_per_tok": 2}
    name = config(tmp_path, "mixtral", "4096 32 32 8 14336 32000", **routed)
    graph = read_traced_model(name, TraceOptions(decode=True, kv_tokens=TOKENS)).graph
    expert = 3 * 4096 * 14336
    # q and o, k and v with 8 heads of 128, the router
    rest = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096
    cache = 32 * 2 * 1024 * TOKENS * 2
    read = 2 * (32 * (rest + 2 * expert) + 32000 * 4096) + cache
    assert total(graph, "bytes_moved") == pytest.approx(read, rel=0.02)
    # weights and cache; the embedding is held, not read
    whole = 2 * (32 * (rest + 8 * expert) + 2 * 32000 * 4096) + cache
    assert total(graph, "state_bytes") == pytest.approx(whole, rel=1e-4)
    # 2 FLOP a weight and token; two products of 32 heads of 128 with every token of the cache
    flops = (read - cache) + 32 * 2 * 2 * 32 * 128 * TOKENS
    assert total(graph, "flops") == pytest.approx(flops, rel=0.02)


def test_a_decode_step_of_gpt_oss_reads_mxfp4_experts_and_windows(tmp_path: Path) -> None:
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "embed_tokens", "lm_head"]
    name = config(
        tmp_path,
        "gpt_oss",
        "2880 36 64 8 2880 201088",
        head_dim=64,
        num_local_experts=128,
        num_experts_per_tok=4,
        sliding_window=128,
        quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": kept},
    )
    graph = read_traced_model(name, TraceOptions(decode=True, kv_tokens=TOKENS)).graph
    # 4 bits and a share of 8 bits in 32
    expert = 3 * 2880 * 2880 * 4.25 / 8
    rest = 2 * (2 * 2880 * 4096 + 2 * 2880 * 512 + 128 * 2880)
    # every second layer keeps 128 tokens
    cache = 18 * 2 * 512 * 2 * (TOKENS + 128)
    read = 36 * (rest + 4 * expert) + 2 * 201088 * 2880 + cache
    assert total(graph, "bytes_moved") == pytest.approx(read, rel=0.02)
    whole = 36 * (rest + 128 * expert) + 2 * 2 * 201088 * 2880 + cache
    assert total(graph, "state_bytes") == pytest.approx(whole, rel=2e-3)  # and biases


SMALL = "16 8 4 2 32 11"
"""Eight layers of 16 channels, 4 heads of 4 and 2 of keys and values."""


def test_a_batch_reads_the_distinct_experts_that_it_is_expected_to_reach(tmp_path: Path) -> None:
    routed = {"num_local_experts": 8, "num_experts_per_tok": 2}
    name = config(tmp_path, "mixtral", SMALL, **routed)
    choices = [TraceOptions(decode=True, kv_tokens=4, batch=batch) for batch in (1, 2)]
    graphs = [read_traced_model(name, options).graph for options in choices]
    one, two = (next(op for op in graph.ops if "grouped_mm" in op.kind) for graph in graphs)
    # 2 x 32 x 16 numbers of 2 bytes each; a second token finds 2 x 6/8 others
    weights = 8 * 2 * 32 * 16 * 2
    assert one.parameter_bytes == weights
    # with rows of 16 channels in and 64 out for each of 2 tokens' experts, and 8 offsets of 4 bytes
    beside = 2 * (16 + 64) * 2
    assert (one.bytes_moved or 0) - beside - 32 == weights * 2 // 8
    assert (two.bytes_moved or 0) - 2 * beside - 32 == weights * 7 // 16


def test_latent_attention_keeps_the_latent_and_one_rotated_key(tmp_path: Path) -> None:
    sizes = {"kv_lora_rank": 12, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
    experts = {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 8}
    name = config(tmp_path, "deepseek_v3", "16 8 4 4 32 11", q_lora_rank=8, **sizes, **experts)
    graph = read_traced_model(name, TraceOptions(decode=True, kv_tokens=100, batch=3)).graph
    cache = 3 * 100 * (12 + 4) * 2
    found = attention(graph)
    assert [(op.state_bytes or 0) // cache for op in found] == [1] * 8
    # 4 heads meet 16 numbers of a token, and weigh 12
    assert found[0].flops == 3 * 4 * 100 * 2 * (16 + 12)


def test_prefill_fills_the_cache_and_makes_one_token(tmp_path: Path) -> None:
    name = config(tmp_path, "llama", SMALL)
    graph = read_traced_model(name, TraceOptions(prefill=50, kv_tokens=80)).graph
    op = attention(graph)[0]
    assert op.flops == 50 * 50 * 4 * 2 * (4 + 4)
    # 80 tokens of 2 heads of 4, keys and values
    assert (op.state_bytes or 0) - 80 * 2 * 8 * 2 in (0, 50 * 50)  # with or without a mask
    head = next(op for op in graph.ops if op.module == "lm_head")
    assert head.flops == 2 * 16 * 11  # of the last token


@pytest.mark.parametrize("form", ["int4", "q4_k_m"])
def test_linear_layers_are_quantized_and_a_file_of_llama_cpp_is_whole(
    form: str, tmp_path: Path
) -> None:
    name = config(tmp_path, "llama", SMALL)
    graph = read_traced_model(name, TraceOptions(seq=4, weights=form)).graph
    # q and o; k and v; three matrices of the MLP; two norms
    matrices = 8 * (2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 32)
    norms, tables = (8 * 2 + 1) * 16, 2 * 11 * 16
    bits = {"int4": 4 + 20 / 128, "q4_k_m": 4.8944}[form]
    size = 2 * norms + matrices * bits / 8 + tables * (2 if form == "int4" else bits / 8)
    kinds, held = ("mm", "embedding"), 0
    for op in graph.ops:
        held += op.parameter_bytes if op.kind in kinds or "norm" in (op.module or "") else 0
    assert held == pytest.approx(size, abs=60)  # every matrix has whole bytes
    assert {op.dtype for op in graph.ops if op.kind == "mm"} == {"bfloat16"}


PACKED = """
import torch

class Int4(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.zeros(256, 64, dtype=torch.int32))
        self.register_buffer("scale", torch.zeros(256, 4, dtype=torch.float16))
    def forward(self, x):
        shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=x.device)
        w = ((self.w.unsqueeze(-1) >> shifts) & 15).reshape(256, 512).to(x.dtype) - 8
        return torch.nn.functional.linear(x, w * self.scale.repeat_interleave(128, 1))

def int4():
    return Int4(), (torch.zeros(1, 512, dtype=torch.float16),)
"""


def test_weights_that_a_model_unpacks_are_read_as_they_are_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packed_weights.py").write_text(PACKED)
    monkeypatch.chdir(tmp_path)
    (op,) = read_traced_model("py:packed_weights:int4").graph.ops
    stored = 256 * 512 * 4 // 8 + 2 * 4 * 256
    assert op.parameter_bytes == pytest.approx(stored, abs=32)  # eight shifts
    assert op.bytes_moved == op.parameter_bytes + 2 * (512 + 256)
