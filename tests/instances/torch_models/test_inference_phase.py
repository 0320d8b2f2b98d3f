"""Decoding and prefill: what a step reads and holds, also of recurrent layers, by hand."""

from pathlib import Path
from typing import Any

import pytest
from doubles import configs
from doubles.configs import fields

from placegap.instances import Graph, Op
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
    sizes = fields("head_dim=64 num_local_experts=128 num_experts_per_tok=4 sliding_window=128")
    packed = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
    stated = {**sizes, "quantization_config": packed}
    name = config(tmp_path, "gpt_oss", "2880 36 64 8 2880 201088", **stated)
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


def test_a_cache_is_stored_and_read_in_its_own_type(tmp_path: Path) -> None:
    name = config(tmp_path, "llama", "64 3 4 2 96 100")
    # keys and values of 2 heads of 16; q8_0 has 34 bytes for 32 numbers
    for kv_dtype, token_bytes, kernel in (
        (None, 2 * 2 * 16 * 2, "bfloat16"),
        ("f16", 2 * 2 * 16 * 2, "float16"),
        ("fp8", 2 * 2 * 16, "float8"),
        ("q8_0", 2 * 2 * 16 * 34 // 32, "q8_0"),
    ):
        step = TraceOptions(decode=True, kv_tokens=1000, kv_dtype=kv_dtype)
        for op in attention(read_traced_model(name, step).graph):
            assert [cache.token_bytes for cache in op.caches] == [token_bytes]
            assert op.state_bytes == 1000 * token_bytes
            # query, result, and the new key and value for all 4 heads: 2 bytes each; a mask of one
            assert op.bytes_moved == 1000 * token_bytes + 2 * 4 * 64 + 1
            assert op.kernel.cache_dtype == kernel


def test_experts_may_be_of_another_format_than_the_rest(tmp_path: Path) -> None:
    routed = {"num_local_experts": 8, "num_experts_per_tok": 2}
    name = config(tmp_path, "mixtral", "64 2 4 2 96 100", **routed)
    asked = TraceOptions(weights="experts=q4_0,rest=int8", seq=8)
    graph = read_traced_model(name, asked).graph
    # 4.5 bits of three matrices of 8 experts, 8 bits of q, k, v and o; a router, two norms, the
    # embedding and the head stay in two bytes, and so does the last norm
    experts, attends = 8 * 3 * 64 * 96 * 4.5 / 8, 2 * 64 * 64 + 2 * 64 * 32
    kept = 2 * (2 * (8 * 64 + 2 * 64) + 2 * 100 * 64 + 64)
    size = f"{(2 * (experts + attends) + kept) / 1000:.2f} kB"
    said = str(graph.provenance.parameters["traced_as"])
    assert said.endswith(f"{size} of weights as {asked.weights}")


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


RECURRENT = "32 4 4 2 64 50"
MAMBA = fields("mamba_d_state=4 mamba_n_heads=4 mamba_d_head=16 mamba_d_ssm=64")
DELTA = fields(
    "linear_key_head_dim=8 linear_value_head_dim=16 linear_num_key_heads=2 linear_num_value_heads=4"
)


def traced(folder: Path, kind: str, more: dict[str, Any], **options: Any) -> Graph:
    options = {"decode": True, "kv_tokens": 100, "dtype": "float16", **options}
    name = configs.config(folder, kind, RECURRENT, **{"head_dim": 8, **more})
    return read_traced_model(name, TraceOptions(**options)).graph


def kept_bytes(op: Op) -> int:
    """State besides weights and constants."""
    return (op.state_bytes or 0) + sum(op.shared_state.values()) - op.parameter_bytes


def test_a_step_of_linear_attention_reads_and_writes_its_state(tmp_path: Path) -> None:
    graph = traced(tmp_path, "qwen3_5_text", DELTA, batch=3)
    first = [op for op in graph.ops if (op.module or "").startswith("model.layers.0.linear_attn")]
    assert len(first) < 80  # a chunk of 64 tokens takes 581
    # of each of 3 sequences 4 heads of 8 x 16 in float32; of 2 x 2 heads of 8 and 4 of 16 channels
    # the last 4 tokens
    recurrent, convolution = 3 * 4 * 8 * 16 * 4, 3 * (2 * 2 * 8 + 4 * 16) * 4 * 2
    kept = [kept_bytes(op) for op in first]
    assert sorted(size for size in kept if size) == sorted((recurrent, convolution))
    op = first[kept.index(recurrent)]
    # a decay for each of 12 heads in float32, and what it writes
    assert (op.resident_bytes, op.bytes_moved) == (2 * recurrent, 2 * recurrent + 12 * 4)
    convolved, _, stepped = (op.bytes_moved for op in first if op.kind == "copy")
    assert (convolved, stepped) == (2 * convolution, 2 * recurrent)
    # every fourth layer has attention, whose cache is as ever: 2 heads of 8, keys and values
    assert [kept_bytes(op) for op in graph.ops if op.caches] == [3 * 100 * 2 * 2 * 8 * 2]


def test_a_prompt_of_linear_attention_takes_all_chunks_at_once(tmp_path: Path) -> None:
    more = {**DELTA, "layer_types": ["linear_attention", "full_attention"] * 2}
    found = []
    for tokens in (100, 300):
        graph = traced(tmp_path, "qwen3_5_text", more, decode=False, kv_tokens=0, prefill=tokens)
        path = "model.layers.2.linear_attn"
        ops = [op for op in graph.ops if op.module == path and op.kind != "convolution"]
        found.append([op.flops for op in ops if op.flops])
    # of 4 heads and a chunk of 64 tokens, keys of 8 and values of 16: what keys know of each other,
    # the solution for values and keys, the state, what of it keys and queries read, what queries
    # know of keys, and that of values; 100 tokens are 2 chunks, 300 are 5
    reads = 2 * 64 * 8 * 16
    chunk = [2 * 64 * 64 * 8, 64 * 64 * (16 + 8), reads, reads, reads, 2 * 64 * 64 * 8]
    chunk.append(2 * 64 * 64 * 16)
    for chunks, flops in zip((2, 5), found, strict=True):
        assert sorted(flops) == sorted(4 * chunks * each for each in chunk)


@pytest.mark.parametrize(
    ("kind", "more", "kept"),
    [
        # 64 channels: 4 states each, in float32, and the last 4 tokens
        ("mamba", {"state_size": 4}, 4 * 64 * (4 * 4 + 4 * 2)),
        # 4 heads of 16 with 4 states each, in float32; a convolution of 64 channels and 2 x 4 of
        # states over 4 tokens; keys and values of 100 tokens beside them
        ("falcon_h1", MAMBA, 4 * (4 * 16 * 4 * 4 + 72 * 4 * 2 + 100 * 2 * 16 * 2)),
        # layers 0 and 2: 4 heads of 8 x 8; the others have attention
        ("minimax", {}, 2 * (4 * 8 * 8 * 2 + 100 * 2 * 16 * 2)),
        # of 32 channels the last 2 tokens and 3 sums, all in float32 but the tokens
        ("rwkv", {"attention_hidden_size": 32}, 4 * 32 * (2 * 2 + 3 * 4)),
    ],
)
def test_a_model_keeps_the_state_of_every_recurrent_layer(
    kind: str, more: dict[str, Any], kept: int, tmp_path: Path
) -> None:
    graph = traced(tmp_path, kind, more)
    assert sum(kept_bytes(op) for op in graph.ops) == kept
    # what it writes belongs to the step of its layer: only the words of the head are read by no op
    read = {edge.producer for edge in graph.edges}
    assert [op.name for op in graph.ops if op.name not in read] == [graph.ops[-1].name]


def test_what_a_layer_writes_precedes_its_last_op(tmp_path: Path) -> None:
    graph = traced(tmp_path, "qwen3_5_text", DELTA)
    writes = [edge for edge in graph.edges if not edge.bytes]
    # a recurrent state and that of a convolution in each layer of linear attention
    assert len(writes) == sum(kept_bytes(op) > 0 and not op.caches for op in graph.ops) == 6
    for edge in writes:
        path = graph.ops[graph.op_index[edge.producer]].module or ""
        layer = path.removesuffix("linear_attn")
        assert path != layer
        last = [op for op in graph.ops if f"{op.module}.".startswith(layer)][-1]
        assert edge.consumer == last.name
