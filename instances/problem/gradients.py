"""Gradients of weights in a training step: which backward ops may wait."""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Flags
from placegap.instances.problem.graph import Graph


def mark_weight_gradients(graph: Graph) -> Graph:
    """The training step with `Op.weight_gradient` set where its layers determine it."""
    # Layers are the colocation groups. In the end all gradients serve weights; what may wait is
    # what no other layer needs. So a backward op is marked if all its readers are marked ops of its
    # own layer, or sums of gradients that several layers share; and updates are, which feed nothing
    # and read gradients of their own layer alone or such sums. A sum of shared gradients is an op
    # whose readers are updates of several layers, its own among them. What an op that feeds nothing
    # reads from another layer is a gradient of inputs; so it is marked, and its producer is not. An
    # op that makes both kinds of gradients at once is not marked. O(n + m).
    marked = zip(graph.ops, _marks(graph).tolist(), strict=True)
    ops = tuple(op.model_copy(update={"weight_gradient": mark}) for op, mark in marked)
    return graph.model_copy(update={"ops": ops})


def _marks(graph: Graph) -> Flags:
    ops, index = graph.ops, graph.index
    layer = [op.colocation if op.colocation is not None else i for i, op in enumerate(ops)]
    readers: list[list[int]] = [[] for _ in ops]
    for a, b in zip(index.producer.tolist(), index.consumer.tolist(), strict=True):
        readers[a].append(b)
    backward = [op.backward for op in ops]
    update = [backward[i] and not readers[i] for i in range(len(ops))]
    shared = [
        bool(after)
        and all(update[j] for j in after)
        and len({layer[j] for j in after}) > 1
        and layer[i] in {layer[j] for j in after}
        for i, after in enumerate(readers)
    ]
    marks = np.zeros(len(ops), np.bool_)
    for i in index.topological_order[::-1].tolist():
        marks[i] = backward[i] and (
            shared[i] or all(marks[j] and (layer[j] == layer[i] or shared[j]) for j in readers[i])
        )
    return marks
