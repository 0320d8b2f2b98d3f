"""What an op computes, as tables of measured kernels name it: a product, attention, or experts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from placegap.instances.problem.part import Count, InstancePart, Name, Positive


class _Kernel(InstancePart):
    type: str

    @model_serializer(mode="wrap")
    def _with_tag(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"type": self.type, **write(self)}  # also where defaults are left out


class MatrixProduct(_Kernel):
    """`batch` products of (m, k) by (k, n): m rows of activations, k x n weights.

    A convolution is stated as its equivalent product.

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

    @property
    def flops(self) -> int:
        """A multiply-add counts as two."""
        return 2 * self.batch * self.m * self.n * self.k


class AttentionKernel(_Kernel):
    """Scores, softmax and their product with the values, in one kernel.

    Examples
    --------
    >>> sizes = {"batch": 1, "heads": 32, "kv_heads": 8, "head_size": 128, "new_tokens": 1}
    >>> types = {"dtype": "bfloat16", "cache_dtype": "bfloat16"}
    >>> AttentionKernel(phase="generation", held_tokens=8192, **sizes, **types).kv_heads
    8
    """

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


class ExpertsKernel(_Kernel):
    """The products of all routed experts of a layer; an op may be only a part of them.

    The part is given by the op's share of their FLOPs.

    Examples
    --------
    >>> routed = {"chosen": 2, "experts": 8, "dtype": "bfloat16"}
    >>> ExpertsKernel(tokens=64, hidden=4096, inner=14336, **routed).matrices
    3
    """

    type: Literal["mixture_of_experts"] = "mixture_of_experts"
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
        """FLOPs of all of its products."""
        return 2 * self.matrices * self.tokens * self.chosen * self.hidden * self.inner


OpKernel = Annotated[MatrixProduct | AttentionKernel | ExpertsKernel, Field(discriminator="type")]
