"""Transformers: Vaswani et al. (2017), BERT (Devlin et al., 2019), GPT-3 (Brown et al., 2020)."""

from __future__ import annotations

from placegap.instances.corpus.layers import (
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
from placegap.instances.corpus.tape import Tape, Tensor, Weight

WORDS = 32_000
"""Pieces of words that the translating transformer knows."""


def transformer(
    tape: Tape, batch: int, steps: int = 32, layers: int = 12, hidden: int = 2048, heads: int = 16
) -> None:
    """Write an encoder and a decoder as Tensor2Tensor does, norms written out, head by head.

    Celeritas states layers, heads, hidden units and batch; the sentences' length is ours, and the
    feed-forward layers are four times as wide, as in Vaswani et al.
    """
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


BERT_WORDS, BERT_STEPS = 30_528, 128
"""Size of dnn-partitioning's BERT: 30,522 words, rounded up, and sentences of 128."""


def bert(tape: Tape, batch: int, layers: int, hidden: int, inner: int) -> None:
    """Write BERT with both heads, as ONNX Runtime trains it.

    Attention has as many heads as 64 goes into `hidden`; the weights of the word table serve again
    before the last softmax.
    """
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
    """Write BERT-large with one op per encoder layer, as PipeDream's profiler sees it.

    Examples
    --------
    >>> from placegap.instances.corpus.tape import MODULES
    >>> tape = Tape(MODULES)
    >>> bert_layers(tape, 8)
    >>> len(tape.ops)
    32
    """
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
    """Write GPT-3 with one chain of ops per head, which reaches the op counts of Moirai, table IV.

    All eleven entries of that table are layers x (11 + 12 heads) exactly; so are ours, but for
    the ops outside the layers. The word table serves again before the last softmax.
    """
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
