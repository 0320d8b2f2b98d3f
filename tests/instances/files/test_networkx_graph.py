"""Graphs go to networkx and come back as they were."""

from __future__ import annotations

import networkx as nx
import pytest
from draws.every_field import rich_graph
from draws.tiny import tiny_instance

from placegap.instances import Edge, InputError, Op
from placegap.instances.files.document import from_networkx, to_networkx


def test_the_round_trip_is_exact() -> None:
    for graph in (rich_graph(), *(tiny_instance(seed, num_ops=9).graph for seed in range(20))):
        assert from_networkx(to_networkx(graph)) == graph


def test_a_plain_digraph_becomes_a_graph_with_defaults() -> None:
    network = nx.DiGraph()
    network.add_edge(1, 2, bytes=64)
    network.nodes[1]["time_ns"] = {"gpu": 5}
    graph = from_networkx(network)
    assert graph.name == "networkx"
    assert graph.ops == (Op(name="1", time_ns={"gpu": 5}), Op(name="2"))
    assert graph.edges == (Edge(producer="1", consumer="2", bytes=64),)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nx.Graph([("a", "b")]), "must be directed"),
        (nx.DiGraph([("a", "b"), ("b", "a")]), "cycle: a -> b -> a"),
        (nx.DiGraph([("a", "b", {"weight": 2})]), r"edges\[0\] 'a -> b'.weight: unknown field"),
        (nx.DiGraph(), "ops: must not be empty"),
    ],
)
def test_a_network_that_is_no_graph_is_an_error(network: nx.DiGraph[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_networkx(network)
