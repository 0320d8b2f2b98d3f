"""What crosses the borders of devices under a plan, and what each crossing takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.gradients import exchanged_edges
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import Makespan, PipelineIteration, Semantics
from placegap.instances.referee.loads import border_costs


class Crossing(NamedTuple):
    """A tensor that leaves its device.

    Attributes
    ----------
    tensor, producer, source : int
        The tensor, the op that makes it, and the device of that op.
    readers : tuple of int
        One op on each device that gets it: the first in topological order.
    targets : tuple of int
        The devices that get it.
    bytes : int
    source_ns, target_ns : int, tuple of int
        What the borders of devices are charged; a transfer is charged to its target.
    """

    tensor: int
    producer: int
    source: int
    readers: tuple[int, ...]
    targets: tuple[int, ...]
    bytes: int
    source_ns: int
    target_ns: tuple[int, ...]

    @property
    def time_ns(self) -> int:
        """All that the crossing takes."""
        return self.source_ns + sum(self.target_ns)


def crossings(instance: Instance, plan: Plan, semantics: Semantics) -> list[Crossing]:
    """All crossings of a plan, by tensor; those of replicated stages at their first devices.

    Under makespan, and pipeline_iteration with links that send, a crossing is one transfer: from
    device to device. Under the other rules it is one tensor, which the borders of its devices are
    charged for, each once. What pipeline_iteration does not count (`exchanged_edges`) is left out.

    Examples
    --------
    Op 3 of the diamond alone on the second device: 20 ns to it and 10 ns back.

    >>> from placegap.instances import example
    >>> found = crossings(example(), Plan.on([0, 0, 1, 0]), Makespan())
    >>> [(each.source, each.targets, each.time_ns) for each in found]
    [(0, (1,), 20), (1, (0,), 10)]
    """
    arrays, index, device = instance.arrays, instance.arrays.index, plan.devices
    is_sent = isinstance(semantics, Makespan) or (
        isinstance(semantics, PipelineIteration) and semantics.sending == "overlap"
    )
    per_edge = isinstance(semantics, Makespan) and semantics.transfers == "per_edge"
    cost = np.where(arrays.is_host, 0, border_costs(instance, semantics))
    found = []
    position = index.topological_position
    sent = np.ones(len(index.producer), np.bool_)
    if isinstance(semantics, PipelineIteration):
        sent = ~exchanged_edges(instance)
    for u, producer in enumerate(index.tensor_producer.tolist()):
        edges = index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
        edges = edges[sent[edges]]
        home, size = int(device[producer]), instance.graph.edges[index.tensor_first_edge[u]].bytes
        readers = sorted(index.consumer[edges].tolist(), key=lambda i: int(position[i]))
        away = [i for i in readers if device[i] != home]
        if not per_edge:
            away = [next(i for i in away if device[i] == k) for k in _homes(device, away)]
        if not away:
            continue
        targets = [int(device[i]) for i in away]
        if is_sent:
            times = arrays.transfer_ns[u, arrays.link_class[home, targets]].tolist()
            found += [
                Crossing(u, producer, home, (i,), (k,), size, 0, (time_ns,))
                for i, k, time_ns in zip(away, targets, times, strict=True)
            ]
            continue
        found.append(
            Crossing(
                u,
                producer,
                home,
                tuple(away),
                tuple(targets),
                size,
                int(cost[u, home]),
                tuple(cost[u, targets].tolist()),
            )
        )
    return found


def _homes(device: np.ndarray, ops: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(int(device[i]) for i in ops))


def bytes_moved(found: Sequence[Crossing], num_devices: int) -> tuple[list[int], list[int]]:
    """Bytes that come into and go out of each device.

    Examples
    --------
    >>> bytes_moved([Crossing(0, 0, 0, (1,), (1,), 8, 0, (3,))], 2)
    ([0, 8], [8, 0])
    """
    into, out = [0] * num_devices, [0] * num_devices
    for each in found:
        out[each.source] += each.bytes
        for k in each.targets:
            into[k] += each.bytes
    return into, out
