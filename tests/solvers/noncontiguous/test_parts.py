"""The parts of `noncontiguous` by themselves: merging, frontiers, pricing, columns."""

from itertools import chain, combinations, product

import numpy as np
import pytest
from draws import draw
from draws.tiny import tiny_instance
from references.brute_force import max_load_draws

from placegap.instances import Instance, Op
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.core.clock import Clock
from placegap.solvers.noncontiguous import column_generation
from placegap.solvers.noncontiguous import pricing as pricer_module
from placegap.solvers.noncontiguous.column_generation import choose_pricer, cover_all
from placegap.solvers.noncontiguous.knapsack import TOTAL_PRICE, best_sets, most_price
from placegap.solvers.noncontiguous.pricing import build_pricer
from placegap.solvers.noncontiguous.problem import SplitProblem, build_split_problem, merge_blocks

DRAWS = max_load_draws()[5:100:16]


def plans(problem: SplitProblem) -> list[Ints]:
    """Every plan that fits."""
    devices = range(problem.num_devices)
    every = (np.array(p) for p in product(devices, repeat=problem.num_blocks))
    return [plan for plan in every if problem.fits(plan)]


def least(problem: SplitProblem) -> int | None:
    return min((int(problem.loads(plan).max()) for plan in plans(problem)), default=None)


def wide(seed: int) -> Instance:
    return tiny_instance(seed, num_ops=8, num_devices=2, density=0.5)


@pytest.mark.parametrize("instance", DRAWS, ids=lambda instance: instance.name)
def test_merging_keeps_the_optimum_and_the_plans_given(instance: Instance) -> None:
    problem = build_split_problem(instance)
    best = least(problem)
    given = plans(problem)[::50]
    value = max((int(problem.loads(plan).max()) for plan in given), default=100)
    merged = merge_blocks(problem, value + 1, given)
    assert least(merged.problem) == best
    assert len(merged.plans) == len(given)
    for before, after in zip(given, merged.plans, strict=True):
        assert merged.problem.fits(after)
        assert merged.problem.loads(after).max() <= problem.loads(before).max()
    assert (merged.home[problem.block] == merged.problem.block).all()


def subsets(problem: SplitProblem, device: int) -> list[tuple[Ints, int]]:
    """Every set of blocks that run on a device and fit there one by one, and its load."""
    possible = np.flatnonzero(
        (problem.time_ns[:, device] != UNSUPPORTED)
        & (problem.size_bytes <= problem.memory_bytes[device])
    ).tolist()
    found = []
    for chosen in chain.from_iterable(combinations(possible, n) for n in range(len(possible) + 1)):
        inside = np.zeros(problem.num_blocks, np.bool_)
        inside[list(chosen)] = True
        found.append((np.array(chosen, np.int64), problem.set_load(device, inside)))
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("unit", [1, 7])
def test_no_set_is_worth_more_than_the_pricing_says(seed: int, unit: int) -> None:
    """And with cells of 1 ns, where nothing is rounded, some set is worth exactly that."""
    problem = build_split_problem(wide(seed))
    pricer = build_pricer(problem)
    rng = np.random.default_rng(seed)
    price = (rng.dirichlet(np.ones(problem.num_blocks)) * TOTAL_PRICE).astype(np.int32)
    cells = 60 // unit
    for devices, grid in zip(problem.members(), pricer.grids(unit, cells), strict=True):
        held = most_price(grid, price)
        sets = subsets(problem, devices[0])
        for cell in range(cells):
            worth = max(int(price[s].sum()) for s, load in sets if load < (cell + 1) * unit)
            assert held[cell] == worth if unit == 1 else held[cell] >= worth
        same, (found,) = best_sets(grid, price, [cells - 1])
        assert (same == held).all()
        assert price[found.blocks].sum() == held[-1]
        assert found.cell < cells


def closed_bound(problem: SplitProblem, value: int) -> int:
    search = cover_all(build_pricer(problem), value, 1000)
    search.close(Clock(None), value, 1000)
    return search.bound_ns


@pytest.mark.parametrize("seed", range(2))
def test_a_fine_grid_goes_beyond_where_a_coarse_one_ended(seed: int) -> None:
    """Coarse cells lose load in rounding, so that the covering LP reaches 1 too early on them."""
    problem = build_split_problem(tiny_instance(seed, num_ops=20, num_devices=3, density=0.1))
    value = int(problem.time_ns.max(axis=1).sum()) // 2
    searches = [cover_all(build_pricer(problem), value, cells) for cells in (12, 1000, 1000)]
    coarse, fine, alone = searches
    coarse.close(Clock(None), value, 1000)
    fine.take_over(coarse)
    for search in (fine, alone):
        search.close(Clock(None), value, 1000)
    assert coarse.upper * coarse.unit_ns < alone.bound_ns
    assert fine.bound_ns == alone.bound_ns


def test_nets_that_are_left_out_weaken_the_bound_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for problem in map(build_split_problem, map(wide, range(3))):
        best = least(problem)
        if best is not None:
            full = closed_bound(problem, best)
            with monkeypatch.context() as patch:
                patch.setattr(pricer_module, "MOST_MOVES", 30)
                assert closed_bound(problem, best) <= full <= best


def roomy_and_tight(size_bytes: int) -> Instance:
    """Four ops: 1 ns each on a device with room for 1 byte, 10 ns each on one without a limit."""
    ops = [
        Op(name=name, time_ns={"fast": 1, "slow": 10}, resident_bytes=size_bytes) for name in "abcd"
    ]
    return draw.instance_of("four", ops, (), draw.devices(["fast", "slow"], (1, None).__getitem__))


@pytest.mark.parametrize(("size_bytes", "bound_ns"), [(0, 4), (1, 30)])
def test_rents_bring_memory_into_the_bound(size_bytes: int, bound_ns: int) -> None:
    # with sizes the fast device holds one op, so the slow one holds three: 30 ns; without, all fit
    problem = build_split_problem(roomy_and_tight(size_bytes))
    search = cover_all(choose_pricer(problem, 40), 40, 1000)
    search.close(Clock(None), 40, 50)
    assert search.bound_ns == bound_ns


def test_kinds_priced_in_threads_give_the_same_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = build_split_problem(tiny_instance(3, num_ops=8, num_devices=3, density=0.4))
    assert len(problem.members()) > 1
    bounds = []
    for heavy in (1e18, 0.0):
        monkeypatch.setattr(column_generation, "HEAVY", heavy)
        search = cover_all(choose_pricer(problem, 100, 2), 100, 1000)
        search.close(Clock(None), 100, 50)
        bounds.append((search.bound_ns, search.iterations))
    assert bounds[0] == bounds[1]
