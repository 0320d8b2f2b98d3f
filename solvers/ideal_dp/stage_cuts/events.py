"""The events of an iteration as a table, its clock as a kernel, and its longest paths.

Messages lead from step to step alone here; the referee's clock (`referee.pipeline.iteration`) knows
those that skip a step, too. So the kernel's value is a bound on the referee's, and the same where
no tensor skips a stage and each device has one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.referee.stages import device_orders

Times = NDArray[Any]
"""Integers, or floating-point numbers."""


class EventTable(NamedTuple):
    """The events of an iteration, each after those that it waits for.

    Attributes
    ----------
    step : (n,) int64
        Place of an event's work in the passage of its microbatch; 2 S + s for the weight event of
        stage s of S.
    on_device, of_microbatch, on_link : (n,) int64
        The event before on the same device; that of the step before; the one whose message from
        the step before comes just before this one's; -1 where there is none.
    num_steps : int
    """

    step: Ints
    on_device: Ints
    of_microbatch: Ints
    on_link: Ints
    num_steps: int


def event_table(semantics: PipelineIteration, num_devices: int, *, trains: bool) -> EventTable:
    """The events of a schedule on so many devices.

    Examples
    --------
    >>> event_table(PipelineIteration(microbatches=2), 1, trains=True).step.tolist()
    [0, 1, 0, 1]
    """
    orders = device_orders(semantics, num_devices, trains=trains)
    stages = num_devices * semantics.stages_per_device
    splits = trains and semantics.schedule == "zero_bubble"
    steps = stages * (3 if splits else 2 if trains else 1)
    number = dict[tuple[int, int], int]()
    rows: list[tuple[int, int, int, int]] = []
    latest, done = [-1] * num_devices, [0] * num_devices
    moved = True
    while moved:
        moved = False
        for q, order in enumerate(orders):
            while done[q] < len(order):
                event = order[done[q]]
                if event.weight:
                    rows.append((2 * stages + event.stage, latest[q], -1, -1))
                    latest[q], done[q], moved = len(rows) - 1, done[q] + 1, True
                    continue
                step = 2 * stages - 1 - event.stage if event.backward else event.stage
                before = number.get((step - 1, event.microbatch), -1)
                if step and before < 0:
                    break
                line = number.get((step, event.microbatch - 1), -1)
                stays = step == 0 or num_devices == 1 or (trains and step == stages)
                rows.append((step, latest[q], before, -1 if stays else line))
                number[step, event.microbatch] = latest[q] = len(rows) - 1
                done[q], moved = done[q] + 1, True
    table = np.ascontiguousarray(np.array(rows, np.int64).T)
    return EventTable(table[0], table[1], table[2], table[3], steps)


@kernel
def _clock(
    step: Ints, on_device: Ints, of_microbatch: Ints, on_link: Ints, times: Times, num_steps: int
) -> tuple[Times, Times]:
    """End of every event, and of the message that comes to it."""
    end, arrival = np.zeros(len(step), times.dtype), np.zeros(len(step), times.dtype)
    for e in range(len(step)):
        ready = times[0] * 0
        if of_microbatch[e] >= 0:
            ready = end[of_microbatch[e]]
            if on_link[e] >= 0 and arrival[on_link[e]] > ready:
                ready = arrival[on_link[e]]
            ready += times[num_steps + step[e]]
        arrival[e] = ready
        if on_device[e] >= 0 and end[on_device[e]] > ready:
            ready = end[on_device[e]]
        end[e] = ready + times[step[e]]
    return end, arrival


def iteration_time(table: EventTable, times: Ints) -> int:
    """End of the last event.

    Parameters
    ----------
    table : EventTable
    times : (2 E,) int64
        Time of each of E steps, and then of the message into each step.

    Examples
    --------
    Two microbatches on one device, 2 ns forward and 3 ns backward each:

    >>> table = event_table(PipelineIteration(microbatches=2), 1, trains=True)
    >>> iteration_time(table, np.array([2, 3, 0, 0]))
    10
    """
    return int(iteration_kernel(*table[:4], times, table.num_steps))


@kernel
def iteration_kernel(
    step: Ints, on_device: Ints, of_microbatch: Ints, on_link: Ints, times: Ints, num_steps: int
) -> int:
    """As `iteration_time`, for kernels."""
    end, _ = _clock(step, on_device, of_microbatch, on_link, times, num_steps)
    return int(end.max())


def longest_path(table: EventTable, times: Times) -> Ints:
    """How often a longest path goes through each step and each message, (2 E,).

    The sum of its counts times any times is a bound on the iteration with those times.
    """
    return _trace(*table[:4], times, table.num_steps)


@kernel
def _trace(
    step: Ints, on_device: Ints, of_microbatch: Ints, on_link: Ints, times: Times, num_steps: int
) -> Ints:
    end, arrival = _clock(step, on_device, of_microbatch, on_link, times, num_steps)
    count = np.zeros(2 * num_steps, np.int64)
    e, in_message = int(np.argmax(end)), False
    while e >= 0:
        if not in_message:
            count[step[e]] += 1
            before = on_device[e]
            if before >= 0 and end[before] >= arrival[e]:
                e = before
            elif of_microbatch[e] >= 0:
                in_message = True
            else:
                e = -1
        else:
            count[num_steps + step[e]] += 1
            line = on_link[e]
            if line >= 0 and arrival[line] > end[of_microbatch[e]]:
                e = line
            else:
                e, in_message = of_microbatch[e], False
    return count
