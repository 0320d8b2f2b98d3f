"""m-SCT's LP: which child of each op is its favourite, to run right after it on its device.

Jeon et al., "Baechi: Fast Device Placement of Machine Learning Graphs" (2020), after Hanen, Munier,
"An approximation algorithm for scheduling dependent tasks on m processors with small communication
delays" (1995). Stated for unlimited equal devices and small communication times (`is_sct`): no
transfer takes longer than any op. Components of the model, for pairs of ops (i, j) joined by edges:

- ``apart[i, j]`` in [0, 1], the paper's x_ij: 0 where j is the favourite child of i;
- ``op_start[i]``, ``makespan`` (the paper's w_inf): times.

Filled in here: on unequal devices, an op takes its least time over the devices that can have it, an
edge the least transfer time over the pairs of different devices that its ops can be on.

Claim: with ``truncated``, a relaxation of the makespan under every channels and transfers rule, on
any devices. As published, the same where nothing is to be truncated, which includes every instance
with small communication times; otherwise no claim.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.getf import Pairs, least_transfers
from placegap.formulations.shared.naming import by_number, describe, names_of
from placegap.formulations.shared.old_families import Linear, solved
from placegap.formulations.shared.times import granularity_ns, time_unit_ns
from placegap.instances.problem import Instance
from placegap.instances.problem.integers import NO_LIMIT

Favourites = list[int | None]
"""The favourite child of each op, None where it has none."""


@dataclass(frozen=True)
class SctTimes:
    """Device-independent times of n ops and of the pairs of ops that edges join, in ns."""

    op_ns: list[int]
    #: (producer, consumer)
    move_ns: Pairs


def build(instance: Instance, *, truncated: bool = False, names: bool = False) -> pyo.ConcreteModel:
    """m-SCT's LP of an instance; for n ops and m edges, m + n + 1 columns, at most m + 3 n rows.

    Parameters
    ----------
    instance : Instance
    truncated : bool
        Shorten transfers (`truncate`) so that the value is a lower bound; the published model has
        them in full.
    names : bool
        Index the components by the names of ops and devices, not by their numbers.

    Returns
    -------
    ConcreteModel
        Minimizes ``makespan``, in units of ``unit_ns`` nanoseconds. Constraints can be added.

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
    >>> model = build(example())
    >>> len(model.apart), len(model.favourite_child), len(model.favourite_parent)
    (4, 1, 1)
    """
    times = sct_times(instance)
    times = truncate(times) if truncated else times
    granularity = granularity_ns(instance, transfers=True)
    unit_ns = time_unit_ns(sum(times.op_ns) + sum(times.move_ns.values()), granularity)
    model = pyo.ConcreteModel(name=f"m-SCT LP: {instance.name}")
    model.unit_ns = pyo.Param(initialize=unit_ns)
    # An only child of an only parent with a transfer of no time is in no row: the initial value 0
    # keeps it a favourite.
    model.apart = pyo.Var(list(times.move_ns), bounds=(0, 1), initialize=0)
    model.op_start = pyo.Var(range(instance.num_ops), domain=pyo.NonNegativeReals)
    model.makespan = pyo.Var(domain=pyo.NonNegativeReals)
    precedence(model, times)
    favourite_child(model, instance)
    favourite_parent(model, instance)
    makespan_covers(model, times)
    model.objective = pyo.Objective(expr=model.makespan, doc="m-SCT: w_inf, the makespan")
    return describe(model, __doc__, names_of(instance) if names else None)


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
    """The longest transfer over the shortest op; infinite if only the op takes no time.

    Communication times are small where it is at most 1.
    """
    longest, shortest = max(times.move_ns.values(), default=0), min(times.op_ns)
    if longest == 0:
        return 0.0
    return longest / shortest if shortest else math.inf


def is_sct(instance: Instance) -> bool:
    """Whether communication times are small: every transfer is as short as the shortest op.

    Judged by the model's device-independent times (`sct_times`).
    """
    return communication_ratio(sct_times(instance)) <= 1


def truncate(times: SctTimes) -> SctTimes:
    """Shorten each transfer (i, j) to the least time of j's siblings and of i's fellow parents.

    What remains is small enough for the model to be a relaxation, and shorter transfers make none
    of its times longer than a schedule's. O(n + m).
    """
    children: dict[int, list[int]] = {}
    parents: dict[int, list[int]] = {}
    for i, j in times.move_ns:
        children.setdefault(i, []).append(times.op_ns[j])
        parents.setdefault(j, []).append(times.op_ns[i])
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


# -------------------------------------------------------------------------------------- constraints


def precedence(model: pyo.ConcreteModel, times: SctTimes) -> None:
    """m-SCT, precedence: op_start[i] + p_i + c_ij apart[i, j] <= op_start[j], every edge (i, j)."""
    unit_ns = pyo.value(model.unit_ns)

    @model.Constraint(model.apart.index_set())
    def precedence(model: pyo.ConcreteModel, i: int, j: int) -> Linear:
        transfer = times.move_ns[i, j] / unit_ns * model.apart[i, j]
        return model.op_start[i] + times.op_ns[i] / unit_ns + transfer <= model.op_start[j]


def favourite_child(model: pyo.ConcreteModel, instance: Instance) -> None:
    """m-SCT, one favourite child: sum over children j of apart[i, j] >= number of them - 1."""
    children: list[list[Linear]] = [[] for _ in range(instance.num_ops)]
    for (i, _), apart in model.apart.items():
        children[i].append(apart)

    @model.Constraint([i for i, several in enumerate(children) if len(several) > 1])
    def favourite_child(_: pyo.ConcreteModel, i: int) -> Linear:
        return sum(children[i]) >= len(children[i]) - 1


def favourite_parent(model: pyo.ConcreteModel, instance: Instance) -> None:
    """m-SCT, one favourite parent: sum over parents i of apart[i, j] >= number of them - 1."""
    parents: list[list[Linear]] = [[] for _ in range(instance.num_ops)]
    for (_, j), apart in model.apart.items():
        parents[j].append(apart)

    @model.Constraint([j for j, several in enumerate(parents) if len(several) > 1])
    def favourite_parent(_: pyo.ConcreteModel, j: int) -> Linear:
        return sum(parents[j]) >= len(parents[j]) - 1


def makespan_covers(model: pyo.ConcreteModel, times: SctTimes) -> None:
    """m-SCT, w_inf: makespan >= op_start[i] + p_i for every op i without children."""
    unit_ns = pyo.value(model.unit_ns)
    inner = {i for i, _ in times.move_ns}

    @model.Constraint([i for i in range(len(times.op_ns)) if i not in inner])
    def makespan_covers(model: pyo.ConcreteModel, i: int) -> Linear:
        return model.makespan >= model.op_start[i] + times.op_ns[i] / unit_ns


# -------------------------------------------------------------------------------------------- plans


@by_number
def extract(model: pyo.ConcreteModel, instance: Instance, threshold: float = 0.5) -> Favourites:
    """The favourite child of each op, rounded from the values of the solved LP.

    Baechi's rounding: j is the favourite child of i if apart[i, j] <= threshold, a later edge
    overrides an earlier one, and a child that is taken over is no longer its other parent's. Edges
    come by producer, in the order of the ops, then in their own order. The LP has many optima:
    favourites depend on the solver.

    Parameters
    ----------
    model : ConcreteModel
        From `build`, solved.
    instance : Instance
    threshold : float
        Baechi's function has 0.5, its command line 0.1.

    Returns
    -------
    list of (int or None)
        Per op.
    """
    index = instance.arrays.index
    child: list[int | None] = [None] * instance.num_ops
    parent: list[int | None] = [None] * instance.num_ops
    apart = solved(model, "apart")
    for e in index.succ_edge.tolist():
        i, j = int(index.producer[e]), int(index.consumer[e])
        if apart[i, j] > threshold:
            continue
        if (former := parent[j]) is not None:
            child[former] = None
        if (former := child[i]) is not None:
            parent[former] = None
        child[i], parent[j] = j, i
    return child
