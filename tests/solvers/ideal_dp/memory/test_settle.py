"""Chains at their peak: the DP that looks up each stage's peak, against brute force."""

from __future__ import annotations

from itertools import islice

import pytest
from draws.peak import peak_instances
from references.brute_force import oracle

from placegap.instances import Instance, MaxLoad, evaluate
from placegap.solvers import Outcome, Task
from placegap.solvers.ideal_dp.memory.settle import settle

CHAIN = MaxLoad(plans="chain", memory="peak")


def settled(instance: Instance, semantics: MaxLoad = CHAIN) -> Outcome:
    outcome = settle(Task(instance, semantics), Outcome(), None)
    assert outcome is not None
    return outcome


@pytest.mark.parametrize("load", ["add", "overlap"])
def test_the_best_chain_that_fits_is_found_and_proven(load: str) -> None:
    semantics = CHAIN.model_copy(update={"load": load})
    compare(semantics, 60, 0)


@pytest.mark.deep
@pytest.mark.parametrize("load", ["add", "overlap"])
def test_the_best_chain_of_many_instances_is_found_and_proven(load: str) -> None:
    semantics = CHAIN.model_copy(update={"load": load})
    compare(semantics, 2000, 10_000)


def compare(semantics: MaxLoad, number: int, seed: int) -> None:
    proven = fitting = 0
    for instance in islice(peak_instances(seed, semantics), number):
        optimum, outcome = oracle(instance, semantics), settled(instance, semantics)
        if outcome.plan is not None:
            verdict = evaluate(instance, outcome.plan, semantics)
            assert verdict.feasible
            assert optimum is not None
            assert verdict.value_ns is not None
            assert verdict.value_ns >= optimum
            proven += verdict.value_ns == outcome.bound_ns
        if optimum is not None:
            fitting += 1
            assert (outcome.bound_ns or 0) <= optimum
    # where idle blocks hold what matters, a bound and a value may stay apart
    assert proven >= 0.9 * fitting
