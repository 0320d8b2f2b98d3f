"""Moirai's MILP as published (Zhang et al., section III-D, equations 4 to 8).

Claim: exact for ``makespan port per_edge``. `moirai` states the model.

Every data flow, that is every edge q = (i, j), has a start and an end of its own. p is
``duration_ns`` and ``transfer_ns``, which may be changed: all plans of at most the horizon stay.
In place of the published 100,000 the big-M is the horizon. Verbatim it is 100,000 for all of M_s,
M_l, M_r, and (8) has the published + x_b + x_d.
"""

from __future__ import annotations

import pyomo.environ as pyo

from placegap.formulations.shared import families
from placegap.formulations.shared.data import duration_data, family, model_of_flows, transfer_data
from placegap.formulations.shared.families import Linear, op_work
from placegap.formulations.shared.pairs import (
    count_unordered_pairs,
    flow_reach,
    op_reach,
    unordered_pairs,
)
from placegap.instances.problem import Instance, Makespan

BIG_M = 100_000.0  # of the paper's code, in units: plans take at most 1,000 (`LARGEST_TIME`)


def build(
    instance: Instance, semantics: Makespan, horizon_ns: int, *, verbatim: bool = False
) -> pyo.ConcreteModel:
    """The published model; see `moirai.build`."""
    title, big_m = ("verbatim", BIG_M) if verbatim else ("as published", None)
    model = model_of_flows(f"moirai {title}", instance, semantics, horizon_ns, big_m)
    duration_data(model, instance)
    transfer_data(model, instance)
    order_sets(model, instance)
    families.place_ops(model, instance.arrays.able)
    time_variables(model)
    flow_variables(model)
    order_variables(model)
    families.assign_once(model)
    families.colocate_ops(model, instance)
    families.memory_capacity(model, instance)
    makespan_covers(model)
    op_duration(model)
    flow_duration(model)
    precedence_flows(model)
    precedence_ops(model, instance)
    remote_flows(model)
    channel_choice(model)
    device_no_overlap(model)
    channel_no_overlap(model, verbatim)
    families.makespan_value(model, "Moirai (4): the makespan")
    return model


def count_rows(instance: Instance) -> int:
    """Rows of the model, those of memory and colocation aside; O(m^2 / 64), nothing is built."""
    index, n, k = instance.arrays.index, instance.num_ops, instance.num_devices
    m = len(index.producer)
    descendants, after = op_reach(index)[1], flow_reach(index)[1]
    times = (n + m) + 2 * n + m + 2 * m + sum(ops.bit_count() for ops in descendants)
    channels = m * (3 * k + k * (k - 1) + (k > 1))
    pairs = 2 * k * count_unordered_pairs(descendants) + 4 * k * count_unordered_pairs(after)
    return times + channels + pairs


# ------------------------------------------------------------------------------- sets and variables


@family
def order_sets(model: pyo.ConcreteModel, instance: Instance) -> None:
    """Pairs of ops, and of flows, that no path orders."""
    index, ops, edges = instance.arrays.index, list(model.OPS), list(model.EDGES)
    model.OP_PAIRS = pyo.Set(
        initialize=[(ops[i], ops[j]) for i, j in unordered_pairs(*op_reach(index))], dimen=2
    )
    model.FLOW_PAIRS = pyo.Set(
        initialize=[(edges[q], edges[r]) for q, r in unordered_pairs(*flow_reach(index))], dimen=2
    )


@family
def time_variables(model: pyo.ConcreteModel) -> None:
    r"""Moirai (4d)-(4g): starts and ends of ops and flows, and the makespan, in [0, horizon].

    $0 \le S_i, C_i, S_q, C_q, T \le H$
    """
    bounds = (0, model.horizon.value)
    model.op_start = pyo.Var(model.OPS, bounds=bounds, doc="op_start[i]: start of op i")
    model.op_end = pyo.Var(model.OPS, bounds=bounds, doc="op_end[i]: end of op i")
    model.flow_start = pyo.Var(model.EDGES, bounds=bounds, doc="flow_start[q]: start of flow q")
    model.flow_end = pyo.Var(model.EDGES, bounds=bounds, doc="flow_end[q]: end of flow q")
    model.makespan = pyo.Var(bounds=bounds, doc="makespan, in units")


@family
def flow_variables(model: pyo.ConcreteModel) -> None:
    r"""Moirai (4d)-(4g): remote[q] and channel[q, a, b], a != b, in {0, 1}, the paper's z and u.

    $z_q, u_{qab} \in \lbrace 0, 1 \rbrace$
    """
    model.remote = pyo.Var(model.EDGES, domain=pyo.Binary, doc="remote[q]: q's ends are apart")
    model.channel = pyo.Var(
        model.EDGES, model.LINKS, domain=pyo.Binary, doc="channel[q, a, b]: q is sent from a to b"
    )


@family
def order_variables(model: pyo.ConcreteModel) -> None:
    r"""Moirai (4d)-(4g): op_before[i, j], flow_before[q, r] in {0, 1}: the first runs first.

    $\delta_{ij}, \delta_{qr} \in \lbrace 0, 1 \rbrace$
    """
    model.op_before = pyo.Var(model.OP_PAIRS, domain=pyo.Binary)
    model.flow_before = pyo.Var(model.FLOW_PAIRS, domain=pyo.Binary)


# -------------------------------------------------------------------------------------- constraints


@family
def makespan_covers(model: pyo.ConcreteModel) -> None:
    r"""Moirai (4): makespan >= op_end[i] for all ops, makespan >= flow_end[q] for all flows.

    $T \ge C_i, \quad T \ge C_q$
    """

    @model.Constraint(model.OPS)
    def makespan_covers_ops(model: pyo.ConcreteModel, i: str) -> Linear:
        return model.makespan >= model.op_end[i]

    @model.Constraint(model.EDGES)
    def makespan_covers_flows(model: pyo.ConcreteModel, q: str) -> Linear:
        return model.makespan >= model.flow_end[q]


@family
def op_duration(model: pyo.ConcreteModel) -> None:
    r"""Moirai (4b): op_end[i] == op_start[i] + sum over k of p_ik x[i, k].

    $C_i = S_i + \sum_k p_{ik} x_{ik}$
    """
    work = op_work(model, by=0)

    @model.Constraint(model.OPS)
    def op_duration(model: pyo.ConcreteModel, i: str) -> Linear:
        return model.op_end[i] == model.op_start[i] + sum(work.get(i, ()))


@family
def flow_duration(model: pyo.ConcreteModel) -> None:
    r"""Moirai (7), last line: flow_end[q] == flow_start[q] + sum over a, b of p_qab channel[q, a,
    b].

    $C_q = S_q + \sum_{a \ne b} p_{qab} u_{qab}$
    """

    @model.Constraint(model.EDGES)
    def flow_duration(model: pyo.ConcreteModel, q: str) -> Linear:
        work = sum(
            model.transfer_ns[q, a, b] / model.unit_ns * model.channel[q, a, b]
            for a, b in model.LINKS
        )
        return model.flow_end[q] == model.flow_start[q] + work


@family
def precedence_flows(model: pyo.ConcreteModel) -> None:
    r"""Moirai (4a): op_end[i] <= flow_start[q], flow_end[q] <= op_start[j] for every q = (i, j).

    $C_i \le S_q, \quad C_q \le S_j$
    """

    @model.Constraint(model.EDGES)
    def precedence_producer(model: pyo.ConcreteModel, q: str) -> Linear:
        return model.op_end[model.producer[q]] <= model.flow_start[q]

    @model.Constraint(model.EDGES)
    def precedence_consumer(model: pyo.ConcreteModel, q: str) -> Linear:
        return model.flow_end[q] <= model.op_start[model.consumer[q]]


@family
def precedence_ops(model: pyo.ConcreteModel, instance: Instance) -> None:
    r"""Moirai (4a): op_end[i] <= op_start[j] for every op i and its direct and indirect successors
    j.

    $C_i \le S_j$
    """
    _, descendants = op_reach(instance.arrays.index)
    ops = list(enumerate(model.OPS))

    @model.Constraint([(i, j) for a, i in ops for b, j in ops if descendants[a] >> b & 1])
    def precedence_ops(model: pyo.ConcreteModel, i: str, j: str) -> Linear:
        return model.op_end[i] <= model.op_start[j]


@family
def remote_flows(model: pyo.ConcreteModel) -> None:
    r"""Moirai (7): remote[q] is 1 if and only if the ends of q = (i, j) are on different devices.

    For every device k: remote[q] >= x[i, k] - x[j, k], remote[q] >= x[j, k] - x[i, k] and
    remote[q] <= 2 - x[i, k] - x[j, k].

    $z_q \ge x_{ik} - x_{jk}, \quad z_q \ge x_{jk} - x_{ik}, \quad z_q \le 2 - x_{ik} - x_{jk}$
    """
    x, producer, consumer = model.x, model.producer, model.consumer

    @model.Constraint(model.EDGES, model.DEVICES)
    def remote_leaves(model: pyo.ConcreteModel, q: str, k: str) -> Linear:
        return model.remote[q] >= x[producer[q], k] - x[consumer[q], k]

    @model.Constraint(model.EDGES, model.DEVICES)
    def remote_enters(model: pyo.ConcreteModel, q: str, k: str) -> Linear:
        return model.remote[q] >= x[consumer[q], k] - x[producer[q], k]

    @model.Constraint(model.EDGES, model.DEVICES)
    def remote_not_within(model: pyo.ConcreteModel, q: str, k: str) -> Linear:
        return model.remote[q] <= 2 - x[producer[q], k] - x[consumer[q], k]


@family
def channel_choice(model: pyo.ConcreteModel) -> None:
    r"""Moirai (7): a remote flow takes one channel, that of its ends' devices.

    Sum over a, b of channel[q, a, b] == remote[q], and
    channel[q, a, b] >= x[i, a] + x[j, b] - 1 for q = (i, j) and every a != b.

    $\sum_{a \ne b} u_{qab} = z_q, \quad u_{qab} \ge x_{ia} + x_{jb} - 1$
    """

    @model.Constraint(model.EDGES if len(model.LINKS) else [])
    def channel_once(model: pyo.ConcreteModel, q: str) -> Linear:
        return sum(model.channel[q, a, b] for a, b in model.LINKS) == model.remote[q]

    @model.Constraint(model.EDGES, model.LINKS)
    def channel_joins(model: pyo.ConcreteModel, q: str, a: str, b: str) -> Linear:
        i, j = model.producer[q], model.consumer[q]
        return model.channel[q, a, b] >= model.x[i, a] + model.x[j, b] - 1


@family
def device_no_overlap(model: pyo.ConcreteModel) -> None:
    r"""Moirai (6): of two ops that no path orders, both on device k, one starts after the other
    ends.

    op_start[j] >= op_end[i] - H (1 - op_before[i, j]) - H (2 - x[i, k] - x[j, k]) and
    op_start[i] >= op_end[j] - H op_before[i, j] - H (2 - x[i, k] - x[j, k]).

    $S_j \ge C_i - H (1 - \delta_{ij}) - H (2 - x_{ik} - x_{jk})$
    """
    horizon, x = model.horizon.value, model.x
    start, end, before = model.op_start, model.op_end, model.op_before

    @model.Constraint(model.OP_PAIRS, model.DEVICES)
    def device_no_overlap_forth(_: pyo.ConcreteModel, i: str, j: str, k: str) -> Linear:
        return start[j] >= end[i] - horizon * (3 - before[i, j] - x[i, k] - x[j, k])

    @model.Constraint(model.OP_PAIRS, model.DEVICES)
    def device_no_overlap_back(_: pyo.ConcreteModel, i: str, j: str, k: str) -> Linear:
        return start[i] >= end[j] - horizon * (2 + before[i, j] - x[i, k] - x[j, k])


@family
def channel_no_overlap(model: pyo.ConcreteModel, verbatim: bool) -> None:
    r"""Moirai (8): of two remote flows out of one device, or into one, one starts after the other
    ends.

    For i, j = the producers of q, r (or their consumers) and every device k:
    flow_start[r] >= flow_end[q]
    - H (1 - flow_before[q, r]) - H (4 - remote[q] - remote[r] - x[i, k] - x[j, k]), and likewise
    with q and r, flow_before and 1 - flow_before, exchanged. Verbatim the last sum also has
    + x[b, k] + x[d, k] of the flows' other ends b, d: 0 where both are remote and i, j on k.

    $S_r \ge C_q - H (1 - \delta_{qr}) - H (4 - z_q - z_r - x_{ik} - x_{jk})$
    """
    horizon, x, remote = model.horizon.value, model.x, model.remote
    start, end, before = model.flow_start, model.flow_end, model.flow_before
    ends = {"out": dict(model.producer.items()), "in": dict(model.consumer.items())}
    opposite = {"out": ends["in"], "in": ends["out"]}

    def elsewhere(q: str, r: str, side: str, k: str) -> Linear:
        own, other = ends[side], opposite[side]
        tight = 4 - remote[q] - remote[r] - x[own[q], k] - x[own[r], k]
        return tight + (x[other[q], k] + x[other[r], k] if verbatim else 0)

    @model.Constraint(model.FLOW_PAIRS, ("out", "in"), model.DEVICES)
    def channel_no_overlap_forth(_: pyo.ConcreteModel, q: str, r: str, side: str, k: str) -> Linear:
        return start[r] >= end[q] - horizon * (1 - before[q, r] + elsewhere(q, r, side, k))

    @model.Constraint(model.FLOW_PAIRS, ("out", "in"), model.DEVICES)
    def channel_no_overlap_back(_: pyo.ConcreteModel, q: str, r: str, side: str, k: str) -> Linear:
        return start[q] >= end[r] - horizon * (before[q, r] + elsewhere(q, r, side, k))
