"""Among chains of one value: a light second-heaviest device, then little memory.

Moves of single cuts find a good chain. Both sums are of single stages, and all but one stage must
keep within a limit on the load; so a search for chains of that value among the pairs within the
limits says whether there is a better one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.solvers.pipeline.branch_and_bound import Judge, PartSearch

MOST_STEPS = 300
"""Of all searches together; what is still open then is left to moves."""


def balanced(judge: Judge, part: PartSearch) -> bool:
    """Give the best plan, among chains of its value on as many devices, the best balance.

    The balance is the work of the second-heaviest device on a microbatch, then the most memory
    that a device holds. Under ``interleaved``, and where devices must be tried in all orders, it is
    the best that moves of single cuts reach.

    Returns
    -------
    bool
        Whether no chain of this value is better balanced.
    """
    assert judge.best is not None
    settles = judge.one_order(part.problem) and judge.semantics.stages_per_device == 1
    questions = _Questions(judge, part)
    if judge.walk is None and settles:  # the plan came from elsewhere
        questions.ask(np.ones((part.stages, len(part.problem.tail)), np.bool_))
    if judge.walk is None or judge.walk[1] is not part.problem:
        return False
    _move(judge, part)
    if part.stages == 1 or not settles:
        return part.stages == 1
    load, held = _load(part), _held(part)

    def within(s: int, most_load_ns: int, most_bytes: int) -> Flags:
        """Pairs of each stage, where stage s may be heavier than the limit."""
        heavy = np.arange(part.stages)[:, None] == s
        return np.asarray(((load <= most_load_ns) | heavy) & (held <= most_bytes))

    full = int(held.max())
    done = questions.lower(
        np.unique(load), lambda s, limit: within(s, limit, full), lambda walk: _second(load, walk)
    )
    assert judge.walk is not None
    second = _second(load, judge.walk[0])
    return done and questions.lower(
        np.unique(held), lambda s, limit: within(s, second, limit), lambda walk: _most(held, walk)
    )


class _Questions:
    """Whether the best plan's value can be had within limits; what is found replaces the plan."""

    def __init__(self, judge: Judge, part: PartSearch) -> None:
        self.judge, self.part, self.steps = judge, part, MOST_STEPS

    def ask(self, allowed: Flags) -> bool | None:
        """Look for a chain of these pairs; None if that stays open."""
        assert self.judge.best is not None
        judge = self.judge
        own = Judge(judge.instance, judge.semantics, judge.clock, self.judge.best[0] + 1)
        search = self.part.restricted(allowed, own)
        search.start()
        while own.best is None and search.is_open:
            if not self.steps or search.clock.left_s == 0.0:
                return None
            search.step()
            self.steps -= 1
        if own.best is not None:
            self.judge.best, self.judge.walk = own.best, own.walk
        return own.best is not None

    def lower(
        self, keys: Ints, allowed: Callable[[int, int], Flags], key_of: Callable[[Ints], int]
    ) -> bool:
        """Bring a key of the plan to the least of some sorted values; whether it is proven so."""
        for s in range(self.part.stages):
            low, high = 0, self._place(keys, key_of)
            middle = high - 1  # most stages are no place for a heavy one: refuted at once
            while low < high:
                found = self.ask(allowed(s, int(keys[middle])))
                if found is None:
                    return False
                if found:
                    high = self._place(keys, key_of)
                elif middle == high - 1:
                    break
                else:
                    low = middle + 1
                middle = (low + high) // 2
        return True

    def _place(self, keys: Ints, key_of: Callable[[Ints], int]) -> int:
        assert self.judge.walk is not None
        return int(np.searchsorted(keys, key_of(self.judge.walk[0])))


def _move(judge: Judge, part: PartSearch) -> None:
    """Move single cuts of the best plan as long as its value stays and its balance improves."""
    assert judge.best is not None
    assert judge.walk is not None
    value_ns = judge.best[0]
    walk, problem = judge.walk
    count = len(walk) // judge.semantics.stages_per_device
    load, held = _load(part), _held(part)

    def key_of(walk: Ints) -> tuple[int, int]:
        own = load[walk].reshape(-1, count).sum(axis=0)
        kept = held[np.arange(len(walk)), walk].reshape(-1, count).sum(axis=0)
        return int(np.sort(own)[-2]) if count > 1 else 0, int(kept.max())

    pair = {
        (i, j): at
        for at, (i, j) in enumerate(zip(problem.tail.tolist(), problem.head.tolist(), strict=True))
    }
    key, moved = key_of(walk), True
    while moved:
        moved = False
        for s in range(len(walk) - 1):
            for a in range(problem.num_cuts):
                left = pair.get((int(problem.tail[walk[s]]), a))
                right = pair.get((a, int(problem.head[walk[s + 1]])))
                if left is None or right is None or a == problem.head[walk[s]]:
                    continue
                trial = walk.copy()
                trial[s : s + 2] = left, right
                now = key_of(trial)
                if now < key and part.game.time(trial) <= value_ns and judge.keep(trial, problem):
                    key, walk, moved = now, trial, True


def _load(part: PartSearch) -> Ints:
    """Work of each pair on a microbatch, by the problem's own sums."""
    return part.problem.work_ns


def _held(part: PartSearch) -> Ints:
    """Memory of each pair as each stage, (S, P)."""
    return np.stack([part.problem.held_bytes(beside) for beside in part.beside])


def _second(load: Ints, walk: Ints) -> int:
    return int(np.sort(load[walk])[-2])


def _most(held: Ints, walk: Ints) -> int:
    return int(held[np.arange(len(walk)), walk].max())
