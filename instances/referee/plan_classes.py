"""Classes of plans: regions (devices, or servers) that are convex, or that form a chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Violation
from placegap.instances.problem.semantics import PlanClass


def check_class(
    instance: Instance, plans: PlanClass, region: Ints, names: Sequence[str], noun: str
) -> Iterator[Violation]:
    """What keeps the regions from being of a class of plans.

    Parameters
    ----------
    instance : Instance
    plans : {"any", "convex", "chain"}
    region : (n,) int64
        Region of each op.
    names : sequence of str
        Of the regions.
    noun : {"device", "server"}
        What the regions are.
    """
    if plans == "convex":
        yield from _convex(instance, region, names, noun)
    elif plans == "chain":
        yield from _chain(instance, region, names, noun)


def _convex(
    instance: Instance, region: Ints, names: Sequence[str], noun: str
) -> Iterator[Violation]:
    """No path over forward ops leaves a region and comes back (Tarnawski et al., contiguity)."""
    arrays = instance.arrays
    index = arrays.index
    # left[i]: regions that some forward path into op i has left; bits of a Python integer
    left = [0] * instance.num_ops
    for i in index.topological_order.tolist():
        if arrays.backward[i]:
            continue
        for e in index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]].tolist():
            j = int(index.producer[e])
            if not arrays.backward[j]:
                left[i] |= left[j] | ((1 << int(region[j])) if region[j] != region[i] else 0)
        if left[i] >> int(region[i]) & 1:
            op, name = instance.graph.ops[i].name, names[region[i]]
            yield Violation(
                "convex",
                f"a path leaves {noun} {name!r} and comes back to it at op {op!r}",
                op=op,
                device=name if noun == "device" else None,
            )


def _chain(
    instance: Instance, region: Ints, names: Sequence[str], noun: str
) -> Iterator[Violation]:
    """The forward parts of the regions form a chain: no cycle in the graph of regions.

    A colour class without a forward op counts as a forward block whose edges mirror its backward
    edges (Tarnawski et al., orphans). Colour classes are whole by the colocation rule.
    """
    arrays = instance.arrays
    index, backward = arrays.index, arrays.backward
    has_forward = np.zeros(arrays.num_groups, np.bool_)
    has_forward[arrays.group[~backward]] = True
    orphan = ~has_forward[arrays.group]
    tail, head = index.producer, index.consumer
    forward = ~backward[tail] & ~backward[head]
    mirrored = backward[tail] & backward[head] & (orphan[tail] | orphan[head])
    arcs: dict[tuple[int, int], tuple[int, int]] = {}
    for mask, ends in ((forward, (tail, head)), (mirrored, (head, tail))):
        for a, b in zip(ends[0][mask].tolist(), ends[1][mask].tolist(), strict=True):
            if region[a] != region[b]:
                arcs.setdefault((int(region[a]), int(region[b])), (a, b))
    import networkx as nx  # loaded when used: a tenth of a second

    quotient = nx.DiGraph(list(arcs))
    try:
        cycle = [(int(arc[0]), int(arc[1])) for arc in nx.find_cycle(quotient)]
    except nx.NetworkXNoCycle:
        return
    around = [names[a] for a, _ in cycle]
    a, b = (instance.graph.ops[i].name for i in arcs[cycle[-1]])
    yield Violation(
        "chain",
        f"the {noun}s feed each other in a cycle: {' -> '.join([*around, around[0]])}"
        f" (for instance {a!r} feeds {b!r})",
        op=a,
        device=around[0] if noun == "device" else None,
    )
