"""latency_subgraphs: one sample through accelerators that run whole subgraphs.

Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020),
the latency model. An accelerator makes up to q calls. A call waits for everything that feeds it,
brings its inputs in, runs its ops, and takes its outputs out, without a pause and without overlap;
only then are its ops done. Hosts run every op as soon as its inputs are there, any number at once,
and pay no transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import (
    Evaluation,
    Instance,
    LatencySubgraphs,
    Plan,
    Schedule,
    TransferTimes,
)
from placegap.instances.referee.one_pass import evaluate_pass
from placegap.instances.referee.rules import PlanError


class Call(NamedTuple):
    """What is started as a whole: call `number` of an accelerator, or one op on a host (-1)."""

    # `first` is its first op by index; it tells the ops of a host apart.
    device: int
    number: int
    first: int


def evaluate(instance: Instance, plan: Plan, rules: LatencySubgraphs) -> Evaluation:
    """The end of the last call or op."""
    return evaluate_pass(instance, plan, rules, simulate_subgraphs)


def simulate_subgraphs(instance: Instance, plan: Plan, semantics: LatencySubgraphs) -> Schedule:
    """Times of all ops under a latency_subgraphs semantics; a call's ops start and end with it.

    A call of accelerator k starts when its outside producers and the call before it on k have
    ended, and takes

    - host_time(u, k) of each distinct tensor u from outside that feeds it, then
    - the time on k of each of its ops, then
    - host_time(u, k) of each distinct tensor u of its ops that has a consumer outside.

    Two calls of one accelerator are outside of each other: what passes between them is paid out and
    in. An op of a host ends at the latest end of its producers + its time. Backward ops are ops
    like any other. Without `call`, each accelerator has a single call.

    Each call is convex: if a path left call S and came back, S would wait, through the calls on the
    path, for itself, and such cycles are errors. So convexity is not checked. O(n + m log m).

    Tarnawski et al. 2020, the integer program for latency and its program ``lip.py``.

    Examples
    --------
    Ops 1 and 2 of the diamond on gpu0 take 5 + 20 and 20 + 1 out, the rest on gpu1 20 + 1 in and
    10 + 8:

    >>> from placegap.instances import example
    >>> once = LatencySubgraphs()
    >>> simulate_subgraphs(example(), Plan.on([0, 0, 1, 1]), once).makespan_ns
    85
    """
    device = plan.devices
    unit, units = _units(instance, device, _call_numbers(instance, plan, device, semantics))
    # Calls and ops on hosts are units. Once it is known which unit waits for which, times are
    # longest paths: units have no resource to compete for, as calls of one accelerator wait for
    # each other.
    duration = _durations(instance, device, unit, units)
    waits_for = _waits(instance, unit, units)
    start, end = [0] * len(units), [0] * len(units)
    try:
        for at in TopologicalSorter(dict(enumerate(waits_for))).static_order():
            start[at] = max((end[before] for before in waits_for[at]), default=0)
            end[at] = start[at] + duration[at]
    except CycleError as error:
        cycle = _name_cycle(instance, unit, units, error.args[1])
        raise PlanError(f"calls wait for each other: {cycle}") from None
    none = np.zeros(0, np.int64)
    return Schedule(
        device,
        np.array(start, np.int64)[unit],
        np.array(end, np.int64)[unit],
        TransferTimes(none, none, none, none, none, none),
    )


def _call_numbers(
    instance: Instance, plan: Plan, device: Ints, semantics: LatencySubgraphs
) -> list[int]:
    """The call of each op, -1 on hosts."""
    call = (0,) * instance.num_ops if plan.call is None else plan.call
    if len(call) != instance.num_ops:
        raise PlanError(f"call has {len(call)} entries for {instance.num_ops} ops")
    on_host = instance.arrays.is_host[device].tolist()
    for i, number in enumerate(call):
        if not on_host[i] and not 0 <= number < semantics.subgraphs:
            raise PlanError(
                f"op {instance.graph.ops[i].name!r} is in call {number} of device"
                f" {instance.cluster.devices[device[i]].name!r}; calls are numbered from 0 to"
                f" {semantics.subgraphs - 1}"
            )
    return [-1 if host else number for host, number in zip(on_host, call, strict=True)]


def _units(instance: Instance, device: Ints, number: list[int]) -> tuple[Ints, list[Call]]:
    """Unit of each op, (n,), and the units: calls, and single ops of hosts."""
    at: dict[tuple[int, int, int], int] = {}
    units: list[Call] = []
    unit = np.empty(instance.num_ops, np.int64)
    for i, (k, c) in enumerate(zip(device.tolist(), number, strict=True)):
        # Each op of a host is a unit of its own; ops of a call share one.
        unit[i] = at.setdefault((k, c, i if c < 0 else -1), len(units))
        if unit[i] == len(units):
            units.append(Call(k, c, i))
    return unit, units


def _durations(instance: Instance, device: Ints, unit: Ints, units: list[Call]) -> list[int]:
    """Compute of each unit and, on accelerators, each tensor in and out once."""
    arrays, index = instance.arrays, instance.arrays.index
    total = [0] * len(units)
    for i, at in enumerate(unit.tolist()):
        total[at] += int(arrays.time_ns[i, device[i]])
    # A tensor is paid once by each call that it leaves or enters, however many edges cross there:
    # so pairs of tensor and unit are made unique.
    crosses = np.flatnonzero(unit[index.producer] != unit[index.consumer])
    tensor = index.tensor[crosses]
    ends = unit[np.concatenate([index.producer[crosses], index.consumer[crosses]])]
    moves = dict.fromkeys(zip([*tensor.tolist(), *tensor.tolist()], ends.tolist(), strict=True))
    for u, at in moves:
        if units[at].number >= 0:
            total[at] += int(arrays.host_ns[u, units[at].device])
    return total


def _waits(instance: Instance, unit: Ints, units: list[Call]) -> list[list[int]]:
    """The units that each unit waits for: its producers, and the call before it."""
    index = instance.arrays.index
    pairs = zip(unit[index.producer].tolist(), unit[index.consumer].tolist(), strict=True)
    waits = [dict[int, None]() for _ in units]
    for before, after in pairs:
        if before != after:
            waits[after][before] = None
    # Sorted by device and number: neighbours on one device are a call and the next one.
    calls = sorted((call, at) for at, call in enumerate(units) if call.number >= 0)
    for (one, before), (other, after) in pairwise(calls):
        if one.device == other.device:
            waits[after][before] = None
    return [list(found) for found in waits]


def _name_cycle(instance: Instance, unit: Ints, units: list[Call], cycle: Sequence[int]) -> str:
    """The units of a cycle, each with the op in it that feeds the next, or its first op."""
    index, ops = instance.arrays.index, instance.graph.ops
    feeds: dict[tuple[int, int], int] = {}
    for i, j in zip(index.producer.tolist(), index.consumer.tolist(), strict=True):
        feeds.setdefault((int(unit[i]), int(unit[j])), i)
    words = []
    for at, after in pairwise(cycle):
        name = instance.cluster.devices[units[at].device].name
        op = ops[feeds.get((at, after), units[at].first)].name
        call = f" (call {units[at].number})" if units[at].number >= 0 else ""
        words.append(f"op {op!r} on {name!r}{call}")
    return " -> ".join([*words, words[0]])
