"""Fused ops are faster than their ops one by one: what they hand on inside is never written."""

from __future__ import annotations

import numpy as np

from placegap.instances.costing.costing import roofline_ns, specs_of
from placegap.instances.costing.launches import bytes_inside
from placegap.instances.problem import Instance
from placegap.instances.transforms.merge import Merge


def with_fused_times(merge: Merge) -> Instance:
    """The coarse instance where a merged op takes the time of its roofline as one kernel.

    It computes what its ops compute, is launched once, and moves what they move but for the tensors
    between them, which are neither written, unless others read them, nor read. Kinds whose rates
    nobody knows, and ops without FLOPs or bytes moved, keep the sum of the times; so does an op
    that would be slower as one kernel. The name is that of the fine instance, for the network is
    the same. O(n + m).

    Parameters
    ----------
    merge : Merge
        After fusion, as `fuse_by_rules` makes it.
    """
    fine, coarse = merge.fine, merge.coarse
    saved = bytes_inside(fine.arrays.index, fine.memory_arrays.tensor_bytes, merge.op)
    specs, ops = specs_of(coarse.cluster), list(coarse.graph.ops)
    for c in np.flatnonzero(np.bincount(merge.op) > 1).tolist():
        op = ops[c]
        if op.flops is None or op.bytes_moved is None:
            continue
        moved = max(0, op.bytes_moved - int(saved[c]))
        time_ns = {
            kind: min(time, roofline_ns(op.flops, moved, specs[kind], dtype=op.dtype))
            if kind in specs
            else time
            for kind, time in op.time_ns.items()
        }
        ops[c] = op.model_copy(update={"time_ns": time_ns, "bytes_moved": moved})
    graph = coarse.graph.model_copy(update={"ops": tuple(ops)})
    return Instance(name=fine.name, graph=graph, cluster=coarse.cluster)
