"""Among chains of one value: a light second-heaviest device, then little memory."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.graph_index import Ints
from placegap.solvers.ideal_dp.stage_cuts.judge import Judge
from placegap.solvers.ideal_dp.stage_cuts.problem import CutProblem
from placegap.solvers.ideal_dp.stage_cuts.search import PartSearch


def balanced(judge: Judge, part: PartSearch) -> None:
    """Move single cuts of the best plan as long as its value stays and its balance improves.

    The balance is the load of the second-heaviest device per microbatch, then the most memory that
    a device holds. The plan is the best that such moves reach, which need not be the best of all.
    """
    if judge.best is None:
        return
    value_ns, plan = judge.best
    if judge.walk is None or plan.stage is None:
        return
    walk, problem = judge.walk
    pair = {
        (i, j): at
        for at, (i, j) in enumerate(zip(problem.tail.tolist(), problem.head.tolist(), strict=True))
    }
    key, moved = _balance(judge, part, problem, walk), True
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
                now = _balance(judge, part, problem, trial)
                if (
                    now < key
                    and part.game.time(trial) <= value_ns
                    and judge.keep(trial, problem, plan)
                ):
                    key, walk, moved = now, trial, True


def _balance(judge: Judge, part: PartSearch, problem: CutProblem, walk: Ints) -> tuple[int, int]:
    """Load of the second-heaviest device, and the most memory, by the problem's own sums."""
    count = len(walk) // judge.semantics.stages_per_device
    load = (problem.forward_ns + problem.backward_ns)[walk].reshape(-1, count).sum(axis=0)
    held = problem.resident_bytes[walk] + (part.flying - 1) * problem.stash_bytes[walk]
    second = int(np.sort(load)[-2]) if count > 1 else 0
    return second, int(held.reshape(-1, count).sum(axis=0).max())
