"""New splits of two devices: every trade-off between their loads, and the search made of them."""

from __future__ import annotations

import warnings
from itertools import pairwise, product

import numpy as np
import pytest
from draws import draw
from draws.tiny import tiny_instance

from placegap.instances import Edge, Instance, Op
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.core.clock import Clock
from placegap.solvers.noncontiguous.pair_splits import (
    PairSplit,
    SplitRules,
    exchange_pairs,
    shake,
    split_pair,
)
from placegap.solvers.noncontiguous.problem import SplitProblem, build_split_problem

LIMIT_NS = 300
"""Above every load of the instances here; with cells of 1 ns nothing is rounded."""


def drawn(seed: int, **options: bool) -> Instance:
    return tiny_instance(seed, num_ops=7, num_devices=3, hosts=seed % 3 % 2, **options)


def some_plan(problem: SplitProblem, rng: np.random.Generator) -> Ints:
    runs = problem.time_ns != UNSUPPORTED
    return np.array([rng.choice(np.flatnonzero(runs[v])) for v in range(problem.num_blocks)])


def split(problem: SplitProblem, device: Ints, pair: tuple[int, int]) -> PairSplit | None:
    rules = SplitRules(LIMIT_NS, num_cells=LIMIT_NS + 1)
    return split_pair(problem, device, pair, np.arange(problem.num_blocks), rules)


def trade_offs(problem: SplitProblem, device: Ints, pair: tuple[int, int]) -> list[tuple[int, int]]:
    """The pairs of loads that no other split of the two devices' blocks beats in both."""
    shared = np.flatnonzero((device == pair[0]) | (device == pair[1]))
    pairs = set()
    for where in product(pair, repeat=len(shared)):
        changed = device.copy()
        changed[shared] = where
        if (problem.time_ns[np.arange(len(device)), changed] != UNSUPPORTED).all():
            pairs.add(tuple(problem.loads(changed)[list(pair)].tolist()))
    least, kept = LIMIT_NS, []
    for first, second in sorted(pairs):
        if second < least:
            kept.append((first, second))
            least = second
    return kept


@pytest.mark.parametrize("seed", range(12))
def test_it_knows_every_trade_off_between_two_loads(seed: int) -> None:
    """With hosts, nets that reach to the third device, unsupported ops and unequal kinds."""
    rng = np.random.default_rng(seed)
    problem = build_split_problem(drawn(seed, backward=seed % 4 == 0))
    device = some_plan(problem, rng)
    first, second = rng.permutation(3)[:2].tolist()
    found = split(problem, device, (first, second))
    if found is None:
        assert not np.isin(device, (first, second)).any()
        return
    loads = list(zip(found.first_ns.tolist(), found.second_ns.tolist(), strict=True))
    assert loads == trade_offs(problem, device, (first, second))
    for at, pair in enumerate(loads):
        changed = found.apply(device, at)
        assert tuple(problem.loads(changed)[[first, second]].tolist()) == pair
        others = ~np.isin(device, (first, second))
        assert (changed[others] == device[others]).all()


def test_pairs_with_too_many_moves_are_passed_over() -> None:
    problem = build_split_problem(drawn(1))
    device = some_plan(problem, np.random.default_rng(1))
    rules = SplitRules(LIMIT_NS, num_cells=LIMIT_NS + 1, max_moves=1)
    assert split_pair(problem, device, (0, 1), np.arange(problem.num_blocks), rules) is None


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_search_keeps_memory_never_worsens_and_repeats_itself(seed: int, overlap: bool) -> None:
    rng = np.random.default_rng(seed)
    problems = (build_split_problem(drawn(at), overlap=overlap) for at in range(10 * seed, 1000))
    draws = ((problem, some_plan(problem, rng)) for problem in problems for _ in range(20))
    problem, start = next((problem, plan) for problem, plan in draws if problem.fits(plan))
    found = [
        exchange_pairs(
            problem, start, np.arange(problem.num_blocks), seed=7, patience=10, clock=Clock(None)
        )
        for _ in range(2)
    ]
    assert (found[0] == found[1]).all()
    assert problem.fits(found[0])
    assert problem.loads(found[0]).max() <= problem.loads(start).max()


def test_a_search_without_time_returns_its_start() -> None:
    problem = build_split_problem(drawn(0))
    start = some_plan(problem, np.random.default_rng(0))
    found = exchange_pairs(
        problem, start, np.arange(problem.num_blocks), seed=0, patience=10, clock=Clock(0.0)
    )
    assert (found == start).all()


def test_noise_leads_out_of_a_plan_that_splits_do_not_better_and_repeats_itself() -> None:
    moved = 0
    for seed in range(10):
        problem = build_split_problem(drawn(seed))
        order = np.arange(problem.num_blocks)
        start = some_plan(problem, np.random.default_rng(seed))
        if not problem.fits(start):
            continue
        ended = exchange_pairs(problem, start, order, seed=1, patience=20, clock=Clock(None))
        found = [
            shake(problem, ended, order, seed=2, noise=0.5, patience=20, clock=Clock(None))
            for _ in range(2)
        ]
        assert (found[0] == found[1]).all()
        assert problem.fits(found[0])
        moved += bool((found[0] != ended).any())
    assert moved > 0


@pytest.mark.parametrize("largest", [10**10, 10**15])
@pytest.mark.parametrize("room", [0, 1])
def test_seconds_and_gigabytes_beside_a_card_of_no_memory_stay_within_64_bits(
    room: int, largest: int
) -> None:
    """Six layers of 1 s in a row; the best two halves cut one tensor of 100 us."""
    ops = [Op(name=f"op{i}", time_ns={"gpu": 10**9 + i}, resident_bytes=largest) for i in range(6)]
    edges = [Edge(producer=a.name, consumer=b.name, bytes=10**6) for a, b in pairwise(ops)]
    rooms = (8 * largest, 8 * largest, room)
    devices = draw.devices(["gpu"] * 3, lambda k: rooms[k])
    links = draw.links(3, lambda a, b: (10**10, 0))
    problem = build_split_problem(draw.instance_of("six layers", ops, edges, devices, links))
    start, order = np.zeros(6, np.int64), np.arange(6)
    for seed in range(6):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = exchange_pairs(problem, start, order, seed=seed, patience=12, clock=Clock(None))
        # 3, 4 and 5 are 12 ns above 3 s
        assert problem.loads(found).max() == 3 * 10**9 + 12 + 10**5
