"""Loads of the throughput IP: tensors that cross borders, compute, shares of replicas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.families import Linear
from placegap.formulations.throughput_ip.columns import ThroughputSets
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.referee.loads import sync_ns

Inside = Any
"""Mapping (op, region) -> variable or expression that is 1 if the op is in the region, else 0."""

Part = tuple[str, bool | None]
"""A part of the objective: the suffix of its components, and which pass it counts (None: all)."""


def parts_of(data: ThroughputSets) -> tuple[Part, ...]:
    """max_load has one part, max_load_fwd_bwd a forward and a backward one."""
    if data.semantics.objective == "max_load":
        return (("", None),)
    return ("_forward", False), ("_backward", True)


def priced(costs_ns: Any) -> list[tuple[int, int]]:
    """The (tensor, region) pairs at which crossing the region's border costs time."""
    return [(u, r) for u, r in np.argwhere(costs_ns > 0).tolist()]


# ---------------------------------------------------------------------------------------- variables


def crossing_variables(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """``leaves[u, k]``, ``enters[u, k]`` in [0, 1], and ``largest`` >= 0 of every part."""
    pairs = priced(data.border_ns)
    model.leaves = pyo.Var(pairs, bounds=(0, 1))
    model.enters = pyo.Var(pairs, bounds=(0, 1))
    for suffix, _ in parts_of(data):
        model.add_component(f"largest{suffix}", pyo.Var(domain=pyo.NonNegativeReals))


def share_variables(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """``share[s]``, ``sync[s]`` >= 0 of replicated columns: load / r, and the sum of weights.

    They are integers, and so rounded up, where the model counts nanoseconds.
    """
    domain = pyo.NonNegativeIntegers if data.rounds else pyo.NonNegativeReals
    model.share = pyo.Var(data.columns.replicated, domain=domain)
    model.sync = pyo.Var(data.columns.replicated, domain=domain)


def server_variables(model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside) -> None:
    """``server_leaves[u, v]``, ``server_enters[u, v]``; ``in_server[i, v]``, the sum of inside."""
    members: list[list[int]] = [[] for _ in data.servers]
    for s, v in enumerate(data.server.tolist()):
        members[v].append(s)

    @model.Expression(range(data.instance.num_ops), range(len(members)))
    def in_server(_: pyo.ConcreteModel, i: int, v: int) -> Linear:
        return sum(inside[i, s] for s in members[v])

    pairs = priced(data.server_ns)
    model.server_leaves = pyo.Var(pairs, bounds=(0, 1))
    model.server_enters = pyo.Var(pairs, bounds=(0, 1))


# -------------------------------------------------------------------------------------- constraints


def exclude_too_long(data: ThroughputSets, inside: Inside) -> None:
    """An op is in no column where its time, or its weights alone, exceed the horizon."""
    columns, weights = data.columns, parameter_bytes(data)
    for s, devices in enumerate(columns.devices):
        r, width = len(devices), columns.bandwidth[s]
        for i in np.flatnonzero(data.time_ns[:, s] > r * data.horizon_ns).tolist():
            inside[i, s].fix(0)
        if r > 1 and width is not None:
            for i, size in weights.items():
                if sync_ns(size, r, width) > data.horizon_ns:
                    inside[i, s].fix(0)


def tensor_leaves(model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside) -> None:
    """leaves[u, k] >= x[i, k] - x[j, k], i the producer and j any consumer of tensor u."""
    rows = [(u, k, j) for u, k in model.leaves for j in data.consumers[u]]

    @model.Constraint(rows)
    def tensor_leaves(model: pyo.ConcreteModel, u: int, k: int, j: int) -> Linear:
        return model.leaves[u, k] >= inside[data.producer[u], k] - inside[j, k]


def tensor_enters(model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside) -> None:
    """enters[u, k] >= x[j, k] - x[i, k], i the producer and j any consumer of tensor u."""
    rows = [(u, k, j) for u, k in model.enters for j in data.consumers[u]]

    @model.Constraint(rows)
    def tensor_enters(model: pyo.ConcreteModel, u: int, k: int, j: int) -> Linear:
        return model.enters[u, k] >= inside[j, k] - inside[data.producer[u], k]


def server_crossings(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """`tensor_leaves` and `tensor_enters` at the borders of the servers."""
    rows = [(u, v, j) for u, v in model.server_leaves for j in data.consumers[u]]
    inside = model.in_server

    @model.Constraint(rows)
    def tensor_leaves_server(model: pyo.ConcreteModel, u: int, v: int, j: int) -> Linear:
        return model.server_leaves[u, v] >= inside[data.producer[u], v] - inside[j, v]

    @model.Constraint(rows)
    def tensor_enters_server(model: pyo.ConcreteModel, u: int, v: int, j: int) -> Linear:
        return model.server_enters[u, v] >= inside[j, v] - inside[data.producer[u], v]


def load_add(model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside) -> None:
    """Load of every column k: largest >= compute + communication.

    Compute is the sum over i of p_ik x[i, k], communication the sum over u of
    host_time(u, k) (leaves[u, k] + enters[u, k]). Of replicated columns r share[k] takes the place
    of largest. With two parts (Tarnawski et al., Appendix C) ops and producers of one part count.
    """
    for suffix, backward in parts_of(data):
        compute, communication = _sums(model, data, inside, backward)
        load = [work + moved for work, moved in zip(compute, communication, strict=True)]
        _at_least(model, data, suffix, f"load_add{suffix}", dict(enumerate(load)))


def load_overlap(model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside) -> None:
    """Load of every column k: largest >= compute and largest >= communication (`load_add`)."""
    for suffix, backward in parts_of(data):
        compute, communication = _sums(model, data, inside, backward)
        moved = {k: part for k, part in enumerate(communication) if not isinstance(part, int)}
        _at_least(model, data, suffix, f"load_overlap_compute{suffix}", dict(enumerate(compute)))
        _at_least(model, data, suffix, f"load_overlap_communication{suffix}", moved)


def load_shared(model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside) -> None:
    """Of a column s of r devices: largest >= share[s] + sync[s], and what sync is.

    sync[s] >= sum over i of 2 (r - 1) parameter_bytes_i / (r bandwidth_s) x[i, s]; without a path
    between the devices only ops without parameters can be there.
    """
    columns, weights = data.columns, parameter_bytes(data)
    synced = [s for s in columns.replicated if columns.bandwidth[s] is not None and weights]
    for s in columns.replicated:
        if columns.bandwidth[s] is None:
            for i in weights:
                inside[i, s].fix(0)

    @model.Constraint(columns.replicated)
    def load_shared(model: pyo.ConcreteModel, s: int) -> Linear:
        return model.largest >= model.share[s] + model.sync[s]

    @model.Constraint(synced)
    def sync_weights(model: pyo.ConcreteModel, s: int) -> Linear:
        r, width = len(columns.devices[s]), columns.bandwidth[s] or 1
        return model.sync[s] >= sum(
            2 * (r - 1) * size * NS_PER_S / (r * width) / data.unit_ns * inside[i, s]
            for i, size in weights.items()
        )


def server_load(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """Of every server v: largest >= sum over u of server_time(u, v) (leaves + enters)."""
    parts: dict[int, list[Linear]] = {}
    for (u, v), leaves in model.server_leaves.items():
        cost = float(data.server_ns[u, v]) / data.unit_ns
        parts.setdefault(v, []).append(cost * (leaves + model.server_enters[u, v]))

    @model.Constraint(sorted(parts))
    def server_load(model: pyo.ConcreteModel, v: int) -> Linear:
        return model.largest >= sum(parts[v])


def parameter_bytes(data: ThroughputSets) -> dict[int, int]:
    """Of the ops that have any."""
    ops = data.instance.graph.ops
    return {i: op.parameter_bytes for i, op in enumerate(ops) if op.parameter_bytes}


def _at_least(
    model: pyo.ConcreteModel, data: ThroughputSets, suffix: str, name: str, parts: dict[int, Linear]
) -> None:
    """Rows of that name: largest, or what r replicas can do until then, covers each part."""
    largest, devices = model.component(f"largest{suffix}"), data.columns.devices

    def covers(model: pyo.ConcreteModel, s: int) -> Linear:
        r = len(devices[s])
        return (largest if r == 1 else r * model.share[s]) >= parts[s]

    model.add_component(name, pyo.Constraint(list(parts), rule=covers))


def _sums(
    model: pyo.ConcreteModel, data: ThroughputSets, inside: Inside, backward: bool | None
) -> tuple[list[Linear], list[Linear]]:
    """Compute and communication of every column, as expressions."""
    time, border = data.time_ns / data.unit_ns, data.border_ns / data.unit_ns
    counts = [backward in (None, bool(flag)) for flag in data.instance.arrays.backward]
    compute: list[list[Linear]] = [[] for _ in range(len(data.columns))]
    communication: list[list[Linear]] = [[] for _ in compute]
    for (i, k), x in inside.items():
        if counts[i] and not x.fixed:
            compute[k].append(float(time[i, k]) * x)
    for (u, k), leaves in model.leaves.items():
        if counts[data.producer[u]]:
            communication[k].append(float(border[u, k]) * (leaves + model.enters[u, k]))
    return [sum(part) for part in compute], [sum(part) for part in communication]
