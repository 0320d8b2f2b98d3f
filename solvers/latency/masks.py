"""Sets of a section's nodes as bits, 64 to a word, for sections of any size."""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel

WORD = 64


def masks(members: Flags, bits: int | None = None) -> Ints:
    """Bits of the sets that are the rows of a matrix, (r, words); room for `bits` of them."""
    words = max(1, -(-(members.shape[1] if bits is None else bits) // WORD))
    padded = np.zeros((len(members), words * WORD), np.bool_)
    padded[:, : members.shape[1]] = members
    packed = np.packbits(padded, axis=1, bitorder="little")
    return np.ascontiguousarray(packed).view("<i8").astype(np.int64).reshape(-1, words)


def members(mask: Ints, count: int) -> Flags:
    """Membership of `count` nodes in a set."""
    octets = np.ascontiguousarray(mask, "<i8").view(np.uint8)
    found: Flags = np.unpackbits(octets, bitorder="little")[:count].astype(np.bool_)
    return found


@kernel(inline="always", allocates=False)
def has(mask: Ints, v: int) -> bool:
    """Whether node v is in a set."""
    return bool(mask[v // 64] >> (v % 64) & 1)


@kernel(allocates=False)
def meets(one: Ints, other: Ints) -> bool:
    """Whether two sets have a node in common."""
    found = False
    for w in range(len(one)):
        found |= one[w] & other[w] != 0
    return found


@kernel(allocates=False)
def beyond(one: Ints, other: Ints) -> bool:
    """Whether one set has a node that the other has not."""
    found = False
    for w in range(len(one)):
        found |= one[w] & ~other[w] != 0
    return found


@kernel
def ideals(before: Ints, most: int) -> tuple[Ints, int]:
    """Bits of every ideal, and their number; `before` has bits for nodes in topological order."""
    # Every prefix of an ideal in that order is an ideal, so each one is made once, from the one
    # without its last node. Stops, with a larger number, beyond `most`.
    found = np.zeros((most + 1, before.shape[1]), np.int64)
    last = np.full(most + 1, -1, np.int64)
    count, at = 1, 0
    while at < count:
        for v in range(last[at] + 1, len(before)):
            if not beyond(before[v], found[at]):
                if count > most:
                    return found, count
                found[count] = found[at]
                found[count, v // 64] |= np.int64(1) << (v % 64)
                last[count] = v
                count += 1
        at += 1
    return found, count


def count_ideals(before: Ints, most: int) -> int:
    """Number of ideals of nodes in topological order, or some number beyond `most`."""
    return int(ideals(before, most)[1])
