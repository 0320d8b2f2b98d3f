"""What hybrid_pipeline needs of an instance, and why no tensor degree suits."""

from __future__ import annotations

from collections import Counter
from math import gcd

from placegap.instances.problem import HybridPipeline, Instance
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.reading.errors import InputError


def check_hybrid(instance: Instance, semantics: HybridPipeline) -> None:
    """Raise an InputError where an instance has no hybrid plans: one line, with the mend."""
    first, *others = instance.cluster.devices
    for device in others:
        if (device.kind, device.memory_bytes) != (first.kind, first.memory_bytes):
            raise InputError(
                f"{semantics.objective} needs equal devices, but {first.name!r} and"
                f" {device.name!r} differ in kind or memory; leave one kind out of the cluster",
                instance.cluster.source,
            )
        if (device.server is None) != (first.server is None):
            raise InputError(
                f"device {device.name!r}: some devices name a server and some do not; name the"
                " servers of all",
                instance.cluster.source,
            )
    total = 0
    for op in instance.graph.ops:
        if op.backward:
            raise InputError(
                f"op {op.name!r} is backward, but {semantics.objective} needs layers whose modes"
                " contain both passes; state modes of whole layers",
                instance.name,
            )
        for mode in op.ways:
            if first.kind not in mode.time_ns:
                raise InputError(
                    f"op {op.name!r}: mode {mode.name!r} for tensor {mode.tensor} has no time on"
                    f" {first.kind!r}; add one to its time_ns",
                    instance.name,
                )
        total += max(
            mode.time_ns[first.kind] + mode.held_bytes + mode.state_bytes + mode.parameter_bytes
            for mode in op.ways
        )
    if total * semantics.microbatches > LARGEST_SUM:
        raise InputError(
            f"{semantics.microbatches} microbatches take more than 2**62 ns or bytes; use fewer",
            instance.name,
        )


def why_nothing_fits(instance: Instance, semantics: HybridPipeline) -> str | None:
    """Why no tensor degree suits an op, or one all ops, with the mend; None where some does."""
    sizes = Counter(device.server for device in instance.cluster.devices)
    servers = [size for name, size in sizes.items() if name is not None]
    whole = gcd(*servers)  # 0, which every t divides, where there are none
    common: set[int] | None = None
    for op in instance.graph.ops:
        own = {mode.tensor for mode in op.ways}
        held = {t for t in own if t <= instance.num_devices and whole % t == 0}
        stated = ", ".join(map(str, sorted(own)))
        if not held:
            where = f"servers of {min(servers)}" if servers else f"{instance.num_devices} in all"
            return (
                f"op {op.name!r} has modes for {stated} devices, and there are {where}: a group of"
                " t lies in one server, and t divides its devices; add a mode for fewer"
            )
        common = held if common is None else common & held
        if not common and semantics.degrees != "free":
            return (
                f"op {op.name!r} has modes for {stated} devices, but no such degree is shared with"
                " all ops before it; add modes, or --degrees free"
            )
    return None
