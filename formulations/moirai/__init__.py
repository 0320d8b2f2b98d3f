"""Moirai's MILP for the makespan: build it, start it from a plan, read a plan off it.

Zhang et al., "Moirai: Towards Optimal Placement for Distributed Inference on Heterogeneous Devices"
(2023), section III-D. As published it is exact for ``makespan port per_edge``, strengthened for
every channel model with transfers ``per_edge``; the components of both forms are listed in
`moirai.published` and `moirai.strengthened`.
"""

from __future__ import annotations

from typing import Literal, get_args

import pyomo.environ as pyo

from placegap.formulations.moirai import published as moirai_published
from placegap.formulations.moirai import strengthened as moirai_strengthened
from placegap.formulations.shared.devices import new_names
from placegap.formulations.shared.families import placement, set_placement
from placegap.formulations.shared.naming import by_number, describe, names_of
from placegap.formulations.shared.pairs import PairSolution, edge_ends, plan_in_order, spans_ns
from placegap.instances.objectives.makespan.simulate import simulate
from placegap.instances.problem import Instance, Makespan, Plan, Semantics
from placegap.instances.reading.errors import look_up
from placegap.instances.referee.channels import NO_CHANNEL, channels_of

Form = Literal["verbatim", "as_published", "strengthened"]

SEMANTICS = Makespan(channels="port", transfers="per_edge")
"""The semantics of the paper, and the only one that its model states as published."""


def build(
    instance: Instance,
    semantics: Makespan,
    form: Form = "strengthened",
    horizon_ns: int | None = None,
    symmetry: bool = False,
    names: bool = False,
) -> pyo.ConcreteModel:
    """Moirai's MILP of an instance.

    Parameters
    ----------
    instance : Instance
    semantics : Makespan
        ``makespan per_edge``, with any channels if strengthened, with ``port`` as published.
    form : {"strengthened", "as_published", "verbatim"}
        Verbatim is as published with the paper's big-M of 100,000, far above the horizon: solvers
        keep its integers to 1e-6, so that their optimum is none to the nanosecond.
    horizon_ns : int, optional
        Only plans of at most this makespan matter: the value of a known plan, for instance. The
        default is a time by which every plan can end. All optima stay in the model as long as the
        horizon is not below the optimum.
    symmetry : bool
        Strengthened only: of placements that differ in the names of identical devices, keep one.
        It makes proofs shorter, and is wrong beside constraints of your own that name devices.
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
    >>> port = Makespan()
    >>> model = build(example(), port)
    >>> len(model.x), len(model.op_before), pyo.value(model.unit_ns)
    (8, 2, 1.0)
    """
    look_up("form", form, dict.fromkeys(get_args(Form)))
    reason = why_not(semantics, form)
    if reason is not None:
        raise ValueError(f"Moirai's model {reason}")
    horizon = instance.arrays.serial_horizon_ns if horizon_ns is None else horizon_ns
    if form != "strengthened":
        model = moirai_published.build(instance, horizon, form == "verbatim")
    else:
        model = moirai_strengthened.build(instance, horizon, semantics.channels, symmetry)
    home = moirai_strengthened if form == "strengthened" else moirai_published
    return describe(model, home.__doc__, names_of(instance) if names else None)


def why_not(semantics: Semantics, form: Form = "strengthened") -> str | None:
    """Why the model does not state a semantics, or None if it does."""
    if form != "strengthened" and semantics != SEMANTICS:
        return f"states {SEMANTICS.label} as published, not {semantics.label}"
    if not semantics.per_edge:
        return f"states makespan per_edge, not {semantics.label}"
    return None


def count_rows(
    instance: Instance, form: Form, semantics: Makespan = SEMANTICS, symmetry: bool = False
) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside, without building."""
    if form != "strengthened":
        return moirai_published.count_rows(instance)
    return moirai_strengthened.count_rows(instance, semantics.channels, symmetry)


@by_number
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
    op, flow = spans_ns(instance, schedule)
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


@by_number
def extract(model: pyo.ConcreteModel, instance: Instance, semantics: Makespan) -> Plan:
    """The plan that the values of a model's variables describe; see `plan_in_order`."""
    ends, device = edge_ends(instance), placement(model, instance.num_ops)
    held = {
        q: _held(instance, semantics, device[i], device[j])
        for q, (i, j) in enumerate(ends)
        if device[i] != device[j]
    }
    flow_pairs = [
        (q, r)
        for q, r in _decided(model.flow_before)
        if q in held and r in held and held[q] & held[r]
    ]
    found = PairSolution(
        device,
        [pyo.value(start) for start in model.op_start.values()],
        [pyo.value(start) for start in model.flow_start.values()],
        pyo.value(model.unit_ns),
        [(i, j) for i, j in _decided(model.op_before) if device[i] == device[j]],
        flow_pairs,
    )
    return plan_in_order(instance, semantics, found)


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
