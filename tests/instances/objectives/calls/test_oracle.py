"""The oracle of latency_subgraphs: equal to asking the referee about every plan."""

from __future__ import annotations

from itertools import product

from draws.latency.tiny import LATENCY_SEMANTICS, ONCE, TWICE, latency_draws, optimum

from placegap.instances import Instance, Plan, Semantics, evaluate, example
from placegap.instances.oracle.placements import best_calls, count_assignments


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
        ][:4]
        assert len(small) == 4
        for instance in small:
            assert optimum(instance, semantics) == ask_the_referee(instance, semantics)


def test_its_plan_has_its_value() -> None:
    for semantics in LATENCY_SEMANTICS:
        for instance in latency_draws()[::4]:
            best = best_calls(instance, semantics)
            if best is not None:
                verdict = evaluate(instance, best[1], semantics)
                assert verdict.feasible, instance.name
                assert verdict.value_ns == best[0], instance.name


def test_its_size_is_counted_before_it_starts() -> None:
    # two accelerators: 2 or 4 slots for 4 ops
    assert [count_assignments(example(), s) for s in LATENCY_SEMANTICS] == [2**4, 4**4]
