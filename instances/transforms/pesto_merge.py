"""Coarsening by merging ops, so that a model of the merged graph is small enough to solve.

After Hafeez et al., "Towards Optimal Placement and Scheduling of DNN Operations with Pesto"
(Middleware 2021): merge ops that an edge joins, if that makes no cycle, until few are left. A plan
of the merged instance is a plan of the instance; not the other way round, so that a bound for the
merged instance is none for the instance.
"""

from __future__ import annotations

from placegap.instances.problem.instance import Instance
from placegap.instances.transforms.merge import Merge, merge_groups
from placegap.instances.transforms.pesto_merge import Contraction, MergeOrder


def merge_ops(instance: Instance, num_ops: int, order: MergeOrder = "dearest_first") -> Merge:
    """Merge the ops of an instance, two by two along edges, until `num_ops` are left.

    The next pair is the one that is dearest (or cheapest) to separate: the sum, over the tensors
    between the two and over all ordered pairs of devices, of the transfer times; of equal ones the
    first in topological order. What is known of Pesto's rule, "cheapest to separate first", can be
    read either way. The dearest first is the default: a transfer between merged ops is saved for
    good, so that the largest should be. Pairs are passed over

    - that a second path joins: merged, they would be on a cycle;
    - of a forward and a backward op;
    - whose ops, together with their colocation groups, no single device could run and hold.

    Parameters
    ----------
    instance : Instance
    num_ops : int
        At least 1. More ops are left where no pair can be merged any more.
    order : {"dearest_first", "cheapest_first"}

    Returns
    -------
    Merge
        Merged ops are named after their first op, and in the order of these.

    Notes
    -----
    A topological order of the merged graph is kept up to date (Pearce and Kelly 2006), so that a
    cycle is looked for, and repaired, among the ops between the two only. Every merge looks at the
    edges at the merged op again: O((n d + m) log m) beside these searches, for d edges at an op.

    Examples
    --------
    In the diamond 1 -> 2, 3 -> 4 the edge 1 -> 3 is the dearest, then 3 -> 4, which the path over 2
    rules out, then those at 2.

    >>> from placegap.instances import example
    >>> merge = merge_ops(example(), 3)
    >>> merge.op.tolist(), [op.time_ns["gpu"] for op in merge.coarse.graph.ops]
    ([0, 1, 0, 2], [15, 20, 8])
    """
    if num_ops < 1:
        raise ValueError(f"cannot merge to {num_ops} ops")
    contraction = Contraction(instance, order)
    contraction.run(num_ops)
    return merge_groups(instance, contraction.parts(instance), "merged", "Pesto")
