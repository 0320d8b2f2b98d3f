"""Which ops run as one kernel, read off the structure of a graph.

Inference engines and compilers fuse what stands between two matrix products: a norm, a rotary
embedding, a router's softmax and top-k are one launch each, and written-out attention is one, too.
"""

from __future__ import annotations

from collections.abc import Set
from itertools import pairwise

import numpy as np

from placegap.instances.costing.onnx_flops import (
    ELEMENTWISE,
    MOVES,
    PER_OUTPUT,
    VARIADIC,
    WHOLE_INPUT,
)
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Graph, Op
from placegap.instances.problem.graph_index import DisjointSets, GraphIndex
from placegap.instances.problem.modules import is_expert

# ONNX ops that have FLOPs and are no products; of traced graphs only products have FLOPs.
LIGHT = ELEMENTWISE | MOVES | VARIADIC | WHOLE_INPUT | PER_OUTPUT.keys()
# What makes two products without weights, and all between them, attention.
SOFTMAX = frozenset({"softmax", "_softmax", "_safe_softmax", "Softmax"})


def launch_of(graph: Graph, costed: Set[str] = frozenset()) -> Ints:
    """The number of the kernel that runs each op, by the number of one of its ops."""
    # Times on the kinds that are `costed` were costed before, and are none that ops bring. A kernel
    # is one product (an op with FLOPs that is not in `LIGHT`), or light ops that feed each other
    # directly and lie in one module. A module without weights (an activation) belongs to the module
    # around it; a norm has weights, and is a kernel of its own. Products without weights before and
    # after a softmax are one kernel with it. Nothing is fused across layers, experts and other ops,
    # forward and backward, or colocation groups, nor ops that bring times of their own. What feeds
    # on a state that a step finds (of a recurrence, of a convolution) is a kernel apart from what
    # does not, and the copy that writes it over another. No path leaves a kernel of light ops and
    # enters it again, because each border raises `level`. O(n + m).
    ops, index = graph.ops, graph.index
    consumer, ends = index.consumer.tolist(), index.succ_ptr.tolist()
    out = [consumer[edge] for edge in index.succ_edge.tolist()]
    after = [out[begin:end] for begin, end in pairwise(ends)]
    order = index.topological_order.tolist()
    product = [bool(op.flops) and op.kind not in LIGHT for op in ops]
    sends = {edge.producer for edge in graph.edges if edge.bytes}
    alone = [
        heavy or (op.kind == "copy" and op.name not in sends)  # the copy writes a state over
        for op, heavy in zip(ops, product, strict=True)
    ]
    holds = [bool(op.state_bytes) and not op.parameter_bytes for op in ops]
    stepped = holds.copy()
    weighted = {
        op.module
        for op, heavy in zip(ops, product, strict=True)
        if op.parameter_bytes and not heavy
    }
    open_ops = [_is_open(op, costed) for op in ops]
    kin = [
        (op.colocation, op.backward, is_expert(op), is_open)
        for op, is_open in zip(ops, open_ops, strict=True)
    ]

    def fuses(one: int, other: int) -> bool:
        if kin[one] != kin[other] or not kin[one][-1] or alone[one] or alone[other]:
            return False
        return _are_near(ops[one], ops[other], weighted)

    for i in order:
        for j in after[i]:
            stepped[j] = stepped[j] or (stepped[i] and fuses(i, j))

    def border(one: int, other: int) -> bool:
        return stepped[one] != stepped[other] or not fuses(one, other)

    level, sets = [0] * len(ops), DisjointSets(len(ops))
    for i in order:
        for j in after[i]:
            level[j] = max(level[j], level[i] + border(i, j))
    for i in reversed(order):
        if holds[i] and after[i]:  # it waits for the rest of its kernel
            level[i] = min(level[j] - border(i, j) for j in after[i])
    pairs = list(zip(index.producer.tolist(), consumer, strict=True))
    for i, j in pairs:
        if level[i] == level[j]:
            sets.join(i, j)
    attends = {sets.find(i) for i, op in enumerate(ops) if op.kind in SOFTMAX}
    bare = [
        heavy and not op.parameter_bytes and is_open
        for op, heavy, is_open in zip(ops, product, open_ops, strict=True)
    ]
    for i, j in pairs:
        light, heavy = (j, i) if bare[i] else (i, j)
        if bare[heavy] and sets.find(light) in attends and kin[i] == kin[j]:
            sets.join(light, heavy)
    return np.array([sets.find(i) for i in range(len(ops))], np.int64)


def _is_open(op: Op, costed: Set[str]) -> bool:
    """Whether an op brings no time, and states what a roofline needs."""
    return op.time_ns.keys() <= costed and (op.flops is not None or op.bytes_moved is not None)


def _are_near(one: Op, other: Op, weighted: set[str | None]) -> bool:
    """Whether two light ops are of one module, or of one without weights and that around it."""
    inner, outer = sorted((one.module or "", other.module or ""), key=len, reverse=True)
    if inner == outer:
        return True
    is_inside = not outer or inner.startswith(f"{outer}.")
    return is_inside and inner not in weighted and _block(inner) == _block(outer)


def _block(path: str) -> str:
    """The part of a module's path up to its last number: its layer."""
    parts = path.split(".")
    last = max((at for at, part in enumerate(parts) if part.isdigit()), default=-1)
    return ".".join(parts[: last + 1])


def bytes_inside(index: GraphIndex, tensor_bytes: Ints, launch: Ints) -> Ints:
    """Bytes of tensors between the ops of each kernel, (n,) by its number."""
    # They are not read, nor written unless another kernel reads them, too.
    saved = np.zeros(len(launch), np.int64)
    inner = launch[index.producer] == launch[index.consumer]
    np.add.at(saved, launch[index.consumer[inner]], tensor_bytes[index.tensor[inner]])
    unseen = np.ones(len(tensor_bytes), np.bool_)
    unseen[index.tensor[~inner]] = False
    within = np.unique(index.tensor[inner])
    within = within[unseen[within]]
    np.add.at(saved, launch[index.tensor_producer[within]], tensor_bytes[within])
    return saved
