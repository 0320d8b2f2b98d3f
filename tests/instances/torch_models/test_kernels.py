"""What traced ops compute: FLOPs, bytes and kernels of whole models and small modules, by hand."""

from pathlib import Path
from typing import Any

import pytest
from doubles.configs import config, fields, sized, write_config

from placegap.instances import AttentionKernel, ExpertsKernel, Graph, MatrixProduct
from placegap.instances.torch_models.fx_reader import read_fx_graph
from placegap.instances.torch_models.inference_phase import add_kernels
from placegap.instances.torch_models.model import read_traced_model
from placegap.instances.torch_models.options import TraceOptions
from placegap.instances.torch_models.tracing import Traceable, traced
from placegap.instances.torch_models.training_model import read_training_model

pytestmark = pytest.mark.torch

SMALL = "16 3 4 2 32 11"
"""Three layers of 16 channels, 4 heads of 4 and 2 of keys and values; 32 channels inside, 11
words."""

TYPES = {"dtype": "bfloat16", "cache_dtype": "bfloat16"}
HEADS: dict[str, Any] = {"heads": 4, "kv_heads": 2, "head_size": 4}

MIXTRAL = {"num_local_experts": 8, "num_experts_per_tok": 2}


def work(graph: Graph, module: str) -> list[tuple[int | None, int | None, Any]]:
    """FLOPs, bytes and kernels of the ops of a module that compute products."""
    inside = [op for op in graph.ops if (op.module or "").startswith(module) and op.flops]
    return [(op.flops, op.bytes_moved, op.kernel) for op in inside]


def product(m: int, n: int, k: int, dtype: str = "bfloat16", **more: int) -> MatrixProduct:
    return MatrixProduct(m=m, n=n, k=k, dtype=dtype, **more)


def of_rows(m: int, n: int, k: int) -> tuple[int, int, MatrixProduct]:
    """A product of 16-bit numbers: each is read or written once."""
    return 2 * m * n * k, 2 * (m * k + k * n + m * n), product(m, n, k)


def dense(rows: int, attention: tuple[int, int, AttentionKernel]) -> list[Any]:
    """A layer: queries, keys, values, attention, its output; gate, up, down."""
    inner = [of_rows(rows, 32, 16), of_rows(rows, 32, 16), of_rows(rows, 16, 32)]
    return [*into_attention(rows), attention, of_rows(rows, 16, 16), *inner]


def into_attention(rows: int) -> list[Any]:
    return [of_rows(rows, 16, 16), of_rows(rows, 8, 16), of_rows(rows, 8, 16)]


def test_a_dense_model_in_both_phases(tmp_path: Path) -> None:
    name = config(tmp_path, "llama", SMALL, torch_dtype="bfloat16")
    graph = read_traced_model(name, TraceOptions(prefill=9, batch=2)).graph
    context = AttentionKernel(phase="context", batch=2, new_tokens=9, **HEADS, **TYPES)
    # two products of 9 x 9 pairs in 2 x 4 heads of 4; queries, keys and values of all 4 heads and
    # what is written, of 2 bytes, and a mask of 2 x 9 x 9 bytes
    attention = 2 * 2 * 2 * 4 * 81 * 4, 4 * 2 * 9 * 16 * 2 + 2 * 81, context
    assert work(graph, "model.layers.2.") == dense(18, attention)
    # of the last token of each prompt
    assert work(graph, "lm_head") == [of_rows(2, 11, 16)]

    graph = read_traced_model(name, TraceOptions(decode=True, kv_tokens=100, batch=3)).graph
    generation = AttentionKernel(
        phase="generation", batch=3, new_tokens=1, held_tokens=100, **HEADS, **TYPES
    )
    # 100 tokens meet 3 x 4 heads of 4; the cache has keys and values of 2 heads, the mask 3 bytes
    attention = 2 * 2 * 3 * 4 * 100 * 4, 4 * 3 * 16 * 2 + 3 + 2 * 3 * 100 * 8 * 2, generation
    for layer in range(3):
        assert work(graph, f"model.layers.{layer}.") == dense(3, attention)
    assert work(graph, "lm_head") == [of_rows(3, 11, 16)]


def test_experts_of_a_layer_are_one_kernel_in_both_phases(tmp_path: Path) -> None:
    name = config(tmp_path, "mixtral", SMALL, torch_dtype="bfloat16", **MIXTRAL)
    for options, tokens, distinct in (
        # all 8 experts but (3/4)^9 of them, whose bytes are rounded up
        (TraceOptions(prefill=9), 9, 8 * (1 - 0.75**9)),
        (TraceOptions(decode=True, kv_tokens=100), 1, 2),
    ):
        graph = read_traced_model(name, options).graph
        found = work(graph, "model.layers.1.mlp.")
        sizes = {"hidden": 16, "inner": 32, "chosen": 2, "experts": 8}
        kernel = ExpertsKernel(tokens=tokens, dtype="bfloat16", **sizes)
        # gate and up are one product of 64 columns; 8 ends of groups of 4 bytes
        rows = 2 * tokens
        sums = [(16, 64), (32, 16)]
        moved = [rows * (k + n) * 2 + 32 + distinct * k * n * 2 for k, n in sums]
        assert found[0] == of_rows(tokens, 8, 16)
        assert [(flops, at) for flops, _, at in found[1:]] == [
            (2 * rows * k * n, kernel) for k, n in sums
        ]
        assert [size for _, size, _ in found[1:]] == pytest.approx(moved, abs=1)
        assert kernel.flops == sum(flops or 0 for flops, _, _ in found[1:])
        assert work(graph, "model.layers.1.self_attn.q") == [of_rows(tokens, 16, 16)]


TOWER = fields(
    "hidden_size=16 num_hidden_layers=3 num_attention_heads=4 intermediate_size=32 patch_size=14"
)
LLAVA: dict[str, Any] = {
    "image_token_index": 49,
    "torch_dtype": "bfloat16",
    "text_config": {"model_type": "llama", **sized("16 3 4 2 32 50")},
    "vision_config": {"model_type": "clip_vision_model", "image_size": 28, **TOWER},
}


def test_a_model_of_images_and_text_in_both_phases(tmp_path: Path) -> None:
    name = write_config(tmp_path, "llava", **LLAVA)
    graph = read_traced_model(name, TraceOptions(prefill=30, batch=2)).graph
    (patches,) = (op for op in graph.ops if op.kind == "convolution")
    # 2 images of 28 x 28 pixels of 3 colours are 2 x 2 patches of 14 x 14 each
    assert patches.kernel == product(2 * 4, 16, 3 * 14 * 14)
    assert patches.flops == 2 * 8 * 16 * 588
    assert patches.bytes_moved == 2 * (2 * 3 * 28 * 28 + 16 * 588 + 8 * 16)
    tower = work(graph, "model.vision_tower.encoder.layers.0.")
    # 4 patches and the class in each image, with biases; 4 heads, none of them shared
    rows = 2 * 5
    widths = [(16, 16)] * 4 + [(32, 16), (16, 32)]
    biased = [
        (2 * rows * n * k, 2 * (rows * k + k * n + rows * n + n), product(rows, n, k))
        for n, k in widths
    ]
    sizes: dict[str, Any] = {**HEADS, "kv_heads": 4, **TYPES}
    encoder = AttentionKernel(phase="encoder", batch=2, new_tokens=5, **sizes)
    attention = 2 * 2 * 2 * 4 * 25 * 4, 4 * 2 * 5 * 16 * 2, encoder
    assert tower == [*biased[:3], attention, *biased[3:]]
    text = work(graph, "model.language_model.layers.1.")
    context = AttentionKernel(phase="context", batch=2, new_tokens=30, **HEADS, **TYPES)
    attention = 2 * 2 * 2 * 4 * 900 * 4, 4 * 2 * 30 * 16 * 2 + 2 * 900, context
    assert text == dense(60, attention)

    graph = read_traced_model(name, TraceOptions(decode=True, kv_tokens=30)).graph
    assert not work(graph, "model.vision_tower")
    generation = AttentionKernel(
        phase="generation", batch=1, new_tokens=1, held_tokens=30, **HEADS, **TYPES
    )
    attention = 2 * 2 * 4 * 30 * 4, 4 * 16 * 2 + 1 + 2 * 30 * 8 * 2, generation
    assert work(graph, "model.language_model.layers.1.") == dense(1, attention)


LATENT = fields(
    "q_lora_rank=8 kv_lora_rank=12 qk_rope_head_dim=4 qk_nope_head_dim=8 v_head_dim=12"
    " n_routed_experts=8 n_group=2 topk_group=1 num_experts_per_tok=3 moe_intermediate_size=24"
    " first_k_dense_replace=1"
)
OSS = fields("head_dim=4 num_local_experts=8 num_experts_per_tok=4 sliding_window=5")
T5 = fields("d_model=16 d_ff=32 d_kv=4 num_heads=4 num_layers=2 vocab_size=50")
Phases = set[str | None]
CONTEXT, GENERATION, ENCODER, NONE = {"context"}, {"generation"}, {"encoder"}, {None}
MODELS: dict[str, tuple[str, dict[str, Any], tuple[Phases, Phases, Phases]]] = {
    "llama": (SMALL, {}, (CONTEXT, GENERATION, CONTEXT)),
    "mixtral": (SMALL, MIXTRAL, (CONTEXT, GENERATION, CONTEXT)),
    # latent attention is no kernel of a table
    "deepseek_v3": ("16 3 4 4 32 11", LATENT, (NONE, NONE, NONE)),
    # written out as products where nothing is cached
    "gpt_oss": ("16 4 4 2 32 11", OSS, (set(), GENERATION, set())),
    "bert": ("16 3 4 4 32 11", {}, (ENCODER, GENERATION, ENCODER)),
    # nor is attention to what an encoder made; with learned biases it is trained as products
    "t5": (SMALL, T5, ({*CONTEXT, *ENCODER, None}, {*GENERATION, None}, NONE)),
}
"""Sizes and more fields, and the phases of attention in the three passes below."""

PASSES = (
    TraceOptions(seq=7, batch=2),
    TraceOptions(decode=True, kv_tokens=9, batch=3),
    TraceOptions(train=True, seq=7),
)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("at", range(3), ids=["prompt", "decode", "train"])
def test_kernels_compute_what_their_ops_compute(kind: str, at: int, tmp_path: Path) -> None:
    sizes, more, phases = MODELS[kind]
    read = read_training_model if PASSES[at].train else read_traced_model
    ops = read(config(tmp_path, kind, sizes, **more), PASSES[at]).graph.ops
    routed: dict[str | None, int] = {}
    for op in ops:
        if isinstance(op.kernel, MatrixProduct):
            assert op.kernel.flops == op.flops
        if isinstance(op.kernel, ExpertsKernel):
            left = routed.setdefault(op.module, op.kernel.flops)
            routed[op.module] = left - (op.flops or 0)
    assert set(routed.values()) <= {0}
    assert len(routed) == {"mixtral": 3, "deepseek_v3": 2, "gpt_oss": 4}.get(kind, 0)
    assert all(op.kernel for op in ops if op.kind in ("mm", "addmm", "bmm"))
    attention = [op for op in ops if "scaled_dot_product" in op.kind]
    forward = [op for op in attention if not op.backward]
    assert {getattr(op.kernel, "phase", None) for op in forward} == phases[at]
    assert not any(op.kernel for op in attention if op.backward)


def test_a_window_limits_what_attention_finds(tmp_path: Path) -> None:
    name = config(tmp_path, "gpt_oss", "16 4 4 2 32 11", **OSS)

    def seen(options: TraceOptions) -> list[tuple[int, int | None]]:
        ops = read_traced_model(name, options).graph.ops
        found = [op.kernel for op in ops if isinstance(op.kernel, AttentionKernel)]
        return [(kernel.held_tokens, kernel.window) for kernel in found]

    # every second layer sees 5 tokens
    assert seen(TraceOptions(decode=True, kv_tokens=9)) == [(5, 5), (9, None)] * 2
    assert seen(TraceOptions(prefill=9)) == [(0, 5), (0, None)] * 2


@pytest.mark.parametrize(
    ("weights", "attention", "experts"),
    [
        ("int4", {"attention"}, set()),
        ("mxfp4", {"attention", "product"}, set()),  # of experts alone
        ("bfloat16", {"attention", "product"}, {"mixture_of_experts"}),
    ],
)
def test_weights_that_are_unpacked_are_no_kernel_of_a_table(
    weights: str, attention: set[str], experts: set[str], tmp_path: Path
) -> None:
    name = config(tmp_path, "mixtral", SMALL, torch_dtype="bfloat16", **MIXTRAL)
    ops = read_traced_model(name, TraceOptions(seq=4, weights=weights)).graph.ops

    def types(part: str) -> set[str]:
        return {op.kernel.type for op in ops if op.kernel and part in (op.module or "")}

    assert types("self_attn") == attention
    assert types("mlp.experts") == experts


def kernels(module: Any, *inputs: Any) -> list[Any]:
    """Kernels of the ops of a module that compute products or attention."""
    graph, held = traced("net", Traceable(module.eval(), inputs))
    program = read_fx_graph(graph, held)
    add_kernels(program, graph, module, TraceOptions())
    return [op["kernel"] for op in program.ops if op["flops"]]


def net(forward: Any, **weights: Any) -> Any:
    """A module of a function of its weights and inputs."""
    from torch import nn

    class Net(nn.Module):  # type: ignore[misc]
        def forward(self, *inputs: Any) -> Any:
            return forward(self, *inputs)

    made = Net()
    for name, value in weights.items():
        setattr(made, name, nn.Parameter(value, requires_grad=False))
    return made


def test_a_convolution_is_the_product_that_it_is_computed_as() -> None:
    from torch import nn, zeros

    x = zeros(2, 4, 6, 6)
    # 4 x 4 pixels of 2 samples meet 6 channels of 4 x 9 numbers, in 2 groups 3 of 2 x 9
    assert kernels(nn.Conv2d(4, 6, 3), x) == [product(32, 6, 36, "float32")]
    assert kernels(nn.Conv2d(4, 6, 3, groups=2), x) == [product(32, 3, 18, "float32", batch=2)]
    # each of 6 x 6 pixels of 2 samples makes 6 x 2 x 2 numbers of 4
    assert kernels(nn.ConvTranspose2d(4, 6, 2, 2), x) == [product(72, 24, 4, "float32")]


def test_rows_are_those_of_activations() -> None:
    from torch import zeros

    # 3 columns of activations meet a weight of 5 rows
    turned = net(lambda self, x: self.w @ x, w=zeros(5, 4))
    assert kernels(turned, zeros(4, 3)) == [product(3, 5, 4, "float32")]
    scores = net(lambda _, x, y: x @ y)
    pair = zeros(2, 7, 3, 4), zeros(2, 7, 4, 5)
    assert kernels(scores, *pair) == [product(3, 5, 4, "float32", batch=14)]


def test_factors_of_eight_bits_are_a_kernel_of_their_type() -> None:
    import torch

    types = torch.float8_e4m3fn

    def forward(self: Any, x: Any) -> Any:
        one = torch.ones(())
        return torch._scaled_mm(x, self.w.t(), one, one, out_dtype=torch.bfloat16)

    weight = torch.zeros(32, 16).to(types)
    (kernel,) = kernels(net(forward, w=weight), torch.zeros(8, 16).to(types))
    assert kernel == product(8, 32, 16, "float8_e4m3fn")
    # unpacked for a product in 16 bits
    unpacked = net(lambda self, x: x @ self.w.bfloat16().t(), w=weight)
    assert kernels(unpacked, torch.zeros(8, 16, dtype=torch.bfloat16)) == [None]


def test_attention_is_causal_where_the_call_or_its_module_says_so() -> None:
    from torch import zeros
    from torch.nn.functional import scaled_dot_product_attention as attend

    x, mask = zeros(2, 4, 5, 8), zeros(5, 5)
    sizes = {"batch": 2, "heads": 4, "kv_heads": 4, "head_size": 8, "new_tokens": 5}
    types = {"dtype": "float32", "cache_dtype": "float32"}

    def kernel(phase: Any) -> AttentionKernel:
        return AttentionKernel(phase=phase, **sizes, **types)

    assert kernels(net(lambda _, x: attend(x, x, x)), x) == [kernel("encoder")]
    assert kernels(net(lambda _, x: attend(x, x, x, is_causal=True)), x) == [kernel("context")]
    masked = net(lambda _, x, mask: attend(x, x, x, mask))
    assert kernels(masked, x, mask) == [None]
    masked.is_causal = True
    assert kernels(masked, x, mask) == [kernel("context")]
    # fewer queries than keys
    assert kernels(net(lambda _, x: attend(x[:, :, :2], x, x)), x) == [None]
