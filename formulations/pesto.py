"""Pesto's ILP for the makespan under links: build it, start it from a plan, read a plan off it.

After Hafeez, Sun, Gandhi and Liu, "Towards Optimal Placement and Scheduling of DNN Operations with
Pesto" (Middleware 2021). `placegap.instances.transforms.pesto_merge` coarsens graphs that are too
large. The model, H being the horizon and y_qab ``route[q, a, b]``, a != b:

    minimize T
    T >= C_i,  C_i <= S_q,  C_q <= S_j                      q = (i, j)
    C_i = S_i + sum over k of p_ik x_ik;  C_q = S_q + sum over a, b of p_qab y_qab
    sum over k of x_ik = 1;  sum over i of m_i x_ik <= M_k;  y_qab = x_ia x_jb, made linear
    S_j >= C_i - H (3 - d_ij - x_ik - x_jk)                 and with i, j exchanged
    S_r >= C_q - H (3 - d_qrab - y_qab - y_rab)             and with q, r exchanged

Claim: both forms are exact for ``makespan link per_edge``. The paper's own text is not at hand: the
families of the form as published are those that others cite from it, written out for any number of
devices, with products and big-M (a horizon: no plan of interest takes longer). Every edge
q = (i, j) is a flow with a start of its own, which takes no time where i and j share a device.
``op_before`` and ``flow_before`` are d, on pairs that no path orders: the first goes first, of two
flows over the link from a to b. p is ``duration_ns`` and ``transfer_ns``, which may be changed.

The strengthened form has the same plans, fewer rows and a tighter relaxation:

- flow rows in place of linear products: the routes of an edge lead from the device of its producer
  to the device of its consumer; `route` need not be binary for that;
- windows (`windows`), by device and by link: a transfer that no plan of at most the horizon makes
  has no variable, a pair that the windows order on a device or link has no row there, an order that
  they exclude there is not open, and each pair has its own big-M; so times may only grow;
- one big-M row per order of a pair, not per device or link: ``op_before[i, j]`` and
  ``flow_before[q, r]`` are on ordered pairs, the first ends before the second starts;
- work rows: no device and no link is busy for longer than the makespan;
- head and tail rows: the device-indexed critical paths into and out of an op.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.moirai import published, strengthened, warm_start
from placegap.formulations.shared import families, refuse
from placegap.formulations.shared.data import (
    device_numbers,
    duration_data,
    family,
    model_of_flows,
    names_of,
    require_solution,
    transfer_data,
    window_data,
)
from placegap.formulations.shared.families import Linear
from placegap.formulations.shared.pairs import (
    PairSolution,
    count_unordered_pairs,
    flow_reach,
    op_reach,
    plan_in_order,
    unordered_pairs,
)
from placegap.formulations.shared.times import Windows, windows
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance, Makespan, Plan, Semantics
from placegap.instances.reading.errors import InputError, look_up

__all__ = ["SEMANTICS", "Form", "build", "count_rows", "extract", "warm_start", "why_not"]
Form = Literal["as_published", "strengthened"]
SEMANTICS = Makespan(channels="link", transfers="per_edge")  # the only semantics the model states


def build(
    instance: Instance,
    semantics: Makespan,
    *,
    form: Form = "strengthened",
    horizon_ns: int | None = None,
    symmetry: bool = False,
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
    symmetry : bool
        Refused: neither form breaks symmetry.

    Returns
    -------
    ConcreteModel
        Minimizes ``makespan``, in units of ``unit_ns`` nanoseconds; ``makespan_ns`` is its value in
        nanoseconds. ``duration_ns[op, device]``, ``transfer_ns[edge, a, b]`` and
        ``capacity_bytes[device]`` may be changed between solves. Constraints can be added.

    Raises
    ------
    InputError
        Another semantics or form, or symmetry.

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build(example(), SEMANTICS)
    >>> len(model.x), len(model.route), len(model.op_before), model.duration_ns["op2", "gpu0"].value
    (8, 8, 2, 20)
    """
    look_up("form", form, dict.fromkeys(get_args(Form)))
    refuse("Pesto's model", why_not(semantics))
    if symmetry:
        raise InputError(f"Pesto's model, form={form}, has no symmetry")
    horizon = instance.arrays.serial_horizon_ns if horizon_ns is None else horizon_ns
    model = model_of_flows(f"pesto {form.replace('_', ' ')}", instance, semantics, horizon)
    if form == "strengthened":
        _add_strengthened(model, instance, horizon)
    else:
        _add_published(model, instance)
    families.makespan_value(model, "Pesto: the makespan")
    return model


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


def _add_published(model: pyo.ConcreteModel, instance: Instance) -> None:
    """The plain model; see `pesto.build`."""
    duration_data(model, instance)
    transfer_data(model, instance)
    published.order_sets(model, instance)
    families.place_ops(model, instance.arrays.able)
    strengthened.time_variables(model)
    choice_variables(model)
    families.assign_once(model)
    families.colocate_ops(model, instance)
    families.memory_capacity(model, instance)
    strengthened.add_durations(model)
    published.precedence_flows(model)
    makespan_covers(model)
    route_choice(model)
    published.device_no_overlap(model)
    link_no_overlap(model)


@family
def choice_variables(model: pyo.ConcreteModel) -> None:
    r"""route[q, a, b], op_before[i, j] and flow_before[q, r, a, b] in {0, 1}.

    $\delta_{ij}, \delta_{qrab}, y_{qab} \in \lbrace 0, 1 \rbrace$
    """
    model.route = pyo.Var(
        model.EDGES, model.LINKS, domain=pyo.Binary, doc="route[q, a, b]: q goes from a to b"
    )
    model.op_before = pyo.Var(
        model.OP_PAIRS, domain=pyo.Binary, doc="op_before[i, j]: i goes before j"
    )
    model.flow_before = pyo.Var(
        model.FLOW_PAIRS,
        model.LINKS,
        domain=pyo.Binary,
        doc="flow_before[q, r, a, b]: q goes before r over the link from a to b",
    )


@family
def makespan_covers(model: pyo.ConcreteModel) -> None:
    r"""Pesto, completion of the graph: makespan >= op_end[i].

    $T \ge C_i$
    """

    @model.Constraint(model.OPS)
    def makespan_covers(model: pyo.ConcreteModel, i: str) -> Linear:
        return model.makespan >= model.op_end[i]


@family
def route_choice(model: pyo.ConcreteModel) -> None:
    r"""Pesto, linear products: route[q, a, b] == x[i, a] x[j, b], every q = (i, j) and a != b.

    route >= x[i, a] + x[j, b] - 1, route <= x[i, a], route <= x[j, b].

    $y_{qab} \ge x_{ia} + x_{jb} - 1, \quad y_{qab} \le x_{ia}, \quad y_{qab} \le x_{jb}$
    """
    x, route, producer, consumer = model.x, model.route, model.producer, model.consumer

    @model.Constraint(model.EDGES, model.LINKS)
    def route_joins(_: pyo.ConcreteModel, q: str, a: str, b: str) -> Linear:
        return route[q, a, b] >= x[producer[q], a] + x[consumer[q], b] - 1

    @model.Constraint(model.EDGES, model.LINKS)
    def route_leaves(_: pyo.ConcreteModel, q: str, a: str, b: str) -> Linear:
        return route[q, a, b] <= x[producer[q], a]

    @model.Constraint(model.EDGES, model.LINKS)
    def route_enters(_: pyo.ConcreteModel, q: str, a: str, b: str) -> Linear:
        return route[q, a, b] <= x[consumer[q], b]


@family
def link_no_overlap(model: pyo.ConcreteModel) -> None:
    r"""Pesto, one transfer per link: of two that no path orders, both over the link l = (a, b), one
    goes first.

    flow_start[r] >= flow_end[q] - H (3 - flow_before[q, r, l] - route[q, l] - route[r, l]) and
    flow_start[q] >= flow_end[r] - H (2 + flow_before[q, r, l] - route[q, l] - route[r, l]).

    $S_r \ge C_q - H (3 - \delta_{qrab} - y_{qab} - y_{rab})$
    """
    horizon, route = model.horizon.value, model.route
    start, end, before = model.flow_start, model.flow_end, model.flow_before

    @model.Constraint(model.FLOW_PAIRS, model.LINKS)
    def link_no_overlap_forth(_: pyo.ConcreteModel, q: str, r: str, a: str, b: str) -> Linear:
        apart = 3 - before[q, r, a, b] - route[q, a, b] - route[r, a, b]
        return start[r] >= end[q] - horizon * apart

    @model.Constraint(model.FLOW_PAIRS, model.LINKS)
    def link_no_overlap_back(_: pyo.ConcreteModel, q: str, r: str, a: str, b: str) -> Linear:
        apart = 2 + before[q, r, a, b] - route[q, a, b] - route[r, a, b]
        return start[q] >= end[r] - horizon * apart


# ------------------------------------------------------------------------------------- strengthened


def _add_strengthened(model: pyo.ConcreteModel, instance: Instance, horizon_ns: int) -> None:
    """The strengthened model; see `pesto.build`."""
    index, window = instance.arrays.index, windows(instance, horizon_ns)
    ops, edges = (slots(instance, window, horizon_ns) for slots in (op_slots, edge_slots))
    duration_data(model, instance, only_longer=True)
    places = np.argwhere(edges.possible).tolist()
    arcs = [(q, *divmod(place, instance.num_devices)) for q, place in places]
    transfer_data(model, instance, arcs, only_longer=True)
    families.place_ops(model, window.possible)
    window_data(model, window)
    possible_routes(model)
    strengthened.time_variables(model)
    families.assign_once(model)
    families.colocate_ops(model, instance)
    families.memory_capacity(model, instance)
    strengthened.add_durations(model)
    published.precedence_flows(model)
    route_flow(model, {(edges.items[q], *edges.places[place]) for q, place in places})
    strengthened.device_work(model)
    strengthened.channel_work(model, instance)
    strengthened.critical_path(model, instance)
    device_open_pairs(model, compete(ops, unordered_pairs(*op_reach(index))))
    link_open_pairs(model, compete(edges, unordered_pairs(*flow_reach(index))))


@family
def possible_routes(model: pyo.ConcreteModel) -> None:
    r"""route[q, a, b] in [0, 1], a != b: edge q goes from a to b; integral where x is.

    $0 \le y_{qab} \le 1$
    """
    model.ROUTES = pyo.Set(
        initialize=list(model.transfer_ns), dimen=3, doc="links that edges can take"
    )
    model.route = pyo.Var(model.ROUTES, bounds=(0, 1))


@family
def route_flow(model: pyo.ConcreteModel, possible: set[tuple[str, ...]]) -> None:
    r"""Pesto, products as flow: the routes of q = (i, j) lead from the device of i to that of j.

    With out(q, k) = sum over b of route[q, k, b] and in(q, k) = sum over a of route[q, a, k], for
    every device k: x[i, k] + in(q, k) == x[j, k] + out(q, k), and out(q, k) <= x[i, k]; the
    difference is what stays on k, and it is 0 where staying is not possible.

    $x_{ik} + \sum_a y_{qak} = x_{jk} + \sum_b y_{qkb}, \quad \sum_b y_{qkb} \le x_{ik}$
    """
    leaving, entering = strengthened.routes_at(model)

    @model.Constraint(model.EDGES, model.DEVICES)
    def route_conserved(model: pyo.ConcreteModel, q: str, k: str) -> Linear:
        i, j = model.producer[q], model.consumer[q]
        out, into = sum(leaving.get((q, k), ())), sum(entering.get((q, k), ()))
        return model.x[i, k] + into == model.x[j, k] + out

    @model.Constraint(model.EDGES, model.DEVICES)
    def route_leaves(model: pyo.ConcreteModel, q: str, k: str) -> Linear:
        out, here = sum(leaving.get((q, k), ())), model.x[model.producer[q], k]
        return out <= here if (q, k, k) in possible else out == here


@family
def device_open_pairs(model: pyo.ConcreteModel, pairs: Pairs) -> None:
    r"""Pesto, one op per device: of two ops on one device, one starts after the other ends.

    op_start[j] >= op_end[i] - M_ij (1 - op_before[i, j]) for both orders of the pair, and
    op_before[i, j] + op_before[j, i] >= x[i, k] + x[j, k] - 1 for every device k, of the orders
    those that are open on k.

    $S_j \ge C_i - M_{ij} (1 - \delta_{ij}),
    \quad \delta_{ij} + \delta_{ji} \ge x_{ik} + x_{jk} - 1$
    """
    model.device_no_overlap = strengthened.order_rows(model, "op", pairs.slack_ns)
    before, x = model.op_before, model.x

    @model.Constraint(pairs.shared)
    def device_shared(_: pyo.ConcreteModel, i: str, j: str, k: str) -> Linear:
        return open_orders(before, pairs, i, j, k) >= x[i, k] + x[j, k] - 1


@family
def link_open_pairs(model: pyo.ConcreteModel, pairs: Pairs) -> None:
    r"""Pesto, one transfer per link: of two flows over one link, one starts after the other ends.

    flow_start[r] >= flow_end[q] - M_qr (1 - flow_before[q, r]) for both orders, and
    flow_before[q, r] + flow_before[r, q] >= route[q, a, b] + route[r, a, b] - 1 for every link
    (a, b), of the orders those that are open on it.

    $S_r \ge C_q - M_{qr} (1 - \delta_{qr}),
    \quad \delta_{qr} + \delta_{rq} \ge y_{qab} + y_{rab} - 1$
    """
    model.link_no_overlap = strengthened.order_rows(model, "flow", pairs.slack_ns)
    before, route = model.flow_before, model.route

    @model.Constraint(pairs.shared)
    def link_shared(_: pyo.ConcreteModel, q: str, r: str, a: str, b: str) -> Linear:
        return open_orders(before, pairs, q, r, a, b) >= route[q, a, b] + route[r, a, b] - 1


def open_orders(before: pyo.Var, pairs: Pairs, i: str, j: str, *place: str) -> Linear:
    """before[i, j] + before[j, i], as far as these orders are open at a place."""
    return sum(before[a, b] for a, b in ((i, j), (j, i)) if (a, b, *place) in pairs.open_at)


# --------------------------------------------------------------- which pairs the windows leave open


@dataclass(frozen=True)
class Slots:
    """Windows of v items (ops or edges) at each of p places (devices or links), in ns."""

    #: items, places: Their names; that of a place has a part for a device, two for a link.
    items: list[str]
    places: list[tuple[str, ...]]
    #: (v, p) bool: Whether a plan of at most the horizon may have the item there.
    possible: Flags
    #: earliest_ns, latest_ns, duration_ns: (v, p) int64: Earliest start, latest end and duration
    #: there; without meaning where it is not possible.
    earliest_ns: Ints
    latest_ns: Ints
    duration_ns: Ints


@dataclass(frozen=True)
class Pairs:
    """Pairs of items that may be at one place in an order that the model must decide, by name."""

    #: (i, j, *place)
    shared: list[tuple[str, ...]]
    #: (i, j, *place): Item i can end before j starts there.
    open_at: frozenset[tuple[str, ...]]
    #: (i, j): Largest end of i - start of j, where i can end before j starts at some place.
    slack_ns: dict[tuple[str, str], int]


def op_slots(instance: Instance, window: Windows, horizon_ns: int) -> Slots:
    """Windows of the ops; places are devices."""
    names, latest_ns = names_of(instance), horizon_ns - window.tail_ns
    places: list[tuple[str, ...]] = [(k,) for k in names.devices]
    times_ns = window.head_ns, latest_ns, instance.arrays.time_ns
    return Slots(names.ops, places, window.possible, *times_ns)


def edge_slots(instance: Instance, window: Windows, horizon_ns: int) -> Slots:
    """Windows of the edges; place a * K + b is the link from a to b."""
    # Places a * K + a are kept for edges that stay on device a. O(m K^2).
    arrays, k, names = instance.arrays, instance.num_devices, names_of(instance)
    index = arrays.index
    until, since = window.head_ns + arrays.time_ns, window.tail_ns + arrays.time_ns
    i, j = index.producer, index.consumer
    move = arrays.transfer_ns[index.tensor][:, arrays.link_class]
    earliest = np.broadcast_to(until[i][:, :, None], move.shape)
    latest = np.broadcast_to(horizon_ns - since[j][:, None, :], move.shape)
    possible = window.possible[i][:, :, None] & window.possible[j][:, None, :]
    possible = possible & (earliest + move <= latest)
    links: list[tuple[str, ...]] = [(a, b) for a in names.devices for b in names.devices]
    at = (len(i), k * k)
    times_ns = earliest.reshape(at), latest.reshape(at), move.reshape(at)
    return Slots(names.edges, links, possible.reshape(at), *times_ns)


def compete(slots: Slots, unordered: Iterator[tuple[int, int]]) -> Pairs:
    """The pairs whose order is to be decided, and the orders that are open."""
    # Places are left out where both items take no time, where the windows order them, and (in
    # `edge_slots`) where an edge stays on a device. O(pairs * places).
    pairs = np.array(list(unordered), np.int64).reshape(-1, 2)
    i, j = pairs.T
    early, late, time = slots.earliest_ns, slots.latest_ns, slots.duration_ns
    both = slots.possible[i] & slots.possible[j] & (time[i] + time[j] > 0)
    both &= (late[i] > early[j]) & (late[j] > early[i])
    forth = both & (early[i] + time[i] + time[j] <= late[j])
    back = both & (early[j] + time[j] + time[i] <= late[i])
    first = np.where(slots.possible, early, np.iinfo(np.int64).max).min(axis=1).tolist()
    last = np.where(slots.possible, late, np.iinfo(np.int64).min).max(axis=1).tolist()
    items, places, turned = slots.items, slots.places, pairs[:, ::-1]

    def named(where: Flags, ends: Ints) -> list[tuple[str, ...]]:
        found = zip(ends.tolist(), where, strict=True)
        return [
            (items[a], items[b], *places[at]) for (a, b), row in found for at in np.flatnonzero(row)
        ]

    orders = pairs[forth.any(axis=1)].tolist() + turned[back.any(axis=1)].tolist()
    slack = {(items[a], items[b]): last[a] - first[b] for a, b in sorted(orders)}
    open_at = frozenset(named(forth, pairs) + named(back, turned))
    return Pairs(named(both, pairs), open_at, slack)


# ---------------------------------------------------------------------------------------- plans out


def extract(model: pyo.ConcreteModel, instance: Instance, *, check: bool = True) -> Plan:
    """The plan that the values of a model's variables describe; see `plan_in_order`."""
    require_solution(model, instance, check=check)
    device, names = device_numbers(model), list(model.DEVICES)
    home = {i: names[k] for i, k in zip(model.OPS, device, strict=True)}
    ends = {q: (home[i], home[model.consumer[q]]) for q, i in model.producer.items()}
    found = PairSolution(
        device,
        [start.value for start in model.op_start.values()],
        [start.value for start in model.flow_start.values()],
        model.unit_ns.value,
        decided(model, "op", home),
        decided(model, "flow", {q: link for q, link in ends.items() if link[0] != link[1]}),
    )
    return plan_in_order(instance, model.semantics, found)


def decided(
    model: pyo.ConcreteModel, what: str, place: Mapping[str, Hashable]
) -> list[tuple[int, int]]:
    """Pairs (first, second) of ops or flows at one place, as decided, by number."""
    # The published form has one variable for both orders of a pair, and for flows one per link; the
    # strengthened form leaves pairs open that the windows order at their place.
    both_ways = model.component("OP_ORDERS") is not None
    number = {name: at for at, name in enumerate(model.component(f"{what}_start"))}
    before, found = model.component(f"{what}_before"), []
    for (i, j, *link), variable in before.items():
        if i not in place or place[i] != place.get(j) or (link and tuple(link) != place[i]):
            continue
        first = round(variable.value) == 1
        if not both_ways:
            found.append((number[i], number[j]) if first else (number[j], number[i]))
        elif first and not ((j, i) in before and round(before[j, i].value) == 1):
            found.append((number[i], number[j]))
    return found
