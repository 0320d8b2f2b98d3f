"""In which order each device of a pipeline runs its events, by schedule.

An event is the forward or the backward work of one stage on one microbatch. With p devices and v
stages on each, stage s is on device s mod p, and is chunk s // p of its device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from placegap.instances.problem.semantics import PipelineIteration


class Event(NamedTuple):
    """The work of a stage on a microbatch, in one of the two passes."""

    backward: bool
    stage: int
    microbatch: int


def device_orders(
    semantics: PipelineIteration, num_devices: int, *, trains: bool
) -> list[list[Event]]:
    """The events of each device, in the order in which it runs them.

    - ``gpipe``: all microbatches forward, then all of them backward (Huang et al. 2019).
    - ``1f1b``: device q of p starts with min(m, p - 1 - q) forward events; then one forward and
      one backward event in turns, then the rest (PipeDream-Flush, Narayanan et al. 2021).
    - ``interleaved``: as Megatron-LM (Narayanan et al. 2021, section 2.2). Microbatches go in
      groups of p: a group goes forward through the first chunk, then through the next; and backward
      through the last chunk first. A device starts with min(m v, (v - 1) p + 2 (p - 1 - q)) forward
      events. m must be a multiple of p: with smaller groups, devices may wait for each other.

    Parameters
    ----------
    semantics : PipelineIteration
    num_devices : int
        Devices that have stages.
    trains : bool
        Without backward ops all schedules are the forward part of their order.

    Examples
    --------
    Three microbatches on two devices, written as pass and number of the microbatch:

    >>> orders = device_orders(PipelineIteration(microbatches=3), 2, trains=True)
    >>> ["".join("FB"[e.backward] + str(e.microbatch) for e in order) for order in orders]
    ['F0F1B0F2B1B2', 'F0B0F1B1F2B2']
    """
    count, chunks = semantics.microbatches, semantics.stages_per_device
    orders = []
    for q in range(num_devices):
        forward = list(_one_pass(count, chunks, num_devices, q, backward=False))
        backward = list(_one_pass(count, chunks, num_devices, q, backward=True)) if trains else []
        first = len(forward)
        if semantics.schedule == "1f1b":
            first = min(count, num_devices - 1 - q)
        elif semantics.schedule == "interleaved":
            first = min(first, (chunks - 1) * num_devices + 2 * (num_devices - 1 - q))
        orders.append(_in_turns(forward, backward, first))
    return orders


def _one_pass(
    count: int, chunks: int, num_devices: int, q: int, *, backward: bool
) -> Iterator[Event]:
    group = num_devices if chunks > 1 else count  # one chunk: microbatches one after another
    for begin in range(0, count, group):
        for c in reversed(range(chunks)) if backward else range(chunks):
            for microbatch in range(begin, min(begin + group, count)):
                yield Event(backward, c * num_devices + q, microbatch)


def _in_turns(forward: list[Event], backward: list[Event], first: int) -> list[Event]:
    """The first forward events, then one forward and one backward event in turns."""
    order, rest = forward[:first], forward[first:]
    for at in range(max(len(rest), len(backward))):
        order += rest[at : at + 1] + backward[at : at + 1]
    return order


def most_in_flight(order: list[Event]) -> dict[int, int]:
    """Most microbatches that each stage of a device has begun forward and not ended backward.

    Examples
    --------
    >>> orders = device_orders(PipelineIteration(microbatches=8), 4, trains=True)
    >>> [most_in_flight(order) for order in orders]
    [{0: 4}, {1: 3}, {2: 2}, {3: 1}]
    """
    now: dict[int, int] = {}
    most: dict[int, int] = {}
    for event in order:
        now[event.stage] = now.get(event.stage, 0) + (-1 if event.backward else 1)
        most[event.stage] = max(most.get(event.stage, 0), now[event.stage])
    return most
