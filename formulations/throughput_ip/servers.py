"""The throughput IP with two levels of communication: servers pay for what crosses their borders.

To the plain model, or that with replicas, it adds placegap's own

- ``in_server[i, v]``: the expression that is 1 if op i is in server v;
- ``servers``: a block with ``leaves[u, v]`` and all the others that devices have, of servers v.
"""

from __future__ import annotations

import pyomo.environ as pyo

from placegap.formulations.shared.data import family, label_data
from placegap.formulations.shared.families import Linear
from placegap.formulations.shared.pairs import grouped
from placegap.formulations.throughput_ip.columns import device_columns
from placegap.formulations.throughput_ip.rows import regions_of
from placegap.instances.problem import Instance


@family
def place_in_servers(model: pyo.ConcreteModel, instance: Instance) -> None:
    r"""Placegap's own: SERVERS; server[r]: that of device or column r; in_server[i, v], the sum of
    x over the devices of server v.

    $x_{iv} = \sum_{k \in v} x_{ik}$
    """
    _, names, inside = regions_of(model)[0]
    columns = device_columns(instance, model.semantics, model.symmetry)
    servers, of_device = instance.cluster.server_numbers
    own = {r: servers[of_device[k]] for r, k in zip(names, columns.first, strict=True)}
    model.servers = pyo.Block(doc="placegap's own: what crosses the borders of servers")
    model.SERVERS = pyo.Set(initialize=servers)
    label_data(model, "server", names, own.values(), "server[r]: that of device or column r")
    members = grouped((v, r) for r, v in own.items())

    @model.Expression(model.OPS, model.SERVERS)
    def in_server(_: pyo.ConcreteModel, i: str, v: str) -> Linear:
        return sum(inside[i, r] for r in members[v])


@family
def server_load(model: pyo.ConcreteModel) -> None:
    r"""Placegap's own: of every server v, largest >= sum over u of host_ns[u, v] (leaves[u, v] +
    enters[u, v]), those of the block ``servers``.

    $T \ge \sum_u c_{uv} (\ell_{uv} + n_{uv})$
    """
    (one,) = model.PASSES
    unit, leaves, enters = model.unit_ns.value, model.servers.leaves, model.servers.enters
    costs = model.servers.host_ns.items()
    parts = grouped((at[1], cost / unit * (leaves[at] + enters[at])) for at, cost in costs)

    @model.Constraint([v for v in model.SERVERS if v in parts])
    def server_load(model: pyo.ConcreteModel, v: str) -> Linear:
        return model.largest[one] >= sum(parts[v])
