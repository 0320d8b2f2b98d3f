"""Cheapest chains of cuts under weights of steps and messages: a DP over layers of pairs.

A chain of S stages is a walk from the empty to the full cut over one pair of each layer. Its cost
is linear in the times of its stages, so one pass finds the cheapest walk, and two passes find for
every pair the cheapest walk over it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NEVER
from placegap.instances.problem.kernels import kernel
from placegap.solvers.pipeline.cuts import CutProblem


class PairLayers(NamedTuple):
    """The pairs of each of S layers: those of layer s are ``pair[pointer[s]:pointer[s + 1]]``."""

    pointer: Ints
    pair: Ints

    @property
    def number(self) -> int:
        """Number of layers."""
        return len(self.pointer) - 1

    def of(self, layer: int) -> Ints:
        """Pairs of one layer."""
        return self.pair[self.pointer[layer] : self.pointer[layer + 1]]


def layers_of(parts: list[Ints]) -> PairLayers:
    """Layers from the pairs of each."""
    pointer = np.cumsum([0, *(len(part) for part in parts)]).astype(np.int64)
    return PairLayers(pointer, np.concatenate([np.zeros(0, np.int64), *parts]))


class CutWalk(NamedTuple):
    """The cheapest walk: its cost, `NEVER` or more if there is none, and a pair of each layer."""

    cost: int
    pairs: Ints


def cheapest_walk(problem: CutProblem, layers: PairLayers, weight: Ints) -> CutWalk:
    """The cheapest walk under weights (2 E,) of E steps and of the messages into them.

    Examples
    --------
    >>> from placegap.instances import PipelineIteration, example
    >>> from placegap.solvers.pipeline.cuts import build_cuts
    >>> problem = build_cuts(example(), PipelineIteration(sending="blocking"), np.arange(4), 100)
    >>> every = np.arange(len(problem.tail))
    >>> cheapest_walk(problem, layers_of([every]), np.array([2, 0])).cost
    86
    """
    cost, pairs = _cheapest(*_tables(problem), *layers, weight)
    return CutWalk(int(cost), pairs)


def cheap_pairs(problem: CutProblem, layers: PairLayers, weights: Ints, most: int) -> PairLayers:
    """The pairs over which a walk leads that costs no more than so much, under each row (2 E,) of
    weights, one row after another.
    """
    return PairLayers(*_cheap(*_tables(problem), *layers, np.atleast_2d(weights), most))


def times_of(problem: CutProblem, pairs: Ints) -> Ints:
    """Times of the steps of a walk and of the messages into them, (2 E,)."""
    count = len(pairs)
    steps = count * problem.passes
    times = np.zeros(2 * steps, np.int64)
    times[:count] = problem.forward_ns[pairs]
    cuts = problem.head[pairs[:-1]]
    times[steps + 1 : steps + count] = problem.forth_ns[cuts]
    if problem.trains:
        times[count : 2 * count] = problem.backward_ns[pairs][::-1]
        times[steps + count + 1 : steps + 2 * count] = problem.back_ns[cuts][::-1]
    if problem.passes == 3:
        times[2 * count : steps] = problem.weight_ns[pairs]
    return times


def _tables(problem: CutProblem) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, int, int]:
    return (
        problem.tail,
        problem.head,
        problem.forward_ns,
        problem.backward_ns,
        problem.weight_ns,
        problem.forth_ns,
        problem.back_ns,
        problem.num_cuts,
        problem.passes,
    )


@kernel(inline="always", allocates=False)
def _cost(
    s: int,
    at: int,
    count: int,
    head: Ints,
    forward: Ints,
    backward: Ints,
    late: Ints,
    forth: Ints,
    back: Ints,
    passes: int,
    weight: Ints,
) -> int:
    """Of a pair in layer s, with the messages over its larger cut."""
    cost = weight[s] * forward[at]
    steps = passes * count
    if passes > 1:
        cost += weight[2 * count - 1 - s] * backward[at]
    if passes > 2:
        cost += weight[2 * count + s] * late[at]
    if s < count - 1:
        cost += weight[steps + s + 1] * forth[head[at]]
        if passes > 1:
            cost += weight[steps + 2 * count - 1 - s] * back[head[at]]
    return int(cost)


@kernel
def _cheapest(
    tail: Ints,
    head: Ints,
    forward: Ints,
    backward: Ints,
    late: Ints,
    forth: Ints,
    back: Ints,
    num_cuts: int,
    passes: int,
    pointer: Ints,
    pair: Ints,
    weight: Ints,
) -> tuple[int, Ints]:
    count = len(pointer) - 1
    value = np.full((count + 1, num_cuts), NEVER)
    came = np.full((count + 1, num_cuts), -1)
    value[0, 0] = 0
    for s in range(count):
        for at in pair[pointer[s] : pointer[s + 1]]:
            if value[s, tail[at]] < NEVER:
                now = value[s, tail[at]] + _cost(
                    s, at, count, head, forward, backward, late, forth, back, passes, weight
                )
                if now < value[s + 1, head[at]]:
                    value[s + 1, head[at]], came[s + 1, head[at]] = now, at
    walk = np.zeros(count, np.int64)
    cut = num_cuts - 1
    if value[count, cut] < NEVER:
        for s in range(count, 0, -1):
            walk[s - 1] = came[s, cut]
            cut = tail[came[s, cut]]
    return value[count, num_cuts - 1], walk


@kernel
def _cheap(
    tail: Ints,
    head: Ints,
    forward: Ints,
    backward: Ints,
    late: Ints,
    forth: Ints,
    back: Ints,
    num_cuts: int,
    passes: int,
    pointer: Ints,
    pair: Ints,
    weights: Ints,
    most: int,
) -> tuple[Ints, Ints]:
    pointer, pair = pointer.copy(), pair.copy()
    for row in range(len(weights)):
        cost = _over_each(
            tail,
            head,
            forward,
            backward,
            late,
            forth,
            back,
            num_cuts,
            passes,
            pointer,
            pair,
            weights[row],
        )
        kept = 0
        for s in range(len(pointer) - 1):
            begin, pointer[s] = pointer[s], kept
            for x in range(begin, pointer[s + 1]):
                if cost[x] <= most:
                    pair[kept] = pair[x]
                    kept += 1
        pointer[-1] = kept
        pair = pair[:kept].copy()
    return pointer, pair


@kernel
def _over_each(
    tail: Ints,
    head: Ints,
    forward: Ints,
    backward: Ints,
    late: Ints,
    forth: Ints,
    back: Ints,
    num_cuts: int,
    passes: int,
    pointer: Ints,
    pair: Ints,
    weight: Ints,
) -> Ints:
    """Cost of the cheapest walk over each pair of each layer."""
    count = len(pointer) - 1
    here, rest = np.full((count + 1, num_cuts), NEVER), np.full((count + 1, num_cuts), NEVER)
    here[0, 0], rest[count, num_cuts - 1] = 0, 0
    cost = np.zeros(len(pair), np.int64)
    for s in range(count):
        for x in range(pointer[s], pointer[s + 1]):
            at = pair[x]
            cost[x] = _cost(
                s, at, count, head, forward, backward, late, forth, back, passes, weight
            )
            if here[s, tail[at]] < NEVER:
                now = here[s, tail[at]] + cost[x]
                here[s + 1, head[at]] = min(here[s + 1, head[at]], now)
    for s in range(count - 1, -1, -1):
        for x in range(pointer[s], pointer[s + 1]):
            at = pair[x]
            if rest[s + 1, head[at]] < NEVER:
                now = rest[s + 1, head[at]] + cost[x]
                rest[s, tail[at]] = min(rest[s, tail[at]], now)
    for s in range(count):
        for x in range(pointer[s], pointer[s + 1]):
            before, after = here[s, tail[pair[x]]], rest[s + 1, head[pair[x]]]
            if before < NEVER and after < NEVER:
                cost[x] += before + after
            else:
                cost[x] = NEVER
    return cost
