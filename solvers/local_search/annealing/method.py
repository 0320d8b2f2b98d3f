"""annealing: placement and priorities by simulated annealing, from the best of some placers."""

from __future__ import annotations

from pydantic import Field

from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.method import EFFORT, Method, Params, Task
from placegap.solvers.core.progress import tell
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start
from placegap.solvers.local_search.annealing import RUNS, Annealing

STARTS = ("heft", "peft", "etf", "single-device", "m-topo", "order-place")


class AnnealingParams(Params):
    """Parameters of ``annealing``.

    Attributes
    ----------
    restarts : int
        How many runs there are, each with random numbers of its own.
    moves : int or None
        Moves of a run; by default `annealing.moves.usual_moves`.
    """

    restarts: int = Field(default=RUNS, ge=1, json_schema_extra=EFFORT)
    moves: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)


def run(task: Task[Makespan], params: AnnealingParams) -> Outcome:
    """Anneal from the best plan known, `restarts` times; the best plan of all comes back.

    A heuristic. Without a time limit it is deterministic for a seed; with one, runs share the time
    that is left, and where `moves` is not given, more of them go on from the best plan until it is
    over. O(restarts x moves x (n + m) log m).

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> task = Task(example(), Makespan())
    >>> run(task, AnnealingParams(moves=200)).plan.placement
    ((0,), (1,), (0,), (1,))
    """
    clock = task.limits.clock()
    start = best_start(task, STARTS)
    if start is None:
        return Outcome(message=f"no start: none of {', '.join(STARTS)} found a plan")
    search = Annealing(task.instance, task.semantics)
    best, least = start
    seed, tried = task.limits.seed, -1
    while tried < search.tried and not search.interrupted:
        tried = search.tried
        for plan in search.runs(
            [best.devices],
            seed=seed,
            count=params.restarts,
            moves=params.moves,
            limit_s=clock.left_s,
        ):
            value = evaluate(task.instance, plan, task.semantics).value_ns
            if value is not None and value < least:
                best, least = plan, value
                tell(task.instance, task.semantics, "annealing", value_ns=value, plan=plan)
        seed += params.restarts
        if params.moves is not None or not clock.left_s:
            break
    return Outcome(
        best,
        message="interrupted" if search.interrupted else "",
        details={"moves": search.tried},
    )


register(
    Method(
        name="annealing",
        claim="heuristic",
        objectives=("makespan",),
        paper="placegap",
        summary="simulated annealing of placement and priorities, on a compiled scheduler",
        run=run,
        params=AnnealingParams,
        packages=("numba",),
    )
)
