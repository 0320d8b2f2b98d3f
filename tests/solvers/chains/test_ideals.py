"""The parts of the ideal DP: ideals and their sums, one more device, slices of orders."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from draws.chains import all_ideals, chain_instance, wide_instance

from placegap.instances import MaxLoad
from placegap.instances.kernels.array_types import Ints
from placegap.solvers.chains.ideals import Amounts, Ideals, prefixes
from placegap.solvers.chains.kinds_problem import NO_SYNC, Stage, build_kinds
from placegap.solvers.chains.layers import LayerSearch, see
from placegap.solvers.chains.orders import NUM_ORDERS, orders
from placegap.solvers.chains.problem import ACCELERATOR, HOST, ChainProblem, build_problem
from placegap.solvers.chains.slices import best_slices
from placegap.solvers.chains.transitions import (
    Extension,
    States,
    build_sources,
    no_peak,
    relax,
    share,
)
from placegap.solvers.chains.windows import PriceBook, PricedWindows
from placegap.solvers.core.clock import Clock

CHAIN = MaxLoad(plans="chain")


def no_amounts(problem: ChainProblem) -> Amounts:
    sizes = problem.num_blocks, problem.num_nets
    return Amounts(problem.nets, *(np.zeros((size, 0), np.int64) for size in sizes))


def joined(parts: list[Ideals]) -> Ideals:
    """The ideals of all parts, each once, in the order of their bit sets: the empty one first."""
    members = np.concatenate([part.members for part in parts])
    which = np.unique(members.view(np.uint64), axis=0, return_index=True)[1].astype(np.int64)
    return Ideals(*(np.concatenate(tables) for tables in zip(*parts, strict=True))).take(which)


def bits(words: Ints) -> int:
    return sum((int(word) % 2**64) << (64 * at) for at, word in enumerate(words))


def problems(number: int) -> list[ChainProblem]:
    """Problems whose devices have room for everything, so that every ideal lies in a window."""
    found = [build_problem(chain_instance(seed)) for seed in range(4 * number)]
    return [p for p in found if not p.room.any() and (p.need == 0).all(1).any()][:number]


def arcs(problem: ChainProblem) -> set[tuple[int, int]]:
    blocks = problem.blocks
    return set(zip(blocks.arc_tail.tolist(), blocks.arc_head.tolist(), strict=True))


def cut(problem: ChainProblem, members: int, weights: list[int] | None = None) -> int:
    total = 0
    for e, weight in enumerate(weights or problem.nets.weight.tolist()):
        pins = problem.pin[problem.net_ptr[e] : problem.net_ptr[e + 1]].tolist()
        if 0 < sum(members >> v & 1 for v in pins) < len(pins):
            total += weight
    return total


def test_sums_and_cuts_of_ideals_are_those_of_their_blocks() -> None:
    instances = [*(chain_instance(seed) for seed in range(12)), wide_instance(0)]
    for problem in [build_kinds(instance, CHAIN) for instance in instances]:
        amounts = PriceBook(problem).amounts
        for order in list(orders(problem))[:3]:
            ideals = prefixes(problem, amounts, order, np.arange(problem.num_blocks + 1))
            for at in range(ideals.size):
                inside = order[:at].tolist()
                cut_nets = [
                    e
                    for e in range(problem.num_nets)
                    if 0
                    < len({*problem.pin[problem.net_ptr[e] : problem.net_ptr[e + 1]]} & {*inside})
                    < problem.net_ptr[e + 1] - problem.net_ptr[e]
                ]
                assert bits(ideals.members[at]) == sum(1 << v for v in inside)
                assert bits(ideals.cut_nets[at]) == sum(1 << e for e in cut_nets)
                expected = [
                    amounts.of_net[cut_nets].sum(axis=0),
                    amounts.of_block[inside].sum(axis=0),
                ]
                assert ideals.sums[at].tolist() == np.concatenate(expected).tolist()


def test_a_device_pays_for_the_difference_of_two_ideals() -> None:
    """One device more from one ideal to each that contains it, against the definition."""
    instances = [*(chain_instance(seed) for seed in range(12)), wide_instance(0)]
    for instance in instances:
        problem = build_kinds(instance, CHAIN)
        book = PriceBook(problem)
        parts = [
            prefixes(problem, book.amounts, order, np.arange(problem.num_blocks + 1))
            for order in orders(problem)
        ]
        ideals, unfit = joined(parts), problem.largest_load + 1
        targets = np.arange(ideals.size, dtype=np.int32)
        for kind, source in enumerate(range(0, ideals.size, 1 + ideals.size // problem.num_kinds)):
            device = see(PricedWindows(book, ideals), kind)
            sources = build_sources(device, np.array([source], np.int32), np.zeros(1, np.int64))
            value = np.full(ideals.size, unfit)
            states = States(value, *(np.full(ideals.size, -1, np.int32) for _ in range(2)))
            alone = share(Stage(kind, (1,), 1, NO_SYNC), 0)
            step = Extension(device, sources, alone, 0, no_peak(), 0)
            relax(step, targets, states, -1, 0, 10**9)
            small = bits(ideals.members[source])
            for t in range(ideals.size):
                large = bits(ideals.members[t])
                taken = [v for v in range(problem.num_blocks) if (large & ~small) >> v & 1]
                if small & ~large or problem.need[kind, taken].sum() > problem.room[kind]:
                    assert value[t] == unfit
                else:
                    work = int(problem.time[kind, taken].sum())
                    moved = cut(problem, large & ~small, problem.weight[kind].tolist())
                    assert value[t] == work + moved


def test_orders_are_topological_and_their_prefixes_are_ideals() -> None:
    for problem in problems(10):
        expected = all_ideals(problem.num_blocks, arcs(problem))
        found = list(orders(problem))
        assert len(found) == NUM_ORDERS
        ideals = joined(
            [prefixes(problem, no_amounts(problem), o, np.arange(len(o) + 1)) for o in found]
        )
        members = [bits(row) for row in ideals.members]
        assert members[0] == 0
        assert len(members) == len(set(members))
        assert set(members) <= expected


@pytest.mark.parametrize("overlap", [False, True])
def test_slices_are_the_best_segments_of_an_order(overlap: bool) -> None:
    found = 0
    for seed in range(30):
        problem = build_problem(chain_instance(seed), overlap=overlap)
        order = list(orders(problem, seed))[seed % NUM_ORDERS]
        best = best_by_segments(problem, order.tolist())
        split = best_slices(problem, order, problem.largest_load)
        assert (split.value if split else None) == best
        if best is not None:
            found += 1
            assert best_slices(problem, order, best - 1) is None
    assert found > 12


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


def test_a_search_over_a_few_ideals_uses_only_those() -> None:
    # the prefixes of one order: the search is the slicing of that order
    for seed in range(20):
        instance = chain_instance(seed)
        problem, kinds = build_problem(instance), build_kinds(instance, CHAIN)
        if not problem.fits.any(axis=0).all():
            continue
        order, book = next(orders(problem)), PriceBook(kinds)
        split = best_slices(problem, order, problem.largest_load)
        ideals = prefixes(kinds, book.amounts, order, np.arange(problem.num_blocks + 1))
        found = LayerSearch(book, ideals, Clock(None)).best(problem.largest_load, 0)
        assert (found.value if found else None) == (split.value if split else None)
