"""Chains of nested layers: short sections, and none that a dearer tensor skips."""

from __future__ import annotations

import pytest

from placegap.instances import Instance
from placegap.instances.problem.instance import Cluster, Device, Edge, Graph, Link, Op
from placegap.instances.problem.sections import Interval, choose_chain, intervals
from placegap.solvers.bounds.nested_layers import chains
from placegap.solvers.bounds.nested_layers.chains import joined_where_cheap, layer_chains


def instance_of(num_ops: int, edges: list[tuple[int, int, int]]) -> Instance:
    """Ops of 1 ns on two devices, and edges (producer, consumer, bytes) that take 1 ns per byte."""
    names = ("here", "there")
    return Instance(
        name="row",
        graph=Graph(
            name="row",
            ops=tuple(Op(name=str(i), time_ns={"gpu": 1}) for i in range(num_ops)),
            edges=tuple(Edge(producer=str(u), consumer=str(v), bytes=b) for u, v, b in edges),
        ),
        cluster=Cluster(
            name="pair",
            devices=tuple(Device(name=k, kind="gpu") for k in names),
            links=tuple(
                Link(source=a, target=b, bandwidth_bytes_per_s=10**9)
                for a, b in (names, names[::-1])
            ),
        ),
    )


def row(skipping_bytes: int) -> Instance:
    """A row of five ops; the tensor from 2 to 3 is small, and one of 1 goes to 3 as well."""
    return instance_of(5, [(0, 1, 50), (1, 2, 50), (2, 3, 2), (1, 3, skipping_bytes), (3, 4, 50)])


def found(instance: Instance, candidates: list[Interval]) -> list[tuple[int, ...]]:
    chain = choose_chain(instance, candidates)
    return [part.ops for part in joined_where_cheap(instance, chain)]


def test_sections_that_a_dearer_tensor_skips_become_one() -> None:
    # without an interval the chain has four edges; 2 ns would do to change devices at op 3
    assert found(row(50), []) == [(0, 1), (1, 2, 3), (3, 4)]


def test_with_the_edge_that_skips_them() -> None:
    instance = row(50)
    joined = joined_where_cheap(instance, choose_chain(instance, []))
    assert joined[1].edges == (1, 2, 3)
    assert (joined[1].entry, joined[1].exit) == (1, 3)


def test_where_nothing_is_cheaper_they_stay_apart() -> None:
    assert found(row(2), []) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_many_ops_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "MOST_JOINED", 1)
    assert found(row(50), []) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_short_sections_come_first_and_long_ones_where_these_are_no_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # two ways from 0 to 3 with an op each: one interval with two inner ops
    instance = instance_of(4, [(0, 1, 9), (0, 2, 9), (1, 3, 9), (2, 3, 9)])
    candidates = intervals(instance)
    assert [[part.ops for part in each] for each in layer_chains(instance, candidates)] == [
        [(0, 1, 2, 3)]
    ]
    monkeypatch.setattr(chains, "MOST_INNER", 1)
    assert [[part.ops for part in each] for each in layer_chains(instance, candidates)] == [
        [(0, 1), (1, 3)],
        [(0, 1, 2, 3)],
    ]
