"""What loads need of an instance: servers, where there are two levels."""

from __future__ import annotations

from placegap.instances.objectives.max_load.rules import Loads
from placegap.instances.problem import Instance
from placegap.instances.reading.errors import InputError


def check(instance: Instance, rules: Loads) -> None:
    """Raise an InputError where two levels have no servers, or no times between these.

    With ``levels=2`` every device names its server, and, where there are several servers, every
    tensor has a time between them: links or transfer_ns, not a host time alone.
    """
    reason = why_not_two_levels(instance) if rules.has_two_levels else None
    if reason is not None:
        raise InputError(reason, instance.name)


def why_not_two_levels(instance: Instance) -> str | None:
    """What an instance lacks for two levels of communication, or None."""
    for device in instance.cluster.devices:
        if device.server is None:
            return f"two levels need the server of every device; {device.name!r} has none"
    if len(instance.cluster.server_numbers[0]) > 1:
        for edge in instance.graph.edges:
            if edge.host_time_ns is not None and edge.transfer_ns is None:
                return (
                    f"the edge '{edge.producer} -> {edge.consumer}' has only a host time, which"
                    " gives no time between servers; state its bytes or transfer_ns"
                )
    return None
