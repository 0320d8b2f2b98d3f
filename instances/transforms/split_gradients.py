"""Gradients of parameters that are copied: which ops update them, and the all-reduce between.

Where the batch is divided every part makes a whole gradient from its samples. An update op is then
copied, not divided: each copy needs the sum of all parts' gradients. The sum is an all-reduce by
its volume: of p parts each sends each other part's update 2 / p of the gradient, so that all in all
it sends and receives 2 (p - 1) / p of it, as around a ring, and each update waits for all parts.
The additions and the turns of a ring take no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Edge, Graph, Op
from placegap.instances.problem.integers import ceil_div

# Kinds of update ops, without TensorFlow's "ResourceApply" and "Apply" before them.
OPTIMIZERS = frozenset(
    {
        "adadelta",
        "adagrad",
        "adam",
        "adam8bit",
        "adamw",
        "gradientdescent",
        "lamb",
        "lion",
        "momentum",
        "rmsprop",
        "sgd",
        "update",
    }
)

# Kinds of ops that read nothing, and make nothing of a sample.
WEIGHT_SOURCES = frozenset({"const", "constant", "variable", "variablev2"})
MANY = -1  # in place of an update op: none, several, or something else besides


def is_update(op: Op) -> bool:
    """Whether an op updates parameters by their gradients."""
    kind = op.kind.lower().removeprefix("resource").removeprefix("apply")
    return kind in OPTIMIZERS


def gradient_bytes(graph: Graph, update: int, held: Mapping[str, int]) -> dict[int, int]:
    """Edges that bring gradients to an update op, and the bytes of each gradient."""
    # They are what backward ops send it, but for numbers such as the learning rate: what several
    # updates read, and is smaller than the largest of what this one reads. Where all are of 0
    # bytes, as from importers that keep gradients with the parameters, the first stands for the
    # parameters of the op's colocation group. `held` is from `group_parameters`.
    index = graph.index
    entering = index.pred_edge[index.pred_ptr[update] : index.pred_ptr[update + 1]].tolist()
    found = {}
    for e in entering:
        producer = graph.ops[index.producer[e]]
        if producer.backward and not is_update(producer):
            found[e] = graph.edges[e].bytes
    largest = max(found.values(), default=0)
    found = {e: size for e, size in found.items() if size == largest or not _is_shared(graph, e)}
    if found and not any(found.values()):
        found[min(found)] = held.get(graph.ops[update].colocation or "", 0)
    return found


def _is_shared(graph: Graph, edge: int) -> bool:
    """Whether several update ops read the tensor of an edge."""
    index = graph.index
    u = index.tensor[edge]
    readers = index.consumer[index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]]
    return sum(is_update(graph.ops[i]) for i in readers.tolist()) > 1


def group_parameters(graph: Graph) -> dict[str, int]:
    """Bytes of parameters of each colocation group."""
    held: dict[str, int] = {}
    for op in graph.ops:
        if op.colocation is not None:
            held[op.colocation] = held.get(op.colocation, 0) + op.parameter_bytes
    return held


def all_reduce(edge: Edge, size: int, parts: Sequence[str], updates: Sequence[str]) -> list[Edge]:
    """Edges from the parts that make a gradient to the copies of its update."""
    # `size` are the bytes of the gradient; times that the edge of the whole ops states are divided
    # as bytes are.
    host, matrix = edge.host_time_ns, edge.transfer_ns
    share = edge.model_copy(
        update={
            "bytes": ceil_div(2 * size, len(parts)),
            "tensor": None,
            "host_time_ns": None if host is None else ceil_div(2 * host, len(parts)),
            "transfer_ns": None
            if matrix is None
            else tuple(tuple(ceil_div(2 * time, len(parts)) for time in row) for row in matrix),
        }
    )
    return [
        share.model_copy(update={"producer": part, "consumer": target})
        for part in parts
        for target in updates
    ]


def works_on_weights(graph: Graph) -> list[bool]:
    """Whether each op works on weights or on one gradient alone, whatever the batch."""
    # Updates do, ops that read nothing but weights, and ops between one gradient and its update.
    index, ops = graph.index, graph.ops
    order = index.topological_order.tolist()

    def entering(i: int) -> list[int]:
        found: list[int] = index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]].tolist()
        return found

    def readers(edges: Ints) -> list[int]:
        found: list[int] = index.consumer[edges].tolist()
        return found

    of_weights = [False] * len(ops)
    for i in order:
        inputs = index.producer[entering(i)].tolist()
        is_source = not inputs and ops[i].kind.lower() in WEIGHT_SOURCES
        of_weights[i] = is_source or (bool(inputs) and all(of_weights[a] for a in inputs))
    reaches = [MANY] * len(ops)  # the one update op that a backward op leads to
    for i in reversed(order):
        if ops[i].backward:
            after = readers(index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]])
            found = {b if is_update(ops[b]) else reaches[b] for b in after}
            reaches[i] = found.pop() if len(found) == 1 else MANY

    def is_gradient(e: int, update: int) -> bool:
        """Whether all that the edge's tensor leads to is this update."""
        u, producer = index.tensor[e], int(index.producer[e])
        after = readers(index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]])
        return ops[producer].backward and all(
            (b if is_update(ops[b]) else reaches[b]) == update for b in after
        )

    return [
        is_update(ops[i])
        or of_weights[i]
        or (
            reaches[i] != MANY
            and bool(entering(i))
            and all(
                of_weights[index.producer[e]] or is_gradient(e, reaches[i]) for e in entering(i)
            )
        )
        for i in range(len(ops))
    ]
