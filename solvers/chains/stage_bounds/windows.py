"""How much work a chain can have done after so many devices, if no load is above a limit.

A state counts the devices of each kind that the chain has used. Its window is the least and most
work of the ideal that they have taken. At first a window follows from the work that a device can do
within the limit. Then stage after stage, forwards and backwards, `stage_lp.reach` says how far the
ideals of one window come. The interval before a stage is split where that is still too far, because
a narrower one fixes more blocks. If no row of windows leads from the first to the last state, there
is no chain.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np

from placegap.solvers.chains.stage_lp import (
    ChainCosts,
    Range,
    Reach,
    Settled,
    halves,
    nothing_settled,
    reach,
)
from placegap.solvers.core.clock import Clock

State = tuple[int, ...]
Windows = dict[State, Range]
Seen = Callable[[Reach], None]
"""Told of every solution of an LP: its ideals may make good plans."""

MOST_STATES = 400
"""With more states all kinds are taken for one."""

NARROW = 16
"""An interval is not split once it is narrower than the limit by this factor."""

DEEP = 100
"""With so many splits a box of narrow intervals is split by single blocks."""

PROGRESS = 20
"""Passes go on while some window gets narrower by more than the limit over this."""


def few_states(costs: ChainCosts) -> bool:
    """Whether the states are few enough to be kept apart."""
    return prod(int(count) + 1 for count in costs.counts) <= MOST_STATES


def first_windows(costs: ChainCosts, limit: int) -> Windows | None:
    """Windows from work alone; None if there is no chain."""
    counts, total = tuple(costs.counts.tolist()), costs.total_work
    capacity = [most_work(costs, kind, limit) for kind in range(len(counts))]
    found = {}
    for state in _states(counts):
        done = sum(used * most for used, most in zip(state, capacity, strict=True))
        others = (all_ - used for all_, used in zip(counts, state, strict=True))
        rest = sum(left * most for left, most in zip(others, capacity, strict=True))
        found[state] = Range(max(0, total - rest), min(total, done))
    found[next(iter(found))] = Range(0, 0)
    found[counts] = Range(total, min(total, found[counts].most))
    return found if _open(found, counts) else None


def most_work(costs: ChainCosts, kind: int, limit: int) -> int:
    """The most work that a device of a kind does within a limit: a fractional knapsack, rounded up.

    Work is the least time of a block on any kind, so that it is at most the time on this one.
    """
    fits = np.flatnonzero(costs.fits[kind])
    work, time = costs.work[fits], costs.time[kind][fits]
    if (work == time).all():
        return min(limit, int(work.sum()))
    order = np.argsort(-(work / np.maximum(time, 1)), kind="stable")
    spent = np.cumsum(time[order])
    at = int(np.searchsorted(spent, limit, side="right"))
    whole = int(work[order[:at]].sum())
    if at == len(order):
        return whole
    # the order is one of floating point: any split of blocks by a ratio bounds, the best one most
    ratio_work, ratio_time = int(work[order[at]]), int(time[order[at]])
    gained = np.maximum(work * 1.0 * ratio_time - time * 1.0 * ratio_work, 0.0)
    bound = int(
        np.ceil((gained.sum() * (1 + 1e-9) + limit * 1.0 * ratio_work) / ratio_time * (1 + 1e-9))
    )
    return min(limit, int(work.sum()), max(whole, bound) + 1)


def narrow(
    costs: ChainCosts, windows: Windows, limit: int, splits: int, clock: Clock, seen: Seen
) -> Windows | None:
    """Narrower windows, or None: no chain has all its loads within the limit.

    Parameters
    ----------
    costs : ChainCosts
    windows : Windows
        Those of this limit or of a larger one.
    limit : int
    splits : int
        How often the interval before a stage is split at most.
    clock : Clock
        When its time is over the windows are returned as they are by then.
    seen : callable

    Raises
    ------
    LimitReached
        If the time is over.
    """
    backwards, counts = costs.backwards(), tuple(costs.counts.tolist())
    while True:
        before = windows
        windows = _pass(costs, windows, limit, splits, clock, seen)
        if not _open(windows, counts):
            return None
        mirrored = _pass(backwards, _mirror(costs, windows), limit, splits, clock, _unseen)
        windows = _mirror(costs, mirrored)
        if not _open(windows, counts):
            return None
        gained = max(
            before[state].most - before[state].least - (window.most - window.least)
            for state, window in windows.items()
        )
        if gained * PROGRESS <= limit:
            return windows


def _pass(
    costs: ChainCosts, windows: Windows, limit: int, splits: int, clock: Clock, seen: Seen
) -> Windows:
    """The windows after a pass from the first device to the last."""
    found = dict(windows)
    for state in windows:
        window = found[state]
        if not any(state) or window.most < window.least:
            continue
        best = window.least - 1
        for kind, used in enumerate(state):
            source = found[tuple(u - (k == kind) for k, u in enumerate(state))] if used else None
            if source is None or source.most < source.least:
                continue
            best = max(best, min(source.most, window.most))  # a stage may be empty
            most = min(window.most, source.most + most_work(costs, kind, limit))
            if most > best:
                behind = Range(window.least, most)
                best = max(best, _furthest(costs, kind, source, behind, limit, splits, clock, seen))
        found[state] = Range(window.least, best)
        if best < window.least and len(costs.counts) == 1:
            break
    return found


def _furthest(
    costs: ChainCosts,
    kind: int,
    before: Range,
    behind: Range,
    limit: int,
    splits: int,
    clock: Clock,
    seen: Seen,
) -> int:
    """The most work that a stage reaches: branch and bound on both intervals, a few LPs long.

    A box is an interval before the stage and one behind it, and blocks that are settled, with the
    most work that is reached in it; it is looked at by an LP, then cut in halves, and always the
    one that reaches furthest.
    """
    capacity = most_work(costs, kind, limit)
    every = nothing_settled(costs.num_blocks)
    boxes: list[tuple[int, int, Reach | None, Range, Range, Settled]]
    boxes = [(-behind.most, 0, None, before, behind, every)]
    pushed, looks = 0, 1 + splits
    while boxes:
        furthest, _, known, source, target, settled = boxes[0]
        most = -furthest
        if most < behind.least:
            break
        if known is None:
            if looks == 0:
                return most
            looks -= 1
            found = reach(costs, kind, source, target, limit, clock.need_s(), settled)
            seen(found)
            clock.check()
            heapq.heappop(boxes)  # the box that was looked at
            if found.most >= target.least:
                pushed += 1
                heapq.heappush(boxes, (-found.most, pushed, found, source, target, settled))
            continue
        target = Range(target.least, most)
        here, there = source.most - source.least, target.most - target.least
        if looks == 0:
            return most
        if max(here, there) * NARROW <= limit:
            if splits < DEEP or known.behind is None or known.before is None:
                return most
            parts = halves(settled, known.before, known.behind)
            if parts is None:  # a stage as it may be
                return most
            heapq.heappop(boxes)
            for part in parts:
                pushed += 1
                heapq.heappush(boxes, (-most, pushed, None, source, target, part))
            continue
        heapq.heappop(boxes)
        for half_of_source in _halves(source) if here >= there else (source,):
            for half in _halves(target) if here < there else (target,):
                end = min(half.most, half_of_source.most + capacity)
                if end >= half.least:
                    pushed += 1
                    box = half_of_source, Range(half.least, end)
                    heapq.heappush(boxes, (-end, pushed, None, *box, settled))
    return behind.least - 1


def _halves(span: Range) -> tuple[Range, Range]:
    middle = (span.least + span.most) // 2
    return Range(middle + 1, span.most), Range(span.least, middle)


def _states(counts: State) -> list[State]:
    """All states, each behind those that lead to it."""
    return sorted(product(*(range(count + 1) for count in counts)), key=lambda s: (sum(s), s))


def _mirror(costs: ChainCosts, windows: Windows) -> Windows:
    """The windows as they are from the other end."""
    counts, total = tuple(costs.counts.tolist()), costs.total_work
    return {
        state: Range(total - window.most, total - window.least)
        for state in windows
        for window in [windows[tuple(c - s for c, s in zip(counts, state, strict=True))]]
    }


def _open(windows: Windows, counts: State) -> bool:
    """Whether a chain may pass from the first state to the last through windows."""
    reached: dict[State, bool] = {}
    for state, window in windows.items():
        sources = (
            tuple(u - (k == kind) for k, u in enumerate(state))
            for kind in range(len(state))
            if state[kind]
        )
        led = not any(state) or any(reached[source] for source in sources)
        reached[state] = led and window.least <= window.most
    return reached[counts]


def _unseen(found: Reach) -> None:
    """Solutions from the end tell no ideals behind stages."""
