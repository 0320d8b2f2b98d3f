"""Coarsening: an instance whose ops are groups of another's, and the way back for its plans.

What every transform makes (`transforms`). The groups must be such that the graph between them has
no cycle; times and memory are conserved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.objectives.makespan.simulate import simulate
from placegap.instances.problem import (
    Cache,
    Edge,
    Instance,
    Makespan,
    Op,
    Plan,
    Semantics,
    Transfer,
)
from placegap.instances.problem.graph_index import DisjointSets, freeze
from placegap.instances.referee.channels import plan_from_times


@dataclass(frozen=True, eq=False)
class Merge:
    """An instance of n ops and m edges, and what it was merged to."""

    fine: Instance
    coarse: Instance
    op: Ints  # (n,) int64: The merged op of each op
    #: (m,) int64: The merged edge of each edge, -1 within a merged op. Edges that carry one tensor
    #: to one merged op are one edge.
    edge: Ints


def merge_groups(
    instance: Instance,
    op: Ints | list[int],
    how: str,
    after: str,
    kinds: Mapping[int, str] | None = None,
) -> Merge:
    """Merge each group of ops to one."""
    # Groups are numbered in any way, and merged ops come in the order of these numbers. A merged op
    # takes the sum of its ops' times, on the device kinds that run all of them, holds the sum of
    # their bytes, shared state once by each name, and is colocated with what any of them is
    # colocated with. Tensors keep their producer op, size and times: what one op sends to several
    # ops of a merged one is one edge. Some device kind must run all ops that end up in one
    # colocation group. `kinds` of merged ops are by default that of their ops, if it is the same,
    # else "merged"; `how` and `after` are for the provenance: "4 ops merged to 3 (after Pesto)". A
    # merged op is named after its first op in topological order. O(n + m) but for sorting.
    graph, chosen = instance.graph, kinds or {}
    numbers, op = np.unique(op, return_inverse=True)
    op = op.astype(np.int64)
    members = members_of(instance, op)
    label = _labels(instance, members)
    ops = tuple(
        _merged_op([graph.ops[i] for i in inside], label[inside[0]], chosen.get(c))
        for c, inside in zip(numbers.tolist(), members, strict=True)
    )
    edges, edge = _merged_edges(instance, op, [spec.name for spec in ops])
    change = f"{len(graph.ops)} ops {how} to {len(ops)} (after {after})"
    update = {"ops": ops, "edges": edges, "provenance": graph.provenance.noting(change)}
    coarse = instance.with_graph(graph.model_copy(update=update))
    merge = Merge(instance, coarse, op, edge)
    freeze(merge)
    return merge


def members_of(instance: Instance, op: Ints) -> list[list[int]]:
    """The ops of each merged op, in topological order."""
    members: list[list[int]] = [[] for _ in range(int(op.max()) + 1)]
    for i in instance.arrays.index.topological_order.tolist():
        members[op[i]].append(i)
    return members


def _labels(instance: Instance, members: list[list[int]]) -> list[str | None]:
    """Colocation label of each op, once merged ops have joined the groups of their ops."""
    group = instance.arrays.group.tolist()
    classes = DisjointSets(instance.arrays.num_groups)
    for inside in members:
        for i in inside[1:]:
            classes.join(group[inside[0]], group[i])
    label: dict[int, str] = {}  # the first one among the ops
    for spec, number in zip(instance.graph.ops, group, strict=True):
        if spec.colocation is not None:
            label.setdefault(classes.find(number), spec.colocation)
    return [label.get(classes.find(number)) for number in group]


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
                # unique by its number; the name shows where the tensor comes from
                "tensor": f"{tensor} of {edges[e].producer}"[:1000],
            }
            merged.append(edges[e].model_copy(update=update))
    return tuple(merged), edge_of


def _merged_op(ops: list[Op], colocation: str | None, kind: str | None) -> Op:
    """One op that runs the given ones one after another; without modes, which name neighbours."""
    if len(ops) == 1:
        return ops[0].model_copy(update={"colocation": colocation, "modes": ()})

    def total(values: list[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    shared: dict[str, int] = {}
    for op in ops:
        shared.update(op.shared_state)  # one size by each name
    states = [op.parameter_bytes if op.state_bytes is None else op.state_bytes for op in ops]
    stated = any(op.state_bytes is not None for op in ops)
    same = ops[0].kind if len({op.kind for op in ops}) == 1 else "merged"
    kinds = [kind for kind in ops[0].time_ns if all(kind in op.time_ns for op in ops)]
    return Op(
        name=ops[0].name,
        kind=kind or same,
        time_ns={kind: sum(op.time_ns[kind] for op in ops) for kind in kinds},
        resident_bytes=sum(op.resident_bytes for op in ops),
        parameter_bytes=sum(op.parameter_bytes for op in ops),
        workspace_bytes=max(op.workspace_bytes for op in ops),  # one op runs at a time
        state_bytes=sum(states) if stated else None,
        shared_state=shared,
        caches=_merged_caches(ops),
        colocation=colocation,
        backward=ops[0].backward,
        weight_gradient=all(op.weight_gradient for op in ops),
        update=all(op.update for op in ops),
        module=ops[0].module if len({op.module for op in ops}) == 1 else None,
        flops=total([op.flops for op in ops]),
        bytes_moved=total([op.bytes_moved for op in ops]),
        dtype=ops[0].dtype if len({op.dtype for op in ops}) == 1 else None,
    )


def _merged_caches(ops: list[Op]) -> tuple[Cache, ...]:
    """One cache for all that are of as many tokens."""
    found: dict[tuple[int, int | None], int] = {}
    for cache in (cache for op in ops for cache in op.caches):
        key = cache.tokens, cache.most_tokens
        found[key] = found.get(key, 0) + cache.token_bytes
    return tuple(Cache(token_bytes=b, tokens=t, most_tokens=m) for (t, m), b in found.items())


def expand_plan(merge: Merge, plan: Plan, semantics: Semantics) -> Plan:
    """The plan of the instance that a plan of the merged instance stands for."""
    # Each op goes where its merged op is; in given orders the ops of a merged op follow each other
    # in topological order, and so do the transfers of a merged edge. The makespan of a plan with
    # all orders given does not grow under ``per_tensor``: the ops of a merged op can run within its
    # time. Under ``per_edge`` it grows at most by the time of the transfers that the merged
    # instance does not have, as one of its edges stands for several.
    members, device_order = members_of(merge.fine, merge.op), None
    if plan.device_order is not None:
        device_order = tuple(
            None if order is None else tuple(i for c in order for i in members[c])
            for order in plan.device_order
        )
    channel_order = None
    if plan.channel_order is not None and "channel_order" in semantics.plan_fields:
        items = _fine_items(merge, semantics)
        channel_order = {
            channel: tuple(Transfer(i, t.destination) for t in order for i in items[t.item])
            for channel, order in plan.channel_order.items()
        }
    where = merge.op.tolist()
    call = None if plan.call is None else tuple(plan.call[c] for c in where)
    stage = None if plan.stage is None else tuple(plan.stage[c] for c in where)
    placement = tuple(plan.placement[c] for c in where)
    return Plan(placement, device_order, channel_order, call, stage)


def _fine_items(merge: Merge, semantics: Semantics) -> list[list[int]]:
    """The edges (per_edge) or the tensor (per_tensor) that each merged one stands for."""
    fine, coarse = merge.fine.arrays.index, merge.coarse.arrays.index
    kept = np.flatnonzero(merge.edge >= 0)
    item, of = kept, merge.edge[kept]
    if not semantics.per_edge:
        item, of = fine.tensor[kept], coarse.tensor[of]
    items: list[dict[int, None]] = [{} for _ in range(int(of.max(initial=-1)) + 1)]
    for i, c in zip(item.tolist(), of.tolist(), strict=True):
        items[c][i] = None
    return [list(each) for each in items]


def shrink_plan(merge: Merge, plan: Plan) -> Plan | None:
    """The plan of the merged instance that stands for a plan of the instance, if there is one."""
    # None where ops of one merged op are on different devices, in different calls or stages. Of
    # orders only those of the ops are kept, by the first op of each merged one.
    where = merge.op.tolist()
    placement = dict(zip(where, plan.placement, strict=True))
    if any(placement[c] != on for c, on in zip(where, plan.placement, strict=True)):
        return None
    numbers: list[tuple[int, ...] | None] = []
    for given in (plan.call, plan.stage):
        of = {} if given is None else dict(zip(where, given, strict=True))
        if given is not None and any(of[c] != at for c, at in zip(where, given, strict=True)):
            return None
        every = range(merge.coarse.num_ops)
        numbers.append(None if given is None else tuple(of[c] for c in every))
    device_order = None
    if plan.device_order is not None:
        device_order = tuple(
            None if order is None else tuple(dict.fromkeys(where[i] for i in order))
            for order in plan.device_order
        )
    call, stage = numbers
    every = range(merge.coarse.num_ops)
    return Plan(tuple(placement[c] for c in every), device_order, None, call, stage)


def with_all_orders(instance: Instance, plan: Plan, semantics: Makespan) -> Plan:
    """A makespan plan with every order written down as the referee's clock runs it."""
    schedule = simulate(instance, plan, semantics)
    table = schedule.transfers
    columns = (table.item, table.destination, table.start_ns, table.end_ns)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return plan_from_times(
        instance,
        semantics,
        plan.devices.tolist(),
        list(zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True)),
        [(Transfer(item, destination), start, end) for item, destination, start, end in rows],
    )
