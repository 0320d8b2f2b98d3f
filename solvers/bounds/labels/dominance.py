"""Labels that go: those that another one is below, and, where too many stay, all but one of some.

A label is a row of numbers, of which less is better in each. What is left has no completion that
costs more than the least of all had: so a least path over fewer labels is no longer.
"""

from __future__ import annotations

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel


@kernel
def fewer_labels(value: Ints, order: Ints, most: int, rows: Ints, least: Ints) -> tuple[int, bool]:
    """Write which labels of one kind stay, at most `most`; how many do, and if any are joined.

    `order` has the labels (rows of `value`) of the kind, the best first; it is overwritten. A label
    stays unless one before it is nowhere above it. Where more are left, neighbours become one: the
    first, with the least of each number. `rows` gets the labels that stay, and `least` their
    numbers.
    """
    kept, width = 0, value.shape[1]
    for q in order:
        below = False
        for r in order[:kept]:
            below = True
            for x in range(width):
                if value[r, x] > value[q, x]:
                    below = False
                    break
            if below:
                break
        if not below:
            order[kept] = q
            kept += 1
    step, count = 1, 0
    while (kept + step - 1) // step > most:
        step *= 2
    for first in range(0, kept, step):
        rows[count], least[count] = order[first], value[order[first]]
        for r in order[first + 1 : min(first + step, kept)]:
            for x in range(width):
                least[count, x] = min(least[count, x], value[r, x])
        count += 1
    return count, step > 1
