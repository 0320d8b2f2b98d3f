"""A graph in half precision: every number of two bytes instead of four."""

from __future__ import annotations

from placegap.instances.problem import Graph

HALF = "float16"


def in_half_precision(graph: Graph) -> Graph:
    """The graph with half of all bytes, rounded up, whose ops compute in float16.

    Parameters
    ----------
    graph : Graph
        In single precision, and not costed yet: its ops have no times.
    """
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
            }
        )
        for op in graph.ops
    )
    edges = tuple(edge.model_copy(update={"bytes": half(edge.bytes)}) for edge in graph.edges)
    return graph.model_copy(update={"ops": ops, "edges": edges})
