"""The throughput IP with replicated stages, placegap's own (`placegap.instances.referee.loads`).

A stage is in a column of devices (`throughput_ip.columns`), and an op chooses a column. To the
plain model this adds

- ``stage[i, s]`` in {0, 1}: op i is in column s; ``x[i, k]`` is the expression that is 1 if op i is
  on device k, perhaps among others, so that rows on devices (memory) are those of the plain model;
- ``used[s]`` in {0, 1}: column s has a stage;
- ``share[s]``, ``sync[s]`` of columns of several devices: the load of each, what weights add to it.

Equal devices in a column count as its first: change their ``duration_ns`` together.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.data import family
from placegap.formulations.shared.families import Linear, first_of_group
from placegap.formulations.shared.pairs import grouped
from placegap.formulations.throughput_ip.columns import Columns, parameter_bytes
from placegap.instances.kernels.array_types import Flags
from placegap.instances.problem import Instance
from placegap.instances.problem.integers import NS_PER_S


@family
def column_sets(model: pyo.ConcreteModel, columns: Columns) -> None:
    """COLUMNS; MEMBERS: pairs (s, k), device k is in column s; REPLICATED: those of several."""
    devices, names = list(model.DEVICES), columns.names
    members = [(s, devices[k]) for s, own in zip(names, columns.devices, strict=True) for k in own]
    model.COLUMNS = pyo.Set(initialize=names)
    model.MEMBERS = pyo.Set(initialize=members, dimen=2)
    model.REPLICATED = pyo.Set(initialize=[names[s] for s in columns.replicated])


@family
def place_stages(model: pyo.ConcreteModel, possible: Flags) -> None:
    r"""Placegap's own: stage[i, s], used[s] in {0, 1}; x[i, k], sum of stage[i, s] over the columns
    s around device k.

    $x_{ik} = \sum_{s \ni k} y_{is}$
    """
    model.stage = pyo.Var(model.OPS, model.COLUMNS, domain=pyo.Binary)
    model.used = pyo.Var(model.COLUMNS, domain=pyo.Binary)
    ops, columns = list(model.OPS), list(model.COLUMNS)
    around = grouped((k, s) for s, k in model.MEMBERS)
    for i, s in np.argwhere(~possible).tolist():
        model.stage[ops[i], columns[s]].fix(0)

    @model.Expression(model.OPS, model.DEVICES)
    def x(model: pyo.ConcreteModel, i: str, k: str) -> Linear:
        return sum(model.stage[i, s] for s in around[k])


@family
def share_variables(model: pyo.ConcreteModel) -> None:
    r"""share[s], sync[s] >= 0 of replicated columns: load / r, and the sum of weights.

    They are integers, and so rounded up as the referee does, where the model counts nanoseconds.
    Otherwise its values are up to 2 ns too low: a bound.

    $r \lambda_s \ge load_s, \quad \lambda_s, g_s \ge 0$
    """
    rounds = model.unit_ns.value == 1
    domain = pyo.NonNegativeIntegers if rounds else pyo.NonNegativeReals
    model.share = pyo.Var(model.REPLICATED, domain=domain)
    model.sync = pyo.Var(model.REPLICATED, domain=domain)


@family
def stage_assign_once(model: pyo.ConcreteModel) -> None:
    r"""Placegap's own: sum over s of stage[i, s] == 1 for every op i.

    $\sum_s y_{is} = 1$
    """

    @model.Constraint(model.OPS)
    def stage_assign_once(model: pyo.ConcreteModel, i: str) -> Linear:
        return sum(model.stage[i, s] for s in model.COLUMNS) == 1


@family
def stage_colocate_ops(model: pyo.ConcreteModel, instance: Instance) -> None:
    r"""Placegap's own: stage[i, s] == stage[j, s] for every op i of a group, j its first op, every
    column s.

    $y_{is} = y_{js}$
    """
    ops = list(model.OPS)
    home = {ops[i]: ops[j] for i, j in enumerate(first_of_group(instance)) if i != j}

    @model.Constraint(list(home), model.COLUMNS)
    def stage_colocate_ops(model: pyo.ConcreteModel, i: str, s: str) -> Linear:
        return model.stage[i, s] == model.stage[home[i], s]


@family
def stage_used(model: pyo.ConcreteModel) -> None:
    r"""Placegap's own: stage[i, s] <= used[s] for every op i and column s.

    $y_{is} \le \upsilon_s$
    """

    @model.Constraint(model.OPS, model.COLUMNS)
    def stage_used(model: pyo.ConcreteModel, i: str, s: str) -> Linear:
        return model.stage[i, s] <= model.used[s]


@family
def stage_disjoint(model: pyo.ConcreteModel) -> None:
    r"""Placegap's own: sum over the columns s around device k of used[s] <= 1, every device k.

    $\sum_{s \ni k} \upsilon_s \le 1$
    """
    around = grouped((k, s) for s, k in model.MEMBERS)

    @model.Constraint(model.DEVICES)
    def stage_disjoint(model: pyo.ConcreteModel, k: str) -> Linear:
        return sum(model.used[s] for s in around[k]) <= 1


@family
def stage_packed(model: pyo.ConcreteModel, columns: Columns) -> None:
    r"""Placegap's own: used[s] <= sum of used over the columns that may be left of s
    (`Columns.packed`).

    Equal devices are taken from the left, by large stages first: this keeps one of the ways to
    choose the devices of the stages.

    $\upsilon_s \le \sum_{o \in L(s)} \upsilon_o$
    """
    names = columns.names
    before = {names[s]: [names[other] for other in left] for s, left in columns.packed}

    @model.Constraint(list(before))
    def stage_packed(model: pyo.ConcreteModel, s: str) -> Linear:
        return model.used[s] <= sum(model.used[other] for other in before[s])


@family
def load_shared(model: pyo.ConcreteModel, instance: Instance, columns: Columns) -> None:
    r"""Placegap's own: of a column s of r devices, largest >= share[s] + sync[s], and what sync is.

    sync[s] >= sum over i of 2 (r - 1) parameter_bytes_i / (r bandwidth_s) stage[i, s]; without a
    path between the devices only ops without parameters can be there.

    $T \ge \lambda_s + g_s, \quad g_s \ge \sum_i \frac{2 (r - 1) \beta_i}{r b_s} y_{is}$
    """
    (one,), ops, unit = model.PASSES, list(model.OPS), model.unit_ns.value
    weights = {ops[i]: size for i, size in parameter_bytes(instance).items()}
    synced = {  # number and bandwidth of its devices
        columns.names[s]: (len(columns.devices[s]), width)
        for s in columns.replicated
        if (width := columns.bandwidth[s]) is not None and weights
    }

    @model.Constraint(model.REPLICATED)
    def load_shared(model: pyo.ConcreteModel, s: str) -> Linear:
        return model.largest[one] >= model.share[s] + model.sync[s]

    @model.Constraint(list(synced))
    def sync_weights(model: pyo.ConcreteModel, s: str) -> Linear:
        r, width = synced[s]
        return model.sync[s] >= sum(
            2 * (r - 1) * size * NS_PER_S / (r * width) / unit * model.stage[i, s]
            for i, size in weights.items()
        )


@family
def position_filled(model: pyo.ConcreteModel) -> None:
    r"""Placegap's own: sum over s of position[s, p + 1] <= sum over s of position[s, p]: no
    gaps.

    $\sum_s y_{s,p+1} \le \sum_s y_{sp}$
    """

    @model.Constraint(range(len(model.DEVICES) - 1))
    def position_filled(model: pyo.ConcreteModel, p: int) -> Linear:
        later = sum(model.position[s, p + 1] for s in model.COLUMNS)
        return later <= sum(model.position[s, p] for s in model.COLUMNS)


@family
def position_order(model: pyo.ConcreteModel, columns: Columns) -> None:
    r"""Placegap's own: position[b, <= p] <= position[a, < p] + 1 - used[a] of equal columns a, b.

    Of two columns that may be swapped, having no device in common, the first comes first if used.

    $\sum_{q \le p} y_{bq} \le \sum_{q < p} y_{aq} + 1 - \upsilon_a$
    """
    names, size = columns.names, len(model.DEVICES)
    rows = [(names[a], names[b], p) for a, b in alike_pairs(columns) for p in range(size)]

    def placed(s: str, until: int) -> Linear:
        return sum(model.position[s, p] for p in range(until))

    @model.Constraint(rows)
    def position_order(model: pyo.ConcreteModel, a: str, b: str, p: int) -> Linear:
        return placed(b, p + 1) <= placed(a, p) + 1 - model.used[a]


def alike_pairs(columns: Columns) -> tuple[tuple[int, int], ...]:
    """Pairs of equal columns without a device in common, which may be swapped."""
    devices = columns.devices
    return tuple(
        (a, b)
        for a, b in combinations(range(len(devices)), 2)
        if columns.alike[a] == columns.alike[b] and not set(devices[a]) & set(devices[b])
    )
