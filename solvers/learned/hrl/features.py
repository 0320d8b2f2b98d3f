"""What HRL sees of an instance: a row for each op, and a row for each group of ops."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance

Floats = NDArray[np.float32]

MOST_KINDS = 32
"""Kinds of ops told apart: the most frequent ones; all others are one more."""

NEIGHBOURS = 4
"""So many producers and so many consumers of an op are among its features."""


@dataclass(frozen=True, eq=False)
class OpFeatures:
    """An instance of n ops in U units: ops that are colocated are one unit.

    Attributes
    ----------
    unit : (n,) int64
        The unit of each op.
    kind : (U,) int64
        Kind of the first op of each unit.
    num_kinds : int
    op_kind : (n,) int64
    numbers : (U, F) float32
        Sizes and number of outputs, and where in the order the op and its neighbours are, all
        between -1 (no such neighbour) and 1.
    output_share : (n,) float32
        Bytes that each op sends, of the sum.
    producer, consumer : (m,) int64
        Edges between ops.
    """

    unit: Ints
    kind: Ints
    num_kinds: int
    op_kind: Ints
    numbers: Floats
    output_share: Floats
    producer: Ints
    consumer: Ints


def op_features(instance: Instance) -> OpFeatures:
    """Features of the ops of an instance; O(n + m).

    Examples
    --------
    >>> from placegap.instances import example
    >>> found = op_features(example())
    >>> found.numbers.shape, found.num_kinds, found.output_share.tolist()
    ((4, 11), 1, [0.65625, 0.03125, 0.3125, 0.0])
    """
    arrays, ops = instance.arrays, instance.graph.ops
    index, n = arrays.index, instance.num_ops
    count = Counter(op.kind for op in ops)
    kinds = [kind for kind, _ in sorted(count.items(), key=lambda pair: (-pair[1], pair[0]))]
    number = {kind: min(at, MOST_KINDS) for at, kind in enumerate(kinds)}
    op_kind = np.array([number[op.kind] for op in ops], np.int64)
    edges = [instance.graph.edges[e].bytes for e in index.tensor_first_edge.tolist()]
    sent, outputs = np.zeros(n), np.zeros(n)
    np.add.at(sent, index.tensor_producer, edges)
    np.add.at(outputs, index.tensor_producer, 1)
    place = index.topological_position / n
    columns = [_share(np.log1p(sent)), _share(outputs), place]
    sides = (
        (index.pred_ptr, index.pred_edge, index.producer),
        (index.succ_ptr, index.succ_edge, index.consumer),
    )
    for pointer, edge, end in sides:
        for nth in range(NEIGHBOURS):
            has = np.diff(pointer) > nth
            column = np.full(n, -1.0)
            column[has] = place[end[edge[pointer[:-1][has] + nth]]]
            columns.append(column)
    first = np.unique(arrays.group, return_index=True)[1]
    return OpFeatures(
        arrays.group,
        op_kind[first],
        len({*number.values()}),
        op_kind,
        np.stack(columns, axis=1)[first].astype(np.float32),
        (sent / max(1.0, sent.sum())).astype(np.float32),
        index.producer,
        index.consumer,
    )


def group_features(ops: OpFeatures, group: Ints, num_groups: int) -> Floats:
    """Features of groups, (G, kinds + 1 + G): kinds of ops, outputs, whom a group sends to.

    Parameters
    ----------
    ops : OpFeatures
    group : (U,) int64
        Group of each unit.
    num_groups : int

    Examples
    --------
    All but the first op of the diamond are in group 1:

    >>> from placegap.instances import example
    >>> group_features(op_features(example()), np.array([0, 1, 1, 1]), 2).tolist()
    [[0.5, 0.65625, 0.0, 1.0], [1.5, 0.34375, 0.0, 0.0]]
    """
    of_op = group[ops.unit]
    kinds = np.zeros((num_groups, ops.num_kinds), np.float32)
    np.add.at(kinds, (of_op, ops.op_kind), np.float32(num_groups / len(of_op)))
    outputs = np.zeros((num_groups, 1), np.float32)
    np.add.at(outputs[:, 0], of_op, ops.output_share)
    sends = np.zeros((num_groups, num_groups), np.float32)
    sends[of_op[ops.producer], of_op[ops.consumer]] = 1.0
    np.fill_diagonal(sends, 0.0)
    return np.concatenate([kinds, outputs, sends], axis=1)


def _share(values: NDArray[np.float64]) -> NDArray[np.float64]:
    most = float(values.max(initial=0.0))
    return values / most if most > 0 else values
