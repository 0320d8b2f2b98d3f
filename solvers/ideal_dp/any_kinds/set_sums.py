"""Sums over many bit sets, a byte of each at a time: for any number of kinds and prices."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.ideals import bit_set
from placegap.solvers.chains.problem import WORD


def set_sums(sets: Ints, weight: Ints) -> Ints:
    """Sum of the weights of each set's elements, (N,); O(N bits / 8).

    Examples
    --------
    >>> set_sums(np.array([[0b0], [0b101]]), np.array([5, 6, 7])).tolist()
    [0, 12]
    """
    table = np.zeros((sets.shape[1] * 8, 256), np.int64)
    padded = np.zeros(sets.shape[1] * WORD, np.int64)
    padded[: len(weight)] = weight
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    table[:] = padded.reshape(-1, 8) @ bits.T.astype(np.int64)
    return _sum_bytes(np.ascontiguousarray(sets).view(np.uint8), table)


@kernel
def _sum_bytes(sets: np.typing.NDArray[np.uint8], table: Ints) -> Ints:
    sums = np.zeros(len(sets), np.int64)
    for i in range(len(sets)):
        for byte in range(sets.shape[1]):
            sums[i] += table[byte, sets[i, byte]]
    return sums


def has_any(sets: Ints, elements: Flags) -> Flags:
    """Whether each set has one of some elements, (N,).

    Examples
    --------
    >>> has_any(np.array([[0b0], [0b101]]), np.array([False, True, True])).tolist()
    [False, True]
    """
    return np.asarray((sets & bit_set(elements)).any(axis=1))
