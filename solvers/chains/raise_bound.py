"""Raise a bound on max_load: refute one limit after another, by bisection.

A state counts the devices of each kind that the chain has used. Its window is the least and most
work of the ideal that they have taken. At first a window follows from the work that a device can do
within the limit. Then stage after stage, forwards and backwards, `stage_lp.reach` says how far the
ideals of one window come. The interval before a stage is split where that is still too far, because
a narrower one fixes more blocks. If no row of windows leads from the first to the last state, there
is no chain within the limit. Ideals that the LPs suggest are where a good chain may cut.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from math import prod

import numpy as np

from placegap.instances.problem.array_types import Flags
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
    windows : Windows
        Those of this limit or of a larger one.
    splits : int
        How often the interval before a stage is split at most.
    clock : Clock
        When its time is over the windows are returned as they are by then.
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


THRESHOLDS = (0.05, 0.35, 0.65, 0.95)
"""What an LP has of a block at least, for the block to be in the ideal."""

ENOUGH, MOST = 150, 2000
"""New ideals after which chains of them are tried, and how many are kept."""


class Suggested:
    """The ideals of the last LPs, each once."""

    def __init__(self, costs: ChainCosts) -> None:
        self.costs, self._new = costs, 0
        every = np.ones(costs.num_blocks, np.bool_)
        self._ends = [~every, every]
        self._known: dict[bytes, Flags] = {}

    def see(self, found: Reach) -> None:
        """Round the ideal behind a stage, at several thresholds."""
        if found.behind is None:
            return
        tail, head = self.costs.arcs.tail, self.costs.arcs.head
        for threshold in THRESHOLDS:
            flags = found.behind >= threshold
            key = np.packbits(flags).tobytes()
            if key in self._known or (flags[head] & ~flags[tail]).any():
                continue
            self._known[key] = flags
            self._new += 1
            if len(self._known) > MOST:
                del self._known[next(iter(self._known))]

    def take(self) -> Flags | None:
        """All ideals and both ends, (N, b), if there are enough new ones."""
        if self._new < ENOUGH:
            return None
        self._new = 0
        return np.array(self._ends + list(self._known.values()))


ORIGIN = "stage LPs"
"""What proves such a bound."""

EFFORTS = (0, 3, 12, 40)
"""Rounds: how often the interval before a stage is split, at most."""

DEEP_EFFORTS, FEW_STAGES = (300, 3_000, 30_000), 4
"""Rounds that follow where there are so few stages: they ask first whether anything is better than
the best plan, and split by single blocks as well."""

CLOSER = 8
"""How many times nearer those rounds come before they end."""

CLOSE = 0.002
"""A round ends when bound and smallest limit not refuted are within this share of the value."""

FIRST, LOW = 0.1, 0.4
"""The next limit is so far above the bound, of the bracket: to refute takes less time than not to.
A round begins with the first and doubles it while limits are refuted."""


def raise_bound(
    costs: ChainCosts,
    lower: int,
    best: Callable[[], int | None],
    prove: Callable[[int], None],
    seen: Callable[[Reach], None],
    clock: Clock,
    gap: float = 0.0,
    efforts: Iterable[int] | None = None,
) -> None:
    """Refute limits until the gap is closed, the last round is over or the time is.

    Parameters
    ----------
    lower : int
        A proven bound.
    best : callable () -> int or None
        Value of the best plan known; None: the work of all blocks and all nets.
    prove : callable
        Told of every better bound.
    seen : callable
        Told of every solution of an LP on the way.
    gap : float
        Relative gap that suffices.
    efforts : iterable of int, optional
        Splits of each round, by default `rounds`; an iterator goes on where the last call ended.
    """
    for splits in rounds(costs) if efforts is None else efforts:
        straight = splits >= DEEP
        close = CLOSE / CLOSER if straight else CLOSE
        high = best() or _largest(costs)
        known: tuple[int, Windows] | None = None
        share = FIRST
        while lower < high:
            value = best() or _largest(costs)
            high = min(high, value)
            near = not straight and high - lower <= close * value * (splits > 0)
            if near or value - lower <= gap * value:
                break
            if splits == 0 and high - lower <= 4 * CLOSE * value:
                break
            limit = high - 1 if straight else lower + int(share * (high - 1 - lower))
            straight = False
            windows = first_windows(costs, limit)
            if windows is not None and known is not None:
                windows = {
                    state: _common(windows[state], window) for state, window in known[1].items()
                }
            if windows is not None and limit > 0:
                windows = narrow(costs, windows, limit, splits, clock, seen)
            if windows is None:
                lower, share = limit + 1, min(LOW, 2 * share)
                prove(lower)
            else:
                high, known, share = limit, (limit, windows), LOW
        if lower >= (best() or _largest(costs)):
            return


def rounds(costs: ChainCosts) -> Iterator[int]:
    """The usual efforts, one after the other."""
    deep = DEEP_EFFORTS if int(costs.counts.sum()) <= FEW_STAGES else ()
    return iter((*EFFORTS, *deep))


def _common(a: tuple[int, int], b: tuple[int, int]) -> Range:
    return Range(max(a[0], b[0]), min(a[1], b[1]))


def _largest(costs: ChainCosts) -> int:
    """No plan has more load than this, if there is one."""
    return int(costs.time.max(axis=0).sum() + costs.weight.max(axis=0, initial=0).sum())
