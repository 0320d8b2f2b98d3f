"""slicegraph: no worse than the orders that it starts from."""

from __future__ import annotations

from references.brute_force import max_load_draws, oracle

from placegap.instances import MaxLoad
from placegap.solvers import run_method

CHAIN = MaxLoad(plans="chain")


def test_it_is_never_worse_than_its_orders_nor_better_than_the_optimum() -> None:
    for instance in max_load_draws()[:6]:
        params = {"population": 4, "generations": 2}
        bred = run_method(instance, CHAIN, "slicegraph", params).value_ns
        sliced = run_method(instance, CHAIN, "slicing", {"orders": 2}).value_ns
        assert sliced is None or (bred is not None and bred <= sliced)
        assert bred is None or bred >= oracle(instance, CHAIN)


def test_a_time_limit_ends_it_with_what_it_has() -> None:
    result = run_method(max_load_draws()[0], CHAIN, "slicegraph", time_limit_s=0.0)
    assert result.status == "feasible"
    assert result.message.startswith("stopped ")
