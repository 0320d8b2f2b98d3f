"""D-DPS: list scheduling along the dynamic critical path."""

from __future__ import annotations

from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.dynamic_critical_path import schedule_dynamic_path
from placegap.solvers.placers.insertion import idle_devices
from placegap.solvers.placers.list_problem import (
    admission_of,
    levels,
    mean_costs,
    outcome_of,
    problem_of,
)


def d_dps(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Place the ready op of least slack in a slot before its latest start, near its parents.

    Zeng et al., "FD-DPS", Mathematics 2022, 10, 4788, without its splitting of ops, which it calls
    D-DPS(-F): Algorithms 1 to 3 with earliest and latest start (6), (7), dynamic critical path
    length (10), slot search (11) and child rule (12). A heuristic for the makespan; it plans with
    free channels and inserts ops into idle gaps. `schedule_dynamic_path` says how ops and devices
    are chosen.
    Misprints mended: (7) is taken as a latest start, (12) as arg min.
    Filled in: what is placed stays where and when it is, so that a slot ends where the next op
    starts; costs of ops and transfers not yet placed are means, exact as in HEFT; on each device
    an op's earliest start has the true transfers from its parents, and its latest start shifts as
    far; of several parents' devices, and in ties, the earliest start, then the first device; the
    most urgent child is judged by its earliest start after the parents that are placed; "the
    device of the lowest priority op" is that of the placed op of largest slack. Added to the
    paper: an op goes only to devices that can run it, with room for it and its colocation group.
    O((V + E) (K + log V)) time: the longest way from an unplaced op to the end never changes, so
    that after each step only the earliest starts behind the placed op need an update.

    Examples
    --------
    The paper's figure 3, where op 4 need not be on device 0 as it is there (35):

    >>> from placegap.instances import Makespan, example, simulate
    >>> semantics = Makespan(channels="free")
    >>> plan = d_dps(Task(example(), semantics)).plan
    >>> plan.placement, simulate(example(), plan, semantics).makespan_ns
    (((0,), (1,), (0,), (1,)), 34)
    """
    arrays = task.instance.arrays
    problem, admission, costs = problem_of(arrays), admission_of(arrays), mean_costs(arrays)
    times = schedule_dynamic_path(
        problem,
        admission,
        levels(problem, costs.op, costs.tensor),
        costs.tensor,
        costs.scale,
        arrays.index.topological_position,
        idle_devices(task.instance.num_devices, task.instance.num_ops),
    )
    return outcome_of(task.instance, times, admission)


register(
    Method(
        name="d-dps",
        claim="heuristic",
        objectives=("makespan",),
        paper="Zeng et al. 2022 (FD-DPS)",
        cites=("zeng2022",),
        summary="dynamic critical path, least slack first; FD-DPS without its splits",
        starts={"makespan": Cost(0.6, 3.0)},
        run=d_dps,
        params=Params,
    )
)
