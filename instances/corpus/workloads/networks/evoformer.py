"""AlphaFold 2's Evoformer stack (Jumper et al., Nature 2021, supplement, section 1.6)."""

from __future__ import annotations

from math import prod

from placegap.instances.corpus.layers import add, placeholder
from placegap.instances.corpus.tape import Dims, Tape, Tensor, Weight

HEAD = 32
"""Width of one head of attention, in all of the block's attentions."""

OUTER = 32
"""Width that sequences are projected to before their outer products are averaged."""


def evoformer(
    tape: Tape,
    batch: int,
    blocks: int = 48,
    width: int = 256,
    heads: int = 8,
    pair_width: int = 128,
    residues: int = 256,
) -> None:
    """Write the stack on `batch` aligned sequences; one chain of ops per head of attention.

    Modules other than attention are one or two ops each, as kernels that are written for the
    Evoformer fuse them. Pairs are attended to by half as many heads.

    Examples
    --------
    The published stack: 48 blocks of 256 and 128 channels, 8 and 4 heads.

    >>> from placegap.instances.corpus.tape import MODULES
    >>> tape = Tape(MODULES)
    >>> evoformer(tape, 128)
    >>> sum(weight.size for op in tape.ops for weight in op.weights)
    87837696
    """
    rows = placeholder(tape, (batch, residues, width), "msa")
    pairs = placeholder(tape, (residues, residues, pair_width), "pairs")
    for number in range(blocks):
        with tape.scope(f"block{number}"):
            rows, pairs = _block(tape, rows, pairs, heads)


def _block(tape: Tape, rows: Tensor, pairs: Tensor, heads: int) -> tuple[Tensor, Tensor]:
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
