"""Transformers: Vaswani et al. (2017), BERT (Devlin et al., 2019), GPT-3 (Brown et al., 2020).

Swin Transformer V2 at the sizes of Moirai's table IV (Liu et al., CVPR 2022).

AlphaFold 2's Evoformer stack (Jumper et al., Nature 2021, supplement, section 1.6).
"""

from __future__ import annotations

from math import prod

from placegap.experiments.research.workloads.layers import (
    activation,
    add,
    concat,
    dense,
    dropout,
    embedding,
    layer_norm,
    loss,
    matmul,
    placeholder,
    scale,
    softmax,
    split,
    transpose,
    view,
)
from placegap.experiments.research.workloads.tape import Dims, Tape, Tensor, Weight

WORDS = 32_000  # size of the vocabulary of the translating transformer


def transformer(
    tape: Tape, batch: int, steps: int = 32, layers: int = 12, hidden: int = 2048, heads: int = 16
) -> None:
    """Write an encoder and a decoder as Tensor2Tensor does, norms written out, head by head."""
    # Celeritas states layers, heads, hidden units and batch; the sentences' length is ours, and the
    # feed-forward layers are four times as wide, as in Vaswani et al.
    memory = _embedded(tape, batch, steps, hidden, "encoder")
    for number in range(layers):
        with tape.scope(f"encoder/layer{number}"):
            memory = _residual_attention(tape, memory, memory, heads)
            memory = _residual_feed_forward(tape, memory)
    memory = layer_norm(tape, memory, "encoder/norm")
    x = _embedded(tape, batch, steps, hidden, "decoder")
    for number in range(layers):
        with tape.scope(f"decoder/layer{number}"):
            x = _residual_attention(tape, x, x, heads, "self")
            x = _residual_attention(tape, x, memory, heads, "encdec")
            x = _residual_feed_forward(tape, x)
    logits = dense(tape, layer_norm(tape, x, "decoder/norm"), WORDS, bias=False, name="softmax")
    if tape.dialect.training:
        loss(tape, logits)


def _embedded(tape: Tape, batch: int, steps: int, hidden: int, name: str) -> Tensor:
    with tape.scope(name):
        words = placeholder(tape, (batch, steps))
        x = scale(tape, embedding(tape, words, WORDS, hidden))
        position = tape.op("PositionalEncoding", [], (steps, hidden), rule="none")
        return dropout(tape, add(tape, x, position))


def _residual_attention(
    tape: Tape, x: Tensor, memory: Tensor, heads: int, name: str = "self"
) -> Tensor:
    with tape.scope(f"{name}_attention"):
        normed = layer_norm(tape, x)
        read = normed if memory == x else memory
        mixed = _attention_head_by_head(tape, normed, read, heads)
        return add(tape, dropout(tape, mixed), x)


def _attention_head_by_head(tape: Tape, x: Tensor, memory: Tensor, heads: int) -> Tensor:
    """Joint projections, split by head; then the heads' products, joined again."""
    width = x.shape[-1]
    queries, keys, values = (
        split(tape, dense(tape, source, width, bias=False, name=name), heads)
        for source, name in ((x, "query"), (memory, "key"), (memory, "value"))
    )
    mask = tape.op("Mask", [], (x.shape[1], memory.shape[1]), rule="none")
    outputs = []
    for number, (query, key, value) in enumerate(zip(queries, keys, values, strict=True)):
        with tape.scope(f"head{number}"):
            turned = Tensor(key.maker, (key.shape[0], key.shape[2], key.shape[1]), key.part)
            scores = scale(tape, matmul(tape, query, turned, kind="BatchMatMul"))
            weights = softmax(tape, add(tape, scores, mask))
            outputs.append(matmul(tape, weights, value, kind="BatchMatMul"))
    return dense(tape, concat(tape, outputs, 2), width, bias=False, name="output")


def _residual_feed_forward(tape: Tape, x: Tensor) -> Tensor:
    with tape.scope("feed_forward"):
        inner = activation(tape, dense(tape, layer_norm(tape, x), 4 * x.shape[-1], name="conv1"))
        outer = dense(tape, dropout(tape, inner), x.shape[-1], name="conv2")
        return add(tape, dropout(tape, outer), x)


def attention(
    tape: Tape,
    x: Tensor,
    memory: Tensor,
    heads: int,
    *,
    mask: Tensor | None = None,
    dropped: bool = False,
    bias: bool = False,
) -> Tensor:
    """Attention of `heads` heads in joint products, with its four projections."""
    batch, steps, width = x.shape
    apart = width // heads

    def by_head(source: Tensor, name: str, turned: bool = False) -> Tensor:
        length = source.shape[1]
        flat = dense(tape, source, width, bias=bias, name=name)
        shaped = view(tape, flat, (batch, length, heads, apart))
        last = (apart, length) if turned else (length, apart)
        return transpose(tape, shaped, (batch, heads, *last))

    query, key = by_head(x, "query"), by_head(memory, "key", turned=True)
    value = by_head(memory, "value")
    scores = scale(tape, matmul(tape, query, key), "Div" if bias else "Mul")
    shared = (
        mask if mask is not None else tape.op("Mask", [], (steps, memory.shape[1]), rule="none")
    )
    weights = softmax(tape, add(tape, scores, shared))
    mixed = matmul(tape, dropout(tape, weights) if dropped else weights, value)
    mixed = transpose(tape, mixed, (batch, steps, heads, apart))
    return dense(tape, view(tape, mixed, x.shape), width, bias=bias, name="output")


# Size of dnn-partitioning's BERT: 30,522 words, rounded up, and sentences of 128.
BERT_WORDS, BERT_STEPS = 30_528, 128


def bert(tape: Tape, batch: int, layers: int, hidden: int, inner: int) -> None:
    """Write BERT with both heads, as ONNX Runtime trains it."""
    # Attention has as many heads as 64 goes into `hidden`; the weights of the word table serve
    # again before the last softmax.
    ids, kinds = (placeholder(tape, (batch, BERT_STEPS), name) for name in ("ids", "segments"))
    mask = _bert_mask(tape, batch)
    table = tape.weight("word_embeddings", (BERT_WORDS, hidden))
    shape = (batch, BERT_STEPS, hidden)
    x = tape.op("Gather", [ids], shape, weights=[table], flops=0, rule="gather")
    x = add(tape, x, embedding(tape, ids, 512, hidden, name="position_embeddings"))
    x = add(tape, x, embedding(tape, kinds, 2, hidden, name="token_type_embeddings"))
    x = dropout(tape, layer_norm(tape, x))
    for number in range(layers):
        with tape.scope(f"layer.{number}"):
            with tape.scope("attention"):
                mixed = attention(tape, x, x, hidden // 64, mask=mask, dropped=True, bias=True)
                x = layer_norm(tape, add(tape, dropout(tape, mixed), x))
            wide = activation(tape, dense(tape, x, inner, name="intermediate"), "Gelu", 8)
            narrow = dropout(tape, dense(tape, wide, hidden, name="output"))
            x = layer_norm(tape, add(tape, narrow, x))
    first = tape.op("GatherItem", [x], (batch, hidden), flops=0, rule="view", view=True)
    pooled = activation(tape, dense(tape, first, hidden, name="pooler"), "Tanh", 4)
    _next_sentence(tape, pooled)
    moved = activation(tape, dense(tape, x, hidden, name="transform"), "Gelu", 8)
    _predictions(tape, layer_norm(tape, moved), table)


def _bert_mask(tape: Tape, batch: int) -> Tensor:
    x = placeholder(tape, (batch, BERT_STEPS), "mask")
    shape = (batch, 1, 1, BERT_STEPS)
    for kind in ("Unsqueeze", "Unsqueeze", "Cast", "Sub", "Mul"):
        x = tape.op(kind, [x], shape, rule="none")
    return x


def _next_sentence(tape: Tape, pooled: Tensor) -> None:
    with tape.scope("seq_relationship"):
        weights = [tape.weight("weights", (pooled.shape[1], 2)), tape.weight("bias", (2,))]
        tape.op(
            "Gemm",
            [pooled],
            (pooled.shape[0], 2),
            weights=weights,
            rule="gemm",
            flops=4 * pooled.shape[0] * pooled.shape[1],
        )


def _predictions(tape: Tape, x: Tensor, table: Weight) -> None:
    words, width = table.shape
    tokens = x.shape[0] * x.shape[1]
    with tape.scope("predictions"):
        turned = tape.op(
            "Transpose", [], (width, words), weights=[table], flops=0, rule="transpose"
        )
        shape = (*x.shape[:2], words)
        out = tape.op(
            "MatMul", [x, turned], shape, flops=2 * tokens * width * words, rule="product"
        )
        out = tape.op("Add", [out], shape, weights=[tape.weight("bias", (words,))], rule="bias")
    if tape.dialect.training:
        loss(tape, out, "SparseSoftmaxCrossEntropy")


def bert_layers(tape: Tape, batch: int, layers: int = 24, hidden: int = 1024) -> None:
    """Write BERT-large with one op per encoder layer, as PipeDream's profiler sees it."""
    steps, inner = BERT_STEPS, 4 * hidden
    shape = (batch, steps, hidden)
    ids, kinds, mask = (
        placeholder(tape, (batch, steps), name) for name in ("ids", "segments", "mask")
    )
    spread = tape.op("Mask", [mask], (batch, 1, 1, steps), rule="none")
    counts = {"words": BERT_WORDS, "positions": 512, "segments": 2, "norm": 2}
    tables = [tape.weight(name, (count, hidden)) for name, count in counts.items()]
    x = tape.op(
        "BertEmbeddings",
        [ids, kinds],
        shape,
        weights=tables,
        rule="gather",
        flops=10 * batch * steps * hidden,
    )
    for number in range(layers):
        with tape.scope(f"layer.{number}"):
            weights = [
                tape.weight("attention", (4, hidden, hidden)),
                tape.weight("biases", (9, hidden)),
                tape.weight("intermediate", (hidden, inner)),
                tape.weight("inner", (inner,)),
                tape.weight("output", (inner, hidden)),
            ]
            products = 2 * batch * steps * (4 * hidden**2 + 2 * hidden * inner)
            scores = 4 * batch * steps * steps * hidden
            x = tape.op("BertLayer", [x, spread], shape, weights=weights, flops=products + scores)
    first = tape.op(
        "Pooler",
        [x],
        (batch, hidden),
        flops=2 * batch * hidden**2,
        weights=[tape.weight("pooler", (hidden + 1, hidden))],
    )
    words = tape.op(
        "LMPredictionHead",
        [x],
        (batch, steps, BERT_WORDS),
        weights=[
            tables[0],
            tape.weight("transform", (hidden + 3, hidden)),
            tape.weight("bias", (BERT_WORDS,)),
        ],
        flops=2 * batch * steps * hidden * (hidden + BERT_WORDS),
    )
    tape.op(
        "SeqRelationship",
        [first, words],
        (batch, 2),
        flops=4 * batch * hidden,
        weights=[tape.weight("seq_relationship", (hidden + 1, 2))],
    )


def gpt3(
    tape: Tape,
    batch: int,
    layers: int,
    hidden: int,
    heads: int,
    steps: int = 2048,
    words: int = 50_257,
) -> None:
    """Write GPT-3 with one chain of ops per head: it has the op counts of Moirai, table IV."""
    # All eleven entries of that table are layers x (11 + 12 heads) exactly; so are ours, but for
    # the ops outside the layers. The word table serves again before the last softmax.
    ids = placeholder(tape, (batch, steps))
    table = tape.weight("wte", (words, hidden))
    shape = (batch, steps, hidden)
    x = tape.op("Embedding", [ids], shape, weights=[table], flops=0, rule="gather", name="wte")
    positions = placeholder(tape, (steps,), "positions")
    x = add(tape, x, embedding(tape, positions, steps, hidden, name="wpe"))
    for number in range(layers):
        with tape.scope(f"h.{number}"):
            mixed = attention_by_head(tape, layer_norm(tape, x, "ln_1"), heads)
            x = add(tape, dropout(tape, mixed), x)
            inner = dense(tape, layer_norm(tape, x, "ln_2"), 4 * hidden, name="c_fc")
            outer = dense(tape, activation(tape, inner, "Gelu", 8), hidden, name="c_proj")
            x = add(tape, dropout(tape, outer), x)
    x = layer_norm(tape, x, "ln_f")
    tape.op(
        "Linear",
        [x],
        (batch, steps, words),
        weights=[table],
        name="lm_head",
        flops=2 * batch * steps * hidden * words,
    )


def attention_by_head(tape: Tape, x: Tensor, heads: int) -> Tensor:
    """Attention with twelve ops for each head, then joined and projected."""
    batch, steps, width = x.shape
    apart = width // heads
    shape = (batch, steps, apart)
    outputs = []
    for number in range(heads):
        with tape.scope(f"head{number}"):
            query, key, value = (
                _projected(tape, x, shape, name) for name in ("query", "key", "value")
            )
            turned = tape.op("transpose", [key], (batch, apart, steps), view=True, rule="view")
            scores = scale(tape, matmul(tape, query, turned, kind="matmul"), "div")
            masked = tape.op("masked_fill", [scores], scores.shape)
            outputs.append(matmul(tape, softmax(tape, masked), value, kind="matmul"))
    return dense(tape, concat(tape, outputs, 2), width, name="c_attn_proj")


def _projected(tape: Tape, x: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    with tape.scope(name):
        weight = tape.weight("weight", (x.shape[-1], shape[-1]))
        flops = 2 * shape[0] * shape[1] * shape[2] * x.shape[-1]
        out = tape.op("matmul", [x], shape, weights=[weight], flops=flops, rule="product")
        return tape.op("add", [out], shape, weights=[tape.weight("bias", shape[-1:])], rule="bias")


WINDOW, PATCH = 7, 4  # sides of a window, in patches, and of a patch, in pixels
RELATIVE = 512  # hidden units of the network that makes relative position biases


def swin(
    tape: Tape,
    batch: int,
    depths: tuple[int, ...],
    width: int,
    heads: int,
    pixels: int = 1100,
    classes: int = 1000,
) -> None:
    """Write Swin V2 with one chain of ops per head of the first stage."""
    # Later stages have more heads; each of their chains computes several. The image is padded to
    # whole windows in all stages. Moirai states layers, width, heads and pixels; how the layers are
    # spread over the stages follows the published models: few in all stages but the third.
    unit = PATCH * WINDOW * 2 ** (len(depths) - 1)
    side = -(-pixels // unit) * unit // PATCH
    image = placeholder(tape, (batch, 3, pixels, pixels))
    with tape.scope("patch_embed"):
        weights = [tape.weight("weight", (width, 3, PATCH, PATCH)), tape.weight("bias", (width,))]
        x = tape.op(
            "Conv2d",
            [image],
            (batch, side * side, width),
            weights=weights,
            flops=2 * batch * side * side * width * 3 * PATCH**2,
            rule="conv",
        )
        x = layer_norm(tape, x)
    for stage, depth in enumerate(depths):
        for number in range(depth):
            with tape.scope(f"layers.{stage}.blocks.{number}"):
                x = _window_block(tape, x, heads, heads << stage, shifted=number % 2 == 1)
        if stage < len(depths) - 1:
            with tape.scope(f"layers.{stage}.downsample"):
                x = _merged(tape, x)
    x = layer_norm(tape, x)
    x = tape.op("AdaptiveAvgPool1d", [x], (batch, x.shape[2]), flops=batch * x.shape[1])
    dense(tape, x, classes, name="head")


def _merged(tape: Tape, x: Tensor) -> Tensor:
    """Four patches become one, of twice the width."""
    batch, patches, width = x.shape
    joined = tape.op("Concat", [x], (batch, patches // 4, 4 * width), flops=0, rule="concat")
    return layer_norm(tape, dense(tape, joined, 2 * width, bias=False, name="reduction"))


def _window_block(tape: Tape, x: Tensor, chains: int, heads: int, *, shifted: bool) -> Tensor:
    mixed = dropout(tape, layer_norm(tape, _windows(tape, x, chains, heads, shifted), "norm1"))
    x = add(tape, x, mixed)
    inner = activation(tape, dense(tape, x, 4 * x.shape[2], name="fc1"), "Gelu", 8)
    outer = dense(tape, inner, x.shape[2], name="fc2")
    return add(tape, x, dropout(tape, layer_norm(tape, outer, "norm2")))


def _windows(tape: Tape, x: Tensor, chains: int, heads: int, shifted: bool) -> Tensor:
    """Attention within windows: cosines of queries and keys, and biases by relative position."""
    batch, patches, width = x.shape
    area = WINDOW * WINDOW
    windows = batch * patches // area
    kind = "roll" if shifted else "window_partition"
    cut = tape.op(kind, [x], (windows, area, width), flops=0)
    apart, each = width // chains, heads // chains
    bias = _relative_bias(tape, heads, area)
    outputs = []
    for number in range(chains):
        with tape.scope(f"head{number}"):
            shape = (windows, area, apart)
            query = _plus(tape, _times(tape, cut, shape, "query"), "query_bias")
            key = _times(tape, cut, shape, "key")
            value = _plus(tape, _times(tape, cut, shape, "value"), "value_bias")
            query, key = (
                tape.op("normalize", [tensor], shape, flops=3 * windows * area * apart)
                for tensor in (query, key)
            )
            by_head = (windows * each, area, apart // each)
            turned = Tensor(key.maker, (windows * each, apart // each, area))
            scores = matmul(tape, Tensor(query.maker, by_head), turned, kind="matmul")
            scores = tape.op(
                "mul", [scores], scores.shape, weights=[tape.weight("logit_scale", (each,))]
            )
            weights = softmax(tape, add(tape, scores, bias))
            mixed = matmul(tape, weights, Tensor(value.maker, by_head), kind="matmul")
            outputs.append(Tensor(mixed.maker, shape))
    out = dense(tape, concat(tape, outputs, 2), width, name="proj")
    return Tensor(out.maker, x.shape)  # the windows side by side again


def _times(tape: Tape, x: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    weight = tape.weight(name, (x.shape[-1], shape[-1]))
    return tape.op(
        "matmul",
        [x],
        shape,
        weights=[weight],
        rule="product",
        flops=2 * shape[0] * shape[1] * shape[2] * x.shape[-1],
    )


def _plus(tape: Tape, x: Tensor, name: str) -> Tensor:
    weight: Weight = tape.weight(name, x.shape[-1:])
    return tape.op("add", [x], x.shape, weights=[weight], rule="bias")


def _relative_bias(tape: Tape, heads: int, area: int) -> Tensor:
    """A small network from the distance of two patches to a bias for each head."""
    distances = (2 * WINDOW - 1) ** 2
    with tape.scope("cpb_mlp"):
        weights = [
            tape.weight("fc1", (2, RELATIVE)),
            tape.weight("fc1_bias", (RELATIVE,)),
            tape.weight("fc2", (RELATIVE, heads)),
        ]
        return tape.op(
            "cpb_mlp",
            [],
            (1, area, area),
            weights=weights,
            flops=2 * distances * RELATIVE * (2 + heads),
        )


HEAD = 32  # width of one head of attention, in all of the block's attentions
OUTER = 32  # width that sequences are projected to before their outer products are averaged


def evoformer(
    tape: Tape,
    batch: int,
    blocks: int = 48,
    width: int = 256,
    heads: int = 8,
    pair_width: int = 128,
    residues: int = 256,
) -> None:
    """Write the stack on `batch` aligned sequences; one chain of ops per head of attention."""
    # Modules other than attention are one or two ops each, as kernels that are written for the
    # Evoformer fuse them. Pairs are attended to by half as many heads.
    rows = placeholder(tape, (batch, residues, width), "msa")
    pairs = placeholder(tape, (residues, residues, pair_width), "pairs")
    for number in range(blocks):
        with tape.scope(f"block{number}"):
            rows, pairs = _evoformer_block(tape, rows, pairs, heads)


def _evoformer_block(tape: Tape, rows: Tensor, pairs: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    rows = _attention(tape, rows, heads, "msa_row", by=pairs)
    rows = _attention(tape, rows, heads, "msa_column")
    rows = _transition(tape, rows, "msa_transition")
    pairs = add(tape, pairs, _outer_product_mean(tape, rows, pairs))
    for name in ("outgoing", "incoming"):
        pairs = _triangle_product(tape, pairs, f"triangle_{name}")
    for name in ("starting", "ending"):
        pairs = _attention(tape, pairs, max(1, heads // 2), f"triangle_{name}", by=pairs)
    return rows, _transition(tape, pairs, "pair_transition")


def _held(tape: Tape, **shapes: Dims) -> list[Weight]:
    return [tape.weight(name, shape) for name, shape in shapes.items()]


def _attention(tape: Tape, x: Tensor, heads: int, name: str, *, by: Tensor | None = None) -> Tensor:
    """Gated attention along one axis, with a bias from the pairs if `by` names them."""
    outer, length, width = x.shape
    if name in ("msa_column", "triangle_ending"):
        outer, length = length, outer
    wide, count = heads * HEAD, prod(x.shape) // width
    with tape.scope(name):
        weights = _held(
            tape, norm=(2, width), qkv=(width, 3 * wide), gate=(width, wide), gate_bias=(wide,)
        )
        sources = [x]
        if by is not None:
            weights += _held(tape, bias=(by.shape[2], heads))
            weights += _held(tape, bias_norm=(2, by.shape[2])) if by is not x else []
            sources += [by] if by is not x else []
        projected = tape.op(
            "norm_qkv_gate",
            sources,
            (*x.shape[:2], 4 * HEAD),
            weights=weights,
            parts=heads,
            flops=2 * count * width * 4 * wide + 8 * prod(x.shape),
        )
        outputs = []
        for number in range(heads):
            with tape.scope(f"head{number}"):
                shape, scores = (*x.shape[:2], HEAD), (outer, length, length)
                product = 2 * prod(scores) * HEAD
                part = tape.op("scores", [_part(projected, shape, number)], scores, flops=product)
                part = tape.op("bias_mask", [part], scores)
                part = tape.op("Softmax", [part], scores, flops=5 * prod(scores))
                outputs.append(
                    tape.op(
                        "context", [part, _part(projected, shape, number)], shape, flops=product
                    )
                )
        weights = _held(tape, output=(wide, width), output_bias=(width,))
        return tape.op(
            "gate_output_add",
            [*outputs, x],
            x.shape,
            weights=weights,
            flops=2 * count * wide * width,
        )


def _part(x: Tensor, shape: Dims, number: int) -> Tensor:
    """Query, key, value and gate of one head, which lie side by side."""
    return Tensor(x.maker, shape, number)


def _transition(tape: Tape, x: Tensor, name: str) -> Tensor:
    width = x.shape[2]
    count = prod(x.shape[:2])
    with tape.scope(name):
        weights = _held(tape, norm=(2, width), weight=(width, 4 * width), bias=(4 * width,))
        inner = tape.op(
            "norm_linear_relu",
            [x],
            (*x.shape[:2], 4 * width),
            weights=weights,
            flops=8 * count * width * width,
        )
        weights = _held(tape, weight2=(4 * width, width), bias2=(width,))
        return tape.op(
            "linear_add", [inner, x], x.shape, weights=weights, flops=8 * count * width * width
        )


def _outer_product_mean(tape: Tape, rows: Tensor, pairs: Tensor) -> Tensor:
    sequences, residues, width = rows.shape
    pair_width = pairs.shape[2]
    with tape.scope("outer_product_mean"):
        weights = _held(tape, norm=(2, width), sides=(width, 2 * OUTER), sides_bias=(2 * OUTER,))
        sides = tape.op(
            "norm_linear",
            [rows],
            (sequences, residues, 2 * OUTER),
            weights=weights,
            flops=4 * sequences * residues * width * OUTER,
        )
        weights = _held(tape, output=(OUTER * OUTER, pair_width), output_bias=(pair_width,))
        products = 2 * residues**2 * OUTER**2 * (sequences + pair_width)
        return tape.op("outer_linear", [sides], pairs.shape, weights=weights, flops=products)


def _triangle_product(tape: Tape, pairs: Tensor, name: str) -> Tensor:
    residues, _, width = pairs.shape
    count = residues * residues
    with tape.scope(name):
        weights = _held(
            tape,
            norm=(2, width),
            sides=(width, 4 * width),
            sides_bias=(4 * width,),
            gate=(width, width),
            gate_bias=(width,),
        )
        sides = tape.op(
            "norm_gated_linear",
            [pairs],
            (residues, residues, 3 * width),
            weights=weights,
            flops=2 * count * width * 5 * width,
        )
        weights = _held(tape, norm2=(2, width), output=(width, width), output_bias=(width,))
        return tape.op(
            "product_gate_add",
            [sides, pairs],
            pairs.shape,
            weights=weights,
            flops=2 * count * width * (residues + width),
        )
