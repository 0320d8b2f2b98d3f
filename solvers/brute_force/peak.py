"""What a device holds under the memory rule `peak`, by trying every moment: for brute force.

Written from the definition (`referee.memory`), moment by moment and tensor by tensor; it shares
only the order of the steps with the referee.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NEVER
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.semantics import Semantics, memory_rule


class PeakSizes(NamedTuple):
    """Sizes of the ops, which are numbered topologically, and of the tensors; in bytes.

    `counts` is false under the rule `sum`; `holds[i, z]` tells whether op i holds shared state z.
    """

    counts: bool
    state: Ints
    workspace: Ints
    tensor: Ints
    holds: Ints
    shared: Ints
    step: Ints


def peak_sizes(instance: Instance, semantics: Semantics, order: Ints) -> PeakSizes:
    """The sizes, with the ops in the given order."""
    sizes, position = instance.memory_arrays, instance.arrays.index.topological_position
    holds = np.zeros((instance.num_ops, len(sizes.shared_bytes)), np.int64)
    holds[position[sizes.shared_op], sizes.shared_name] = 1
    return PeakSizes(
        memory_rule(semantics) == "peak",
        sizes.state_bytes[order],
        sizes.workspace_bytes[order],
        sizes.tensor_bytes,
        holds,
        sizes.shared_bytes,
        sizes.step[order],
    )


@kernel
def state_of(device: Ints, sizes: PeakSizes, num_devices: int) -> Ints:
    """State of every device, shared state once for each name, (K,)."""
    total = np.zeros(num_devices, np.int64)
    for i in range(len(device)):
        total[device[i]] += sizes.state[i]
    for z in range(len(sizes.shared)):
        for k in range(num_devices):
            here = False
            for i in range(len(device)):
                here = here or (device[i] == k and sizes.holds[i, z] == 1)
            total[k] += sizes.shared[z] * here
    return total


@kernel
def too_full_by_steps(device: Ints, edges: Ints, sizes: PeakSizes, memory_bytes: Ints) -> bool:
    """Whether some step of a device does not fit; row e of `edges` is (producer, consumer, tensor).

    Ops take their steps one after another, and a tensor is there from the first step of the device
    that writes or reads it to the last.
    """
    left = memory_bytes - state_of(device, sizes, len(memory_bytes))
    first, last = np.zeros(len(sizes.tensor), np.int64), np.zeros(len(sizes.tensor), np.int64)
    for k in range(len(memory_bytes)):
        first[:], last[:] = NEVER, -1
        for e in range(len(edges)):
            for i in edges[e, :2]:
                if device[i] == k:
                    first[edges[e, 2]] = min(first[edges[e, 2]], sizes.step[i])
                    last[edges[e, 2]] = max(last[edges[e, 2]], sizes.step[i])
        for i in range(len(device)):
            if device[i] == k:
                live = sizes.workspace[i]
                for u in range(len(sizes.tensor)):
                    if first[u] <= sizes.step[i] <= last[u]:
                        live += sizes.tensor[u]
                if live > left[k]:
                    return True
    return False


@kernel
def item_touches(
    device: Ints, edges: Ints, move: Ints, duration: Ints, transfer_ns: Ints, link_class: Ints
) -> Ints:
    """What the items of a makespan (`makespan._items`) do in memory: (item, tensor, lag, device).

    The item keeps the tensor on the device while it runs; tensor -1 - i is the workspace of op i.
    Where ``lag`` is not negative, a transfer without a channel follows the item for so long: the
    tensor is there during the transfer.
    """
    n = len(device)
    item_of_op, at = np.zeros(n, np.int64), 0
    for item in range(len(move)):
        if move[item, 0] < 0:
            item_of_op[at] = item
            at += 1
    rows = np.zeros((n + 6 * len(edges), 4), np.int64)
    size = 0
    for i in range(n):
        rows[size, 0], rows[size, 1] = item_of_op[i], -1 - i
        rows[size, 2], rows[size, 3] = -1, device[i]
        size += 1
    for e in range(len(edges)):
        source, target, u = device[edges[e, 0]], device[edges[e, 1]], edges[e, 3]
        for end in range(2):
            rows[size, 0], rows[size, 1] = item_of_op[edges[e, end]], u
            rows[size, 2], rows[size, 3] = -1, device[edges[e, end]]
            size += 1
        if source == target:
            continue
        carrier, lag = item_of_op[edges[e, 0]], transfer_ns[u, link_class[source, target]]
        for item in range(len(move)):
            if move[item, 0] == edges[e, 2] and move[item, 1] == target:
                carrier, lag = item, -1
        for k in (source, target):
            rows[size, 0], rows[size, 1], rows[size, 2], rows[size, 3] = carrier, u, lag, k
            size += 1
    return rows[:size]


@kernel
def too_full(
    start: Ints, duration: Ints, touches: Ints, sizes: PeakSizes, left: Ints, until: int
) -> bool:
    """Whether a device holds more than `left` at some moment before `until`.

    Items whose start is still open (-1) start at `until` or later. A set of spans is fullest when
    one of them begins.
    """
    n, num_tensors = len(sizes.workspace), len(sizes.tensor)
    first = np.full((num_tensors + n, len(left)), NEVER, np.int64)
    last = np.full((num_tensors + n, len(left)), -1, np.int64)
    for row in range(len(touches)):
        item, what, lag, k = touches[row]
        slot = what if what >= 0 else num_tensors - 1 - what
        begin, end = NEVER, NEVER
        if start[item] >= 0:
            begin, end = start[item], start[item] + duration[item]
            if lag >= 0:
                begin, end = end, end + lag
        first[slot, k] = min(first[slot, k], begin)
        last[slot, k] = max(last[slot, k], end)
    for k in range(len(left)):
        for at in range(num_tensors + n):
            now = first[at, k]
            if now >= until or now >= last[at, k]:
                continue
            live = 0
            for slot in range(num_tensors + n):
                if first[slot, k] <= now < last[slot, k]:
                    size = (
                        sizes.tensor[slot]
                        if slot < num_tensors
                        else sizes.workspace[slot - num_tensors]
                    )
                    live += size
            if live > left[k]:
                return True
    return False
