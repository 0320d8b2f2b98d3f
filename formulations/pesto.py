"""Pesto's ILP for the makespan under links: build it, start it from a plan, read a plan off it.

After Hafeez, Sun, Gandhi and Liu, "Towards Optimal Placement and Scheduling of DNN Operations with
Pesto" (Middleware 2021). Placement and start times of ops and of transfers, affinities, one op at a
time per device, one transfer at a time per directed link, memory, the makespan as objective.
`placegap.instances.transforms.pesto_merge` coarsens graphs that are too large.

Claim: both forms are exact for ``makespan link per_edge``. The paper's own text is not at hand: the
families of the form as published are those that others cite from it, written out for any number of
devices, with products and big-M (a horizon: no plan of interest takes longer). Every edge
q = (i, j) is a transfer with a start of its own, which takes no time where i and j share a device.
Components:

- ``x[i, k]``: op i is on device k, fixed to 0 where its affinity forbids that;
- ``transfer[q, a, b]``, a != b: edge q goes over the link from device a to device b;
- ``op_start[i]``, ``transfer_start[q]``, ``makespan``: times; ``op_end[i]``, ``transfer_end[q]``
  are expressions;
- ``op_before[i, j]``, i < j: of two ops that no path orders, i runs first;
- ``transfer_before[q, r, a, b]``, q < r: of two transfers that no path orders, q goes first over
  the link from a to b.

The strengthened form has the same plans, fewer rows and a tighter relaxation:

- flow rows in place of linear products: the transfers of an edge lead from the device of its
  producer to the device of its consumer; `transfer` need not be binary for that;
- windows (`windows`), by device and by link: a transfer that no plan of at most the horizon makes
  has no variable, a pair that the windows order on a device or link has no row there, an order that
  they exclude there is not open, and each pair has its own big-M;
- one big-M row per order of a pair, not per device or link: ``op_before[i, j]`` and
  ``transfer_before[q, r]`` are on ordered pairs, the first ends before the second starts;
- work rows: no device and no link is busy for longer than the makespan;
- head and tail rows: the device-indexed critical paths into and out of an op.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Literal, get_args

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.moirai.old_published import device_no_overlap
from placegap.formulations.moirai.old_strengthened import critical_path, device_work
from placegap.formulations.shared.naming import by_number, describe, names_of
from placegap.formulations.shared.old_families import (
    Linear,
    assign_once,
    colocate_ops,
    memory_capacity,
    place_ops,
    placement,
    set_placement,
)
from placegap.formulations.shared.pairs import (
    Ends,
    PairSolution,
    count_unordered_pairs,
    edge_ends,
    flow_reach,
    op_reach,
    plan_in_order,
    spans_ns,
    unordered_pairs,
)
from placegap.formulations.shared.times import ScaledTimes, Windows, scale_times, windows
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.objectives.makespan.simulate import simulate
from placegap.instances.problem import Instance, Makespan, Plan, Semantics
from placegap.instances.reading.errors import look_up

Form = Literal["as_published", "strengthened"]


Arc = tuple[int, int]


SEMANTICS = Makespan(channels="link", transfers="per_edge")
"""The only semantics the model states."""


def build(
    instance: Instance,
    semantics: Makespan,
    form: Form = "strengthened",
    horizon_ns: int | None = None,
    names: bool = False,
) -> pyo.ConcreteModel:
    """Pesto's ILP of an instance.

    Parameters
    ----------
    instance : Instance
    semantics : Makespan
        ``makespan link per_edge``; the model states no other.
    form : {"strengthened", "as_published"}
    horizon_ns : int, optional
        Only plans of at most this makespan matter: the value of a known plan, for instance. The
        default is a time by which every plan can end. All optima stay in the model as long as the
        horizon is not below the optimum.
    names : bool
        Index the components by the names of ops and devices, not by their numbers.

    Returns
    -------
    ConcreteModel
        Minimizes ``makespan``, in units of ``unit_ns`` nanoseconds. Constraints can be added.

    Raises
    ------
    ValueError
        Another semantics or form.

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build(example(), SEMANTICS)
    >>> len(model.x), len(model.transfer), len(model.op_before), pyo.value(model.unit_ns)
    (8, 8, 2, 1.0)
    """
    look_up("form", form, dict.fromkeys(get_args(Form)))
    reason = why_not(semantics)
    if reason is not None:
        raise ValueError(f"Pesto's model {reason}")
    horizon = instance.arrays.serial_horizon_ns if horizon_ns is None else horizon_ns
    chosen = build_published if form == "as_published" else build_strengthened
    model = chosen(instance, horizon)
    return describe(model, __doc__, names_of(instance) if names else None)


def why_not(semantics: Semantics) -> str | None:
    """Why the model does not state a semantics, or None if it does."""
    if semantics != SEMANTICS:
        return f"states {SEMANTICS.label}, not {semantics.label}"
    return None


def count_rows(instance: Instance, form: Form) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside; O(m^2 / 64)."""
    index, n, k = instance.arrays.index, instance.num_ops, instance.num_devices
    m, links = len(index.producer), k * (k - 1)
    op_pairs = count_unordered_pairs(op_reach(index)[1])
    edge_pairs = count_unordered_pairs(flow_reach(index)[1])
    if form == "as_published":
        return 2 * n + 2 * m + 3 * links * m + 2 * k * op_pairs + 2 * links * edge_pairs
    return 3 * n + (2 + 2 * k) * m + k + links + (2 + k) * op_pairs + (2 + links) * edge_pairs


# ------------------------------------------------------------------------------------- as published


def build_published(instance: Instance, horizon_ns: int) -> pyo.ConcreteModel:
    """The plain model; see `pesto.build`."""
    ends, times = edge_ends(instance), scale_times(instance, horizon_ns)
    model = pyo.ConcreteModel(name=f"pesto as published: {instance.name}")
    model.unit_ns = pyo.Param(initialize=times.unit_ns)
    place_ops(model, instance.arrays.able)
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
    model.objective = pyo.Objective(expr=model.makespan, doc="Pesto: the makespan")
    return model


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
    """Pesto, durations: op_end[i] = op_start[i] + sum over k of p_ik x[i, k]; transfer_end[q]
    likewise.

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


def precedence_transfers(model: pyo.ConcreteModel, ends: Ends) -> None:
    """Pesto, precedence: op_end[i] <= transfer_start[q], transfer_end[q] <= op_start[j] for every
    q = (i, j).
    """

    @model.Constraint(range(len(ends)))
    def precedence_producer(model: pyo.ConcreteModel, q: int) -> Linear:
        return model.op_end[ends[q][0]] <= model.transfer_start[q]

    @model.Constraint(range(len(ends)))
    def precedence_consumer(model: pyo.ConcreteModel, q: int) -> Linear:
        return model.transfer_end[q] <= model.op_start[ends[q][1]]


def makespan_covers(model: pyo.ConcreteModel) -> None:
    """Pesto, completion of the graph: makespan >= op_end[i]."""

    @model.Constraint(model.op_start.index_set())
    def makespan_covers(model: pyo.ConcreteModel, i: int) -> Linear:
        return model.makespan >= model.op_end[i]


def transfer_choice(model: pyo.ConcreteModel, ends: Ends) -> None:
    """Pesto, linear products: transfer[q, a, b] == x[i, a] x[j, b], every q = (i, j) and a != b.

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
    """Pesto, one transfer per link: of two that no path orders, both over the link l = (a, b), one
    goes first.

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


# ------------------------------------------------------------------------------------- strengthened


def build_strengthened(instance: Instance, horizon_ns: int) -> pyo.ConcreteModel:
    """The strengthened model; see `pesto.build`."""
    index, ends = instance.arrays.index, edge_ends(instance)
    window, times = windows(instance, horizon_ns), scale_times(instance, horizon_ns)
    edges = edge_slots(instance, window, horizon_ns)
    model = pyo.ConcreteModel(name=f"pesto strengthened: {instance.name}")
    model.unit_ns = pyo.Param(initialize=times.unit_ns)
    place_ops(model, window.possible)
    possible_transfers(model, edges, instance.num_devices)
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
    device_open_pairs(model, op_pairs)
    edge_pairs = compete(edges, unordered_pairs(*flow_reach(index)))
    link_open_pairs(model, edge_pairs, instance.num_devices)
    model.objective = pyo.Objective(expr=model.makespan, doc="Pesto: the makespan")
    return model


def possible_transfers(model: pyo.ConcreteModel, edges: Slots, num_devices: int) -> None:
    """``transfer[q, a, b]`` in [0, 1] for the links an edge can take; integral where x is."""
    where = ((q, *divmod(place, num_devices)) for q, place in np.argwhere(edges.possible).tolist())
    model.transfer = pyo.Var([(q, a, b) for q, a, b in where if a != b], bounds=(0, 1))


def transfer_flow(model: pyo.ConcreteModel, ends: Ends, edges: Slots, num_devices: int) -> None:
    """Pesto, products as flow: the transfers of q = (i, j) lead from the device of i to that of j.

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
    """Placegap's own: sum over q of p_qab transfer[q, a, b] <= makespan for every link (a, b)."""
    work: dict[tuple[int, int], list[Linear]] = {}
    for (q, a, b), transfer in model.transfer.items():
        if times.move[q][a][b]:
            work.setdefault((a, b), []).append(times.move[q][a][b] * transfer)

    @model.Constraint(sorted(work))
    def link_work(model: pyo.ConcreteModel, a: int, b: int) -> Linear:
        return sum(work[a, b]) <= model.makespan


def device_open_pairs(model: pyo.ConcreteModel, pairs: Pairs) -> None:
    """Pesto, one op per device: of two ops on one device, one starts after the other ends.

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


def link_open_pairs(model: pyo.ConcreteModel, pairs: Pairs, num_devices: int) -> None:
    """Pesto, one transfer per link: of two transfers over one link, one starts after the other
    ends.

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


# --------------------------------------------------------------- which pairs the windows leave open


@dataclass(frozen=True)
class Slots:
    """Windows of v items (ops or edges) at each of p places (devices or links), in ns."""

    #: (v, p) bool: Whether a plan of at most the horizon may have the item there.
    possible: Flags
    #: earliest_ns, latest_ns, duration_ns: (v, p) int64: Earliest start, latest end and duration
    #: there; without meaning where it is not possible.
    earliest_ns: Ints
    latest_ns: Ints
    duration_ns: Ints


@dataclass(frozen=True)
class Pairs:
    """Pairs of items that may be at one place in an order that the model must decide."""

    #: (i, j, place)
    shared: list[tuple[int, int, int]]
    #: (i, j): Item i can end before j starts, at some place that they share.
    orders: list[tuple[int, int]]
    #: (i, j, place): Item i can end before j starts there.
    open_at: frozenset[tuple[int, int, int]]
    #: (i, j): Largest end of i - start of j.
    slack_ns: dict[tuple[int, int], int]


def op_slots(instance: Instance, window: Windows, horizon_ns: int) -> Slots:
    """Windows of the ops; places are devices."""
    latest_ns = horizon_ns - window.tail_ns
    return Slots(window.possible, window.head_ns, latest_ns, instance.arrays.time_ns)


def edge_slots(instance: Instance, window: Windows, horizon_ns: int) -> Slots:
    """Windows of the edges; place a * K + b is the link from a to b.

    Places a * K + a are kept for edges that stay on device a. O(m K^2).
    """
    arrays, k = instance.arrays, instance.num_devices
    index = arrays.index
    until, since = window.head_ns + arrays.time_ns, window.tail_ns + arrays.time_ns
    i, j = index.producer, index.consumer
    move = arrays.transfer_ns[index.tensor][:, arrays.link_class]
    earliest = np.broadcast_to(until[i][:, :, None], move.shape)
    latest = np.broadcast_to(horizon_ns - since[j][:, None, :], move.shape)
    possible = window.possible[i][:, :, None] & window.possible[j][:, None, :]
    possible = possible & (earliest + move <= latest)
    at = (len(i), k * k)
    return Slots(possible.reshape(at), earliest.reshape(at), latest.reshape(at), move.reshape(at))


def compete(slots: Slots, unordered: Iterator[tuple[int, int]]) -> Pairs:
    """The pairs whose order is to be decided, and the orders that are open.

    Places are left out where both items take no time, where the windows order them, and (in
    `edge_slots`) where an edge stays on a device. O(pairs * places).
    """
    pairs = np.array(list(unordered), np.int64).reshape(-1, 2)
    i, j = pairs.T
    early, late, time = slots.earliest_ns, slots.latest_ns, slots.duration_ns
    both = slots.possible[i] & slots.possible[j] & (time[i] + time[j] > 0)
    both &= (late[i] > early[j]) & (late[j] > early[i])
    forth = both & (early[i] + time[i] + time[j] <= late[j])
    back = both & (early[j] + time[j] + time[i] <= late[i])
    first = np.where(slots.possible, early, np.iinfo(np.int64).max).min(axis=1).tolist()
    last = np.where(slots.possible, late, np.iinfo(np.int64).min).max(axis=1).tolist()

    def triples(where: Flags, one: Ints, two: Ints) -> list[tuple[int, int, int]]:
        at, place = np.nonzero(where)
        return list(zip(one[at].tolist(), two[at].tolist(), place.tolist(), strict=True))

    ahead = triples(forth, i, j) + triples(back, j, i)
    orders = sorted({(before, after) for before, after, _ in ahead})
    slack = {(before, after): last[before] - first[after] for before, after in orders}
    return Pairs(triples(both, i, j), orders, frozenset(ahead), slack)


# ------------------------------------------------------------------------------------ plans in, out


@by_number
def warm_start(model: pyo.ConcreteModel, instance: Instance, plan: Plan) -> None:
    """Set the values of all variables to those of a plan's schedule.

    Parameters
    ----------
    model : ConcreteModel
        From `build`, of either form, with a horizon not below the plan's makespan.
    instance : Instance
    plan : Plan
        A feasible plan.
    """
    schedule = simulate(instance, plan, SEMANTICS)
    ends, device = edge_ends(instance), schedule.device.tolist()
    ops, moves = spans_ns(instance, schedule)
    set_placement(model, plan)
    unit_ns = pyo.value(model.unit_ns)
    model.makespan.set_value(schedule.makespan_ns / unit_ns)
    for starts, before, spans in (
        (model.op_start, model.op_before, ops),
        (model.transfer_start, model.transfer_before, moves),
    ):
        for i, (start, _) in enumerate(spans):
            starts[i].set_value(start / unit_ns)
        for (i, j, *_), variable in before.items():
            variable.set_value(int(spans[i][1] <= spans[j][0]))
    for (q, a, b), variable in model.transfer.items():
        variable.set_value(int((device[ends[q][0]], device[ends[q][1]]) == (a, b)))


@by_number
def extract(model: pyo.ConcreteModel, instance: Instance) -> Plan:
    """The plan that the values of a model's variables describe; see `plan_in_order`."""
    ends, device = edge_ends(instance), placement(model, instance.num_ops)
    link = {q: (device[i], device[j]) for q, (i, j) in enumerate(ends) if device[i] != device[j]}
    found = PairSolution(
        device,
        [pyo.value(start) for start in model.op_start.values()],
        [pyo.value(start) for start in model.transfer_start.values()],
        pyo.value(model.unit_ns),
        _decided(model, "op", dict(enumerate(device))),
        _decided(model, "transfer", link),
    )
    return plan_in_order(instance, SEMANTICS, found)


def _decided(model: pyo.ConcreteModel, what: str, place: Mapping[int, Hashable]) -> list[Arc]:
    """Pairs (first, second) of ops or transfers at one place, as decided.

    The published form has one variable for both orders of a pair, and for transfers one per link;
    the strengthened form leaves pairs open that the windows order at their place.
    """
    both_ways = model.component("transfer_joins") is None
    before, found = model.component(f"{what}_before"), []
    for (i, j, *link), variable in before.items():
        if i not in place or place[i] != place.get(j) or (link and tuple(link) != place[i]):
            continue
        first = round(variable.value) == 1
        if not both_ways:
            found.append((i, j) if first else (j, i))
        elif first and not ((j, i) in before and round(before[j, i].value) == 1):
            found.append((i, j))
    return found
