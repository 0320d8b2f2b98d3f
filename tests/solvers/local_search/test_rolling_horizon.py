"""Plans by a horizon that rolls along the ops: they fit, and take what the search says."""

from __future__ import annotations

import itertools
from threading import Event

import pytest
from draws.binding_memory import binding_instance
from draws.tiny import tiny_instance
from references.agreement import few_and_many
from references.brute_force import MAKESPAN_SEMANTICS

from placegap.instances import Makespan, evaluate, example
from placegap.solvers.core.clock import now_s
from placegap.solvers.local_search import rolling_horizon as built
from placegap.solvers.local_search.rolling_horizon import Stop, rolling_plan


@few_and_many(3, 300)
def test_a_plan_fits_and_takes_what_the_search_says(seeds: range) -> None:
    found = 0
    for seed, semantics in itertools.product(seeds, MAKESPAN_SEMANTICS):
        for instance in (
            tiny_instance(seed, num_ops=9, num_devices=3),
            binding_instance(seed, far_times=seed % 2 == 1),
        ):
            rolled = rolling_plan(
                instance, semantics, length=2 + seed % 9, moves_per_op=1 + seed % 40
            )
            if rolled is not None:
                verdict = evaluate(instance, rolled.plan, semantics)
                assert verdict.feasible, (instance.name, semantics.label)
                assert verdict.value_ns == rolled.value_ns, (instance.name, semantics.label)
                found += 1
    assert found > 2 * len(seeds)


def test_in_a_hurry_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object) -> None:
        raise AssertionError

    assert rolling_plan(example(), Makespan(), stop=Stop(now_s() - 1)) is not None
    hurry = Event()
    hurry.set()
    monkeypatch.setattr(built, "anneal_horizon", never)
    assert rolling_plan(tiny_instance(1), Makespan(), stop=Stop(None, hurry)) is not None
