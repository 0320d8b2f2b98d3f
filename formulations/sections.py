"""LP bound on the time through a section: paths, work, channels and transfers at once.

The relaxation of Moirai's strengthened MILP (`moirai.strengthened`) without its pairwise rows,
which bound nothing in an LP, for a section whose ends are pinned to devices
(`instances.problem.sections`). On a whole graph it is weak, because fractional placements hide all
transfers; with pinned ends a section that is split must pay for them.

Claim: a relaxation of ``makespan``, of any channels and transfers, among the schedules of at most
the horizon. Windows come from the times: ``duration_ns`` and ``transfer_ns`` may only grow.
Besides Moirai's, its components are

- ``sent[u, a, b]`` (per_tensor): at least every route of an edge that carries tensor u;
- ``used[k]``, ``busy[c]``: at least every x[i, k]; at least what any edge sends over channel c.
"""

from __future__ import annotations

import pyomo.environ as pyo

from placegap.formulations.moirai import strengthened
from placegap.formulations.moirai.published import precedence_flows
from placegap.formulations.shared import families, require_makespan
from placegap.formulations.shared.data import (
    duration_data,
    family,
    model_of_flows,
    names_of,
    transfer_data,
    window_data,
)
from placegap.formulations.shared.families import Linear, op_work
from placegap.formulations.shared.pairs import grouped
from placegap.formulations.shared.times import windows
from placegap.instances.problem import Instance, Makespan


def build(
    instance: Instance, semantics: Makespan, *, horizon_ns: int | None = None
) -> pyo.ConcreteModel:
    """The LP of an instance, to be solved as a relaxation.

    Parameters
    ----------
    instance : Instance
        A section with pinned ends, or any other.
    semantics : Makespan
        Of objective makespan.
    horizon_ns : int, optional
        Longer schedules are of no interest: without shorter ones the LP may be infeasible. The
        default is a time by which every schedule can end.

    Notes
    -----
    n K + m K^2 columns and n (2 + K) + m (4 K + 2) rows at most, besides those of work:
    O(K (n + thresholds)).

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build(example(), Makespan(), horizon_ns=43)
    >>> len(model.x), len(model.route)
    (8, 16)
    """
    require_makespan("the section LP", semantics)
    horizon = instance.arrays.serial_horizon_ns if horizon_ns is None else horizon_ns
    window, names = windows(instance, horizon), names_of(instance)
    routes = strengthened.possible_arcs(instance, window, horizon)
    arcs = [(q, a, b) for q, pairs in enumerate(routes) for a, b in pairs]
    model = model_of_flows("section LP", instance, semantics, horizon)
    duration_data(model, instance, only_longer=True)
    transfer_data(model, instance, arcs, only_longer=True)
    families.place_ops(model, window.possible)
    window_data(model, window)
    strengthened.route_flows(
        model, [(names.edges[q], names.devices[a], names.devices[b]) for q, a, b in arcs]
    )
    strengthened.time_variables(model)
    families.assign_once(model)
    families.colocate_ops(model, instance)
    families.memory_capacity(model, instance)
    strengthened.route_links(model)
    strengthened.add_durations(model)
    precedence_flows(model)
    strengthened.critical_path(model, instance)
    device_work_within(model)
    if semantics.channels != "free":
        channel_work_within(model, instance)
    # Beyond the horizon a bound is as good as infeasibility, and it has the solver's margin.
    for variable in (*model.op_start.values(), *model.flow_start.values(), model.makespan):
        variable.setub(None)
    families.makespan_value(model, "Placegap's own: the makespan")
    return model


@family
def device_work_within(model: pyo.ConcreteModel) -> None:
    r"""Placegap's own: work rows of devices, with what must come before and after.

    Sum over i of p_ik x[i, k] + (least head + least tail on k) used[k] <= makespan, and
    used[k] >= x[i, k]: a device that runs any op stands still until the first op can be there, and
    after the last one the rest of a path follows.

    $\sum_i p_{ik} x_{ik} + (h_k + t_k) \upsilon_k \le T, \quad \upsilon_k \ge x_{ik}$
    """
    found, work = grouped((k, i) for i, k in model.PLACES), op_work(model, by=1)
    on = {k: found[k] for k in model.DEVICES if k in found}
    ways, unit_ns = (model.head_ns, model.tail_ns), model.unit_ns.value
    idle = {k: sum(min(way[i, k] for i in own) for way in ways) for k, own in on.items()}
    model.used = pyo.Var(list(idle), bounds=(0, 1), doc="used[k]: at least every x[i, k]")

    @model.Constraint([(i, k) for k in idle for i in on[k] if idle[k] > 0])
    def device_used(model: pyo.ConcreteModel, i: str, k: str) -> Linear:
        return model.used[k] >= model.x[i, k]

    @model.Constraint(list(idle))
    def device_work_within(model: pyo.ConcreteModel, k: str) -> Linear:
        return sum(work[k]) + idle[k] / unit_ns * model.used[k] <= model.makespan


@family
def channel_work_within(model: pyo.ConcreteModel, instance: Instance) -> None:
    r"""Placegap's own: work rows of channels, with what must come before and after.

    Sum of the times of what is sent over channel c + (earliest start + least time from an arrival
    to the end) busy[c] <= makespan. With per_edge every edge is sent by itself, with per_tensor a
    tensor once to each device: sent[u, a, b] >= route[q, a, b] for its edges q. An edge has one
    route, so busy[c] is at least the sum of its routes over c: far more than any of them where an
    LP spreads the other end over all devices.

    $\sum_{(q, a, b) \in c} p_{qab} w_{qab} + (h_c + t_c) \beta_c \le T,
    \quad \beta_c \ge \sum_{(a, b) \in c} w_{qab}, \quad w_{uab} \ge w_{qab}$
    """
    sent, index, tensors = model.route, instance.arrays.index, names_of(instance).tensors
    of = {q: q for q in model.EDGES}  # what carries an edge: itself, or its tensor
    if model.semantics.transfers == "per_tensor":
        of = {q: tensors[u] for q, u in zip(model.EDGES, index.tensor.tolist(), strict=True)}
        model.TENSORS = pyo.Set(initialize=tensors, doc="tensors")
        arcs = dict.fromkeys((of[q], a, b) for q, a, b in model.transfer_ns)
        model.sent = sent = pyo.Var(
            list(arcs), bounds=(0, 1), doc="sent[u, a, b]: at least every route of tensor u"
        )

        @model.Constraint(list(model.transfer_ns))
        def sent_covers(model: pyo.ConcreteModel, q: str, a: str, b: str) -> Linear:
            return model.sent[of[q], a, b] >= model.route[q, a, b]

    held = strengthened.channels_by_link(model, instance)
    work: dict[str, dict[tuple[str, str, str], Linear]] = {}  # by channel and what it carries
    through: dict[tuple[str, str], list[Linear]] = {}  # by channel and edge
    before: dict[str, list[int]] = {}
    after: dict[str, list[int]] = {}
    until = {at: time + model.duration_ns[at].value for at, time in model.head_ns.items()}
    since = {at: time + model.duration_ns[at].value for at, time in model.tail_ns.items()}
    producer, consumer = dict(model.producer.items()), dict(model.consumer.items())
    unit_ns = model.unit_ns.value
    for (q, a, b), time_ns in model.transfer_ns.items():
        arc, route = (of[q], a, b), model.route[q, a, b]
        time = time_ns / unit_ns * sent[arc]
        # A port is held at both ends: the same route counts on two channels.
        for c in held[a, b]:
            work.setdefault(c, {})[arc] = time
            through.setdefault((c, q), []).append(route)
            # The transfer starts after its producer has ended on a, and the consumer and all after
            # it follow on b.
            before.setdefault(c, []).append(until[producer[q], a])
            after.setdefault(c, []).append(since[consumer[q], b])
    # While a channel is used at all, it is idle before the first and after the last transfer for at
    # least the least head and the least tail: `busy` scales this by the largest use of an edge.
    idle = {c: min(before[c]) + min(after[c]) for c in work}
    model.CHANNELS = pyo.Set(initialize=list(idle), doc="channels that a transfer may hold")
    model.busy = pyo.Var(model.CHANNELS, bounds=(0, 1), doc="busy[c]: at least an edge's use of c")

    @model.Constraint([(c, q) for c, q in through if idle[c] > 0])
    def channel_busy(model: pyo.ConcreteModel, c: str, q: str) -> Linear:
        return model.busy[c] >= sum(through[c, q])

    @model.Constraint(model.CHANNELS)
    def channel_work_within(model: pyo.ConcreteModel, c: str) -> Linear:
        return sum(work[c].values()) + idle[c] / unit_ns * model.busy[c] <= model.makespan
