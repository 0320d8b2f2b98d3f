"""max_load: what each device does per sample of a full pipeline (Tarnawski et al.).

Two levels of communication, between the devices of a server and between servers, are placegap's
own rule. A tensor that crosses a device's border costs the device its time within the
server; one that crosses a server's border costs the server its time between servers, once per
tensor and direction like anything else. A pipeline is as slow as its heaviest device or server.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.graph_index import GraphIndex
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import ServerUse
from placegap.instances.problem.semantics import LoadRule, Semantics, has_two_levels
from placegap.instances.reading.errors import InputError


def device_loads(
    instance: Instance,
    device: Ints,
    *,
    cost_ns: Ints | None = None,
    backward: bool | None = None,
) -> tuple[Ints, Ints, Ints]:
    """Compute, incoming and outgoing communication of every device, (K,) each, in ns.

    A tensor that leaves a device, or enters it, costs host_time(tensor, device) there, once
    however many consumers it has on the other side. Hosts pay no communication. O(n + m log m).

    Parameters
    ----------
    instance : Instance
    device : (n,) int64
        Device of each op, each able to run it.
    cost_ns : (t, K) int64, optional
        What a tensor costs at a device's border, in place of host_time.
    backward : bool, optional
        Count only backward (True) or forward (False) ops and the tensors that they produce: a
        forward tensor belongs to the forward load also where only backward ops read it
        (Tarnawski et al., Appendix C).

    Examples
    --------
    >>> from placegap.instances import example
    >>> [part.tolist() for part in device_loads(example(), np.array([0, 0, 1, 0]))]
    [[33, 10], [10, 20], [20, 10]]
    """
    arrays = instance.arrays
    index = arrays.index
    time_ns = arrays.time_ns[np.arange(len(device)), device]
    cost = arrays.host_ns if cost_ns is None else cost_ns
    cost = np.where(arrays.is_host, 0, cost)
    if backward is not None:
        time_ns = np.where(arrays.backward == backward, time_ns, 0)
        counted = arrays.backward[index.tensor_producer] == backward
        cost = np.where(counted[:, None], cost, 0)
    compute = np.zeros(instance.num_devices, np.int64)
    np.add.at(compute, device, time_ns)
    return compute, *crossing_costs(index, device, cost)


def crossing_costs(index: GraphIndex, region: Ints, cost_ns: Ints) -> tuple[Ints, Ints]:
    """What enters and what leaves each region, (R,) each, in ns: every tensor once per region.

    Parameters
    ----------
    index : GraphIndex
    region : (n,) int64
        Region (device, server) of each op.
    cost_ns : (t, R) int64
        What it costs a region that a tensor crosses its border.
    """
    num_regions = cost_ns.shape[1]
    incoming, outgoing = np.zeros(num_regions, np.int64), np.zeros(num_regions, np.int64)
    remote = np.flatnonzero(region[index.producer] != region[index.consumer])
    leaving = np.unique(index.tensor[remote])
    source = region[index.tensor_producer[leaving]]
    np.add.at(outgoing, source, cost_ns[leaving, source])
    entering, target = np.divmod(
        np.unique(index.tensor[remote] * num_regions + region[index.consumer[remote]]), num_regions
    )
    np.add.at(incoming, target, cost_ns[entering, target])
    return incoming, outgoing


def combine(rule: LoadRule, compute: Ints, incoming: Ints, outgoing: Ints) -> Ints:
    """Load of every device: the sum, or the larger of compute and communication.

    Examples
    --------
    >>> parts = np.array([33, 10]), np.array([10, 20]), np.array([20, 10])
    >>> combine("add", *parts).tolist(), combine("overlap", *parts).tolist()
    ([63, 40], [33, 30])
    """
    communication = incoming + outgoing
    return compute + communication if rule == "add" else np.maximum(compute, communication)


def check_semantics(instance: Instance, semantics: Semantics) -> None:
    """Raise an InputError where an instance lacks what a semantics needs.

    With ``levels=2`` every device names its server, and, where there are several servers, every
    tensor has a time between them: links or transfer_ns, not a host time alone.

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> two_levels = MaxLoad(levels=2)
    >>> check_semantics(example(), two_levels)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    placegap.instances.reading.errors.InputError: fd-dps-figure-3: ...
    """
    if has_two_levels(semantics):
        reason = why_not_two_levels(instance)
        if reason is not None:
            raise InputError(reason, instance.name)


def why_not_two_levels(instance: Instance) -> str | None:
    """What an instance lacks for two levels of communication, or None."""
    for device in instance.cluster.devices:
        if device.server is None:
            return f"two levels need the server of every device; {device.name!r} names none"
    if len(server_numbers(instance)[0]) > 1:
        for edge in instance.graph.edges:
            if edge.host_time_ns is not None and edge.transfer_ns is None:
                return (
                    f"the edge '{edge.producer} -> {edge.consumer}' has only a host time, which"
                    " does not say what it takes between servers; state its bytes or transfer_ns"
                )
    return None


def server_numbers(instance: Instance) -> tuple[tuple[str, ...], Ints]:
    """Names of the V servers, in the order of their first devices, and the server of each device.

    Every device must name its server (`check_semantics`).
    """
    number: dict[str, int] = {}
    servers = [device.server or "" for device in instance.cluster.devices]
    of_device = np.array([number.setdefault(name, len(number)) for name in servers], np.int64)
    return tuple(number), of_device


def border_costs(instance: Instance, semantics: Semantics) -> Ints:
    """What each tensor costs at each device's border, (t, K), in ns; hosts do not pay it.

    host_time(tensor, device); with two levels the explicit host time, else the least transfer time
    between the device and any other of its server, over both directions, and 0 for a device that
    is alone in its server.
    """
    arrays = instance.arrays
    if not has_two_levels(semantics):
        return arrays.host_ns
    _, server = server_numbers(instance)
    cost = np.zeros_like(arrays.host_ns)
    for k in range(instance.num_devices):
        cost[:, k] = _least_time(instance, server == server[k], np.arange(len(server)) == k)
    for u, first in enumerate(arrays.index.tensor_first_edge.tolist()):
        stated = instance.graph.edges[first].host_time_ns
        if stated is not None:
            cost[u] = stated
    return cost


def server_costs(instance: Instance) -> Ints:
    """What each tensor costs at each server's border, (t, V), in ns.

    The least transfer time between a device of the server and one outside, over both directions.
    """
    names, server = server_numbers(instance)
    every = np.ones(len(server), np.bool_)
    columns = [_least_time(instance, every, server == v) for v in range(len(names))]
    return np.column_stack(columns)


def server_uses(instance: Instance, device: Ints) -> tuple[ServerUse, ...]:
    """Load of every server: the tensors that leave or enter it.

    Parameters
    ----------
    instance : Instance
    device : (n,) int64
        Device of each op.
    """
    names, server = server_numbers(instance)
    index = instance.arrays.index
    incoming, outgoing = crossing_costs(index, server[device], server_costs(instance))
    load = (incoming + outgoing).tolist()
    return tuple(ServerUse(*row) for row in zip(names, load, strict=True))


def _least_time(instance: Instance, among: Flags, inside: Flags) -> Ints:
    """Least transfer time of each tensor, (t,), between `inside` and the rest of `among`."""
    arrays = instance.arrays
    here, there = np.flatnonzero(among & inside), np.flatnonzero(among & ~inside)
    pairs = arrays.link_class[np.ix_(here, there)], arrays.link_class[np.ix_(there, here)]
    classes = np.unique(np.concatenate([part.ravel() for part in pairs]))
    if len(classes) == 0:
        return np.zeros(len(arrays.transfer_ns), np.int64)
    return np.asarray(arrays.transfer_ns[:, classes].min(axis=1), np.int64)
