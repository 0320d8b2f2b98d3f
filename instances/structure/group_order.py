"""Colocation groups in the order of their first ops: a training step is the chain of its layers."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.arrays import Arrays


def group_order(arrays: Arrays) -> Ints:
    """Colocation groups by the first of their ops in topological order, (g,).

    Examples
    --------
    >>> from placegap.instances import example
    >>> group_order(example().arrays).tolist()
    [0, 1, 2, 3]
    """
    first = np.full(arrays.num_groups, len(arrays.group))
    np.minimum.at(first, arrays.group, arrays.index.topological_position)
    return np.argsort(first, kind="stable").astype(np.int64)


def place_of_ops(arrays: Arrays, order: Ints) -> Ints:
    """Place of each op's colocation group in an order of the groups, (n,)."""
    place = np.empty(arrays.num_groups, np.int64)
    place[order] = np.arange(arrays.num_groups)
    return place[arrays.group]
