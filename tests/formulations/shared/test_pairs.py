"""Which ops and edges come before which."""

from itertools import combinations, product

import networkx as nx
import pytest
from draws.tiny import tiny_instance

from placegap.formulations.shared.pairs import (
    count_unordered_pairs,
    flow_reach,
    op_reach,
    unordered_pairs,
)


@pytest.mark.parametrize("seed", range(10))
def test_reachability_is_that_of_the_line_graph(seed: int) -> None:
    index = tiny_instance(seed, num_ops=8, density=0.3).graph.index
    edges = list(zip(index.producer.tolist(), index.consumer.tolist(), strict=True))
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(range(8))
    paths = nx.transitive_closure(graph)
    ancestors, descendants = op_reach(index)
    before, after = flow_reach(index)
    for i, j in product(range(8), repeat=2):
        assert (descendants[i] >> j & 1) == (ancestors[j] >> i & 1) == paths.has_edge(i, j)
    for (q, (_, middle)), (r, (start, _)) in product(enumerate(edges), repeat=2):
        follows = middle == start or paths.has_edge(middle, start)
        assert (after[q] >> r & 1) == (before[r] >> q & 1) == follows
    pairs = [
        (i, j)
        for i, j in combinations(range(8), 2)
        if not paths.has_edge(i, j) and not paths.has_edge(j, i)
    ]
    assert list(unordered_pairs(ancestors, descendants)) == pairs
    assert count_unordered_pairs(descendants) == len(pairs)
