"""Makespan as a constraint program for CP-SAT: every channel model, both transfer models. Exact.

Channels and transfers are those of the semantics: ``port`` with ``per_edge`` is the problem of
Moirai's MILP (its equations 4 to 8); ``free``, ``link`` and ``half_duplex`` are the models of HEFT,
of Pesto and of one port per device.

Variables (`makespan_cp.variables`), for ops i, devices k and transfers r, times in units:

- ``x[i][k]``: op i is on device k; one literal per colocation group.
- ``start[i]``, ``end[i]``: end = start + sum over k of p_ik x_ik; an optional interval per device.
- start, length and ``remote`` (is it made) of each transfer, with optional intervals on the
  channels that it may hold: the output of a and the input of b, 2K and not K(K-1), for ``port``
  and ``half_duplex``; one per ordered pair for ``link``; none for ``free``, where it is a delay.
- ``makespan``.

A transfer is an edge or, with ``per_tensor``, a tensor whose consumers are all of one colocation
group; it goes wherever the consumers are. Another tensor has one transfer per destination.

Redundant rows are what makes bounds useful: the load of each device and channel is at most the
makespan, and so is end + tail of each op. What heads, tails and the horizon exclude (an op on a
device, an edge from a to b) is fixed.
"""

from __future__ import annotations

from collections.abc import Callable

from ortools.sat.python import cp_model

from placegap.formulations.makespan_cp import (
    Expression,
    MakespanModel,
    TransferVars,
    channel_no_overlap,
    forbid_late_moves,
    new_model,
    precedence_delayed,
    precedence_local,
    precedence_remote,
)
from placegap.formulations.shared.cp_families import (
    Term,
    at_most,
    by_device,
    hint_derived,
    memory_capacity,
)
from placegap.formulations.shared.times import serial_horizon_ns
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan, Schedule, Transfer
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.channels import plan_from_times

Values = Callable[[Expression], int]
"""The value of a variable or expression in a solution."""


def build(instance: Instance, semantics: Makespan, horizon_ns: int | None = None) -> MakespanModel:
    """The model of all plans whose makespan is at most the horizon.

    Parameters
    ----------
    instance, semantics
        The problem, of objective makespan.
    horizon_ns : int, optional
        The makespan of a known plan, or of no plan of interest; by default every plan fits.

    Notes
    -----
    O(n K + m K^2) variables and constraints for ``link`` or where transfer times depend on the
    pair, O((n + m) K) otherwise.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from ortools.sat.python import cp_model
    >>> solver = cp_model.CpSolver()
    >>> model = build(example(), Makespan())
    >>> solver.solve(model.cp) == cp_model.OPTIMAL, solver.value(model.makespan) * model.unit_ns
    (True, 34)
    """
    if horizon_ns is None:
        horizon_ns = serial_horizon_ns(instance)
    model = new_model(instance, semantics, horizon_ns)
    assign_once(model)
    model.derived.extend(memory_capacity(model.cp, instance, model.x))
    device_no_overlap(model)
    end_follows_start(model)
    forbid_late_moves(model)
    precedence_local(model)
    if semantics.channels == "free":
        precedence_delayed(model)
    else:
        precedence_remote(model)
        channel_no_overlap(model)
    makespan_covers(model)
    model.cp.minimize(model.makespan)
    return model


def assign_once(model: MakespanModel) -> None:
    """Exactly one of x[i, k] over k, for one op of each colocation group."""
    group = model.instance.arrays.group.tolist()
    for row in {g: model.x[i] for i, g in enumerate(group)}.values():
        model.cp.add_exactly_one(row.values())


def device_no_overlap(model: MakespanModel) -> None:
    """One op at a time on each device, within its window there; its load fits in the makespan."""
    window, unit, cp = model.window, model.unit_ns, model.cp
    for k in range(model.instance.num_devices):
        intervals, load = [], []
        for i, start in enumerate(model.start):
            if k not in model.x[i]:
                continue
            literal, time = model.x[i][k], int(model.time[i, k])
            intervals.append(cp.new_optional_fixed_size_interval_var(start, time, literal, ""))
            load.append(Term(time, literal))
            head, tail = int(window.head_ns[i, k]) // unit, int(window.tail_ns[i, k]) // unit
            if len(model.x[i]) > 1:
                cp.add_linear_constraint(start, head, model.horizon - time - tail).only_enforce_if(
                    literal
                )
        if intervals:
            cp.add_no_overlap(intervals)
            model.derived.extend(at_most(cp, load, model.makespan))


def end_follows_start(model: MakespanModel) -> None:
    """end[i] == start[i] + sum over k of p_ik x[i, k], where p_ik depends on k."""
    for i, end in model.end_variable.items():
        model.cp.add(end == model.start[i] + by_device(model.x[i], model.time[i]))


def makespan_covers(model: MakespanModel) -> None:
    """End[i] + sum over k of tail_ik x[i, k] <= makespan for every op."""
    tail = model.window.tail_ns // model.unit_ns
    for i, end in enumerate(model.end):
        model.cp.add(end + by_device(model.x[i], tail[i]) <= model.makespan)


def warm_start(model: MakespanModel, schedule: Schedule) -> None:
    """Hint every variable to its value in a schedule of at most the horizon; once per model."""
    device, unit, hint = schedule.device.tolist(), model.unit_ns, model.cp.add_hint
    start, end = (schedule.start_ns // unit).tolist(), (schedule.end_ns // unit).tolist()
    group, hinted = model.instance.arrays.group.tolist(), set()
    for i, k in enumerate(device):
        hint(model.start[i], start[i])
        if i in model.end_variable:
            hint(model.end_variable[i], end[i])
        if group[i] not in hinted:
            hinted.add(group[i])
            for there, literal in model.x[i].items():
                hint(literal, int(there == k))
    table = schedule.transfers
    sent = {
        (item, to): (began // unit, ended // unit)
        for item, to, began, ended in zip(
            *(c.tolist() for c in (table.item, table.destination, table.start_ns, table.end_ns)),
            strict=True,
        )
    }
    for move in model.transfers:
        _hint_transfer(model, move, device, end[move.producer], sent)
    hint(model.makespan, schedule.makespan_ns // unit)
    hint_derived(model.cp, model.derived)


def _hint_transfer(
    model: MakespanModel,
    move: TransferVars,
    device: list[int],
    ready: int,
    sent: dict[tuple[int, int], tuple[int, int]],
) -> None:
    hint, a = model.cp.add_hint, device[move.producer]
    targets = [device[j] for j in move.consumers]
    b = targets[0] if move.destination is None else move.destination
    remote = a != b and b in targets
    began, ended = sent[move.item, b] if remote else (ready, ready)
    hint(move.remote, int(remote))
    hint(move.start, began)
    for part, value in ((move.length, ended - began), (move.end, ended)):
        if isinstance(part, cp_model.IntVar):
            hint(part, value)
    for (source, target), literal in move.holds.items():
        if literal is not move.remote:
            hint(literal, int(remote and source in (None, a) and target in (None, b)))


def read_plan(model: MakespanModel, value: Values) -> Plan:
    """The plan, with all its orders, of a solution."""
    device = [next(k for k, literal in row.items() if value(literal)) for row in model.x]
    op_times = [
        (value(start), value(end)) for start, end in zip(model.start, model.end, strict=True)
    ]
    transfers = []
    for move in model.transfers:
        if value(move.remote):
            to = move.destination if move.destination is not None else device[move.consumers[0]]
            transfers.append((Transfer(move.item, to), value(move.start), value(move.end)))
    return plan_from_times(model.instance, model.semantics, device, op_times, transfers)
