"""Optimal operation fusion: a topological order cut into segments, each of which becomes one op.

After Celeritas (Xu, Liao, Xie, Zhou): ops are put in an order that follows critical paths depth
first (CPD-TOPO), and the order is cut where the least communication crosses (Kernighan, "Optimal
sequential partitions of graphs", JACM 18(1), 1971). Segments of a topological order never form a
cycle.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import copy_to, kernel
from placegap.instances.problem import Instance
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.graph_index import freeze
from placegap.instances.problem.integers import NO_LIMIT, times_written
from placegap.instances.problem.mean_costs import Flow, flow_of
from placegap.instances.problem.weighted_dag import cpd_topo, predecessors
from placegap.instances.transforms.merge import Merge, merge_groups

REACH = 200  # Celeritas' R: the most ops of a segment
MEMORY_SHARE = 0.25  # Celeritas' M: the most of a device's memory that a segment holds


def fusion_segments(
    arrays: Arrays, flow: Flow, order: Ints, reach: int = REACH, memory_share: float = MEMORY_SHARE
) -> Ints:
    """Cut a topological order so that the least communication crosses the cuts."""
    # It returns the segment of each op. S(j) = min over i >= j - reach of S(i) + cost(i, j)
    # (equations 4 to 6), where cost(i, j) is the time of all edges from the ops at i .. j - 1 to
    # later ones. If several tie, the longest segment is taken. A segment of several ops holds at
    # most the share `memory_share` of the smallest device memory. Added to the paper: some device
    # runs all of its ops, each with its whole colocation group. O(reach (V + E)) at worst.
    least = int(arrays.memory_bytes.min())
    most = NO_LIMIT if least == NO_LIMIT else times_written(memory_share, least)
    patterns, kind = np.unique(arrays.group_runs, axis=0, return_inverse=True)
    kind = kind.reshape(-1).astype(np.int64)[arrays.group]
    begin = _cuts(
        flow, predecessors(flow), order, arrays.resident_bytes, patterns, kind, reach, most
    )
    segment = np.empty(len(order), np.int64)
    segment[order] = np.cumsum(begin) - 1
    return segment


@kernel(bounded=True)
def _cuts(
    flow: Flow,
    before: tuple[Ints, Ints, Ints],
    order: Ints,
    size: Ints,
    patterns: Flags,
    kind: Ints,
    reach: int,
    most: int,
) -> Flags:
    """Whether a segment begins at each position of the order."""
    # `patterns[kind[i]]` are the devices that op i can be on.
    n = len(order)
    position = np.empty(n, np.int64)
    for at in range(n):
        position[order[at]] = at
    into, source, source_ns = before
    leaving = np.zeros(n, np.int64)  # time of all edges out of an op
    for op in range(n):
        for e in range(flow.ptr[op], flow.ptr[op + 1]):
            leaving[op] += flow.edge_ns[e]
    least = np.full(n + 1, NO_LIMIT)
    least[0] = 0
    back = np.zeros(n + 1, np.int64)
    allowed = np.empty(patterns.shape[1], np.bool_)
    for i in range(n):
        cost, held = 0, 0
        last = kind[order[i]]
        copy_to(allowed, patterns[last])
        for j in range(i + 1, min(n, i + reach) + 1):
            op = order[j - 1]
            held += size[op]
            if j > i + 1 and held > most:
                break
            if kind[op] != last:
                last = kind[op]
                left = 0
                for k in range(len(allowed)):
                    allowed[k] = allowed[k] and patterns[last, k]
                    left += allowed[k]
                if left == 0:
                    break
            cost += leaving[op]
            for e in range(into[op], into[op + 1]):
                if position[source[e]] >= i:
                    cost -= source_ns[e]
            if least[i] + cost < least[j]:
                least[j], back[j] = least[i] + cost, i
    begin = np.zeros(n, np.bool_)
    at = n
    while at > 0:
        at = back[at]
        begin[at] = True
    return begin


def fuse(instance: Instance, reach: int = REACH, memory_share: float = MEMORY_SHARE) -> Merge:
    """Celeritas' optimal operation fusion (Algorithm 1): the instance of the fused ops."""
    # Fused ops are in CPD-TOPO order and named after the first of their ops in the instance's
    # topological order. They carry no colocation groups, as these may lie across many of them: a
    # plan is brought back by `expand_plan` where the instance has none, else by `commit_groups`.
    flow = flow_of(instance.arrays)
    segment = fusion_segments(instance.arrays, flow, cpd_topo(flow), reach, memory_share)
    bare = instance
    if any(op.colocation for op in instance.graph.ops):
        ops = tuple(op.model_copy(update={"colocation": None}) for op in instance.graph.ops)
        bare = instance.with_graph(instance.graph.model_copy(update={"ops": ops}))
    found = merge_groups(bare, segment, "fused", "Celeritas")
    merge = Merge(instance, found.coarse, segment, found.edge)
    freeze(merge)
    return merge


def commit_groups(merge: Merge, device: Ints) -> Ints:
    """Device of each op, given that of each fused op: a colocation group follows its first op."""
    # First in the order of the fused ops, as in Celeritas (6.1), then in topological order. Nothing
    # is checked: devices may lack the memory for whole groups, or the support.
    arrays = merge.fine.arrays
    order = np.lexsort((arrays.index.topological_position, merge.op))
    _, first = np.unique(arrays.group[order], return_index=True)
    home: Ints = device[merge.op[order[first]]]
    return home[arrays.group]
