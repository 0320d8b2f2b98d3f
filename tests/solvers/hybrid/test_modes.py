"""Modes of a stage as a knapsack: enumeration decides the same."""

import random
from itertools import pairwise, product

import numpy as np

from placegap.solvers.hybrid.modes import NO, YES, can_choose, choose, greedy_rows


def test_knapsacks_are_decided_as_by_enumeration() -> None:
    for seed in range(150):
        rng = random.Random(f"modes-{seed}")
        largest = rng.choice([5, 30, 10**12])
        counts = [rng.randrange(1, 4) for _ in range(rng.randrange(1, 7))]
        ptr = np.concatenate([[0], np.cumsum(counts)])
        cost, size = (
            np.array([rng.randrange(largest) for _ in range(ptr[-1])], np.int64) for _ in range(2)
        )
        rows = product(*(range(a, b) for a, b in pairwise(ptr)))
        sums = [(int(cost[list(own)].sum()), int(size[list(own)].sum())) for own in rows]
        budget = max(0, rng.choice(sums)[0] + rng.randrange(-1, 2))
        room = max(0, rng.choice(sums)[1] + rng.randrange(-1, 2))
        fitting = [c for c, s in sums if c <= budget and s <= room]
        assert can_choose(cost, size, ptr, budget, room) == (YES if fitting else NO), seed
        chosen = choose(cost, size, ptr, budget, room)
        assert (chosen is None) == (not fitting), seed
        if chosen is not None:
            assert cost[chosen].sum() == min(fitting), seed
            assert size[chosen].sum() <= room, seed


def test_equal_layers_are_decided_however_many_there_are() -> None:
    # 60 layers that save 7 of 10 bytes for 3 more each: 100 bytes are missing, so 15 have to
    cost, size = np.tile([4, 7], 60), np.tile([10, 3], 60)
    ptr = np.arange(0, 121, 2)
    assert can_choose(cost, size, ptr, 60 * 4 + 15 * 3, 500) == YES
    assert can_choose(cost, size, ptr, 60 * 4 + 15 * 3 - 1, 500) == NO


def test_the_greedy_rule_takes_no_switch_back() -> None:
    # 5 bytes are missing: the best ratio saves 2 of them, the next 40 for 30; 5 for 10 would do
    cost, size = np.array([0, 1, 0, 30, 0, 10]), np.array([2, 0, 40, 0, 5, 0])
    ptr = np.array([0, 2, 4, 6])
    assert greedy_rows(cost, size, ptr, 42).tolist() == [1, 3, 4]
    chosen = choose(cost, size, ptr, 99, 42)
    assert chosen.tolist() == [0, 2, 5]
