"""The next prices: nearest to the best ones among those that the cuts allow."""

import numpy as np
import pytest

from placegap.solvers.noncontiguous.column_generation import step_to_level


@pytest.mark.parametrize("seed", range(5))
def test_no_cut_is_worth_more_than_the_level(seed: int) -> None:
    rng = np.random.default_rng(seed)
    best = rng.dirichlet(np.ones(6))
    cuts = rng.integers(0, 3, (4, 6)).astype(np.float64)
    inside = rng.dirichlet(np.ones(6))  # shows that the level can be reached
    level = float((cuts @ inside).max()) + 0.01
    found = step_to_level(best, cuts, level, np.ones(6))
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1.0)
    assert (cuts @ found).max() <= level + 1e-4
    # nothing allowed is nearer: the segment from `found` to `inside` leads away from `best`
    assert (found - best) @ (inside - found) >= -1e-4
