"""Coarsening by merging ops, so that a model of the merged graph is small enough to solve.

After Hafeez et al., "Towards Optimal Placement and Scheduling of DNN Operations with Pesto"
(Middleware 2021): merge ops that an edge joins, if that makes no cycle, until few are left. A plan
of the merged instance is a plan of the instance; not the other way round, so that a bound for the
merged instance is none for the instance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.instances.contraction import Contraction, MergeOrder
from placegap.instances.index import Ints, freeze
from placegap.instances.model import Edge, Instance, Op
from placegap.instances.plan import Plan, Transfer
from placegap.instances.semantics import Semantics


@dataclass(frozen=True, eq=False)
class Merge:
    """An instance of n ops and m edges, and what it was merged to.

    Attributes
    ----------
    fine, coarse : Instance
    op : (n,) int64
        The merged op of each op.
    edge : (m,) int64
        The merged edge of each edge, -1 within a merged op. Edges that carry one tensor to one
        merged op are one edge.
    """

    fine: Instance
    coarse: Instance
    op: Ints
    edge: Ints


def merge_ops(instance: Instance, num_ops: int, order: MergeOrder = "dearest_first") -> Merge:
    """Merge the ops of an instance, two by two along edges, until `num_ops` are left.

    The next pair is the one that is dearest (or cheapest) to separate: the sum, over the tensors
    between the two and over all ordered pairs of devices, of the transfer times; of equal ones the
    first in topological order. What is known of Pesto's rule, "cheapest to separate first", can be
    read either way. The dearest first is the default: a transfer between merged ops is saved for
    good, so that the largest should be. Pairs are passed over

    - that a second path joins: merged, they would be on a cycle;
    - of a forward and a backward op;
    - whose ops, together with their colocation groups, no single device could run and hold.

    A merged op takes the sum of its ops' times, on the device kinds that run all of them, holds the
    sum of their bytes, and is colocated with what any of them is colocated with. Tensors keep their
    producer op, size and times: what one op sends to several ops of a merged one is one edge.

    Parameters
    ----------
    instance : Instance
    num_ops : int
        At least 1. More ops are left where no pair can be merged any more.
    order : {"dearest_first", "cheapest_first"}

    Returns
    -------
    Merge
        Merged ops are named after their first op, and in the order of these.

    Notes
    -----
    A topological order of the merged graph is kept up to date (Pearce and Kelly 2006), so that a
    cycle is looked for, and repaired, among the ops between the two only. Every merge looks at the
    edges at the merged op again: O((n d + m) log m) beside these searches, for d edges at an op.

    Examples
    --------
    In the diamond 1 -> 2, 3 -> 4 the edge 1 -> 3 is the dearest, then 3 -> 4, which the path over 2
    rules out, then those at 2.

    >>> from placegap.instances import example
    >>> merge = merge_ops(example(), 3)
    >>> merge.op.tolist(), [op.time_ns["gpu"] for op in merge.coarse.graph.ops]
    ([0, 1, 0, 2], [15, 20, 8])
    """
    if num_ops < 1:
        raise ValueError(f"cannot merge to {num_ops} ops")
    contraction = Contraction(instance, order)
    contraction.run(num_ops)
    leader = np.array(contraction.leaders(), np.int64)  # by topological position
    index = instance.arrays.index
    first = index.topological_order[leader[index.topological_position]]
    op = np.unique(first, return_inverse=True)[1].astype(np.int64)
    coarse, edge = _merged_instance(instance, op, contraction.classes())
    merge = Merge(instance, coarse, op, edge)
    freeze(merge)
    return merge


def expand_plan(merge: Merge, plan: Plan, semantics: Semantics) -> Plan:
    """The plan of the instance that a plan of the merged instance stands for.

    Each op goes where its merged op is; in given orders the ops of a merged op follow each other in
    topological order, and so do the transfers of a merged edge.

    The makespan of a plan with all orders given does not grow under ``per_tensor``: the ops of a
    merged op can run within its time. Under ``per_edge`` it grows at most by the time of the
    transfers that the merged instance does not have, as one of its edges stands for several.

    Parameters
    ----------
    merge : Merge
    plan : Plan
        Of ``merge.coarse``.
    semantics : Semantics
        It tells what the transfers of the plan are.

    Examples
    --------
    >>> from placegap.instances import example
    >>> merge = merge_ops(example(), 3)
    >>> free = Semantics(objective="makespan", channels="free")
    >>> expand_plan(merge, Plan.on([0, 1, 0], [[0, 2], [1]]), free).device_order
    ((0, 2, 3), (1,))
    """
    members, device_order = _members(merge.fine, merge.op), None
    if plan.device_order is not None:
        device_order = tuple(
            None if order is None else tuple(i for c in order for i in members[c])
            for order in plan.device_order
        )
    channel_order = None
    if plan.channel_order is not None:
        items = _fine_items(merge, semantics)
        channel_order = {
            channel: tuple(Transfer(i, t.destination) for t in order for i in items[t.item])
            for channel, order in plan.channel_order.items()
        }
    where = merge.op.tolist()
    call = None if plan.call is None else tuple(plan.call[c] for c in where)
    placement = tuple(plan.placement[c] for c in where)
    return Plan(placement, device_order, channel_order, call)


def _fine_items(merge: Merge, semantics: Semantics) -> list[list[int]]:
    """The edges (per_edge) or the tensor (per_tensor) that each merged one stands for."""
    fine, coarse = merge.fine.arrays.index, merge.coarse.arrays.index
    kept = np.flatnonzero(merge.edge >= 0)
    item, of = kept, merge.edge[kept]
    if semantics.transfers == "per_tensor":
        item, of = fine.tensor[kept], coarse.tensor[of]
    items: list[dict[int, None]] = [{} for _ in range(int(of.max(initial=-1)) + 1)]
    for i, c in zip(item.tolist(), of.tolist(), strict=True):
        items[c][i] = None
    return [list(each) for each in items]


def _merged_instance(instance: Instance, op: Ints, classes: list[int]) -> tuple[Instance, Ints]:
    """The merged instance, and the merged edge of each edge; ``classes`` of colocation groups."""
    graph, class_of = instance.graph, np.array(classes)[instance.arrays.group].tolist()
    label: dict[int, str] = {}  # of each class, the first colocation group's
    for spec, number in zip(graph.ops, class_of, strict=True):
        if spec.colocation is not None:
            label.setdefault(number, spec.colocation)
    ops = tuple(
        _merged_op([graph.ops[i] for i in inside], label.get(class_of[inside[0]]))
        for inside in _members(instance, op)
    )
    edges, edge_of = _merged_edges(instance, op, [spec.name for spec in ops])
    change = f"{len(graph.ops)} ops merged to {len(ops)} (after Pesto)"
    provenance = graph.provenance.model_copy(
        update={"changes": (*graph.provenance.changes, change)}
    )
    merged = graph.model_copy(update={"ops": ops, "edges": edges, "provenance": provenance})
    return instance.model_copy(update={"graph": merged, "best_known": ()}), edge_of


def _members(instance: Instance, op: Ints) -> list[list[int]]:
    """The ops of each merged op, in topological order."""
    members: list[list[int]] = [[] for _ in range(int(op.max()) + 1)]
    for i in instance.arrays.index.topological_order.tolist():
        members[op[i]].append(i)
    return members


def _merged_edges(instance: Instance, op: Ints, names: list[str]) -> tuple[tuple[Edge, ...], Ints]:
    """One edge per tensor and merged op that needs it, and the merged edge of each edge."""
    index, edges = instance.arrays.index, instance.graph.edges
    ends = zip(op[index.producer].tolist(), op[index.consumer].tolist(), strict=True)
    merged: list[Edge] = []
    number: dict[tuple[int, int], int] = {}
    edge_of = np.full(len(edges), -1, np.int64)
    for e, ((source, target), tensor) in enumerate(zip(ends, index.tensor.tolist(), strict=True)):
        if source == target:
            continue
        edge_of[e] = number.setdefault((tensor, target), len(merged))
        if edge_of[e] == len(merged):
            update = {
                "producer": names[source],
                "consumer": names[target],
                # unique by its number; the name tells people where the tensor comes from
                "tensor": f"{tensor} of {edges[e].producer}"[:1000],
            }
            merged.append(edges[e].model_copy(update=update))
    return tuple(merged), edge_of


def _merged_op(ops: list[Op], colocation: str | None) -> Op:
    """One op that runs the given ones one after another."""
    if len(ops) == 1:
        return ops[0].model_copy(update={"colocation": colocation})

    def total(values: list[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    kinds = [kind for kind in ops[0].time_ns if all(kind in op.time_ns for op in ops)]
    return Op(
        name=ops[0].name,
        kind=ops[0].kind if len({op.kind for op in ops}) == 1 else "merged",
        time_ns={kind: sum(op.time_ns[kind] for op in ops) for kind in kinds},
        resident_bytes=sum(op.resident_bytes for op in ops),
        parameter_bytes=sum(op.parameter_bytes for op in ops),
        workspace_bytes=max(op.workspace_bytes for op in ops),  # one op runs at a time
        colocation=colocation,
        backward=ops[0].backward,
        module=ops[0].module if len({op.module for op in ops}) == 1 else None,
        flops=total([op.flops for op in ops]),
        bytes_moved=total([op.bytes_moved for op in ops]),
    )
