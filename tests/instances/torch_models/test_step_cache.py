"""One token of recurrent layers is one step, and the state that it finds is memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from doubles.configs import config, fields

from placegap.instances import Graph, Op
from placegap.instances.torch_models.model import read_traced_model
from placegap.instances.torch_models.options import TraceOptions

pytestmark = pytest.mark.torch

SIZES = "32 4 4 2 64 50"
MAMBA = fields("mamba_d_state=4 mamba_n_heads=4 mamba_d_head=16 mamba_d_ssm=64")
DELTA = fields(
    "linear_key_head_dim=8 linear_value_head_dim=16 linear_num_key_heads=2 linear_num_value_heads=4"
)


def traced(folder: Path, kind: str, more: dict[str, Any], **options: Any) -> Graph:
    options = {"decode": True, "kv_tokens": 100, "dtype": "float16", **options}
    name = config(folder, kind, SIZES, **{"head_dim": 8, **more})
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
