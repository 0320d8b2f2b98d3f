"""latency_subgraphs as a constraint program for CP-SAT. Exact.

The model of `latency_ip`, strengthened (Tarnawski et al. 2020), in integers and without big-M:
clocks wait under literals. For ops i, devices k, calls (k, c) and tensors u:

- ``x[i][k]``: op i is on device k; one literal per accelerator and colocation group;
- ``member[i, k, c]``: op i is in the call; for one call per accelerator the same literal;
- ``enters[u, k, c]``, ``leaves[u, k, c]``: the tensor is an input, an output of the call;
- ``start``, ``finish`` of calls, ``end`` and ``done`` of ops, ``objective``, the latency: in units;
- ``rank`` of ops and ``rank_call``: where calls without any time could wait in a cycle.

Where times are no multiples of the unit they are rounded down: the times of a plan, rounded down,
then satisfy every constraint, so bounds hold for all plans; the referee computes a plan's value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from placegap.formulations.latency_ip import why_not
from placegap.formulations.latency_ip.calls import (
    CallSets,
    empty_edges,
    equal_accelerators,
    index_sets,
    plan_values,
    serial_horizon_ns,
)
from placegap.formulations.latency_ip.chain_bound import chain_bound_ns
from placegap.formulations.shared import refuse
from placegap.formulations.shared.cp_families import (
    MOST_UNITS,
    CpModel,
    Derived,
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
from placegap.formulations.shared.or_tools import cp_model
from placegap.formulations.shared.pairs import tensor_edges
from placegap.formulations.shared.times import granularity_ns
from placegap.instances.problem import Instance, LatencySubgraphs, Plan
from placegap.instances.problem.integers import ceil_div

Member = tuple[int, int, int]


@dataclass(kw_only=True)
class LatencyModel(CpModel):
    """The constraint program of an instance with n ops and K devices."""

    semantics: LatencySubgraphs
    #: Index sets; windows in ns.
    sets: CallSets
    x: list[dict[int, Literal]]
    member: dict[Member, Literal]
    enters: dict[Member, Literal]
    leaves: dict[Member, Literal]
    start: dict[tuple[int, int], cp_model.IntVar]
    finish: dict[tuple[int, int], cp_model.IntVar]
    end: list[cp_model.IntVar]
    done: list[cp_model.IntVar]
    rank: dict[int, cp_model.IntVar] = field(default_factory=dict)
    rank_call: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    used: dict[tuple[int, int], Literal] = field(default_factory=dict)

    @property
    def latency_ns(self) -> cp_model.LinearExpr:
        """The latest end in nanoseconds."""
        return self.unit_ns * self.objective

    @property
    def edges(self) -> list[tuple[int, int, int]]:
        """Producer, consumer and tensor of every edge."""
        return tensor_edges(self.instance)

    def time(self, i: int, k: int) -> int:
        """Units of op i on device k, rounded down."""
        return int(self.instance.arrays.time_ns[i, k]) // self.unit_ns

    def host(self, u: int, k: int) -> int:
        """Units of tensor u into or out of device k, rounded down; at most horizon + 1."""
        never = self.horizon_ns // self.unit_ns + 1
        return min(int(self.instance.arrays.host_ns[u, k]) // self.unit_ns, never)


def build(
    instance: Instance,
    semantics: LatencySubgraphs,
    *,
    horizon_ns: int | None = None,
    bound_ns: int | None = None,
    symmetry: bool = False,
) -> LatencyModel:
    """The model of all plans whose latency is at most the horizon.

    Parameters
    ----------
    instance, semantics
        The problem, of objective latency_subgraphs; of another one, an InputError.
    horizon_ns : int, optional
        The latency of a known plan, or of no plan of interest; by default every plan fits.
    bound_ns : int, optional
        A lower bound on the latency; by default `chain_bound_ns`.
    symmetry : bool
        Equal accelerators are numbered by their first call. It is wrong beside constraints of
        your own that name devices.

    Notes
    -----
    O((n + m) A q + n K) variables and constraints for A accelerators with q calls each.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from ortools.sat.python import cp_model
    >>> solver = cp_model.CpSolver()
    >>> model = build(example(), LatencySubgraphs())
    >>> model.solve(solver) == cp_model.OPTIMAL, solver.value(model.latency_ns)
    (True, 43)
    """
    refuse("the latency model for CP-SAT", why_not(semantics))
    horizon = serial_horizon_ns(instance) if horizon_ns is None else horizon_ns
    model = new_model(instance, semantics, horizon)
    assign_once(model)
    model.derived.extend(memory_capacity(model.cp, model.instance, model.x))
    call_of_op(model)
    tensor_crosses(model)
    call_waits(model)
    call_duration(model)
    end_on_host(model)
    done_in_order(model)
    done_in_window(model)
    empty_in_order(model)
    if symmetry:
        equal_in_order(model)
    calls_in_order(model)
    chain_covers(model, chain_bound_ns(instance, semantics) if bound_ns is None else bound_ns)
    model.cp.minimize(model.objective)
    return model


# ---------------------------------------------------------------------------------------- variables


def new_model(instance: Instance, semantics: LatencySubgraphs, horizon_ns: int) -> LatencyModel:
    """Variables. The unit keeps all rows that the horizon allows within `LARGEST_ACTIVITY`."""
    sets = index_sets(instance, semantics, horizon_ns)
    granularity = granularity_ns(instance, transfers=False)
    unit = max(granularity, ceil_div(_longest_row_ns(sets, horizon_ns), MOST_UNITS))
    cp, horizon, n = cp_model.CpModel(), horizon_ns // unit, instance.num_ops
    possible, is_host = sets.window.possible, instance.arrays.is_host
    of_group: dict[tuple[int, int], Literal] = {}
    x: list[dict[int, Literal]] = []
    for i, g in enumerate(instance.arrays.group.tolist()):
        x.append({})
        for k in np.flatnonzero(possible[i]).tolist():
            key = (g, k) if not is_host[k] else (-1 - i, k)
            if key not in of_group:
                of_group[key] = cp.new_bool_var(f"x{i},{k}")
            x[i][k] = of_group[key]
    once, calls = sets.num_calls == 1, range(sets.num_calls)

    def literals(name: str, pairs: list[tuple[int, int]]) -> dict[Member, Literal]:
        return {(u, k, c): cp.new_bool_var(f"{name}{u},{k},{c}") for u, k in pairs for c in calls}

    members = [(i, k) for k, c in sets.calls if c == 0 for i in sets.on(k)]
    leaving = [(u, k) for u, k in sets.leaving if instance.arrays.host_ns[u, k] >= unit]
    clock = {at: cp.new_int_var(0, horizon, f"start{at}") for at in sets.calls}
    return LatencyModel(
        cp=cp,
        instance=instance,
        semantics=semantics,
        horizon_ns=horizon_ns,
        unit_ns=unit,
        exact=unit == granularity,
        sets=sets,
        x=x,
        member={(i, k, 0): x[i][k] for i, k in members} if once else literals("m", members),
        enters=literals("enters", sets.entering),
        leaves=literals("leaves", leaving),
        start=clock,
        finish={at: cp.new_int_var(0, horizon, f"finish{at}") for at in sets.calls},
        end=[cp.new_int_var(0, horizon, f"end{i}") for i in range(n)],
        done=[cp.new_int_var(0, horizon, f"done{i}") for i in range(n)],
        objective=cp.new_int_var(0, horizon, "latency"),
    )


def _longest_row_ns(sets: CallSets, horizon_ns: int) -> int:
    """An upper bound on the sum of a row: the horizon and a call, or an op and its tensor."""
    arrays, window = sets.instance.arrays, sets.window
    on_hosts = np.where(window.possible & arrays.is_host, arrays.time_ns, 0).astype(object)
    spread = max(
        largest_spread(table, window.possible)
        for table in (arrays.time_ns, window.head_ns + arrays.time_ns, window.tail_ns)
    )
    moves, call = [0] * len(sets.producer), [0] * sets.instance.num_devices
    for u, k in (*sets.entering, *sets.leaving):
        move = min(int(arrays.host_ns[u, k]), horizon_ns + 1)
        moves[u] += move * sets.num_calls
        call[k] += move
    for k, _ in sets.calls:
        call[k] += sum(arrays.time_ns[sets.on(k), k].tolist())
    # A call that may take longer than the horizon has a variable for its time (`_call_takes`).
    longest_call = min(max(call), horizon_ns)
    of_op = max(int(on_hosts.sum(axis=1).max()), spread + max(moves, default=0))
    return horizon_ns + max(longest_call, of_op)


# --------------------------------------------------------------------------------- who is in a call


def assign_once(model: LatencyModel) -> None:
    """Exactly one of x[i, k] over k."""
    for row in model.x:
        model.cp.add_exactly_one(row.values())


def call_of_op(model: LatencyModel) -> None:
    """Sum over c of member[i, k, c] == x[i, k], where there are several calls."""
    if model.sets.num_calls > 1:
        for i, k in [(i, k) for i, k, c in model.member if c == 0]:
            calls = [model.member[i, k, c] for c in range(model.sets.num_calls)]
            model.cp.add_exactly_one([*calls, model.x[i][k].negated()])


def tensor_crosses(model: LatencyModel) -> None:
    """A tensor whose producer and a consumer are on two sides of a call enters or leaves it."""
    sets, member = model.sets, model.member
    for (u, k, c), enters in model.enters.items():
        made_here = member.get((sets.producer[u], k, c))
        for j in sets.consumers[u]:
            if (j, k, c) in member:
                inside = [] if made_here is None else [made_here]
                model.cp.add_bool_or([member[j, k, c].negated(), enters, *inside])
        if made_here is not None:
            model.cp.add_implication(enters, made_here.negated())
    for (u, k, c), leaves in model.leaves.items():
        made_here = member[sets.producer[u], k, c]
        for j in sets.consumers[u]:
            inside = [member[j, k, c]] if (j, k, c) in member else []
            model.cp.add_bool_or([made_here.negated(), leaves, *inside])
        model.cp.add_implication(leaves, made_here)


# ------------------------------------------------------------------------------------------- clocks


def call_waits(model: LatencyModel) -> None:
    """A call starts after the producers of what enters it, and after the call before it."""
    cp, sets = model.cp, model.sets
    for (u, k, c), enters in model.enters.items():
        producer = model.end[sets.producer[u]]
        cp.add(model.start[k, c] >= producer).only_enforce_if(enters)
    for k, c in sets.calls:
        if c:
            cp.add(model.start[k, c] >= model.finish[k, c - 1])


def call_duration(model: LatencyModel) -> None:
    """Finish - start >= inputs + compute + outputs; members end with it; it all fits in latency."""
    cp, parts = model.cp, dict[tuple[int, int], list[Term]]()
    for at in model.sets.calls:
        parts[at] = []
    for crossing in (model.enters, model.leaves):
        for (u, k, c), literal in crossing.items():
            parts[k, c].append(Term(model.host(u, k), literal))
    for (i, k, c), literal in model.member.items():
        parts[k, c].append(Term(model.time(i, k), literal))
        cp.add(model.end[i] >= model.finish[k, c]).only_enforce_if(literal)
    for at, terms in parts.items():
        _call_takes(model, at, terms)
    for k in {k: None for k, _ in model.sets.calls}:
        of_device = [term for at, terms in parts.items() if at[0] == k for term in terms]
        model.derived.extend(at_most(cp, of_device, model.objective))


def _call_takes(model: LatencyModel, at: tuple[int, int], terms: list[Term]) -> None:
    """Finish >= start + sum of terms, by a variable for the sum where the row is too large."""
    cp, horizon = model.cp, model.horizon_ns // model.unit_ns
    if horizon + sum(term.coefficient for term in terms) <= MOST_UNITS:
        time = sum(term.coefficient * term.variable for term in terms)
        cp.add(model.finish[at] >= model.start[at] + time)
        return
    load = cp.new_int_var(0, horizon, f"load{at}")
    cp.add(model.finish[at] >= model.start[at] + load)
    model.derived.append(
        Derived(load, lambda value: sum(t.coefficient * value[t.variable.index] for t in terms))
    )
    model.derived.extend(at_most(cp, terms, load))


def end_on_host(model: LatencyModel) -> None:
    """end[j] >= end[i] + sum over hosts of p_jh x[j, h] for edges (i, j); latency >= end[i]."""
    is_host = model.instance.arrays.is_host
    own = [
        sum(model.time(j, h) * literal for h, literal in row.items() if is_host[h])
        for j, row in enumerate(model.x)
    ]
    for j, end in enumerate(model.end):
        model.cp.add(end >= own[j])
        model.cp.add(model.objective >= end)
    for i, j in dict.fromkeys((i, j) for i, j, _ in model.edges):
        model.cp.add(model.end[j] >= model.end[i] + own[j])


def done_in_order(model: LatencyModel) -> None:
    """done[j] >= done[i] + sum over k of p_jk x[j, k] + moves, for edges (i, j); done <= end."""
    # Moves are those of a tensor with one consumer.
    moves: list[list[Expression]] = [[] for _ in model.sets.producer]
    for crossing in (model.enters, model.leaves):
        for (u, k, _), literal in crossing.items():
            if len(model.sets.consumers[u]) == 1 and model.host(u, k):
                moves[u].append(model.host(u, k) * literal)
    times = model.instance.arrays.time_ns // model.unit_ns
    for i, j, u in model.edges:
        time = by_device(model.x[j], times[j])
        model.cp.add(model.done[j] >= model.done[i] + time + sum(moves[u]))
    for done, end in zip(model.done, model.end, strict=True):
        model.cp.add(done <= end)


def done_in_window(model: LatencyModel) -> None:
    """Heads and tails by device: done[i] >= head + p, done[i] + tail <= latency."""
    window, unit = model.sets.window, model.unit_ns
    first = (window.head_ns + model.instance.arrays.time_ns) // unit
    tail = window.tail_ns // unit
    for i, row in enumerate(model.x):
        model.cp.add(model.done[i] >= by_device(row, first[i]))
        model.cp.add(model.done[i] + by_device(row, tail[i]) <= model.objective)


# ----------------------------------------------------------------------------- one plan out of many


def chain_covers(model: LatencyModel, bound_ns: int) -> None:
    """Latency >= `latency_ip.chain_bound.chain_bound_ns`; what is above the horizon is not in the
    model.
    """
    model.cp.add(model.objective >= min(bound_ns // model.unit_ns, model.horizon_ns + 1))


def empty_in_order(model: LatencyModel) -> None:
    """Ranks rise along edges that take no time: calls without time do not wait in a cycle."""
    cp, sets, index = model.cp, model.sets, model.instance.arrays.index
    edges = empty_edges(model.instance, sets.window.possible, model.unit_ns - 1)
    if not edges:
        return
    most = model.instance.num_ops + len(sets.calls)
    ends = [(int(index.producer[e]), int(index.consumer[e])) for e in edges]
    for i in sorted({i for pair in ends for i in pair}):
        model.rank[i] = cp.new_int_var(0, most, f"rank{i}")
    for at in sets.calls:
        model.rank_call[at] = cp.new_int_var(0, most, f"rank{at}")
    tensors = dict.fromkeys(index.tensor[edges].tolist())
    for (u, k, c), enters in model.enters.items():
        if u in tensors:
            before = model.rank[sets.producer[u]]
            cp.add(model.rank_call[k, c] >= before + 1).only_enforce_if(enters)
    for (i, k, c), literal in model.member.items():
        if i in model.rank:
            cp.add(model.rank[i] >= model.rank_call[k, c]).only_enforce_if(literal)
    hosts = np.flatnonzero(model.instance.arrays.is_host).tolist()
    for i, j in dict.fromkeys(ends):
        on_host = sum(model.x[j][h] for h in hosts if h in model.x[j])
        cp.add(model.rank[j] >= model.rank[i] + on_host)
    for k, c in sets.calls:
        if c:
            cp.add(model.rank_call[k, c] >= model.rank_call[k, c - 1] + 1)


def equal_in_order(model: LatencyModel) -> None:
    """Equal accelerators are numbered by their first call; see `latency_ip.rows`."""
    ends = dict.fromkeys((i, j) for i, j, _ in model.edges)
    for members in equal_accelerators(model.instance):
        for k, other in pairwise(members):
            model.cp.add(model.start[k, 0] <= model.start[other, 0])
        if model.sets.num_calls == 1:
            for p in range(1, len(members)):
                for i, j in ends:
                    late = [model.x[i][k] for k in members[p:] if k in model.x[i]]
                    early = [model.x[j][k] for k in members[:p] if k in model.x[j]]
                    if late and early:
                        model.cp.add_at_most_one([*late, *early])


def calls_in_order(model: LatencyModel) -> None:
    """Edges lead to later calls of an accelerator; calls without an op come last."""
    cp, member, num_calls = model.cp, model.member, model.sets.num_calls
    if num_calls == 1:
        return
    for i, j in dict.fromkeys((i, j) for i, j, _ in model.edges):
        for k, c in model.sets.calls:
            if c and (i, k, c) in member and (j, k, c) in member:
                late = [member[i, k, d] for d in range(c, num_calls)]
                cp.add_at_most_one([*late, *(member[j, k, d] for d in range(c))])
    for k, c in model.sets.calls:
        if c and model.sets.on(k):
            used = model.used[k, c - 1] = cp.new_bool_var(f"used{k},{c - 1}")
            cp.add_bool_or([used.negated(), *(member[i, k, c - 1] for i in model.sets.on(k))])
            for i in model.sets.on(k):
                cp.add_implication(member[i, k, c], used)


# ------------------------------------------------------------------------------------ plans in, out


def warm_start(model: LatencyModel, instance: Instance, plan: Plan) -> None:
    """Hint all variables to their values in a plan of at most the horizon; once per model."""
    hint, unit = model.cp.add_hint, model.unit_ns
    values = plan_values(instance, plan, model.semantics)
    where, hinted = values.where, dict[int, None]()
    for i, row in enumerate(model.x):
        for k, literal in row.items():
            if literal.index not in hinted:
                hinted[literal.index] = None
                hint(literal, int(where[i][0] == k))
    if model.sets.num_calls > 1:
        for (i, k, c), literal in model.member.items():
            hint(literal, int(where[i] == (k, c)))
    for (u, k, c), literal in model.enters.items():
        hint(literal, int(values.enters(u, k, c)))
    for (u, k, c), literal in model.leaves.items():
        hint(literal, int(values.leaves(u, k, c)))
    for at, (start_ns, end_ns) in values.span_ns.items():
        hint(model.start[at], start_ns // unit)
        hint(model.finish[at], end_ns // unit)
    for i, end_ns in enumerate(values.schedule.end_ns.tolist()):
        hint(model.end[i], end_ns // unit)
        hint(model.done[i], values.done_ns[i] // unit)
    hint(model.objective, values.schedule.makespan_ns // unit)
    for i, rank in model.rank.items():
        hint(rank, values.rank[i])
    for at, rank in model.rank_call.items():
        hint(rank, values.rank_call[at])
    for at, used in model.used.items():
        hint(used, int(at in where))
    hint_derived(model.cp, model.derived)


def extract(model: LatencyModel, instance: Instance) -> Plan:
    """The plan that `CpModel.solve` has found; an InputError if it has found none."""
    value = require_solution(model, instance)
    device = placed(model.x, value)
    call = [0] * len(device)
    for (i, k, c), literal in model.member.items():
        if device[i] == k and value(literal):
            call[i] = c
    return Plan(tuple((k,) for k in device), call=tuple(call))
