"""All exact max-load and latency methods agree with brute force; restrictions never gain."""

from __future__ import annotations

from collections import Counter
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
from references.brute_force import (
    FWD_BWD_SEMANTICS,
    LATENCY_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    STAGE_SEMANTICS,
    latency_draws,
    max_load_draws,
    more_latency,
    more_max_load,
    more_stages,
    oracle,
    stage_draws,
)

from placegap.instances import Instance, Semantics

SEMANTICS = (*MAX_LOAD_SEMANTICS, *FWD_BWD_SEMANTICS, *STAGE_SEMANTICS, *LATENCY_SEMANTICS)
by_label = pytest.mark.parametrize("semantics", SEMANTICS, ids=lambda s: s.label.replace(" ", "-"))


def draws(semantics: Semantics) -> Sequence[Instance]:
    if semantics.objective == "latency_subgraphs":
        return latency_draws()
    return stage_draws() if semantics in STAGE_SEMANTICS else max_load_draws()


def some(semantics: Semantics) -> Sequence[Instance]:
    """Every tenth instance; the other ones for the semantics that come next."""
    return draws(semantics)[SEMANTICS.index(semantics) % 10 :: 10]


@by_label
def test_exact_methods_agree_on_instances_of_every_kind(semantics: Semantics) -> None:
    runs = compare_exact(semantics, some(semantics), dear_step=3)
    assert max(runs.values()) >= (9 if set(runs) > {"throughput-ip"} else 3)


@pytest.mark.deep
@by_label
def test_exact_methods_agree_on_every_instance(semantics: Semantics) -> None:
    assert max(compare_exact(semantics, draws(semantics)).values()) >= 100


def test_every_exact_method_is_compared_under_some_semantics() -> None:
    compared = {name for s in SEMANTICS for name in exact_methods_of(s, some(s))}
    loads = {s.objective for s in SEMANTICS}
    assert compared == {m.name for m in methods("exact") if loads.intersection(m.objectives)}


@by_label
def test_no_bound_is_above_the_optimum_and_no_plan_below(semantics: Semantics) -> None:
    compare_bounds(semantics, draws(semantics)[SEMANTICS.index(semantics) % 18 :: 18])


@pytest.mark.deep
@by_label
def test_no_bound_is_above_the_optimum_of_any_draw(semantics: Semantics) -> None:
    compare_bounds(semantics, draws(semantics))


def test_every_bound_is_compared_with_optima() -> None:
    given = sum((compare_bounds(s, draws(s)[:6]) for s in SEMANTICS), start=Counter())
    loads = {s.objective for s in SEMANTICS}
    assert set(given) >= {m.name for m in methods("bound") if loads.intersection(m.objectives)}


@by_label
def test_the_order_of_ops_and_devices_changes_no_optimum(semantics: Semantics) -> None:
    instances = draws(semantics)[SEMANTICS.index(semantics) % 22 :: 22]
    others = [disguised(instance, number) for number, instance in enumerate(instances)]
    for instance, other in zip(instances, others, strict=True):
        assert oracle(other, semantics) == oracle(instance, semantics)
    compare_exact(semantics, others, dear_step=3)


@pytest.mark.deep
@by_label
def test_they_agree_on_many_instances(semantics: Semantics) -> None:
    more = more_stages if semantics in STAGE_SEMANTICS else more_max_load
    if semantics.objective == "latency_subgraphs":
        more = more_latency
    many = list(islice(more(10_000 * (1 + SEMANTICS.index(semantics))), 160))
    assert max(compare_exact(semantics, many).values()) >= 160
    compare_bounds(semantics, many)
