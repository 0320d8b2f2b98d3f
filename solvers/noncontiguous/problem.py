"""max_load over plans of any kind, as arrays: blocks, nets, and kinds of equal devices.

A block is a colocation group. A device's load is the time of its blocks and the weight of the nets
that it cuts (`instances.structure.nets`), their sum or the larger of the two, so a plan of any
kind is a partition of the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.graph_index import freeze
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import Nets, build_nets


@dataclass(frozen=True, eq=False)
class SplitProblem:
    """b blocks to be put on K devices.

    Attributes
    ----------
    block : (n,) int64
        Block of each op.
    time_ns : (b, K) int64
        `UNSUPPORTED` where a block cannot run.
    size_bytes : (b,) int64
    nets : Nets
    memory_bytes : (K,) int64
    kind : (K,) int64
        Devices of one kind have the same times, weights and memory.
    overlap : bool
        Whether time and transfers run side by side, so that the larger counts.
    """

    block: Ints
    time_ns: Ints
    size_bytes: Ints
    nets: Nets
    memory_bytes: Ints
    kind: Ints
    overlap: bool = False

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self.size_bytes)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.kind)

    def members(self) -> tuple[tuple[int, ...], ...]:
        """Devices of each kind, ascending."""
        return tuple(
            tuple(np.flatnonzero(self.kind == kind).tolist()) for kind in range(self.kind.max() + 1)
        )

    def loads(self, device: Ints) -> Ints:
        """Load of every device, (K,), for the device of each block, as the referee counts it."""
        time, paid = self.parts(device)
        return np.maximum(time, paid) if self.overlap else time + paid

    def parts(self, device: Ints) -> tuple[Ints, Ints]:
        """Time of the blocks and weight of the cut nets of every device, (K,) each."""
        time, paid = np.zeros(self.num_devices, np.int64), np.zeros(self.num_devices, np.int64)
        np.add.at(time, device, self.time_ns[np.arange(self.num_blocks), device])
        nets = self.nets
        if nets.num_nets:
            touched = np.zeros((nets.num_nets, self.num_devices), np.int64)
            sizes = np.diff(nets.net_ptr)
            np.add.at(touched, (np.repeat(np.arange(nets.num_nets), sizes), device[nets.pin]), 1)
            cut = (touched > 0) & (touched < sizes[:, None])
            paid += np.where(cut, nets.weight_ns, 0).sum(axis=0)
        return time, paid

    def set_load(self, device: int, inside: Flags) -> int:
        """Load of a device that holds the blocks `inside`, (b,), all of which run there."""
        time, paid, nets = int(self.time_ns[inside, device].sum()), 0, self.nets
        if nets.num_nets:
            count = np.add.reduceat(inside[nets.pin].astype(np.int64), nets.net_ptr[:-1])
            cut = (count > 0) & (count < np.diff(nets.net_ptr))
            paid = int(nets.weight_ns[cut, device].sum())
        return max(time, paid) if self.overlap else time + paid

    def fits(self, device: Ints) -> bool:
        """Whether every block runs where it is, and all memory suffices."""
        if (self.time_ns[np.arange(self.num_blocks), device] == UNSUPPORTED).any():
            return False
        held = np.zeros(self.num_devices, np.int64)
        np.add.at(held, device, self.size_bytes)
        return bool((held <= self.memory_bytes).all())


def build_split_problem(instance: Instance, *, overlap: bool = False) -> SplitProblem:
    """The problem of an instance; O(n K + p log p) for p pins.

    Memory that holds everything counts as without limit, so that it makes no two devices different.

    Examples
    --------
    >>> from placegap.instances import example
    >>> problem = build_split_problem(example())
    >>> problem.num_blocks, problem.kind.tolist(), problem.loads(np.array([0, 0, 1, 0])).tolist()
    (4, [0, 0], [63, 40])
    """
    arrays = instance.arrays
    block = arrays.group
    b, k = arrays.num_groups, instance.num_devices
    time_ns, refused = np.zeros((b, k), np.int64), np.zeros((b, k), np.bool_)
    np.add.at(time_ns, block, np.maximum(arrays.time_ns, 0))
    np.logical_or.at(refused, block, arrays.time_ns == UNSUPPORTED)
    time_ns[refused] = UNSUPPORTED
    size_bytes = np.zeros(b, np.int64)
    np.add.at(size_bytes, block, arrays.resident_bytes)
    memory_bytes = np.minimum(arrays.memory_bytes, size_bytes.sum())
    nets = build_nets(instance, block)
    return assemble(block, time_ns, size_bytes, nets, memory_bytes, overlap=overlap)


def assemble(
    block: Ints,
    time_ns: Ints,
    size_bytes: Ints,
    nets: Nets,
    memory_bytes: Ints,
    *,
    overlap: bool = False,
) -> SplitProblem:
    """A problem of these arrays; which devices are alike is found here."""
    number: dict[tuple[bytes, bytes, int], int] = {}
    kind = [
        number.setdefault(
            (time_ns[:, k].tobytes(), nets.weight_ns[:, k].tobytes(), int(memory_bytes[k])),
            len(number),
        )
        for k in range(len(memory_bytes))
    ]
    kinds = np.array(kind, np.int64)
    problem = SplitProblem(block, time_ns, size_bytes, nets, memory_bytes, kinds, overlap)
    freeze(problem)
    return problem
