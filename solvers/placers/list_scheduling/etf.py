"""ETF: earliest task first."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.earliest_start import earliest_start_first
from placegap.solvers.placers.list_problem import (
    admission_of,
    levels,
    mean_costs,
    order_by,
    outcome_of,
    problem_of,
)


def etf(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Repeatedly start the ready op that can start earliest, on the device where it can.

    Hwang, Chow, Anger, Lee, "Scheduling precedence graphs in systems with interprocessor
    communication times", SIAM J. Computing 18(2), 1989. A heuristic for the makespan; it plans
    with free channels and inserts nothing into idle gaps.
    Ties: higher static level (longest path of mean times to the end, without transfers), then
    topological position, then device index. The paper has equal processors; here an op's time on
    a device does not enter the choice. Added to it: an op goes only to devices that can run it,
    with room for it and its colocation group.
    O((V + E) K log V) time.

    Examples
    --------
    >>> from placegap.instances import Makespan, example, simulate
    >>> semantics = Makespan(channels="free")
    >>> plan = etf(Task(example(), semantics)).plan
    >>> plan.placement, simulate(example(), plan, semantics).makespan_ns
    (((0,), (0,), (0,), (0,)), 43)
    """
    arrays = task.instance.arrays
    problem, admission, costs = problem_of(arrays), admission_of(arrays), mean_costs(arrays)
    static_level = levels(problem, costs.op, np.zeros_like(costs.tensor))
    times = earliest_start_first(problem, admission, order_by(static_level, arrays), False)
    return outcome_of(task.instance, times, admission)


register(
    Method(
        name="etf",
        claim="heuristic",
        objectives=("makespan",),
        paper="Hwang et al. 1989",
        cites=("hwang1989",),
        summary="starts the op that can start earliest",
        starts={"makespan": Cost(0.4, 4.0)},
        run=etf,
        params=Params,
    )
)
