"""Exact methods find brute force's optimum; no bound is above it and no plan below it."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice

import pytest
from draws.corners import odd_instance
from references.agreement import (
    applies,
    compare_bounds,
    compare_exact,
    disguised,
    exact_methods_of,
    methods,
)
from references.brute_force import (
    FWD_BWD_SEMANTICS,
    LATENCY_SEMANTICS,
    MAKESPAN_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    STAGE_SEMANTICS,
    latency_draws,
    makespan_draws,
    max_load_draws,
    more_latency,
    more_makespan,
    more_max_load,
    more_stages,
    oracle,
    stage_draws,
)

from placegap.instances import Instance, Semantics

FAMILIES = (
    (MAKESPAN_SEMANTICS, makespan_draws, more_makespan),
    ((*MAX_LOAD_SEMANTICS, *FWD_BWD_SEMANTICS), max_load_draws, more_max_load),
    (STAGE_SEMANTICS, stage_draws, more_stages),
    (LATENCY_SEMANTICS, latency_draws, more_latency),
)
"""Semantics, their instances, and more of these from a seed on."""

SEMANTICS = [semantics for family, _, _ in FAMILIES for semantics in family]
OBJECTIVES = {semantics.objective for semantics in SEMANTICS}
by_label = pytest.mark.parametrize("semantics", SEMANTICS, ids=lambda s: s.label.replace(" ", "-"))


def some(semantics: Semantics, step: int) -> Sequence[Instance]:
    """One of so many instances; the other ones for the semantics that come next."""
    drawn = next(drawn() for family, drawn, _ in FAMILIES if semantics in family)
    return drawn[SEMANTICS.index(semantics) % step :: step]


@by_label
def test_exact_methods_agree_in_whatever_order_ops_and_devices_are_listed(
    semantics: Semantics,
) -> None:
    others = list(some(semantics, 15))
    for number, instance in enumerate(others[::2]):
        others[2 * number] = disguised(instance, number)
        assert oracle(others[2 * number], semantics) == oracle(instance, semantics)
    runs = compare_exact(semantics, others, dear_step=3)
    assert max(runs.values()) >= (6 if set(runs) > {"throughput-ip"} else 2)


def test_every_exact_method_is_compared_under_some_semantics() -> None:
    compared = {name for s in SEMANTICS for name in exact_methods_of(s, some(s, 15))}
    assert compared == {m.name for m in methods("exact") if OBJECTIVES.intersection(m.objectives)}


def test_no_bound_is_above_the_optimum_and_no_plan_below() -> None:
    given = Counter[str]()
    for number, semantics in enumerate(SEMANTICS):
        odd = (odd_instance(2 * number + more, largest=5) for more in (0, 1))
        known = [one for one in odd if applies(one, semantics, "brute-force", {})]
        given += compare_bounds(semantics, [*some(semantics, 45), *known])
    assert set(given) >= {m.name for m in methods("bound") if OBJECTIVES.intersection(m.objectives)}


@pytest.mark.deep
@by_label
def test_they_agree_on_every_draw_and_on_many_others(semantics: Semantics) -> None:
    more = next(more for family, _, more in FAMILIES if semantics in family)
    seed = 10_000 * (1 + SEMANTICS.index(semantics))
    many = [*some(semantics, 1), *islice(more(seed), 160)]
    assert max(compare_exact(semantics, many).values()) >= 250
    compare_bounds(semantics, many)
