"""Memory: what each device holds at most under a plan, by the rule `sum` or the rule `peak`.

``sum``: the resident bytes of all ops of a device, all the time.

``peak``: the *state* of the device's ops (`Op.state_bytes`), shared state once for each name, all
the time; and besides, at every moment, the tensors that are live there and the workspace of the op
that runs there. Of this the largest sum counts.

A tensor is live on a device from the start of the first event there that writes, moves or reads it
to the end of the last such event. The events are

- makespan: ops, and transfers at both of their ends, at the times of the simulated schedule. Spans
  are half open: at one instant, ends free before starts take, and what takes no time at all holds
  nothing of its own.
- max_load, max_load_fwd_bwd: ops alone, one after another, in one order of all ops: topological,
  forward before backward as far as the edges allow (`arrays.derive_memory`). One sample counts: a
  tensor that is sent stays until its producer, and every consumer beside it, has ended; one that is
  received is there from its first consumer on.

Edges out of one op that name the same tensor are one tensor; it is at most once on a device. Each
device of a replicated stage holds all of it. Not counted: copies of what a channel moves, buffers
that an allocator leaves unused, further samples that a pipeline keeps in flight.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Plan, Schedule, Semantics, Violation
from placegap.instances.problem.integers import format_bytes


class Holdings(NamedTuple):
    """What the K devices hold at most, in bytes, and the moment of it: a time in ns, or a step."""

    # `state_bytes` is the part that is always there; under the rule `sum` it is all.
    bytes: Ints
    state_bytes: Ints
    moment: Ints


class Spans(NamedTuple):
    """Bytes that a device holds from `begin` until before `end`; `tensor` -1 for workspace."""

    device: Ints
    tensor: Ints
    begin: Ints
    end: Ints
    bytes: Ints


def held_bytes(
    instance: Instance, plan: Plan, semantics: Semantics, schedule: Schedule | None
) -> Holdings:
    """What each device holds at most; without a schedule, ops are steps."""
    # O((n + m) log(n + m)) for `peak`, O(n) for `sum`.
    on, op = _pairs(plan)
    if semantics.memory_rule == "sum":
        used = np.zeros(instance.num_devices, np.int64)
        np.add.at(used, on, instance.arrays.resident_bytes[op])
        return Holdings(used, used, np.zeros_like(used))
    state = state_of(instance, on, op)
    spans = live_spans(instance, plan, semantics, schedule)
    return fullest(state, spans)


def memory_violations(
    instance: Instance, plan: Plan, semantics: Semantics, schedule: Schedule | None, held: Holdings
) -> Iterator[Violation]:
    """A sentence for each device that holds more than it can."""
    limits = instance.arrays.memory_bytes
    for k in np.flatnonzero(held.bytes > limits).tolist():
        name, limit = instance.cluster.devices[k].name, int(limits[k])
        total = format_bytes(int(held.bytes[k]))
        over = f"{format_bytes(int(held.bytes[k]) - limit)} more than its {format_bytes(limit)}"
        if semantics.memory_rule == "sum":
            largest = _largest(instance, plan, k, instance.arrays.resident_bytes)
            yield Violation(
                "memory",
                f"device {name!r} holds {total}, {over}, from time 0 on; its"
                f" largest op is {largest!r}",
                op=largest,
                device=name,
                time_ns=0,
            )
            continue
        op, doing = _at_peak(instance, plan, semantics, schedule, k, int(held.moment[k]))
        state = int(held.state_bytes[k])
        is_timed = schedule is not None
        at = f" at {int(held.moment[k])} ns" if is_timed else ""
        yield Violation(
            "memory",
            f"device {name!r} holds {total} at its peak, {over}: {format_bytes(state)} of state,"
            f" and {format_bytes(int(held.bytes[k]) - state)} of tensors and workspace {doing}{at}",
            op=op,
            device=name,
            time_ns=int(held.moment[k]) if is_timed else None,
        )


def live_spans(
    instance: Instance, plan: Plan, semantics: Semantics, schedule: Schedule | None
) -> Spans:
    """When which tensor, or workspace, is on which device; spans of no length are left out."""
    sizes, index = instance.memory_arrays, instance.arrays.index
    on, op = _pairs(plan)
    if schedule is None:
        begin, end = sizes.step, sizes.step + 1
    else:
        begin, end = schedule.start_ns, schedule.end_ns
    pointer = np.concatenate([[0], np.cumsum([len(devices) for devices in plan.placement])])
    at_producer = _ranges(pointer, index.tensor_producer)
    at_consumer = _ranges(pointer, index.consumer)
    tensors = [
        np.repeat(np.arange(len(index.tensor_producer)), np.diff(pointer)[index.tensor_producer]),
        np.repeat(index.tensor, np.diff(pointer)[index.consumer]),
    ]
    rows = np.concatenate([at_producer, at_consumer])
    device, first, last = [on[rows]], [begin[op[rows]]], [end[op[rows]]]
    if schedule is not None:
        moves = schedule.transfers
        item = moves.item
        tensor = index.tensor[item] if semantics.per_edge else item
        for side in (moves.source, moves.destination):
            tensors.append(tensor)
            device.append(side)
            first.append(moves.start_ns)
            last.append(moves.end_ns)
    joined = _join(
        np.concatenate(tensors),
        np.concatenate(device),
        np.concatenate(first),
        np.concatenate(last),
        sizes.tensor_bytes,
        instance.num_devices,
    )
    work = Spans(on, np.full(len(op), -1), begin[op], end[op], sizes.workspace_bytes[op])
    both = (np.concatenate(parts) for parts in zip(joined, work, strict=True))
    spans = Spans(*both)
    kept = (spans.begin < spans.end) & (spans.bytes > 0)
    return Spans(*(column[kept] for column in spans))


def _pairs(plan: Plan) -> tuple[Ints, Ints]:
    """Device and op of every pair of the placement, by op."""
    on = np.array([k for devices in plan.placement for k in devices], np.int64)
    return on, np.repeat(np.arange(len(plan.placement)), [len(on) for on in plan.placement])


def _ranges(pointer: Ints, op: Ints) -> Ints:
    """Rows of `_pairs` of each of the given ops, one after another."""
    count = np.diff(pointer)[op]
    if (count == 1).all():
        return np.asarray(pointer[op], np.int64)
    ends = np.cumsum(count)
    within = np.arange(int(ends[-1])) - np.repeat(ends - count, count)
    return np.asarray(within + np.repeat(pointer[op], count), np.int64)


def _join(
    tensor: Ints, device: Ints, first: Ints, last: Ints, tensor_bytes: Ints, num_devices: int
) -> Spans:
    """One span per tensor and device: from the first beginning to the last end."""
    if not len(tensor):
        none = np.zeros(0, np.int64)
        return Spans(none, none, none, none, none)
    key = tensor * num_devices + device
    order = np.argsort(key, kind="stable")
    pair, at = np.unique(key[order], return_index=True)
    tensor, device = np.divmod(pair, num_devices)
    begin = np.minimum.reduceat(first[order], at)
    end = np.maximum.reduceat(last[order], at)
    return Spans(device, tensor, begin, end, tensor_bytes[tensor])


def state_of(instance: Instance, on: Ints, op: Ints) -> Ints:
    """State of each device from its pairs with ops, (K,); shared state once for each name."""
    sizes, num_devices = instance.memory_arrays, instance.num_devices
    state = np.zeros(num_devices, np.int64)
    np.add.at(state, on, sizes.state_bytes[op])
    if len(sizes.shared_op):
        holds = np.zeros((len(sizes.shared_bytes), num_devices), np.bool_)
        names: list[list[int]] = [[] for _ in range(instance.num_ops)]
        for i, name in zip(sizes.shared_op.tolist(), sizes.shared_name.tolist(), strict=True):
            names[i].append(name)
        for k, i in zip(on.tolist(), op.tolist(), strict=True):
            holds[names[i], k] = True
        state += (holds * sizes.shared_bytes[:, None]).sum(axis=0)
    return state


def fullest(state: Ints, spans: Spans) -> Holdings:
    """The state of each device and the largest sum beside it, and the first moment of that."""
    count = len(spans.device)
    device = np.tile(spans.device, 2)
    moment = np.concatenate([spans.begin, spans.end])
    change = np.concatenate([spans.bytes, -spans.bytes])
    starts = np.repeat([1, 0], count)  # ends first
    order = np.lexsort((starts, moment, device))
    level = np.cumsum(change[order])  # back at 0 after each device
    most, when = np.zeros_like(state), np.zeros_like(state)
    at = device[order]
    for k in np.unique(at).tolist():
        lo, hi = np.searchsorted(at, [k, k + 1])
        peak = lo + int(np.argmax(level[lo:hi]))
        most[k], when[k] = level[peak], moment[order[peak]]
    return Holdings(state + most, state, when)


def _largest(instance: Instance, plan: Plan, k: int, size: Ints) -> str:
    on, op = _pairs(plan)
    here = op[on == k]
    return instance.graph.ops[int(here[np.argmax(size[here])])].name


def _at_peak(
    instance: Instance,
    plan: Plan,
    semantics: Semantics,
    schedule: Schedule | None,
    k: int,
    moment: int,
) -> tuple[str, str]:
    """The op that a device runs at a moment, or whose output is there, and that in words."""
    ops = instance.graph.ops
    on, op = _pairs(plan)
    here = op[on == k]
    begin, end = (
        (instance.memory_arrays.step, instance.memory_arrays.step + 1)
        if schedule is None
        else (schedule.start_ns, schedule.end_ns)
    )
    runs = here[(begin[here] <= moment) & (moment < end[here])]
    if len(runs):
        name = ops[runs[0]].name
        return name, f"while {name!r} runs"
    spans = live_spans(instance, plan, semantics, schedule)
    live = np.flatnonzero(
        (spans.device == k) & (spans.begin <= moment) & (moment < spans.end) & (spans.tensor >= 0)
    )
    if not len(live):
        name = _largest(instance, plan, k, instance.memory_arrays.state_bytes)
        return name, f"(its largest op is {name!r})"
    tensor = spans.tensor[live[np.argmax(spans.bytes[live])]]
    name = ops[instance.arrays.index.tensor_producer[tensor]].name
    return name, f"while it holds the output of {name!r}"
