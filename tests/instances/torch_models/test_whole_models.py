"""Models of several parts: images beside text, encoders with decoders; small ones, by hand."""

from pathlib import Path
from typing import Any

import pytest
from doubles.configs import fields, sized, write_config

from placegap.instances import Graph, InputError, Instance, MaxLoad, Plan, load_cluster
from placegap.instances.costing.costing import cost_graph
from placegap.instances.exporters.table import export_plan
from placegap.instances.problem.modules import homes_by_layer
from placegap.instances.torch_models import model as model_room
from placegap.instances.torch_models.model import read_traced_model
from placegap.instances.torch_models.options import UNREAD, TraceOptions

pytestmark = pytest.mark.torch

TEXT = sized("16 6 4 2 32 50")
TOWER = fields(
    "hidden_size=16 num_hidden_layers=5 num_attention_heads=4 intermediate_size=32 patch_size=14"
)
ROTATED = {"rope_type": "default", "mrope_section": [1, 1, 0]}
WITH_IMAGES: dict[str, dict[str, Any]] = {
    # 2 x 2 patches and the class's own token, which no text gets
    "llava": {
        "image_token_index": 49,
        "text_config": {"model_type": "llama", **TEXT},
        "vision_config": {"model_type": "clip_vision_model", "image_size": 28, **TOWER},
    },
    # 4 x 4 patches, of which 4 tokens are made
    "gemma3": {
        **fields(
            "mm_tokens_per_image=4 image_token_index=49 boi_token_index=48 eoi_token_index=47"
        ),
        "text_config": {"model_type": "gemma3_text", "head_dim": 4, **TEXT},
        "vision_config": {"model_type": "siglip_vision_model", "image_size": 56, **TOWER},
    },
    # 16 x 16 patches of 224 pixels; 2 x 2 of them are a token
    "qwen2_vl": {
        "image_token_id": 49,
        "text_config": {"model_type": "qwen2_vl_text", "rope_parameters": ROTATED, **TEXT},
        "vision_config": fields("depth=5 embed_dim=16 hidden_size=16 num_heads=4 mlp_ratio=2"),
    },
}
SEEN = {"llava": 5, "gemma3": 16, "qwen2_vl": 256}
"""Patches that attention of the tower sees, in an image."""


def traced(folder: Path, kind: str, config: dict[str, Any], **options: Any) -> Graph:
    return read_traced_model(write_config(folder, kind, **config), TraceOptions(**options)).graph


def attention(graph: Graph) -> list[Any]:
    return [op for op in graph.ops if op.kind == "scaled_dot_product_attention"]


@pytest.mark.parametrize("kind", WITH_IMAGES)
def test_a_tower_sees_each_image_by_itself_and_the_text_gets_its_tokens(
    kind: str, tmp_path: Path
) -> None:
    graph = traced(tmp_path, kind, WITH_IMAGES[kind], batch=2, seq=80)
    assert "2, 80 tokens with an image" in str(graph.provenance.parameters["traced_as"])
    tower = [op for op in attention(graph) if "vis" in (op.module or "")]
    text = [op for op in attention(graph) if "language_model" in (op.module or "")]
    assert graph.ops.index(tower[-1]) < graph.ops.index(text[0])
    # two products of 4 heads of 4, in 2 images
    assert {op.flops for op in tower} == {2 * 2 * 2 * 16 * SEEN[kind] ** 2}
    assert {op.flops for op in text} == {2 * 2 * 2 * 16 * 80**2}
    assert len(tower) == (4 if kind == "llava" else 5)  # LLaVA reads the last layer but one
    assert len(text) == 6
    (put,) = (op for op in graph.ops if op.kind == "masked_scatter")
    assert {edge.consumer for edge in graph.edges if edge.producer == put.name}


def test_a_prompt_with_an_image_fills_no_cache_in_the_tower_and_a_token_after_reads_none(
    tmp_path: Path,
) -> None:
    graph = traced(tmp_path, "llava", WITH_IMAGES["llava"], prefill=80)
    # keys and values of 2 heads of 4, of 4 bytes
    kept = 80 * 2 * 2 * 4 * 4
    for op in attention(graph):
        is_text = "language_model" in (op.module or "")
        assert (op.state_bytes or 0) >= kept if is_text else not op.state_bytes
    graph = traced(tmp_path, "llava", WITH_IMAGES["llava"], decode=True, kv_tokens=80)
    assert str(graph.provenance.parameters[UNREAD]).startswith("model.vision_tower, ")
    found = {(op.state_bytes, op.flops) for op in attention(graph)}
    assert found == {(kept, 2 * 2 * 16 * 80)}
    # the tower stays loaded, beside a norm of 16 numbers of the first layer: patches, a class and 5
    # positions, two norms, 5 layers (attention, two norms, an MLP with biases); the projector
    layer = 4 * (16 * 16 + 16) + 2 * 2 * 16 + 2 * 16 * 32 + 16 + 32
    tower = 3 * 14 * 14 * 16 + (1 + 5) * 16 + 2 * 2 * 16 + 5 * layer + 2 * (16 * 16 + 16)
    norms = [op for op in graph.ops if (op.module or "").endswith("input_layernorm")]
    assert [op.state_bytes for op in norms if op.state_bytes] == [4 * tower, *[4 * 16] * 6]


def test_a_model_with_a_tower_is_traced_by_its_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated = traced(tmp_path, "qwen2_vl", WITH_IMAGES["qwen2_vl"], seq=80)
    monkeypatch.setattr(model_room, "_repeated", lambda *args: None)
    assert repeated == traced(tmp_path, "qwen2_vl", WITH_IMAGES["qwen2_vl"], seq=80)
    with pytest.raises(InputError, match=r"64 tokens, .* more"):
        traced(tmp_path, "qwen2_vl", WITH_IMAGES["qwen2_vl"], seq=50)


def test_vllm_counts_the_layers_of_text(tmp_path: Path) -> None:
    cluster, kind = load_cluster("2xT4, pcie3"), "llava"
    graph = cost_graph(traced(tmp_path, kind, WITH_IMAGES[kind], seq=80), cluster)
    instance = Instance(name=kind, graph=graph, cluster=cluster)
    plan = Plan.on(homes_by_layer(instance, [0, 0, 0, 1, 1, 1, 1, 1]))
    line = export_plan("vllm", instance, plan, MaxLoad(plans="chain"))
    assert line == "VLLM_PP_LAYER_PARTITION=2,4\n"


T5 = fields("d_model=16 d_ff=32 d_kv=4 num_heads=4 num_layers=5 vocab_size=50")
WHISPER = fields(
    "d_model=16 encoder_layers=5 decoder_layers=5 encoder_attention_heads=4 vocab_size=50"
    " decoder_attention_heads=4 encoder_ffn_dim=32 decoder_ffn_dim=32 max_source_positions=30"
    " max_target_positions=20 num_mel_bins=8 pad_token_id=1 bos_token_id=1 eos_token_id=1"
    " decoder_start_token_id=1"
)


@pytest.mark.parametrize(("kind", "config", "heard"), [("t5", T5, 16), ("whisper", WHISPER, 30)])
def test_a_step_of_a_decoder_reads_what_the_encoder_left(
    kind: str, config: dict[str, Any], heard: int, tmp_path: Path
) -> None:
    graph = traced(tmp_path, kind, config, decode=True, kv_tokens=16, batch=3)
    assert "encoder" in str(graph.provenance.parameters[UNREAD])
    assert not any((op.module or "").startswith("encoder") for op in graph.ops)
    own, cross = attention(graph)[::2], attention(graph)[1::2]
    assert (len(own), len(cross)) == (5, 5)
    # 3 sequences, 4 heads of 4, keys and values, of 4 bytes; T5 adds biases to scores
    for op, tokens in [*((op, 16) for op in own), *((op, heard) for op in cross)]:
        kept = 3 * 2 * 16 * tokens * 4
        assert 0 <= (op.state_bytes or 0) - kept <= 3 * 4 * 4 * tokens
        assert op.flops == 3 * 2 * 2 * 16 * tokens
        # one query, one result, and of its own token a key and a value
        assert 0 <= (op.bytes_moved or 0) - kept - 3 * 2 * 16 * 4 <= 3 * 2 * 16 * 4 + 3 * 16 * heard
    # keys of the encoder are not computed anew: q and o of 2 attentions, k and v of one
    squares = [op for op in graph.ops if op.kind in ("mm", "addmm") and op.flops == 3 * 2 * 16 * 16]
    assert len(squares) == 5 * 6


def test_an_encoder_keeps_no_cache(tmp_path: Path) -> None:
    graph = traced(tmp_path, "whisper", WHISPER, prefill=60)
    kept = {op.module: op.state_bytes for op in attention(graph)}
    assert kept["model.encoder.layers.0.self_attn"] == 0
    assert kept["model.decoder.layers.0.encoder_attn"] == 2 * 16 * 30 * 4  # 60 frames
