"""Co-placement: ops and their only consumers, to the fixed point."""

from __future__ import annotations

import networkx as nx
import pytest
from draws import draw
from draws.tiny import tiny_instance

from placegap.instances import Edge, Instance, Op, generate
from placegap.instances.transforms.colocation import co_place


def net(pairs: str, memory: int | None = None, **ops: dict[str, object]) -> Instance:
    """Edges "a-b .." between ops of one byte on one gpu."""
    ends = [pair.split("-") for pair in pairs.split()]
    names = dict.fromkeys(name for end in ends for name in end)
    made = [
        Op(**{"name": n, "time_ns": {"gpu": 1}, "resident_bytes": 1, **ops.get(n, {})})
        for n in names
    ]
    edges = [Edge(producer=a, consumer=b) for a, b in ends]
    return draw.instance_of("net", made, edges, draw.devices(["gpu"], lambda k: memory))


def groups(instance: Instance, **options: bool) -> list[str]:
    names: dict[int, str] = {}
    for op, c in zip(instance.graph.ops, co_place(instance, **options).op.tolist(), strict=True):
        names[c] = names.get(c, "") + op.name
    return sorted(names.values())


def test_an_op_joins_its_only_consumer_and_not_one_of_several() -> None:
    assert groups(net("a-b b-c b-d")) == ["ab", "c", "d"]


def test_consumers_that_became_one_op_are_one_consumer() -> None:
    # b and c have d as their only consumer, and then a has it
    assert groups(net("a-b a-c b-d c-d")) == ["abcd"]
    assert groups(net("a-b a-c b-d c-d"), fixed_point=False) == ["a", "bcd"]


def test_the_passes_of_a_training_graph_stay_apart() -> None:
    # forward a -> b, backward B -> A; a's activation also feeds A
    training = net("a-b b-B B-A a-A", A={"backward": True}, B={"backward": True})
    assert groups(training) == ["BA", "a", "b"]


def test_what_no_device_holds_together_stays_apart() -> None:
    # later ops first: c with d, then b with them; a would be the fourth byte
    assert groups(net("a-b b-c c-d", memory=4)) == ["abcd"]
    assert groups(net("a-b b-c c-d", memory=3)) == ["a", "bcd"]


def naive_fixed_point(instance: Instance) -> set[frozenset[str]]:
    """Merge any op with its only consumer, until there is none; as networkx contracts nodes."""
    graph: nx.DiGraph[frozenset[str]] = nx.DiGraph()
    graph.add_nodes_from(frozenset((op.name,)) for op in instance.graph.ops)
    graph.add_edges_from(
        (frozenset((e.producer,)), frozenset((e.consumer,))) for e in instance.graph.edges
    )
    while True:
        found = next(((v, *graph.succ[v]) for v in graph if len(graph.succ[v]) == 1), None)
        if found is None:
            return set(graph)
        both = found[0] | found[1]
        graph = nx.relabel_nodes(graph, dict.fromkeys(found, both))
        graph.remove_edges_from([(both, both)])


@pytest.mark.parametrize("seed", range(6))
def test_one_pass_reaches_the_fixed_point(seed: int) -> None:
    drawn = tiny_instance(seed, num_ops=10, density=0.2)
    ops = tuple(
        op.model_copy(update={"time_ns": {"gpu": 1}, "colocation": None}) for op in drawn.graph.ops
    )
    instance = draw.instance_of("free", ops, drawn.graph.edges, draw.devices(["gpu"]))
    merge = co_place(instance)
    found: dict[int, set[str]] = {}
    for op, c in zip(instance.graph.ops, merge.op.tolist(), strict=True):
        found.setdefault(c, set()).add(op.name)
    assert {frozenset(names) for names in found.values()} == naive_fixed_point(instance)


def test_a_long_chain_is_no_deeper_than_a_short_one() -> None:
    graph = generate("parallel-chains", {"chains": 3, "length": 400, "kinds": "gpu:1"})
    merge = co_place(draw.instance_of("chains", graph.ops, graph.edges, draw.devices(["gpu"])))
    assert merge.coarse.num_ops == 3
