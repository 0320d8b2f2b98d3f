"""Bottlenecks, cuts, sections and intervals, against their definitions."""

from __future__ import annotations

import networkx as nx
import pytest
from draws.bottlenecks import bottleneck_instance
from draws.tiny import tiny_instance
from features.makespan import anywhere, instance

from placegap.instances import Instance
from placegap.instances.problem.sections import (
    bottlenecks,
    choose_chain,
    cuts,
    intervals,
    sections_between,
)


def draws() -> list[Instance]:
    layered = [bottleneck_instance(seed) for seed in range(20)]
    return layered + [tiny_instance(seed, num_ops=8, density=0.3) for seed in range(14)]


def graph(problem: Instance) -> nx.DiGraph[int]:
    index = problem.arrays.index
    made: nx.DiGraph[int] = nx.DiGraph()
    made.add_nodes_from(range(problem.num_ops))
    made.add_edges_from(zip(index.producer.tolist(), index.consumer.tolist(), strict=True))
    return made


def test_a_bottleneck_is_comparable_with_every_other_op() -> None:
    number = 0
    for problem in draws():
        made = graph(problem)
        expected = {
            u for u in made if len(nx.ancestors(made, u) | nx.descendants(made, u)) == len(made) - 1
        }
        assert set(bottlenecks(problem)) == expected
        number += len(expected)
    assert number > 30


def test_cuts_are_the_bottlenecks_that_nothing_skips() -> None:
    lost = {"edges": 0, "groups": 0}
    for problem in draws():
        made, group = graph(problem), problem.arrays.group.tolist()
        for u in bottlenecks(problem):
            before, after = nx.ancestors(made, u), nx.descendants(made, u)
            skips = any(a in before and b in after for a, b in made.edges)
            across = {group[a] for a in before} & {group[b] for b in after} - {group[u]}
            assert (u in cuts(problem)) == (not skips and not across)
            lost["edges"] += skips
            lost["groups"] += bool(across)
    assert min(lost.values()) > 1


def test_memory_is_slack_if_every_device_holds_what_it_can_run() -> None:
    ops = [anywhere("a", 1, resident_bytes=3), anywhere("b", 1, resident_bytes=3)]
    assert instance("six", ops, [], memory_bytes=6).arrays.memory_is_slack
    tight = instance("five", ops, [], memory_bytes=5)
    assert not tight.arrays.memory_is_slack
    ops[1] = ops[1].model_copy(update={"time_ns": {"kind1": 1}})  # d0 cannot run it
    assert not instance("d1", ops, [], memory_bytes=5).arrays.memory_is_slack


def test_sections_share_the_cuts_and_nothing_else() -> None:
    for problem in draws():
        found = cuts(problem)
        sections = sections_between(problem, found)
        assert [s.entry for s in sections] == [None, *found]
        assert [s.exit for s in sections] == [*found, None]
        inner = [i for s in sections for i in s.ops if i not in (s.entry, s.exit)]
        assert sorted([*inner, *found]) == list(range(problem.num_ops))
        edges = sorted(e for s in sections for e in s.edges)
        assert edges == list(range(len(problem.graph.edges)))  # no edge skips a cut


def test_an_interval_holds_all_ops_between_its_ends() -> None:
    number = 0
    for problem in draws():
        made = graph(problem)
        for entry, leave, inner in intervals(problem):
            between = nx.descendants(made, entry) & nx.ancestors(made, leave)
            assert set(inner) == between
            assert nx.immediate_dominators(made, entry)[leave] == entry
            number += 1
        sizes = [len(inner) for _, _, inner in intervals(problem)]
        small = [len(inner) for _, _, inner in intervals(problem, most_ops=1)]
        assert small == [size for size in sizes if size <= 1]
    assert number > 30


@pytest.mark.parametrize("most", [1, 10**6])
def test_a_graph_without_edges_has_no_chain(most: int) -> None:
    alone = instance("alone", [anywhere("a", 1), anywhere("b", 2)], [])
    assert bottlenecks(alone) == ()
    assert choose_chain(alone, intervals(alone, most)) == ()
