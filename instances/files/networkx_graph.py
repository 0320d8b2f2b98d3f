"""Graphs as networkx graphs, there and back."""

from __future__ import annotations

from typing import Any

import networkx as nx
from pydantic import ValidationError

from placegap.instances.problem.instance import Graph
from placegap.instances.reading.errors import InputError, from_validation_error, paused_collector


def to_networkx(graph: Graph) -> nx.MultiDiGraph[str]:
    """The graph as a networkx multigraph: ops by name, all other fields as attributes.

    Edges carry an attribute `position`, their place in ``graph.edges``, so that
    ``from_networkx(to_networkx(graph)) == graph``. O(n + m).

    Examples
    --------
    >>> from placegap.instances import example
    >>> network = to_networkx(example().graph)
    >>> nx.dag_longest_path(network)
    ['op1', 'op2', 'op4']
    >>> network.nodes["op2"]["time_ns"], network.edges["op1", "op2", 0]["bytes"]
    ({'gpu': 20}, 1)
    """
    network: nx.MultiDiGraph[str] = nx.MultiDiGraph(
        name=graph.name, provenance=graph.provenance.model_dump()
    )
    with paused_collector():
        network.add_nodes_from((op.name, op.model_dump(exclude={"name"})) for op in graph.ops)
        network.add_edges_from(
            (edge.producer, edge.consumer, _attributes(edge.model_dump(), position))
            for position, edge in enumerate(graph.edges)
        )
    return network


def from_networkx(network: nx.DiGraph[Any]) -> Graph:
    """Make a graph from a directed networkx graph or multigraph.

    Nodes become ops, named by ``str(node)``; their attributes are the fields of `Op`, those of
    edges the fields of `Edge`. Absent attributes take their defaults. Edges come in the order of
    their attribute `position` where all have one, else in networkx's.

    Raises
    ------
    InputError
        If the network is not directed, an attribute is unknown or wrong, or the ops and edges are
        no graph of placegap's (`Graph`).

    Examples
    --------
    >>> network = nx.DiGraph(name="pair")
    >>> network.add_node("a", time_ns={"gpu": 5})
    >>> network.add_edge("a", "b", bytes=1024)
    >>> [op.name for op in from_networkx(network).ops]
    ['a', 'b']
    """
    if not network.is_directed():
        raise InputError("networkx: the graph must be directed")
    arcs = list(network.edges(data=True))
    if all("position" in data for _, _, data in arcs):
        arcs.sort(key=lambda arc: arc[2]["position"])
    content = {
        "name": network.graph.get("name") or "networkx",
        "provenance": network.graph.get("provenance", {}),
        "ops": tuple({**data, "name": str(node)} for node, data in network.nodes(data=True)),
        "edges": tuple(
            {
                **{key: value for key, value in data.items() if key != "position"},
                "producer": str(a),
                "consumer": str(b),
            }
            for a, b, data in arcs
        ),
    }
    try:
        with paused_collector():
            return Graph.model_validate(content)
    except ValidationError as error:
        raise from_validation_error(error, content, "networkx") from None


def _attributes(fields: dict[str, Any], position: int) -> dict[str, Any]:
    del fields["producer"], fields["consumer"]
    return {**fields, "position": position}
