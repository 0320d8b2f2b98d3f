"""What a stage of a chain holds at its peak: the largest sum over the steps of one sample.

Not additive: a tensor counts on a stage from the first to the last step of its ops that use it
(`instances.referee.memory`), so a sum over blocks is a bound alone (`additive_memory`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.problem import WORD

MOST_KEPT = 3_000
"""With more ideals than this the peak of a pair is computed whenever it is asked for."""

UNKNOWN = -1


class StagePeak(NamedTuple):
    """Blocks, tensors and steps of an instance, as the kernel takes them; empty for no check.

    Attributes
    ----------
    tensor_ptr : (t + 1,) int64
    block, step : (u,) int64
        Of each op that uses a tensor, by tensor and step.
    size : (t,) int64
        Bytes of each tensor.
    state : (b,) int64
        Of each block, shared state aside.
    name_ptr, holder, shared : int64
        Blocks that hold each name of shared state, and its bytes.
    step_block, workspace : (n,) int64
        Block and workspace of the op at each step.
    level : (n + 1,) int64
        Scratch.
    known : (N, N) int64
        Peaks of the pairs of ideals that were asked for, or (0, 0).
    """

    tensor_ptr: Ints
    block: Ints
    step: Ints
    size: Ints
    state: Ints
    name_ptr: Ints
    holder: Ints
    shared: Ints
    step_block: Ints
    workspace: Ints
    level: Ints
    known: Ints


def no_peak() -> StagePeak:
    """Nothing to check."""
    none = np.zeros(0, np.int64)
    return StagePeak(*(none,) * 11, np.zeros((0, 0), np.int64))


def stage_peak(instance: Instance, block: Ints, counted: Flags) -> StagePeak:
    """The arrays for blocks of ops, (n,), of which those that are not `counted` hold nothing.

    Examples
    --------
    >>> from placegap.instances import example
    >>> peak = stage_peak(example(), np.arange(4), np.ones(4, bool))
    >>> peak.tensor_ptr.tolist(), peak.size.tolist()
    ([0, 2, 4, 6, 8], [1, 20, 1, 10])
    """
    sizes, index = instance.memory_arrays, instance.arrays.index
    tensor = np.concatenate([np.arange(len(index.tensor_producer)), index.tensor])
    op = np.concatenate([index.tensor_producer, index.consumer])
    kept = counted[op] & (sizes.tensor_bytes[tensor] > 0)
    tensor, op = tensor[kept], op[kept]
    order = np.lexsort((sizes.step[op], tensor))
    tensor, op = tensor[order], op[order]
    used, start = np.unique(tensor, return_index=True)
    state = np.zeros(int(block.max()) + 1, np.int64)
    np.add.at(state, block[counted], sizes.state_bytes[counted])
    holds = counted[sizes.shared_op]
    holder, name = block[sizes.shared_op[holds]], sizes.shared_name[holds]
    by_name = np.argsort(name, kind="stable")
    by_step = np.argsort(sizes.step)
    workspace = np.where(counted, sizes.workspace_bytes, 0)
    return StagePeak(
        np.append(start, len(op)).astype(np.int64),
        block[op],
        sizes.step[op],
        sizes.tensor_bytes[used],
        state,
        np.searchsorted(name[by_name], np.arange(len(sizes.shared_bytes) + 1)).astype(np.int64),
        holder[by_name],
        sizes.shared_bytes,
        block[by_step],
        workspace[by_step],
        np.zeros(instance.num_ops + 1, np.int64),
        np.zeros((0, 0), np.int64),
    )


def for_ideals(peak: StagePeak, num_ideals: int) -> StagePeak:
    """The same, with room for what is known of the pairs of so many ideals."""
    side = num_ideals if num_ideals <= MOST_KEPT else 0
    return peak._replace(known=np.full((side, side), UNKNOWN))


@kernel(allocates=False)
def peak_between(peak: StagePeak, members: Ints, target: int, source: int) -> int:
    """Bytes that a stage holds at its peak which takes I - J, J within I. O(n + u)."""
    known = peak.known
    if len(known) and known[target, source] != UNKNOWN:
        return int(known[target, source])
    level, step = peak.level, peak.step
    for at in range(len(level)):
        level[at] = 0
    always = 0
    for v in range(len(peak.state)):
        if _takes(members, target, source, v):
            always += peak.state[v]
    for name in range(len(peak.shared)):
        for at in range(peak.name_ptr[name], peak.name_ptr[name + 1]):
            if _takes(members, target, source, peak.holder[at]):
                always += peak.shared[name]
                break
    for t in range(len(peak.size)):
        first, last = -1, -1
        for at in range(peak.tensor_ptr[t], peak.tensor_ptr[t + 1]):
            if _takes(members, target, source, peak.block[at]):
                last = step[at]
                first = last if first < 0 else first
        if first >= 0:
            level[first] += peak.size[t]
            level[last + 1] -= peak.size[t]
    live, most = 0, 0
    for at in range(len(peak.workspace)):
        live += level[at]
        now = live
        if peak.workspace[at] > 0 and _takes(members, target, source, peak.step_block[at]):
            now += peak.workspace[at]
        most = max(most, now)
    if len(known):
        known[target, source] = always + most
    return int(always + most)


@kernel(allocates=False)
def _takes(members: Ints, target: int, source: int, v: int) -> bool:
    """Whether a block is in the difference of two ideals."""
    taken = members[target, v // WORD] & ~members[source, v // WORD]
    return bool(taken >> (v % WORD) & 1)
