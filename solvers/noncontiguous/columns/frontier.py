"""Sets of blocks for one device, as paths through states: what is paid when a block comes or stays.

Blocks come in an elimination order. A state says of each open net whether the blocks behind are all
out of the set, all in, or mixed, so that the net is paid already. A path of states and choices is a
set, and the work and the nets along it add up to its load.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.graph_index import freeze
from placegap.instances.problem.nets import Nets
from placegap.solvers.core.clock import Clock

OUT, IN, PAID = 0, 1, 2

CHECKED = 256
"""Steps between looks at the clock."""


@dataclass(frozen=True, eq=False)
class Frontier:
    """All moves of the DP, sorted by step and by the state that they lead to.

    Attributes
    ----------
    order : (b,) int64
        Block of each step.
    step_ptr : (b + 1,) int64
        Moves of step i are ``step_ptr[i]:step_ptr[i + 1]``.
    source, target : (a,) int64
        States before and after, numbered from 0 within their step; one state at either end.
    taken : (a,) int64
        1 if the step's block is in the set.
    paid_ptr, paid : (a + 1,), (q,) int64
        Nets that become mixed by the move.
    num_states : (b + 1,) int64
        States before each step, and 1 at the end.
    """

    order: Ints
    step_ptr: Ints
    source: Ints
    target: Ints
    taken: Ints
    paid_ptr: Ints
    paid: Ints
    num_states: Ints


def build_frontier(
    nets: Nets, order: tuple[int, ...], max_moves: int, clock: Clock | None = None
) -> Frontier | None:
    """The DP's moves, or None if there are more than `max_moves`; O(moves) but for nets per block.

    Raises
    ------
    LimitReached
        If the clock is over before it is built.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.noncontiguous.problem import build_split_problem
    >>> frontier = build_frontier(build_split_problem(example()).nets, (0, 1, 2, 3), 100)
    >>> frontier.num_states.tolist()
    [1, 2, 4, 4, 1]
    """
    position = np.empty(len(order), np.int64)
    position[list(order)] = np.arange(len(order))
    first, last = _spans(nets, position)
    slot: dict[int, int] = {}
    free: list[int] = []
    states = {0: 0}
    moves: list[tuple[int, int, int, tuple[int, ...]]] = []
    step_ptr, num_states = [0], [1]
    for at, v in enumerate(order):
        if clock is not None and at % CHECKED == 0:
            clock.check()
        own = nets.net[nets.block_ptr[v] : nets.block_ptr[v + 1]].tolist()
        for e in own:
            if first[e] == at:
                slot[e] = free.pop() if free else len(slot) + len(free)
        rules = [(e, 2 * slot[e], first[e] == at, last[e] == at) for e in own]
        reached: dict[int, int] = {}
        step = []
        for state, number in states.items():
            for taken in (0, 1):
                after, paid = _advance(state, taken, rules)
                target = reached.setdefault(after, len(reached))
                step.append((target, number, taken, paid))
        step.sort()
        moves += step
        if len(moves) > max_moves:
            return None
        for e in own:
            if last[e] == at:
                free.append(slot.pop(e))
        states = reached
        step_ptr.append(len(moves))
        num_states.append(len(states))
    paid_ptr = np.cumsum([0, *(len(move[3]) for move in moves)])
    table = np.array([move[:3] for move in moves], np.int64).reshape(-1, 3)
    frontier = Frontier(
        order=np.array(order, np.int64),
        step_ptr=np.array(step_ptr, np.int64),
        source=table[:, 1].copy(),
        target=table[:, 0].copy(),
        taken=table[:, 2].copy(),
        paid_ptr=paid_ptr.astype(np.int64),
        paid=np.array([e for move in moves for e in move[3]], np.int64),
        num_states=np.array(num_states, np.int64),
    )
    freeze(frontier)
    return frontier


def _spans(nets: Nets, position: Ints) -> tuple[list[int], list[int]]:
    """First and last step of each net."""
    if nets.num_nets == 0:
        return [], []
    at = position[nets.pin]
    start = nets.net_ptr[:-1]
    return np.minimum.reduceat(at, start).tolist(), np.maximum.reduceat(at, start).tolist()


def _advance(
    state: int, taken: int, rules: list[tuple[int, int, bool, bool]]
) -> tuple[int, tuple[int, ...]]:
    """State after a choice, two bits per open net, and the nets that become mixed."""
    paid: tuple[int, ...] = ()
    for e, shift, opens, closes in rules:
        code = state >> shift & 3
        if opens:
            code = taken
        elif code not in (PAID, taken):
            code = PAID
            paid += (e,)
        state &= ~(3 << shift)
        if not closes:
            state |= code << shift
    return state, paid
