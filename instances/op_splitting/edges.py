"""Edges of an instance whose ops were split: slices into parts, outputs into gathers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from placegap.instances.problem.instance import Edge, Instance
from placegap.instances.transforms.op_splitting import Cut, divide, fresh, round_up
from placegap.instances.transforms.split_gradients import (
    all_reduce,
    gradient_bytes,
    group_parameters,
    is_update,
    works_on_weights,
)


class PartNames(NamedTuple):
    """Names of what one split op becomes."""

    parts: list[str]
    gather: str


def split_edges(
    instance: Instance,
    cuts: Mapping[int, Cut],
    shares: Mapping[int, tuple[int, ...]],
    names: Mapping[int, PartNames],
    sums: Mapping[int, Mapping[int, int]],
    partial: Set[int] = frozenset(),
) -> list[Edge]:
    """Edges into parts, edges of the graph, from parts to gathers, and those of all-reduces.

    Parameters
    ----------
    instance : Instance
    cuts : mapping of int to Cut
        By op number.
    shares : mapping of int to tuple of int
        Where the parts of each split op begin and end.
    names : mapping of int to PartNames
        Of each split op.
    sums : mapping of int to mapping of int to int
        As `find_sums` says.
    partial : set of int
        As `find_partial_sums` says.

    Examples
    --------
    >>> from placegap.instances import example
    >>> cuts, names = {1: Cut("batch", 2)}, {1: PartNames(["x", "y"], "all")}
    >>> edges = split_edges(example(), cuts, {1: (0, 1, 2)}, names, {})
    >>> " ".join(f"{edge.producer}-{edge.consumer}" for edge in edges)
    'op1-x op1-y op1-op3 all-op4 op3-op4 x-all y-all'
    """
    graph, index, tensors = instance.graph, instance.graph.index, _tensor_names(instance, cuts)
    edges: list[Edge] = []
    summed = {e for found in sums.values() for e in found}
    ends = zip(index.producer.tolist(), index.consumer.tolist(), strict=True)
    for e, (edge, (a, b)) in enumerate(zip(graph.edges, ends, strict=True)):
        if e in summed:
            continue
        source = names[a].gather if a in cuts else edge.producer
        if b not in cuts:
            edges.append(edge if a not in cuts else edge.model_copy(update={"producer": source}))
            continue
        whole = cuts[b].axis == "out_channel" or is_update(graph.ops[b])
        for j, part in enumerate(names[b].parts):
            if whole:
                update = {"producer": source, "consumer": part, "tensor": tensors[e]}
                edges.append(edge.model_copy(update=update))
            else:
                at = f"{tensors[e]}, {cuts[b].axis} {_place(shares[b], j)}"
                edges.append(slice_edge(edge, source, part, at, shares[b], j))
    for i, cut in cuts.items():
        parts, gather = names[i].parts, names[i].gather
        outputs = _outputs(instance, i, summed)
        for j, part in enumerate(parts):
            if not outputs:
                edges.append(Edge(producer=part, consumer=gather))
            for e in outputs:
                edge = graph.edges[e]
                if cut.axis == "in_channel" or int(index.tensor[e]) in partial:
                    update = {"producer": part, "consumer": gather, "tensor": tensors[e]}
                    edges.append(edge.model_copy(update=update))
                else:
                    edges.append(slice_edge(edge, part, gather, tensors[e], shares[i], j))
    for i, found in sums.items():
        for e, size in found.items():
            parts = names[int(index.producer[e])].parts
            edges += all_reduce(graph.edges[e], size, parts, names[i].parts)
    return edges


def find_sums(instance: Instance, cuts: Mapping[int, Cut]) -> dict[int, dict[int, int]]:
    """Edges that bring gradients of parts to copies of an update op, by that op, and their bytes.

    Examples
    --------
    >>> from placegap.instances import example
    >>> find_sums(example(), {1: Cut("batch", 2)})
    {}
    """
    graph, index = instance.graph, instance.graph.index
    copied = [i for i, cut in cuts.items() if cut.axis == "batch" and is_update(graph.ops[i])]
    held = group_parameters(graph) if copied else {}
    found = {
        i: {
            e: size
            for e, size in gradient_bytes(graph, i, held).items()
            if cuts.get(int(index.producer[e])) == cuts[i]
        }
        for i in copied
    }
    return {i: edges for i, edges in found.items() if edges}


def find_partial_sums(
    instance: Instance, cuts: Mapping[int, Cut], sums: Mapping[int, Mapping[int, int]]
) -> set[int]:
    """Tensors of ops split along the batch that hold a gradient: parts add up, none has a slice.

    They are what backward ops hand to ops that work on weights alone, but not to all-reduces.

    Examples
    --------
    >>> from placegap.instances import example
    >>> find_partial_sums(example(), {1: Cut("batch", 2)}, {})
    set()
    """
    graph, index = instance.graph, instance.graph.index
    divided = [i for i, cut in cuts.items() if cut.axis == "batch" and graph.ops[i].backward]
    if not divided:
        return set()
    of_weights = works_on_weights(graph)
    summed = {e for found in sums.values() for e in found}
    found = set()
    for i in divided:
        for e in [] if of_weights[i] else _outputs(instance, i, summed):
            u = index.tensor[e]
            readers = index.consumer[
                index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
            ]
            if all(of_weights[b] for b in readers.tolist()):
                found.add(int(u))
    return found


def tensors_of(instance: Instance, sums: Mapping[int, Mapping[int, int]]) -> set[int]:
    """The tensors that all-reduces sum up.

    Examples
    --------
    >>> from placegap.instances import example
    >>> tensors_of(example(), {3: {1: 7}})
    {1}
    """
    tensor = instance.graph.index.tensor
    return {int(tensor[e]) for found in sums.values() for e in found}


def kept_bytes(instance: Instance, tensors: Iterable[int]) -> dict[int, int]:
    """Bytes of some tensors by the op that makes them.

    Examples
    --------
    >>> from placegap.instances import example
    >>> kept_bytes(example(), [1])  # made by op 0, of 20 bytes
    {0: 20}
    """
    index = instance.graph.index
    kept: dict[int, int] = {}
    for u in sorted(tensors):
        producer = int(index.tensor_producer[u])
        size = instance.graph.edges[index.tensor_first_edge[u]].bytes
        kept[producer] = kept.get(producer, 0) + size
    return kept


def _outputs(instance: Instance, i: int, summed: Set[int]) -> list[int]:
    """The first edge of each tensor that op i makes, but for what goes to all-reduces alone."""
    index = instance.graph.index
    leaving = index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]]
    if summed:
        leaving = leaving[[e not in summed for e in leaving.tolist()]]
    first = index.tensor_first_edge[index.tensor[leaving]]
    return list(dict.fromkeys(first.tolist()))


def _place(bounds: tuple[int, ...], j: int) -> str:
    return f"{bounds[j]}:{bounds[j + 1]} of {bounds[-1]}"


def slice_edge(
    edge: Edge, producer: str, consumer: str, tensor: str | None, bounds: tuple[int, ...], j: int
) -> Edge:
    """Part j of what an edge carries.

    Examples
    --------
    >>> whole = Edge(producer="a", consumer="b", bytes=9)
    >>> slice_edge(whole, "a", "b/2of2", "slice", (0, 3, 5), 1).bytes
    4
    """
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
