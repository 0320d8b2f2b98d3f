"""Searches on coarser problems: what a coarse plan means, and what a search keeps."""

from itertools import islice

import numpy as np
import pytest
from references.brute_force import max_load_draws

from placegap.instances import Instance
from placegap.solvers.core.clock import Clock
from placegap.solvers.noncontiguous import annealing as multilevel
from placegap.solvers.noncontiguous.annealing import contract, longer_runs, search_levels
from placegap.solvers.noncontiguous.problem import build_split_problem

DRAWS = max_load_draws()[5:100:19]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("instance", DRAWS, ids=lambda instance: instance.name)
def test_a_coarse_plan_has_the_loads_and_the_memory_of_the_plan_that_it_stands_for(
    instance: Instance, overlap: bool
) -> None:
    problem = build_split_problem(instance, overlap=overlap)
    rng = np.random.default_rng(0)
    for _ in range(10):
        numbers = rng.integers(0, problem.num_blocks, problem.num_blocks)
        home = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
        coarse = contract(problem, home)
        device = rng.integers(0, problem.num_devices, coarse.num_blocks)
        assert coarse.fits(device) == problem.fits(device[home])
        if coarse.fits(device):
            assert (coarse.loads(device) == problem.loads(device[home])).all()


@pytest.mark.parametrize(("overlap", "afresh"), [(False, False), (True, True)])
def test_a_search_on_levels_keeps_memory_and_repeats_itself(
    overlap: bool, afresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multilevel, "COARSEST", 1)
    monkeypatch.setattr(multilevel, "HEAVIEST", 2.0)
    for instance in DRAWS:
        problem = build_split_problem(instance, overlap=overlap)
        alone = [np.full(problem.num_blocks, k) for k in range(problem.num_devices)]
        for start in list(filter(problem.fits, alone))[:1]:
            found, again = (
                search_levels(problem, start, seed=7, clock=Clock(None), afresh=afresh)
                for _ in range(2)
            )
            assert (found == again).all()
            assert problem.fits(found)
            # on these draws a coarse block of the start's one device has all its work there
            assert problem.loads(found).max() <= problem.loads(start).max()


def test_a_search_whose_time_is_over_returns_the_plan_it_was_given() -> None:
    problem = build_split_problem(DRAWS[0])
    start = np.zeros(problem.num_blocks, np.int64)
    assert (search_levels(problem, start, seed=0, clock=Clock(0.0)) == start).all()


def test_each_cycle_of_four_runs_is_four_times_as_long_up_to_a_number_per_block() -> None:
    # at most 40,000 moves for each of two blocks
    runs = list(islice(longer_runs(10_000, num_blocks=2), 12))
    assert [run.moves for run in runs] == [10_000] * 4 + [40_000] * 4 + [80_000] * 4
    assert runs[0].hot == runs[4].hot
    assert runs[0].power != runs[4].power  # three norms and four temperatures
