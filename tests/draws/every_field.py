"""A small graph that uses every field, for round trips."""

from __future__ import annotations

from placegap.instances import Edge, Graph, Op, Provenance


def rich_graph() -> Graph:
    """Every field of an op and of an edge in use, and two tensors between the same two ops."""
    return Graph(
        name="rich",
        ops=(
            Op(
                name="b",
                kind="Conv",
                time_ns={"gpu": 3, "cpu": 4},
                resident_bytes=9,
                parameter_bytes=5,
                workspace_bytes=2,
                state_bytes=6,
                shared_state={"tied": 4},
                colocation="x",
                backward=True,
                weight_gradient=True,
                update=True,
                module="m.b",
                flops=10,
                bytes_moved=20,
                dtype="float16",
                splittable_axes=("batch",),
                axis_sizes={"batch": 8},
            ),
            Op(name="a", time_ns={"gpu": 1}, colocation="x"),
        ),
        edges=(
            Edge(producer="a", consumer="b", bytes=7, tensor="two", host_time_ns=3),
            Edge(producer="a", consumer="b", bytes=8, tensor="one", transfer_ns=((0, 1), (2, 0))),
        ),
        provenance=Provenance(source="here", changes=("none",), parameters={"seed": 3}),
    )
