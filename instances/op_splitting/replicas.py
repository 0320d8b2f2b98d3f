"""Data parallelism: the whole graph on each of several devices, each with its share of the samples.

Copy j of an op reads what the copies j of other ops write, so that within a copy nothing is
gathered or sent. Before each update of parameters an all-reduce adds up the gradients of all copies
(`gradients`). Without update ops nothing is sent at all: copies of an inference graph work side by
side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from pydantic import ValidationError

from placegap.instances.problem.graph_index import freeze
from placegap.instances.problem.instance import Edge, Graph, Instance, Op
from placegap.instances.reading.errors import InputError, from_validation_error, paused_collector
from placegap.instances.transforms.op_splitting import (
    MOST_PARTS,
    Cut,
    OpSplit,
    divide,
    fresh,
    held_bytes,
    kept_bytes,
    round_up,
    shares,
    slice_edge,
    tensors_of,
)
from placegap.instances.transforms.split_gradients import (
    all_reduce,
    gradient_bytes,
    group_parameters,
    is_update,
    works_on_weights,
)


def stated_batch(graph: Graph) -> int | None:
    """The least batch that an op of the graph states as an axis, None where none does.

    Examples
    --------
    >>> ops = (Op(name="a", axis_sizes={"batch": 8}), Op(name="b"))
    >>> stated_batch(Graph(name="two", ops=ops)), stated_batch(Graph(name="one", ops=ops[1:]))
    (8, None)
    """
    stated = (op.axis_sizes["batch"] for op in graph.ops if "batch" in op.axis_sizes)
    return min(stated, default=None)


def replicate(instance: Instance, batch: int, copies: int) -> OpSplit:
    """The instance of several copies of the graph, each with whole samples of the batch.

    Of time, FLOPs, bytes moved and outputs a copy has its share, rounded up. Whole in each copy are
    parameters and their gradients, and the ops that work on those alone: updates, what reads
    nothing but weights, and what lies between one gradient and its update.

    Parameters
    ----------
    instance : Instance
    batch : int
        Samples of one pass.
    copies : int
        From 2 to the batch. Copy j of op i of n is number ``j n + i``.

    Raises
    ------
    InputError
        If there are fewer samples than copies, or more than `MOST_PARTS` copies of ops or transfers
        of all-reduces in all.

    Notes
    -----
    O(copies (V + E) + copies**2 updates).

    Examples
    --------
    >>> from placegap.instances import example
    >>> fine = replicate(example(), 8, 2).fine
    >>> fine.num_ops, fine.graph.ops[5].name, fine.graph.ops[5].time_ns
    (8, 'op2/2of2', {'gpu': 10})
    """
    graph = instance.graph
    if not 2 <= copies <= batch:
        raise InputError(f"a batch of {batch} has no {copies} shares; ask for at most that many")
    sums = _sums(graph)
    transfers = copies**2 * sum(len(found) for found in sums.values())
    if max(copies * len(graph.ops), transfers) > MOST_PARTS:
        raise InputError(
            f"{copies} copies of {len(graph.ops)} ops with {len(sums)} all-reduces; copies and"
            f" transfers are limited to {MOST_PARTS}"
        )
    bounds = shares(Op(name="batch", axis_sizes={"batch": batch}), Cut("batch", copies))
    whole, kept = works_on_weights(graph), kept_bytes(instance, tensors_of(instance, sums))
    with paused_collector():
        names, groups = _names(graph, copies), _groups(graph, copies)
        ops: list[Op] = []
        edges: list[Edge] = []
        for j in range(copies):
            for i, op in enumerate(graph.ops):
                named = {"name": names[j][i], "colocation": groups[j].get(op.colocation or "")}
                share = {} if whole[i] else _share(op, bounds, j, kept.get(i, 0))
                ops.append(op.model_copy(update={**share, **named}))
            edges += _edges_of_copy(graph, names[j], whole, sums, bounds, j)
        origin = [(i, j) for j in range(copies) for i in range(len(graph.ops))]
        for i, found in sums.items():
            updates = [copy[i] for copy in names]
            for e, size in found.items():
                parts = [copy[graph.index.producer[e]] for copy in names]
                edges += all_reduce(graph.edges[e], size, parts, updates)
        of, part = np.array(origin, np.int64).T.copy()
        split = OpSplit(instance, _finer(instance, ops, edges, batch, copies), of, part)
    freeze(split)
    return split


def _sums(graph: Graph) -> dict[int, dict[int, int]]:
    """The edges that bring gradients to each update op, and their bytes."""
    held = group_parameters(graph)
    updates = [i for i, op in enumerate(graph.ops) if is_update(op)]
    found = {i: gradient_bytes(graph, i, held) for i in updates}
    return {i: edges for i, edges in found.items() if edges}


def _share(op: Op, bounds: tuple[int, ...], j: int, kept: int) -> dict[str, object]:
    """Copy j of an op; `kept` bytes of its output are gradients, which each copy has whole."""
    state = held_bytes(op)
    output = op.resident_bytes - state
    kept = min(kept, output)
    flops, moved = op.flops, op.bytes_moved
    sizes = {"batch": bounds[j + 1] - bounds[j]} if "batch" in op.axis_sizes else {}
    return {
        "time_ns": {kind: round_up(time, bounds, j) for kind, time in op.time_ns.items()},
        "resident_bytes": state + kept + divide(output - kept, bounds, j),
        "workspace_bytes": round_up(op.workspace_bytes, bounds, j),
        "flops": None if flops is None else round_up(flops, bounds, j),
        "bytes_moved": None if moved is None else round_up(moved, bounds, j),
        "axis_sizes": {**op.axis_sizes, **sizes},
    }


def _edges_of_copy(
    graph: Graph,
    names: list[str],
    whole: list[bool],
    sums: Mapping[int, Mapping[int, int]],
    bounds: tuple[int, ...],
    j: int,
) -> Iterator[Edge]:
    """The edges within copy j: shares of what the ops write, but for gradients of all-reduces."""
    index = graph.index
    summed = {e for found in sums.values() for e in found}
    ends = zip(index.producer.tolist(), index.consumer.tolist(), strict=True)
    for e, (edge, (a, b)) in enumerate(zip(graph.edges, ends, strict=True)):
        if e in summed:
            continue
        if whole[a]:
            yield edge.model_copy(update={"producer": names[a], "consumer": names[b]})
        else:
            yield slice_edge(edge, names[a], names[b], edge.tensor, bounds, j)


def _names(graph: Graph, copies: int) -> list[list[str]]:
    """Names of the ops of each copy."""
    taken = {op.name for op in graph.ops}
    numbers = range(1, copies + 1)
    return [[fresh(f"{op.name}/{j}of{copies}", taken) for op in graph.ops] for j in numbers]


def _groups(graph: Graph, copies: int) -> list[dict[str, str]]:
    """Colocation groups of each copy, by those of the graph."""
    old = list(dict.fromkeys(op.colocation for op in graph.ops if op.colocation is not None))
    taken = set(old)
    numbers = range(1, copies + 1)
    return [{group: fresh(f"{group}/{j}of{copies}", taken) for group in old} for j in numbers]


def _finer(
    instance: Instance, ops: list[Op], edges: list[Edge], batch: int, copies: int
) -> Instance:
    graph = instance.graph
    change = f"{copies} copies, each with its share of a batch of {batch}; gradients are summed up"
    origin = graph.provenance
    provenance = origin.model_copy(update={"changes": (*origin.changes, change)})
    update = {"ops": tuple(ops), "edges": tuple(edges), "provenance": provenance}
    end = f"@{instance.cluster.name}"
    bare = instance.name.removesuffix(end)
    name = f"{bare}-{copies}-copies{end if bare != instance.name else ''}"
    try:
        finer = {"name": name, "graph": graph.model_copy(update=update), "best_known": ()}
        return instance.model_copy(update=finer)
    except ValidationError as error:  # sums beyond 2**62
        raise from_validation_error(error, source=instance.name) from None
