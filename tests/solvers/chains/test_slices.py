"""Slices of orders are the best segments, by enumeration."""

import itertools

import numpy as np
import pytest
from draws.chains import chain_instance

from placegap.solvers.chains.orders import NUM_ORDERS, orders
from placegap.solvers.chains.problem import ACCELERATOR, HOST, ChainProblem, build_problem
from placegap.solvers.chains.slices import best_slices


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
    moved = 0 if kind == HOST else cut_of(problem, np.array(part, np.int64))
    return max(work, moved) if problem.overlap else work + moved


def cut_of(problem: ChainProblem, segment: np.ndarray) -> int:
    """Weight of the nets with a pin in the segment and one outside."""
    inside = set(segment.tolist())
    total = 0
    for e, weight in enumerate(problem.nets.weight.tolist()):
        pins = problem.pin[problem.net_ptr[e] : problem.net_ptr[e + 1]].tolist()
        total += weight * (0 < len(inside.intersection(pins)) < len(pins))
    return total
