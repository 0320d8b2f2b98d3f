"""GETF: an LP over fractions of groups of devices.

After Su, Ren, Vardi, Wierman, "Communication-Aware Scheduling of Precedence-Constrained Tasks on
Related Machines" (2020), for related machines; the form for unrelated times is filled in, and
communication is left out. The model, for ops i and j, colocation groups b (an op without colocation
is a group of its own) and groups g of devices k (`shared.devices.device_groups`):

    minimize T
    T >= C_j,  C_j >= C_i + sum over g of p_jg y_bg              j in b, after i
    sum over g of y_bg = 1,  0 <= y_bg <= 1
    sum over b of (least s_k p_bk in g) y_bg <= T (sum of s_k in g)

and rows of placegap's own for colocation and memory. y is ``share``, named by the first op of b; C
is ``op_end``; p_jg is ``least_ns``, which may be changed: it then counts in all rows.

Claim: a relaxation of the makespan under every channels and transfers rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NoReturn

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared import require_makespan
from placegap.formulations.shared.data import (
    NotAbove,
    add_data,
    family,
    new_model,
    require_solution,
)
from placegap.formulations.shared.devices import DeviceGroups, colocated_times, device_groups
from placegap.formulations.shared.families import LARGEST_CAPACITY as LARGEST
from placegap.formulations.shared.families import Linear, first_of_group, makespan_value
from placegap.formulations.shared.pairs import edge_ends, grouped, tensor_edges
from placegap.formulations.shared.times import granularity_ns, time_unit_ns
from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.integers import NO_LIMIT
from placegap.instances.reading.errors import InputError

Pairs = dict[tuple[int, int], int]  # ns of a transfer per pair (producer, consumer)
Terms = dict[str, dict[str, Linear]]  # by op and group of devices that can have it


def build(
    instance: Instance, semantics: Makespan, *, groups: DeviceGroups | None = None
) -> pyo.ConcreteModel:
    """GETF's LP of an instance; for n ops, m edges, B colocation groups, G groups of devices.

    B G + n + 1 columns; at most 2 B + 2 n + m + 2 G rows (`count_rows`).

    Parameters
    ----------
    instance : Instance
    semantics : Makespan
        Any: the LP bounds the makespan under each.
    groups : DeviceGroups, optional
        The finer, the better the bound: groups of equal devices give the LP over single devices.
        The default is as in the paper, `device_groups`.

    Returns
    -------
    ConcreteModel
        Minimizes ``makespan``, in units of ``unit_ns`` nanoseconds; ``makespan_ns`` is its value in
        nanoseconds. ``least_ns[op, group]`` and, downwards, ``capacity_bytes[group]`` may be
        changed between solves. Constraints can be added.

    Notes
    -----
    Why it is a relaxation: take a feasible plan's schedule under any rule for communication, and
    set share[b, g] to 1 where b is on a device of g. An op takes at least its least time in g, and
    starts no earlier than its producers end. The ops of a colocation group run one at a time. Every
    device k is busy for at most the makespan T; the sum over the devices of g of their work, each
    times its speed s_k >= 0, is at most T times the sum of the s_k, and counts an op at no less
    than the least s_k p_ik. Whatever the speeds, the rows hold. Memory adds up likewise.

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build(example(), Makespan())
    >>> len(model.share), model.least_ns["op2", "gpu0+gpu1"].value
    (4, 20)
    """
    require_makespan("GETF's LP", semantics)
    groups = device_groups(instance) if groups is None else groups
    unit_ns = time_unit_ns(horizon_ns(instance), granularity_ns(instance, transfers=True))
    model = new_model("GETF LP", instance, semantics, unit_ns)
    model.groups = groups  # for `extract`
    group_sets(model, instance)
    arc_set(model, edge_ends(instance))
    least_data(model, instance)
    share_variables(model, instance)
    time_variables(model)
    spent = time_terms(model, instance)
    share_once(model)
    durations = {i: sum(own.values()) for i, own in spent.items()}
    precedence(model, durations)
    makespan_covers(model)
    colocated_work(model, instance, durations)
    group_work(model, instance, spent)
    group_memory(model, instance)
    makespan_value(model, "GETF: T, the makespan")
    return model


def count_rows(instance: Instance, groups: DeviceGroups) -> int:
    """Rows that `build` makes at most; nothing is built."""
    n, together = instance.num_ops, instance.arrays.num_groups
    return 2 * together + 2 * n + len(instance.graph.edges) + 2 * len(groups.devices)


# -------------------------------------------------------------------------------- sets and data


@family
def group_sets(model: pyo.ConcreteModel, instance: Instance) -> None:
    """GROUPS of devices, and LEADERS: the first op of each colocation group, which names it."""
    ops, devices = list(model.OPS), list(model.DEVICES)
    names = ["+".join(devices[k] for k in members) for members in model.groups.devices]
    model.GROUPS = pyo.Set(initialize=names)
    model.LEADERS = pyo.Set(initialize=[ops[i] for i in dict.fromkeys(first_of_group(instance))])


@family
def arc_set(model: pyo.ConcreteModel, pairs: Iterable[tuple[int, int]]) -> None:
    """ARCS: pairs of ops that edges join."""
    ops = list(model.OPS)
    arcs = [(ops[i], ops[j]) for i, j in dict.fromkeys(pairs)]
    model.ARCS = pyo.Set(initialize=arcs, dimen=2)


@family
def least_data(model: pyo.ConcreteModel, instance: Instance) -> None:
    """least_ns[i, g], mutable: least time of op i in group g, where a device of g can have it."""
    times = least(model.groups, instance.arrays.time_ns, instance.arrays.possible)
    ops, groups = list(model.OPS), list(model.GROUPS)
    able, time_ns = np.argwhere(times < math.inf).tolist(), times.tolist()
    given = {(ops[i], groups[g]): int(time_ns[i][g]) for i, g in able}
    add_data(model, "least_ns", given)


def least(groups: DeviceGroups, time_ns: Floats | Ints, possible: Flags) -> Floats:
    """The least of each row over the possible devices of a group, infinite if there is none."""
    kept = np.where(possible, time_ns, math.inf)
    found: Floats = np.stack([kept[:, list(g)].min(axis=1) for g in groups.devices], axis=1)
    return found


@family
def share_variables(model: pyo.ConcreteModel, instance: Instance) -> None:
    r"""share[b, g] in [0, 1]: the fraction of b in g; fixed to 0 where no device of g can have
    b.

    $0 \le y_{Bg} \le 1$
    """
    model.share = pyo.Var(model.LEADERS, model.GROUPS, bounds=(0, 1))
    leaders, possible = list(model.LEADERS), colocated_times(instance)[0]
    for g, devices in zip(model.GROUPS, model.groups.devices, strict=True):
        for b in np.flatnonzero(~possible[:, list(devices)].any(axis=1)).tolist():
            model.share[leaders[b], g].fix(0)


@family
def time_variables(model: pyo.ConcreteModel) -> None:
    r"""Ends of the ops, and the makespan, all >= 0.

    $C_i, T \ge 0$
    """
    times = pyo.NonNegativeReals
    model.op_end = pyo.Var(model.OPS, domain=times, doc="op_end[i]: C_i, the end of op i")
    model.makespan = pyo.Var(domain=times, doc="makespan: T, in units")


def time_terms(model: pyo.ConcreteModel, instance: Instance) -> Terms:
    """What several rows add up: least_ns[i, g] share[b, g], op i in b, in units."""
    ops, unit, share = list(model.OPS), model.unit_ns.value, model.share
    leader = dict(zip(ops, (ops[i] for i in first_of_group(instance)), strict=True))
    spent: Terms = {i: {} for i in ops}
    for (i, g), time in model.least_ns.items():
        spent[i][g] = time / unit * share[leader[i], g]
    return spent


# -------------------------------------------------------------------------------------- constraints


@family
def share_once(model: pyo.ConcreteModel) -> None:
    r"""GETF, fractions: sum over g of share[b, g] == 1 for every colocation group b.

    $\sum_g y_{Bg} = 1$
    """
    share, groups = model.share, list(model.GROUPS)

    @model.Constraint(model.LEADERS)
    def share_once(_: pyo.ConcreteModel, b: str) -> Linear:
        return sum(share[b, g] for g in groups) == 1


@family
def precedence(model: pyo.ConcreteModel, durations: dict[str, Linear]) -> None:
    r"""GETF, completion: op_end[j] >= op_end[i] + c_ij moved[i, j] + duration of j for every arc
    (i, j); sources likewise. Without moved where a model has no communication.

    $C_j \ge C_i + \sum_g p_{jg} y_{Bg}, \quad j \in B$
    """
    end, unit = model.op_end, model.unit_ns.value
    moved, followers = model.component("moved") or {}, {j for _, j in model.ARCS}

    @model.Constraint(model.ARCS)
    def precedence(model: pyo.ConcreteModel, i: str, j: str) -> Linear:
        if (i, j) in moved:
            transfer = model.least_transfer_ns[i, j] / unit * moved[i, j]
            return end[j] >= end[i] + transfer + durations[j]
        return end[j] >= end[i] + durations[j]

    @model.Constraint([j for j in model.OPS if j not in followers])
    def precedence_source(_: pyo.ConcreteModel, j: str) -> Linear:
        return end[j] >= durations[j]


@family
def makespan_covers(model: pyo.ConcreteModel) -> None:
    r"""GETF, completion: makespan >= op_end[i] for every op i without consumers.

    $T \ge C_i$
    """
    inner = {i for i, _ in model.ARCS}

    @model.Constraint([i for i in model.OPS if i not in inner])
    def makespan_covers(model: pyo.ConcreteModel, i: str) -> Linear:
        return model.makespan >= model.op_end[i]


@family
def colocated_work(
    model: pyo.ConcreteModel, instance: Instance, durations: dict[str, Linear]
) -> None:
    r"""Placegap's own: makespan >= sum over i in b of their durations, b of two or more ops.

    $T \ge \sum_g p_{Bg} y_{Bg}$
    """
    ops = list(model.OPS)
    leaders = zip(ops, first_of_group(instance), strict=True)
    together = grouped((ops[j], durations[i]) for i, j in leaders)

    @model.Constraint([b for b, several in together.items() if len(several) > 1])
    def colocated_work(model: pyo.ConcreteModel, b: str) -> Linear:
        return model.makespan >= sum(together[b])


@family
def group_work(model: pyo.ConcreteModel, instance: Instance, spent: Terms) -> None:
    r"""GETF, work of a group of devices: at most the makespan times its total speed, for every g.

    Sum over i in b of (least s_k p_ik over k in g) share[b, g] <= makespan * (sum over k in g of
    s_k). The least is in parts of least_ns[i, g], so that a change of that counts here, too.

    $\sum_B (\min_{k \in g} s_k p_{Bk}) y_{Bg} \le T \sum_{k \in g} s_k$
    """
    arrays, groups = instance.arrays, model.groups
    plain, work = (
        least(groups, arrays.time_ns * speed, arrays.possible) for speed in (1, groups.speed)
    )
    part = (work / np.clip(plain, 1, NO_LIMIT)).T.tolist()
    speed = [float(groups.speed[list(devices)].sum()) for devices in groups.devices]
    of = {g: own for g, *own in zip(model.GROUPS, part, speed, strict=True)}

    @model.Constraint(model.GROUPS)
    def group_work(model: pyo.ConcreteModel, g: str) -> Linear:
        parts = zip(of[g][0], spent.values(), strict=True)
        work = sum(own[g] if part == 1 else part * own[g] for part, own in parts if g in own)
        return work <= of[g][1] * model.makespan


@family
def group_memory(model: pyo.ConcreteModel, instance: Instance) -> None:
    r"""Placegap's own: sum over b of m_b share[b, g] <= sum over k in g of M_k, where that can
    bind.

    ``capacity_bytes[g]``, mutable, is the sum of M. In units of a millionth of it or of single
    bytes, and then wider by one unit, like `shared.families.memory_capacity`.

    $\sum_B m_B y_{Bg} \le \sum_{k \in g} M_k$
    """
    size, most = instance.arrays.group_bytes.tolist(), instance.arrays.memory_bytes.tolist()
    heavy = [(b, m) for b, m in zip(model.LEADERS, size, strict=True) if m]
    limits = (sum(most[k] for k in devices) for devices in model.groups.devices)
    tight = {g: m for g, m in zip(model.GROUPS, limits, strict=True) if m < sum(size)}
    add_data(model, "capacity_bytes", tight, validate=NotAbove(tight))

    @model.Constraint(list(tight))
    def group_memory(model: pyo.ConcreteModel, g: str) -> Linear:
        unit = max(1.0, tight[g] / LARGEST)
        used = sum(m / unit * model.share[b, g] for b, m in heavy)
        return used <= model.capacity_bytes[g] / unit + (0 if unit == 1.0 else 1)


# ------------------------------------------------------------------------------------ plans in, out


def warm_start(model: pyo.ConcreteModel, instance: Instance, plan: Plan) -> NoReturn:
    """Refused: the LP is solved from scratch."""
    raise InputError("GETF's LP has no warm start")


def extract(model: pyo.ConcreteModel, instance: Instance, *, check: bool = True) -> list[int]:
    """The group of devices of each op, rounded from the solved LP's fractions; there is no `Plan`.

    Each is a position in ``model.GROUPS``. Colocated ops are rounded together, by the times of the
    instance. The capacity of a group for an op is the sum of 1 / time over its devices, which for
    related speeds is the group's total speed over the op's size.
    """
    require_solution(model, instance, check=check)
    possible, time_ns = colocated_times(instance)
    rate = np.where(possible, 1 / np.maximum(time_ns, 1), 0)
    groups, share = model.groups, [share.value for share in model.share.values()]
    rounded = round_to_groups(
        np.array(share, float).reshape(len(rate), -1),
        least(groups, time_ns, possible),
        np.stack([rate[:, list(members)].sum(axis=1) for members in groups.devices], axis=1),
    )
    return [rounded[b] for b in instance.arrays.group.tolist()]


def round_to_groups(share: Floats, time: Floats, capacity: Floats) -> list[int]:
    """Round fractions over groups to one group each (Chudak, Shmoys), ties to the lower number."""
    # All are (B, G). Times are infinite where a group is not possible; the capacity of a group is
    # the work that it does per time, its total speed for this row. For each row, sort the groups it
    # can use from slow to fast. The group of the row is the one of largest capacity among the
    # fastest that together hold at least half of its fractions, as few as possible. Groups at least
    # as slow as the slowest of these hold half as well: so the time in the chosen group is at most
    # twice the fractional time. And with c the chosen capacity, the row's 1 / c is at most twice
    # its fractional sum of 1 / capacity, so that with related speeds no group's load per capacity
    # is more than the sum of twice all groups' fractional ones.
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


def horizon_ns(instance: Instance) -> int:
    """The time of all ops one after the other, each on its slowest device."""
    return sum(instance.arrays.time_ns.max(axis=1, initial=0).tolist())


def critical_path_ns(instance: Instance) -> int:
    """The longest path of ops at their least times, a bound on every makespan; O(n K + m)."""
    # No LP here is below it. It is exact, where an LP's value is known up to a solver's tolerance.
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


def least_transfers(instance: Instance) -> Pairs:
    """Least ns between the two ops of each edge on different devices; 0 if they are never apart."""
    # The least over the pairs of different devices possible for the two ops; if several tensors
    # join the ops, the largest of these times. O(m K^2).
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
