"""Simulated annealing's cooling: how hot a move is, and how many moves there is time for.

All searches cool by `heat_at`; how hot they begin and end, and their moves, differ. So each has a
loop of its own: one that takes its moves as functions would be compiled anew in every process,
because numba keeps no kernel that is given another one. Searches of schedules also share the clock
(`Pace`) and a limit for each move (`limit_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.kernel import kernel
from placegap.solvers.core.clock import now_s

# Seconds that a kernel runs between two checks of the clock and of Ctrl-C; number of moves of the
# first chunk, before their time is known.
CHUNK_S, FIRST_CHUNK = 0.2, 16


class CoolingSteps(NamedTuple):
    """Moves `done` to `done + moves` of `total`, from heat `hot` down to `factor` times it."""

    done: int
    moves: int
    total: int
    hot: float
    factor: float


@kernel(inline="always", allocates=False)
def heat_at(hot: float, factor: float, part: float) -> float:
    """The temperature after a part of all moves: it falls from `hot` to `factor` times that."""
    return float(hot * factor**part)


@kernel(nogil=True, allocates=False)
def limit_of(value: float, steps: CoolingSteps, step: int, rng: np.random.Generator) -> float:
    """The largest value that a move may lead to: Metropolis's rule, solved for the value."""
    heat = heat_at(steps.hot, steps.factor, step / steps.total)
    return float(value - heat * np.log(1.0 - rng.random()))


class Pace:
    """A deadline by `clock.now_s`, and the rate of moves so far."""

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline, self.moves, self.spent_s = deadline, 0, 0.0

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and now_s() >= self.deadline

    @property
    def moves_left(self) -> int | None:
        """Moves until the deadline, at least one; None without one, or before the first chunk."""
        if self.deadline is None or self.moves < FIRST_CHUNK:
            return None
        return max(1, int(self.moves / self.spent_s * (self.deadline - now_s())))

    def cool(
        self,
        walk: Callable[[CoolingSteps], object],
        most: int,
        hot: float,
        factor: float,
        *,
        fits: bool,
    ) -> Iterator[int]:
        """Walk for `most` moves; yields the number of moves of each chunk."""
        # If it `fits`, the cooling ends with the time: with fewer moves it cools faster.
        done, chunk, total = 0, FIRST_CHUNK, most
        while done < total and not self.is_over:
            left = self.moves_left if fits else None
            if left is not None:
                total = min(most, done + left)
            chunk, began = min(chunk, total - done), now_s()
            walk(CoolingSteps(done, chunk, total, hot, factor))
            took_s = max(now_s() - began, 1e-6)
            done, self.moves, self.spent_s = done + chunk, self.moves + chunk, self.spent_s + took_s
            yield chunk
            # Chunks grow to `CHUNK_S`, at most fourfold at a time: the rate of few moves is
            # uncertain.
            chunk = max(1, min(4 * chunk, int(chunk * CHUNK_S / took_s)))
