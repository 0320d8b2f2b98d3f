"""Shapes of generated graphs: how many ops, and which feed which."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Shape:
    """Ops 0 .. num_ops - 1 and the pairs (producer, consumer) that edges join."""

    num_ops: int
    pairs: tuple[tuple[int, int], ...]


def layered(rng: random.Random, num_ops: int, width: int, density: float) -> Shape:
    """Layers of 1 to 2 width - 1 ops; each op is fed by about density of the layer before.

    The number of an op's producers is density times the size of the layer before it, rounded up
    or down at random so that the mean is right, and at least one. O(ops + edges).

    Examples
    --------
    >>> layered(random.Random(1), 6, 2, 1.0).num_ops
    6
    """
    pairs: list[tuple[int, int]] = []
    before = range(0)
    first = 0
    while first < num_ops:
        layer = range(first, min(num_ops, first + 1 + below(rng, 2 * width - 1)))
        for op in layer:
            if before:
                wanted = int(density * len(before) + rng.random())
                count = min(len(before), max(1, wanted))
                pairs += [(before[j], op) for j in choose(rng, len(before), count)]
        before, first = layer, layer.stop
    return Shape(num_ops, tuple(pairs))


def series_parallel(rng: random.Random, num_ops: int, parallel: float) -> Shape:
    """A two-terminal series-parallel graph, grown op by op from a single edge.

    Each new op is put on a random edge (u, v): with probability `parallel` beside it, which keeps
    (u, v), else in it. Ops 0 and 1 are source and sink. O(ops).

    Examples
    --------
    >>> series_parallel(random.Random(1), 4, 0.0).pairs  # a chain
    ((0, 2), (2, 3), (3, 1))
    """
    pairs = [(0, 1)]
    for op in range(2, num_ops):
        at = below(rng, len(pairs))
        u, v = pairs[at]
        if rng.random() < parallel:
            pairs += [(u, op), (op, v)]
        else:
            pairs[at] = (u, op)
            pairs.append((op, v))
    return Shape(num_ops, tuple(pairs))


def blocks(num_blocks: int, branches: int, length: int) -> Shape:
    """A chain of blocks, each of `branches` parallel chains of `length` ops, as in Inception.

    The op that joins a block splits the next one: 1 + num_blocks * (branches * length + 1) ops.

    Examples
    --------
    >>> blocks(1, 2, 1).pairs
    ((0, 1), (1, 3), (0, 2), (2, 3))
    """
    pairs: list[tuple[int, int]] = []
    split = 0
    for _ in range(num_blocks):
        join = split + branches * length + 1
        for branch in range(branches):
            chain = range(split + 1 + branch * length, split + 1 + (branch + 1) * length)
            path = [split, *chain, join]
            pairs += pairwise(path)
        split = join
    return Shape(split + 1, tuple(pairs))


def parallel_chains(chains: int, length: int) -> Shape:
    """Chains that share nothing.

    Examples
    --------
    >>> parallel_chains(2, 2).pairs
    ((0, 1), (2, 3))
    """
    starts = range(0, chains * length, length)
    pairs = ((at, at + 1) for start in starts for at in range(start, start + length - 1))
    return Shape(chains * length, tuple(pairs))


def fork_join(stages: int, width: int) -> Shape:
    """Stages of a fork op, `width` ops side by side, and a join op that feeds the next fork.

    Examples
    --------
    >>> fork_join(1, 2).pairs
    ((0, 1), (1, 3), (0, 2), (2, 3))
    """
    pairs: list[tuple[int, int]] = []
    for fork in range(0, stages * (width + 2), width + 2):
        join = fork + width + 1
        for op in range(fork + 1, join):
            pairs += [(fork, op), (op, join)]
        if fork:
            pairs.append((fork - 1, fork))
    return Shape(stages * (width + 2), tuple(pairs))


def below(rng: random.Random, bound: int) -> int:
    """A random integer in [0, bound), from `random()` alone: its stream never changes."""
    return int(rng.random() * bound)


def choose(rng: random.Random, population: int, count: int) -> list[int]:
    """`count` distinct integers of range(population), ascending."""
    if 2 * count > population:
        left_out = set(choose(rng, population, population - count)) if count < population else set()
        return [at for at in range(population) if at not in left_out]
    chosen: set[int] = set()
    while len(chosen) < count:
        chosen.add(below(rng, population))
    return sorted(chosen)
