"""The parts of the ideal DP: enumeration, windows, slices, relief, bit numbers."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from draws.chains import all_ideals, chain_instance, wide_instance

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.chains.ideals import (
    Ideals,
    enumerate_ideals,
    joined,
    prefixes,
    times_and_needs,
)
from placegap.solvers.chains.kinds_problem import NO_SYNC, Stage
from placegap.solvers.chains.orders import NUM_ORDERS, orders
from placegap.solvers.chains.problem import ACCELERATOR, HOST, ChainProblem, build_problem
from placegap.solvers.chains.slices import best_slices
from placegap.solvers.chains.transitions import build_sources, no_peak, relax, share
from placegap.solvers.chains.work_bound import Relief, work_bound
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.ideal_dp.ideals.windows import (
    IdealWindows,
    build_windows,
    walk_in_windows,
    window,
)
from placegap.solvers.ideal_dp.two_kinds.search import TwoKindsSearch, see


def everything(problem: ChainProblem) -> tuple[Ideals, int]:
    """All ideals: no load is too large."""
    windows = build_windows(problem, Relief(problem), problem.largest_load)
    return in_windows(problem, windows, 10**6, 10**6)


def in_windows(
    problem: ChainProblem, windows: IdealWindows, max_ideals: int, max_kept: int
) -> tuple[Ideals, int]:
    """The ideals that lie in some window, and how many there are in all."""
    walk = partial(walk_in_windows, windows)
    amounts = times_and_needs(problem)
    return enumerate_ideals(problem, amounts, walk, Clock(None), max_ideals, max_kept)


def all_prefixes(problem: ChainProblem, order: Ints) -> Ideals:
    return prefixes(problem, times_and_needs(problem), order, np.arange(problem.num_blocks + 1))


def bits(words: Ints) -> int:
    return sum((int(word) % 2**64) << (64 * at) for at, word in enumerate(words))


def problems(number: int) -> list[ChainProblem]:
    """Problems whose devices have room for everything, so that every ideal lies in a window."""
    found = [build_problem(chain_instance(seed)) for seed in range(4 * number)]
    return [p for p in found if not p.room.any() and (p.need == 0).all(1).any()][:number]


def arcs(problem: ChainProblem) -> set[tuple[int, int]]:
    blocks = problem.blocks
    return set(zip(blocks.arc_tail.tolist(), blocks.arc_head.tolist(), strict=True))


def cut(problem: ChainProblem, members: int) -> int:
    total = 0
    for e, weight in enumerate(problem.nets.weight.tolist()):
        pins = problem.pin[problem.net_ptr[e] : problem.net_ptr[e + 1]].tolist()
        if 0 < sum(members >> v & 1 for v in pins) < len(pins):
            total += weight
    return total


def test_every_ideal_is_met_once() -> None:
    for problem in [*problems(60), *(build_problem(wide_instance(s)) for s in range(4))]:
        ideals, total = everything(problem)
        members = [bits(row) for row in ideals.members]
        expected = all_ideals(problem.num_blocks, arcs(problem))
        assert total == len(expected)
        assert len(members) == len(set(members))
        assert set(members) <= expected
        assert members[0] == 0


def test_sums_and_cuts_of_ideals_are_those_of_their_blocks() -> None:
    for problem in [*problems(40), *(build_problem(wide_instance(s)) for s in range(4))]:
        ideals, _ = everything(problem)
        for i in range(ideals.size):
            members = bits(ideals.members[i])
            inside = [v for v in range(problem.num_blocks) if members >> v & 1]
            assert ideals.sums[i, 1:3].tolist() == problem.time[:, inside].sum(axis=1).tolist()
            assert ideals.sums[i, 3:].tolist() == problem.need[:, inside].sum(axis=1).tolist()
            assert ideals.sums[i, 0] == cut(problem, members)
            weights = [
                w
                for e, w in enumerate(problem.nets.weight.tolist())
                if bits(ideals.cut_nets[i]) >> e & 1
            ]
            assert sum(weights) == ideals.sums[i, 0]


def test_a_device_pays_for_the_difference_of_two_ideals() -> None:
    """One accelerator more from one ideal to each that contains it, against the definition."""
    alone, none = share(Stage(ACCELERATOR, (1,), 1, NO_SYNC), 0), no_peak()
    for problem in [*problems(30), *(build_problem(wide_instance(s)) for s in range(4))]:
        ideals, _ = everything(problem)
        device = see(problem, ideals, ACCELERATOR)
        targets = np.arange(ideals.size, dtype=np.int32)
        unfit = problem.largest_load + 1
        for source in range(0, ideals.size, 1 + ideals.size // 20):
            sources = build_sources(device, np.array([source], np.int32), np.zeros(1, np.int64))
            value = np.full(ideals.size, unfit)
            origin, last = (np.full(ideals.size, -1, np.int32) for _ in range(2))
            relax(device, sources, alone, targets, value, origin, last, 0, -1, 0, 10**9, none, 0)
            small = bits(ideals.members[source])
            for t in range(ideals.size):
                large = bits(ideals.members[t])
                taken = [v for v in range(problem.num_blocks) if (large & ~small) >> v & 1]
                if small & ~large or problem.need[ACCELERATOR, taken].sum() > problem.room[0]:
                    assert value[t] == unfit
                else:
                    work = int(problem.time[ACCELERATOR, taken].sum())
                    assert value[t] == work + cut(problem, large & ~small)


@pytest.mark.parametrize("overlap", [False, True])
def test_windows_admit_every_stage_of_every_plan_within_the_limit(overlap: bool) -> None:
    rng = random.Random("windows")
    admitted = 0
    for seed in range(300):
        problem = build_problem(chain_instance(seed), overlap=overlap)
        order = list(orders(problem, seed))[seed % NUM_ORDERS]
        kinds = [ACCELERATOR] * problem.counts[ACCELERATOR] + [HOST] * problem.counts[HOST]
        rng.shuffle(kinds)
        ends = sorted(rng.choices(range(len(order) + 1), k=len(kinds) - 1))
        stops = [0, *ends, len(order)]
        parts = [order[a:b].tolist() for a, b in itertools.pairwise(stops)]
        loads = [load(problem, part, kind) for part, kind in zip(parts, kinds, strict=True)]
        if None in loads:
            continue
        windows = build_windows(
            problem, Relief(problem), max(one for one in loads if one is not None)
        )
        ideals = all_prefixes(problem, order)
        for used, stop in enumerate(stops):
            cut_ns, *sums = ideals.sums[stop].tolist()
            hosts = kinds[:used].count(HOST)
            fewest, most = window(windows, hosts, *sums, cut_ns)
            assert fewest <= used - hosts <= most
            admitted += 1
    assert admitted > 100


def test_ideals_over_the_cap_and_over_the_memory_are_refused() -> None:
    problem = build_problem(wide_instance(0))
    total = everything(problem)[1]
    windows = build_windows(problem, Relief(problem), problem.largest_load)
    assert in_windows(problem, windows, total, 10**6)[1] == total
    with pytest.raises(LimitReached, match=f"more than {total - 1}"):
        in_windows(problem, windows, total - 1, 10**6)
    with pytest.raises(LimitReached, match="memory"):
        in_windows(problem, windows, total, 2)


def test_orders_are_topological_and_their_prefixes_are_ideals() -> None:
    for problem in problems(30):
        expected = all_ideals(problem.num_blocks, arcs(problem))
        found = list(orders(problem))
        assert len(found) == NUM_ORDERS
        ideals = joined([all_prefixes(problem, order) for order in found])
        members = [bits(row) for row in ideals.members]
        assert members[0] == 0
        assert len(members) == len(set(members))
        assert set(members) <= expected


@pytest.mark.parametrize("overlap", [False, True])
def test_slices_are_the_best_segments_of_an_order(overlap: bool) -> None:
    found = 0
    for seed in range(120):
        problem = build_problem(chain_instance(seed), overlap=overlap)
        order = list(orders(problem, seed))[seed % NUM_ORDERS]
        best = best_by_segments(problem, order.tolist())
        split = best_slices(problem, order, problem.largest_load)
        assert (split.value if split else None) == best
        if best is not None:
            found += 1
            assert best_slices(problem, order, best - 1) is None
    assert found > 60


def best_by_segments(problem: ChainProblem, order: list[int]) -> int | None:
    """Least load over all sequences of kinds and of segment ends."""
    kinds = [ACCELERATOR] * problem.counts[ACCELERATOR] + [HOST] * problem.counts[HOST]
    sequences = sorted(set(itertools.permutations(kinds)))
    best = None
    for ends in itertools.combinations_with_replacement(range(len(order) + 1), len(kinds) - 1):
        stops = [0, *ends, len(order)]
        segments = [order[a:b] for a, b in itertools.pairwise(stops)]
        for sequence in sequences:
            loads = [
                load(problem, part, kind) for part, kind in zip(segments, sequence, strict=True)
            ]
            if None not in loads:
                value = max(one for one in loads if one is not None)
                best = value if best is None else min(best, value)
    return best


def load(problem: ChainProblem, part: list[int], kind: int) -> int | None:
    if problem.need[kind, part].sum() > problem.room[kind]:
        return None
    work = int(problem.time[kind, part].sum())
    moved = 0 if kind == HOST else cut(problem, sum(1 << v for v in part))
    return max(work, moved) if problem.overlap else work + moved


def test_relief_is_the_fractional_knapsack_rounded_down() -> None:
    rng = random.Random("relief")
    for seed in range(200):
        problem = build_problem(chain_instance(seed))
        capacity = rng.randrange(60)
        fits = (problem.need <= problem.room[:, None]).all(axis=0)
        items = [
            (int(problem.time[ACCELERATOR, v]), int(problem.time[HOST, v]))
            for v in np.flatnonzero(fits).tolist()
        ]
        items.sort(key=lambda item: Fraction(item[1], item[0]) if item[0] else Fraction(10**9))
        left, value = Fraction(capacity), Fraction(0)
        for worth, size in items if min(problem.counts) else []:
            share = min(Fraction(1), left / size) if size else Fraction(1)
            left -= share * size
            value += share * worth
        assert Relief(problem).absorbed(capacity) == value // 1


def test_the_work_bound_is_the_least_time_that_the_knapsack_admits() -> None:
    for seed in range(200):
        problem = build_problem(chain_instance(seed))
        fits = problem.need <= problem.room[:, None]
        if not fits.any(axis=0).all():
            continue
        relief, (accelerators, hosts) = Relief(problem), problem.counts
        own = problem.time[HOST, ~fits[ACCELERATOR]].sum()
        work = problem.time[ACCELERATOR, fits[ACCELERATOR]].sum()
        heaviest = max(
            min(int(problem.time[kind, v]) for kind in (ACCELERATOR, HOST) if fits[kind, v])
            for v in range(problem.num_blocks)
        )
        least = next(
            t
            for t in itertools.count(heaviest)
            if hosts * t >= own and work - relief.absorbed(int(hosts * t - own)) <= accelerators * t
        )
        assert work_bound(problem, relief) == least


def test_a_search_over_a_few_ideals_uses_only_those() -> None:
    # the prefixes of one order: the search is the slicing of that order
    for seed in range(60):
        problem = build_problem(chain_instance(seed))
        if not (problem.need <= problem.room[:, None]).any(axis=0).all():
            continue
        order = next(orders(problem))
        split = best_slices(problem, order, problem.largest_load)
        ideals = all_prefixes(problem, order)
        search = TwoKindsSearch(problem, Relief(problem), ideals, Clock(None))
        found = search.best(problem.largest_load, 0)
        assert (found.value if found else None) == (split.value if split else None)


def test_unsupported_blocks_need_more_than_the_room() -> None:
    for seed in range(40):
        instance = chain_instance(seed)
        problem = build_problem(instance)
        for kind, devices in enumerate(problem.devices):
            if devices:
                refused = problem.blocks.time_ns[:, devices[0]] == UNSUPPORTED
                assert (problem.need[kind, refused] > problem.room[kind]).all()
