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
device at p is no more than its largest sum. Of a makespan only what all schedules have in common is
certain: p is the start of a *bottleneck*, an op comparable with every other, that takes time on
every device which runs it. Then "at p or before" means the op or an ancestor: an event that has
begun when p starts; and "at p or after" the op or a descendant, which end later than p starts.
Of all such moments the one counts at which the most bytes are live.

So an instance with these resident bytes, under the rule `sum`, is a relaxation: every plan that
fits at its peak fits there. Bounds and proofs that no plan exists hold for the rule `peak`.

**Ceiling.** An op's state and workspace, all tensors that it writes, each tensor that its group
reads and does not write, and each shared state of its group. A device never holds more at its peak
than the sum of these over its ops. So a plan that fits there, under the rule `sum`, fits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.semantics import LoadSemantics, Semantics, memory_rule
from placegap.instances.structure.bottlenecks import bottlenecks


def relax_memory(instance: Instance, semantics: Semantics) -> tuple[Instance, Semantics]:
    """The instance and semantics themselves under `sum`; the floor, under `sum`, for `peak`.

    Examples
    --------
    >>> from placegap.instances import example
    >>> peak = MaxLoad(memory="peak")
    >>> floor, semantics = relax_memory(example(), peak)
    >>> floor.arrays.resident_bytes.tolist(), semantics.label
    ([21, 0, 10, 0], 'max_load any add')
    """
    if memory_rule(semantics) == "sum":
        return instance, semantics
    plain = semantics.model_copy(update={"memory": "sum"})
    return with_resident(instance, floor_bytes(instance, semantics)), plain


def with_resident(instance: Instance, resident_bytes: Ints) -> Instance:
    """The instance with other resident bytes; nothing is known of its values."""
    sizes = resident_bytes.tolist()
    ops = tuple(
        op if op.resident_bytes == size else op.model_copy(update={"resident_bytes": size})
        for op, size in zip(instance.graph.ops, sizes, strict=True)
    )
    graph = instance.graph.model_copy(update={"ops": ops})
    return instance.model_copy(update={"graph": graph, "best_known": ()})


def floor_bytes(instance: Instance, semantics: Semantics) -> Ints:
    """Bytes (n,) of ops whose sum over a device is never more than it holds at its peak.

    O((n + m) log(n + m)).

    Examples
    --------
    On one device op 3 finds the tensors of op 1 there, both of them, when it writes its own:

    >>> from placegap.instances import example
    >>> floor_bytes(example(), MaxLoad(memory="peak")).tolist()
    [21, 0, 10, 0]
    """
    sizes, arrays = instance.memory_arrays, instance.arrays
    floor = sizes.state_bytes.copy()
    _, first = np.unique(sizes.shared_name, return_index=True)
    np.add.at(floor, sizes.shared_op[first], sizes.shared_bytes)
    if isinstance(semantics, LoadSemantics):
        place, allowed = sizes.step, np.ones(instance.num_ops, np.bool_)
    else:
        place, allowed = arrays.index.topological_position, _certain(instance)
    if not allowed.any():
        return floor
    spans = _spans(instance, place)
    live = _live_bytes(spans, sizes.tensor_bytes, instance.num_ops)
    np.add.at(live, place, sizes.workspace_bytes)
    at = np.zeros(instance.num_ops, np.bool_)
    at[place] = allowed
    moment = int(np.argmax(np.where(at, live, -1)))
    held = (spans[:, 2] <= moment) & (moment <= spans[:, 3])
    tensors, chosen = np.unique(spans[held, 0], return_index=True)  # the producer's group first
    np.add.at(floor, spans[held, 1][chosen], sizes.tensor_bytes[tensors])
    floor[place == moment] += sizes.workspace_bytes[place == moment]
    return floor


def ceiling_bytes(instance: Instance) -> Ints:
    """Bytes (n,) of ops whose sum over a device is never less than it holds at its peak.

    Examples
    --------
    >>> from placegap.instances import example
    >>> ceiling_bytes(example()).tolist()
    [21, 2, 30, 11]
    """
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


def _certain(instance: Instance) -> NDArray[np.bool_]:
    """Bottlenecks that take time on every device which runs them."""
    found = np.zeros(instance.num_ops, np.bool_)
    found[list(bottlenecks(instance))] = True
    time = instance.arrays.time_ns
    found &= ((time > 0) | (time == UNSUPPORTED)).all(axis=1)
    return found


def _spans(instance: Instance, place: Ints) -> Ints:
    """Of each tensor and group that writes or reads it: (tensor, op, first place, last place).

    The op is the first one of the group. Rows are ordered by tensor; the producer's group comes
    first.
    """
    index, group = instance.arrays.index, instance.arrays.group
    tensor = np.concatenate([np.arange(len(index.tensor_producer)), index.tensor])
    op = np.concatenate([index.tensor_producer, index.consumer])
    reads = np.repeat([0, 1], [len(index.tensor_producer), len(index.tensor)])
    order = np.lexsort((place[op], reads, group[op], tensor))
    tensor, op, reads = tensor[order], op[order], reads[order]
    new = np.ones(len(op), np.bool_)
    new[1:] = (tensor[1:] != tensor[:-1]) | (group[op[1:]] != group[op[:-1]])
    at = np.flatnonzero(new)
    if not len(at):
        return np.zeros((0, 4), np.int64)
    last = np.maximum.reduceat(place[op], at)
    rows = np.column_stack([tensor[at], op[at], place[op[at]], last])
    return np.ascontiguousarray(rows[np.lexsort((rows[:, 2], reads[at], rows[:, 0]))])


def _live_bytes(spans: Ints, tensor_bytes: Ints, num_places: int) -> Ints:
    """Bytes of the tensors that have a span at each place, each tensor once, (n,)."""
    width = num_places + 1
    order = np.lexsort((spans[:, 2], spans[:, 0]))
    tensor, first, last = spans[order, 0], spans[order, 2], spans[order, 3]
    end = np.maximum.accumulate(tensor * width + last + 1)
    before = np.concatenate([[0], end[:-1]])
    begin = np.maximum(tensor * width + first, before)
    kept = begin < end
    change = np.zeros(width, np.int64)
    offset = (tensor * width)[kept]
    np.add.at(change, begin[kept] - offset, tensor_bytes[tensor[kept]])
    np.subtract.at(change, end[kept] - offset, tensor_bytes[tensor[kept]])
    return np.cumsum(change)[:num_places]
