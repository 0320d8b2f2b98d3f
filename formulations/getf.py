"""GETF: an LP over fractions of groups of devices.

After Su, Ren, Vardi, Wierman, "Communication-Aware Scheduling of Precedence-Constrained Tasks on
Related Machines" (2020), for related machines; the form for unrelated times is filled in, and
communication is left out. Components of the model, for colocation groups b (an op without
colocation is a group of its own) and groups g of devices (`shared.devices.device_groups`):

- ``share[b, g]`` in [0, 1]: the fraction of b in g; fixed to 0 where no device of g can have b;
- ``op_end[i]``, ``makespan``: times.

Claim: a relaxation of the makespan under every channels and transfers rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.devices import DeviceGroups, colocated_times
from placegap.formulations.shared.naming import by_number, describe, names_of
from placegap.formulations.shared.old_families import LARGEST_CAPACITY, Linear, solved
from placegap.formulations.shared.pairs import edge_ends, tensor_edges
from placegap.formulations.shared.times import granularity_ns, time_unit_ns
from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.problem import Instance
from placegap.instances.problem.integers import NO_LIMIT

Pairs = dict[tuple[int, int], int]
"""Ns of a transfer per pair (producer, consumer)."""


def build_lp(instance: Instance, groups: DeviceGroups, *, names: bool = False) -> pyo.ConcreteModel:
    """GETF's LP of an instance; for n ops, m edges, B colocation groups, G groups of devices.

    B G + n + 1 columns; at most 2 B + 2 n + m + 2 G rows (`count_rows_lp`).

    Parameters
    ----------
    groups : DeviceGroups
        The finer, the better the bound: groups of equal devices give the LP over single devices.
    names : bool
        Index the components by the names of ops and devices, not by their numbers.

    Returns
    -------
    ConcreteModel
        Minimizes ``makespan``, in units of ``unit_ns`` nanoseconds. Constraints can be added.

    Notes
    -----
    Why it is a relaxation: take a feasible plan's schedule under any rule for communication, and
    set share[b, g] to 1 where b is on a device of g. An op takes at least its least time in g, and
    starts no earlier than its producers end. The ops of a colocation group run one at a time. Every
    device k is busy for at most the makespan T; the sum over the devices of g of their work, each
    times its speed s_k >= 0, is at most T times the sum of the s_k, and counts an op at no less
    than the least s_k p_ik. Whatever the speeds, the rows hold. Memory adds up likewise.
    """
    times = group_times(instance, groups)
    unit_ns = time_unit_ns(horizon_ns(instance), granularity_ns(instance, transfers=True))
    model = pyo.ConcreteModel(name=f"GETF LP: {instance.name}")
    model.unit_ns = pyo.Param(initialize=unit_ns)
    share_variables(model, times)
    time_variables(model, instance)
    share_once(model, times)
    precedence(model, share_durations(model, instance, times), dependencies(instance))
    makespan_covers(model, instance)
    colocated_work(model, instance, times)
    group_work(model, groups, times)
    group_memory(model, instance, groups)
    model.objective = pyo.Objective(expr=model.makespan, doc="GETF: T, the makespan")
    own = names_of(instance) if names else None
    if own is not None:
        arrays = instance.arrays
        ops, devices = own["i"], own["k"]
        own["b"] = [
            "+".join(ops[i] for i in np.flatnonzero(arrays.group == b).tolist())
            for b in range(arrays.num_groups)
        ]
        own["g"] = ["+".join(devices[k] for k in members) for members in groups.devices]
    return describe(model, __doc__, own)


def count_rows_lp(instance: Instance, groups: DeviceGroups) -> int:
    """Rows that `build_lp` makes at most; nothing is built."""
    n, together = instance.num_ops, instance.arrays.num_groups
    return 2 * together + 2 * n + len(instance.graph.edges) + 2 * len(groups.devices)


@dataclass(frozen=True, eq=False)
class GroupTimes:
    """Least times of n ops and B colocation groups over the devices of each of G groups, in ns."""

    #: (B, G) bool: Whether some device of the group can run and hold all ops of b. Elsewhere, times
    #: are 0.
    possible: Flags
    #: (n, G) float64: Least time of a single op.
    op_ns: Floats
    #: (B, G) float64: Least time of all ops of b on one device.
    together_ns: Floats
    #: (B, G) float64: Least product of that time and the device's speed.
    work_ns: Floats


def group_times(instance: Instance, groups: DeviceGroups) -> GroupTimes:
    """Least times in each group; O(n K)."""
    possible, together_ns = colocated_times(instance)

    def least(time_ns: Floats | Ints, usable: Flags) -> Floats:
        kept = np.where(usable, time_ns, np.inf)
        found = np.stack([kept[:, list(g)].min(axis=1) for g in groups.devices], axis=1)
        return np.where(np.isfinite(found), found, 0.0)

    return GroupTimes(
        np.stack([possible[:, list(g)].any(axis=1) for g in groups.devices], axis=1),
        least(instance.arrays.time_ns, possible[instance.arrays.group]),
        least(together_ns, possible),
        least(together_ns * groups.speed, possible),
    )


def share_variables(model: pyo.ConcreteModel, times: GroupTimes) -> None:
    """``share[b, g]`` in [0, 1], fixed to 0 where no device of group g is possible for b."""
    model.share = pyo.Var(*map(range, times.possible.shape), bounds=(0, 1))
    for b, g in np.argwhere(~times.possible).tolist():
        model.share[b, g].fix(0)


def share_durations(
    model: pyo.ConcreteModel, instance: Instance, times: GroupTimes
) -> list[Linear]:
    """Fractional time of every op: sum over g of (least p_ik over k in g) share[b, g]."""
    op = (times.op_ns / pyo.value(model.unit_ns)).tolist()
    return [
        sum(time * model.share[b, g] for g, time in enumerate(op[i]) if times.possible[b, g])
        for i, b in enumerate(instance.arrays.group.tolist())
    ]


def share_once(model: pyo.ConcreteModel, times: GroupTimes) -> None:
    """GETF, fractions: sum over g of share[b, g] == 1 for every colocation group b."""
    num_together, num_groups = times.possible.shape

    @model.Constraint(range(num_together))
    def share_once(model: pyo.ConcreteModel, b: int) -> Linear:
        return sum(model.share[b, g] for g in range(num_groups)) == 1


def colocated_work(model: pyo.ConcreteModel, instance: Instance, times: GroupTimes) -> None:
    """Placegap's own: makespan >= sum over g of (least total time of b in g) share[b, g], b of two
    or more ops.

    Not in the paper, which has no colocation.
    """
    total = (times.together_ns / pyo.value(model.unit_ns)).tolist()

    @model.Constraint(np.flatnonzero(np.bincount(instance.arrays.group) > 1).tolist())
    def colocated_work(model: pyo.ConcreteModel, b: int) -> Linear:
        return model.makespan >= sum(
            time * model.share[b, g] for g, time in enumerate(total[b]) if times.possible[b, g]
        )


def group_work(model: pyo.ConcreteModel, groups: DeviceGroups, times: GroupTimes) -> None:
    """GETF, work of a group of devices: at most the makespan times its total speed, for every g.

    Sum over b of (least s_k p_bk over k in g) share[b, g] <= makespan * (sum over k in g of s_k).
    """
    work = (times.work_ns / pyo.value(model.unit_ns)).T.tolist()

    @model.Constraint(np.flatnonzero(times.work_ns.any(axis=0)).tolist())
    def group_work(model: pyo.ConcreteModel, g: int) -> Linear:
        speed = float(groups.speed[list(groups.devices[g])].sum())
        total = sum(time * model.share[b, g] for b, time in enumerate(work[g]) if time)
        return total <= speed * model.makespan


def group_memory(model: pyo.ConcreteModel, instance: Instance, groups: DeviceGroups) -> None:
    """Placegap's own: sum over b of m_b share[b, g] <= sum over k in g of M_k, where that can bind.

    Not in the paper, which has no memory. In units of a millionth of the group's memory or of
    single bytes, and then wider by one unit, like `shared.families.memory_capacity`.
    """
    arrays = instance.arrays
    size: list[int] = arrays.group_bytes.tolist()
    total, capacity = sum(size), arrays.memory_bytes.tolist()
    limit = [sum(capacity[k] for k in devices) for devices in groups.devices]
    heavy = [(b, m) for b, m in enumerate(size) if m]

    @model.Constraint([g for g, most in enumerate(limit) if most < total])
    def group_memory(model: pyo.ConcreteModel, g: int) -> Linear:
        unit = max(1.0, limit[g] / LARGEST_CAPACITY)
        slack = 0 if unit == 1.0 else 1
        used = sum(m / unit * model.share[b, g] for b, m in heavy)
        return used <= limit[g] / unit + slack


@by_number
def extract_groups(model: pyo.ConcreteModel, instance: Instance, groups: DeviceGroups) -> list[int]:
    """The group of devices of each op, rounded from the solved LP's fractions.

    Colocated ops are rounded together. The capacity of a group for an op is the sum of 1 / time
    over its devices, which for related speeds is the group's total speed over the op's size.

    Returns
    -------
    list of int
        Per op, a position in ``groups.devices``.
    """
    possible, time_ns = colocated_times(instance)
    rate = np.where(possible, 1 / np.maximum(time_ns, 1), 0)
    times = group_times(instance, groups)
    part = solved(model, "share")
    share = [[part[b, g] for g in range(len(groups.devices))] for b in range(len(rate))]
    rounded = round_to_groups(
        np.array(share, float),
        np.where(times.possible, times.together_ns, np.inf),
        np.stack([rate[:, list(devices)].sum(axis=1) for devices in groups.devices], axis=1),
    )
    return [rounded[b] for b in instance.arrays.group.tolist()]


def round_to_groups(share: Floats, time: Floats, capacity: Floats) -> list[int]:
    """Round fractions over groups to one group each (Chudak, Shmoys).

    For each row, sort the groups it can use from slow to fast. The group of the row is the one of
    largest capacity among the fastest that together hold at least half of its fractions, as few as
    possible. Groups at least as slow as the slowest of these hold half as well: so the time in the
    chosen group is at most twice the fractional time. And with c the chosen capacity, the row's
    1 / c is at most twice its fractional sum of 1 / capacity, so that with related speeds no
    group's load per capacity is more than the sum of twice all groups' fractional ones.

    Parameters
    ----------
    share : (B, G) float64
        Fractions of each row over the groups; they sum to 1.
    time : (B, G) float64
        Time in each group; infinite where the group is not possible.
    capacity : (B, G) float64
        Work that a group does per time: the total speed of its devices, for this row.

    Returns
    -------
    list of int
        Ties go to the lower number.
    """
    chosen = []
    for shares, times, rates in zip(share.tolist(), time.tolist(), capacity.tolist(), strict=True):
        held, candidates = 0.0, []
        fastest_first = sorted((t, g) for g, t in enumerate(times) if math.isfinite(t))
        for _, g in fastest_first:
            candidates.append(g)
            held += shares[g]
            if held >= 0.5 - 1e-9:  # a solver's half
                break
        chosen.append(max(candidates, key=lambda g: (rates[g], -g)))
    return chosen


def time_variables(model: pyo.ConcreteModel, instance: Instance) -> None:
    """Ends of the ops, and the makespan, all >= 0."""
    model.op_end = pyo.Var(range(instance.num_ops), domain=pyo.NonNegativeReals)
    model.makespan = pyo.Var(domain=pyo.NonNegativeReals)


def precedence(model: pyo.ConcreteModel, durations: list[Linear], transfers_ns: Pairs) -> None:
    """GETF, completion: op_end[j] >= op_end[i] + transfer + duration of j for every edge (i, j);
    sources likewise.

    The transfer takes c_ij moved[i, j], where the model has that variable.
    """
    unit_ns = pyo.value(model.unit_ns)
    moved = model.component("moved") or {}
    followers = {j for _, j in transfers_ns}

    @model.Constraint(list(transfers_ns))
    def precedence(model: pyo.ConcreteModel, i: int, j: int) -> Linear:
        begin = model.op_end[i]
        if (i, j) in moved:
            begin = begin + transfers_ns[i, j] / unit_ns * moved[i, j]
        return model.op_end[j] >= begin + durations[j]

    @model.Constraint([j for j in range(len(durations)) if j not in followers])
    def precedence_source(model: pyo.ConcreteModel, j: int) -> Linear:
        return model.op_end[j] >= durations[j]


def makespan_covers(model: pyo.ConcreteModel, instance: Instance) -> None:
    """GETF, completion: makespan >= op_end[i] for every op i without consumers."""
    sinks = np.flatnonzero(np.diff(instance.arrays.index.succ_ptr) == 0)

    @model.Constraint(sinks.tolist())
    def makespan_covers(model: pyo.ConcreteModel, i: int) -> Linear:
        return model.makespan >= model.op_end[i]


def horizon_ns(instance: Instance) -> int:
    """The time of all ops one after the other, each on its slowest device."""
    return sum(instance.arrays.time_ns.max(axis=1, initial=0).tolist())


def critical_path_ns(instance: Instance) -> int:
    """The longest path of ops at their least times, a bound on every makespan; O(n K + m).

    No LP here is below it. It is exact, where an LP's value is known up to a solver's tolerance.
    """
    arrays, index = instance.arrays, instance.arrays.index
    possible = instance.arrays.possible
    least = np.where(possible, arrays.time_ns, NO_LIMIT).min(axis=1)
    length = np.where(possible.any(axis=1), least, 0).tolist()
    pointer, edges, producer = (
        part.tolist() for part in (index.pred_ptr, index.pred_edge, index.producer)
    )
    end = [0] * len(length)
    for j in index.topological_order.tolist():
        ready = (end[producer[e]] for e in edges[pointer[j] : pointer[j + 1]])
        end[j] = max(ready, default=0) + length[j]
    return max(end)


def dependencies(instance: Instance) -> Pairs:
    """Pairs (producer, consumer) in the order of the edges, each once, without transfers."""
    return dict.fromkeys(edge_ends(instance), 0)


def least_transfers(instance: Instance) -> Pairs:
    """Least ns between the two ops of each edge on different devices; 0 if they are never apart.

    The least over the pairs of different devices possible for the two ops; if several tensors join
    the ops, the largest of these times. O(m K^2).
    """
    arrays, possible = instance.arrays, instance.arrays.possible
    apart = ~np.eye(instance.num_devices, dtype=np.bool_)
    found: Pairs = {}
    for i, j, u in tensor_edges(instance):
        least = 0
        if arrays.group[i] != arrays.group[j]:
            routes = arrays.link_class[np.outer(possible[i], possible[j]) & apart]
            least = int(arrays.transfer_ns[u, routes].min()) if routes.size else 0
        found[i, j] = max(found.get((i, j), 0), least)
    return found
