"""The throughput IP of Tarnawski et al. (NeurIPS 2020): contiguous, as chains, or free.

Claim: exact for ``max_load`` and ``max_load_fwd_bwd`` (their Appendix C), for every class of plans
and with ``add`` and ``overlap`` loads; likewise with two levels of communication. With replicated
stages it is exact where its unit is 1 ns, and otherwise a relaxation by up to 2 ns: shares are not
rounded up. The counting is that of their published program: a tensor that leaves device k costs
host_time(tensor, k) there once, a tensor that enters k costs it once; hosts pay nothing for
communication. Components of the model:

- ``x[i, k]`` in {0, 1}: op i is on device k (with replicas: `throughput_ip.stages`);
- ``leaves[u, k]``, ``enters[u, k]`` in [0, 1]: tensor u leaves, enters device k; only where that
  costs something, and integral where x is;
- ``largest``: the load of the heaviest device; ``largest_forward`` and ``largest_backward``, which
  are added up, for ``max_load_fwd_bwd``;
- what contiguity needs (`throughput_ip.contiguous`), and servers (`throughput_ip.loads`).

The classes of plans: ``any``; ``convex`` as published; ``chain``, exactly the chains of ideals of
their dynamic program.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared.devices import MOST_EARLIER, symmetry_order
from placegap.formulations.shared.families import (
    assign_once,
    colocate_ops,
    memory_capacity,
    place_ops,
    possible_devices,
)
from placegap.formulations.throughput_ip import extract, warm_start
from placegap.formulations.throughput_ip.columns import (
    MOST_UNEVEN,
    ThroughputSets,
    device_columns,
    horizon_ns,
    place_stages,
    stage_assign_once,
    stage_colocate_ops,
    stage_disjoint,
    stage_packed,
    stage_used,
    throughput_data,
    uneven_class,
    value_step_ns,
)
from placegap.formulations.throughput_ip.rows import (
    Inside,
    Stages,
    alike_pairs,
    chain_arcs,
    chain_regions,
    convex_regions,
    crossing_variables,
    exclude_too_long,
    forward_arcs,
    load_add,
    load_overlap,
    load_shared,
    parts_of,
    server_crossings,
    server_load,
    server_variables,
    share_variables,
    tensor_enters,
    tensor_leaves,
)
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import (
    LoadSemantics,
    PlanClass,
    Semantics,
    has_replicas,
    has_two_levels,
)
from placegap.instances.referee.loads import why_not_two_levels

__all__ = [
    "Contiguous",
    "build",
    "count_rows",
    "extract",
    "horizon_ns",
    "value_step_ns",
    "warm_start",
    "why_not",
]

Contiguous = Literal["convex", "chain", "no"]

CLASS_OF: dict[Contiguous, PlanClass] = {"convex": "convex", "chain": "chain", "no": "any"}
"""The class of plans that each form of the model admits."""


def build(
    instance: Instance,
    semantics: LoadSemantics,
    contiguous: Contiguous | None = None,
    symmetry: bool = False,
    most_ns: int | None = None,
) -> pyo.ConcreteModel:
    """The throughput IP of an instance.

    Parameters
    ----------
    instance : Instance
    semantics : LoadSemantics
        ``max_load`` or ``max_load_fwd_bwd``; its load rule decides the rows of the devices.
    contiguous : {"convex", "chain", "no"}, optional
        Which plans the model admits; it must be the class of the semantics, as it is by default.
    symmetry : bool
        Fix the roles of equal devices. It makes proofs shorter, and is wrong beside constraints of
        your own that name devices. `warm_start` and `extract` must be told the same.
    most_ns : int, optional
        The value of a plan that is known: the model need not have worse ones.

    Returns
    -------
    ConcreteModel
        Minimizes the value, in units of ``unit_ns`` nanoseconds. Constraints can be added.

    Raises
    ------
    ValueError
        What `why_not` says.

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> model = build(example(), MaxLoad())
    >>> len(model.x), len(model.leaves), pyo.value(model.unit_ns)
    (8, 8, 1.0)
    """
    reason = why_not(instance, semantics, contiguous, symmetry)
    if reason is not None:
        raise ValueError(f"the throughput IP {reason}")
    data = throughput_data(instance, semantics, symmetry, most_ns)
    model = pyo.ConcreteModel(name=f"throughput IP: {instance.name}")
    model.unit_ns = pyo.Param(initialize=data.unit_ns)
    if has_replicas(semantics):
        place_stages(model, data)
        crossing_variables(model, data)
        share_variables(model, data)
        stage_assign_once(model, data)
        stage_colocate_ops(model, data)
        stage_used(model, data)
        stage_disjoint(model, data)
        stage_packed(model, data)
    else:
        place_ops(model, possible_devices(instance))
        crossing_variables(model, data)
        assign_once(model, instance)
        colocate_ops(model, instance)
    inside = _inside(model)
    exclude_too_long(data, inside)
    memory_capacity(model, instance)
    tensor_leaves(model, data, inside)
    tensor_enters(model, data, inside)
    if semantics.load == "add":
        load_add(model, data, inside)
    else:
        load_overlap(model, data, inside)
    if has_replicas(semantics):
        load_shared(model, data, inside)
    if len(data.servers) > 1:
        server_variables(model, data, inside)
        server_crossings(model, data)
        server_load(model, data)
    contiguity(model, data)
    if data.columns.classes and not has_replicas(semantics):
        symmetry_order(model, instance, classes=data.columns.classes)
    model.objective = pyo.Objective(
        expr=sum(model.component(f"largest{suffix}") for suffix, _ in parts_of(data))
    )
    return model


def contiguity(model: pyo.ConcreteModel, data: ThroughputSets) -> None:
    """The rows of the class of plans, for the columns of devices and for the servers.

    A chain is convex, too, and it is those rows that the bound of a chain comes from.
    """
    instance, columns, plans = data.instance, data.columns, data.semantics.plans
    regions = [(_inside(model), len(columns), "")]
    if len(data.servers) > 1:
        regions.append((model.in_server, len(data.servers), "server_"))
    for inside, size, prefix in regions:
        if plans != "any":
            convex_regions(model, instance, inside, size, prefix)
        if plans == "chain":
            stages = None
            if has_replicas(data.semantics) and not prefix:
                stages = Stages(model.used, instance.num_devices, alike_pairs(columns))
            arcs = chain_arcs(instance)
            chain_regions(model, arcs, inside, instance.num_ops, size, stages, prefix)


def why_not(
    instance: Instance,
    semantics: Semantics,
    contiguous: Contiguous | None = None,
    symmetry: bool = False,
) -> str | None:
    """Why the model does not state a semantics of an instance, or None if it does."""
    if not isinstance(semantics, LoadSemantics):
        return f"states max_load and max_load_fwd_bwd, not {semantics.label}"
    if contiguous is not None and CLASS_OF[contiguous] != semantics.plans:
        return (
            f"with contiguous={contiguous} states plans {CLASS_OF[contiguous]}, not"
            f" {semantics.label}"
        )
    if has_two_levels(semantics):
        reason = why_not_two_levels(instance)
        if reason is not None:
            return f"does not apply: {reason}"
    if has_replicas(semantics):
        uneven = uneven_class(instance, semantics, symmetry)
        if uneven > MOST_UNEVEN:
            return (
                f"with replicas takes at most {MOST_UNEVEN} equal devices that cannot be swapped"
                f" (links of several bandwidths, or without symmetry=True), not {uneven}"
            )
    return None


def count_rows(instance: Instance, semantics: LoadSemantics, symmetry: bool = False) -> int:
    """Rows that `build` makes at most, those of memory and colocation aside, without building.

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> count_rows(example(), MaxLoad())
    24
    """
    arrays, index, n = instance.arrays, instance.arrays.index, instance.num_ops
    columns = device_columns(instance, semantics, symmetry)
    pays = sum(not arrays.is_host[devices[0]] for devices in columns.devices)
    pins = len(np.unique(index.tensor * n + index.consumer))
    servers = 0
    if has_two_levels(semantics):
        servers = len({device.server for device in instance.cluster.devices})
    parts = 2 if semantics.objective == "max_load_fwd_bwd" else 1
    rows = n + 2 * len(columns) * parts + 2 * pins * (pays + servers) + servers
    if has_replicas(semantics):
        rows += n * len(columns) + instance.num_devices + 3 * len(columns)
    if not has_replicas(semantics):
        groups = min(arrays.num_groups, MOST_EARLIER + 1)
        rows += groups * sum(len(members) - 1 for members in columns.classes)
    regions = len(columns) + servers
    if semantics.plans != "any":
        arcs, forward = len(forward_arcs(instance)), int((~arrays.backward).sum())
        rows += regions * (forward + 2 * arcs)
    if semantics.plans == "chain":
        arcs, size = len(chain_arcs(instance)), instance.num_devices
        rows += 2 * n * regions + arcs * (2 if servers else 1) + 2 * (regions + size)
        if has_replicas(semantics):
            rows += len(alike_pairs(columns)) * size
    return rows


def _inside(model: pyo.ConcreteModel) -> Inside:
    """The variables that are 1 where an op is in a column."""
    return model.x if model.component("stage") is None else model.stage
