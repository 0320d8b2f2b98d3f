"""Ideals as bits of Python integers, for the few that small methods look at one by one."""

from __future__ import annotations


def ideals_as_bits(before: list[int], most: int) -> list[int] | None:
    """All ideals, the smaller first; None if there are more than `most`.

    For N ideals of B blocks O(N B).

    Parameters
    ----------
    before : list of int
        As bits, the blocks that each block needs in an ideal beside itself.

    Examples
    --------
    The second and the third block both need the first:

    >>> ideals_as_bits([0b000, 0b001, 0b001], 5)
    [0, 1, 3, 5, 7]
    """
    found, layer = [0], [0]
    while layer:
        grown: dict[int, None] = {}
        for ideal in layer:
            for b, needs in enumerate(before):
                if not ideal >> b & 1 and needs & ~ideal == 0:
                    grown[ideal | 1 << b] = None
            if len(found) + len(grown) > most:
                return None
        layer = list(grown)
        found += layer
    return found
