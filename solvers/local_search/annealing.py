"""annealing: placement and priorities by simulated annealing, from the best of some placers.

Moves and schedules are those of `run_moves`. Every state fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import Field

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import EFFORT, Params, Task
from placegap.solvers.core.progress import Known, reporter
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start
from placegap.solvers.local_search.cooling import Pace
from placegap.solvers.local_search.run_moves import RunWalks, new_state

RUNS = 4  # default number of runs: several short runs gave better plans than a long one
# Default number of moves of a run, at most, per op, and as a limit on moves x (ops + edges).
MOST_MOVES, MOVES_PER_OP, MOST_WORK = 20_000, 200, 40_000_000

STARTS = ("heft", "peft", "etf", "single-device", "m-topo", "order-place")


class AnnealingParams(Params):
    #: Number of runs, each with its own random numbers.
    restarts: int = Field(default=RUNS, ge=1, json_schema_extra=EFFORT)
    #: Moves of a run; by default `usual_moves`.
    moves: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)


@method("annealing", objectives=("makespan",), paper="placegap", packages=("numba",), seeded=True)
def anneal(task: Task[Makespan], params: AnnealingParams) -> Outcome:
    """Simulated annealing of placement and priorities, on a compiled scheduler.

    Anneal from the best plan known, `restarts` times; the best plan of all comes back. A heuristic.
    Without a time limit it is deterministic for a seed; with one, runs share the time that is left,
    and where `moves` is not given, more of them go on from the best plan until it is over.
    O(restarts x moves x (n + m) log m).
    """
    clock = task.limits.clock()
    start = best_start(task, STARTS)
    if start is None:
        return Outcome(message=f"no start: none of {', '.join(STARTS)} found a plan")
    search = Annealing(task.instance, task.semantics)
    report = reporter(task.instance, task.semantics, "annealing")
    best = Known(plan=start.plan, value=start.value, on_progress=report)
    seed, tried = task.limits.seed, -1
    while tried < search.tried and not search.interrupted:
        tried = search.tried
        for plan in search.runs(
            [(best.plan or start.plan).devices],
            seed=seed,
            count=params.restarts,
            moves=params.moves,
            limit_s=clock.left_s,
        ):
            best.offer_plan(task, plan)
        seed += params.restarts
        if params.moves is not None or not clock.left_s:
            break
    return Outcome(
        best.plan,
        message="interrupted" if search.interrupted else "",
        details={"moves": search.tried},
    )


class Annealing:
    """Annealing of one instance, of objective makespan, from given placements."""

    def __init__(self, instance: Instance, semantics: Makespan) -> None:
        self.walks = RunWalks(instance, semantics, np.zeros(instance.num_ops, np.int64))
        self.tried, self.interrupted = 0, False

    def runs(
        self,
        starts: Sequence[Ints],
        *,
        seed: int,
        count: int = RUNS,
        moves: int | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Plan]:
        """The best plan of each of several runs with different random numbers."""
        # Runs take the starts in turn, which must fit into memory. Each has `moves` moves (default:
        # `usual_moves`); `limit_s` is the time of all runs together.
        began = now_s()
        most = usual_moves(self.walks.instance) if moves is None else moves
        for run in range(count):
            deadline, now = None, now_s()
            if limit_s is not None:
                left_s = began + limit_s - now
                if left_s <= 0:  # a run costs a schedule and its plan, even without moves
                    return
                deadline = now + left_s / (count - run)
            start = starts[run % len(starts)]
            yield self.run(start, seed=count * seed + run, moves=most, deadline=deadline)
            if self.interrupted:
                return

    def run(self, start: Ints, *, seed: int, moves: int, deadline: float | None = None) -> Plan:
        """The best plan from a placement that fits into memory, also after Ctrl-C."""
        # The cooling is fitted to the time until `deadline`, by `clock.now_s`; the result then
        # depends on the machine. O(n + m) log m per move.
        walks, rng, pace = self.walks, np.random.default_rng(seed), Pace(deadline)
        walks.state = state = new_state(walks.line, start)
        state.value[:] = walks.time_of(state.at, state.shift)
        try:
            if walks.instance.num_devices > 1 and state.value[1] > 0:
                for _ in walks.cool(pace, rng, moves):
                    if state.value[1] == 0:
                        break
        except KeyboardInterrupt:
            self.interrupted = True
        self.tried += pace.moves
        return walks.plan()


def usual_moves(instance: Instance) -> int:
    """Default number of moves of a run: two seconds' worth, fewer below 100 ops."""
    size = instance.num_parts
    return max(100, min(MOST_MOVES, MOVES_PER_OP * instance.num_ops, MOST_WORK // max(1, size)))
