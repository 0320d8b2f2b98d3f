"""The oracle of latency_subgraphs: equal to asking the referee about every plan."""

from __future__ import annotations

from itertools import product

from draws.latency.tiny import LATENCY_SEMANTICS, ONCE, TWICE, latency_draws, optimum

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    Op,
    Plan,
    Semantics,
    evaluate,
    example,
)
from placegap.instances.oracle.placements import (
    MOST_ASSIGNMENTS,
    MOST_LATENCY_OPS,
    best_calls,
    count_assignments,
)


def ask_the_referee(instance: Instance, semantics: Semantics) -> int | None:
    """The least latency of all placements and all calls, hosts' included."""
    slots = list(product(range(instance.num_devices), range(semantics.subgraphs)))
    verdicts = (
        evaluate(
            instance, Plan(tuple((k,) for k, _ in row), call=tuple(c for _, c in row)), semantics
        )
        for row in product(slots, repeat=instance.num_ops)
    )
    return min(
        (v.value_ns for v in verdicts if v.feasible and v.value_ns is not None), default=None
    )


def test_it_finds_the_least_value_of_the_referee() -> None:
    for semantics, most_slots in ((ONCE, 3), (TWICE, 4)):
        small = [
            instance
            for instance in latency_draws()
            if instance.num_ops <= 4 and instance.num_devices * semantics.subgraphs <= most_slots
        ][:6]
        assert len(small) == 6
        for instance in small:
            assert optimum(instance, semantics) == ask_the_referee(instance, semantics)


def test_its_plan_has_its_value() -> None:
    for semantics in LATENCY_SEMANTICS:
        for instance in latency_draws():
            best = best_calls(instance, semantics)
            if best is not None:
                verdict = evaluate(instance, best[1], semantics)
                assert verdict.feasible, instance.name
                assert verdict.value_ns == best[0], instance.name


def test_more_calls_are_no_worse_and_sometimes_better() -> None:
    pairs = [(optimum(instance, ONCE), optimum(instance, TWICE)) for instance in latency_draws()]
    both = [(once, twice) for once, twice in pairs if once is not None]
    assert all(twice is not None and twice <= once for once, twice in both)
    assert any(twice is not None and twice < once for once, twice in both)


def test_a_second_call_pays_where_an_op_of_the_host_is_in_the_middle() -> None:
    # a and c take 1 on the accelerator and 10 on the host, b runs on the host only, in 1: one call
    # has a or c only, 1 + 1 + 10; two calls have both, 1 + 1 + 1
    ops = (
        Op(name="a", time_ns={"gpu": 1, "cpu": 10}),
        Op(name="b", time_ns={"cpu": 1}),
        Op(name="c", time_ns={"gpu": 1, "cpu": 10}),
    )
    edges = tuple(Edge(producer=a, consumer=b, host_time_ns=0) for a, b in ("ab", "bc"))
    devices = (Device(name="g", kind="gpu"), Device(name="h", kind="cpu", is_host=True))
    instance = Instance(
        name="middle",
        graph=Graph(name="middle", ops=ops, edges=edges),
        cluster=Cluster(name="two", devices=devices),
    )
    assert optimum(instance, ONCE) == 12
    assert optimum(instance, TWICE) == 3


def test_its_size_is_counted_before_it_starts() -> None:
    # two accelerators: 2 or 4 slots for 4 ops
    assert [count_assignments(example(), s) for s in LATENCY_SEMANTICS] == [2**4, 4**4]
    assert MOST_LATENCY_OPS == 8
    for instance in latency_draws():
        assert instance.num_ops <= MOST_LATENCY_OPS
        assert count_assignments(instance, TWICE) <= MOST_ASSIGNMENTS
