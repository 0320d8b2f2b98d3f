"""Edges of an instance whose ops were split: slices into parts, outputs into gathers."""

from __future__ import annotations

from collections.abc import Mapping

from placegap.instances.op_splitting.shares import Cut, divide, fresh, round_up
from placegap.instances.problem.instance import Edge, Instance


def split_edges(
    instance: Instance,
    cuts: Mapping[int, Cut],
    shares: Mapping[int, tuple[int, ...]],
    names: Mapping[int, list[str]],
) -> list[Edge]:
    """Edges into parts, edges of the graph, and edges from parts to gathers.

    Parameters
    ----------
    instance : Instance
    cuts : mapping of int to Cut
        By op number.
    shares : mapping of int to tuple of int
        Where the parts of each split op begin and end.
    names : mapping of int to list of str
        Names of the parts of each split op, and then of its gather.

    Examples
    --------
    >>> from placegap.instances import example
    >>> cuts, names = {1: Cut("batch", 2)}, {1: ["x", "y", "all"]}
    >>> edges = split_edges(example(), cuts, {1: (0, 1, 2)}, names)
    >>> " ".join(f"{edge.producer}-{edge.consumer}" for edge in edges)
    'op1-x op1-y op1-op3 all-op4 op3-op4 x-all y-all'
    """
    graph, index, tensors = instance.graph, instance.graph.index, _tensor_names(instance, cuts)
    edges: list[Edge] = []
    ends = zip(index.producer.tolist(), index.consumer.tolist(), strict=True)
    for e, (edge, (a, b)) in enumerate(zip(graph.edges, ends, strict=True)):
        source = names[a][-1] if a in cuts else edge.producer
        if b not in cuts:
            edges.append(edge if a not in cuts else edge.model_copy(update={"producer": source}))
            continue
        for j, part in enumerate(names[b][:-1]):
            if cuts[b].axis == "out_channel":
                update = {"producer": source, "consumer": part, "tensor": tensors[e]}
                edges.append(edge.model_copy(update=update))
            else:
                at = f"{tensors[e]}, {cuts[b].axis} {_place(shares[b], j)}"
                edges.append(_slice(edge, source, part, at, shares[b], j))
    for i, cut in cuts.items():
        *parts, gather = names[i]
        outputs = _outputs(instance, i)
        for j, part in enumerate(parts):
            if not outputs:
                edges.append(Edge(producer=part, consumer=gather))
            for e in outputs:
                edge = graph.edges[e]
                if cut.axis == "in_channel":
                    update = {"producer": part, "consumer": gather, "tensor": tensors[e]}
                    edges.append(edge.model_copy(update=update))
                else:
                    edges.append(_slice(edge, part, gather, tensors[e], shares[i], j))
    return edges


def _outputs(instance: Instance, i: int) -> list[int]:
    """The first edge of each tensor that op i makes."""
    index = instance.graph.index
    leaving = index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]]
    first = index.tensor_first_edge[index.tensor[leaving]]
    return list(dict.fromkeys(first.tolist()))


def _place(bounds: tuple[int, ...], j: int) -> str:
    return f"{bounds[j]}:{bounds[j + 1]} of {bounds[-1]}"


def _slice(
    edge: Edge, producer: str, consumer: str, tensor: str, bounds: tuple[int, ...], j: int
) -> Edge:
    """Part j of what an edge carries."""
    host, matrix = edge.host_time_ns, edge.transfer_ns
    return Edge(
        producer=producer,
        consumer=consumer,
        bytes=divide(edge.bytes, bounds, j),
        tensor=tensor,
        host_time_ns=None if host is None else round_up(host, bounds, j),
        transfer_ns=None
        if matrix is None
        else tuple(tuple(round_up(time, bounds, j) for time in row) for row in matrix),
    )


def _tensor_names(instance: Instance, cuts: Mapping[int, Cut]) -> dict[int, str]:
    """A name for the tensor of each edge at a split op: its own, or a new one."""
    index, edges = instance.graph.index, instance.graph.edges
    taken = {edge.tensor for edge in edges if edge.tensor is not None}
    return {
        e: edge.tensor if edge.tensor is not None else fresh(f"to {edge.consumer}", taken)
        for e, (edge, a, b) in enumerate(
            zip(edges, index.producer.tolist(), index.consumer.tolist(), strict=True)
        )
        if a in cuts or b in cuts
    }
