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
- Gradients of a weight that stages share are exchanged after all that (`exchanged_edges`), and not
  counted.

The value is the end of the last event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.gradients import exchanged_edges
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import MAX_EVENTS
from placegap.instances.referee.stages import Event, PlanStages, device_orders, plan_stages


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
    """One iteration: its stages, the events of each used device, and the messages.

    `events` are in the order of the devices' first stages.
    """

    stages: PlanStages
    events: tuple[tuple[EventSpan, ...], ...]
    messages: tuple[MessageSpan, ...]

    @property
    def value_ns(self) -> int:
        """End of the last event."""
        return max(spans[-1].end_ns for spans in self.events)


def check_iteration(instance: Instance, semantics: PipelineIteration) -> None:
    """Raise an InputError where times or bytes of so many microbatches overflow, or where they have
    too many events.
    """
    arrays, splits = instance.arrays, semantics.schedule == "zero_bubble"
    if splits:
        _check_split(instance)
    passes = 2 + splits if arrays.backward.any() else 1
    stages = min(instance.num_devices * semantics.stages_per_device, arrays.num_groups)
    MAX_EVENTS.check(
        passes * stages * semantics.microbatches,
        f"an iteration of {semantics.microbatches} microbatches in {stages} stages",
        instance.name,
    )
    moves = sum(arrays.transfer_ns.max(axis=1, initial=0).tolist())
    moves += sum(arrays.host_ns.max(axis=1, initial=0).tolist())
    time_ns = sum(arrays.time_ns.max(axis=1).tolist()) + instance.num_devices * moves
    held = 2 * sum(instance.memory_arrays.tensor_bytes.tolist()) * instance.num_devices
    held += sum(arrays.resident_bytes.tolist())
    if semantics.memory == "peak":
        sizes = instance.memory_arrays
        held += sum(sizes.workspace_bytes.tolist()) + sum(sizes.state_bytes.tolist())
        held += sum(sizes.shared_bytes.tolist()) * instance.num_devices
    for total, what in ((time_ns, "take {} ns"), (held, "hold {} bytes")):
        if total * semantics.microbatches > LARGEST_SUM:
            most = what.format(total * semantics.microbatches)
            raise InputError(
                f"{semantics.microbatches} microbatches may {most}, above 2**62; ask for fewer",
                instance.name,
            )


def _check_split(instance: Instance) -> None:
    """Raise an InputError where the weight gradients of a training step are not told apart."""
    arrays, index, ops = instance.arrays, instance.arrays.index, instance.graph.ops
    if not arrays.backward.any():
        return
    if not arrays.weight_gradient.any():
        raise InputError(
            "zero_bubble: no backward op is marked weight_gradient, as those that only updates of"
            " weights wait for must be; mark them (placegap convert MODEL OUT --weight-gradients),"
            " or choose --schedule 1f1b",
            instance.name,
        )
    wrong = arrays.weight_gradient[index.producer] & ~arrays.weight_gradient[index.consumer]
    if wrong.any():
        at = int(np.argmax(wrong))
        a, b = (ops[int(ends[at])].name for ends in (index.producer, index.consumer))
        raise InputError(
            f"zero_bubble: op {a!r} is marked weight_gradient and feeds {b!r}, which is not; mark"
            f" both, or {a!r} not",
            instance.name,
        )


def simulate_iteration(instance: Instance, plan: Plan, semantics: PipelineIteration) -> Iteration:
    """When every event and every message of one iteration begins and ends.

    Parameters
    ----------
    instance : Instance
    plan : Plan
        One device per op, which runs it; memory and colocation do not matter here.
    semantics : PipelineIteration

    Raises
    ------
    PlanError
        If the plan has no stages (`plan_stages`).

    Notes
    -----
    O(n + t K) for t tensors, and O(m S) events for m microbatches and S stages.

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
    duration, weight, messages = _costs(instance, plan.devices, stages, semantics)
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
    return Iteration(
        stages, tuple(map(tuple, events)), tuple(message for each in sent for message in each)
    )


def _costs(
    instance: Instance, device: Ints, stages: PlanStages, semantics: PipelineIteration
) -> tuple[Ints, Ints, dict[tuple[int, int], int]]:
    """Time of each step on a microbatch, of weight events, and of messages from step to step."""
    arrays, index, step = instance.arrays, instance.arrays.index, stages.step
    duration, weight = np.zeros(stages.num_steps, np.int64), np.zeros(stages.num_stages, np.int64)
    own_ns = arrays.time_ns[np.arange(len(step)), device]
    apart = arrays.weight_gradient & (semantics.schedule == "zero_bubble")
    np.add.at(duration, step[~apart], own_ns[~apart])
    np.add.at(weight, 2 * stages.num_stages - 1 - step[apart], own_ns[apart])
    messages: dict[tuple[int, int], int] = {}
    sent = ~exchanged_edges(instance)
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
    return duration, weight, messages
