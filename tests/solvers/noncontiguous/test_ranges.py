"""`noncontiguous` where 1 ns stands beside 10^15 ns, under prices of every kind."""

import numpy as np
import pytest
from draws.extremes import stretched
from references.brute_force import more_max_load, oracle

from placegap.instances import MaxLoad
from placegap.solvers.noncontiguous.column_generation import cover_all, to_integers
from placegap.solvers.noncontiguous.knapsack import TOTAL_PRICE
from placegap.solvers.noncontiguous.pricing import build_pricer
from placegap.solvers.noncontiguous.problem import build_split_problem


def adversarial(rng: np.random.Generator, blocks: int) -> list[np.ndarray]:
    """Prices that floating point treats badly."""
    ones, tiny = np.ones(blocks), np.full(blocks, 5e-324)
    spike = np.full(blocks, 1e-17)
    spike[rng.integers(blocks)] = 1.0
    huge = rng.random(blocks) * 1e300
    third = ones / 3
    broken = np.where(rng.random(blocks) < 0.5, np.nan, -ones)
    endless = np.where(rng.random(blocks) < 0.5, np.inf, ones)
    powers = rng.random(blocks) ** 40
    return [ones, tiny, spike, huge, third, powers, np.nextafter(ones, 2), broken, endless]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_prices_the_bound_holds(seed: int) -> None:
    """Prices are rounded to integers first; what the devices hold is compared with their sum."""
    instance = next(more_max_load(31_000 + seed))
    instance = (stretched(instance, seed) if seed % 2 else None) or instance
    problem, best = build_split_problem(instance), oracle(instance, MaxLoad(plans="any"))
    if best is None:
        return
    rng = np.random.default_rng(seed)
    for cells in (3, 1000):
        for prices in adversarial(rng, problem.num_blocks):
            whole = to_integers(prices)
            assert 0 < int(whole.astype(np.int64).sum()) <= TOTAL_PRICE
            assert (whole >= 0).all()
            search = cover_all(build_pricer(problem), 2 * best + 7, cells)
            search.prove(prices)
            assert search.bound_ns <= best
            assert not search.contradicted
