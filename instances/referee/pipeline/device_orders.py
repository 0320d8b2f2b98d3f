"""In which order each device of a pipeline runs its events, by schedule.

An event is the forward or the backward work of one stage on one microbatch; under ``zero_bubble``
the backward work that gradients of weights alone depend on is an event of its own. With p devices
and v stages on each, stage s is on device s mod p, and is chunk s // p of its device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from placegap.instances.problem.semantics import PipelineIteration


class Event(NamedTuple):
    """The work of a stage on a microbatch, in one of the two passes.

    `weight` : the part of a backward event that gradients of weights alone depend on.
    """

    backward: bool
    stage: int
    microbatch: int
    weight: bool = False

    @property
    def part(self) -> str:
        """What its work is, in words.

        Examples
        --------
        >>> Event(True, 0, 0).part, Event(True, 0, 0, weight=True).part
        ('backward', 'weight gradients')
        """
        return "weight gradients" if self.weight else "backward" if self.backward else "forward"


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
    - ``zero_bubble``: ZB-H1 (Qi et al. 2024, figure 3): as ``1f1b``, where the backward events are
      those of inputs; from the one of microbatch q on each is followed by a weight event, of
      microbatches 0, 1, ..; those that are left come last.

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
        if semantics.schedule in ("1f1b", "zero_bubble"):
            first = min(count, num_devices - 1 - q)
        elif semantics.schedule == "interleaved":
            first = min(first, (chunks - 1) * num_devices + 2 * (num_devices - 1 - q))
        order = _in_turns(forward, backward, first)
        orders.append(_with_weights(order, q) if semantics.schedule == "zero_bubble" else order)
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


def _with_weights(order: list[Event], delay: int) -> list[Event]:
    """Weight events, each after the backward event of so many microbatches later."""
    backward = [event for event in order if event.backward]
    weights = [event._replace(weight=True) for event in backward]
    after = dict(zip(backward[delay:], weights, strict=False))
    found = [each for event in order for each in (event, after.get(event)) if each is not None]
    return found + weights[len(after) :]


def held_beside(order: list[Event]) -> dict[int, list[tuple[int, int]]]:
    """How many other microbatches each stage of a device holds while it works on one.

    Pairs: those that it has begun forward and not ended backward, and those whose weight event is
    then still to come. Pairs that are nowhere above another one are left out.

    Examples
    --------
    >>> rules = PipelineIteration(microbatches=8)
    >>> [held_beside(order) for order in device_orders(rules, 3, trains=True)]
    [{0: [(2, 0)]}, {1: [(1, 0)]}, {2: [(0, 0)]}]
    >>> rules = PipelineIteration(microbatches=8, schedule="zero_bubble")
    >>> [held_beside(order) for order in device_orders(rules, 3, trains=True)]
    [{0: [(2, 0)]}, {1: [(1, 1)]}, {2: [(0, 2)]}]
    """
    split = any(event.weight for event in order)
    now: dict[int, tuple[int, int]] = {}
    seen: dict[int, set[tuple[int, int]]] = {}
    for event in order:
        begun, waiting = now.get(event.stage, (0, 0))
        if event.weight:
            waiting -= 1
        elif event.backward:
            begun -= 1
        seen.setdefault(event.stage, set()).add((begun, waiting))  # beside the one at work
        if not event.backward:
            begun += 1
        elif split and not event.weight:
            waiting += 1
        now[event.stage] = begun, waiting
    return {
        s: sorted(
            pair
            for pair in pairs
            if not any(
                pair != other and pair[0] <= other[0] and pair[1] <= other[1] for other in pairs
            )
        )
        for s, pairs in seen.items()
    }
