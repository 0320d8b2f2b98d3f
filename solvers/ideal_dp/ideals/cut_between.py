"""What cutting off the difference of two ideals costs, from what is known of each of them."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.problem import WORD

DE_BRUIJN = 0x03F79D71B4CB0A89
"""Any window of 6 bits occurs once: (bit * DE_BRUIJN) >> 58 tells the bits apart."""


def _bit_numbers() -> Ints:
    table = np.zeros(WORD, np.int64)
    for bit in range(WORD):
        table[((1 << bit) * DE_BRUIJN) >> 58 & 63] = bit
    return table


BIT_NUMBER = _bit_numbers()


@kernel(allocates=False)
def bit_number(bit: int) -> int:
    """Number of the one bit that is set."""
    return int(BIT_NUMBER[((bit * DE_BRUIJN) >> 58) & 63])


@kernel(allocates=False)
def cut_between(
    members: Ints,
    cut_nets: Ints,
    cut: Ints,
    weight: Ints,
    net_ptr: Ints,
    pin: Ints,
    target: int,
    source: int,
) -> int:
    """Cut of the difference of two ideals, the source J within the target I.

    cut(I) + cut(J) - sum of weight * (2 if the net has no pin in I - J else 1), over nets cut by
    both: few, found by bit operations.
    """
    moved = cut[target] + cut[source]
    for word in range(cut_nets.shape[1]):
        both = cut_nets[target, word] & cut_nets[source, word]
        while both:
            bit = both & -both
            both ^= bit
            e = word * WORD + bit_number(bit)
            moved -= 2 * weight[e]
            for at in range(net_ptr[e], net_ptr[e + 1]):
                v = pin[at]
                taken = members[target, v // WORD] & ~members[source, v // WORD]
                if taken >> (v % WORD) & 1:
                    moved += weight[e]
                    break
    return int(moved)
