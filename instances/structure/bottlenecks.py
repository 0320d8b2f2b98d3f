"""Bottlenecks: ops comparable with every other op, and the cuts at which every schedule splits.

**Theorem.** Let u be an op such that

1. every other op is an ancestor or a descendant of u (u is a *bottleneck*);
2. no edge leads from an ancestor of u to a descendant of u (none *skips* u);
3. no colocation group without u has ops on both sides of u.

Then u is a *cut*. If moreover memory is slack (`memory_is_slack`), the least makespan is the length
of a shortest path over the pairs (cut, device), where the arc from (u, a) to (v, b), for
neighbouring cuts u and v, is the least time from the end of u on a to the end of v on b, with the
ops between u and v placed and scheduled for that alone. This holds under every semantics of the
makespan: any channels, transfers per edge or per tensor.

*Proof.* Take any schedule. When u ends, all its ancestors have ended, by 1; so has every transfer
into an op up to u, and by 2 there is no other transfer out of an ancestor of u: a tensor of one has
all its consumers up to u. Everything else, transfers out of u included, waits for the end of u. So
at this moment all devices and all channels are idle, and what follows depends on the past through
the device of u alone: a schedule is one of the ancestors and u, and then one of the descendants,
that may be chosen independently of each other given the device of u. (3: a group that has u is
pinned on both sides by u's device; any other lies on one side. Slack memory: any placement of one
side goes with any placement of the other.) Splitting at all cuts gives the path; end to end, the
schedules of its arcs make a schedule of the whole.

*What remains without the conditions.* For ops u before v, restrict any schedule to u, the ops
strictly between u and v, and v, and to the transfers among them, from the end of u on: it is a
schedule of that section. So the end of v minus the end of u is never less than the section's least
time with both devices fixed, skipping edges, colocation across and tight memory notwithstanding.
Sums of such arcs are therefore always *bounds*; only that the bound is reached needs 1 to 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_LIMIT, UNSUPPORTED


def bottlenecks(instance: Instance) -> tuple[int, ...]:
    """Ops that are comparable with every other op, in topological order; O(n + m).

    All ops before position p of a topological order are ancestors of the op at p if and only if
    each of them has a successor at p or before: following such successors ends at p. Likewise for
    descendants and predecessors.

    Examples
    --------
    >>> from placegap.instances import example
    >>> bottlenecks(example())
    (0, 3)
    """
    index, n = instance.arrays.index, instance.num_ops
    tail, head = (
        index.topological_position[index.producer],
        index.topological_position[index.consumer],
    )
    first_succ, last_pred = np.full(n, n), np.full(n, -1)
    np.minimum.at(first_succ, tail, head)
    np.maximum.at(last_pred, head, tail)
    latest = np.maximum.accumulate(np.concatenate([[-1], first_succ[:-1]]))
    earliest = np.minimum.accumulate(np.concatenate([last_pred[1:], [n]])[::-1])[::-1]
    at = np.arange(n)
    found = index.topological_order[(latest <= at) & (earliest >= at)]
    return tuple(found.tolist())


def cuts(instance: Instance) -> tuple[int, ...]:
    """The bottlenecks that no edge skips and no colocation group spans, in topological order.

    O(n + m). With slack memory every schedule splits there (the theorem above).

    Examples
    --------
    An edge from the first op to the last skips the one between:

    >>> from placegap.instances import Cluster, Device, Edge, Graph, Op
    >>> ops = tuple(Op(name=name, time_ns={"gpu": 1}) for name in "abc")
    >>> edges = [Edge(producer="a", consumer="b"), Edge(producer="b", consumer="c")]
    >>> device = Device(name="d", kind="gpu")
    >>> def made(edges):
    ...     graph = Graph(name="g", ops=ops, edges=tuple(edges))
    ...     return Instance(name="i", graph=graph, cluster=Cluster(name="c", devices=(device,)))
    >>> cuts(made(edges)), cuts(made([*edges, Edge(producer="a", consumer="c")]))
    ((0, 1, 2), (0, 2))
    """
    position = instance.arrays.index.topological_position
    spanned = _inside(instance, *_edge_spans(instance)) | _across_groups(instance)
    return tuple(u for u in bottlenecks(instance) if not spanned[position[u]])


def _edge_spans(instance: Instance) -> tuple[Ints, Ints]:
    index = instance.arrays.index
    position = index.topological_position
    return position[index.producer], position[index.consumer]


def _inside(instance: Instance, first: Ints, last: Ints) -> Flags:
    """Positions strictly inside one of the spans (first, last)."""
    change = np.zeros(instance.num_ops + 1, np.int64)
    long = last > first + 1
    np.add.at(change, first[long] + 1, 1)
    np.add.at(change, last[long], -1)
    covered: Flags = np.cumsum(change[:-1]) > 0
    return covered


def _across_groups(instance: Instance) -> Flags:
    """Positions with ops of one group before and after that is not the position's own group.

    A group spans the positions between its neighbouring members, its members' own aside.
    """
    arrays = instance.arrays
    pointer, members = group_by(arrays.group, arrays.num_groups)
    position = arrays.index.topological_position
    first, last = [], []
    for g in np.flatnonzero(np.diff(pointer) > 1).tolist():
        places = np.sort(position[members[pointer[g] : pointer[g + 1]]])
        first.append(places[:-1])
        last.append(places[1:])
    if not first:
        return np.zeros(instance.num_ops, np.bool_)
    return _inside(instance, np.concatenate(first), np.concatenate(last))


def memory_is_slack(instance: Instance, ops: Iterable[int] | None = None) -> bool:
    """Whether every device can hold all the ops that it can run at once: no limit ever binds.

    Parameters
    ----------
    instance : Instance
    ops : iterable of int, optional
        Only these ops; by default all.

    Examples
    --------
    >>> from placegap.instances import example
    >>> memory_is_slack(example())
    True
    """
    arrays = instance.arrays
    chosen: Sequence[int] | Ints = np.arange(instance.num_ops) if ops is None else list(ops)
    able = arrays.time_ns[chosen] != UNSUPPORTED
    need = (able * arrays.resident_bytes[chosen][:, None]).sum(axis=0)
    return bool(((need <= arrays.memory_bytes) | (arrays.memory_bytes == NO_LIMIT)).all())
