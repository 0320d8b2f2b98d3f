"""What a mixture of paths proves: a game of cuts against longest paths, played by an LP.

Every path through the events of an iteration bounds its time by a sum over steps, and so does a
mixture of paths. For a mixture the best chain of cuts is a cheapest walk; its cost is a bound on
all chains. The best mixture and the best one of walks are the two sides of a matrix game. It is
solved over the walks and paths met so far; each new walk brings its longest path, and the mixture
of walks brings the longest path of its mean times. The LP only chooses the mixture: what it proves
is added up in integers.
"""

from __future__ import annotations

import highspy
import numpy as np

from placegap.instances.problem.array_types import Floats, Ints
from placegap.instances.problem.integers import NEVER
from placegap.solvers.pipeline.cuts import CutProblem
from placegap.solvers.pipeline.event_times import (
    CutWalk,
    EventTable,
    PairLayers,
    cheap_pairs,
    cheapest_walk,
    iteration_time,
    longest_path,
    times_of,
)

MOST_BITS = 16
"""Of an integer weight of a path."""


class Game:
    """Paths and walks of one number of devices, shared by all parts of a search.

    Parameters
    ----------
    problem : CutProblem
    table : EventTable
    """

    def __init__(self, problem: CutProblem, table: EventTable) -> None:
        self.problem, self.table = problem, table
        self.paths: list[Ints] = []
        self._known: set[bytes] = set()
        most = sum(
            int(times.max(initial=0))
            for times in (problem.forward_ns, problem.backward_ns, problem.weight_ns)
        )
        most += int(problem.forth_ns.max(initial=0) + problem.back_ns.max(initial=0))
        self._most = max(1, most) * len(table.step) * 2  # no path is longer

    def add(self, path: Ints) -> bool:
        """Note a path; whether it was new."""
        key = path.tobytes()
        if key in self._known:
            return False
        self._known.add(key)
        self.paths.append(path)
        return True

    @property
    def bits(self) -> int:
        """How fine a mixture may be, so that costs stay below 2**61."""
        return max(0, min(MOST_BITS, 61 - self._most.bit_length()))

    def proven(self, layers: PairLayers, mixture: Floats) -> tuple[int, Ints, int, CutWalk]:
        """Bound of a mixture of the first paths, its weights, their scale, the walk that has it."""
        scale = 1 << self.bits
        whole = np.floor(mixture / mixture.sum() * scale).astype(np.int64)
        whole[int(np.argmax(whole))] += scale - int(whole.sum())
        weight = np.asarray(whole @ np.stack(self.paths[: len(whole)]), np.int64)
        walk = cheapest_walk(self.problem, layers, weight)
        bound = NEVER if walk.cost >= NEVER else -(-walk.cost // scale)
        return bound, weight, scale, walk

    def cut_off(self, layers: PairLayers, value_ns: int) -> PairLayers:
        """Without the pairs that some path alone proves to be in no chain below a value."""
        return cheap_pairs(self.problem, layers, np.stack(self.paths), value_ns - 1)

    def time(self, walk: Ints) -> int:
        """Iteration time of a walk."""
        return iteration_time(self.table, times_of(self.problem, walk))


class Mixture:
    """The LP of one part of a search: max t, t <= what each walk costs under a mixture of paths."""

    def __init__(self, game: Game, threads: int = 1) -> None:
        self.game = game
        self.walks: list[Ints] = []
        self._unit = 1.0
        self._threads = threads

    def add(self, walk: Ints) -> None:
        """Note a walk's times."""
        self.walks.append(times_of(self.game.problem, walk))

    def solve(self) -> tuple[Floats, Floats]:
        """The best mixture of paths against the walks, and of walks against the paths."""
        paths = np.stack(self.game.paths).astype(float)
        walks = np.stack(self.walks).astype(float)
        table = walks @ paths.T
        table /= table.max() or 1.0
        rows, columns = table.shape
        model = highspy.HighsModel()
        lp = model.lp_
        inf = highspy.kHighsInf
        lp.num_col_, lp.num_row_ = columns + 1, rows + 1
        lp.col_cost_ = np.append(np.zeros(columns), -1.0)
        lp.col_lower_ = np.append(np.zeros(columns), -inf)
        lp.col_upper_ = np.full(columns + 1, inf)
        lp.row_lower_ = np.append(np.zeros(rows), 1.0)
        lp.row_upper_ = np.append(np.full(rows, inf), 1.0)
        dense = np.vstack(
            [np.column_stack([table, -np.ones(rows)]), np.append(np.ones(columns), 0.0)]
        )
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.arange(0, (rows + 1) * (columns + 1) + 1, columns + 1)
        lp.a_matrix_.index_ = np.tile(np.arange(columns + 1), rows + 1)
        lp.a_matrix_.value_ = dense.ravel()
        highs = highspy.Highs()
        for option, setting in (
            ("output_flag", False),
            ("threads", self._threads),
            ("presolve", "off"),
        ):
            highs.setOptionValue(option, setting)
        highs.passModel(model)
        highs.run()
        found = highs.getSolution()
        mixture = np.maximum(np.array(found.col_value[:columns]), 0.0)
        of_walks = np.maximum(np.abs(np.array(found.row_dual[:rows])), 0.0)
        if mixture.sum() <= 0:
            mixture = np.full(columns, 1.0)
        if of_walks.sum() <= 0:
            of_walks = np.full(rows, 1.0)
        return mixture, of_walks / of_walks.sum()

    def mean_path(self, of_walks: Floats) -> Ints:
        """The longest path of a mixture's mean times."""
        return longest_path(
            self.game.table, of_walks @ np.stack(self.walks[: len(of_walks)]).astype(float)
        )
