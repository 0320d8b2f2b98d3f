"""Blocks of a pipeline's stages: ops that every plan of pipeline_iteration keeps in one stage."""

from __future__ import annotations

import networkx as nx
import numpy as np

from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance


def stage_blocks(instance: Instance) -> Ints | None:
    """Block of each op, (n,), or None if a backward op feeds a forward one.

    Stages never get smaller along an edge between forward ops, nor larger along one between
    backward ops. So colocation groups are nodes, edges between forward ops are arcs, those between
    backward ops reversed arcs, and strongly connected components are blocks. They are numbered
    topologically, by their first ops as far as that leaves a choice.

    Examples
    --------
    >>> from placegap.instances import example
    >>> stage_blocks(example()).tolist()
    [0, 1, 2, 3]
    """
    arrays, index = instance.arrays, instance.arrays.index
    a, b = index.producer, index.consumer
    from_back, to_back = arrays.backward[a], arrays.backward[b]
    if (from_back & ~to_back).any():
        return None
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(arrays.num_groups))
    group = arrays.group
    ends = zip(group[a].tolist(), group[b].tolist(), from_back.tolist(), to_back.tolist(),
               strict=True)  # fmt: skip
    graph.add_edges_from(
        (y, x) if back else (x, y) for x, y, back, other in ends if back == other and x != y
    )
    whole = nx.condensation(graph)
    first = {node: min(whole.nodes[node]["members"]) for node in whole}
    number = np.zeros(arrays.num_groups, np.int64)
    for at, node in enumerate(nx.lexicographical_topological_sort(whole, key=first.__getitem__)):
        number[sorted(whole.nodes[node]["members"])] = at
    return np.asarray(number[group], np.int64)
