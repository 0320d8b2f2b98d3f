"""m-SCT's LP: which child of each op is its favourite, to run right after it on its device.

Jeon et al., "Baechi: Fast Device Placement of Machine Learning Graphs" (2020), after Hanen, Munier,
"An approximation algorithm for scheduling dependent tasks on m processors with small communication
delays" (1995). Stated for unlimited equal devices and small communication times (`is_sct`): no
transfer takes longer than any op. The model, for pairs of ops (i, j) joined by edges:

    minimize w
    S_i + p_i + c_ij x_ij <= S_j,  w >= S_i + p_i
    sum over children j of x_ij >= n_i - 1                       n_i children
    sum over parents i of x_ij >= n_j - 1                        n_j parents
    0 <= x_ij <= 1

x_ij is ``apart``, 0 where j is the favourite child of i; w, the paper's w_inf, is ``makespan``. p,
``least_ns``, and c, ``least_transfer_ns``, may be changed. Filled in here: on unequal devices, an
op takes its least time over the devices that can have it, an edge the least transfer time over the
pairs of different devices that its ops can be on.

Claim: truncated, a relaxation of the makespan under every channels and transfers rule, on any
devices. As published, the same where nothing is to be truncated, which includes every instance with
small communication times; otherwise no claim.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Literal, NoReturn, get_args

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.getf import Pairs, arc_set, least_transfers
from placegap.formulations.shared import require_makespan
from placegap.formulations.shared.data import (
    NotBelow,
    add_data,
    family,
    new_model,
    require_solution,
)
from placegap.formulations.shared.families import Linear, makespan_value
from placegap.formulations.shared.pairs import grouped
from placegap.formulations.shared.times import granularity_ns, time_unit_ns
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.integers import NO_LIMIT
from placegap.instances.reading.errors import InputError, look_up

Form = Literal["as_published", "truncated"]
Favourites = list[int | None]  # the favourite child of each op, None where it has none


@dataclass(frozen=True)
class SctTimes:
    """Device-independent times of n ops and of the pairs of ops that edges join, in ns."""

    op_ns: list[int]
    #: (producer, consumer)
    move_ns: Pairs


def build(
    instance: Instance, semantics: Makespan, *, form: Form = "as_published"
) -> pyo.ConcreteModel:
    """m-SCT's LP of an instance; for n ops and m edges, m + n + 1 columns, at most m + 3 n rows.

    Parameters
    ----------
    instance : Instance
    semantics : Makespan
        Any: truncated, the LP bounds the makespan under each.
    form : {"as_published", "truncated"}
        Truncated has shorter transfers (`truncate`), so that the value is a lower bound.

    Returns
    -------
    ConcreteModel
        Minimizes ``makespan``, in units of ``unit_ns`` nanoseconds; ``makespan_ns`` is its value in
        nanoseconds. ``least_ns[op]`` and ``least_transfer_ns[i, j]`` may be changed between solves;
        truncated, only ``least_ns``, and to longer times. Constraints can be added.

    Notes
    -----
    Why it is a relaxation, where for any two children j, j' of one op p_j >= c_ij', and for any two
    parents i, i' of one op p_i' >= c_ij (what `truncate` ensures): take a feasible schedule, and
    let apart[i, j] be 0 if j starts before end of i + c_ij, else 1. Then all times agree with the
    rows. Two children j, j' of i with 0 would both start too early for a transfer, so both ran on
    the device of i, one after the other: say j first. So j' starts no earlier than end of i + p_j
    >= end of i + c_ij', against the assumption. Two parents i, i' of j with 0 both ran on the
    device of j, say i first: j starts no earlier than end of i' >= end of i + p_i'
    >= end of i + c_ij, likewise. Least times, and shorter transfers, keep the argument.

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build(example(), Makespan())
    >>> len(model.apart), len(model.favourite_child), len(model.favourite_parent)
    (4, 1, 1)
    """
    look_up("form", form, dict.fromkeys(get_args(Form)))
    require_makespan("m-SCT's LP", semantics)
    times = sct_times(instance)
    times = truncate(times) if form == "truncated" else times
    granularity = granularity_ns(instance, transfers=True)
    unit_ns = time_unit_ns(sum(times.op_ns) + sum(times.move_ns.values()), granularity)
    model = new_model(f"m-SCT LP, {form}", instance, semantics, unit_ns)
    arc_set(model, times.move_ns)
    least_data(model, times, truncated=form == "truncated")
    lp_variables(model)
    precedence(model)
    favourite_child(model)
    favourite_parent(model)
    makespan_covers(model)
    makespan_value(model, "m-SCT: w_inf, the makespan")
    return model


def count_rows(instance: Instance) -> int:
    """Rows that `build` makes at most; nothing is built."""
    return 3 * instance.num_ops + len(instance.graph.edges)


def horizon_ns(instance: Instance) -> int:
    """The value is at most this: all ops and all transfers, one after the other."""
    times = sct_times(instance)
    return sum(times.op_ns) + sum(times.move_ns.values())


# -------------------------------------------------------------------------------------------- times


def sct_times(instance: Instance) -> SctTimes:
    """Least times of ops and transfers; O(n K + m K^2)."""
    possible, time_ns = instance.arrays.possible, instance.arrays.time_ns
    least = np.where(possible, time_ns, NO_LIMIT).min(axis=1)
    nowhere = ~possible.any(axis=1)
    return SctTimes(np.where(nowhere, 0, least).tolist(), least_transfers(instance))


def communication_ratio(times: SctTimes) -> float:
    """The longest transfer over the shortest op; infinite if only the op takes no time."""
    # Communication times are small where it is at most 1.
    longest, shortest = max(times.move_ns.values(), default=0), min(times.op_ns)
    if longest == 0:
        return 0.0
    return longest / shortest if shortest else math.inf


def is_sct(instance: Instance) -> bool:
    """Whether communication times are small: every transfer is as short as the shortest op."""
    # Judged by the model's device-independent times (`sct_times`).
    return communication_ratio(sct_times(instance)) <= 1


def truncate(times: SctTimes) -> SctTimes:
    """Shorten each transfer (i, j) to the least time of j's siblings and of i's fellow parents."""
    # What remains is small enough for the model to be a relaxation, and shorter transfers make none
    # of its times longer than a schedule's. O(n + m).
    children = grouped((i, times.op_ns[j]) for i, j in times.move_ns)
    parents = grouped((j, times.op_ns[i]) for i, j in times.move_ns)
    least_child = {op: heapq.nsmallest(2, own) for op, own in children.items()}
    least_parent = {op: heapq.nsmallest(2, own) for op, own in parents.items()}

    def among_others(two: list[int], own: int, transfer: int) -> int:
        others = two[1:] if own == two[0] else two
        return min([transfer, *others])

    shortened: Pairs = {}
    for (i, j), transfer in times.move_ns.items():
        kept = among_others(least_child[i], times.op_ns[j], transfer)
        shortened[i, j] = among_others(least_parent[j], times.op_ns[i], kept)
    return SctTimes(times.op_ns, shortened)


# ------------------------------------------------------------------------------- data and variables


@family
def least_data(model: pyo.ConcreteModel, times: SctTimes, *, truncated: bool) -> None:
    """least_ns[i], p in the paper, and least_transfer_ns[i, j], c: least times."""
    # Transfers are cut to times of ops: truncated, shorter ops or other transfers prove nothing.
    ops = dict(zip(model.OPS, times.op_ns, strict=True))
    validate = NotBelow(ops) if truncated else None
    add_data(model, "least_ns", ops, index=model.OPS, validate=validate)
    moves = dict(zip(model.ARCS, times.move_ns.values(), strict=True))
    model.least_transfer_ns = pyo.Param(
        model.ARCS, initialize=moves, mutable=not truncated, within=pyo.Any
    )


@family
def lp_variables(model: pyo.ConcreteModel) -> None:
    r"""The paper's x, in [0, 1], and times, >= 0.

    $0 \le x_{ij} \le 1, \quad S_i, w_\infty \ge 0$
    """
    # An only child of an only parent with a transfer of no time is in no row: the initial value 0
    # keeps it a favourite.
    times = pyo.NonNegativeReals
    model.apart = pyo.Var(
        model.ARCS, bounds=(0, 1), initialize=0, doc="apart[i, j]: 0 where j is i's favourite child"
    )
    model.op_start = pyo.Var(model.OPS, domain=times, doc="op_start[i]: S_i, the start of op i")
    model.makespan = pyo.Var(domain=times, doc="makespan: w_inf, in units")


# -------------------------------------------------------------------------------------- constraints


@family
def precedence(model: pyo.ConcreteModel) -> None:
    r"""m-SCT, precedence: op_start[i] + p_i + c_ij apart[i, j] <= op_start[j], every arc (i, j).

    $S_i + p_i + c_{ij} x_{ij} \le S_j$
    """
    unit, start, apart = model.unit_ns.value, model.op_start, model.apart
    end = {i: start[i] + time / unit for i, time in model.least_ns.items()}
    transfer = model.least_transfer_ns

    @model.Constraint(model.ARCS)
    def precedence(_: pyo.ConcreteModel, i: str, j: str) -> Linear:
        return end[i] + transfer[i, j] / unit * apart[i, j] <= start[j]


@family
def favourite_child(model: pyo.ConcreteModel) -> None:
    r"""m-SCT, one favourite child: sum over children j of apart[i, j] >= number of them - 1.

    $\sum_j x_{ij} \ge n_i - 1$
    """
    children = grouped((i, apart) for (i, _), apart in model.apart.items())

    @model.Constraint([i for i in model.OPS if len(children.get(i, ())) > 1])
    def favourite_child(_: pyo.ConcreteModel, i: str) -> Linear:
        return sum(children[i]) >= len(children[i]) - 1


@family
def favourite_parent(model: pyo.ConcreteModel) -> None:
    r"""m-SCT, one favourite parent: sum over parents i of apart[i, j] >= number of them - 1.

    $\sum_i x_{ij} \ge n_j - 1$
    """
    parents = grouped((j, apart) for (_, j), apart in model.apart.items())

    @model.Constraint([j for j in model.OPS if len(parents.get(j, ())) > 1])
    def favourite_parent(_: pyo.ConcreteModel, j: str) -> Linear:
        return sum(parents[j]) >= len(parents[j]) - 1


@family
def makespan_covers(model: pyo.ConcreteModel) -> None:
    r"""m-SCT, w_inf: makespan >= op_start[i] + p_i for every op i without children.

    $S_i + p_i \le w_\infty$
    """
    unit, inner = model.unit_ns.value, {i for i, _ in model.ARCS}

    @model.Constraint([i for i in model.OPS if i not in inner])
    def makespan_covers(model: pyo.ConcreteModel, i: str) -> Linear:
        return model.makespan >= model.op_start[i] + model.least_ns[i] / unit


# -------------------------------------------------------------------------------------------- plans


def warm_start(model: pyo.ConcreteModel, instance: Instance, plan: Plan) -> NoReturn:
    """Refused: the LP is solved from scratch."""
    raise InputError("m-SCT's LP has no warm start")


def extract(
    model: pyo.ConcreteModel, instance: Instance, *, threshold: float = 0.5, check: bool = True
) -> Favourites:
    """The favourite child of each op, rounded from the values of the solved LP; there is no `Plan`.

    Baechi's rounding: j is the favourite child of i if apart[i, j] <= threshold, a later edge
    overrides an earlier one, and a child that is taken over is no longer its other parent's. Edges
    come by producer, in the order of the ops, then in their own order. The LP has many optima:
    favourites depend on the solver.

    A `threshold` of 0.5 is that of Baechi's function, 0.1 that of its command line.
    """
    require_solution(model, instance, check=check)
    index, ops = instance.arrays.index, list(model.OPS)
    child: list[int | None] = [None] * instance.num_ops
    parent: list[int | None] = [None] * instance.num_ops
    for e in index.succ_edge.tolist():
        i, j = int(index.producer[e]), int(index.consumer[e])
        if model.apart[ops[i], ops[j]].value > threshold:
            continue
        if (former := parent[j]) is not None:
            child[former] = None
        if (former := child[i]) is not None:
            parent[former] = None
        child[i], parent[j] = j, i
    return child
