"""Work spread over devices of unlike kinds, each block split at will: a bound in exact integers.

min T such that every block b is shared out, sum over k of x[b, k] == 1, and no device has more than
T to do. For any weights w[k] >= 0 of the devices, not all 0,

    T sum of w[k]  >=  sum over k of w[k] sum over b of p[b, k] x[b, k]  >=  sum over b of min w p,

so any weights prove something. The best ones are the duals of that LP, one per kind of device. Two
kinds need a sort, more of them some cutting planes; either way only the weights come from floating
point, and what they prove is summed up in integers.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.problem.integers import ceil_div, to_whole

MOST_CUTS, ENOUGH = 50, 1e-6
"""Cutting planes, and the share of the bound that the search for weights leaves on the table."""

MOST_BITS = 40
"""Of an integer weight."""


def spread_bound(time_ns: Ints, possible: Flags) -> int:
    """Least time in which devices can do all blocks, if blocks can be split; rounded up.

    A block that no device can hold counts for nothing.
    """
    return spread_weights(time_ns, possible)[0]


def spread_weights(time_ns: Ints, possible: Flags) -> tuple[int, list[int]]:
    """The bound of `spread_bound`, and integer weights of the devices that prove it."""
    somewhere = possible.any(axis=1)
    masked = np.where(possible, time_ns, -1)[somewhere]
    columns = [column.tobytes() for column in masked.T]
    alike = Counter(
        name for name, column in zip(columns, masked.T, strict=True) if (column >= 0).any()
    )
    if not alike:
        return 0, [1] * len(columns)
    time = np.stack([np.frombuffer(column, np.int64) for column in alike], axis=1)
    count = np.array(list(alike.values()), np.int64)
    trials = [np.ones(len(count))]
    if len(count) > 1:
        trials.append((_two_weights if len(count) == 2 else _weights)(time, count))
    bound, whole = max(
        (_proven(time, count, weights) for weights in trials), key=lambda found: found[0]
    )
    weight = dict(zip(alike, whole, strict=True))
    return bound, [weight.get(name, 0) for name in columns]


def _proven(time: Ints, count: Ints, weights: Floats) -> tuple[int, list[int]]:
    """What weights prove, after they were made integers, and these."""
    bits = max(1, min(MOST_BITS, 61 - int(time.max()).bit_length()))
    whole = to_whole(np.rint(weights / weights.max() * 2.0**bits))
    products = np.where(time >= 0, time * whole, np.iinfo(np.int64).max)
    total = sum(products.min(axis=1).tolist())
    weight = sum(w * c for w, c in zip(whole.tolist(), count.tolist(), strict=True))
    return ceil_div(total, weight), whole.tolist()


def _two_weights(time: Ints, count: Ints) -> Floats:
    """The best weights of two kinds of devices.

    What they prove is concave in the ratio of the weights and bends where a block is as dear on
    either kind.
    """
    both = (time >= 0).all(axis=1)
    first, second = time[both, 0].astype(float), time[both, 1].astype(float)
    only: list[float] = [float(time[~both, k].clip(0).sum(dtype=float)) for k in (0, 1)]
    ratio = np.divide(first, second, out=np.full(len(first), np.inf), where=second > 0)
    order = np.argsort(ratio, kind="stable")
    first, second, ratio = first[order], second[order], ratio[order]
    # w = (1, r): blocks of a smaller ratio than r are cheaper on the first kind
    below = np.concatenate([[0.0], np.cumsum(first)])
    above = second.sum() - np.concatenate([[0.0], np.cumsum(second)])
    finite = np.isfinite(ratio) & (ratio > 0)
    trials = np.concatenate([[0.0], ratio[finite]])
    at = np.searchsorted(ratio, trials)
    proven = (below[at] + only[0] + trials * (above[at] + only[1])) / (count[0] + trials * count[1])
    best = trials[int(proven.argmax())]
    only_second = only[1] / count[1]  # w = (0, 1)
    return np.array([0.0, 1.0]) if only_second > proven.max() else np.array([1.0, best])


def _weights(time: Ints, count: Ints) -> Floats:
    """Weights that prove much, by cutting planes (Kelley 1960): LPs of one column per kind."""
    import highspy  # three kinds are rare, and HiGHS is slow to load

    from placegap.solvers.core.back_ends.outcome import THREADS
    from placegap.solvers.core.back_ends.silent_highs import silent_highs

    num, highs = len(count), silent_highs(threads=THREADS)
    columns = np.arange(num + 1, dtype=np.int32)
    for size in count.tolist():
        highs.addVar(0.0, 1 / size)
    highs.addVar(-highspy.kHighsInf, highspy.kHighsInf)
    highs.changeColCost(num, -1.0)
    highs.addRow(1.0, 1.0, num, columns[:-1], count.astype(float))
    scale = float(np.where(time >= 0, time, 0).max(axis=1).sum(dtype=float)) or 1.0
    share = np.where(time >= 0, time / scale, 1.0)
    best = trial = np.full(num, 1 / count.sum())
    least: float = float("-inf")
    for _ in range(MOST_CUTS):
        where = np.where(time >= 0, share * trial, np.inf).argmin(axis=1)
        slope = np.bincount(where, weights=share[np.arange(len(share)), where], minlength=num)
        value = float(slope @ trial)
        if value > least:
            best, least = trial, value
        highs.addRow(-highspy.kHighsInf, 0.0, num + 1, columns, np.append(-slope, 1.0))
        highs.run()
        solution = highs.getSolution().col_value
        if len(solution) != num + 1 or solution[num] <= least * (1 + ENOUGH):
            break
        trial = np.maximum(solution[:num], 0.0)
    return best
