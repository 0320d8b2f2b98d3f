"""Training graphs from inference graphs: every op mirrored, parameters updated."""

from __future__ import annotations

from placegap.instances.problem.instance import Edge, Graph, Op, Provenance
from placegap.instances.problem.integers import ceil_div
from placegap.instances.reading.errors import InputError

CHANGE = "mirrored to a training graph: backward ops take twice the time, updates a tenth"


def mirror_training(graph: Graph) -> Graph:
    """The training graph of an inference graph: a backward op per op, an update per parameters.

    Backward op ``x/backward`` takes twice the time of x; it gets x's output from x, and for each
    edge x -> y a gradient of the edge's size from ``y/backward``. An op with parameters gets
    ``x/update``, which takes a tenth of the time of x, rounded up, and holds twice the parameters
    (Adam's moments). The three are one colocation group, for they share the parameters; ops that
    were colocated stay so. They can be split along the same axes, but for an update's batch. The
    layout is that of dnn-partitioning's training graphs.

    Parameters
    ----------
    graph : Graph
        Without backward ops.

    Returns
    -------
    Graph
        n forward ops as they were, then n backward ops, then up to n updates.

    Raises
    ------
    InputError
        If the graph has backward ops already.

    Examples
    --------
    >>> from placegap.instances import example
    >>> training = mirror_training(example().graph)
    >>> len(training.ops), training.ops[4].name, training.ops[4].time_ns
    (8, 'op1/backward', {'gpu': 10})
    """
    if any(op.backward for op in graph.ops):
        raise InputError("has backward ops already", graph.name)
    group = {op.name: op.colocation or op.name for op in graph.ops}
    output: dict[str, Edge] = {}
    for edge in graph.edges:
        known = output.get(edge.producer)
        if known is None or edge.bytes > known.bytes:
            output[edge.producer] = edge
    trained = [op for op in graph.ops if op.parameter_bytes]
    ops = (
        *(
            op if op.colocation else op.model_copy(update={"colocation": group[op.name]})
            for op in graph.ops
        ),
        *(_backward_op(op, group[op.name]) for op in graph.ops),
        *(_update_op(op, group[op.name]) for op in trained),
    )
    edges = (
        *graph.edges,
        *(_activation(op.name, output.get(op.name)) for op in graph.ops),
        *(_gradient(edge) for edge in graph.edges),
        *(
            Edge(
                producer=f"{op.name}/backward",
                consumer=f"{op.name}/update",
                bytes=op.parameter_bytes,
                tensor="parameters",
            )
            for op in trained
        ),
    )
    origin = graph.provenance
    provenance = Provenance(
        source=origin.source,
        licence=origin.licence,
        changes=(*origin.changes, CHANGE),
        parameters=origin.parameters,
    )
    return Graph(name=f"{graph.name}-training", ops=ops, edges=edges, provenance=provenance)


def _backward_op(op: Op, group: str) -> Op:
    return Op(
        name=f"{op.name}/backward",
        kind=f"{op.kind}/backward",
        time_ns={kind: 2 * time for kind, time in op.time_ns.items()},
        workspace_bytes=op.workspace_bytes,
        shared_state=op.shared_state,
        colocation=group,
        backward=True,
        module=op.module,
        dtype=op.dtype,
        flops=None if op.flops is None else 2 * op.flops,
        bytes_moved=None if op.bytes_moved is None else 2 * op.bytes_moved,
        splittable_axes=op.splittable_axes,
        axis_sizes=op.axis_sizes,
    )


def _update_op(op: Op, group: str) -> Op:
    return Op(
        name=f"{op.name}/update",
        kind="update",
        time_ns={kind: ceil_div(time, 10) for kind, time in op.time_ns.items()},
        resident_bytes=2 * op.parameter_bytes,
        state_bytes=2 * (op.parameter_bytes if op.state_bytes is None else op.state_bytes),
        shared_state={f"{name[:900]}/moments": 2 * size for name, size in op.shared_state.items()},
        colocation=group,
        backward=True,
        module=op.module,
        dtype=op.dtype,
        flops=None if op.flops is None else ceil_div(op.flops, 10),
        bytes_moved=None if op.bytes_moved is None else ceil_div(op.bytes_moved, 10),
        splittable_axes=tuple(axis for axis in op.splittable_axes if axis != "batch"),
        axis_sizes={axis: size for axis, size in op.axis_sizes.items() if axis != "batch"},
    )


def _activation(name: str, out: Edge | None) -> Edge:
    """The op's largest output, kept for its backward op; the same tensor as its other consumers."""
    if out is None:
        return Edge(producer=name, consumer=f"{name}/backward")
    return Edge(
        producer=name,
        consumer=f"{name}/backward",
        bytes=out.bytes,
        tensor=out.tensor,
        host_time_ns=out.host_time_ns,
        transfer_ns=out.transfer_ns,
    )


def _gradient(edge: Edge) -> Edge:
    return Edge(
        producer=f"{edge.consumer}/backward",
        consumer=f"{edge.producer}/backward",
        bytes=edge.bytes,
        tensor=None if edge.tensor is None else f"gradient of {edge.producer}/{edge.tensor}",
        host_time_ns=edge.host_time_ns,
        transfer_ns=edge.transfer_ns,
    )
