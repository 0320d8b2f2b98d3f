"""Two levels of communication: between the devices of a server, and between servers.

placegap's own rule. A tensor that crosses a device's border costs the device its time within the
server; one that crosses a server's border costs the server its time between servers, once per
tensor and direction like anything else. A pipeline is as slow as its heaviest device or server.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import ServerUse
from placegap.instances.problem.semantics import Semantics, has_two_levels
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.loads import crossing_costs


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
