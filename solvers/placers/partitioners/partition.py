"""Graph partitions as plans: what is cut into parts, and how parts become plans.

Vertices are the colocation groups, weighted by time. A partitioner balances their sums over the
accelerators (over the hosts where there is no accelerator) and cuts little communication. Parts
then go to devices by load, and what memory or support forbids there moves on, group by group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from placegap.instances.problem.array_types import Floats, Ints
from placegap.instances.problem.blocks import Blocks
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import Nets, build_nets
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import LoadSemantics, plan_class
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.movable_units import (
    fits_nowhere,
    free_units,
    why_not_one_level,
)
from placegap.solvers.placers.partitioners import mend

TOTAL = 2**28
"""Weights are scaled to about this sum: partitioners count in 32 bits."""


@dataclass(frozen=True, eq=False)
class Parting:
    """What a partitioner is asked for.

    Attributes
    ----------
    instance : Instance
    nets : Nets
        Over the vertices.
    devices : (p,) int64
        The devices that parts are made for.
    weight : (v,) int64
        Scaled mean time of each vertex, at least 1.
    share : (p,) float64
        Share of the weight that each part should have, by the device's speed; the sum is 1.
    seed : int
    """

    instance: Instance
    nets: Nets
    devices: Ints
    weight: Ints
    share: Floats
    seed: int

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return len(self.devices)

    def graph(self) -> tuple[Ints, Ints, Ints]:
        """Pointers, neighbours and scaled weights of an undirected graph, each edge both ways.

        An edge weighs the mean host times of the tensors between two vertices, each tensor once.
        O(m log m).
        """
        arrays = self.instance.arrays
        index, v = arrays.index, len(self.weight)
        a, b = arrays.group[index.producer], arrays.group[index.consumer]
        apart = a != b
        pair = np.minimum(a, b)[apart] * v + np.maximum(a, b)[apart]
        once = np.unique(np.stack([pair, index.tensor[apart]]), axis=1)
        pairs, at = np.unique(once[0], return_inverse=True)
        cost = np.bincount(at, weights=self._host_time()[once[1]], minlength=len(pairs))
        weight = scaled(cost)
        low, high = np.divmod(pairs, v)
        pointer, order = group_by(np.concatenate([low, high]), v)
        return pointer, np.concatenate([high, low])[order], np.tile(weight, 2)[order]

    def net_weights(self) -> Ints:
        """Scaled weight of each net, the mean over the devices."""
        return scaled(self.nets.weight_ns[:, self.devices].mean(axis=1))

    def _host_time(self) -> Floats:
        return np.asarray(self.instance.arrays.host_ns[:, self.devices].mean(axis=1), np.float64)


def scaled(amount: Floats | Ints) -> Ints:
    """Positive integers in proportion to some amounts, with a sum of about `TOTAL`.

    Examples
    --------
    >>> scaled(np.array([0, 1, 3])).tolist() == [1, 1 + 2**26, 1 + 3 * 2**26]
    True
    """
    total = float(amount.sum())
    return np.floor(amount * (TOTAL / max(total, 1.0))).astype(np.int64) + 1


def why_not_parts(task: Task, params: Params) -> str | None:
    """Why a partition makes no plan for a task, or None."""
    if plan_class(task.semantics) != "any":
        return f"its parts are neither convex nor chains: not {task.semantics.label}"
    return why_not_one_level(task, params)


def place_parts(task: Task, partition: Callable[[Parting], Ints]) -> Outcome:
    """The plan of a partition.

    Parameters
    ----------
    task : Task
    partition : callable (Parting) -> (v,) int64
        Part of each vertex. It is asked only if there are more vertices than parts, and two parts.
    """
    instance, units = task.instance, free_units(task.instance)
    nets = build_nets(instance, units.block)
    parting = _parting(task, units, nets)
    part = np.arange(units.num_blocks)
    if parting.num_parts == 1:
        part[:] = 0
    elif units.num_blocks > parting.num_parts:
        part = partition(parting)
    device = _devices_of(part, units, parting, instance.arrays.memory_bytes)
    overlap = isinstance(task.semantics, LoadSemantics) and task.semantics.load == "overlap"
    state, moved, stuck = mend(instance, units, nets, device, overlap=overlap)
    details = {"vertices": units.num_blocks, "parts": parting.num_parts, "mended": moved}
    if stuck is not None:
        why = "fits on no device once the parts are placed"
        return fits_nowhere(instance, units, stuck, why)
    return Outcome(Plan.on(state.device[units.block].tolist()), details=details)


def _parting(task: Task, units: Blocks, nets: Nets) -> Parting:
    is_host = task.instance.arrays.is_host
    devices = np.flatnonzero(is_host == is_host.all())
    time = units.time_ns[:, devices]
    runs = time != UNSUPPORTED
    time = np.where(runs, time, 0).astype(np.float64)
    mean = time.sum(axis=1) / np.maximum(runs.sum(axis=1), 1)
    # speed: how much less than the mean a device takes for what it can run
    usual, took = np.where(runs, mean[:, None], 0).sum(axis=0), time.sum(axis=0)
    speed = np.where(took > 0, usual / np.maximum(took, 1), 1.0) + 1e-3
    return Parting(
        task.instance, nets, devices, scaled(mean), speed / speed.sum(), task.limits.seed
    )


def _devices_of(part: Ints, units: Blocks, parting: Parting, memory: Ints) -> Ints:
    """Heaviest part first: of the free devices, the one that is done first.

    Before time counts how many groups the device cannot run, then the bytes that it cannot hold.
    """
    p = parting.num_parts
    weight, size = np.zeros(p, np.int64), np.zeros(p, np.int64)
    np.add.at(weight, part, parting.weight)
    np.add.at(size, part, units.resident_bytes)
    time, refused = np.zeros((p, p), np.int64), np.zeros((p, p), np.int64)
    own = units.time_ns[:, parting.devices]
    np.add.at(time, part, np.maximum(own, 0))
    np.add.at(refused, part, own == UNSUPPORTED)
    device_of, free = np.zeros(p, np.int64), list(range(p))
    for a in np.argsort(-weight, kind="stable").tolist():
        room = memory[parting.devices]
        best = min(
            free,
            key=lambda k: (refused[a, k], max(0, size[a] - room[k]), time[a, k]),
        )
        device_of[a] = parting.devices[best]
        free.remove(best)
    return device_of[part]
