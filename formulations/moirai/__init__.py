"""Moirai's MILP for the makespan: build it, start it from a plan, read a plan off it.

Zhang et al., "Moirai: Towards Optimal Placement for Distributed Inference on Heterogeneous Devices"
(2023), section III-D. As published it is exact for ``makespan port per_edge``, strengthened for
every channel model with transfers ``per_edge``; the components of both forms are listed in
`moirai.published` and `moirai.strengthened`.
"""

from __future__ import annotations

from typing import Literal

import pyomo.environ as pyo

from placegap.formulations.moirai import published as moirai_published
from placegap.formulations.moirai import strengthened as moirai_strengthened
from placegap.formulations.shared.devices import new_names
from placegap.formulations.shared.families import placement, set_placement
from placegap.formulations.shared.pairs import Key, edge_ends, sequence
from placegap.formulations.shared.times import serial_horizon_ns
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan, Transfer
from placegap.instances.problem.semantics import Makespan, Semantics
from placegap.instances.referee.channels import NO_CHANNEL, channels_of, plan_from_times
from placegap.instances.referee.simulate import simulate

Form = Literal["as_published", "strengthened"]

SEMANTICS = Makespan(channels="port", transfers="per_edge")
"""The semantics of the paper, and the only one that its model states as published."""


def build(
    instance: Instance,
    semantics: Makespan,
    form: Form = "strengthened",
    horizon_ns: int | None = None,
    symmetry: bool = False,
) -> pyo.ConcreteModel:
    """Moirai's MILP of an instance.

    Parameters
    ----------
    instance : Instance
    semantics : Makespan
        ``makespan per_edge``, with any channels if strengthened, with ``port`` as published.
    form : {"strengthened", "as_published"}
    horizon_ns : int, optional
        Only plans of at most this makespan matter: the value of a known plan, for instance. The
        default is a time by which every plan can end. All optima stay in the model as long as the
        horizon is not below the optimum.
    symmetry : bool
        Strengthened only: of placements that differ in the names of identical devices, keep one.
        It makes proofs shorter, and is wrong beside constraints of your own that name devices.

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
    >>> port = Makespan()
    >>> model = build(example(), port)
    >>> len(model.x), len(model.op_before), pyo.value(model.unit_ns)
    (8, 2, 1.0)
    """
    reason = why_not(semantics, form)
    if reason is not None:
        raise ValueError(f"Moirai's model {reason}")
    horizon = serial_horizon_ns(instance) if horizon_ns is None else horizon_ns
    if form == "as_published":
        return moirai_published.build(instance, horizon)
    return moirai_strengthened.build(instance, horizon, semantics.channels, symmetry)


def why_not(semantics: Semantics, form: Form = "strengthened") -> str | None:
    """Why the model does not state a semantics, or None if it does."""
    if form == "as_published" and semantics != SEMANTICS:
        return f"states {SEMANTICS.label} as published, not {semantics.label}"
    if semantics.objective != "makespan" or semantics.transfers != "per_edge":
        return f"states makespan per_edge, not {semantics.label}"
    return None


def count_rows(
    instance: Instance, form: Form, semantics: Makespan = SEMANTICS, symmetry: bool = False
) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside, without building.

    Examples
    --------
    >>> from placegap.instances import example
    >>> count_rows(example(), "as_published"), count_rows(example(), "strengthened")
    (105, 70)
    """
    if form == "as_published":
        return moirai_published.count_rows(instance)
    return moirai_strengthened.count_rows(instance, semantics.channels, symmetry)


def warm_start(
    model: pyo.ConcreteModel, instance: Instance, plan: Plan, semantics: Makespan
) -> None:
    """Set the values of all variables to those of a plan's schedule.

    With symmetry breaking, identical devices swap their parts, as in the plan's representative.

    Parameters
    ----------
    model : ConcreteModel
        From `build`, of either form, with a horizon not below the plan's makespan.
    instance : Instance
    plan : Plan
        A feasible plan.
    semantics : Makespan
        That of `build`.
    """
    schedule = simulate(instance, plan, semantics)
    ends, device = edge_ends(instance), schedule.device.tolist()
    if model.component("symmetry_order") is not None:
        names = new_names(instance, plan)
        device = [names[k] for k in device]
    op = list(zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True))
    flow = [(op[i][1], op[i][1]) for i, _ in ends]  # a local flow takes no time
    table = schedule.transfers
    for q, start, end in zip(table.item, table.start_ns, table.end_ns, strict=True):
        flow[q] = (int(start), int(end))
    set_placement(model, Plan.on(device))
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


def extract(model: pyo.ConcreteModel, instance: Instance, semantics: Makespan) -> Plan:
    """The plan that the values of a model's variables describe; semantics as for `build`.

    The devices are those of x. The orders are those that the model decided on and, where it had no
    pair to decide on, those of its start times. Executing the plan takes no longer than the model
    says, up to the solver's tolerances.
    """
    n, ends, unit_ns = instance.num_ops, edge_ends(instance), pyo.value(model.unit_ns)
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
    held = {q: _held(instance, semantics, *(device[i] for i in ends[q])) for q in remote}
    decided += [
        (n + q, n + r)
        for q, r in _decided(model.flow_before)
        if q in held and r in held and held[q] & held[r]
    ]
    order = sequence(keys, arcs + decided)
    if len(order) < len(keys):  # items without duration may follow each other in a circle
        order = sequence(keys, arcs)
    rank = {item: at for at, item in enumerate(order)}
    return plan_from_times(
        instance,
        semantics,
        device,
        [(rank[i], rank[i]) for i in range(n)],
        [(Transfer(q, device[ends[q][1]]), rank[n + q], rank[n + q]) for q in remote],
    )


def _held(instance: Instance, semantics: Makespan, source: int, target: int) -> set[int]:
    """The channels that a transfer holds."""
    return {*channels_of(semantics.channels, instance.num_devices, source, target)} - {NO_CHANNEL}


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
