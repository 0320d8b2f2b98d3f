"""Pesto's ILP, strengthened: the same plans, fewer rows and a tighter relaxation.

Claim: exact for ``makespan link per_edge``. Beside the plain model (`pesto.published`):

- flow rows in place of linear products: the transfers of an edge lead from the device of its
  producer to the device of its consumer; `transfer` need not be binary for that;
- windows (`windows`), by device and by link: a transfer that no plan of at most the horizon makes
  has no variable, a pair that the windows order on a device or link has no row there, an order that
  they rule out there is not open, and every pair has a big-M of its own;
- one big-M row per order of a pair, not per device or link;
- work rows: no device and no link is busy for longer than the makespan;
- head and tail rows: the device-indexed critical paths into and out of an op.

Components are those of the plain model, but ``op_before[i, j]`` and ``transfer_before[q, r]`` are
on ordered pairs: the first ends before the second starts.
"""

from __future__ import annotations

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.moirai.strengthened import critical_path, device_work
from placegap.formulations.pesto import (
    Pairs,
    Slots,
    add_durations,
    compete,
    edge_slots,
    op_slots,
    precedence_transfers,
    time_variables,
)
from placegap.formulations.shared.families import (
    Linear,
    assign_once,
    colocate_ops,
    memory_capacity,
    place_ops,
)
from placegap.formulations.shared.pairs import (
    Ends,
    count_unordered_pairs,
    edge_ends,
    flow_reach,
    op_reach,
    unordered_pairs,
)
from placegap.formulations.shared.times import ScaledTimes, scale_times, windows
from placegap.instances.problem.instance import Instance


def build(instance: Instance, horizon_ns: int) -> pyo.ConcreteModel:
    """The strengthened model; see `pesto.build`."""
    index, ends = instance.arrays.index, edge_ends(instance)
    window, times = windows(instance, horizon_ns), scale_times(instance, horizon_ns)
    edges = edge_slots(instance, window, horizon_ns)
    model = pyo.ConcreteModel(name=f"pesto strengthened: {instance.name}")
    model.unit_ns = pyo.Param(initialize=times.unit_ns)
    place_ops(model, window.possible)
    transfer_variables(model, edges, instance.num_devices)
    time_variables(model, times)
    assign_once(model, instance)
    colocate_ops(model, instance)
    memory_capacity(model, instance)
    add_durations(model, times)
    precedence_transfers(model, ends)
    transfer_flow(model, ends, edges, instance.num_devices)
    device_work(model, times)
    link_work(model, times)
    critical_path(model, instance, window, times)
    op_pairs = compete(op_slots(instance, window, horizon_ns), unordered_pairs(*op_reach(index)))
    device_no_overlap(model, op_pairs)
    edge_pairs = compete(edges, unordered_pairs(*flow_reach(index)))
    link_no_overlap(model, edge_pairs, instance.num_devices)
    model.objective = pyo.Objective(expr=model.makespan)
    return model


def count_rows(instance: Instance) -> int:
    """At most so many rows, those of memory and colocation aside; O(m^2 / 64), nothing is built."""
    index, n, k = instance.arrays.index, instance.num_ops, instance.num_devices
    m, links = len(index.producer), k * (k - 1)
    rows = 3 * n + (2 + 2 * k) * m + k + links
    rows += (2 + k) * count_unordered_pairs(op_reach(index)[1])
    return rows + (2 + links) * count_unordered_pairs(flow_reach(index)[1])


# ---------------------------------------------------------------------------------------- variables


def transfer_variables(model: pyo.ConcreteModel, edges: Slots, num_devices: int) -> None:
    """``transfer[q, a, b]`` in [0, 1] for the links an edge can take; integral where x is."""
    where = ((q, *divmod(place, num_devices)) for q, place in np.argwhere(edges.possible).tolist())
    model.transfer = pyo.Var([(q, a, b) for q, a, b in where if a != b], bounds=(0, 1))


# -------------------------------------------------------------------------------------- constraints


def transfer_flow(model: pyo.ConcreteModel, ends: Ends, edges: Slots, num_devices: int) -> None:
    """The transfers of q = (i, j) lead from the device of i to that of j.

    With out(q, k) = sum over b of transfer[q, k, b] and in(q, k) = sum over a of transfer[q, a, k],
    for every device k: x[i, k] + in(q, k) == x[j, k] + out(q, k), and out(q, k) <= x[i, k]; the
    difference is what stays on k, and it is 0 where staying is not possible.
    """
    leaving: dict[tuple[int, int], list[Linear]] = {}
    entering: dict[tuple[int, int], list[Linear]] = {}
    for (q, a, b), transfer in model.transfer.items():
        leaving.setdefault((q, a), []).append(transfer)
        entering.setdefault((q, b), []).append(transfer)
    stays = edges.possible[:, :: num_devices + 1].tolist()
    flows, devices, x = range(len(ends)), range(num_devices), model.x

    @model.Constraint(flows, devices)
    def transfer_conserved(_: pyo.ConcreteModel, q: int, k: int) -> Linear:
        i, j = ends[q]
        out, into = sum(leaving.get((q, k), ())), sum(entering.get((q, k), ()))
        return x[i, k] + into == x[j, k] + out

    @model.Constraint(flows, devices)
    def transfer_leaves(_: pyo.ConcreteModel, q: int, k: int) -> Linear:
        out = sum(leaving.get((q, k), ()))
        return out <= x[ends[q][0], k] if stays[q][k] else out == x[ends[q][0], k]


def link_work(model: pyo.ConcreteModel, times: ScaledTimes) -> None:
    """Sum over q of p_qab transfer[q, a, b] <= makespan for every link (a, b)."""
    work: dict[tuple[int, int], list[Linear]] = {}
    for (q, a, b), transfer in model.transfer.items():
        if times.move[q][a][b]:
            work.setdefault((a, b), []).append(times.move[q][a][b] * transfer)

    @model.Constraint(sorted(work))
    def link_work(model: pyo.ConcreteModel, a: int, b: int) -> Linear:
        return sum(work[a, b]) <= model.makespan


def device_no_overlap(model: pyo.ConcreteModel, pairs: Pairs) -> None:
    """Of two ops on one device, one starts after the other ends.

    op_start[j] >= op_end[i] - M_ij (1 - op_before[i, j]) for both orders of the pair, and
    op_before[i, j] + op_before[j, i] >= x[i, k] + x[j, k] - 1 for every device k, of the orders
    those that are open on k.
    """
    unit_ns, x = pyo.value(model.unit_ns), model.x
    model.op_before = before = pyo.Var(pairs.orders, domain=pyo.Binary)

    @model.Constraint(pairs.orders)
    def device_no_overlap(model: pyo.ConcreteModel, i: int, j: int) -> Linear:
        slack = pairs.slack_ns[i, j] / unit_ns * (1 - before[i, j])
        return model.op_start[j] >= model.op_end[i] - slack

    @model.Constraint(pairs.shared)
    def device_shared(_: pyo.ConcreteModel, i: int, j: int, k: int) -> Linear:
        return _open(before, pairs, i, j, k) >= x[i, k] + x[j, k] - 1


def link_no_overlap(model: pyo.ConcreteModel, pairs: Pairs, num_devices: int) -> None:
    """Of two transfers over one link, one starts after the other ends.

    transfer_start[r] >= transfer_end[q] - M_qr (1 - transfer_before[q, r]) for both orders, and
    transfer_before[q, r] + transfer_before[r, q] >= transfer[q, a, b] + transfer[r, a, b] - 1 for
    every link (a, b), of the orders those that are open on it.
    """
    unit_ns, sent = pyo.value(model.unit_ns), model.transfer
    model.transfer_before = before = pyo.Var(pairs.orders, domain=pyo.Binary)

    @model.Constraint(pairs.orders)
    def link_no_overlap(model: pyo.ConcreteModel, q: int, r: int) -> Linear:
        slack = pairs.slack_ns[q, r] / unit_ns * (1 - before[q, r])
        return model.transfer_start[r] >= model.transfer_end[q] - slack

    @model.Constraint(pairs.shared)
    def link_shared(_: pyo.ConcreteModel, q: int, r: int, place: int) -> Linear:
        a, b = divmod(place, num_devices)
        return _open(before, pairs, q, r, place) >= sent[q, a, b] + sent[r, a, b] - 1


def _open(before: pyo.Var, pairs: Pairs, i: int, j: int, place: int) -> Linear:
    """before[i, j] + before[j, i], as far as these orders are open at a place."""
    return sum(before[a, b] for a, b in ((i, j), (j, i)) if (a, b, place) in pairs.open_at)
