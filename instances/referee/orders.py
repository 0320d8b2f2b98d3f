"""Turn the times that a solver found into the orders of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan, Transfer
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.channels import NO_CHANNEL, channels_of


def plan_from_times(
    instance: Instance,
    semantics: Makespan,
    device: Sequence[int],
    op_times: Sequence[tuple[int, int]],
    transfer_times: Iterable[tuple[Transfer, int, int]],
) -> Plan:
    """A plan whose orders are those of the given times.

    Orders are read by (start, end, topological position): a zero-time item still has its place.

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
