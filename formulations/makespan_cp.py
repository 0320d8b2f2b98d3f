"""Makespan as a constraint program for CP-SAT: every channel model, both transfer models. Exact.

Channels and transfers are those of the semantics: ``port`` with ``per_edge`` is the problem of
Moirai's MILP (its equations 4 to 8); ``free``, ``link`` and ``half_duplex`` are the models of HEFT,
of Pesto and of one port per device.

Variables (`MakespanModel`), for ops i, devices k and transfers r, times in units:

- ``x[i][k]``: op i is on device k; one literal per colocation group.
- ``start[i]``, ``end[i]``: end = start + sum over k of p_ik x_ik; an optional interval per device.
- start, length and ``remote`` (whether it is made) of each transfer, with optional intervals on the
  channels that it may hold: the output of a and the input of b, 2K and not K(K-1), for ``port``
  and ``half_duplex``; one per ordered pair for ``link``; none for ``free``, where it is a delay.
- ``makespan``.

A transfer is an edge or, with ``per_tensor``, a tensor whose consumers are all of one colocation
group; it goes wherever the consumers are. Another tensor has one transfer per destination.

Bounds come from redundant rows: the load of each device and channel is at most the makespan, and so
is end + tail of each op. Literals that heads, tails and the horizon exclude (an op on a device, an
edge from a to b) are left out or fixed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from placegap.formulations.shared import require_makespan
from placegap.formulations.shared.cp_families import (
    MOST_UNITS,
    CpModel,
    Expression,
    Literal,
    Term,
    at_most,
    by_device,
    hint_derived,
    largest_spread,
    memory_capacity,
    placed,
    require_solution,
)
from placegap.formulations.shared.devices import canonical, first_uses, representative_devices
from placegap.formulations.shared.or_tools import cp_model
from placegap.formulations.shared.pairs import edge_ends, tensor_edges
from placegap.formulations.shared.times import (
    LARGEST_HORIZON_NS,
    Windows,
    granularity_ns,
    moves_in_time,
    windows,
)
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.objectives.makespan.simulate import simulate
from placegap.instances.problem import Instance, Makespan, Plan, Transfer
from placegap.instances.problem.integers import ceil_div
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.channels import channels_of, plan_from_times


@dataclass(frozen=True)
class TransferVars:
    """A transfer that the plan may need."""

    #: The edge (per_edge) or tensor (per_tensor).
    item: int
    producer: int
    consumers: tuple[int, ...]
    #: The receiving device; None: that of the consumers, which share one.
    destination: int | None
    #: Whether the transfer is made.
    remote: Literal
    start: cp_model.IntVar
    #: An integer if it takes the same time wherever it is made.
    length: cp_model.IntVar | int
    #: Its arrival; the same as its start if it is not made.
    end: Expression
    #: Whether it is made from that device, or to that device, or between the two.
    holds: dict[tuple[int | None, int | None], Literal] = field(default_factory=dict)


@dataclass(kw_only=True)
class MakespanModel(CpModel):
    """The constraint program of an instance with n ops and K devices."""

    semantics: Makespan
    #: Whether only one of the placements that differ in the names of identical devices is kept.
    symmetry: bool
    #: Devices and times possible for each op, in ns.
    window: Windows
    #: (n, K) int64: Times of ops in units.
    time: Ints
    #: Literals of the devices possible for each op. Ops of a colocation group share theirs.
    x: list[dict[int, Literal]]
    start: list[cp_model.IntVar]
    end: list[Expression]
    #: Ends of the ops whose time depends on the device.
    end_variable: dict[int, cp_model.IntVar]
    #: (K, K): Which pairs of devices an edge may join (`times.moves_in_time`).
    moves_in_time: list[Flags]
    transfers: list[TransferVars] = field(default_factory=list)
    on_channel: dict[int, list[tuple[cp_model.IntervalVar, int, Literal]]] = field(
        default_factory=dict
    )

    @property
    def makespan(self) -> cp_model.IntVar:
        """The latest end, in units."""
        return self.objective

    @property
    def makespan_ns(self) -> cp_model.LinearExpr:
        """The latest end in nanoseconds."""
        return self.unit_ns * self.objective

    @property
    def horizon(self) -> int:
        """The horizon in units."""
        return self.horizon_ns // self.unit_ns

    def moves(self, tensor: int) -> list[list[int]]:
        """Time of a tensor from device to device, (K, K), in units."""
        arrays = self.instance.arrays
        table: list[list[int]] = (
            arrays.transfer_ns[tensor][arrays.link_class] // self.unit_ns
        ).tolist()
        return table


def build(
    instance: Instance,
    semantics: Makespan,
    *,
    horizon_ns: int | None = None,
    symmetry: bool = False,
) -> MakespanModel:
    """The model of all plans whose makespan is at most the horizon.

    Parameters
    ----------
    instance, semantics
        The problem, of objective makespan; of another one, an InputError.
    horizon_ns : int, optional
        The makespan of a known plan, or of no plan of interest; by default every plan fits.
    symmetry : bool
        Of placements that differ in the names of identical devices, keep one. It is wrong beside
        constraints of your own that name devices.

    Notes
    -----
    O(n K + m K^2) variables and constraints for ``link`` or where transfer times depend on the
    pair, O((n + m) K) otherwise.

    Examples
    --------
    >>> from placegap.instances import evaluate, example
    >>> from ortools.sat.python import cp_model
    >>> solver = cp_model.CpSolver()
    >>> model = build(example(), Makespan())
    >>> model.solve(solver) == cp_model.OPTIMAL, solver.value(model.makespan_ns)
    (True, 34)
    >>> evaluate(example(), extract(model, example()), Makespan()).value_ns
    34
    """
    require_makespan("the makespan model for CP-SAT", semantics)
    if horizon_ns is None:
        horizon_ns = instance.arrays.serial_horizon_ns
    model = new_model(instance, semantics, horizon_ns, symmetry=symmetry)
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
    if symmetry:
        symmetry_order(model)
    return model


# ---------------------------------------------------------------------------------------- variables


def new_model(
    instance: Instance, semantics: Makespan, horizon_ns: int, *, symmetry: bool
) -> MakespanModel:
    """The variables of ops and the makespan, without constraints."""
    # Rounding down keeps every bound valid: floor(time / unit) of a feasible schedule satisfies
    # each precedence, each no-overlap and each window of the rounded model. The unit keeps every
    # row that the horizon allows within `shared.cp_families.LARGEST_ACTIVITY`.
    if horizon_ns > LARGEST_HORIZON_NS:
        raise InputError(f"a horizon of {horizon_ns} ns is above 2**59")
    granularity = granularity_ns(instance, transfers=True)
    window = windows(instance, horizon_ns)
    in_time = moves_in_time(instance, window, horizon_ns)
    longest = _longest_row_ns(instance, window, in_time, horizon_ns)
    unit = max(granularity, ceil_div(longest, MOST_UNITS))
    cp, horizon = cp_model.CpModel(), horizon_ns // unit
    time = instance.arrays.time_ns // unit
    x = _placement_literals(cp, instance, window.possible)
    start: list[cp_model.IntVar] = []
    end: list[Expression] = []
    end_variable: dict[int, cp_model.IntVar] = {}
    for i in range(instance.num_ops):
        on = np.flatnonzero(window.possible[i])
        durations = time[i, on]
        latest = horizon - durations - window.tail_ns[i, on] // unit
        low, high = (window.head_ns[i, on] // unit).min(initial=horizon), latest.max(initial=0)
        # Without any device there is no plan, which `assign_once` states; the range stays valid.
        start.append(cp.new_int_var(int(min(low, high)), int(high), f"s{i}"))
        if len(set(durations.tolist())) == 1:
            end.append(start[i] + int(durations[0]))
        else:
            end_variable[i] = cp.new_int_var(0, horizon, f"e{i}")
            end.append(end_variable[i])
    return MakespanModel(
        cp=cp,
        instance=instance,
        semantics=semantics,
        horizon_ns=horizon_ns,
        unit_ns=unit,
        exact=unit == granularity,
        objective=cp.new_int_var(0, horizon, "makespan"),
        symmetry=symmetry,
        window=window,
        time=time,
        x=x,
        start=start,
        end=end,
        end_variable=end_variable,
        moves_in_time=in_time,
    )


def _longest_row_ns(
    instance: Instance, window: Windows, in_time: list[Flags], horizon_ns: int
) -> int:
    """An upper bound on the sum of a row: the horizon and the terms that depend on devices."""
    arrays, index = instance.arrays, instance.arrays.index
    beside = [largest_spread(table, window.possible) for table in (arrays.time_ns, window.tail_ns)]
    of_tensor: dict[int, Flags] = {}
    for u, may in zip(index.tensor.tolist(), in_time, strict=True):
        of_tensor[u] = of_tensor[u] | may if u in of_tensor else may
    for u, may in of_tensor.items():
        # to device b: the times from all devices are terms of one row
        move = np.where(may, arrays.transfer_ns[u][arrays.link_class], 0)
        beside.append(max(map(sum, zip(*move.tolist(), strict=True))))
    return horizon_ns + max(beside)


def _placement_literals(
    cp: cp_model.CpModel, instance: Instance, possible: Flags
) -> list[dict[int, Literal]]:
    of_group: dict[int, dict[int, Literal]] = {}
    for i, g in enumerate(instance.arrays.group.tolist()):
        if g not in of_group:
            on = np.flatnonzero(possible[i]).tolist()
            of_group[g] = {k: cp.new_bool_var(f"x{i},{k}") for k in on}
    return [of_group[g] for g in instance.arrays.group.tolist()]


# ---------------------------------------------------------------------------------------------- ops


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


def symmetry_order(model: MakespanModel) -> None:
    """The clauses of `first_uses`: identical devices come into use by their numbers."""
    instance, x, possible = model.instance, model.x, model.window.possible
    kept = representative_devices(instance, possible)
    for i, row in enumerate(x):
        for k, literal in row.items():
            if not kept[i, k]:
                model.cp.add(literal == 0)
    for use in first_uses(instance, possible):
        earlier = [x[i][use.earlier_device] for i in use.earlier_ops if use.earlier_device in x[i]]
        for k in use.devices:
            if k in x[use.op]:
                model.cp.add_bool_or([x[use.op][k].negated(), *earlier])


# ---------------------------------------------------------------------------------------- transfers


def forbid_late_moves(model: MakespanModel) -> None:
    """No x[i, a] and x[j, b] together if edge (i, j) would exceed the horizon (`moves_in_time`)."""
    possible = model.window.possible
    for e, (i, j) in enumerate(edge_ends(model.instance)):
        may = possible[i][:, None] & possible[j][None, :]
        for a, b in np.argwhere(may & ~model.moves_in_time[e]).tolist():
            model.cp.add_bool_or([model.x[i][a].negated(), model.x[j][b].negated()])


def precedence_local(model: MakespanModel) -> None:
    """start[j] >= end[i] for every edge (i, j)."""
    for i, j in edge_ends(model.instance):
        model.cp.add(model.start[j] >= model.end[i])


def precedence_delayed(model: MakespanModel) -> None:
    """Free channels: start[j] >= end[i] + T_ab if x[i, a] and x[j, b], for every edge (i, j)."""
    for e, (i, j, u) in enumerate(tensor_edges(model.instance)):
        moves = model.moves(u)
        for a, b in np.argwhere(model.moves_in_time[e]).tolist():
            if moves[a][b] > 0:
                model.cp.add(model.start[j] >= model.end[i] + moves[a][b]).only_enforce_if(
                    model.x[i][a], model.x[j][b]
                )


def precedence_remote(model: MakespanModel) -> None:
    """Channels that serve one at a time: a transfer between each producer and its consumers."""
    # Consumers of one colocation group share a device, so one transfer serves them wherever it is:
    # far fewer variables than one transfer per destination.
    index, group = model.instance.arrays.index, model.instance.arrays.group.tolist()
    producer, consumer = index.producer.tolist(), index.consumer.tolist()
    if model.semantics.transfers == "per_edge":
        carriers = [(q, [q]) for q in range(len(producer))]
    else:
        carriers = [
            (u, index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]].tolist())
            for u in range(len(index.tensor_producer))
        ]
    for item, edges in carriers:
        away = [e for e in edges if group[producer[e]] != group[consumer[e]]]
        if len({group[consumer[e]] for e in away}) == 1:
            _transfer_to_ops(model, item, away)
        elif away:
            for b in range(model.instance.num_devices):
                _transfer_to_device(model, item, away, b)


def channel_no_overlap(model: MakespanModel) -> None:
    """Every channel serves one transfer at a time, and is busy for at most the makespan."""
    for uses in model.on_channel.values():
        if len(uses) > 1:
            model.cp.add_no_overlap([interval for interval, _, _ in uses])
            terms = [Term(least, literal) for _, least, literal in uses]
            model.derived.extend(at_most(model.cp, terms, model.makespan))


def _transfer_to_ops(model: MakespanModel, item: int, edges: list[int]) -> None:
    """A transfer to where the consumers are, all on one device; none if the producer is there."""
    # remote = 1 iff no device k has x[i, k] and x[j, k].
    index, cp, x = model.instance.arrays.index, model.cp, model.x
    i, consumers = int(index.producer[edges[0]]), index.consumer[edges].tolist()
    j, moves = consumers[0], model.moves(int(index.tensor[edges[0]]))
    may = np.logical_and.reduce([model.moves_in_time[e] for e in edges])
    times = {(a, b): moves[a][b] for a, b in np.argwhere(may).tolist() if a != b}
    if not times:
        return
    remote = cp.new_bool_var(f"r{item}")
    for k in sorted({*x[i], *x[j]}):
        if k in x[i] and k in x[j]:
            here, there = x[i][k], x[j][k]
            cp.add_bool_or([here.negated(), there.negated(), remote.negated()])
            cp.add_bool_or([here.negated(), there, remote])
            cp.add_bool_or([here, there.negated(), remote])
        else:
            cp.add_implication(x[i][k] if k in x[i] else x[j][k], remote)
    made = _new_transfer(model, item, i, tuple(consumers), None, remote, set(times.values()))
    if not isinstance(made.length, int):
        cp.add(made.length == 0).only_enforce_if(remote.negated())
        for (a, b), time in times.items():
            cp.add(made.length == time).only_enforce_if(x[i][a], x[j][b])
    for op in consumers:
        cp.add(model.start[op] >= made.end)
    if model.semantics.channels == "link":
        for (a, b), time in times.items():
            _hold(model, made, (a, b), _both(model, x[i][a], x[j][b]), {time})
        return
    for a in sorted({a for a, _ in times}):
        lengths = {time for (source, _), time in times.items() if source == a}
        _hold(model, made, (a, None), _both(model, x[i][a], remote), lengths)
    for b in sorted({b for _, b in times}):
        lengths = {time for (_, target), time in times.items() if target == b}
        _hold(model, made, (None, b), _both(model, x[j][b], remote), lengths)


def _transfer_to_device(
    model: MakespanModel, tensor: int, edges: list[int], destination: int
) -> None:
    """The one transfer of a tensor to a device: made iff a consumer is there, its producer not."""
    index, cp, x, b = model.instance.arrays.index, model.cp, model.x, destination
    i = int(index.producer[edges[0]])
    consumers = [j for j in index.consumer[edges].tolist() if b in x[j]]
    may = np.logical_or.reduce([model.moves_in_time[e][:, b] for e in edges])
    moves = model.moves(tensor)
    times = {a: moves[a][b] for a in np.flatnonzero(may).tolist() if a != b}
    if not times:
        return
    remote = cp.new_bool_var(f"r{tensor},{b}")
    cp.add_bool_or([remote.negated(), *(x[j][b] for j in consumers)])
    for j in consumers:
        cp.add_bool_or([x[j][b].negated(), remote, *([x[i][b]] if b in x[i] else [])])
    if b in x[i]:
        cp.add_implication(remote, x[i][b].negated())
    made = _new_transfer(model, tensor, i, tuple(consumers), b, remote, set(times.values()))
    leaves = {a: _both(model, x[i][a], remote) for a in times}
    if not isinstance(made.length, int):
        cp.add(made.length == sum(time * leaves[a] for a, time in times.items()))
    for j in consumers:
        cp.add(model.start[j] >= made.end).only_enforce_if(remote, x[j][b])
    link = model.semantics.channels == "link"
    for a, time in times.items():
        _hold(model, made, (a, b if link else None), leaves[a], {time})
    if not link:
        _hold(model, made, (None, b), remote, set(times.values()))


def _new_transfer(
    model: MakespanModel,
    item: int,
    producer: int,
    consumers: tuple[int, ...],
    destination: int | None,
    remote: Literal,
    lengths: set[int],
) -> TransferVars:
    """Start and length of a transfer, which leaves after its producer has ended."""
    cp, horizon = model.cp, model.horizon
    start = cp.new_int_var(0, horizon, f"t{item}")
    cp.add(start >= model.end[producer])
    longest = max(lengths)
    length: Literal | int = longest
    end: Expression = start + longest * remote
    if len(lengths) > 1:
        length, end = cp.new_int_var(0, longest, ""), cp.new_int_var(0, horizon, "")
        cp.add(end == start + length)
    made = TransferVars(item, producer, consumers, destination, remote, start, length, end)
    model.transfers.append(made)
    return made


def _hold(
    model: MakespanModel,
    made: TransferVars,
    ends: tuple[int | None, int | None],
    literal: Literal,
    lengths: set[int],
) -> None:
    """Occupy the channel of a sender, of a receiver, or of both, while the literal is true."""
    source, target = ends
    channel = channels_of(
        model.semantics.channels, model.instance.num_devices, source or 0, target or 0
    )[source is None]
    least = min(lengths)
    if len(lengths) == 1:
        interval = model.cp.new_optional_fixed_size_interval_var(made.start, least, literal, "")
    else:
        interval = model.cp.new_optional_interval_var(
            made.start, made.length, made.end, literal, ""
        )
    made.holds[ends] = literal
    model.on_channel.setdefault(channel, []).append((interval, least, literal))


def _both(model: MakespanModel, p: Literal, q: Literal) -> Literal:
    """A literal that is p and q."""
    both = model.cp.new_bool_var("")
    model.cp.add_implication(both, p)
    model.cp.add_implication(both, q)
    model.cp.add_bool_or([p.negated(), q.negated(), both])
    return both


# ------------------------------------------------------------------------------------ plans in, out


def warm_start(model: MakespanModel, instance: Instance, plan: Plan) -> None:
    """Hint every variable to its value in a plan of at most the horizon; once per model.

    With symmetry breaking, the plan is its representative.
    """
    if model.symmetry:
        plan = canonical(instance, plan, model.semantics)
    schedule = simulate(instance, plan, model.semantics)
    device, unit, hint = schedule.device.tolist(), model.unit_ns, model.cp.add_hint
    start, end = (schedule.start_ns // unit).tolist(), (schedule.end_ns // unit).tolist()
    group, hinted = instance.arrays.group.tolist(), set()
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


def extract(model: MakespanModel, instance: Instance) -> Plan:
    """The plan, with its orders, that `CpModel.solve` has found; else an InputError."""
    value = require_solution(model, instance)
    device = placed(model.x, value)
    op_times = [
        (value(start), value(end)) for start, end in zip(model.start, model.end, strict=True)
    ]
    transfers = []
    for move in model.transfers:
        if value(move.remote):
            to = move.destination if move.destination is not None else device[move.consumers[0]]
            transfers.append((Transfer(move.item, to), value(move.start), value(move.end)))
    return plan_from_times(instance, model.semantics, device, op_times, transfers)
