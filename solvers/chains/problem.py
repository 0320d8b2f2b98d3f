"""The problem of chains as int64 arrays: blocks, nets and kinds of devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance
from placegap.instances.problem.blocks import Blocks, IdleRule, contract
from placegap.instances.problem.graph_index import freeze, group_by
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import Nets, build_nets


class CutNets(NamedTuple):
    """Arrays for the kernels: nets and their weights."""

    #: block_ptr, net: (b + 1,): Nets of block v are ``net[block_ptr[v]:block_ptr[v + 1]]``.
    block_ptr: Ints
    net: Ints
    #: size, weight: (e,) int64: Number of pins of each net, and its cost if it is cut.
    size: Ints
    weight: Ints


@kernel(allocates=False)
def put_in(nets: CutNets, pins_in: Ints, v: int) -> int:
    """Add block v to the set; returns the change of the cut."""
    change = np.int64(0)
    for at in range(nets.block_ptr[v], nets.block_ptr[v + 1]):
        e = nets.net[at]
        pins_in[e] += 1
        if pins_in[e] == 1:
            change += nets.weight[e]
        elif pins_in[e] == nets.size[e]:
            change -= nets.weight[e]
    return int(change)


Indices = NDArray[np.int32]

ACCELERATOR, HOST = 0, 1  # devices of a kind are alike, and hosts pay no communication

WORD = 64
LARGEST_LOAD = 2**60  # limit on loads of whole instances and on bytes: the sum of two fits int64


class ArcLists(NamedTuple):
    """Arcs out of each block and their numbers into it, and the same for the reversed arcs."""

    succ_ptr: Ints
    succ: Ints
    num_preds: Ints
    pred_ptr: Ints
    pred: Ints
    num_succs: Ints


def arc_lists(blocks: Blocks) -> ArcLists:
    succ_ptr, out = group_by(blocks.arc_tail, blocks.num_blocks)
    pred_ptr, into = group_by(blocks.arc_head, blocks.num_blocks)
    succ, pred = blocks.arc_head[out], blocks.arc_tail[into]
    return ArcLists(succ_ptr, succ, np.diff(pred_ptr), pred_ptr, pred, np.diff(succ_ptr))


@dataclass(frozen=True, eq=False)
class ChainBlocks:
    """b blocks with e nets, to be cut into a chain of ideals; D kinds of devices."""

    blocks: Blocks
    arcs: ArcLists
    nets: CutNets  # nets, with the largest cost of any kind of device as their weight
    #: net_ptr, pin: (e + 1,): Pins of net i are the blocks ``pin[net_ptr[i]:net_ptr[i + 1]]``.
    net_ptr: Ints
    pin: Ints
    time: Ints  # (D, b): Time of each block on each kind, 0 where it cannot run or does not fit
    #: (D, b) int64: Part of a device's `room` that each block takes; more than all of it where the
    #: block cannot run.
    need: Ints
    room: Ints  # (D,) int64: Memory of each kind, 0 where it holds everything
    overlap: bool  # whether load is the larger of compute and communication, not their sum

    @property
    def num_blocks(self) -> int:
        return self.blocks.num_blocks

    @property
    def num_nets(self) -> int:
        return len(self.nets.weight)

    @property
    def num_words(self) -> int:
        """Words of a bit set of blocks."""
        return words(self.num_blocks)

    @property
    def num_net_words(self) -> int:
        """Words of a bit set of nets, at least one."""
        return max(1, words(self.num_nets))

    @property
    def fits(self) -> Flags:
        """Whether a device of each kind can run and hold each block, (D, b)."""
        return np.asarray(self.need <= self.room[:, None])


@dataclass(frozen=True, eq=False)
class ChainProblem(ChainBlocks):
    """One device per ideal, of two kinds (`ACCELERATOR`, `HOST`); hosts pay for no net."""

    #: Devices of each kind.
    devices: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def counts(self) -> tuple[int, int]:
        """Number of accelerators and of hosts."""
        return len(self.devices[ACCELERATOR]), len(self.devices[HOST])

    @property
    def largest_load(self) -> int:
        """Upper bound on the load of a device in any plan."""
        return int(self.time.sum(axis=1).max()) + int(self.nets.weight.sum())


def words(bits: int) -> int:
    """Number of 64-bit words that hold a number of bits."""
    return -(-bits // WORD)


def why_not_two_kinds(instance: Instance) -> str | None:
    """Why the devices of an instance are not like accelerators and like hosts; else None."""
    # Labels do not matter: devices are alike if times, memory and host times are.
    arrays = instance.arrays
    total = int(arrays.resident_bytes.sum())
    memory = np.minimum(arrays.memory_bytes, total)
    for noun, chosen in (("accelerators", ~arrays.is_host), ("hosts", arrays.is_host)):
        k = np.flatnonzero(chosen)
        if len(k) == 0:
            continue
        names = [instance.cluster.devices[j].name for j in k.tolist()]
        columns = [("times", arrays.time_ns), ("memory", memory[None, :])]
        if noun == "accelerators":
            columns.append(("host times", arrays.host_ns))
        for what, table in columns:
            differs = (table[:, k] != table[:, k[:1]]).any(axis=0)
            if differs.any():
                return (
                    f"takes {noun} of one kind, but {what} differ between {names[0]!r} and"
                    f" {names[int(np.argmax(differs))]!r}"
                )
    paid = np.where(arrays.is_host, 0, arrays.host_ns).max(axis=1, initial=0)
    most = int(np.maximum(arrays.time_ns, 0).max(axis=1).sum()) + 2 * int(paid.sum())
    if max(most, (total + 1) * instance.num_ops) > LARGEST_LOAD:
        return "adds in 64 bits: times or bytes are too large"
    return None


def build_problem(
    instance: Instance, *, overlap: bool = False, rule: IdleRule | None = None
) -> ChainProblem:
    """Contract an instance whose devices are of two kinds (`why_not_two_kinds`)."""
    # `rule` says which idle blocks join others and which devices hold everything (roomy).
    arrays = instance.arrays
    blocks = contract(instance, rule=rule)
    nets = build_nets(instance, blocks.block)
    kinds = (np.flatnonzero(~arrays.is_host).tolist(), np.flatnonzero(arrays.is_host).tolist())
    b, e = blocks.num_blocks, nets.num_nets
    time, need, room = np.zeros((2, b), np.int64), np.ones((2, b), np.int64), np.zeros(2, np.int64)
    for kind, devices in enumerate(kinds):
        if devices:
            time[kind], need[kind], room[kind] = kind_costs(instance, blocks, devices[0])
    weight = nets.weight_ns[:, kinds[0][0]].copy() if kinds[0] else np.zeros(e, np.int64)
    problem = ChainProblem(
        blocks=blocks,
        arcs=arc_lists(blocks),
        nets=cut_nets(nets, weight),
        net_ptr=nets.net_ptr,
        pin=nets.pin,
        time=time,
        need=need,
        room=room,
        overlap=overlap,
        devices=(tuple(kinds[0]), tuple(kinds[1])),
    )
    freeze(problem)
    return problem


def cut_nets(nets: Nets, weight: Ints) -> CutNets:
    """Nets with one weight each, (e,)."""
    return CutNets(nets.block_ptr.copy(), nets.net.copy(), np.diff(nets.net_ptr), weight)


def kind_costs(instance: Instance, blocks: Blocks, device: int) -> tuple[Ints, Ints, int]:
    """Times, needs and room of a device; a roomy one only needs to run the block."""
    room = int(instance.arrays.memory_bytes[device])
    size = blocks.resident_bytes
    if blocks.roomy[device]:
        room, size = 0, np.zeros_like(size)
    time = blocks.time_ns[:, device]
    refused = (time == UNSUPPORTED) | (size > room)
    return np.where(refused, 0, time), np.where(refused, room + 1, size), room
