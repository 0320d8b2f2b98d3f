"""Pesto's ILP for the makespan under links: build it, start it from a plan, read a plan off it.

After Hafeez, Sun, Gandhi and Liu, "Towards Optimal Placement and Scheduling of DNN Operations with
Pesto" (Middleware 2021). Placement and start times of ops and of transfers, affinities, one op at a
time per device, one transfer at a time per directed link, memory, the makespan as objective. Both
forms are exact for ``makespan link per_edge``; their components are listed in `pesto.published` and
`pesto.strengthened`. `placegap.instances.transforms.pesto_merge` coarsens graphs that are too
large.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Literal

import pyomo.environ as pyo

from placegap.formulations.pesto import published as pesto_published
from placegap.formulations.pesto import strengthened as pesto_strengthened
from placegap.formulations.shared.families import placement, set_placement
from placegap.formulations.shared.pairs import Key, edge_ends, sequence
from placegap.formulations.shared.times import serial_horizon_ns
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan, Transfer
from placegap.instances.problem.semantics import Makespan, Semantics
from placegap.instances.referee.channels import plan_from_times
from placegap.instances.referee.simulate import simulate

Form = Literal["as_published", "strengthened"]
Arc = tuple[int, int]

SEMANTICS = Makespan(channels="link", transfers="per_edge")
"""The only semantics the model states."""


def build(
    instance: Instance,
    semantics: Makespan,
    form: Form = "strengthened",
    horizon_ns: int | None = None,
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
    >>> model = build(example(), SEMANTICS)
    >>> len(model.x), len(model.transfer), len(model.op_before), pyo.value(model.unit_ns)
    (8, 8, 2, 1.0)
    """
    reason = why_not(semantics)
    if reason is not None:
        raise ValueError(f"Pesto's model {reason}")
    horizon = serial_horizon_ns(instance) if horizon_ns is None else horizon_ns
    chosen = pesto_published if form == "as_published" else pesto_strengthened
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
    (60, 60)
    """
    if form == "as_published":
        return pesto_published.count_rows(instance)
    return pesto_strengthened.count_rows(instance)


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
    ops = list(zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True))
    moves = [(ops[i][1], ops[i][1]) for i, _ in ends]  # within a device it takes no time
    table = schedule.transfers
    for q, start, end in zip(table.item, table.start_ns, table.end_ns, strict=True):
        moves[q] = (int(start), int(end))
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


def extract(model: pyo.ConcreteModel, instance: Instance) -> Plan:
    """The plan that the values of a model's variables describe.

    The devices are those of x. The orders are those that the model decided on and, where it had no
    pair to decide on, those of its start times. Executing the plan takes no longer than the model
    says, up to the solver's tolerances.
    """
    n, ends, unit_ns = instance.num_ops, edge_ends(instance), pyo.value(model.unit_ns)
    arrays, device = instance.arrays, placement(model, instance.num_ops)
    link = {q: (device[i], device[j]) for q, (i, j) in enumerate(ends) if device[i] != device[j]}
    position = arrays.index.topological_position.tolist()
    keys: dict[int, Key] = {}  # ops are items 0 .. n - 1, transfers n + q
    for i in range(n):
        start, time_ns = pyo.value(model.op_start[i]), arrays.time_ns[i, device[i]]
        keys[i] = (start, start + time_ns / unit_ns, position[i], i)
    for q, pair in link.items():
        start = pyo.value(model.transfer_start[q])
        time_ns = arrays.transfer_ns[arrays.index.tensor[q], arrays.link_class[pair]]
        keys[n + q] = (start, start + time_ns / unit_ns, position[ends[q][0]], n + q)
    arcs = [(i, j) for q, (i, j) in enumerate(ends) if q not in link]
    arcs += [(ends[q][0], n + q) for q in link] + [(n + q, ends[q][1]) for q in link]
    decided = _decided(model, "op", dict(enumerate(device)))
    decided += [(n + q, n + r) for q, r in _decided(model, "transfer", link)]
    order = sequence(keys, arcs + decided)
    if len(order) < len(keys):  # items without duration may follow each other in a circle
        order = sequence(keys, arcs)
    rank = {item: at for at, item in enumerate(order)}
    return plan_from_times(
        instance,
        SEMANTICS,
        device,
        [(rank[i], rank[i]) for i in range(n)],
        [(Transfer(q, b), rank[n + q], rank[n + q]) for q, (_, b) in link.items()],
    )


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
