"""Traces of one layer of each kind, beside traces of whole models."""

from pathlib import Path
from typing import Any

import pytest
from doubles import configs
from doubles.configs import fields

from placegap.instances.torch_models import model as model_room
from placegap.instances.torch_models import training_model as training_room
from placegap.instances.torch_models.model import read_traced_model
from placegap.instances.torch_models.options import TraceOptions
from placegap.instances.torch_models.repeated_layers import stack_of
from placegap.instances.torch_models.training_model import read_training_model

pytestmark = pytest.mark.torch

ROUTED = fields("num_local_experts=4 num_experts_per_tok=2")
STATES = fields("num_heads=4 head_dim=8 state_size=4 n_groups=1")
DELTA = fields(
    "num_experts=4 num_experts_per_tok=2 moe_intermediate_size=8 shared_expert_intermediate_size=8"
    " linear_key_head_dim=8 linear_value_head_dim=8 linear_num_key_heads=2 linear_num_value_heads=4"
    " head_dim=4"
)
LATENT = fields(
    "num_key_value_heads=4 kv_lora_rank=12 qk_rope_head_dim=4 qk_nope_head_dim=8 v_head_dim=8"
    " q_lora_rank=8 n_routed_experts=8 moe_intermediate_size=8 n_group=2 topk_group=1"
    " first_k_dense_replace=2"
)
PERIODS = fields("attn_layer_period=4 attn_layer_offset=2 num_experts=1 mamba_d_state=4")
IRREGULAR = ["full_attention" if at in (2, 7, 13) else "sliding_attention" for at in range(16)]


def config(folder: Path, kind: str, layers: int, **more: Any) -> str:
    return configs.config(folder, kind, f"16 {layers} 4 2 32 50", **more)


def test_layers_that_are_left_out_stand_beside_the_same_neighbours() -> None:
    def traced(kinds: str) -> list[int]:
        return stack_of("layers", [kinds.index(kind) for kind in kinds]).traced

    assert traced("a" * 48) == [0, 1, 47]
    assert traced("d" + "m" * 46) == [0, 1, 2, 46]
    # a first layer, then every kind after and before every other; two f show what f have in common
    assert traced("lllf" * 12) == [0, 1, 2, 3, 4, 46, 47]
    assert traced("abc") == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "layers", "more"),
    [
        ("qwen3_next", 12, DELTA),
        ("gemma3_text", 16, {"head_dim": 4, "layer_types": IRREGULAR}),
        ("gpt_oss", 8, {"head_dim": 4, **ROUTED}),
        # the layers with attention share a mask
        ("recurrent_gemma", 12, {"head_dim": 4, "lru_width": 16}),
        # the first layer gets float16, and hands on float32
        ("mamba2", 6, STATES),
        # a property of the configuration says which layers have attention, whose mask they get
        ("jamba", 16, PERIODS),
        # each layer scales by a number of its own
        ("diffllama", 6, {}),
    ],
)
def test_layers_of_any_pattern_are_repeated(
    kind: str, layers: int, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = config(tmp_path, kind, layers, **more)
    options = TraceOptions(
        decode=True, kv_tokens=9, dtype="float16", keep_modules=kind == "gpt_oss"
    )
    stacks: list[Any] = []
    whole_program = model_room._whole

    def counting(*args: Any) -> Any:
        stacks.append(args[3])
        return whole_program(*args)

    monkeypatch.setattr(model_room, "_whole", counting)
    repeated = read_traced_model(name, options)
    assert [len(each) for each in stacks] == [1]  # one stack, which was not traced again
    monkeypatch.setattr(model_room, "_repeated", lambda *args: None)
    assert repeated == read_traced_model(name, options)


def test_a_stack_without_layers_stays_as_it_is(tmp_path: Path) -> None:
    # the first stage of ConvNeXt shrinks no image: a stem, three that do, and one layer in each
    sizes = {"hidden_sizes": [4, 8, 8, 8], "depths": [1] * 4, "image_size": 32}
    graph = read_traced_model(configs.write_config(tmp_path, "convnext", **sizes)).graph
    assert [op.kind for op in graph.ops].count("convolution") == 8


def test_layers_that_a_model_counts_are_all_traced(tmp_path: Path) -> None:
    name = config(tmp_path, "rwkv", 8, attention_hidden_size=16)
    graph = read_traced_model(name, TraceOptions(decode=True, kv_tokens=9)).graph
    # every sixth layer halves what it hands on
    assert sum(op.kind == "div" and op.module == "rwkv" for op in graph.ops) == 1


@pytest.mark.parametrize(
    ("kind", "more", "options"),
    [
        ("gpt_oss", {"head_dim": 4, **ROUTED}, {"optimizer": "none", "keep_modules": True}),
        ("deepseek_v3", LATENT, {"dtype": "bfloat16"}),
        ("bert", {}, {"tied": "together"}),
    ],
)
def test_layers_of_a_training_step_are_repeated(
    kind: str,
    more: dict[str, Any],
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = config(tmp_path, kind, 8, **more)
    chosen = TraceOptions(train=True, seq=8, **options)
    repeats: list[bool] = []
    trace = training_room.trace_step

    def counting(name: str, options: TraceOptions, *, repeat: bool = False) -> Any:
        repeats.append(repeat)
        return trace(name, options, repeat=repeat)

    monkeypatch.setattr(training_room, "trace_step", counting)
    repeated = read_training_model(name, chosen)
    assert repeats == [True]  # which was not traced again
    monkeypatch.setattr(training_room, "trace_step", lambda *given, **_: trace(*given))
    assert repeated == read_training_model(name, chosen)
