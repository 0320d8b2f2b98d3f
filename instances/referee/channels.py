"""Which channels a transfer occupies, by number, under each channel model."""

from __future__ import annotations

from placegap.instances.problem.instance import Cluster
from placegap.instances.problem.semantics import Channels

NO_CHANNEL = -1


def channels_of(channels: Channels, num_devices: int, source: int, target: int) -> tuple[int, int]:
    """The (at most two) channels that a transfer from source to target holds at once.

    ``link`` numbers the ordered pair; ``port`` numbers the sender's output k and the receiver's
    input K + k; ``half_duplex`` numbers the devices.

    Examples
    --------
    >>> channels_of("port", 4, 1, 2), channels_of("link", 4, 1, 2), channels_of("free", 4, 1, 2)
    ((1, 6), (6, -1), (-1, -1))
    """
    match channels:
        case "free":
            return NO_CHANNEL, NO_CHANNEL
        case "link":
            return source * num_devices + target, NO_CHANNEL
        case "port":
            return source, num_devices + target
        case "half_duplex":
            return source, target


def num_channels(channels: Channels, num_devices: int) -> int:
    """How many channels there are."""
    return {
        "free": 0,
        "link": num_devices * num_devices,
        "port": 2 * num_devices,
        "half_duplex": num_devices,
    }[channels]


def channel_name(channels: Channels, cluster: Cluster, channel: int) -> str:
    """Name of a channel for messages and files: "a -> b", "out of a", "into a" or "port of a"."""
    names = [device.name for device in cluster.devices]
    if channels == "link":
        return f"{names[channel // len(names)]} -> {names[channel % len(names)]}"
    if channels == "port":
        side = "out of" if channel < len(names) else "into"
        return f"{side} {names[channel % len(names)]}"
    return f"port of {names[channel]}"
