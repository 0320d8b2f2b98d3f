"""The latency IP of Tarnawski et al. (NeurIPS 2020): q uninterrupted calls per accelerator.

Claim: exact for ``latency_subgraphs``, in both forms. Components of the model, for ops i, devices
k, accelerators' calls (k, c) and tensors u:

- ``x[i, k]`` in {0, 1}: op i is on device k;
- ``in_call[i, k, c]``: op i is in call c of accelerator k; variables in {0, 1}, or x for q = 1;
- ``enters[u, k, c]``, ``leaves[u, k, c]`` in [0, 1]: the tensor is an input, an output of the call;
- ``start[k, c]``, ``finish[k, c]``: of a call; ``end[i]``: when the output of op i is there;
- ``latency``: the latest end;
- ``reached[i, k, c]`` (as published; their z): op i, or one after it, is in the call;
- ``rank[i]``, ``rank_call[k, c]`` (`empty_in_order`): places in an order of ops and calls;
- ``used[k, c]`` (strengthened, q > 1): the call has an op.

``as_published`` are the rows of their program ``lip.py`` with one change: its big-M, the total time
on a CPU, which is wrong where that is no upper bound, is the horizon. ``strengthened`` leaves out
the convexity of calls, which clocks imply, and adds

- ``done[i]``: an op is done when its call has got to it: paths without
  big-M;
- work, heads, tails: what accelerators and paths take at least, and `latency_ip.chain_bound`: what
  a path takes that memory spreads over several calls;
- an order of equal accelerators, of an accelerator's calls, and of calls without ops.

Times of a MIP cannot order what takes no time: `empty_in_order` does, in both forms, where calls
without any time are possible at all. Of hosts that can hold everything only the fastest per op is
kept (``x`` of the others is fixed to 0): the paper has one pool of CPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.latency_ip.chain_bound import chain_bound_ns
from placegap.formulations.latency_ip.rows import (
    NEXT_TO_NOTHING,
    call_after_call,
    call_convex,
    call_duration,
    call_of_op,
    call_variables,
    call_waits,
    calls_in_order,
    chain_covers,
    colocate_pooled,
    done_in_order,
    done_in_window,
    empty_edges,
    empty_in_order,
    end_of_call,
    end_on_host,
    equal_accelerators,
    equal_in_order,
    index_sets,
    latency_covers,
    model_unit_ns,
    serial_horizon_ns,
    tensor_enters,
    tensor_leaves,
    time_variables,
    where_needed,
    work_covers,
)
from placegap.formulations.shared.naming import by_number, describe, names_of
from placegap.formulations.shared.old_families import (
    assign_once,
    memory_capacity,
    place_ops,
    placement,
    set_placement,
)
from placegap.formulations.shared.pairs import (
    consumers_of_tensors,
    edge_ends,
    op_reach,
    tensor_edges,
)
from placegap.instances.objectives.calls.referee import simulate_subgraphs
from placegap.instances.problem import Instance, LatencySubgraphs, Plan, Schedule, Semantics
from placegap.instances.reading.errors import look_up

Form = Literal["as_published", "strengthened"]


CallName = tuple[int, int]
"""Accelerator and number of a call; a host and 0 for ops of a host."""


def build(
    instance: Instance,
    semantics: LatencySubgraphs,
    form: Form = "strengthened",
    horizon_ns: int | None = None,
    bound_ns: int | None = None,
    symmetry: bool = False,
    names: bool = False,
) -> pyo.ConcreteModel:
    """The latency IP of an instance.

    Parameters
    ----------
    instance : Instance
    semantics : LatencySubgraphs
        ``latency_subgraphs``.
    form : {"strengthened", "as_published"}
    horizon_ns : int, optional
        Only plans of at most this latency matter: that of a known plan, for instance. It is the
        big-M. By default every plan fits.
    bound_ns : int, optional
        A lower bound on the latency, for the strengthened form; by default `chain_bound_ns`.
    symmetry : bool
        Strengthened only: equal accelerators are numbered by their first call. It makes proofs
        shorter, and is wrong beside constraints of your own that name devices.
    names : bool
        Index the components by the names of ops and devices, not by their numbers.

    Returns
    -------
    ConcreteModel
        Minimizes ``latency``, in units of ``unit_ns`` nanoseconds. Constraints can be added.

    Raises
    ------
    ValueError
        Another objective or form.

    Examples
    --------
    >>> from placegap.instances import example
    >>> twice = LatencySubgraphs(subgraphs=2)
    >>> model = build(example(), twice, horizon_ns=99)
    >>> len(model.x), len(model.in_call), len(model.enters), pyo.value(model.unit_ns)
    (8, 16, 16, 1.0)
    """
    look_up("form", form, dict.fromkeys(get_args(Form)))
    reason = why_not(semantics)
    if reason is not None:
        raise ValueError(f"the latency IP {reason}")
    horizon = serial_horizon_ns(instance) if horizon_ns is None else horizon_ns
    # As published, windows come from the longest horizon: the form keeps the rows of the paper.
    sets = index_sets(instance, semantics, horizon, windowed=form == "strengthened")
    model = pyo.ConcreteModel(name=f"latency IP: {instance.name}")
    model.unit_ns = pyo.Param(initialize=sets.unit_ns)
    place_ops(model, sets.window.possible)
    call_variables(model, sets)
    time_variables(model, sets)
    assign_once(model, instance)
    colocate_pooled(model, instance)
    memory_capacity(model, instance)
    call_of_op(model, sets)
    tensor_enters(model, sets)
    tensor_leaves(model, sets)
    call_waits(model, sets)
    call_duration(model, sets)
    call_after_call(model, sets)
    end_of_call(model, sets)
    end_on_host(model, sets)
    latency_covers(model, sets)
    # Clocks make calls convex by themselves, except around cycles in which nothing takes time.
    empty_in_order(model, sets)
    if form == "as_published":
        call_convex(model, sets)
    else:
        # The rows above bound little: with fractional `enters` the big-M of a wait is slack, and so
        # a path through several calls costs nothing. `done` follows paths without big-M.
        done_in_order(model, sets)
        done_in_window(model, sets)
        work_covers(model, sets)
        if bound_ns is None:
            bound_ns = chain_bound_ns(instance, semantics)
        chain_covers(model, sets, bound_ns)
        if symmetry:
            equal_in_order(model, sets)
        calls_in_order(model, sets)
    model.objective = pyo.Objective(expr=model.latency, doc="Tarnawski et al.: TotalLatency")
    return describe(model, __doc__, names_of(instance) if names else None)


def why_not(semantics: Semantics) -> str | None:
    """Why the model does not state a semantics, or None if it does."""
    if semantics.objective != "latency_subgraphs":
        return f"states latency_subgraphs, not {semantics.label}"
    return None


def count_rows(instance: Instance, semantics: LatencySubgraphs, form: Form) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside, without building."""
    arrays, index, n, q = (
        instance.arrays,
        instance.arrays.index,
        instance.num_ops,
        semantics.subgraphs,
    )
    accelerators, edges = int((~arrays.is_host).sum()), len(index.producer)
    calls, tensors = accelerators * q, len(index.tensor_producer)
    rows = 2 * n + edges + n + calls * (2 * edges + tensors + n + 2)
    rows += n * accelerators if q > 1 else 0
    if empty_edges(
        instance, where_needed(instance), int(NEXT_TO_NOTHING * model_unit_ns(instance, None))
    ):
        rows += calls * (tensors + n + 1) + edges
    if form == "as_published":
        return rows + calls * (n + 2 * edges)
    order = edges * accelerators if q == 1 else calls * (n + 2 + edges)
    return rows + edges + 3 * n + accelerators + 1 + order


# ------------------------------------------------------------------------------------ plans in, out


@by_number
def warm_start(
    model: pyo.ConcreteModel, instance: Instance, plan: Plan, semantics: LatencySubgraphs
) -> None:
    """Set the values of all variables to those of a plan, or of its representative in the model.

    Parameters
    ----------
    model : ConcreteModel
        From `build`, of either form, with a horizon not below the plan's latency.
    instance, plan, semantics
        A feasible plan under the semantics.
    """
    values = plan_values(instance, plan, semantics)
    unit_ns, where = pyo.value(model.unit_ns), values.where
    set_placement(model, values.plan)
    for (i, k, c), member in model.in_call.items():
        if model.in_call.ctype is pyo.Var:
            member.set_value(int(where[i] == (k, c)))
    for (u, k, c), enters in model.enters.items():
        enters.set_value(int(values.enters(u, k, c)))
    for (u, k, c), leaves in model.leaves.items():
        leaves.set_value(int(values.leaves(u, k, c)))
    for at, (start_ns, end_ns) in values.span_ns.items():
        model.start[at].set_value(start_ns / unit_ns)
        model.finish[at].set_value(end_ns / unit_ns)
    for i, end_ns in enumerate(values.schedule.end_ns.tolist()):
        model.end[i].set_value(end_ns / unit_ns)
    model.latency.set_value(values.schedule.makespan_ns / unit_ns)
    if model.component("rank") is not None:
        for i, rank in model.rank.items():
            rank.set_value(values.rank[i])
        for at, rank in model.rank_call.items():
            rank.set_value(values.rank_call[at])
    if model.component("reached") is not None:
        _set_reached(model, instance, where)
    if model.component("done") is not None:
        for i, done in model.done.items():
            done.set_value(values.done_ns[i] / unit_ns)
    if model.component("used") is not None:
        for at, used in model.used.items():
            used.set_value(int(at in where))


def _set_reached(
    model: pyo.ConcreteModel, instance: Instance, where: list[tuple[int, int]]
) -> None:
    """An op is reached by a call if it is a member or some member comes after it."""
    index = instance.arrays.index
    after = op_reach(index)[1]
    members: dict[tuple[int, int], int] = {}
    for i, at in enumerate(where):
        members[at] = members.get(at, 0) | 1 << i
    for (i, k, c), variable in model.reached.items():
        variable.set_value(int((after[i] | 1 << i) & members.get((k, c), 0) > 0))


@by_number
def extract(model: pyo.ConcreteModel, instance: Instance) -> Plan:
    """The plan that the values of x and in_call describe."""
    device = placement(model, instance.num_ops)
    best = [(-1.0, 0)] * instance.num_ops
    for (i, k, c), member in model.in_call.items():
        if device[i] == k:
            best[i] = max(best[i], (pyo.value(member), -c))
    return Plan(tuple((k,) for k in device), call=tuple(-c for _, c in best))


# ----------------------------------------------------------------- what the variables are in a plan


@dataclass(frozen=True)
class PlanValues:
    """The values of a plan's variables in the models."""

    plan: Plan
    schedule: Schedule
    #: Device and call of each op.
    where: list[CallName]
    #: producer, consumers: Producer and consumers of each tensor.
    producer: list[int]
    consumers: list[list[int]]
    #: Start and end of all calls of accelerators, also of those without an op.
    span_ns: dict[CallName, tuple[int, int]]
    #: Time at which the call of each op has brought in its inputs and run its ops up to this one.
    done_ns: list[int]
    #: Position of each op's call, or of the op on a host, in an order in which calls wait only for
    #: earlier ones and start times do not fall.
    rank: list[int]
    #: Of all calls; those without an op come last.
    rank_call: dict[CallName, int]

    def enters(self, u: int, k: int, c: int) -> bool:
        """Whether tensor u is an input of call (k, c)."""
        fed = any(self.where[j] == (k, c) for j in self.consumers[u])
        return fed and self.where[self.producer[u]] != (k, c)

    def leaves(self, u: int, k: int, c: int) -> bool:
        """Whether tensor u is an output of call (k, c)."""
        read = any(self.where[j] != (k, c) for j in self.consumers[u])
        return read and self.where[self.producer[u]] == (k, c)


def plan_values(instance: Instance, plan: Plan, semantics: LatencySubgraphs) -> PlanValues:
    """The values of a feasible plan's representative (`tidy`)."""
    tidied, schedule, rank = tidy(instance, plan, semantics)
    where = list(zip(tidied.devices.tolist(), tidied.call or (), strict=True))
    index = instance.arrays.index
    of_call, count = dict(zip(where, rank, strict=True)), max(rank) + 1
    span_ns = _spans(instance, where, schedule, semantics.subgraphs)
    return PlanValues(
        tidied,
        schedule,
        where,
        index.tensor_producer.tolist(),
        consumers_of_tensors(instance),
        span_ns,
        done_ns=_done(instance, where, schedule),
        rank=rank,
        rank_call={at: of_call.get(at, count + at[1]) for at in span_ns},
    )


def tidy(
    instance: Instance, plan: Plan, semantics: LatencySubgraphs
) -> tuple[Plan, Schedule, list[int]]:
    """A feasible plan's representative in the models, its schedule, and ranks of ops.

    It is no slower: ops are on hosts of `where_needed`, calls are numbered without gaps, and equal
    accelerators by the start of their first call (those without a call last).
    """
    arrays = instance.arrays
    device, call = plan.devices.tolist(), list(plan.call or [0] * instance.num_ops)
    needed = where_needed(instance)
    for i, k in enumerate(device):
        if arrays.is_host[k]:
            call[i] = 0
            if not needed[i, k]:
                kept = np.flatnonzero(needed[i] & arrays.is_host)
                device[i] = int(kept[np.argmin(arrays.time_ns[i, kept])])
    used = {k: sorted({c for j, c in zip(device, call, strict=True) if j == k}) for k in device}
    call = [used[k].index(c) for k, c in zip(device, call, strict=True)]
    tidied = Plan(tuple((k,) for k in device), call=tuple(call))
    schedule = simulate_subgraphs(instance, tidied, semantics)
    rank = _ranks(instance, device, call, schedule)
    first = {device[i]: rank[i] for i in sorted(range(instance.num_ops), key=lambda i: -rank[i])}
    new = list(range(instance.num_devices))
    for members in equal_accelerators(instance):
        by_start = sorted(members, key=lambda k: (first.get(k, instance.num_ops), k))
        for old, name in zip(by_start, members, strict=True):
            new[old] = name
    tidied = Plan(tuple((new[k],) for k in device), call=tuple(call))
    return tidied, simulate_subgraphs(instance, tidied, semantics), rank


def _ranks(instance: Instance, device: list[int], call: list[int], schedule: Schedule) -> list[int]:
    is_host = instance.arrays.is_host
    unit = [
        (k, c, i if is_host[k] else -1) for i, (k, c) in enumerate(zip(device, call, strict=True))
    ]
    waits: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {one: [] for one in unit}
    for i, j in edge_ends(instance):
        if unit[i] != unit[j]:
            waits[unit[j]].append(unit[i])
    for one, other in pairwise(sorted(waits)):
        if one[0] == other[0] and not is_host[one[0]]:
            waits[other].append(one)
    start = dict(zip(unit, schedule.start_ns.tolist(), strict=True))
    order = sorted(TopologicalSorter(waits).static_order(), key=start.__getitem__)  # stable
    position = {one: at for at, one in enumerate(order)}
    return [position[one] for one in unit]


def _spans(
    instance: Instance, where: list[CallName], schedule: Schedule, num_calls: int
) -> dict[CallName, tuple[int, int]]:
    """Calls without an op start when the one before has finished, or the equal before has begun."""
    start, end = schedule.start_ns.tolist(), schedule.end_ns.tolist()
    known = {at: (start[i], end[i]) for i, at in enumerate(where)}
    before = {k: j for members in equal_accelerators(instance) for j, k in pairwise(members)}
    spans: dict[CallName, tuple[int, int]] = {}
    for k in np.flatnonzero(~instance.arrays.is_host).tolist():
        for c in range(num_calls):
            idle = spans[k, c - 1][1] if c else spans.get((before.get(k, -1), 0), (0, 0))[0]
            spans[k, c] = known.get((k, c), (idle, idle))
    return spans


def _done(instance: Instance, where: list[CallName], schedule: Schedule) -> list[int]:
    """Times at which ops are done: one after the other in topological order, after the inputs."""
    arrays, index = instance.arrays, instance.arrays.index
    clock = dict(zip(where, schedule.start_ns.tolist(), strict=True))
    inputs = {(u, *where[j]): None for i, j, u in tensor_edges(instance) if where[i] != where[j]}
    for u, k, c in inputs:
        clock[k, c] += int(arrays.host_ns[u, k])
    done: list[int] = schedule.end_ns.tolist()
    for i in index.topological_order.tolist():
        k = where[i][0]
        if not arrays.is_host[k]:
            clock[where[i]] += int(arrays.time_ns[i, k])
            done[i] = clock[where[i]]
    return done
