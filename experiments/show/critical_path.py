"""Why a plan takes so long: the chain of ops and transfers that ends last, or the heaviest load.

Under makespan, latency_subgraphs and pipeline_iteration, each thing begins at 0 or at the very
moment when another one ends: what it needs, or what ran before it in its place. So a chain of such
ends leads from the last end back to 0 without a pause, and its lengths add up to the value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Literal, NamedTuple

from placegap.instances.objectives.iteration.referee import simulate_iteration
from placegap.instances.objectives.iteration.stages import Event
from placegap.instances.problem import (
    AllLoads,
    Evaluation,
    Instance,
    LatencySubgraphs,
    Makespan,
    PipelineIteration,
    Plan,
    Schedule,
    Semantics,
)
from placegap.instances.referee.channels import NO_CHANNEL, channels_of

Reason = Literal["start", "data", "turn"]


class PathPart(NamedTuple):
    """A part of the chain: an op, a call, an event or a transfer, on a device.

    `why` says what it waited for: nothing (it began at 0), its data, or its turn on the device or
    channel. `target` is where a transfer goes, -1 for other parts; `bytes` are those of a transfer.
    """

    name: str
    device: int
    start_ns: int
    end_ns: int
    why: Reason
    op: int = -1
    target: int = -1
    bytes: int = 0


def critical_path(
    instance: Instance, plan: Plan, semantics: Semantics, verdict: Evaluation
) -> tuple[PathPart, ...]:
    """The chain in order; empty under max_load, where the heaviest device is the reason."""
    if isinstance(semantics, AllLoads) or verdict.value_ns is None:
        return ()
    if isinstance(semantics, PipelineIteration):
        return _of_iteration(instance, plan, semantics)
    assert verdict.schedule is not None
    if isinstance(semantics, LatencySubgraphs):
        return _of_calls(instance, plan, verdict.schedule)
    return _of_pass(instance, verdict.schedule, semantics)


def _walk(
    things: dict[Hashable, PathPart], waits: Callable[[Hashable], Iterable[tuple[Hashable, Reason]]]
) -> tuple[PathPart, ...]:
    """Back from the last end, over what ended when each thing began, to time 0."""
    last = max(things, key=lambda key: (things[key].end_ns, things[key].start_ns), default=None)
    if last is None:
        return ()
    seen, path = {last}, [last]
    tried = [iter(waits(last))]
    why: dict[Hashable, Reason] = {}
    while path:
        here = path[-1]
        if things[here].start_ns == 0:
            break
        for before, reason in tried[-1]:
            if before in seen or things[before].end_ns != things[here].start_ns:
                continue
            seen.add(before)
            path.append(before)
            why[here] = reason
            tried.append(iter(waits(before)))
            break
        else:  # things without length may lead nowhere
            path.pop()
            tried.pop()
    return tuple(things[key]._replace(why=why.get(key, "start")) for key in reversed(path))


def _of_pass(instance: Instance, schedule: Schedule, semantics: Semantics) -> tuple[PathPart, ...]:
    assert isinstance(semantics, Makespan)
    index, graph, n = instance.arrays.index, instance.graph, instance.num_ops
    device = schedule.device.tolist()
    things: dict[Hashable, PathPart] = {}
    ending: dict[tuple[int, int], list[int]] = {}  # ops by device and end
    for i, (start, end) in enumerate(
        zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True)
    ):
        things[i] = PathPart(graph.ops[i].name, device[i], start, end, "start", i)
        ending.setdefault((device[i], end), []).append(i)
    moved = schedule.transfers
    per_edge = semantics.transfers == "per_edge"
    producer, channel_end = moved.producer.tolist(), dict[tuple[int, int], list[int]]()
    carrier: dict[tuple[int, int], int] = {}
    channels = []
    columns = (moved.item, moved.source, moved.destination, moved.start_ns, moved.end_ns)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for row, (item, a, b, start, end) in enumerate(rows):
        edge = graph.edges[item if per_edge else index.tensor_first_edge[item]]
        name = graph.ops[producer[row]].name + (f" to {edge.consumer}" if per_edge else "")
        things[n + row] = PathPart(name, a, start, end, "start", producer[row], b, edge.bytes)
        carrier[item, b] = row
        used = channels_of(semantics.channels, instance.num_devices, a, b)
        channels.append([c for c in used if c != NO_CHANNEL])
        for channel in channels[-1]:
            channel_end.setdefault((channel, end), []).append(row)

    def waits(key: Hashable) -> Iterable[tuple[Hashable, Reason]]:
        assert isinstance(key, int)
        start = things[key].start_ns
        if key >= n:
            yield producer[key - n], "data"
            for channel in channels[key - n]:
                for row in channel_end.get((channel, start), ()):
                    yield n + row, "turn"
            return
        for e in index.pred_edge[index.pred_ptr[key] : index.pred_ptr[key + 1]].tolist():
            before = int(index.producer[e])
            if device[before] == device[key]:
                yield before, "data"
            else:
                item = e if per_edge else int(index.tensor[e])
                yield n + carrier[item, device[key]], "data"
        for other in ending.get((device[key], start), ()):
            yield other, "turn"

    return _walk(things, waits)


def _of_calls(instance: Instance, plan: Plan, schedule: Schedule) -> tuple[PathPart, ...]:
    index, graph = instance.arrays.index, instance.graph
    device, is_host = schedule.device.tolist(), instance.arrays.is_host.tolist()
    call = (0,) * instance.num_ops if plan.call is None else plan.call
    unit: list[Hashable] = [("op", i) if is_host[k] else (k, call[i]) for i, k in enumerate(device)]
    things: dict[Hashable, PathPart] = {}
    feeds: dict[Hashable, list[Hashable]] = {}
    size: dict[Hashable, int] = {}
    for i, key in enumerate(unit):
        start, end = int(schedule.start_ns[i]), int(schedule.end_ns[i])
        size[key] = size.get(key, 0) + 1
        name = graph.ops[i].name if size[key] == 1 else f"call {call[i]} ({size[key]} ops)"
        things[key] = PathPart(name, device[i], start, end, "start", i)
    for e, consumer in enumerate(index.consumer.tolist()):
        a, b = unit[int(index.producer[e])], unit[consumer]
        if a != b:
            feeds.setdefault(b, []).append(a)

    def waits(key: Hashable) -> Iterable[tuple[Hashable, Reason]]:
        for before in dict.fromkeys(feeds.get(key, ())):
            yield before, "data"
        for other, link in things.items():
            if link.device == things[key].device and not is_host[link.device]:
                yield other, "turn"

    return _walk(things, waits)


def _of_iteration(
    instance: Instance, plan: Plan, semantics: PipelineIteration
) -> tuple[PathPart, ...]:
    run = simulate_iteration(instance, plan, semantics)
    home, count = run.stages.device.tolist(), run.stages.num_stages
    things: dict[Hashable, PathPart] = {}
    previous: dict[Hashable, Hashable] = {}
    arriving: dict[Hashable, list[Hashable]] = {}
    on_channel: dict[tuple[int, int, int], list[Hashable]] = {}
    for spans in run.events:
        for at, (event, start, end) in enumerate(spans):
            name = f"{event.part} of stage {event.stage}{event.turn}"
            things[event] = PathPart(name, home[event.stage], start, end, "start")
            if at:
                previous[event] = spans[at - 1].event
    for number, (sender, receiver, start, end) in enumerate(run.messages):
        a, b = home[sender.stage], home[receiver.stage]
        name = f"microbatch {sender.microbatch} to stage {receiver.stage}"
        things[number] = PathPart(name, a, start, end, "start", -1, b)
        arriving.setdefault(receiver, []).append(number)
        on_channel.setdefault((a, b, end), []).append(number)

    def waits(key: Hashable) -> Iterable[tuple[Hashable, Reason]]:
        if isinstance(key, int):
            yield run.messages[key].sender, "data"
            link = things[key]
            for other in on_channel.get((link.device, link.target, link.start_ns), ()):
                yield other, "turn"
            return
        for number in arriving.get(key, ()):
            yield number, "data"
        assert isinstance(key, Event)
        if key.weight or key.update:
            yield key._replace(weight=False, update=False), "data"
        elif key.backward:
            last = key.stage == count - 1
            yield Event(not last, key.stage + (not last), key.microbatch), "data"
        elif key.stage:
            yield Event(False, key.stage - 1, key.microbatch), "data"
        if key in previous:
            yield previous[key], "turn"

    return _walk(things, waits)
