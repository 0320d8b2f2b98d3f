"""The referee of a makespan: the end of one pass, and stated times of a schedule."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placegap.instances.objectives.makespan.simulate import simulate_placed
from placegap.instances.problem import (
    Evaluation,
    Instance,
    Makespan,
    Plan,
    Schedule,
    Times,
    TransferTimes,
    Violation,
)
from placegap.instances.referee.channels import channel_name, channels_of
from placegap.instances.referee.one_pass import evaluate_pass


def evaluate(instance: Instance, plan: Plan, rules: Makespan) -> Evaluation:
    """The end of the last op."""
    foreign = []
    if rules.channels == "free" and plan.channel_order:
        foreign.append(Violation("fields", "channel_order is not defined: channels are free"))
    return evaluate_pass(instance, plan, rules, simulate_placed, foreign)


def check_schedule(
    instance: Instance, schedule: Schedule, semantics: Makespan
) -> tuple[Violation, ...]:
    """Verify the times of a makespan schedule, independently of how they were computed.

    Every op runs after its inputs have arrived, every transfer after its producer, each for its
    full duration; devices and channels serve one at a time.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule
        As `evaluate` or `simulate` return it, in ns.
    semantics : Makespan

    Examples
    --------
    >>> from placegap.instances import Makespan, Plan, evaluate, example
    >>> found = evaluate(example(), Plan.on([0, 1, 0, 0]), Makespan())
    >>> check_schedule(example(), found.schedule, Makespan())
    ()
    """
    return (
        *_transfers_cover_edges(instance, schedule, semantics),
        *_durations(instance, schedule, semantics),
        *_exclusive(instance, schedule, semantics),
    )


def check_times(
    instance: Instance, plan: Plan, semantics: Makespan, times: Times
) -> tuple[Violation, ...]:
    """Verify the times that are stated for a makespan plan, whatever clock they are from."""
    # As `check_schedule`; and no transfer is there that no op waits for.
    device, index = plan.devices, instance.arrays.index
    moves = sorted(times.transfers)
    item = np.array([move.item for move in moves], np.int64)
    target = np.array([move.destination for move in moves], np.int64)
    tensor = index.tensor[item] if semantics.transfers == "per_edge" else item
    producer = index.tensor_producer[tensor]
    spans = np.array([times.transfers[move] for move in moves], np.int64).reshape(-1, 2)
    table = TransferTimes(item, producer, device[producer], target, spans[:, 0], spans[:, 1])
    ops = np.array(times.ops, np.int64)
    schedule = Schedule(device, ops[:, 0], ops[:, 1], table)
    return (
        *check_schedule(instance, schedule, semantics),
        *_needless_transfers(instance, schedule, semantics),
    )


def _needless_transfers(
    instance: Instance, schedule: Schedule, semantics: Makespan
) -> Iterator[Violation]:
    index, device, table = instance.arrays.index, schedule.device, schedule.transfers
    item = index.tensor if semantics.transfers == "per_tensor" else np.arange(len(index.tensor))
    remote = device[index.producer] != device[index.consumer]
    needed = set(zip(item[remote].tolist(), device[index.consumer[remote]].tolist(), strict=True))
    rows = zip(
        table.item.tolist(), table.destination.tolist(), table.producer.tolist(), strict=True
    )
    for move, target, producer in rows:
        if (move, target) not in needed:
            name = instance.graph.ops[producer].name
            where = instance.cluster.devices[target].name
            yield Violation(
                "transfer", f"nothing on {where!r} waits for the output of {name!r}", op=name
            )


def _transfers_cover_edges(
    instance: Instance, schedule: Schedule, semantics: Makespan
) -> Iterator[Violation]:
    index, ops = instance.arrays.index, instance.graph.ops
    table = schedule.transfers
    arrival = {
        (item, destination): end
        for item, destination, end in zip(
            table.item.tolist(), table.destination.tolist(), table.end_ns.tolist(), strict=True
        )
    }
    for e in range(len(index.producer)):
        a, b = int(index.producer[e]), int(index.consumer[e])
        start = int(schedule.start_ns[b])
        where = int(schedule.device[b])
        if schedule.device[a] == where:
            ready: int | None = int(schedule.end_ns[a])
        else:
            item = e if semantics.transfers == "per_edge" else int(index.tensor[e])
            ready = arrival.get((item, where))
        name = instance.cluster.devices[where].name
        if ready is None:
            yield Violation(
                "transfer",
                f"{ops[b].name!r} never receives the output of {ops[a].name!r}",
                op=ops[b].name,
                device=name,
                time_ns=start,
            )
        elif start < ready:
            yield Violation(
                "precedence",
                f"op {ops[b].name!r} starts at {start} ns, before its input from {ops[a].name!r}"
                f" is there at {ready} ns",
                op=ops[b].name,
                device=name,
                time_ns=start,
            )


def _durations(instance: Instance, schedule: Schedule, semantics: Makespan) -> Iterator[Violation]:
    arrays, ops, devices = instance.arrays, instance.graph.ops, instance.cluster.devices
    for i, op in enumerate(ops):
        k, start = int(schedule.device[i]), int(schedule.start_ns[i])
        if start < 0 or schedule.end_ns[i] - start != arrays.time_ns[i, k]:
            yield Violation(
                "duration",
                f"op {op.name!r} does not run for its time from {start} ns on",
                op=op.name,
                device=devices[k].name,
                time_ns=start,
            )
    table = schedule.transfers
    for row in range(len(table.item)):
        item, a, b = int(table.item[row]), int(table.source[row]), int(table.destination[row])
        tensor = int(arrays.index.tensor[item]) if semantics.transfers == "per_edge" else item
        producer, start = int(arrays.index.tensor_producer[tensor]), int(table.start_ns[row])
        needed = int(arrays.transfer_ns[tensor, arrays.link_class[a, b]])
        if a != schedule.device[producer] or start < schedule.end_ns[producer]:
            yield Violation(
                "transfer",
                f"the output of {ops[producer].name!r} is sent before it is there",
                op=ops[producer].name,
                device=devices[a].name,
                time_ns=start,
            )
        if table.end_ns[row] - start != needed:
            yield Violation(
                "duration",
                f"the transfer of {ops[producer].name!r} does not take {needed} ns",
                op=ops[producer].name,
                device=devices[b].name,
                time_ns=start,
            )


def _exclusive(instance: Instance, schedule: Schedule, semantics: Makespan) -> Iterator[Violation]:
    ops, devices = instance.graph.ops, instance.cluster.devices
    uses: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for i in range(instance.num_ops):
        row = (int(schedule.start_ns[i]), int(schedule.end_ns[i]), i)
        uses.setdefault(("device", int(schedule.device[i])), []).append(row)
    table = schedule.transfers
    for row_number in range(len(table.item)):
        pair = int(table.source[row_number]), int(table.destination[row_number])
        row = (
            int(table.start_ns[row_number]),
            int(table.end_ns[row_number]),
            int(table.producer[row_number]),
        )
        for channel in channels_of(semantics.channels, instance.num_devices, *pair):
            if channel >= 0:
                uses.setdefault(("channel", channel), []).append(row)
    for (what, number), rows in uses.items():
        rows.sort()
        latest = rows[0]
        for row in rows[1:]:
            if row[0] < latest[1]:
                name = (
                    devices[number].name
                    if what == "device"
                    else channel_name(semantics.channels, instance.cluster, number)
                )
                yield Violation(
                    f"{what}_overlap",
                    f"{what} '{name}' serves {ops[latest[2]].name!r} and {ops[row[2]].name!r} at"
                    f" once at {row[0]} ns",
                    op=ops[row[2]].name,
                    device=name if what == "device" else None,
                    time_ns=row[0],
                )
            latest = max(latest, row, key=lambda r: r[1])
