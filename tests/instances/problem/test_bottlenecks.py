"""Bottlenecks, cuts, sections and intervals, against their definitions."""

from __future__ import annotations

from itertools import combinations, pairwise

import networkx as nx
import pytest
from draws.bottlenecks import bottleneck_instance
from draws.tiny import tiny_instance
from features.makespan import anywhere, instance

from placegap.instances import Instance
from placegap.instances.problem.sections import (
    SectionMaker,
    bottlenecks,
    choose_chain,
    cuts,
    intervals,
    sections_between,
)


def draws() -> list[Instance]:
    layered = [bottleneck_instance(seed) for seed in range(60)]
    return layered + [tiny_instance(seed, num_ops=8, density=0.3) for seed in range(40)]


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
    assert number > 100


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
    assert min(lost.values()) > 5


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


def test_the_instance_of_a_section_is_the_section() -> None:
    for problem in draws()[::7]:
        maker, arrays = SectionMaker(problem), problem.arrays
        for section in sections_between(problem, cuts(problem)):
            if not section.num_inner:
                continue
            made = maker.make(section, None, None).arrays
            ops, edges = list(section.ops), list(section.edges)
            assert (made.time_ns == arrays.time_ns[ops]).all()
            assert [ops[i] for i in made.index.producer] == arrays.index.producer[edges].tolist()
            assert [ops[i] for i in made.index.consumer] == arrays.index.consumer[edges].tolist()
            moves = made.transfer_ns[made.index.tensor][:, made.link_class]
            tensors = arrays.index.tensor[edges]
            assert (moves == arrays.transfer_ns[tensors][:, arrays.link_class]).all()
            for p, q in combinations(range(len(edges)), 2):
                same = made.index.tensor[p] == made.index.tensor[q]
                assert same == (tensors[p] == tensors[q])
            groups = arrays.group[ops]
            for i, j in combinations(range(len(ops)), 2):
                assert (made.group[i] == made.group[j]) == (groups[i] == groups[j])


def test_an_interval_holds_all_ops_between_its_ends() -> None:
    number = 0
    for problem in draws():
        made = graph(problem)
        for entry, leave, inner in intervals(problem):
            between = nx.descendants(made, entry) & nx.ancestors(made, leave)
            assert set(inner) == between
            assert nx.immediate_dominators(made, entry)[leave] == entry
            number += 1
    assert number > 100


def test_large_intervals_are_no_candidates() -> None:
    for problem in draws()[::5]:
        sizes = [len(inner) for _, _, inner in intervals(problem)]
        assert [len(inner) for _, _, inner in intervals(problem, most_ops=1)] == [
            size for size in sizes if size <= 1
        ]


def test_a_chain_leads_from_op_to_op() -> None:
    longest = 0
    for problem in draws():
        chain = choose_chain(problem, intervals(problem))
        for here, there in pairwise(chain):
            assert here.exit == there.entry
        for section in chain:
            assert section.entry == section.ops[0]
            assert section.exit == section.ops[-1]
        longest = max(longest, sum(section.num_inner for section in chain))
    assert longest >= 3


@pytest.mark.parametrize("most", [1, 10**6])
def test_a_graph_without_edges_has_no_chain(most: int) -> None:
    alone = instance("alone", [anywhere("a", 1), anywhere("b", 2)], [])
    assert bottlenecks(alone) == ()
    assert choose_chain(alone, intervals(alone, most)) == ()
