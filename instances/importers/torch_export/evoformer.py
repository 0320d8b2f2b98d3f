"""AlphaFold2's Evoformer stack (Jumper et al. 2021, supplement, section 1.6, algorithms 6 to 15).

Two representations go through the blocks: of the aligned sequences (sequences x residues x
channels) and of the pairs of residues. Dropout is left out: it does nothing at inference.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from placegap.instances.torch_models.tracing import Traceable

HEAD_CHANNELS = 32
OUTER_CHANNELS = 32
TRANSITION_FACTOR = 4


def evoformer_model(
    batch: int,
    residues: int,
    dtype: torch.dtype,
    *,
    blocks: int,
    sequences: int,
    msa_channels: int,
    pair_channels: int,
    msa_heads: int,
    pair_heads: int,
) -> Traceable:
    """A stack of blocks, and the two representations that it is called with."""
    stack = Evoformer(blocks, msa_channels, pair_channels, msa_heads, pair_heads)
    msa = torch.zeros((batch, sequences, residues, msa_channels), dtype=dtype)
    pair = torch.zeros((batch, residues, residues, pair_channels), dtype=dtype)
    return Traceable(stack.to(dtype), (msa, pair))


class Evoformer(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Algorithm 6: a stack of blocks."""

    _no_split_modules = ("EvoformerBlock",)

    def __init__(
        self, blocks: int, msa_channels: int, pair_channels: int, msa_heads: int, pair_heads: int
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            EvoformerBlock(msa_channels, pair_channels, msa_heads, pair_heads)
            for _ in range(blocks)
        )

    def forward(self, msa: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Both representations after all blocks."""
        for block in self.blocks:
            msa, pair = block(msa, pair)
        return msa, pair


class EvoformerBlock(nn.Module):  # type: ignore[misc]
    """Algorithm 6, lines 2 to 10."""

    def __init__(
        self, msa_channels: int, pair_channels: int, msa_heads: int, pair_heads: int
    ) -> None:
        super().__init__()
        self.row_attention = GatedAttention(msa_channels, msa_heads, pair_channels)
        self.column_attention = GatedAttention(msa_channels, msa_heads)
        self.msa_transition = Transition(msa_channels)
        self.outer_product_mean = OuterProductMean(msa_channels, pair_channels)
        self.outgoing = TriangleMultiplication(pair_channels, outgoing=True)
        self.incoming = TriangleMultiplication(pair_channels, outgoing=False)
        self.starting = GatedAttention(pair_channels, pair_heads, pair_channels)
        self.ending = GatedAttention(pair_channels, pair_heads, pair_channels)
        self.pair_transition = Transition(pair_channels)

    def forward(self, msa: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Both representations after this block."""
        msa = msa + self.row_attention(msa, pair)
        msa = msa + self.column_attention(msa.transpose(1, 2)).transpose(1, 2)
        msa = msa + self.msa_transition(msa)
        pair = pair + self.outer_product_mean(msa)
        pair = pair + self.outgoing(pair)
        pair = pair + self.incoming(pair)
        pair = pair + self.starting(pair, pair)
        turned = pair.transpose(1, 2)
        pair = pair + self.ending(turned, turned).transpose(1, 2)
        return msa, pair + self.pair_transition(pair)


class GatedAttention(nn.Module):  # type: ignore[misc]
    """Attention along the third axis, with a gate, and a bias from pairs where they are given.

    Algorithms 7 (rows), 8 (columns, the input turned), 13 and 14 (triangles).
    """

    def __init__(self, channels: int, heads: int, bias_channels: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(channels)
        self.query_key_value = nn.Linear(channels, 3 * heads * HEAD_CHANNELS, bias=False)
        self.gate = nn.Linear(channels, heads * HEAD_CHANNELS)
        self.out = nn.Linear(heads * HEAD_CHANNELS, channels)
        self.bias = None
        if bias_channels is not None:
            self.bias = nn.Sequential(
                nn.LayerNorm(bias_channels), nn.Linear(bias_channels, heads, bias=False)
            )

    def forward(self, value: Tensor, pair: Tensor | None = None) -> Tensor:
        """What is added to the representation (batch, rows, columns, channels)."""
        value = self.norm(value)
        parts = self.query_key_value(value).chunk(3, dim=-1)
        query, key, values = (
            part.unflatten(-1, (self.heads, HEAD_CHANNELS)).transpose(2, 3) for part in parts
        )
        bias = None
        if self.bias is not None:
            bias = self.bias(pair).permute(0, 3, 1, 2).unsqueeze(1)
        mixed = scaled_dot_product_attention(query, key, values, attn_mask=bias)
        gate = torch.sigmoid(self.gate(value))
        return self.out(gate * mixed.transpose(2, 3).flatten(-2))


class Transition(nn.Module):  # type: ignore[misc]
    """Algorithms 9 and 15."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.wide = nn.Linear(channels, TRANSITION_FACTOR * channels)
        self.out = nn.Linear(TRANSITION_FACTOR * channels, channels)

    def forward(self, value: Tensor) -> Tensor:
        """What is added to the representation."""
        return self.out(torch.relu(self.wide(self.norm(value))))


class OuterProductMean(nn.Module):  # type: ignore[misc]
    """Algorithm 10."""

    def __init__(self, msa_channels: int, pair_channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(msa_channels)
        self.left = nn.Linear(msa_channels, OUTER_CHANNELS)
        self.right = nn.Linear(msa_channels, OUTER_CHANNELS)
        self.out = nn.Linear(OUTER_CHANNELS * OUTER_CHANNELS, pair_channels)

    def forward(self, msa: Tensor) -> Tensor:
        """What is added to the pairs."""
        msa = self.norm(msa)
        outer = torch.einsum("bsic,bsjd->bijcd", self.left(msa), self.right(msa))
        return self.out(outer.flatten(-2) / msa.shape[1])


class TriangleMultiplication(nn.Module):  # type: ignore[misc]
    """Algorithms 11 (outgoing edges) and 12 (incoming edges)."""

    def __init__(self, channels: int, *, outgoing: bool) -> None:
        super().__init__()
        self.equation = "bikc,bjkc->bijc" if outgoing else "bkic,bkjc->bijc"
        self.norm = nn.LayerNorm(channels)
        self.left = nn.Linear(channels, channels)
        self.left_gate = nn.Linear(channels, channels)
        self.right = nn.Linear(channels, channels)
        self.right_gate = nn.Linear(channels, channels)
        self.gate = nn.Linear(channels, channels)
        self.out_norm = nn.LayerNorm(channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, pair: Tensor) -> Tensor:
        """What is added to the pairs."""
        pair = self.norm(pair)
        left = torch.sigmoid(self.left_gate(pair)) * self.left(pair)
        right = torch.sigmoid(self.right_gate(pair)) * self.right(pair)
        mixed = torch.einsum(self.equation, left, right)
        return torch.sigmoid(self.gate(pair)) * self.out(self.out_norm(mixed))
