"""A chain of intervals with the work beside it, as the decomposition uses it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

import pytest
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, more_makespan, oracle

from placegap.formulations.shared.times import serial_horizon_ns
from placegap.instances import Instance
from placegap.instances.problem.sections import choose_chain, intervals
from placegap.solvers.decomposition.arcs import ArcTable, lower_table
from placegap.solvers.decomposition.chain import interval_chain
from placegap.solvers.decomposition.side_work import SideWork


def check(draws: Iterator[Instance], least: int) -> None:
    checked = 0
    for number, instance in enumerate(draws):
        semantics = MAKESPAN_SEMANTICS[number % len(MAKESPAN_SEMANTICS)]
        optimum = oracle(instance, semantics)
        sections = choose_chain(instance, intervals(instance))
        if instance.num_devices == 1 or not sections or optimum is None:
            continue
        limit_ns = serial_horizon_ns(instance)
        chain = interval_chain(ArcTable(instance, semantics), sections, limit_ns)
        plain_ns, _ = chain.shortest(lower_table)
        beside = SideWork(instance, semantics, chain, limit_ns, lambda: False)
        bound_ns, path = beside.shortest(lower_table)
        assert bound_ns <= optimum, (instance.name, semantics.label)
        assert plain_ns <= optimum
        # the arcs lie one behind the other, so that refining them may raise the bound
        assert [use.section for use in path] == list(sections)
        assert all(a.leave == b.entry for a, b in pairwise(path))
        checked += 1
    assert checked >= least


def test_no_bound_is_above_an_optimum() -> None:
    check(makespan_draws(), 30)


@pytest.mark.deep
def test_no_bound_is_above_an_optimum_of_thousands() -> None:
    check(islice(more_makespan(11_000), 4000), 1500)
