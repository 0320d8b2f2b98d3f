"""Units: what the max-load models of Archer et al. place, and what it costs on which devices.

Units are the ops that every chain plan keeps together (`instances.structure.blocks`): colocation
groups, and groups that reach each other in both directions. Communication is counted on nets
(`instances.structure.nets`): tensors with the same pins, in units, add up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.blocks import contract
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import build_nets


@dataclass(frozen=True, eq=False)
class LeastCosts:
    """The least that units and nets cost on some devices, and the most that one of them holds.

    Attributes
    ----------
    time_ns : list of int
        Of each unit; `UNSUPPORTED` where none of the devices runs and holds it.
    weight_ns : list of int
        Of each net that is cut.
    memory_bytes : int
    """

    time_ns: list[int]
    weight_ns: list[int]
    memory_bytes: int


@dataclass(frozen=True, eq=False)
class Units:
    """An instance with n ops contracted to u units, and its e nets.

    Attributes
    ----------
    unit : n ints
        Unit of each op.
    first : u ints
        An op of each unit, the first.
    size : u ints
        Resident bytes.
    arcs : pairs of int
        (a, b): unit a is never behind unit b.
    pins : e lists of int
        Units of each net.
    accelerators, hosts : Kind
    num_accelerators, num_hosts : int
        Where all devices are hosts, they count as accelerators whose nets cost nothing.
    """

    unit: list[int]
    first: list[int]
    size: list[int]
    arcs: list[tuple[int, int]]
    pins: list[list[int]]
    accelerators: LeastCosts
    hosts: LeastCosts
    num_accelerators: int
    num_hosts: int

    @property
    def num_units(self) -> int:
        """Number of units."""
        return len(self.first)

    @property
    def horizon_ns(self) -> int:
        """The least max_load is no more, if any plan is feasible without regard to memory."""
        kinds = (self.accelerators, self.hosts)
        ops = (max(times) for times in zip(*(kind.time_ns for kind in kinds), strict=True))
        return int(sum(max(0, time) for time in ops) + 2 * sum(self.accelerators.weight_ns))


def build_units(instance: Instance, *, alike: bool = False) -> Units:
    """Contract an instance; O(n K + m) but for sorting.

    Parameters
    ----------
    instance : Instance
    alike : bool
        Take all devices for one kind, hosts included: of each cost the least over all of them.

    Examples
    --------
    >>> from placegap.instances import example
    >>> units = build_units(example())
    >>> units.accelerators.time_ns, units.pins, units.accelerators.weight_ns
    ([5, 20, 10, 8], [[0, 1], [0, 2], [1, 3], [2, 3]], [1, 20, 1, 10])
    """
    arrays = instance.arrays
    blocks = contract(instance, merge_idle=False)
    nets = build_nets(instance, blocks.block)
    first = np.full(blocks.num_blocks, instance.num_ops, np.int64)
    np.minimum.at(first, blocks.block, np.arange(instance.num_ops))
    accelerators, hosts = (np.flatnonzero(arrays.is_host == host) for host in (False, True))
    if alike or len(accelerators) == 0:
        accelerators, hosts = np.arange(instance.num_devices), np.zeros(0, np.int64)

    def kind(devices: Ints) -> LeastCosts:
        return _kind(
            blocks.time_ns, blocks.resident_bytes, nets.weight_ns, arrays.memory_bytes, devices
        )

    return Units(
        unit=blocks.block.tolist(),
        first=first.tolist(),
        size=blocks.resident_bytes.tolist(),
        arcs=list(zip(blocks.arc_tail.tolist(), blocks.arc_head.tolist(), strict=True)),
        pins=[pins.tolist() for pins in np.split(nets.pin, nets.net_ptr[1:-1])][: nets.num_nets],
        accelerators=kind(accelerators),
        hosts=kind(hosts),
        num_accelerators=len(accelerators),
        num_hosts=len(hosts),
    )


def _kind(time_ns: Ints, size: Ints, weight_ns: Ints, memory: Ints, devices: Ints) -> LeastCosts:
    if len(devices) == 0:
        return LeastCosts([UNSUPPORTED] * len(size), [0] * len(weight_ns), 0)
    fits = (time_ns[:, devices] != UNSUPPORTED) & (size[:, None] <= memory[devices])
    never = np.iinfo(np.int64).max
    least = np.where(fits, time_ns[:, devices], never).min(axis=1)
    return LeastCosts(
        np.where(least == never, UNSUPPORTED, least).tolist(),
        weight_ns[:, devices].min(axis=1).tolist(),
        int(memory[devices].max()),
    )
