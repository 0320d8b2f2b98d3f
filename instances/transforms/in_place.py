"""Ops that write over one of their inputs, as TensorFlow's elementwise kernels do, hold nothing."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem import Instance
from placegap.instances.problem.additive_memory import with_resident

_KINDS = """Add AddN BiasAdd Cast Exp Floor Log Maximum Mul Neg RealDiv Relu ReluGrad Rsqrt Sigmoid
    SigmoidGrad Softmax Sqrt Square SquareGrad SquaredDifference Sub Tanh TanhGrad truediv"""
ELEMENTWISE = frozenset(_KINDS.split())
"""Kinds whose kernels ask for an input's buffer first (``forward_input_or_allocate_output``)."""

KEPT = "VariableV2"
"""Kind whose buffer is never given away: the next step reads it."""


def written_in_place(instance: Instance) -> Instance:
    """The instance where an elementwise op overwrites an input that nobody else reads.

    Such an op has an input of as many bytes as it holds itself, whose only consumer it is, and
    which is no variable; it holds no bytes of its own then, for the sum counts its input's. Only
    the rule `sum` changes: what a tensor holds at its peak stays. O(m).

    Parameters
    ----------
    instance : Instance
        Its kinds are TensorFlow's.
    """
    arrays, ops = instance.arrays, instance.graph.ops
    index, size = arrays.index, arrays.resident_bytes
    pairs = np.unique(np.stack([index.tensor, index.consumer]), axis=1)
    readers = np.bincount(pairs[0], minlength=len(index.tensor_producer))
    able = np.array([op.kind in ELEMENTWISE for op in ops])
    kept = np.array([op.kind == KEPT for op in ops])
    tensor, reader = pairs
    frees = (
        able[reader]
        & (readers[tensor] == 1)
        & (instance.memory_arrays.tensor_bytes[tensor] == size[reader])
        & ~kept[index.tensor_producer[tensor]]
    )
    left = size.copy()
    left[reader[frees]] = 0
    return with_resident(instance, left)
