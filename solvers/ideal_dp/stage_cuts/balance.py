"""Among chains of one value: a light second-heaviest device, then little memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from placegap.instances.problem.graph_index import Ints
from placegap.instances.referee.plan import Plan
from placegap.solvers.ideal_dp.stage_cuts.judge import Judge
from placegap.solvers.ideal_dp.stage_cuts.search import PartSearch


def balanced(judge: Judge, part: PartSearch) -> None:
    """Move single cuts of the best plan as long as its value stays and its balance improves.

    The balance is the load of the second-heaviest device per microbatch, then the most memory that
    a device holds. The plan is the best that such moves reach, which need not be the best of all.
    """
    if judge.best is None:
        return
    value_ns, plan = judge.best
    walk = _walk_of(judge, part, plan)
    if walk is None:
        return
    problem = part.problem
    pair = {
        (i, j): at
        for at, (i, j) in enumerate(zip(problem.tail.tolist(), problem.head.tolist(), strict=True))
    }
    key, moved = _balance(judge, part, walk), True
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
                now = _balance(judge, part, trial)
                if now < key and part.game.time(trial) <= value_ns and judge.keep(trial, plan):
                    key, walk, moved = now, trial, True


def _walk_of(judge: Judge, part: PartSearch, plan: Plan) -> Ints | None:
    """The pairs of a plan's stages."""
    problem = judge.problem
    number = {cut.tobytes(): i for i, cut in enumerate(problem.members)}
    stage = np.zeros(problem.num_blocks, np.int64)
    stage[problem.block] = plan.stage if plan.stage is not None else 0
    cuts = [number.get((stage < s).tobytes(), -1) for s in range(part.stages + 1)]
    walk = [np.flatnonzero((problem.tail == i) & (problem.head == j)) for i, j in pairwise(cuts)]
    if not all(len(at) for at in walk):
        return None
    return np.concatenate(walk)


def _balance(judge: Judge, part: PartSearch, walk: Ints) -> tuple[int, int]:
    """Load of the second-heaviest device, and the most memory, by the problem's own sums."""
    problem, count = part.problem, len(walk) // judge.semantics.stages_per_device
    load = (problem.forward_ns + problem.backward_ns)[walk].reshape(-1, count).sum(axis=0)
    held = problem.resident_bytes[walk] + (part.flying - 1) * problem.stash_bytes[walk]
    second = int(np.sort(load)[-2]) if count > 1 else 0
    return second, int(held.reshape(-1, count).sum(axis=0).max())
