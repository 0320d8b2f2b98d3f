"""LP bound on the time through a section: paths, work, channels and transfers at once.

The relaxation of Moirai's strengthened MILP (`moirai.strengthened`) without its pairwise rows,
which bound nothing in an LP, for a section whose ends are pinned to devices
(`instances.problem.sections`). On a whole graph it is weak, because fractional placements hide all
transfers; with pinned ends a section that is split must pay for them.

Claim: a relaxation of ``makespan``, of any channels and transfers, among the schedules of at most
the horizon. Components:

- ``x[i, k]`` and ``route[q, a, b]`` in [0, 1]: op i is on device k; edge q goes from a to b;
- ``op_start[i]``, ``flow_start[q]``, ``makespan``: times, in units of ``unit_ns``;
- ``sent[u, a, b]`` (per_tensor): at least every route of an edge that carries tensor u;
- ``used[k]``, ``busy[c]``: at least every x[i, k]; at least what any edge sends over channel c.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyomo.environ as pyo

from placegap.formulations.moirai.old_strengthened import (
    Arcs,
    add_durations,
    critical_path,
    possible_arcs,
    precedence_flows,
    route_flows,
    route_links,
    time_variables,
)
from placegap.formulations.shared.naming import describe, names_of
from placegap.formulations.shared.old_families import (
    Linear,
    assign_once,
    colocate_ops,
    memory_capacity,
    place_ops,
)
from placegap.formulations.shared.times import ScaledTimes, Windows, scale_times, windows
from placegap.instances.problem import Instance, Makespan
from placegap.instances.referee.channels import NO_CHANNEL, channels_of


def build(
    instance: Instance, semantics: Makespan, horizon_ns: int, *, names: bool = False
) -> pyo.ConcreteModel:
    """The LP of an instance, to be solved as a relaxation.

    Parameters
    ----------
    instance : Instance
        A section with pinned ends, or any other.
    semantics : Makespan
        Of objective makespan.
    horizon_ns : int
        Longer schedules are of no interest: without shorter ones the LP may be infeasible.
    names : bool
        Index the components by the names of ops and devices, not by their numbers.

    Notes
    -----
    n K + m K^2 columns and n (2 + K) + m (4 K + 2) rows at most, besides those of work:
    O(K (n + thresholds)).

    Examples
    --------
    >>> from placegap.instances import example
    >>> model = build(example(), Makespan(), 43)
    >>> len(model.x), len(model.route)
    (8, 16)
    """
    window, times = windows(instance, horizon_ns), scale_times(instance, horizon_ns)
    arcs = possible_arcs(instance, window, horizon_ns)
    model = pyo.ConcreteModel(name=f"section LP: {instance.name}")
    model.unit_ns = pyo.Param(initialize=times.unit_ns)
    place_ops(model, window.possible)
    route_flows(model, arcs)
    time_variables(model, times)
    assign_once(model, instance)
    colocate_ops(model, instance)
    memory_capacity(model, instance)
    route_links(model, instance, arcs)
    add_durations(model, times, arcs)
    precedence_flows(model, instance)
    critical_path(model, instance, window, times)
    device_work_within(model, window, times)
    if semantics.channels != "free":
        channel_work_within(model, instance, semantics, window, times, arcs)
    # Beyond the horizon a bound is as good as infeasibility, and it has the solver's margin.
    for variable in (*model.op_start.values(), *model.flow_start.values(), model.makespan):
        variable.setub(None)
    model.objective = pyo.Objective(expr=model.makespan, doc="Placegap's own: the makespan")
    return describe(model, __doc__, names_of(instance) if names else None)


def device_work_within(model: pyo.ConcreteModel, window: Windows, times: ScaledTimes) -> None:
    """Placegap's own, work rows of devices, with what must come before and after.

    Sum over i of p_ik x[i, k] + (least head + least tail on k) used[k] <= makespan, and
    used[k] >= x[i, k]: a device that runs any op stands still until the first op can be there, and
    after the last one the rest of a path follows.
    """
    ops, devices = range(len(times.op)), range(len(times.op[0]))
    on = {k: [i for i in ops if window.possible[i, k]] for k in devices}
    idle = {
        k: float(window.head_ns[on[k], k].min() + window.tail_ns[on[k], k].min()) / times.unit_ns
        for k in devices
        if on[k]
    }
    model.used = pyo.Var(sorted(idle), bounds=(0, 1))

    @model.Constraint([(i, k) for k in idle for i in on[k] if idle[k] > 0])
    def device_used(model: pyo.ConcreteModel, i: int, k: int) -> Linear:
        return model.used[k] >= model.x[i, k]

    @model.Constraint(sorted(idle))
    def device_work_within(model: pyo.ConcreteModel, k: int) -> Linear:
        work = sum(times.op[i][k] * model.x[i, k] for i in on[k])
        return work + idle[k] * model.used[k] <= model.makespan


def channel_work_within(
    model: pyo.ConcreteModel,
    instance: Instance,
    semantics: Makespan,
    window: Windows,
    times: ScaledTimes,
    arcs: list[Arcs],
) -> None:
    """Placegap's own, work rows of channels, with what must come before and after.

    Sum of the times of what is sent over channel c + (earliest start + least time from an arrival
    to the end) busy[c] <= makespan. With per_edge every edge is sent by itself, with per_tensor a
    tensor once to each device: sent[u, a, b] >= route[q, a, b] for its edges q. An edge has one
    route, so busy[c] is at least the sum of its routes over c: far more than any of them where an
    LP spreads the other end over all devices.
    """
    # `items` are the variables that say that something is sent, by item and arc; `spare` is the
    # least time before and after such a transfer, over the edges that may need it.
    arrays, num_devices = instance.arrays, instance.num_devices
    index = arrays.index
    until, since = window.head_ns + arrays.time_ns, window.tail_ns + arrays.time_ns
    items: dict[tuple[int, int, int], Linear] = {}
    spare: dict[tuple[int, int, int], tuple[int, int]] = {}
    per_tensor = semantics.transfers == "per_tensor"
    tensor = index.tensor.tolist()
    if per_tensor:
        keys = {(tensor[q], a, b) for q, pairs in enumerate(arcs) for a, b in pairs if a != b}
        model.sent = pyo.Var(sorted(keys), bounds=(0, 1))
        routes = [(q, a, b) for q, pairs in enumerate(arcs) for a, b in pairs if a != b]

        @model.Constraint(routes)
        def sent_covers(model: pyo.ConcreteModel, q: int, a: int, b: int) -> Linear:
            return model.sent[tensor[q], a, b] >= model.route[q, a, b]

    length: dict[tuple[int, int, int], float] = {}
    through: dict[tuple[int, int], list[tuple[int, int]]] = {}  # by channel and edge
    for q, pairs in enumerate(arcs):
        i, j = index.producer[q], index.consumer[q]
        for a, b in pairs:
            if a == b:
                continue
            key = (tensor[q] if per_tensor else q, a, b)
            items[key] = model.sent[key] if per_tensor else model.route[key]
            length[key] = times.move[q][a][b]
            # The transfer starts after its producer has ended on a, and the consumer and all after
            # it follow on b. A tensor that serves several edges counts with the least of each.
            head, tail = int(until[i, a]), int(since[j, b])
            old = spare.get(key, (head, tail))
            spare[key] = (min(old[0], head), min(old[1], tail))
            # A port is held at both ends: the same route counts on two channels.
            for c in channels_of(semantics.channels, num_devices, a, b):
                if c != NO_CHANNEL:
                    through.setdefault((c, q), []).append((a, b))
    channel: dict[int, list[tuple[int, int, int]]] = {}
    for key in sorted(items):
        for c in channels_of(semantics.channels, num_devices, key[1], key[2]):
            if c != NO_CHANNEL:
                channel.setdefault(c, []).append(key)
    # While a channel is used at all, it is idle before the first and after the last transfer for at
    # least the least head and the least tail: `busy` scales this by the largest use of an edge.
    idle = {c: _least(spare[key] for key in keys) / times.unit_ns for c, keys in channel.items()}
    model.busy = pyo.Var(sorted(channel), bounds=(0, 1))

    @model.Constraint([(c, q) for c, q in sorted(through) if idle[c] > 0])
    def channel_busy(model: pyo.ConcreteModel, c: int, q: int) -> Linear:
        return model.busy[c] >= sum(model.route[q, a, b] for a, b in through[c, q])

    @model.Constraint(sorted(channel))
    def channel_work_within(model: pyo.ConcreteModel, c: int) -> Linear:
        work = sum(length[key] * items[key] for key in channel[c])
        return work + idle[c] * model.busy[c] <= model.makespan


def _least(ends: Iterable[tuple[int, int]]) -> int:
    heads, tails = zip(*ends, strict=True)
    return int(min(heads) + min(tails))
