"""The parts of the ideal DP over any devices: pools, stages, sets of ideals, prices."""

import random
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from draws.chains import all_ideals, chain_instance
from draws.equal_devices import equal_device_draws
from references.brute_force import max_load_draws, oracle

from placegap.instances import MaxLoad, Semantics
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem.integers import NS_PER_S, ceil_div
from placegap.solvers.chains.ideals import Ideals, enumerate_ideals, prefixes
from placegap.solvers.chains.kinds_problem import (
    NO_PATH,
    KindsProblem,
    Stage,
    build_kinds,
    build_pool,
    merge_alike,
)
from placegap.solvers.chains.layers import see
from placegap.solvers.chains.orders import orders
from placegap.solvers.chains.transitions import device_load, least_sync_ns, share, sync_ns
from placegap.solvers.chains.windows import (
    PriceBook,
    PricedWindows,
    find_prices,
    set_sums,
    walk_in_windows,
    window_tests,
    work_bound,
)
from placegap.solvers.core.clock import Clock, LimitReached

CHAIN = MaxLoad(plans="chain")
OVERLAP = MaxLoad(plans="chain", load="overlap")
SERVERS = MaxLoad(plans="chain", levels=2)
MANY = 10**6


def enumerated(problem: KindsProblem, max_ideals: int, max_kept: int) -> Ideals:
    """All ideals: the one test has no rows."""
    book, no_rows = PriceBook(problem), np.zeros((1, 2), np.int64)
    everything = window_tests(book, 1)._replace(held=no_rows, rest=no_rows)
    walk = partial(walk_in_windows, everything)
    return enumerate_ideals(problem, book.amounts, walk, Clock(None), max_ideals, max_kept)[0]


def all_sets(problem: KindsProblem) -> Ideals:
    """Every ideal of a problem."""
    return enumerated(problem, MANY, MANY)


def some_prefixes(problem: KindsProblem, order: Ints, stops: Ints) -> Ideals:
    return prefixes(problem, PriceBook(problem).amounts, order, stops)


# ----------------------------------------------------------------------------------------- pools


def test_devices_that_the_links_tell_apart_are_of_different_classes() -> None:
    # a square with fast sides 0-1 and 2-3: 0 and 1 may change places, 0 and 2 may not
    pool = build_pool(range(4), [0] * 4, lambda a, b: 9 if a // 2 == b // 2 else 1)
    assert pool.copies == (((0, 1), (2, 3)),)
    # stages of one device: 2; of more: the 3 * 3 vectors less the empty and the single ones
    assert len(pool.stages) == 2 + 9 - 3
    assert {stage.sync for stage in pool.stages if stage.uses == (2, 0)} == {(NS_PER_S, 9)}


def test_devices_without_a_path_may_share_what_has_no_parameters() -> None:
    pool = build_pool([0, 1], [0, 0], lambda a, b: None)
    assert pool.stages[-1] == Stage(0, (2,), 2, NO_PATH)


def test_without_replicas_only_the_kind_counts() -> None:
    pool = build_pool([3, 1, 2], [0, 5, 5, 4], None)
    assert pool.copies == (((3,), (1, 2)),)
    assert [stage.replicas for stage in pool.stages] == [1, 1]
    assert pool.of_kinds((1, 2), 6).tolist() == [0, 0, 0, 0, 1, 2]


def test_servers_are_merged_if_devices_and_border_are_alike() -> None:
    pools = [build_pool(devices, [0, 0, 0, 0, 1], None) for devices in ([0], [1], [2, 3], [4])]
    merged, home = merge_alike(pools, ["near", "near", "near", "near"])
    assert [pool.copies for pool in merged] == [(((0,),), ((1,),)), (((2, 3),),), (((4,),),)]
    assert home.tolist() == [0, 0, 1, 2]
    assert len(merge_alike(pools[:2], ["near", "far"])[0]) == 2


def test_kinds_are_what_costs_tell_apart() -> None:
    for instance in max_load_draws()[:20]:
        problem = build_kinds(instance, CHAIN)
        blocks = problem.blocks
        for own, kind in zip(problem.pool.copies[0], problem.pool.kinds, strict=True):
            for k in own:
                supported = blocks.time_ns[:, k] >= 0
                assert not (problem.fits[kind] & ~supported).any()
                fits = problem.fits[kind]
                assert (problem.time[kind][fits] == blocks.time_ns[fits, k]).all()


# ---------------------------------------------------------------------------------------- stages


def test_the_synchronisation_is_exact_in_64_bits() -> None:
    rng = random.Random(1)
    for _ in range(300):
        r = rng.randrange(2, 65)
        bandwidth = rng.choice([rng.randrange(1, 10**4), rng.randrange(1, 10**13), 10**9])
        most = min(2**49, 2**60 * bandwidth // (2 * NS_PER_S))
        total = rng.randrange(1, max(2, most >> rng.randrange(40)))
        fraction = Fraction(2 * (r - 1) * NS_PER_S, r * bandwidth)
        sharing = share(Stage(0, (r,), r, fraction.as_integer_ratio()), total)
        for size in (0, 1, total // 3, total, rng.randrange(total)):
            exact = ceil_div(2 * (r - 1) * size * NS_PER_S, r * bandwidth)
            assert sync_ns(sharing, size) == exact
            assert least_sync_ns(sharing, size) <= exact


# -------------------------------------------------------------------------------------- the sets


def test_all_ideals_are_enumerated_once() -> None:
    for seed in range(20):
        problem = build_kinds(chain_instance(seed), CHAIN)
        blocks = problem.blocks
        arcs = set(zip(blocks.arc_tail.tolist(), blocks.arc_head.tolist(), strict=True))
        found = all_sets(problem).members[:, 0].tolist()
        assert len(found) == len(set(found))
        assert set(found) == all_ideals(problem.num_blocks, arcs)


def test_enumeration_stops_at_its_limits() -> None:
    problem = build_kinds(max_load_draws()[0], CHAIN)
    size = all_sets(problem).size
    with pytest.raises(LimitReached, match="max_ideals"):
        enumerated(problem, size - 1, MANY)
    with pytest.raises(LimitReached, match="fill the memory"):
        enumerated(problem, MANY, size - 1)


def test_sums_run_over_all_words() -> None:
    rng = np.random.default_rng(1)
    flags = rng.random((50, 200)) < 0.3
    padded = np.zeros((50, 256), np.bool_)
    padded[:, :200] = flags
    sets = np.packbits(padded, axis=1, bitorder="little").view(np.int64)
    weight = rng.integers(0, 10**15, 200)
    assert (set_sums(sets, weight) == flags @ weight).all()


# ---------------------------------------------------------------------------------------- prices


@pytest.mark.parametrize("semantics", [OVERLAP, SERVERS])
def test_no_bound_from_prices_is_above_the_optimum(semantics: Semantics) -> None:
    some = (max_load_draws() if semantics == OVERLAP else equal_device_draws())[::12]
    for instance in some:
        best = oracle(instance, semantics)
        if best is not None:
            problem = build_kinds(instance, semantics)
            everyone = np.ones(problem.num_kinds, np.bool_)
            assert work_bound(problem, find_prices(problem, everyone)) <= best


def test_windows_and_filter_keep_what_a_plan_of_that_load_needs() -> None:
    """Any plan, whatever its value: the ideals before each of its devices, in the plan's order."""
    rng, fewer = random.Random(3), 0
    for instance in max_load_draws()[:20]:
        problem = build_kinds(instance, CHAIN)
        sets, counts = all_sets(problem), problem.counts
        order = next(orders(problem))
        stops = sorted(rng.randrange(len(order) + 1) for _ in range(instance.num_devices - 1))
        cuts = [0, *stops, len(order)]
        sequence = rng.sample(
            [kind for kind, n in enumerate(counts) for _ in range(n)], instance.num_devices
        )
        at = [sets.find(row) for row in some_prefixes(problem, order, np.array(cuts)).members]
        limit, able = 0, True
        for kind, source, target in zip(sequence, at, at[1:], strict=False):
            view = see(PricedWindows(PriceBook(problem), sets), kind)
            able &= bool(view.need[target] - view.need[source] <= view.room)
            limit = max(limit, device_load(view, target, source, 2**40))
        if not able:
            continue
        book = PriceBook(problem)
        kept = in_windows(book, limit)
        windows, used = PricedWindows(book, sets), np.zeros_like(counts)
        for ideal, kind in zip(at, [*sequence, None], strict=True):
            assert kept.find(sets.members[ideal]) >= 0
            assert windows.inside(used, limit)[ideal]
            if kind is not None:
                used[kind] += 1
        fewer += kept.size < sets.size
        book.in_sums = []  # as where the sets of kinds are too many
        weight = np.stack([row.weight for row in book.of_all], axis=1)
        nothing = np.zeros((problem.num_blocks, len(book.of_all)), np.int64)
        book.amounts = book.amounts._replace(of_block=nothing, of_net=weight)
        coarse = in_windows(book, limit)
        assert all(coarse.find(sets.members[ideal]) >= 0 for ideal in at)
        assert coarse.size >= kept.size
    assert fewer >= 2


def in_windows(book: PriceBook, limit: int) -> Ideals:
    """The ideals that pass some test."""
    walk = partial(walk_in_windows, window_tests(book, limit))
    return enumerate_ideals(book.problem, book.amounts, walk, Clock(None), MANY, MANY)[0]
