"""Pesto's ILP in its plain shape (after Hafeez et al., Middleware 2021): products and big-M.

Claim: exact for ``makespan link per_edge``. The paper's own text is not at hand; the families below
are those that it is cited for, written out for any number of devices. Every edge q = (i, j) is a
transfer with a start of its own, which takes no time where i and j share a device. Components:

- ``x[i, k]``: op i is on device k, fixed to 0 where its affinity forbids that;
- ``transfer[q, a, b]``, a != b: edge q goes over the link from device a to device b;
- ``op_start[i]``, ``transfer_start[q]``, ``makespan``: times; ``op_end[i]``, ``transfer_end[q]``
  are expressions;
- ``op_before[i, j]``, i < j: of two ops that no path orders, i runs first;
- ``transfer_before[q, r, a, b]``, q < r: of two transfers that no path orders, q goes first over
  the link from a to b.

The big-M is a horizon: no plan of interest takes longer.
"""

from __future__ import annotations

from itertools import permutations

import pyomo.environ as pyo

from placegap.formulations.moirai.published import device_no_overlap
from placegap.formulations.shared.families import (
    Linear,
    assign_once,
    colocate_ops,
    memory_capacity,
    place_ops,
    possible_devices,
)
from placegap.formulations.shared.pairs import (
    Ends,
    count_unordered_pairs,
    edge_ends,
    flow_reach,
    op_reach,
    unordered_pairs,
)
from placegap.formulations.shared.times import ScaledTimes, scale_times
from placegap.instances.problem.instance import Instance


def build(instance: Instance, horizon_ns: int) -> pyo.ConcreteModel:
    """The plain model; see `pesto.build`."""
    ends, times = edge_ends(instance), scale_times(instance, horizon_ns)
    model = pyo.ConcreteModel(name=f"pesto as published: {instance.name}")
    model.unit_ns = pyo.Param(initialize=times.unit_ns)
    place_ops(model, possible_devices(instance))
    transfer_variables(model, ends, instance.num_devices)
    time_variables(model, times)
    order_variables(model, instance)
    assign_once(model, instance)
    colocate_ops(model, instance)
    memory_capacity(model, instance)
    add_durations(model, times)
    precedence_transfers(model, ends)
    makespan_covers(model)
    transfer_choice(model, ends)
    device_no_overlap(model, times)
    link_no_overlap(model, times)
    model.objective = pyo.Objective(expr=model.makespan)
    return model


def count_rows(instance: Instance) -> int:
    """Rows of the model, those of memory and colocation aside; O(m^2 / 64), nothing is built."""
    index, n, k = instance.arrays.index, instance.num_ops, instance.num_devices
    m, links = len(index.producer), k * (k - 1)
    rows = 2 * n + 2 * m + 3 * links * m
    rows += 2 * k * count_unordered_pairs(op_reach(index)[1])
    return rows + 2 * links * count_unordered_pairs(flow_reach(index)[1])


# ---------------------------------------------------------------------------------------- variables


def transfer_variables(model: pyo.ConcreteModel, ends: Ends, num_devices: int) -> None:
    """``transfer[q, a, b]`` in {0, 1} for every edge and every link."""
    links = list(permutations(range(num_devices), 2))
    choices = [(q, a, b) for q in range(len(ends)) for a, b in links]
    model.transfer = pyo.Var(choices, domain=pyo.Binary)


def time_variables(model: pyo.ConcreteModel, times: ScaledTimes) -> None:
    """Starts of ops and transfers, and the makespan, all in [0, horizon]."""
    bounds = (0, times.horizon)
    model.op_start = pyo.Var(range(len(times.op)), bounds=bounds)
    model.transfer_start = pyo.Var(range(len(times.move)), bounds=bounds)
    model.makespan = pyo.Var(bounds=bounds)


def order_variables(model: pyo.ConcreteModel, instance: Instance) -> None:
    """``op_before[i, j]`` and ``transfer_before[q, r, a, b]`` in {0, 1}, where no path orders."""
    index, devices = instance.arrays.index, range(instance.num_devices)
    op_pairs = list(unordered_pairs(*op_reach(index)))
    edge_pairs = list(unordered_pairs(*flow_reach(index)))
    links = list(permutations(devices, 2))
    model.op_before = pyo.Var(op_pairs, domain=pyo.Binary)
    model.transfer_before = pyo.Var(
        [(q, r, a, b) for q, r in edge_pairs for a, b in links], domain=pyo.Binary
    )


def add_durations(model: pyo.ConcreteModel, times: ScaledTimes) -> None:
    """Expressions: op_end[i] = op_start[i] + sum over k of p_ik x[i, k]; transfer_end[q] likewise.

    transfer_end[q] = transfer_start[q] + sum over a, b of p_qab transfer[q, a, b], where p_qab is
    the linear fit k * bytes + b of the link.
    """
    devices = range(len(times.op[0]))
    sent: list[list[Linear]] = [[] for _ in times.move]
    for (q, a, b), transfer in model.transfer.items():
        sent[q].append(times.move[q][a][b] * transfer)

    @model.Expression(model.op_start.index_set())
    def op_end(model: pyo.ConcreteModel, i: int) -> Linear:
        possible = [k for k in devices if not model.x[i, k].fixed]
        return model.op_start[i] + sum(times.op[i][k] * model.x[i, k] for k in possible)

    @model.Expression(model.transfer_start.index_set())
    def transfer_end(model: pyo.ConcreteModel, q: int) -> Linear:
        return model.transfer_start[q] + sum(sent[q])


# -------------------------------------------------------------------------------------- constraints


def precedence_transfers(model: pyo.ConcreteModel, ends: Ends) -> None:
    """op_end[i] <= transfer_start[q] and transfer_end[q] <= op_start[j] for every q = (i, j)."""

    @model.Constraint(range(len(ends)))
    def precedence_producer(model: pyo.ConcreteModel, q: int) -> Linear:
        return model.op_end[ends[q][0]] <= model.transfer_start[q]

    @model.Constraint(range(len(ends)))
    def precedence_consumer(model: pyo.ConcreteModel, q: int) -> Linear:
        return model.transfer_end[q] <= model.op_start[ends[q][1]]


def makespan_covers(model: pyo.ConcreteModel) -> None:
    """The makespan covers every op: makespan >= op_end[i]."""

    @model.Constraint(model.op_start.index_set())
    def makespan_covers(model: pyo.ConcreteModel, i: int) -> Linear:
        return model.makespan >= model.op_end[i]


def transfer_choice(model: pyo.ConcreteModel, ends: Ends) -> None:
    """transfer[q, a, b] == x[i, a] x[j, b] for every q = (i, j) and a != b, made linear.

    transfer >= x[i, a] + x[j, b] - 1, transfer <= x[i, a], transfer <= x[j, b].
    """
    x, transfer = model.x, model.transfer

    @model.Constraint(transfer.index_set())
    def transfer_joins(_: pyo.ConcreteModel, q: int, a: int, b: int) -> Linear:
        return transfer[q, a, b] >= x[ends[q][0], a] + x[ends[q][1], b] - 1

    @model.Constraint(transfer.index_set())
    def transfer_leaves(_: pyo.ConcreteModel, q: int, a: int, b: int) -> Linear:
        return transfer[q, a, b] <= x[ends[q][0], a]

    @model.Constraint(transfer.index_set())
    def transfer_enters(_: pyo.ConcreteModel, q: int, a: int, b: int) -> Linear:
        return transfer[q, a, b] <= x[ends[q][1], b]


def link_no_overlap(model: pyo.ConcreteModel, times: ScaledTimes) -> None:
    """Of two transfers that no path orders, both over the link l = (a, b), one goes first.

    transfer_start[r] >= transfer_end[q]
    - H (3 - transfer_before[q, r, l] - transfer[q, l] - transfer[r, l]) and
    transfer_start[q] >= transfer_end[r]
    - H (2 + transfer_before[q, r, l] - transfer[q, l] - transfer[r, l]).
    """
    horizon, sent = times.horizon, model.transfer
    start, end, before = model.transfer_start, model.transfer_end, model.transfer_before

    @model.Constraint(before.index_set())
    def link_no_overlap_forth(_: pyo.ConcreteModel, q: int, r: int, a: int, b: int) -> Linear:
        apart = 3 - before[q, r, a, b] - sent[q, a, b] - sent[r, a, b]
        return start[r] >= end[q] - horizon * apart

    @model.Constraint(before.index_set())
    def link_no_overlap_back(_: pyo.ConcreteModel, q: int, r: int, a: int, b: int) -> Linear:
        apart = 2 + before[q, r, a, b] - sent[q, a, b] - sent[r, a, b]
        return start[q] >= end[r] - horizon * apart
