"""max_load: what each device does per sample of a full pipeline (Tarnawski et al.).

Two levels of communication, between the devices of a server and between servers, are placegap's own
rule. A tensor that crosses a device's border costs the device its time within the server; one that
crosses a server's border costs the server its time between servers, once per tensor and direction
like anything else. A pipeline is as slow as its heaviest device or server.

In a replicated stage r equal devices take turns with the samples. By placegap's own rule, after
PipeDream (Narayanan et al., SOSP 2019), each device of the stage has

    ceil(load / r) + ceil(2 (r - 1) parameter_bytes / (r bandwidth))

to do per sample, its share of the load that one device alone would have, and an all-reduce of the
weights over the narrowest path between two of the devices; and it holds all bytes of the stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import (
    DeviceUse,
    Instance,
    LoadRule,
    Plan,
    Semantics,
    ServerUse,
    Violation,
)
from placegap.instances.problem.device_classes import equal_columns
from placegap.instances.problem.graph_index import GraphIndex
from placegap.instances.problem.integers import LARGEST_SUM, NS_PER_S, ceil_div


def device_loads(
    instance: Instance, device: Ints, *, cost_ns: Ints | None = None, backward: bool | None = None
) -> tuple[Ints, Ints, Ints]:
    """Compute, incoming and outgoing communication of every device, (K,) each, in ns.

    A tensor that leaves a device, or enters it, costs host_time(tensor, device) there, once however
    many consumers it has on the other side. Hosts pay no communication. O(n + m log m). `cost_ns`
    (t, K) takes the place of host_time. With `backward`, only backward (True) or forward (False)
    ops count, and the tensors that they produce: a forward tensor belongs to the forward load also
    where only backward ops read it (Tarnawski et al., Appendix C).

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
    """What enters and what leaves each region, (R,) each, in ns: every tensor once per region."""
    # `cost_ns` (t, R) is what a region pays for a tensor across its border.
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


def border_costs(instance: Instance, semantics: Semantics) -> Ints:
    """What each tensor costs at each device's border, (t, K), in ns; hosts do not pay it."""
    # host_time(tensor, device); with two levels the explicit host time, else the least transfer
    # time between the device and any other of its server, over both directions, and 0 for a device
    # that is alone in its server.
    arrays = instance.arrays
    if not semantics.has_two_levels:
        return arrays.host_ns
    _, server = instance.cluster.server_numbers
    cost = np.zeros_like(arrays.host_ns)
    for k in range(instance.num_devices):
        cost[:, k] = _least_time(instance, server == server[k], np.arange(len(server)) == k)
    for u, first in enumerate(arrays.index.tensor_first_edge.tolist()):
        stated = instance.graph.edges[first].host_time_ns
        if stated is not None:
            cost[u] = stated
    return cost


def server_costs(instance: Instance) -> Ints:
    """What each tensor costs at each server's border, (t, V), in ns."""
    # The least transfer time between a device of the server and one outside, over both directions.
    names, server = instance.cluster.server_numbers
    every = np.ones(len(server), np.bool_)
    columns = [_least_time(instance, every, server == v) for v in range(len(names))]
    return np.column_stack(columns)


def server_uses(instance: Instance, device: Ints) -> tuple[ServerUse, ...]:
    """Load of every server: the tensors that leave or enter it."""
    names, server = instance.cluster.server_numbers
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


LONGEST_SYNC = LARGEST_SUM // 2  # beside half of the largest load it is within 2**62
# Bandwidth (bytes/s) and latency (ns) of ordered device pairs (`Cluster.widest_paths`).
Paths = Mapping[tuple[int, int], tuple[int, int]]


def equal_devices(instance: Instance, semantics: Semantics) -> tuple[int, ...]:
    """Class of each device, numbered by first member; a stage may share devices of one class."""
    # Devices are equal if they have the same op times and memory, are both hosts or both not, pay
    # the same for every tensor at their border (hosts pay nothing), and, with two levels of
    # communication, are in the same server. O(n K + t K).
    arrays = instance.arrays
    cost = np.where(arrays.is_host, 0, border_costs(instance, semantics))
    server = instance.cluster.server_numbers[1] * semantics.has_two_levels
    own = arrays.time_ns, cost, arrays.memory_bytes, arrays.is_host, server
    return tuple(equal_columns(*own).tolist())


def narrowest_bandwidth(paths: Paths, devices: tuple[int, ...]) -> int | None:
    """Least bandwidth over the ordered pairs of some devices; None where a pair has no path."""
    pairs = [(a, b) for a in devices for b in devices if a != b]
    if any(pair not in paths for pair in pairs):
        return None
    return min((paths[pair][0] for pair in pairs), default=None)


def sync_ns(parameter_bytes: int, replicas: int, bandwidth_bytes_per_s: int) -> int:
    """Time per sample of the all-reduce of a stage's weights.

    Examples
    --------
    >>> sync_ns(9, 3, 10**9)  # 2 * 2 * 9 bytes over 3 * 1 byte/ns
    12
    """
    return ceil_div(
        2 * (replicas - 1) * parameter_bytes * NS_PER_S, replicas * bandwidth_bytes_per_s
    )


def check_replicas(instance: Instance, plan: Plan, semantics: Semantics) -> Iterator[Violation]:
    """Stages that share a device, devices of a stage that differ or that no path joins."""
    names = [device.name for device in instance.cluster.devices]
    stages = _stages(plan)
    owner: dict[int, tuple[int, ...]] = {}
    for devices in stages:
        for k in devices:
            other = owner.setdefault(k, devices)
            if other != devices:
                op, there = (instance.graph.ops[stages[at][0]].name for at in (devices, other))
                yield Violation(
                    "replicas",
                    f"device {names[k]!r} belongs to the stage of op {op!r} on"
                    f" {_list(names, devices)} and to that of {there!r} on {_list(names, other)}",
                    op=op,
                    device=names[k],
                )
    shared = {devices: ops for devices, ops in stages.items() if len(devices) > 1}
    if not shared:
        return
    kind, paths = equal_devices(instance, semantics), instance.cluster.widest_paths
    for devices, ops in shared.items():
        op = instance.graph.ops[ops[0]].name
        odd = [k for k in devices if kind[k] != kind[devices[0]]]
        if odd:
            yield Violation(
                "replicas",
                f"op {op!r} is on {_list(names, devices)}, but {names[odd[0]]!r} is not equal to"
                f" {names[devices[0]]!r}",
                op=op,
                device=names[odd[0]],
            )
        heavy = [i for i in ops if instance.graph.ops[i].parameter_bytes]
        reason = _why_no_sync(instance, heavy, devices, paths)
        if reason is not None:
            op = instance.graph.ops[heavy[0]].name
            yield Violation(
                "replicas",
                f"op {op!r} has parameters, and {reason}",
                op=op,
                device=names[devices[0]],
            )


def _why_no_sync(
    instance: Instance, heavy: list[int], devices: tuple[int, ...], paths: Paths
) -> str | None:
    """Why the weights of some ops cannot be summed over some devices, or None."""
    if not heavy:
        return None
    names = _list([device.name for device in instance.cluster.devices], devices)
    bandwidth = narrowest_bandwidth(paths, devices)
    if bandwidth is None:
        return f"the links lead not from each of {names} to each: their sum cannot be formed"
    weights = sum(instance.graph.ops[i].parameter_bytes for i in heavy)
    time_ns = sync_ns(weights, len(devices), bandwidth)
    if time_ns <= LONGEST_SYNC:
        return None
    return (
        f"their sum takes {time_ns} ns per sample over {names} at {bandwidth} bytes/s, above 2**61;"
        " correct the bandwidth, or give the stage one device"
    )


def _list(names: list[str], devices: tuple[int, ...]) -> str:
    return ", ".join(repr(names[k]) for k in devices)


def share_load(instance: Instance, plan: Plan, load: Ints) -> Ints:
    """Load of every device, from that of each stage as if its first device ran it alone."""
    # The plan has no violations of `check_replicas`.
    shared = load.copy()
    if _is_single(plan):
        return shared
    stages = {devices: ops for devices, ops in _stages(plan).items() if len(devices) > 1}
    if not stages:
        return shared
    paths = instance.cluster.widest_paths
    for devices, ops in stages.items():
        r = len(devices)
        parameters = sum(instance.graph.ops[i].parameter_bytes for i in ops)
        bandwidth = narrowest_bandwidth(paths, devices)
        sync = 0 if bandwidth is None else sync_ns(parameters, r, bandwidth)
        shared[list(devices)] = ceil_div(int(load[devices[0]]), r) + sync
    return shared


def share_part(plan: Plan, part: Ints) -> Ints:
    """A part of the load (compute, what comes in, ...) shared alike, rounded up; (K,)."""
    shared = part.copy()
    if _is_single(plan):
        return shared
    for devices in _stages(plan):
        shared[list(devices)] = ceil_div(int(part[devices[0]]), len(devices))
    return shared


def _is_single(plan: Plan) -> bool:
    """Whether every op is on one device: no stage has replicas."""
    return max(map(len, plan.placement), default=1) == 1


def _stages(plan: Plan) -> dict[tuple[int, ...], list[int]]:
    """Ops of each stage, by its devices."""
    stages: dict[tuple[int, ...], list[int]] = {}
    for i, devices in enumerate(plan.placement):
        stages.setdefault(devices, []).append(i)
    return stages


def device_uses(
    instance: Instance, plan: Plan, parts: tuple[Ints, ...], load: Ints, memory: Sequence[int]
) -> tuple[DeviceUse, ...]:
    """What each device does."""
    on = np.array([k for devices in plan.placement for k in devices], np.int64)
    count = np.bincount(on, minlength=instance.num_devices)
    columns = [column.tolist() for column in (count, *(share_part(plan, part) for part in parts))]
    rows = zip(*columns, memory, load.tolist(), strict=True)
    specs = instance.cluster.devices
    return tuple(DeviceUse(spec.name, *row) for spec, row in zip(specs, rows, strict=True))
