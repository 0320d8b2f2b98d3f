"""Where long orders are cut: places of little communication, spread over the work."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.problem import CutNets, put_in

MOST_CUTS = 2000
"""Places where an order of more blocks may be cut: those of least communication, spread out."""


def places_to_cut(order: Ints, work: Ints, nets: CutNets, most: int = MOST_CUTS) -> Ints:
    """Positions of an order where segments may begin and end, the ends included.

    All of them in a short order; else, of intervals of equal work, the place of least cut in each.

    Examples
    --------
    Four blocks in a row, of which the second and third exchange least:

    >>> arrays = [0, 1, 3, 5, 6], [0, 0, 1, 1, 2, 2], [2, 2, 2], [5, 1, 5]
    >>> nets = CutNets(*map(np.array, arrays))
    >>> places_to_cut(np.arange(4), np.ones(4, np.int64), nets, most=2).tolist()
    [0, 2, 4]
    """
    if len(order) <= most:
        return np.arange(len(order) + 1)
    cut = prefix_cuts(order, nets)
    done = np.cumsum(work[order] + 1)
    bucket = done // (int(done[-1]) // most + 1)
    by_cut = np.lexsort((cut, bucket))
    best = by_cut[np.unique(bucket[by_cut], return_index=True)[1]] + 1
    return np.unique(np.concatenate([np.array([0, len(order)]), best]))


@kernel
def prefix_cuts(order: Ints, nets: CutNets) -> Ints:
    """Cut of the first i + 1 blocks of an order, for each i. O(pins)."""
    pins_in, cuts = np.zeros(len(nets.size), np.int64), np.zeros(len(order), np.int64)
    cut = np.int64(0)
    for i, v in enumerate(order):
        cut += put_in(nets, pins_in, v)
        cuts[i] = cut
    return cuts
