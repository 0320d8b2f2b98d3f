"""Language models as chains of layers, for pipelines: one op per layer and pass; or with modes.

A layer's FLOPs are those of its matrix products; backward takes twice as many. Sizes follow the
usual counts: 16 bytes of weights, gradients and Adam's state per parameter in mixed precision, and
34 bytes per token and hidden unit that a layer keeps for its backward op (Korthikanti et al. 2022,
with attention that keeps no scores).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, TypedDict

from placegap.instances.corpus.corpus import corpus_names
from placegap.instances.corpus.measured_chains import (
    MEASURED,
    PREFIX,
    chain_edges,
    measured_document,
    measured_with_modes,
)
from placegap.instances.costing.costing import with_costs
from placegap.instances.costing.layer_modes import LayerPart, ModelledOn, TrainedLayer, layer_graph
from placegap.instances.costing.measured_rates import Divided, LayerWork, MovedBytes, Product
from placegap.instances.files.document import Document
from placegap.instances.problem import Graph, Op, Provenance
from placegap.instances.reading.errors import InputError, look_up

LARGEST_SIZE = 1_048_576  # of a microbatch or a sequence: a limit against slips
# Per parameter; per token and hidden unit of a layer; per number of an activation.
STATE_BYTES, STASH_BYTES, VALUE_BYTES = 16, 34, 2


class ModelShape(NamedTuple):
    """A decoder of layers, between an embedding and a loss layer."""

    # `width` is that of a layer's feed-forward part as one token passes it, `products` how many
    # matrices it has, `all_width` what the device holds of it (all experts); the first
    # `dense_layers` have a width of their own. Keys and values have `kv_heads` heads (0: all).
    # `fused` attention keeps no scores and computes half of them (causal); without it there is
    # dropout, too.
    layers: int
    hidden: int
    width: int
    products: int
    words: int
    tokens: int
    heads: int
    kv_heads: int = 0
    all_width: int = 0
    dense_layers: int = 0
    dense_width: int = 0
    fused: bool = True


def _megatron(layers: int, hidden: int, heads: int) -> ModelShape:
    return ModelShape(layers, hidden, 4 * hidden, 2, 51_200, 2048, heads, fused=False)


# Language models by name.
SHAPES = {
    # Touvron et al. 2023
    "llama-7b": ModelShape(32, 4096, 11008, 3, 32_000, 2048, 32),
    # Llama 3 (Grattafiori et al. 2024), table 3
    "llama-8b": ModelShape(32, 4096, 14336, 3, 128_256, 8192, 32, 8),
    "llama-70b": ModelShape(80, 8192, 28672, 3, 128_256, 8192, 64, 8),
    "llama-405b": ModelShape(126, 16384, 53248, 3, 128_256, 8192, 128, 8),
    # Jiang et al. 2024, table 1: 2 of 8 experts
    "mixtral-8x7b": ModelShape(32, 4096, 2 * 14336, 3, 32_000, 4096, 32, 8, 8 * 14336),
    # Brown et al. 2020, table 2.1
    "gpt-3-13b": ModelShape(40, 5140, 4 * 5140, 2, 50_257, 2048, 40),
    # DeepSeek-V2-Lite (2024): 6 of 64 experts and 2 shared ones of 1408; the first layer is dense
    "moe-16b": ModelShape(27, 2048, 8 * 1408, 3, 102_400, 4096, 16, 0, 66 * 1408, 1, 10_944),
    # Korthikanti et al. 2022, table 3
    "megatron-22b": _megatron(48, 6144, 64),
    "megatron-175b": _megatron(96, 12288, 96),
    "megatron-530b": _megatron(105, 20480, 128),
    "megatron-1t": _megatron(128, 25600, 160),
    # Narayanan et al. 2021, table 1
    "megatron-145b": _megatron(80, 12288, 96),
    "megatron-310b": _megatron(96, 16384, 128),
}

# Those that tables of pipelines have: other sizes need more than 16 devices.
MODELS = ("llama-7b", "gpt-3-13b", "moe-16b")
TRAIN = "-train"  # behind the name of a shape: one training step of it


def is_chain(name: str) -> bool:
    """Whether a name is that of a training step of a shape, or of a measured one."""
    # A name of a traced step in the corpus is none.
    return name.startswith(PREFIX) or name in chain_names()


@cache
def chain_names() -> tuple[str, ...]:
    """Names of all training steps of shapes, and of those with measured times."""
    shapes = (name + TRAIN for name in SHAPES if name + TRAIN not in corpus_names())
    return *shapes, *(PREFIX + name for name in MEASURED)


def _sized(name: str, sizes: Mapping[str, int]) -> tuple[ModelShape, int]:
    """A shape with other ``tokens`` (of a sequence), and sequences of a microbatch (``batch``)."""
    unknown = sizes.keys() - {"batch", "tokens"}
    if unknown:
        raise InputError(f"{name} has no size {min(unknown)!r}; choose from batch, tokens")
    shape = look_up("shape", name.removesuffix(TRAIN), SHAPES)
    for key, size in sizes.items():
        if not 0 < size <= LARGEST_SIZE:
            raise InputError(f"{name}: {key} must be an integer from 1 to {LARGEST_SIZE}")
    return shape._replace(tokens=sizes.get("tokens", shape.tokens)), sizes.get("batch", 1)


def chain_document(name: str, sizes: Mapping[str, int] | None = None) -> Document:
    """One training step of a shape, ``llama-70b-train``, as a document without a cluster."""
    if name.startswith(PREFIX):
        return measured_document(name, sizes or {})
    shape, batch = _sized(name, sizes or {})
    graph = layer_chain(name.removesuffix(TRAIN), shape=shape, batch=batch)
    graph = with_costs(graph, "roofline")
    return Document(name=name, graph=graph.model_copy(update={"name": name}))


def chain_with_modes(name: str, on: ModelledOn, sizes: Mapping[str, int] | None = None) -> Graph:
    """The layers of a training step of a shape, with modes, for hybrid_pipeline."""
    if name.startswith(PREFIX):
        return measured_with_modes(name, on.rates, on.tensors, sizes or {})
    return layers_with_modes(name, *_sized(name, sizes or {}), on)


def layers_with_modes(name: str, shape: ModelShape, batch: int, on: ModelledOn) -> Graph:
    """The layers of a training step of a shape that need have no name of its own."""
    layers = shape_layers(shape, batch)
    size = batch * shape.tokens * shape.hidden * VALUE_BYTES
    edges = [(k, k + 1, size) for k in range(len(layers) - 1)]
    provenance = Provenance(source=f"{name}: its shape as published, FLOPs of matrix products")
    return with_costs(layer_graph(name, layers, edges, on, provenance), "roofline")


def shape_layers(shape: ModelShape, batch: int = 1) -> list[TrainedLayer]:
    """What the layers of a shape compute and hold: embedding, layers, loss."""
    # Per token and hidden unit a layer without fused attention keeps 34 bytes and its scores
    # (Korthikanti et al. 2022, section 4.1): 10 of the residual stream, and 24 inside of blocks.
    tokens, hidden = batch * shape.tokens, shape.hidden
    unit, mask = tokens * hidden, 0 if shape.fused else tokens * hidden
    stream = 2 * VALUE_BYTES * unit + mask  # inputs of the norm and of the products
    narrow = hidden * (shape.kv_heads or shape.heads) // shape.heads
    scores = 4 * tokens * shape.tokens * hidden // (2 if shape.fused else 1)
    kept_scores = 0 if shape.fused else 5 * shape.heads * tokens * shape.tokens
    norm = hidden if shape.fused else 2 * hidden
    attention = LayerPart(
        flops=4 * tokens * hidden * (hidden + narrow) + scores,
        weights=2 * hidden * (hidden + narrow),
        whole_weights=norm,
        stash_bytes=2 * VALUE_BYTES * tokens * (hidden + narrow) + kept_scores,
        stream_bytes=stream,
        reduced_bytes=VALUE_BYTES * unit,
        recomputed_flops=scores if kept_scores else 0,
        recomputed_bytes=kept_scores,
        **_attention_work(shape, batch, narrow),
    )

    def feed_forward(width: int, all_width: int) -> LayerPart:
        flops = 2 * tokens * hidden * width * shape.products
        stash = shape.products * VALUE_BYTES * tokens * width
        return LayerPart(
            flops=flops,
            weights=hidden * all_width * shape.products,
            whole_weights=norm,
            stash_bytes=stash,
            stream_bytes=stream,
            reduced_bytes=VALUE_BYTES * unit,
            recomputed_flops=flops if shape.fused else 0,
            recomputed_bytes=stash if shape.fused else 0,
            reduces_again=shape.fused,
            **_feed_forward_work(shape, tokens, width),
        )

    words = shape.words * hidden
    half = VALUE_BYTES * unit // 2  # one half of an all-reduce in each pass
    found = [
        TrainedLayer(
            "embedding",
            "Embedding",
            (
                LayerPart(
                    weights=words,
                    stream_bytes=mask,
                    reduced_bytes=half,
                    forward=LayerWork((), _moving(4 * unit, 6 * unit, 5 * unit)),
                    backward=LayerWork((), _moving(5 * unit, 8 * unit)),
                    weight_bytes_moved=VALUE_BYTES,
                    step_reduced_bytes=(2 * unit,),
                ),
            ),
            0,
            full=False,
        )
    ]
    for number in range(shape.layers):
        is_dense = number < shape.dense_layers
        width = shape.dense_width if is_dense else shape.width
        held = width if is_dense else shape.all_width or width
        divides = (shape.heads, shape.kv_heads or shape.heads, width)
        blocks = (attention, feed_forward(width, held))
        name = f"layer{number}"
        module = f"layers.{number}"
        found.append(
            TrainedLayer(name, "Layer", blocks, VALUE_BYTES * unit, divides, module=module)
        )
    loss = LayerPart(
        flops=2 * tokens * words,
        weights=words,
        whole_weights=norm,
        stash_bytes=4 * tokens * shape.words,  # logits in single precision
        stream_bytes=2 * VALUE_BYTES * unit,
        reduced_bytes=half,
        **_loss_work(shape, tokens),
    )
    found.append(TrainedLayer("loss", "Loss", (loss,), 0, full=False))
    return found


class _Passes(TypedDict, total=False):
    """Fields of a `LayerPart`: what its passes run."""

    forward: LayerWork
    backward: LayerWork
    again: LayerWork
    step_reduced_bytes: tuple[int, ...]


def _moving(*sizes: int, divided: Divided = "whole") -> tuple[MovedBytes, ...]:
    return tuple(MovedBytes(size, divided) for size in sizes)


def _attention_work(shape: ModelShape, batch: int, narrow: int) -> _Passes:
    """Products of queries, keys and values, of the core, and of the output, with their kernels."""
    # Kernels are those of Megatron-LM: norm, dropout with bias and sum, permutation; and of the
    # core softmax and dropout. A fused core has no kernels of its own, and half of the products.
    tokens, hidden = batch * shape.tokens, shape.hidden
    unit, scores = tokens * hidden, 0 if shape.fused else shape.heads * tokens * shape.tokens
    products = Product(tokens, hidden + 2 * narrow, hidden, 1), Product(tokens, hidden, hidden, 2)
    rows, size = shape.heads * tokens // (2 if shape.fused else 1), hidden // shape.heads
    core = Product(rows, shape.tokens, size, 0), Product(rows, size, shape.tokens, 0)
    inner, back = ((), ()) if shape.fused else ((4 * scores, 5 * scores), (5 * scores, 6 * scores))
    ahead = _moving(4 * unit, 7 * unit, divided="stream")
    behind = _moving(9 * unit, 10 * unit, 6 * unit, divided="stream")
    once = LayerWork(core, _moving(*inner, divided="tensor"))
    return {
        "forward": LayerWork(
            products + core, (*ahead, *_moving(4 * unit, *inner, divided="tensor"))
        ),
        "backward": LayerWork(
            sum((product.backward() for product in products), ()) + 2 * core,
            (*behind, *_moving(4 * unit, 6 * unit, *back, divided="tensor")),
        ),
        "again": LayerWork() if shape.fused else once,
    }


def _feed_forward_work(shape: ModelShape, tokens: int, width: int) -> _Passes:
    """Products of the feed-forward part; kernels: norm, dropout with bias and sum, activation."""
    # The activation reads and writes 4 bytes per number, SwiGLU 6, and twice that going back.
    hidden, unit, inner = shape.hidden, tokens * shape.hidden, tokens * width
    into = Product(tokens, (shape.products - 1) * width, hidden, 1)
    out = Product(tokens, hidden, width, 2)
    moved = 2 * shape.products * inner
    forward = LayerWork(
        (into, out),
        _moving(4 * unit, 7 * unit, divided="stream") + _moving(moved, divided="tensor"),
    )
    return {
        "forward": forward,
        "backward": LayerWork(
            into.backward() + out.backward(),
            _moving(9 * unit, 10 * unit, 6 * unit, divided="stream")
            + _moving(2 * moved, 3 * inner, divided="tensor"),
        ),
        "again": forward if shape.fused else LayerWork(),
    }


def _loss_work(shape: ModelShape, tokens: int) -> _Passes:
    """The product with the words, and kernels over logits in single precision."""
    unit, logits = tokens * shape.hidden, tokens * shape.words
    product = Product(tokens, shape.words, shape.hidden, 1)
    return {
        "forward": LayerWork(
            (product,), _moving(4 * unit) + _moving(*4 * (8 * logits,), divided="tensor")
        ),
        "backward": LayerWork(
            product.backward(), _moving(*2 * (6 * logits,), divided="tensor") + _moving(10 * unit)
        ),
        "step_reduced_bytes": (4 * tokens, 4 * tokens, 4 * tokens, 2 * unit),
    }


def layer_chain(name: str, *, shape: ModelShape | None = None, batch: int = 1) -> Graph:
    """One training step on a microbatch of a model of `SHAPES`, not yet costed."""
    shape = shape or SHAPES[name]
    tokens = batch * shape.tokens
    size = tokens * shape.hidden * VALUE_BYTES
    narrow = shape.hidden * (shape.kv_heads or shape.heads) // shape.heads
    attention = 2 * shape.hidden * (shape.hidden + narrow)
    scores = 4 * tokens * shape.tokens * shape.hidden
    words = shape.words * shape.hidden
    rows = [("embedding", 0, words, 0, size)]  # name, flops, parameters, stash, bytes moved
    for number in range(shape.layers):
        is_dense = number < shape.dense_layers
        width = shape.dense_width if is_dense else shape.width
        held = shape.dense_width if is_dense else shape.all_width or shape.width
        used = attention + shape.products * shape.hidden * width
        parameters = attention + shape.products * shape.hidden * held
        stash = STASH_BYTES * tokens * shape.hidden
        moved = parameters * VALUE_BYTES + stash
        rows.append((f"layer{number}", 2 * tokens * used + scores, parameters, stash, moved))
    logits = tokens * shape.words * (VALUE_BYTES + 4)  # also in single precision
    rows.append(("loss", 2 * tokens * words, words, logits, 3 * logits))
    ops = [_op(row, backward=False) for row in rows] + [_op(row, backward=True) for row in rows]
    edges = chain_edges({name: stash for name, _, _, stash, _ in rows}, size)
    source = f"{name}: its shape as published, FLOPs of matrix products"
    return Graph(
        name=name, ops=tuple(ops), edges=tuple(edges), provenance=Provenance(source=source)
    )


def _op(row: tuple[str, int, int, int, int], *, backward: bool) -> Op:
    name, flops, parameters, stash, moved = row
    return Op(
        name=f"{name}/backward" if backward else name,
        kind="Layer",
        flops=flops * (2 if backward else 1),
        bytes_moved=moved * (2 if backward else 1),
        dtype="bfloat16",
        colocation=name,
        backward=backward,
        resident_bytes=0 if backward else parameters * STATE_BYTES + stash,
        parameter_bytes=0 if backward else parameters * VALUE_BYTES,
    )
