"""Blocks of a pipeline's stages: ops that every plan of pipeline_iteration keeps in one stage."""

from __future__ import annotations

import networkx as nx
import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.gradients import exchanged_edges
from placegap.instances.problem.instance import Instance


def stage_blocks(instance: Instance) -> Ints | None:
    """Block of each op, (n,), or None if a backward op feeds a forward one.

    Stages never get smaller along an edge between forward ops, nor larger along one between
    backward ops. So colocation groups are nodes, edges between forward ops are arcs, those between
    backward ops reversed arcs, and strongly connected components are blocks. They are numbered
    topologically, by their first ops as far as that leaves a choice. Exchanges of a shared weight's
    gradients (`exchanged_edges`) are no arcs.

    Examples
    --------
    >>> from placegap.instances import example
    >>> stage_blocks(example()).tolist()
    [0, 1, 2, 3]
    """
    arrays, index = instance.arrays, instance.arrays.index
    if (arrays.backward[index.producer] & ~arrays.backward[index.consumer]).any():
        return None
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(arrays.num_groups))
    tail, head = arrays.group[stage_arcs(instance)]
    graph.add_edges_from(
        (x, y) for x, y in zip(tail.tolist(), head.tolist(), strict=True) if x != y
    )
    whole = nx.condensation(graph)
    first = {node: min(whole.nodes[node]["members"]) for node in whole}
    number = np.zeros(arrays.num_groups, np.int64)
    for at, node in enumerate(nx.lexicographical_topological_sort(whole, key=first.__getitem__)):
        number[sorted(whole.nodes[node]["members"])] = at
    return np.asarray(number[arrays.group], np.int64)


def stage_arcs(instance: Instance) -> Ints:
    """Pairs of ops of one pass whose stages never get smaller from the first to the second, (2, e).

    Edges between forward ops, then reversed edges between backward ops, exchanges left out.

    Examples
    --------
    >>> from placegap.instances import example
    >>> stage_arcs(example()).tolist()
    [[0, 0, 1, 2], [1, 2, 3, 3]]
    """
    backward, index = instance.arrays.backward, instance.arrays.index
    bind = ~exchanged_edges(instance)
    a, b = index.producer[bind], index.consumer[bind]
    forth, back = (
        (backward[a] == backward[b]) & (backward[a] == of_pass) for of_pass in (False, True)
    )
    ends = np.append(a[forth], b[back]), np.append(b[forth], a[back])
    return np.asarray(np.stack(ends), np.int64)


def gradient_tie(instance: Instance) -> str | None:
    """Why there are fewer blocks than devices, in a sentence, where gradients run with the layers.

    It names an edge from backward op to backward op that leads the way of a forward edge between
    the same layers. None where there are blocks enough, or no such edge.
    """
    block = stage_blocks(instance)
    number = 0 if block is None else int(block.max()) + 1
    if block is None or number >= instance.num_devices:
        return None
    group, arcs, ops = instance.arrays.group, stage_arcs(instance), instance.graph.ops
    against = instance.arrays.backward[arcs[0]]
    forward = {(int(a), int(b)) for a, b in group[arcs[:, ~against]].T}
    for y, x in arcs[:, against].T.tolist():
        if group[x] != group[y] and (int(group[x]), int(group[y])) in forward:
            return (
                f"{number} of its parts may be a stage, as gradients go to earlier stages, but"
                f" {ops[x].name!r} feeds {ops[y].name!r} of a later layer; if the edges of the"
                " backward pass are stated the wrong way round, turn them"
            )
    return None
