"""Which channels a transfer occupies, by number, and the orders of a plan from times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from placegap.instances.problem import Channels, Cluster, Instance, Makespan, Plan, Transfer

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


def plan_from_times(
    instance: Instance,
    semantics: Makespan,
    device: Sequence[int],
    op_times: Sequence[tuple[int, int]],
    transfer_times: Iterable[tuple[Transfer, int, int]],
) -> Plan:
    """A plan whose orders are those of the given times.

    Orders follow (start, end, topological position), which also orders zero-time items.

    Parameters
    ----------
    instance, semantics
        What the times belong to.
    device : (n,) ints
        Device of each op.
    op_times : (n,) pairs
        Start and end of each op; only their order matters, so any unit will do.
    transfer_times : iterable of (Transfer, start, end)
        The remote transfers.

    Examples
    --------
    >>> from placegap.instances import example
    >>> semantics = Makespan(channels="free")
    >>> times = [(0, 5), (5, 25), (25, 35), (35, 43)]
    >>> plan_from_times(example(), semantics, [0] * 4, times, []).device_order
    ((0, 1, 2, 3), ())
    """
    index = instance.arrays.index
    position = index.topological_position.tolist()
    on_device: list[list[int]] = [[] for _ in range(instance.num_devices)]
    for i in sorted(range(instance.num_ops), key=lambda i: (*op_times[i], position[i])):
        on_device[int(device[i])].append(i)
    rows = []
    for transfer, start, end in transfer_times:
        edge = (
            transfer.item
            if semantics.transfers == "per_edge"
            else int(index.tensor_first_edge[transfer.item])
        )
        producer = int(index.producer[edge])
        rows.append((start, end, position[producer], transfer, int(device[producer])))
    on_channel: dict[int, list[Transfer]] = {}
    for _, _, _, transfer, source in sorted(rows):
        for channel in channels_of(
            semantics.channels, instance.num_devices, source, transfer.destination
        ):
            if channel != NO_CHANNEL:
                on_channel.setdefault(channel, []).append(transfer)
    return Plan(
        tuple((int(k),) for k in device),
        tuple(tuple(order) for order in on_device),
        {channel: tuple(order) for channel, order in sorted(on_channel.items())} or None,
    )
