"""Replicated stages: r equal devices take turns with the samples of one stage.

placegap's own rule, after PipeDream (Narayanan et al., SOSP 2019): each device of the stage has

    ceil(load / r) + ceil(2 (r - 1) parameter_bytes / (r bandwidth))

to do per sample, its share of the load that one device alone would have, and an all-reduce of the
weights over the narrowest path between two of the devices; and it holds all bytes of the stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NS_PER_S, ceil_div
from placegap.instances.problem.links import widest_paths
from placegap.instances.problem.plan import Plan, Violation
from placegap.instances.problem.semantics import Semantics, has_two_levels
from placegap.instances.referee.loads import border_costs

Paths = Mapping[tuple[int, int], tuple[int, int]]
"""Bandwidth (bytes/s) and latency (ns) of ordered device pairs (`paths.widest_paths`)."""


def equal_devices(instance: Instance, semantics: Semantics) -> tuple[int, ...]:
    """Class of each device, numbered by first member; a stage may share devices of one class.

    Devices are equal if they have the same op times and memory, are both hosts or both not, pay
    the same for every tensor at their border (hosts pay nothing), and, with two levels of
    communication, are in the same server. O(n K + t K).

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> equal_devices(example(), MaxLoad(replicas=True))
    (0, 0)
    """
    arrays = instance.arrays
    cost = np.where(arrays.is_host, 0, border_costs(instance, semantics))
    number: dict[object, int] = {}
    keys = []
    for k, device in enumerate(instance.cluster.devices):
        server = device.server if has_two_levels(semantics) else None
        columns = arrays.time_ns[:, k].tobytes(), cost[:, k].tobytes()
        keys.append((device.memory_bytes, device.is_host, server, *columns))
    return tuple(number.setdefault(key, len(number)) for key in keys)


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
    kind, paths = equal_devices(instance, semantics), widest_paths(instance.cluster)
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
        if heavy and narrowest_bandwidth(paths, devices) is None:
            op = instance.graph.ops[heavy[0]].name
            yield Violation(
                "replicas",
                f"op {op!r} has parameters, and the links lead not from each of"
                f" {_list(names, devices)} to each: their sum cannot be formed",
                op=op,
                device=names[devices[0]],
            )


def share_load(instance: Instance, plan: Plan, load: Ints) -> Ints:
    """Load of every device, (K,), from that of each stage as if its first device ran it alone.

    Parameters
    ----------
    instance : Instance
    plan : Plan
        Without violations of `check_replicas`.
    load : (K,) int64
        Load of each stage at its first device.
    """
    shared = load.copy()
    if _is_single(plan):
        return shared
    stages = {devices: ops for devices, ops in _stages(plan).items() if len(devices) > 1}
    if not stages:
        return shared
    paths = widest_paths(instance.cluster)
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


def _list(names: list[str], devices: tuple[int, ...]) -> str:
    return ", ".join(repr(names[k]) for k in devices)
