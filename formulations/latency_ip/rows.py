"""The latency IP of Tarnawski et al. (2020): Sets, Params, variables and rows of both forms.

`latency_ip` lists the components and the claim of the model; `objectives.calls.referee` has
the duration of a call. In all bounds an op counts as done when its call has brought in its inputs
and run its members up to this op, in topological order: no later than the call ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.latency_ip.calls import (
    NEXT_TO_NOTHING,
    CallSets,
    empty_edges,
    equal_accelerators,
    slower_hosts_ns,
)
from placegap.formulations.shared.data import add_data, family, names_of, tensor_sets, window_data
from placegap.formulations.shared.families import Linear, first_of_group, op_work
from placegap.formulations.shared.pairs import grouped
from placegap.instances.problem import Instance

Pair = tuple[str, str]


# --------------------------------------------------------------------------------------------- data


def call_sets(model: pyo.ConcreteModel, sets: CallSets) -> None:
    """The Sets of the model beside `place_ops`, and ``producer[u]``."""
    tensor_sets(model, sets.instance)
    devices, tensors, calls = list(model.DEVICES), list(model.TENSORS), range(sets.num_calls)
    entering = [(tensors[u], devices[k], c) for u, k in sets.entering for c in calls]
    leaving = [(tensors[u], devices[k], c) for u, k in sets.leaving for c in calls]
    accelerators = {devices[k] for k, _ in sets.calls}
    members = [(i, k, c) for i, k in model.PLACES if k in accelerators for c in calls]
    follows = list(dict.fromkeys((model.producer[u], j) for u, j in model.READERS))
    for name, found, doc in (
        ("ARCS", follows, "(i, j): op i feeds op j"),
        ("CALLS", [(devices[k], c) for k, c in sets.calls], "(k, c): calls of accelerators"),
        ("MEMBERS", members, "(i, k, c): calls that ops can be in"),
        ("ENTERING", entering, "(u, k, c): calls that may have tensors as inputs"),
        ("LEAVING", leaving, "(u, k, c): calls that may have them as outputs, which takes time"),
    ):
        model.add_component(name, pyo.Set(initialize=found, doc=doc))


def call_data(
    model: pyo.ConcreteModel, sets: CallSets, horizon_ns: int, *, only_longer: bool
) -> None:
    """``duration_ns[i, k]`` and ``host_ns[u, k]``, mutable, the unit, and the horizon in units."""
    names, arrays = names_of(sets.instance), sets.instance.arrays
    unit_ns, ops, devices = model.unit_ns.value, names.ops, names.devices
    model.horizon = pyo.Param(initialize=horizon_ns / unit_ns, doc="the horizon, in units")
    most = {(ops[i], devices[k]): ns for (i, k), ns in slower_hosts_ns(sets).items()}
    # `empty_in_order` has no rows for what took time when the model was built
    floor = int(NEXT_TO_NOTHING * unit_ns) + 1
    crossing = dict.fromkeys([*sets.entering, *sets.leaving])
    places = np.argwhere(sets.window.possible).tolist()
    run = {(ops[i], devices[k]): int(arrays.time_ns[i, k]) for i, k in places}
    move = {(names.tensors[u], devices[k]): int(arrays.host_ns[u, k]) for u, k in crossing}
    move = {at: ns for at, ns in move.items() if ns}
    for name, given, doc in (
        ("duration_ns", run, "duration_ns[i, k]: time of op i on device k"),
        ("host_ns", move, "host_ns[u, k]: time of tensor u into or out of k, where it takes any"),
    ):
        least = given if only_longer else {at: min(ns, floor) for at, ns in given.items()}
        add_data(model, name, given, doc, validate=Between(least, most))


@dataclass(frozen=True)
class Between:
    """Pyomo's `validate` of times: the rows hold from the least to that of a host left out."""

    least: dict[Pair, int]
    most: dict[Pair, int]

    def __call__(self, _: pyo.ConcreteModel, value: float, *at: str) -> bool:
        """Whether the model stays right with this value."""
        i, k = at
        return self.least[i, k] <= value <= self.most.get((i, k), value)


# ---------------------------------------------------------------------------------------- variables


@family
def call_variables(model: pyo.ConcreteModel, num_calls: int) -> None:
    r"""Tarnawski et al., x, CommIn, CommOut: who is in a call, and what enters and leaves it.

    $y_{ikc} \in \lbrace 0, 1 \rbrace, \quad 0 \le n_{ukc}, \ell_{ukc} \le 1$
    """
    doc = "in_call[i, k, c]: op i is in call c of accelerator k"
    if num_calls == 1:
        model.in_call = pyo.Expression(
            model.MEMBERS, rule=lambda model, i, k, c: model.x[i, k], doc=doc
        )
    else:
        model.in_call = pyo.Var(model.MEMBERS, domain=pyo.Binary, doc=doc)
    model.enters = pyo.Var(
        model.ENTERING, bounds=(0, 1), doc="enters[u, k, c]: tensor u is an input of the call"
    )
    model.leaves = pyo.Var(
        model.LEAVING, bounds=(0, 1), doc="leaves[u, k, c]: tensor u is an output of the call"
    )


@family
def time_variables(model: pyo.ConcreteModel) -> None:
    r"""Times in units, from 0 to the horizon.

    $0 \le s_{kc}, f_{kc}, e_i, L \le H$
    """
    span = (0, model.horizon.value)
    model.start = pyo.Var(model.CALLS, bounds=span, doc="start[k, c]: of a call")
    model.finish = pyo.Var(model.CALLS, bounds=span, doc="finish[k, c]: of a call")
    model.end = pyo.Var(model.OPS, bounds=span, doc="end[i]: when the output of op i is there")
    model.latency = pyo.Var(bounds=span, doc="latency: the latest end")
    model.latency_ns = pyo.Expression(
        expr=model.unit_ns * model.latency, doc="the latency in nanoseconds"
    )


# --------------------------------------------------------------------------------- who is in a call


@family
def colocate_pooled(model: pyo.ConcreteModel, instance: Instance) -> None:
    r"""Tarnawski et al., colour classes: x[i, k] == x[j, k] on accelerators k, for every op i of a
    group and its first op j.

    So if one op is on a host, all are on hosts.

    $x_{ik} = x_{jk}$
    """
    ops, devices = list(model.OPS), list(model.DEVICES)
    home = {ops[i]: ops[j] for i, j in enumerate(first_of_group(instance)) if i != j}
    accelerators = [devices[k] for k in np.flatnonzero(~instance.arrays.is_host).tolist()]

    @model.Constraint(list(home), accelerators)
    def colocate_pooled(model: pyo.ConcreteModel, i: str, k: str) -> Linear:
        return model.x[i, k] == model.x[home[i], k]


@family
def call_of_op(model: pyo.ConcreteModel, num_calls: int) -> None:
    r"""Tarnawski et al., x: sum over c of in_call[i, k, c] == x[i, k], where there are several
    calls.

    $\sum_c y_{ikc} = x_{ik}$
    """
    if num_calls == 1:
        return

    @model.Constraint([(i, k) for i, k, c in model.MEMBERS if c == 0])
    def call_of_op(model: pyo.ConcreteModel, i: str, k: str) -> Linear:
        return sum(model.in_call[i, k, c] for c in range(num_calls)) == model.x[i, k]


@family
def tensor_enters(model: pyo.ConcreteModel) -> None:
    r"""Tarnawski et al., CommIn: enters[u, k, c] >= in_call[j, k, c] - in_call[i, k, c], i the
    producer, j a consumer of tensor u.

    $n_{ukc} \ge y_{jkc} - y_{ikc}$
    """
    readers, inside = grouped(model.READERS), dict(model.in_call)

    @model.Constraint(
        [(u, j, k, c) for u, k, c in model.ENTERING for j in readers[u] if (j, k, c) in inside]
    )
    def tensor_enters(model: pyo.ConcreteModel, u: str, j: str, k: str, c: int) -> Linear:
        made_here = inside.get((model.producer[u], k, c), 0)
        return model.enters[u, k, c] >= inside[j, k, c] - made_here


@family
def tensor_leaves(model: pyo.ConcreteModel) -> None:
    r"""Tarnawski et al., CommOut: leaves[u, k, c] >= in_call[i, k, c] - in_call[j, k, c], i
    producer, j consumer of u.

    $\ell_{ukc} \ge y_{ikc} - y_{jkc}$
    """
    readers, inside = grouped(model.READERS), dict(model.in_call)

    @model.Constraint([(u, j, k, c) for u, k, c in model.LEAVING for j in readers[u]])
    def tensor_leaves(model: pyo.ConcreteModel, u: str, j: str, k: str, c: int) -> Linear:
        made_here = inside[model.producer[u], k, c]
        return model.leaves[u, k, c] >= made_here - inside.get((j, k, c), 0)


@family
def call_convex(model: pyo.ConcreteModel) -> None:
    r"""Tarnawski et al., contiguity, z: calls are convex, reached[i, k, c] falls along no path that
    leaves the call.

    Their variable z: reached[i] >= in_call[i]; along an edge (i, j), reached[j] <= reached[i] and
    reached[j] <= in_call[j] - in_call[i] + 1. (So an op after the call is not reached.)

    $z_{ikc} \ge y_{ikc}, \quad z_{jkc} \le z_{ikc}, \quad z_{jkc} \le y_{jkc} - y_{ikc} + 1$
    """
    model.reached = pyo.Var(
        model.OPS,
        model.CALLS,
        bounds=(0, 1),
        doc="reached[i, k, c]: op i, or one after it, is in the call",
    )

    @model.Constraint(model.MEMBERS)
    def call_convex_members(model: pyo.ConcreteModel, i: str, k: str, c: int) -> Linear:
        return model.reached[i, k, c] >= model.in_call[i, k, c]

    @model.Constraint(model.ARCS, model.CALLS)
    def call_convex_falls(model: pyo.ConcreteModel, i: str, j: str, k: str, c: int) -> Linear:
        return model.reached[j, k, c] <= model.reached[i, k, c]

    inside = dict(model.in_call)

    @model.Constraint(
        [(i, j, k, c) for i, j in model.ARCS for k, c in model.CALLS if (i, k, c) in inside]
    )
    def call_convex_leaves(model: pyo.ConcreteModel, i: str, j: str, k: str, c: int) -> Linear:
        return model.reached[j, k, c] <= inside.get((j, k, c), 0) - inside[i, k, c] + 1


# ------------------------------------------------------------------------------------------- clocks


@family
def call_waits(model: pyo.ConcreteModel) -> None:
    r"""Tarnawski et al., SubgraphStart: start[k, c] >= end[i] - horizon (1 - enters[u, k, c]), i
    the producer of tensor u.

    $s_{kc} \ge e_i - H (1 - n_{ukc})$
    """
    horizon = model.horizon.value

    @model.Constraint(model.ENTERING)
    def call_waits(model: pyo.ConcreteModel, u: str, k: str, c: int) -> Linear:
        outside = horizon * (1 - model.enters[u, k, c])
        return model.start[k, c] >= model.end[model.producer[u]] - outside


@family
def call_duration(model: pyo.ConcreteModel) -> None:
    r"""Tarnawski et al., SubgraphFinish: finish[k, c] - start[k, c] == inputs + compute + outputs.

    Sum over u of host_uk enters[u, k, c], over i of p_ik in_call[i, k, c], over u of
    host_uk leaves[u, k, c].

    $f_{kc} - s_{kc} = \sum_u c_{uk} n_{ukc} + \sum_i p_{ik} y_{ikc} + \sum_u c_{uk} \ell_{ukc}$
    """
    unit_ns, parts = model.unit_ns.value, {call: list[Linear]() for call in model.CALLS}
    for member, data in (
        (model.enters, model.host_ns),
        (model.in_call, model.duration_ns),
        (model.leaves, model.host_ns),
    ):
        for (what, k, c), variable in member.items():
            if (what, k) in data:
                parts[k, c].append(data[what, k] / unit_ns * variable)

    @model.Constraint(model.CALLS)
    def call_duration(model: pyo.ConcreteModel, k: str, c: int) -> Linear:
        return model.finish[k, c] - model.start[k, c] == sum(parts[k, c])


@family
def call_after_call(model: pyo.ConcreteModel) -> None:
    r"""Tarnawski et al., SubgraphStart: start[k, c] >= finish[k, c - 1].

    $s_{kc} \ge f_{k,c-1}$
    """

    @model.Constraint([(k, c) for k, c in model.CALLS if c])
    def call_after_call(model: pyo.ConcreteModel, k: str, c: int) -> Linear:
        return model.start[k, c] >= model.finish[k, c - 1]


@family
def end_of_call(model: pyo.ConcreteModel) -> None:
    r"""Tarnawski et al., Latency: end[i] >= finish[k, c] - horizon (1 - in_call[i, k, c]).

    $e_i \ge f_{kc} - H (1 - y_{ikc})$
    """
    horizon = model.horizon.value

    @model.Constraint(model.MEMBERS)
    def end_of_call(model: pyo.ConcreteModel, i: str, k: str, c: int) -> Linear:
        return model.end[i] >= model.finish[k, c] - horizon * (1 - model.in_call[i, k, c])


def hosts(model: pyo.ConcreteModel) -> list[str]:
    """The devices that make no calls."""
    accelerators = {k for k, _ in model.CALLS}
    return [k for k in model.DEVICES if k not in accelerators]


@family
def end_on_host(model: pyo.ConcreteModel) -> None:
    r"""Tarnawski et al., Latency: end[j] >= end[i] + sum over hosts h of p_jh x[j, h], for edges
    (i, j); without i for all j.

    The first holds on accelerators, too: an op ends no earlier than its producers.

    $e_j \ge e_i + \sum_h p_{jh} x_{jh}, \quad e_j \ge \sum_h p_{jh} x_{jh}$
    """
    unit_ns, own, on_hosts = model.unit_ns.value, dict.fromkeys(model.OPS, 0), set(hosts(model))
    for j, h in model.PLACES:
        if h in on_hosts:
            own[j] += model.duration_ns[j, h] / unit_ns * model.x[j, h]

    @model.Constraint(model.ARCS)
    def end_on_host(model: pyo.ConcreteModel, i: str, j: str) -> Linear:
        return model.end[j] >= model.end[i] + own[j]

    @model.Constraint(dict.fromkeys(j for j, h in model.PLACES if h in on_hosts))
    def end_first_on_host(model: pyo.ConcreteModel, j: str) -> Linear:
        return model.end[j] >= own[j]


@family
def latency_covers(model: pyo.ConcreteModel) -> None:
    r"""Tarnawski et al., TotalLatency: latency >= end[i].

    $L \ge e_i$
    """

    @model.Constraint(model.OPS)
    def latency_covers(model: pyo.ConcreteModel, i: str) -> Linear:
        return model.latency >= model.end[i]


@family
def empty_in_order(model: pyo.ConcreteModel, sets: CallSets) -> None:
    r"""Placegap's own: ranks of ops and calls rise along `empty_edges`: calls without time do not
    wait in a cycle.

    For an edge (i, j) of tensor u: rank_call[k, c] >= rank[i] + 1 if u enters the call, and
    rank[j] >= rank[i] + 1 if j is on a host; rank[j] >= rank_call[k, c] if j is in the call;
    rank_call[k, c] >= rank_call[k, c - 1] + 1.

    $\rho_{kc} \ge \rho_i + 1 - (R + 1)(1 - n_{ukc}), \quad \rho_i \ge \rho_{kc} - R (1 - y_{ikc}),
    \quad \rho_j \ge \rho_i + \sum_h x_{jh}, \quad \rho_{kc} \ge \rho_{k,c-1} + 1$
    """
    index, largest_ns = sets.instance.arrays.index, int(NEXT_TO_NOTHING * model.unit_ns.value)
    edges = empty_edges(sets.instance, sets.window.possible, largest_ns)
    if not edges:
        return
    ops, tensors, on_hosts = list(model.OPS), list(model.TENSORS), hosts(model)
    ends = [(ops[index.producer[e]], ops[index.consumer[e]]) for e in edges]
    along = {tensors[u] for u in index.tensor[edges].tolist()}
    most, touched = len(ops) + len(model.CALLS), dict.fromkeys(i for pair in ends for i in pair)
    model.rank = pyo.Var(
        list(touched), bounds=(0, most), doc="rank[i]: place of op i in an order of ops and calls"
    )
    model.rank_call = pyo.Var(
        model.CALLS, bounds=(0, most), doc="rank_call[k, c]: place of a call in that order"
    )

    @model.Constraint([(u, k, c) for u, k, c in model.ENTERING if u in along])
    def empty_in_order_waits(model: pyo.ConcreteModel, u: str, k: str, c: int) -> Linear:
        outside = (most + 1) * (1 - model.enters[u, k, c])
        return model.rank_call[k, c] >= model.rank[model.producer[u]] + 1 - outside

    @model.Constraint([(i, k, c) for i, k, c in model.MEMBERS if i in touched])
    def empty_in_order_members(model: pyo.ConcreteModel, i: str, k: str, c: int) -> Linear:
        return model.rank[i] >= model.rank_call[k, c] - most * (1 - model.in_call[i, k, c])

    @model.Constraint(list(dict.fromkeys(ends)))
    def empty_in_order_hosts(model: pyo.ConcreteModel, i: str, j: str) -> Linear:
        return model.rank[j] >= model.rank[i] + sum(model.x[j, h] for h in on_hosts)

    @model.Constraint([(k, c) for k, c in model.CALLS if c])
    def empty_in_order_calls(model: pyo.ConcreteModel, k: str, c: int) -> Linear:
        return model.rank_call[k, c] >= model.rank_call[k, c - 1] + 1


# ------------------------------------------------------------------------------------- strengthened


@family
def done_in_order(model: pyo.ConcreteModel) -> None:
    r"""Placegap's own: done[j] >= done[i] + sum over k of p_jk x[j, k] + moves, for edges (i, j);
    done[j] <= end[j].

    A call brings its inputs in, runs its members in topological order, takes its outputs out. Moves
    are host_uk (leaves[u, k, c] + enters[u, k, c]) over all calls, for a tensor u without other
    consumers, which could be what leaves or enters.

    $d_j \ge d_i + \sum_k p_{jk} x_{jk} + \mu_u, \quad d_j \le e_j$
    """
    model.done = pyo.Var(
        model.OPS, bounds=(0, model.horizon.value), doc="done[i]: when its call has got to op i"
    )
    unit_ns, readers = model.unit_ns.value, grouped(model.READERS)
    moved: dict[str, list[Linear]] = {}
    for crossing in (model.leaves, model.enters):
        for (u, k, _), variable in crossing.items():
            if (u, k) in model.host_ns and len(readers[u]) == 1:
                moved.setdefault(u, []).append(model.host_ns[u, k] / unit_ns * variable)
    takes = op_work(model, by=0)
    # tensors without moves share a row
    last = {(model.producer[u], j, u if u in moved else ""): u for u, j in model.READERS}

    @model.Constraint([(u, j) for (_, j, _), u in last.items()])
    def done_in_order(model: pyo.ConcreteModel, u: str, j: str) -> Linear:
        before = model.done[model.producer[u]]
        return model.done[j] >= before + sum(takes.get(j, ())) + sum(moved.get(u, ()))

    @model.Constraint(model.OPS)
    def done_by_end(model: pyo.ConcreteModel, j: str) -> Linear:
        return model.done[j] <= model.end[j]


@family
def done_in_window(model: pyo.ConcreteModel, sets: CallSets) -> None:
    r"""Placegap's own, heads and tails by device: done[i] >= head + p, done[i] + tail <= latency.

    $d_i \ge \sum_k (h_{ik} + p_{ik}) x_{ik}, \quad d_i + \sum_k t_{ik} x_{ik} \le L$
    """
    unit_ns, places = model.unit_ns.value, grouped(model.PLACES)
    window_data(model, sets.window)

    @model.Constraint(model.OPS)
    def done_after_head(model: pyo.ConcreteModel, i: str) -> Linear:
        head, p = model.head_ns, model.duration_ns
        first = sum((head[i, k] + p[i, k]) / unit_ns * model.x[i, k] for k in places.get(i, ()))
        return model.done[i] >= first

    @model.Constraint(model.OPS)
    def done_before_tail(model: pyo.ConcreteModel, i: str) -> Linear:
        rest = sum(model.tail_ns[i, k] / unit_ns * model.x[i, k] for k in places.get(i, ()))
        return model.done[i] + rest <= model.latency


@family
def work_covers(model: pyo.ConcreteModel, num_calls: int) -> None:
    r"""Placegap's own: latency >= sum over c of finish[k, c] - start[k, c], for every accelerator
    k.

    $L \ge \sum_c (f_{kc} - s_{kc})$
    """

    @model.Constraint([k for k, c in model.CALLS if c == 0])
    def work_covers(model: pyo.ConcreteModel, k: str) -> Linear:
        calls = range(num_calls)
        return model.latency >= sum(model.finish[k, c] - model.start[k, c] for c in calls)


@family
def chain_covers(model: pyo.ConcreteModel, bound_ns: int) -> None:
    r"""Placegap's own: latency >= `chain_bound_ns`; if it is above the horizon, no plan is left.

    $L \ge \kappa$
    """
    model.bound_ns = pyo.Param(initialize=bound_ns, doc="a lower bound on the latency")
    bound = min(bound_ns / model.unit_ns.value, 2 * model.horizon.value + 1)
    model.chain_covers = pyo.Constraint(expr=model.latency >= bound)


@family
def equal_in_order(model: pyo.ConcreteModel, instance: Instance, num_calls: int) -> None:
    r"""Placegap's own: equal accelerators are numbered by their first call, start[k, 0] <= start[l,
    0] for k < l.

    With one call each, no edge (i, j) leads back: for the part L of a class from its p-th member
    on, sum over k in L of x[i, k] + sum over the members before of x[j, k] <= 1.

    $s_{k0} \le s_{l0}, \quad \sum_{k \in B} x_{ik} + \sum_{k \in A} x_{jk} \le 1$
    """
    devices = list(model.DEVICES)
    classes = [[devices[k] for k in members] for members in equal_accelerators(instance)]

    @model.Constraint([pair for members in classes for pair in pairwise(members)])
    def equal_in_order_starts(model: pyo.ConcreteModel, k: str, other: str) -> Linear:
        return model.start[k, 0] <= model.start[other, 0]

    if num_calls > 1:
        return
    parts = {
        members[p]: (members[:p], members[p:])
        for members in classes
        for p in range(1, len(members))
    }

    @model.Constraint(list(parts), model.ARCS)
    def equal_in_order(model: pyo.ConcreteModel, first: str, i: str, j: str) -> Linear:
        early, late = parts[first]
        return sum(model.x[i, k] for k in late) + sum(model.x[j, k] for k in early) <= 1


@family
def calls_in_order(model: pyo.ConcreteModel, num_calls: int) -> None:
    r"""Placegap's own: of several calls, edges lead to later ones, and those without an op come
    last.

    For an edge (i, j), sum over c' >= c of in_call[i, k, c'] + sum over c' < c of in_call[j, k, c']
    <= 1; in_call[i, k, c] <= used[k, c - 1] <= sum over i of in_call[i, k, c - 1].

    $\sum_{d \ge c} y_{ikd} + \sum_{d < c} y_{jkd} \le 1, \quad y_{ikc} \le \upsilon_{k,c-1} \le
    \sum_i y_{i,k,c-1}$
    """
    if num_calls == 1:
        return
    members, calls = model.in_call, range(num_calls)
    later = [(k, c) for k, c in model.CALLS if c]
    here = grouped((k, i) for i, k in model.PLACES)
    model.used = pyo.Var(
        [(k, c - 1) for k, c in later], bounds=(0, 1), doc="used[k, c]: the call has an op"
    )

    @model.Constraint(
        [
            (i, j, k, c)
            for i, j in model.ARCS
            for k, c in later
            if (i, k, c) in members and (j, k, c) in members
        ]
    )
    def calls_in_order(model: pyo.ConcreteModel, i: str, j: str, k: str, c: int) -> Linear:
        late = sum(model.in_call[i, k, d] for d in calls[c:])
        return late + sum(model.in_call[j, k, d] for d in calls[:c]) <= 1

    @model.Constraint([(i, k, c) for i, k, c in model.MEMBERS if c])
    def calls_in_order_follow(model: pyo.ConcreteModel, i: str, k: str, c: int) -> Linear:
        return model.in_call[i, k, c] <= model.used[k, c - 1]

    @model.Constraint([(k, c) for k, c in model.used if k in here])
    def calls_in_order_used(model: pyo.ConcreteModel, k: str, c: int) -> Linear:
        return model.used[k, c] <= sum(model.in_call[i, k, c] for i in here[k])
