"""Nets along an order of the blocks: when each is under way, and which bits remember it then.

A net is under way from its first pin in the order to its last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.solvers.chains.problem import ACCELERATOR, ChainProblem

MEMORY_BITS = 62
"""What a vertex may remember, in bits; a net with p pins takes as many as p has."""

MOST_MASKS = 10
"""Nets of a block that may be under way when it joins: costs are tabled for each subset."""


class NetSteps(NamedTuple):
    """Where the pins of nets come in an order of the blocks; the kernels' form.

    Attributes
    ----------
    ptr, net, turn : int64
        Nets of the block of step s are ``net[ptr[s]:ptr[s + 1]]``, and it is their pin number
        ``turn`` in the order, from 1.
    pins, weight : (e,) int64
    shift, bits : (e,) int64
        Bits of a vertex' memory that are the net's while it is under way.
    first, last : (e,) int64
        Steps of its first and its last pin.
    """

    ptr: Ints
    net: Ints
    turn: Ints
    pins: Ints
    weight: Ints
    shift: Ints
    bits: Ints
    first: Ints
    last: Ints


def net_steps(problem: ChainProblem, order: Ints) -> NetSteps | None:
    """The nets along an order; None if too many are under way at once. O(pins log pins).

    Examples
    --------
    The four tensors of the diamond, each with one consumer; two at most are under way at once:

    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> nets = net_steps(build_problem(example()), np.arange(4))
    >>> nets.first.tolist(), nets.last.tolist(), nets.bits.tolist()
    ([0, 0, 1, 2], [1, 2, 3, 3], [2, 2, 2, 2])
    """
    position = np.empty(problem.num_blocks, np.int64)
    position[order] = np.arange(problem.num_blocks)
    e, pins = problem.num_nets, np.diff(problem.net_ptr)
    owner = np.repeat(np.arange(e), pins)
    step = position[problem.pin]
    by_net = np.lexsort((step, owner))
    turn = np.empty(len(step), np.int64)
    turn[by_net] = np.arange(len(step)) - problem.net_ptr[owner] + 1
    by_step = np.lexsort((owner, step))
    ptr = np.concatenate([[0], np.cumsum(np.bincount(step, minlength=problem.num_blocks))])
    sorted_step = step[by_net]
    first, last = sorted_step[problem.net_ptr[:-1]], sorted_step[problem.net_ptr[1:] - 1]
    under_way = (turn > 1)[by_step]
    if (np.bincount(step[by_step][under_way], minlength=1) > MOST_MASKS).any():
        return None
    bits = np.array([int(p).bit_length() for p in pins.tolist()], np.int64)
    shift = _shifts(first, last, bits)
    if shift is None:
        return None
    return NetSteps(
        ptr.astype(np.int64),
        owner[by_step],
        turn[by_step],
        pins,
        problem.nets.weight.copy(),
        shift,
        bits,
        first,
        last,
    )


def _shifts(first: Ints, last: Ints, bits: Ints) -> Ints | None:
    """Bits for each net from its first step to its last, the lowest that are free."""
    shift = np.zeros(len(first), np.int64)
    busy: list[tuple[int, int]] = []  # (last step, mask)
    for e in np.argsort(first, kind="stable").tolist():
        busy = [(end, mask) for end, mask in busy if end >= first[e]]
        taken = sum(mask for _, mask in busy)
        mask = (1 << int(bits[e])) - 1
        while taken & mask:
            mask <<= 1
            shift[e] += 1
        if shift[e] + bits[e] > MEMORY_BITS:
            return None
        busy.append((int(last[e]), mask))
    return shift


class Step(NamedTuple):
    """The nets that matter when a block joins.

    Attributes
    ----------
    number : int
    old, new : (., 4) int64
        Nets of the block that had pins before, and those that begin: turn, pins, shift, mask.
    active : (., 3) int64
        Nets that are under way afterwards: shift, mask, last step.
    promised : (., 3) int64
        Nets under way without a pin now: shift, mask, pins before.
    cost, added : (g,) int64
        Of each group: one per subset of `old` that pays, one per net of `new` that pays after all,
        one for forgetting.
    """

    number: int
    old: Ints
    new: Ints
    active: Ints
    promised: Ints
    cost: Ints
    added: Ints


def step_at(problem: ChainProblem, nets: NetSteps, counts: Ints, number: int, v: int) -> Step:
    """What happens when block v joins; `counts` are the pins of each net before, kept up here."""
    own = nets.net[nets.ptr[number] : nets.ptr[number + 1]]
    turn = nets.turn[nets.ptr[number] : nets.ptr[number + 1]]
    mask = (1 << nets.bits) - 1
    table = np.stack([turn, nets.pins[own], nets.shift[own], mask[own]], axis=1)
    under_way = np.flatnonzero((nets.first < number) & (number <= nets.last) & (nets.pins > 2))
    idle = np.setdiff1d(under_way, own)
    after = np.flatnonzero((nets.first <= number) & (number < nets.last))
    old, new = own[turn > 1], own[turn == 1]
    time = int(problem.time[ACCELERATOR, v])
    subsets = np.arange(1 << len(old))[:, None] >> np.arange(len(old)) & 1
    cost = np.concatenate([time + subsets @ nets.weight[old], nets.weight[new], [0]])
    step = Step(
        number,
        np.ascontiguousarray(table[turn > 1]),
        np.ascontiguousarray(table[turn == 1]),
        np.stack([nets.shift[after], mask[after], nets.last[after]], axis=1),
        np.stack([nets.shift[idle], mask[idle], counts[idle]], axis=1),
        cost.astype(np.int64),
        np.where(np.arange(len(cost)) < len(subsets), time, 0).astype(np.int64),
    )
    counts[own] += 1
    return step
