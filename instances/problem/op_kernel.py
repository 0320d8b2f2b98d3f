"""What an op computes, as tables of measured kernels name it: a product, attention, or experts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from placegap.instances.problem.part import Count, InstancePart, Name, Positive


class MatrixProduct(InstancePart):
    """`batch` products of (m, k) by (k, n); m counts rows of activations, k times n are weights.

    A convolution is the product that it is computed as.

    Examples
    --------
    >>> MatrixProduct(m=1, n=4096, k=14336, dtype="bfloat16").batch
    1
    """

    type: Literal["product"] = "product"
    m: Positive
    n: Positive
    k: Positive
    batch: Positive = 1
    #: Number type of both factors ("bfloat16").
    dtype: Name


class AttentionKernel(InstancePart):
    """Scores, softmax and their product with the values, in one kernel."""

    type: Literal["attention"] = "attention"
    #: ``context``: causal, over the tokens of a prompt; ``generation``: one new token of each
    #: sequence; ``encoder``: each token sees all others.
    phase: Literal["context", "generation", "encoder"]
    #: Sequences.
    batch: Positive
    heads: Positive
    kv_heads: Positive
    head_size: Positive
    #: new_tokens, held_tokens: Of each sequence; what is held was computed before.
    new_tokens: Positive
    held_tokens: Count = 0
    #: dtype, cache_dtype: Number types of queries, and of the keys and values that are held.
    dtype: Name
    cache_dtype: Name
    #: The most tokens that each one sees, None for no limit.
    window: Positive | None = None


class ExpertsKernel(InstancePart):
    """The products of all routed experts of a layer; one op may be a part of them.

    Its share is that of its FLOPs in all of them, 2 x matrices x tokens x chosen x hidden x inner.
    """

    type: Literal["experts"] = "experts"
    tokens: Positive
    hidden: Positive
    inner: Positive
    #: How many of the `experts` each token is routed to.
    chosen: Positive
    experts: Positive
    #: Matrices of an expert: 3 with a gate.
    matrices: Positive = 3
    dtype: Name

    @property
    def flops(self) -> int:
        """FLOPs of all of them."""
        return 2 * self.matrices * self.tokens * self.chosen * self.hidden * self.inner


OpKernel = Annotated[MatrixProduct | AttentionKernel | ExpertsKernel, Field(discriminator="type")]
