"""Co-placement: an op and its only consumer become one op, as Baechi's grouper does."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.instance import Instance
from placegap.instances.transforms.colocation import Together
from placegap.instances.transforms.merge import Merge, merge_groups


def co_place(instance: Instance, *, fixed_point: bool = True) -> Merge:
    """Merge every op with its only consumer, and what is merged with its only consumer again.

    Jeon et al., "Baechi: fast device placement of machine learning graphs" (SoCC 2020): the
    co-placement heuristic, to a fixed point. Ops are met against the topological order: whether an
    op's consumers are one merged op depends on later ops only, so that one pass reaches the fixed
    point. All consumers of every op of a merged one but its last are within, so that no path leaves
    a merged op and comes back to it, and no cycle arises.

    Added: a pair is passed over if the two are of different passes, or if no device runs and holds
    all that must be with them. A graph with one sink becomes one op where memory allows: this is
    made for training graphs, whose activations have a second consumer in the backward pass.

    Parameters
    ----------
    instance : Instance
    fixed_point : bool
        Without it an op joins its consumer only if it has a single one to begin with, so that what
        is merged are trees.

    Returns
    -------
    Merge
        Merged ops are in the order of their last ops. O((V + E) K).

    Examples
    --------
    Ops 2 and 3 of the diamond have op 4 as their only consumer, and then op 1 has it, too:

    >>> from placegap.instances import example
    >>> co_place(example()).op.tolist(), co_place(example(), fixed_point=False).op.tolist()
    ([0, 0, 0, 0], [0, 1, 1, 1])
    """
    arrays = instance.arrays
    index, backward, group = arrays.index, arrays.backward.tolist(), arrays.group.tolist()
    target, ptr = index.consumer[index.succ_edge].tolist(), index.succ_ptr.tolist()
    together = Together(instance)
    last = list(range(instance.num_ops))  # of the merged op that each op belongs to
    for i in index.topological_order[::-1].tolist():
        consumers = target[ptr[i] : ptr[i + 1]]
        ends = {last[j] for j in consumers}
        if len(ends) != 1 or (not fixed_point and len(set(consumers)) > 1):
            continue
        (end,) = ends
        if backward[i] == backward[end] and together.may_join(group[i], group[end]):
            together.join(group[i], group[end])
            last[i] = end
    op = np.unique(last, return_inverse=True)[1].astype(np.int64)
    return merge_groups(instance, op, "merged", "Baechi's co-placement")
