"""Bounds by themselves: none above an optimum, each higher than those before it."""

from itertools import islice

import pytest
from draws import draw
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, more_makespan, oracle

from placegap.instances import Instance, Makespan, MaxLoad, Op, Plan, Semantics, evaluate, example
from placegap.solvers import bound
from placegap.solvers.bounds.portfolio import improving_bounds


def check(instance: Instance, semantics: Makespan) -> None:
    found = list(improving_bounds(instance, semantics))
    values = [bound.value for bound in found]
    assert values == sorted(set(values))
    optimum = oracle(instance, semantics)
    assert optimum is None or values[-1] <= optimum, (instance.name, semantics.label, found)


def test_no_bound_of_the_portfolio_is_above_an_optimum() -> None:
    for number, instance in enumerate(makespan_draws()[::4]):
        check(instance, MAKESPAN_SEMANTICS[number % len(MAKESPAN_SEMANTICS)])


@pytest.mark.deep
def test_no_bound_of_the_portfolio_is_above_an_optimum_of_thousands() -> None:
    for number, instance in enumerate(islice(more_makespan(7000), 4000)):
        check(instance, MAKESPAN_SEMANTICS[number % len(MAKESPAN_SEMANTICS)])


def test_the_bound_is_the_last_and_best() -> None:
    # the diamond of 5, 20 and 10, 8 ns: its path takes 33 ns; one of the two in the middle waits
    # for a transfer, or for the other. 43 ns of work on two devices: 22
    assert (bound(example(), Makespan()).value, bound(example(), MaxLoad(plans="any")).value) == (
        34,
        22,
    )
    # a limit of no time leaves the cheapest one
    assert bound(example(), Makespan(), 0.0) == next(improving_bounds(example(), Makespan()))


@pytest.mark.parametrize(
    "semantics", [Makespan(memory="peak"), MaxLoad(plans="any", memory="peak")]
)
def test_at_the_peak_no_bound_counts_resident_bytes(semantics: Semantics) -> None:
    # of its 2 resident bytes the op holds one between passes, so that it fits on the fast device:
    # 1 ns. By the rule `sum` it fits on the slow one only
    op = Op(name="op", time_ns={"fast": 1, "slow": 2}, resident_bytes=2, parameter_bytes=1)
    devices = draw.devices(["fast", "slow"], (1, None).__getitem__)
    instance = draw.instance_of("one", [op], (), devices)
    verdict = evaluate(instance, Plan.on([0]), semantics)
    assert (verdict.feasible, verdict.value_ns) == (True, 1)
    assert bound(instance, semantics).value == 1
