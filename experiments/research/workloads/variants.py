"""Graphs as papers ran them: a step alone, in half precision, in place, fused, or slower."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from placegap.instances.costing.catalogue import specs_of
from placegap.instances.costing.costing import roofline_ns
from placegap.instances.costing.launches import bytes_inside
from placegap.instances.problem import Graph, Instance
from placegap.instances.problem.additive_memory import with_resident
from placegap.instances.transforms.merge import Merge

HALF = "float16"

_KINDS = """Add AddN BiasAdd Cast Exp Floor Log Maximum Mul Neg RealDiv Relu ReluGrad Rsqrt Sigmoid
    SigmoidGrad Softmax Sqrt Square SquareGrad SquaredDifference Sub Tanh TanhGrad truediv"""
# Kinds whose kernels ask for an input's buffer first (``forward_input_or_allocate_output``).
ELEMENTWISE = frozenset(_KINDS.split())
KEPT = "VariableV2"  # kind whose buffer is never given away: the next step reads it


FETCHED = ("train_op", "total_loss")  # what TF-slim's training loop asks a session for


def pruned_to_step(graph: Graph) -> Graph:
    """The graph of TensorFlow without what no training step runs, as a session prunes it.

    Initializers, saver and summaries are behind nothing that a step fetches. They take no time of
    their own, but 2,336 tensors of no bytes for each clone of Inception_V3, of 10 us each.
    """
    index = graph.index
    is_run = np.array([op.name in FETCHED for op in graph.ops])
    if not is_run.any():
        return graph
    for i in index.topological_order[::-1].tolist():
        out = index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]]
        is_run[i] |= is_run[index.consumer[out]].any()
    return graph.model_copy(
        update={
            "ops": tuple(op for op, kept in zip(graph.ops, is_run, strict=True) if kept),
            "edges": tuple(
                edge for edge, end in zip(graph.edges, index.consumer, strict=True) if is_run[end]
            ),
            "provenance": graph.provenance.noting("what a training step runs"),
        }
    )


def in_half_precision(graph: Graph) -> Graph:
    """The graph with half of all bytes, rounded up, whose ops compute in float16."""
    # The graph is in single precision, and not costed yet.
    if any(op.time_ns for op in graph.ops):
        raise ValueError(f"{graph.name}: its times are those of single precision")

    def half(size: int | None) -> int | None:
        return None if size is None else -(-size // 2)

    sizes = ("resident_bytes", "parameter_bytes", "workspace_bytes", "state_bytes", "bytes_moved")
    ops = tuple(
        op.model_copy(
            update={
                **{name: half(getattr(op, name)) for name in sizes},
                "shared_state": {name: -(-size // 2) for name, size in op.shared_state.items()},
                "dtype": HALF,
                "kernel": None,
            }
        )
        for op in graph.ops
    )
    edges = tuple(edge.model_copy(update={"bytes": half(edge.bytes)}) for edge in graph.edges)
    return graph.model_copy(update={"ops": ops, "edges": edges})


def written_in_place(instance: Instance) -> Instance:
    """The instance where an elementwise op overwrites an input that no other op reads."""
    # Such an op, of a kind of TensorFlow's, has an input of as many bytes as it holds itself, whose
    # only consumer it is, and which is no variable; it holds no bytes of its own then, for the sum
    # counts its input's. Only the rule `sum` changes: what a tensor holds at its peak stays. O(m).
    arrays, ops = instance.arrays, instance.graph.ops
    index, size = arrays.index, arrays.resident_bytes
    pairs = np.unique(np.stack([index.tensor, index.consumer]), axis=1)
    readers = np.bincount(pairs[0], minlength=len(index.tensor_producer))
    able = np.array([op.kind in ELEMENTWISE for op in ops])
    kept = np.array([op.kind == KEPT for op in ops])
    tensor, reader = pairs
    frees = (
        able[reader]
        & (readers[tensor] == 1)
        & (instance.memory_arrays.tensor_bytes[tensor] == size[reader])
        & ~kept[index.tensor_producer[tensor]]
    )
    left = size.copy()
    left[reader[frees]] = 0
    return with_resident(instance, left)


def with_fused_times(merge: Merge) -> Instance:
    """The coarse instance where a merged op takes the time of its roofline as one kernel."""
    # It computes what its ops compute, is launched once, and moves what they move but for the
    # tensors between them, which are neither written, unless others read them, nor read. Kinds
    # whose rates nobody knows, and ops without FLOPs or bytes moved, keep the sum of the times; so
    # does an op that would be slower as one kernel. The name is that of the fine instance, for the
    # network is the same. O(n + m).
    fine, coarse = merge.fine, merge.coarse
    saved = bytes_inside(fine.arrays.index, fine.memory_arrays.tensor_bytes, merge.op)
    specs, ops = specs_of(coarse.cluster), list(coarse.graph.ops)
    for c in np.flatnonzero(np.bincount(merge.op) > 1).tolist():
        op = ops[c]
        if op.flops is None or op.bytes_moved is None:
            continue
        moved = max(0, op.bytes_moved - int(saved[c]))
        time_ns = {
            kind: min(time, roofline_ns(op.flops, moved, specs[kind], dtype=op.dtype))
            if kind in specs
            else time
            for kind, time in op.time_ns.items()
        }
        ops[c] = op.model_copy(update={"time_ns": time_ns, "bytes_moved": moved})
    graph = coarse.graph.model_copy(update={"ops": tuple(ops)})
    return Instance(name=fine.name, graph=graph, cluster=coarse.cluster)


def with_slower_ops(instance: Instance, factor: float) -> Instance:
    """The instance whose ops all take `factor` times as long on what is no host; whole ns."""
    exact = Fraction(str(factor))  # what was written, not its binary neighbour
    hosts = {device.kind for device in instance.cluster.devices if device.is_host}

    def slower(kind: str, time: int) -> int:
        return time if kind in hosts else round(time * exact)

    ops = tuple(
        op.model_copy(
            update={"time_ns": {kind: slower(kind, ns) for kind, ns in op.time_ns.items()}}
        )
        for op in instance.graph.ops
    )
    return instance.with_graph(instance.graph.model_copy(update={"ops": ops}), instance.name)
