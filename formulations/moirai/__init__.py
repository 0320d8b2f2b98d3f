"""Moirai's MILP for the makespan: minimize T subject to

    (4)   T >= C_i,  T >= C_q                              ops i, flows q
    (4a)  C_i <= S_q,  C_q <= S_j                          q = (i, j);  C_i <= S_j, j after i
    (4b)  C_i = S_i + sum over k of p_ik x_ik
    (4c)  sum over k of x_ik = 1
    (5)   sum over i of m_i x_ik <= M_k
    (6)   S_j >= C_i - H (1 - d_ij) - H (2 - x_ik - x_jk)  and with i, j exchanged
    (7)   z_q = 1 if and only if q's ends are apart; sum over a, b of u_qab = z_q;
          C_q = S_q + sum over a, b of p_qab u_qab
    (8)   S_r >= C_q - H (1 - d_qr) - H (4 - z_q - z_r - x_ik - x_jk)

for ops i, j, flows q, r, devices k, a, b; x_ik = 1 if op i is on device k, S and C are starts and
ends, d_ij = 1 if i is before j, and H is the horizon.

Zhang et al., "Moirai: Towards Optimal Placement for Distributed Inference on Heterogeneous Devices"
(2023), section III-D. As published it is exact for ``makespan port per_edge``, strengthened for
every channel model with transfers ``per_edge``; the components of both forms are listed in
`moirai.published` and `moirai.strengthened`.
"""

from __future__ import annotations

from typing import Literal, get_args

import pyomo.environ as pyo

from placegap.formulations.moirai import published, strengthened
from placegap.formulations.shared import refuse
from placegap.formulations.shared.data import device_numbers, require_solution, set_placement
from placegap.formulations.shared.devices import new_names
from placegap.formulations.shared.pairs import PairSolution, edge_ends, plan_in_order, spans_ns
from placegap.instances.objectives.makespan.simulate import simulate
from placegap.instances.problem import Instance, Makespan, Plan, Semantics
from placegap.instances.reading.errors import InputError, look_up
from placegap.instances.referee.channels import NO_CHANNEL, channels_of

__all__ = ["SEMANTICS", "Form", "build", "count_rows", "extract", "warm_start", "why_not"]
Form = Literal["verbatim", "as_published", "strengthened"]
SEMANTICS = Makespan(channels="port", transfers="per_edge")  # the paper's


def build(
    instance: Instance,
    semantics: Makespan,
    *,
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

    Returns
    -------
    ConcreteModel
        Minimizes ``makespan``, in units of ``unit_ns`` nanoseconds; ``makespan_ns`` is its value in
        nanoseconds. Sets and Params have the names of the instance: ``duration_ns[op, device]``,
        ``transfer_ns[edge, a, b]`` and ``capacity_bytes[device]`` may be changed between solves.
        Constraints can be added.

    Raises
    ------
    InputError
        Another semantics or form, or symmetry in a form that has none.

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build(example(), Makespan())
    >>> len(model.x), len(model.op_before), model.duration_ns["op2", "gpu0"].value
    (8, 2, 20)
    """
    look_up("form", form, dict.fromkeys(get_args(Form)))
    refuse("Moirai's model", why_not(semantics, form))
    if symmetry and form != "strengthened":
        raise InputError(f"Moirai's model, form={form}, has no symmetry")
    horizon = instance.arrays.serial_horizon_ns if horizon_ns is None else horizon_ns
    if form == "strengthened":
        return strengthened.build(instance, semantics, horizon, symmetry=symmetry)
    return published.build(instance, semantics, horizon, verbatim=form == "verbatim")


def why_not(semantics: Semantics, form: Form = "strengthened") -> str | None:
    """Why the model does not state a semantics, or None if it does."""
    if form != "strengthened" and semantics != SEMANTICS:
        return f"states {SEMANTICS.label} as published, not {semantics.label}"
    if not semantics.per_edge:
        return f"states makespan per_edge, not {semantics.label}"
    return None


def count_rows(
    instance: Instance, semantics: Makespan, form: Form = "strengthened", symmetry: bool = False
) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside, without building."""
    if form != "strengthened":
        return published.count_rows(instance)
    return strengthened.count_rows(instance, semantics.channels, symmetry)


def warm_start(model: pyo.ConcreteModel, instance: Instance, plan: Plan) -> None:
    """Set the values of all variables to those of a feasible plan's schedule.

    With symmetry breaking, identical devices swap their parts, as in the plan's representative.
    """
    schedule = simulate(instance, plan, model.semantics)
    device, names = schedule.device.tolist(), list(model.DEVICES)
    if model.component("symmetry_order") is not None:
        new = new_names(instance, plan)
        device = [new[k] for k in device]
    set_placement(model, device)
    home = dict(zip(model.OPS, (names[k] for k in device), strict=True))
    taken = {q: (home[i], home[model.consumer[q]]) for q, i in model.producer.items()}
    ops, flows = spans_ns(instance, schedule)
    op, flow = dict(zip(model.OPS, ops, strict=True)), dict(zip(model.EDGES, flows, strict=True))
    unit_ns = model.unit_ns.value
    model.makespan.set_value(schedule.makespan_ns / unit_ns)
    for what, spans in (("op", op), ("flow", flow)):
        for side, times in enumerate((f"{what}_start", f"{what}_end")):
            variables = model.component(times)
            if variables.ctype is pyo.Var:  # the ends of the strengthened form are expressions
                for name, variable in variables.items():
                    variable.set_value(spans[name][side] / unit_ns)
        for (first, second, *_), variable in model.component(f"{what}_before").items():
            variable.set_value(int(spans[first][1] <= spans[second][0]))
    for name in ("route", "channel"):
        for (q, a, b), variable in (model.component(name) or {}).items():
            variable.set_value(int(taken[q] == (a, b)))
    for q, variable in (model.component("remote") or {}).items():
        variable.set_value(int(taken[q][0] != taken[q][1]))


def extract(model: pyo.ConcreteModel, instance: Instance, *, check: bool = True) -> Plan:
    """The plan that the values of a model's variables describe; see `plan_in_order`."""
    require_solution(model, instance, check=check)
    device, kind = device_numbers(model), model.semantics.channels
    op = {name: i for i, name in enumerate(model.OPS)}
    edge = {name: q for q, name in enumerate(model.EDGES)}
    held = {
        q: {*channels_of(kind, instance.num_devices, device[i], device[j])} - {NO_CHANNEL}
        for q, (i, j) in enumerate(edge_ends(instance))
        if device[i] != device[j]
    }
    op_pairs = [(op[i], op[j]) for i, j in decided(model.op_before)]
    flow_pairs = [(edge[q], edge[r]) for q, r in decided(model.flow_before)]
    found = PairSolution(
        device,
        [start.value for start in model.op_start.values()],
        [start.value for start in model.flow_start.values()],
        model.unit_ns.value,
        [(i, j) for i, j in op_pairs if device[i] == device[j]],
        [(q, r) for q, r in flow_pairs if q in held and r in held and held[q] & held[r]],
    )
    return plan_in_order(instance, model.semantics, found)


def decided(before: pyo.Var) -> list[tuple[str, str]]:
    """Pairs (first, second) as decided; the published form has one variable for both orders."""
    found = []
    for (i, j), variable in before.items():
        opposite = before[j, i].value if (j, i) in before else 1 - variable.value
        if round(variable.value) > round(opposite):
            found.append((i, j))
        elif (j, i) not in before:
            found.append((j, i))
    return found
