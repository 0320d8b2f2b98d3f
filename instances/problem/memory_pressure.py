"""How tight memory is: its pressure, and instances with devices of less of it."""

from __future__ import annotations

from fractions import Fraction

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import times_written


def memory_pressure(instance: Instance) -> float | None:
    """Resident bytes of all ops, divided by the memory of all accelerators; O(n + K)."""
    # Under the memory rule ``peak`` a plan may hold less, so plans exist above 1. Without
    # accelerators, the memory of the hosts counts. None where a device holds any number of bytes.
    devices = instance.cluster.devices
    counted = [spec for spec in devices if not spec.is_host] or list(devices)
    if any(spec.memory_bytes is None for spec in counted):
        return None
    room = sum(spec.memory_bytes or 0 for spec in counted)
    held = sum(instance.arrays.resident_bytes.tolist())
    return held / room if room else None


PRESSURE = ", memory "  # behind a cluster's own name, before the share that each device holds


def with_device_memory(instance: Instance, share: float) -> Instance:
    """The instance where every device holds `share` of all bytes that the ops hold together."""
    # It is rounded down to the byte; nothing is known of the new instance's values.
    held = times_written(share, sum(instance.arrays.resident_bytes.tolist()))
    before = instance.cluster
    devices = tuple(device.model_copy(update={"memory_bytes": held}) for device in before.devices)
    name = f"{before.name}{PRESSURE}{float(100 * Fraction(str(share))):g}%"
    cluster = before.model_copy(update={"devices": devices, "name": name})
    renamed = instance.name
    if renamed.endswith(f"@{before.name}"):
        renamed = f"{renamed.removesuffix(before.name)}{name}"
    update = {"name": renamed, "cluster": cluster, "best_known": ()}
    return instance.model_copy(update=update)
