"""frontier-paths: the plan behind the bound, where memory forces transfers."""

from __future__ import annotations

from placegap.instances import Makespan, load_corpus
from placegap.solvers import solve


def test_on_a_residual_network_it_is_near_the_bound() -> None:
    # the best plan known takes 3005.3 ms, no plan less than 2795.7, interleaved-cuts 3220.9
    instance = load_corpus("resnet-50-layers-train").instance()
    found = solve(instance, Makespan(), "frontier-paths")
    assert found.value_ns is not None
    assert 3_005_280_131 <= found.value_ns < 3_150_000_000
