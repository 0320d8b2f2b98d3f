"""All exact makespan methods agree with brute force, and no bound is above the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pytest
from references.agreement import (
    compare_bounds,
    compare_exact,
    disguised,
    exact_methods_of,
    methods,
)
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, more_makespan, oracle

from placegap.instances import Instance, Semantics

by_label = pytest.mark.parametrize(
    "semantics", MAKESPAN_SEMANTICS, ids=lambda s: s.label.replace(" ", "-")
)


def eighth(semantics: Semantics, *, others: bool = False) -> Sequence[Instance]:
    """Every eighth pair of instances, tiny and scattered, or all others.

    Each channels have their eighth, and transfers per tensor the next one: some methods know
    transfers per edge alone.
    """
    channels, transfers = divmod(MAKESPAN_SEMANTICS.index(semantics), 2)
    first = (channels + transfers) % 8
    return [one for n, one in enumerate(makespan_draws()) if (n // 2 % 8 == first) != others]


@by_label
def test_exact_methods_agree_on_instances_of_every_kind(semantics: Semantics) -> None:
    runs = compare_exact(semantics, eighth(semantics), dear_step=3)
    assert min(runs["cp-sat"], runs["decomposition"]) >= 12
    assert min(runs.values()) >= 3


@pytest.mark.deep
@by_label
def test_exact_methods_agree_on_the_other_instances(semantics: Semantics) -> None:
    runs = compare_exact(semantics, eighth(semantics, others=True))
    assert min(runs["cp-sat"], runs["decomposition"]) >= 80


def test_every_exact_method_is_compared_under_some_semantics() -> None:
    compared = {name for s in MAKESPAN_SEMANTICS for name in exact_methods_of(s, eighth(s))}
    assert compared == {m.name for m in methods("exact") if "makespan" in m.objectives}


@by_label
def test_no_bound_is_above_the_optimum_and_no_plan_below(semantics: Semantics) -> None:
    # every 17th: tiny and scattered ones by turns; others for the semantics that come next
    assert compare_bounds(semantics, makespan_draws()[MAKESPAN_SEMANTICS.index(semantics) :: 17])


@pytest.mark.deep
@by_label
def test_no_bound_is_above_the_optimum_of_any_draw(semantics: Semantics) -> None:
    assert compare_bounds(semantics, makespan_draws())


@by_label
def test_the_order_of_ops_and_devices_changes_no_optimum(semantics: Semantics) -> None:
    instances = makespan_draws()[MAKESPAN_SEMANTICS.index(semantics) :: 22]
    others = [disguised(instance, number) for number, instance in enumerate(instances)]
    for instance, other in zip(instances, others, strict=True):
        assert oracle(other, semantics) == oracle(instance, semantics)
    compare_exact(semantics, others, dear_step=3)


@pytest.mark.deep
@by_label
def test_they_agree_on_many_instances(semantics: Semantics) -> None:
    first_seed = 10_000 * (1 + MAKESPAN_SEMANTICS.index(semantics))
    many = list(islice(more_makespan(first_seed), 200))
    assert compare_exact(semantics, many)["cp-sat"] == 200
    compare_bounds(semantics, many)
