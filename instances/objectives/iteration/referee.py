"""The clock of pipeline_iteration: every event of one iteration, in the order of its schedule.

Event (step, microbatch) is the work of one stage on one microbatch in one pass; the steps of a
microbatch are forward through stages 0, 1, .., S - 1, then backward through S - 1, .., 0.

- A device runs its events one at a time in the order of the schedule (`device_orders`). Under
  ``zero_bubble`` the weight event of a stage is the part of its backward step that is made of
  `weight_gradient` ops; nothing waits for it but the device's next event. What those ops read has
  come with the backward event.
- A microbatch goes through its steps one after another, also where no tensor leads on.
- A tensor goes to each other device that reads it, once for each microbatch, for the first step
  there that reads it. ``blocking``: both devices do it, as under max_load: host_time(tensor,
  device) is added to the step that makes the tensor, once, and to the step that first reads it;
  hosts do not pay. ``overlap``: the link from device to device does it beside all work. All that
  one event sends to another step is one message, which takes the sum of its tensors' transfer
  times. Each ordered pair of devices carries one message at a time, in the order in which their
  sender makes them (to the earliest step first). What takes no time is no message.
- Ops that are marked `update` run once: a device does those of its stages after its last event.
- Gradients of a weight that stages share are exchanged after all that (`Arrays.exchanged`), and not
  counted.

The value is the end of the last event.

Memory: a device holds the resident bytes of its ops, which are those of one microbatch, and for
each further microbatch that one of its stages has begun forward and not ended backward that stage's
*stash*: the tensors that the stage's forward ops make or read, and its backward ops read. How many
microbatches these are follows from the schedule alone: m for ``gpipe``, min(m, S - s) for stage s
of S of ``1f1b``. Under ``zero_bubble`` a microbatch whose backward event is over and whose weight
event is not leaves what that reads: tensors of the forward pass, and gradients. Not counted: what
has arrived and waits for its event, and what is being sent.

Under the rule `peak` it is state in place of resident bytes, and what the stage at work needs at
the fullest moment of its own passage of one microbatch: tensors, and the workspace of the op that
runs. Its ops are the events, one after another, in the order of max_load's steps, forward before
backward before weight gradients; a tensor is there from the first to the last of them that writes
or reads it. Other stages of the device keep a stash of the microbatch. So one microbatch in stages
of their own devices needs what it needs under max_load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.objectives.iteration.checks import check_iteration
from placegap.instances.objectives.iteration.stages import (
    Event,
    PlanStages,
    device_orders,
    held_beside,
    plan_stages,
)
from placegap.instances.problem import Evaluation, Instance, PipelineIteration, Plan, Violation
from placegap.instances.problem.integers import format_bytes
from placegap.instances.reading.errors import paused_collector
from placegap.instances.referee.loads import combine, device_loads, device_uses
from placegap.instances.referee.memory import Holdings, Spans, fullest, state_of
from placegap.instances.referee.rules import PlanError, check_shape, colocation, foreign_fields


class EventSpan(NamedTuple):
    """When a device runs an event."""

    event: Event
    start_ns: int
    end_ns: int


class MessageSpan(NamedTuple):
    """When the tensors of one event are on their way to another one, on another device."""

    sender: Event
    receiver: Event
    start_ns: int
    end_ns: int


@dataclass(frozen=True, eq=False)
class Iteration:
    """One iteration: its stages, the events of each used device, and the messages."""

    # `events` are in the order of the devices' first stages.
    stages: PlanStages
    events: tuple[tuple[EventSpan, ...], ...]
    messages: tuple[MessageSpan, ...]

    @property
    def value_ns(self) -> int:
        """End of the last event."""
        return max(spans[-1].end_ns for spans in self.events)


def simulate_iteration(instance: Instance, plan: Plan, semantics: PipelineIteration) -> Iteration:
    """When every event and every message of one iteration begins and ends.

    Memory and colocation do not matter. O(n + t K) for t tensors, and O(m S) events for m
    microbatches and S stages.

    Examples
    --------
    Work of 25 and 18 ns in two stages, and messages of 21 ns on the link between them. The second
    stage begins at 25 + 21 ns, and does two microbatches:

    >>> from placegap.instances import example
    >>> plan = Plan.on([0, 0, 1, 1])
    >>> simulate_iteration(example(), plan, PipelineIteration(microbatches=2)).value_ns
    89
    """
    stages = plan_stages(instance, plan, semantics)
    duration, weight, update, messages = _costs(instance, plan.devices, stages, semantics)
    orders = device_orders(semantics, stages.num_devices, trains=stages.trains)
    count = stages.num_stages
    sent: list[list[MessageSpan]] = [[] for _ in range(stages.num_devices)]
    events: list[list[EventSpan]] = [[] for _ in orders]
    ended: dict[Event, int] = {}
    ready: dict[Event, int] = {}  # when the messages to an event have come
    waiting = dict[Event, int]()  # messages that have not
    free: dict[tuple[int, int], int] = {}
    receivers: dict[int, int] = {}
    targets: list[list[int]] = [[] for _ in range(stages.num_steps)]
    for step, target in sorted(messages):
        receivers[target] = receivers.get(target, 0) + 1
        targets[step].append(target)

    def step_of(event: Event) -> int:
        return 2 * count - 1 - event.stage if event.backward else event.stage

    def event_of(step: int, microbatch: int) -> Event:
        backward = step >= count
        return Event(backward, 2 * count - 1 - step if backward else step, microbatch)

    moved = True
    while moved:
        moved = False
        for q, order in enumerate(orders):
            while len(events[q]) < len(order):
                event = order[len(events[q])]
                if event.weight:  # its backward event came earlier on this device
                    start = events[q][-1].end_ns
                    events[q].append(EventSpan(event, start, start + int(weight[event.stage])))
                    moved = True
                    continue
                step = step_of(event)
                before = None if step == 0 else event_of(step - 1, event.microbatch)
                missing = waiting.get(event, receivers.get(step, 0))
                if missing or (before is not None and before not in ended):
                    break
                start = max(
                    events[q][-1].end_ns if events[q] else 0,
                    0 if before is None else ended[before],
                    ready.get(event, 0),
                )
                end = start + int(duration[step])
                events[q].append(EventSpan(event, start, end))
                ended[event], moved = end, True
                for target in targets[step]:
                    receiver = event_of(target, event.microbatch)
                    channel = q, receiver.stage % stages.num_devices
                    begin = max(end, free.get(channel, 0))
                    free[channel] = begin + messages[step, target]
                    sent[q].append(MessageSpan(event, receiver, begin, free[channel]))
                    ready[receiver] = max(ready.get(receiver, 0), free[channel])
                    waiting[receiver] = waiting.get(receiver, receivers[target]) - 1
    for q, spans in enumerate(events):
        for s in range(q, count, stages.num_devices):
            if update[s]:
                event = Event(True, s, semantics.microbatches - 1, update=True)
                start = spans[-1].end_ns
                spans.append(EventSpan(event, start, start + int(update[s])))
    return Iteration(
        stages, tuple(map(tuple, events)), tuple(message for each in sent for message in each)
    )


def _costs(
    instance: Instance, device: Ints, stages: PlanStages, semantics: PipelineIteration
) -> tuple[Ints, Ints, Ints, dict[tuple[int, int], int]]:
    """Time of each step on a microbatch, of weight events, of updates, and of messages."""
    arrays, index, step = instance.arrays, instance.arrays.index, stages.step
    duration = np.zeros(stages.num_steps, np.int64)
    weight, update = np.zeros((2, stages.num_stages), np.int64)
    own_ns, once = arrays.time_ns[np.arange(len(step)), device], arrays.update
    apart = arrays.weight_gradient & ~once & (semantics.schedule == "zero_bubble")
    for total, place, ops in (
        (duration, step, ~apart & ~once),
        (weight, stages.stage, apart),
        (update, stages.stage, once),
    ):
        np.add.at(total, place[ops], own_ns[ops])
    messages: dict[tuple[int, int], int] = {}
    sent = ~instance.arrays.exchanged
    for u, producer in enumerate(index.tensor_producer.tolist()):
        edges = index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
        edges = edges[sent[edges]]
        home, first = int(device[producer]), dict[int, int]()
        for i in index.consumer[edges].tolist():
            k = int(device[i])
            if k != home:
                first[k] = min(first.get(k, stages.num_steps), int(step[i]))
        if semantics.sending == "blocking":
            paying = [(k, at) for k, at in first.items() if not arrays.is_host[k]]
            if first and not arrays.is_host[home]:
                paying.append((home, int(step[producer])))
            for k, at in paying:
                duration[at] += arrays.host_ns[u, k]
            continue
        for k, at in first.items():
            time_ns = int(arrays.transfer_ns[u, arrays.link_class[home, k]])
            if time_ns:
                pair = int(step[producer]), at
                messages[pair] = messages.get(pair, 0) + time_ns
    return duration, weight, update, messages


def stash_bytes(instance: Instance, stages: PlanStages) -> Ints:
    """What each stage keeps from its forward to its backward work on a microbatch, (S,)."""
    arrays, index = instance.arrays, instance.arrays.index
    backward, count = arrays.backward, stages.num_stages
    stage = stages.stage
    kept = np.zeros(count, np.int64)
    for u, producer in enumerate(index.tensor_producer.tolist()):
        readers = index.consumer[index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]]
        touched = np.append(readers, producer)
        begun = set(stage[touched[~backward[touched]]].tolist())
        ended = set(stage[readers[backward[readers]]].tolist())
        for s in sorted(begun & ended):
            kept[s] += instance.memory_arrays.tensor_bytes[u]
    return kept


def kept_bytes(instance: Instance, stages: PlanStages) -> Ints:
    """What each stage keeps from its backward to its weight event on a microbatch, (S,)."""
    # The tensors that its weight gradients read and do not make.
    arrays, index, count = instance.arrays, instance.arrays.index, stages.num_stages
    kept, stays = np.zeros(count, np.int64), ~instance.arrays.exchanged
    for u, producer in enumerate(index.tensor_producer.tolist()):
        edges = index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
        readers = index.consumer[edges[stays[edges]]]
        readers = readers[arrays.weight_gradient[readers]]
        if not arrays.weight_gradient[producer]:
            held = np.unique(2 * count - 1 - stages.step[readers])
            kept[held] += instance.memory_arrays.tensor_bytes[u]
    return kept


def iteration_holdings(
    instance: Instance, plan: Plan, stages: PlanStages, semantics: PipelineIteration
) -> Holdings:
    """What each device holds at most, (K,)."""
    stash, kept = stash_bytes(instance, stages).tolist(), kept_bytes(instance, stages).tolist()
    alone = alone_bytes(instance, plan, stages, semantics)
    held = [int(each) for each in alone]
    for order in device_orders(semantics, stages.num_devices, trains=stages.trains):
        for s, pairs in held_beside(order).items() if stages.trains else ():
            most = max(begun * stash[s] + waiting * kept[s] for begun, waiting in pairs)
            held[int(stages.device[s])] += most
    state = alone
    if semantics.memory == "peak":
        state = state_of(instance, plan.devices, np.arange(instance.num_ops))
    return Holdings(np.array(held, np.int64), state, np.zeros_like(state))


def alone_bytes(
    instance: Instance, plan: Plan, stages: PlanStages, semantics: PipelineIteration
) -> Ints:
    """What each device holds while one microbatch alone passes, (K,)."""
    # The resident bytes of its ops; or state, and what the stage at work needs beside what the
    # others keep.
    held = np.zeros(instance.num_devices, np.int64)
    if semantics.memory == "sum":
        np.add.at(held, plan.devices, instance.arrays.resident_bytes)
        return held
    stash, work = stash_bytes(instance, stages), working_bytes(instance, stages, semantics)
    np.maximum.at(held, stages.device, work - stash)
    np.add.at(held, stages.device, stash)
    return held + state_of(instance, plan.devices, np.arange(instance.num_ops))


def working_bytes(instance: Instance, stages: PlanStages, semantics: PipelineIteration) -> Ints:
    """What is live at the fullest moment of each stage's passage of one microbatch, (S,)."""
    arrays, index, sizes = instance.arrays, instance.arrays.index, instance.memory_arrays
    stage = stages.stage
    late = arrays.weight_gradient & (semantics.schedule == "zero_bubble")
    place = np.empty(instance.num_ops, np.int64)
    place[np.lexsort((sizes.step, late, arrays.backward))] = np.arange(instance.num_ops)
    rows = []
    for u, producer in enumerate(index.tensor_producer.tolist()):
        readers = index.consumer[index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]]
        touched = np.append(readers, producer)
        for s in np.unique(stage[touched]).tolist():
            own = place[touched[stage[touched] == s]]
            rows.append((s, u, own.min(), own.max() + 1, sizes.tensor_bytes[u]))
    work = np.column_stack(
        [stage, np.full(instance.num_ops, -1), place, place + 1, sizes.workspace_bytes]
    )
    table = np.concatenate([np.array(rows, np.int64).reshape(-1, 5), work])
    return fullest(np.zeros(stages.num_stages, np.int64), Spans(*table.T)).bytes


def in_flight_violations(
    instance: Instance, held: Holdings, semantics: PipelineIteration
) -> list[Violation]:
    """A sentence for each device that holds more than it can."""
    own, rest = "of its ops", "of further microbatches in flight"
    if semantics.memory == "peak":
        own, rest = "of state", "of tensors and workspace of the microbatches in flight"
    found = []
    for k in np.flatnonzero(held.bytes > instance.arrays.memory_bytes).tolist():
        name, limit = instance.cluster.devices[k].name, int(instance.arrays.memory_bytes[k])
        total, state = int(held.bytes[k]), int(held.state_bytes[k])
        found.append(
            Violation(
                "memory",
                f"device {name!r} holds {format_bytes(total)}, {format_bytes(total - limit)} more"
                f" than its {format_bytes(limit)}: {format_bytes(state)} {own}, and"
                f" {format_bytes(total - state)} {rest}",
                device=name,
            )
        )
    return found


def evaluate(instance: Instance, plan: Plan, semantics: PipelineIteration) -> Evaluation:
    """The end of an iteration; loads of devices are those of one microbatch, without updates."""
    check_iteration(instance, semantics)
    device = check_shape(instance, plan)
    # its stages are a chain, or it cannot run
    placed = tuple(colocation(instance, device, pooled=False))
    foreign = tuple(foreign_fields(plan, semantics))
    if foreign:
        return Evaluation(None, (*foreign, *placed))
    try:
        with paused_collector():
            iteration = simulate_iteration(instance, plan, semantics)
            held = iteration_holdings(instance, plan, iteration.stages, semantics)
    except PlanError as error:
        return Evaluation(None, (*placed, Violation("order", str(error))))
    parts = device_loads(instance, plan.devices)
    late = np.flatnonzero(instance.arrays.update)
    on = plan.devices[late]
    np.subtract.at(parts[0], on, instance.arrays.time_ns[late, on])
    load = combine("add", *parts)
    uses = device_uses(instance, plan, parts, load, held.bytes.tolist())
    full = in_flight_violations(instance, held, semantics)
    return Evaluation(iteration.value_ns, (*full, *placed), uses)
