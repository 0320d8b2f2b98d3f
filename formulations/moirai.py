"""Moirai's MILP for the makespan under ports: build it, start it from a plan, read a plan off it.

Zhang et al., "Moirai: Towards Optimal Placement for Distributed Inference on Heterogeneous Devices"
(2023), section III-D. Both forms are exact for ``makespan port per_edge``; their components are
listed in `moirai_published` and `moirai_strengthened`.
"""

from __future__ import annotations

import heapq
from typing import Literal

import pyomo.environ as pyo

from placegap.formulations import moirai_published, moirai_strengthened
from placegap.formulations.common import placement, set_placement
from placegap.formulations.scaled_times import serial_horizon_ns
from placegap.instances.model import Instance
from placegap.instances.orders import plan_from_times
from placegap.instances.plan import Plan, Transfer
from placegap.instances.semantics import Semantics
from placegap.instances.simulate import simulate

Form = Literal["as_published", "strengthened"]
Key = tuple[float, float, int, int]

SEMANTICS = Semantics(objective="makespan", channels="port", transfers="per_edge")
"""The only semantics the model states."""


def build(
    instance: Instance,
    semantics: Semantics,
    form: Form = "strengthened",
    horizon_ns: int | None = None,
) -> pyo.ConcreteModel:
    """Moirai's MILP of an instance.

    Parameters
    ----------
    instance : Instance
    semantics : Semantics
        ``makespan port per_edge``; the model states no other.
    form : {"strengthened", "as_published"}
    horizon_ns : int, optional
        Only plans of at most this makespan matter: the value of a known plan, for instance. The
        default is a time by which every plan can end. All optima stay in the model as long as the
        horizon is not below the optimum.

    Returns
    -------
    ConcreteModel
        Minimizes ``makespan``, in units of ``unit_ns`` nanoseconds. Constraints can be added.

    Raises
    ------
    ValueError
        Another semantics.

    Examples
    --------
    >>> from placegap.instances import example
    >>> port = Semantics(objective="makespan")
    >>> model = build(example(), port)
    >>> len(model.x), len(model.op_before), pyo.value(model.unit_ns)
    (8, 2, 1.0)
    """
    reason = why_not(semantics)
    if reason is not None:
        raise ValueError(f"Moirai's model {reason}")
    horizon = serial_horizon_ns(instance) if horizon_ns is None else horizon_ns
    chosen = moirai_published if form == "as_published" else moirai_strengthened
    return chosen.build(instance, horizon)


def why_not(semantics: Semantics) -> str | None:
    """Why the model does not state a semantics, or None if it does."""
    if semantics != SEMANTICS:
        return f"states {SEMANTICS.label}, not {semantics.label}"
    return None


def count_rows(instance: Instance, form: Form) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside, without building.

    Examples
    --------
    >>> from placegap.instances import example
    >>> count_rows(example(), "as_published"), count_rows(example(), "strengthened")
    (105, 70)
    """
    if form == "as_published":
        return moirai_published.count_rows(instance)
    return moirai_strengthened.count_rows(instance)


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
    ends, device = _ends(instance), schedule.device.tolist()
    op = list(zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True))
    flow = [(op[i][1], op[i][1]) for i, _ in ends]  # a local flow takes no time
    table = schedule.transfers
    for q, start, end in zip(table.item, table.start_ns, table.end_ns, strict=True):
        flow[q] = (int(start), int(end))
    set_placement(model, plan)
    unit_ns = pyo.value(model.unit_ns)
    model.makespan.set_value(schedule.makespan_ns / unit_ns)
    for times, spans, before in (("op", op, model.op_before), ("flow", flow, model.flow_before)):
        for side, what in enumerate(("start", "end")):
            variables = model.component(f"{times}_{what}")
            if variables.ctype is pyo.Var:  # the ends of the strengthened form are expressions
                for i, span in enumerate(spans):
                    variables[i].set_value(span[side] / unit_ns)
        for (i, j), variable in before.items():
            variable.set_value(int(spans[i][1] <= spans[j][0]))
    for name in ("route", "channel"):
        for (q, a, b), variable in (model.component(name) or {}).items():
            variable.set_value(int((device[ends[q][0]], device[ends[q][1]]) == (a, b)))
    for q, variable in (model.component("remote") or {}).items():
        variable.set_value(int(device[ends[q][0]] != device[ends[q][1]]))


def extract(model: pyo.ConcreteModel, instance: Instance) -> Plan:
    """The plan that the values of a model's variables describe.

    The devices are those of x. The orders are those that the model decided on and, where it had no
    pair to decide on, those of its start times. Executing the plan takes no longer than the model
    says, up to the solver's tolerances.
    """
    n, ends, unit_ns = instance.num_ops, _ends(instance), pyo.value(model.unit_ns)
    arrays, device = instance.arrays, placement(model, instance.num_ops)
    remote = [q for q, (i, j) in enumerate(ends) if device[i] != device[j]]
    position = arrays.index.topological_position.tolist()
    keys: dict[int, Key] = {}  # ops are items 0 .. n - 1, remote flows n + q
    for i in range(n):
        start = pyo.value(model.op_start[i])
        duration = arrays.time_ns[i, device[i]] / unit_ns
        keys[i] = (start, start + duration, position[i], i)
    for q in remote:
        i, j = ends[q]
        start = pyo.value(model.flow_start[q])
        between = arrays.link_class[device[i], device[j]]
        duration = arrays.transfer_ns[arrays.index.tensor[q], between] / unit_ns
        keys[n + q] = (start, start + duration, position[i], n + q)
    arcs = [(i, j) for i, j in ends if device[i] == device[j]]
    arcs += [(ends[q][0], n + q) for q in remote] + [(n + q, ends[q][1]) for q in remote]
    decided = [pair for pair in _decided(model.op_before) if device[pair[0]] == device[pair[1]]]
    decided += [
        (n + q, n + r)
        for q, r in _decided(model.flow_before)
        if n + q in keys
        and n + r in keys
        and any(device[ends[q][side]] == device[ends[r][side]] for side in (0, 1))
    ]
    order = _sequence(keys, arcs + decided)
    if len(order) < len(keys):  # items without duration may follow each other in a circle
        order = _sequence(keys, arcs)
    rank = {item: at for at, item in enumerate(order)}
    return plan_from_times(
        instance,
        SEMANTICS,
        device,
        [(rank[i], rank[i]) for i in range(n)],
        [(Transfer(q, device[ends[q][1]]), rank[n + q], rank[n + q]) for q in remote],
    )


def _ends(instance: Instance) -> list[tuple[int, int]]:
    index = instance.arrays.index
    return list(zip(index.producer.tolist(), index.consumer.tolist(), strict=True))


def _decided(before: pyo.Var) -> list[tuple[int, int]]:
    """Pairs (first, second) as decided; the published form has one variable for both orders."""
    found = []
    for (i, j), variable in before.items():
        opposite = before[j, i].value if (j, i) in before else 1 - variable.value
        if round(variable.value) > round(opposite):
            found.append((i, j))
        elif (j, i) not in before:
            found.append((j, i))
    return found


def _sequence(keys: dict[int, Key], arcs: list[tuple[int, int]]) -> list[int]:
    """Items in an order that respects the arcs, of the available ones the least key first.

    Items on a circle of arcs, and what follows them, are missing.
    """
    waiting = dict.fromkeys(keys, 0)
    after: dict[int, list[int]] = {item: [] for item in keys}
    for first, second in arcs:
        waiting[second] += 1
        after[first].append(second)
    ready = [keys[item] for item, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        item = heapq.heappop(ready)[-1]
        order.append(item)
        for follower in after[item]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, keys[follower])
    return order
