"""The memory rule `peak` between two sums: what every plan must hold, and what always suffices.

**Floor.** Bytes of each op such that, whatever the plan, no device holds less at its peak than its
ops' bytes together. They are

- the op's state; and of each shared state its size at one op that holds it: the device of that op
  holds it, once;
- what is live at one moment p that is the same for all devices. Take a tensor and a colocation
  group of which one op writes or reads it at p or before, and one at p or after. The group's device
  has had the first of these events at p, and not yet ended the last one: the tensor is live there.
  It counts at one such group, as a device that two of them are on holds it once. The workspace of
  the op that runs at p counts at that op.

max_load counts the steps of one order, so that any step will do as p: the sum of what is live on a
device at p is no more than its largest sum. pipeline_iteration counts such steps of each stage by
itself, which is the same where each device has one stage whose gradients of weights are not apart;
else only what the op at p reads and writes is certain, and p is the op with the most of that. Of a
makespan only what all schedules have in common is certain: p is the start of an op that takes time
on every device which runs it. Then "at p or before" means the op or an ancestor: an event that has
begun when p starts; and "at p or after" the op or a descendant, which end later than p starts. Of
the moments that are tried the one counts at which the most bytes are live: for max_load all steps,
for a makespan the ops of longest paths at which the most seems to be live.

So an instance with these resident bytes, under the rule `sum`, is a relaxation: every plan that
fits at its peak fits there. Bounds and proofs that no plan exists hold for the rule `peak`.

What is live at an op's start is on the device of its group, which holds the most of this of all its
groups beside their state. This does not add up: `layer_chain` counts it (`group_live_bytes`).

**Ceiling.** An op's state and workspace, all tensors that it writes, each tensor that its group
reads and does not write, and each shared state of its group. A device never holds more at its peak
than the sum of these over its ops. So a plan that fits there, under the rule `sum`, fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar
from weakref import ref

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem.graph_index import GraphIndex, sum_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.mean_costs import Flow
from placegap.instances.problem.semantics import Semantics
from placegap.instances.problem.weighted_dag import critical_paths

S = TypeVar("S", bound=Semantics)

MOST_STARTS = 16  # ops that are tried as the moment of a makespan: of longest paths, or of a group


def relax_memory(instance: Instance, semantics: S) -> tuple[Instance, S]:
    """The instance and semantics themselves under `sum`; the floor, under `sum`, for `peak`."""
    # The last floor is kept as long as its instance lives: many placers use the same.
    if semantics.memory_rule == "sum":
        return instance, semantics
    plain = semantics.model_copy(update={"memory": "sum"})
    for of, rules, floor in _last:
        if of() is instance and rules == semantics:
            return floor, plain
    floor = with_resident(instance, floor_bytes(instance, semantics))
    _last[:] = [(ref(instance, lambda gone: _last.clear()), semantics, floor)]
    return floor, plain


_last: list[tuple[ref[Instance], Semantics, Instance]] = []  # an instance, semantics, their floor


def with_resident(instance: Instance, resident_bytes: Ints) -> Instance:
    """The instance with other resident bytes; nothing is known of its values."""
    sizes = resident_bytes.tolist()
    ops = tuple(
        op if op.resident_bytes == size else op.model_copy(update={"resident_bytes": size})
        for op, size in zip(instance.graph.ops, sizes, strict=True)
    )
    return instance.with_graph(instance.graph.model_copy(update={"ops": ops}))


def floor_bytes(instance: Instance, semantics: Semantics) -> Ints:
    """Bytes (n,) of ops whose sum over a device is never more than it holds at its peak."""
    # O((n + m) log(n + m)), and O(n + m) for each of `MOST_STARTS` ops.
    sizes = instance.memory_arrays
    floor = sizes.state_bytes.copy()
    _, first = np.unique(sizes.shared_name, return_index=True)
    np.add.at(floor, sizes.shared_op[first], sizes.shared_bytes)
    uses = _uses(instance)
    found: tuple[int, Flags] | None
    match semantics.memory_moment:
        case "step":
            found = _fullest_step(instance, uses)
        case "op":
            found = _largest_op(instance, uses)
        case "start":
            found = _fullest_start(instance, uses)
    if found is None:
        return floor
    moment, held = found
    tensors, chosen = np.unique(uses.tensor[held], return_index=True)
    np.add.at(floor, uses.op[held][chosen], sizes.tensor_bytes[tensors])
    floor[moment] += sizes.workspace_bytes[moment]
    return floor


def ceiling_bytes(instance: Instance) -> Ints:
    """Bytes (n,) of ops whose sum over a device is never less than it holds at its peak."""
    sizes, index = instance.memory_arrays, instance.arrays.index
    group = instance.arrays.group
    ceiling = sizes.state_bytes + sizes.workspace_bytes
    np.add.at(ceiling, index.tensor_producer, sizes.tensor_bytes)
    away = group[index.consumer] != group[index.producer]
    reads = index.tensor[away] * instance.arrays.num_groups + group[index.consumer[away]]
    _, first = np.unique(reads, return_index=True)
    edge = np.flatnonzero(away)[first]
    np.add.at(ceiling, index.consumer[edge], sizes.tensor_bytes[index.tensor[edge]])
    holds = sizes.shared_name * instance.arrays.num_groups + group[sizes.shared_op]
    _, first = np.unique(holds, return_index=True)
    np.add.at(ceiling, sizes.shared_op[first], sizes.shared_bytes[sizes.shared_name[first]])
    return ceiling


class _Uses(NamedTuple):
    """Which colocation group writes or reads which tensor, a row for each pair."""

    # Rows are ordered by tensor, that of the producer's group first. `op` is the group's first op
    # that uses the tensor. ``member[start[r]:start[r + 1]]`` are all of them, producers included.
    tensor: Ints
    op: Ints
    start: Ints
    member: Ints


def _uses(instance: Instance) -> _Uses:
    index, group = instance.arrays.index, instance.arrays.group
    position = index.topological_position
    tensor = np.concatenate([np.arange(len(index.tensor_producer)), index.tensor])
    op = np.concatenate([index.tensor_producer, index.consumer])
    is_home = group[op] == group[index.tensor_producer[tensor]]
    order = np.lexsort((position[op], group[op], ~is_home, tensor))
    tensor, op = tensor[order], op[order]
    new = np.ones(len(op), np.bool_)
    new[1:] = (tensor[1:] != tensor[:-1]) | (group[op[1:]] != group[op[:-1]])
    start = np.flatnonzero(new)
    return _Uses(tensor[start], op[start], start, op)


def _fullest_step(instance: Instance, uses: _Uses) -> tuple[int, Flags] | None:
    """The op at whose step the most is live for certain, and what is: rows of `uses`."""
    step = instance.memory_arrays.step
    first, last = _spans(uses, step)
    moment = int(np.argmax(_live_bytes(instance, uses, first, last, step)))
    return int(np.argmax(step == moment)), (first <= moment) & (moment <= last)


def _largest_op(instance: Instance, uses: _Uses) -> tuple[int, Flags]:
    """The op with the most bytes of tensors and workspace, and the rows of `uses` that it is in."""
    sizes, index = instance.memory_arrays, instance.arrays.index
    needs = sizes.workspace_bytes.copy()
    np.add.at(needs, index.tensor_producer, sizes.tensor_bytes)
    consumer, tensor = np.unique(np.stack([index.consumer, index.tensor]), axis=1)
    np.add.at(needs, consumer, sizes.tensor_bytes[tensor])
    largest = int(np.argmax(needs))
    return largest, _any(np.arange(instance.num_ops) == largest, uses)


def _fullest_start(instance: Instance, uses: _Uses) -> tuple[int, Flags] | None:
    """The op at whose start the most is live in every schedule, and what is: rows of `uses`."""
    # Looked at are ops of longest paths, which most other ops come before or after.
    on_path = np.flatnonzero(_on_longest_path(instance.arrays.index))
    starts = _starts(instance, uses, on_path, _guess(instance, uses))
    return max(starts, key=lambda start: _held_bytes(instance, uses, *start), default=None)


def group_live_bytes(instance: Instance, groups: Ints) -> Ints:
    """What is live beside the state of each group at one moment of every schedule of a makespan."""
    uses, group = _uses(instance), instance.arrays.group
    found, guess = list[int](), _guess(instance, uses)
    for g in groups.tolist():
        starts, own = np.flatnonzero(group == g), group[uses.op] == g
        live = (
            _held_bytes(instance, uses, v, held & own)
            for v, held in _starts(instance, uses, starts, guess)
        )
        found.append(max(live, default=0))
    return np.array(found, np.int64)


def _held_bytes(instance: Instance, uses: _Uses, op: int, held: Flags) -> int:
    """Bytes of the tensors of some rows, and of the workspace of an op."""
    sizes, tensors = instance.memory_arrays, np.unique(uses.tensor[held])
    return int(sizes.tensor_bytes[tensors].sum()) + int(sizes.workspace_bytes[op])


def _guess(instance: Instance, uses: _Uses) -> Ints:
    """Bytes that are live when each op runs, if all run in topological order, (n,)."""
    place = instance.arrays.index.topological_position
    return _live_bytes(instance, uses, *_spans(uses, place), place)[place]


def _starts(instance: Instance, uses: _Uses, ops: Ints, guess: Ints) -> Iterator[tuple[int, Flags]]:
    """Ops that take time on every device, the first by a guess, and the rows live at each start."""
    index, time = instance.arrays.index, instance.arrays.time_ns[ops]
    order = index.topological_order
    back = order[::-1].copy()  # a row, as the order: one kernel for both
    ops = ops[((time > 0) | (time == UNSUPPORTED)).all(axis=1)]
    for v in ops[np.argsort(-guess[ops], kind="stable")[:MOST_STARTS]].tolist():
        after = _reached(order, index.succ_ptr, index.consumer[index.succ_edge], v)
        before = _reached(back, index.pred_ptr, index.producer[index.pred_edge], v)
        yield v, _any(before, uses) & _any(after, uses)


def _spans(uses: _Uses, place: Ints) -> tuple[Ints, Ints]:
    """First and last place of each row."""
    if not len(uses.start):
        return uses.start, uses.start
    at = place[uses.member]
    return np.minimum.reduceat(at, uses.start), np.maximum.reduceat(at, uses.start)


def _any(flag: Flags, uses: _Uses) -> Flags:
    """Of each row, whether a member has the flag."""
    if not len(uses.start):
        return np.zeros(0, np.bool_)
    return np.asarray(np.logical_or.reduceat(flag[uses.member], uses.start), np.bool_)


def _live_bytes(instance: Instance, uses: _Uses, first: Ints, last: Ints, place: Ints) -> Ints:
    """Bytes that are live at each place, each tensor once, and the workspace there, (n,)."""
    sizes, width = instance.memory_arrays, instance.num_ops + 1
    order = np.lexsort((first, uses.tensor))
    tensor = uses.tensor[order]
    offset = tensor * width
    end = np.maximum.accumulate(offset + last[order] + 1)
    begin = np.maximum(offset + first[order], np.concatenate([[0], end])[: len(end)])
    kept = begin < end
    bytes_ = sizes.tensor_bytes[tensor[kept]]
    change = sum_by((begin - offset)[kept], bytes_, width)
    np.subtract.at(change, (end - offset)[kept], bytes_)
    live = np.cumsum(change)[:-1]
    live[place] += sizes.workspace_bytes
    return live


def _on_longest_path(index: GraphIndex) -> Flags:
    """Ops that a path with the most ops goes through."""
    one_each, free = np.ones(len(index.succ_ptr) - 1, np.int64), np.zeros_like(index.consumer)
    succ, order = index.consumer[index.succ_edge], index.topological_order.copy()
    through = critical_paths(Flow(one_each, index.succ_ptr.copy(), succ, free, order))
    return np.asarray(through == through.max(), np.bool_)


@kernel(bounded=True)
def _reached(order: Ints, pointer: Ints, target: Ints, source: int) -> Flags:
    """The source and what it leads to, along arcs that agree with the order."""
    reached = np.zeros(len(order), np.bool_)
    reached[source] = True
    for i in order:
        if reached[i]:
            for j in target[pointer[i] : pointer[i + 1]]:
                reached[j] = True
    return reached
