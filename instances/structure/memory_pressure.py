"""How much of all memory a graph would fill: what makes devices matter that one would not need."""

from __future__ import annotations

from placegap.instances.problem.instance import Instance


def memory_pressure(instance: Instance) -> float | None:
    """Resident bytes of all ops, divided by the memory of all accelerators; O(n + K).

    Under the memory rule ``peak`` a plan may hold less, so plans exist above 1. Without
    accelerators, the memory of the hosts counts.

    Returns
    -------
    float or None
        None where a device holds any number of bytes.

    Examples
    --------
    >>> from placegap.instances import load_cluster, load_corpus
    >>> pressure = memory_pressure(load_corpus("vgg19").instance(load_cluster("2xT4-pcie")))
    >>> 0 < pressure < 0.1
    True
    """
    devices = instance.cluster.devices
    counted = [spec for spec in devices if not spec.is_host] or list(devices)
    if any(spec.memory_bytes is None for spec in counted):
        return None
    room = sum(spec.memory_bytes or 0 for spec in counted)
    held = sum(instance.arrays.resident_bytes.tolist())
    return held / room if room else None
