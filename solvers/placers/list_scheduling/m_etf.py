"""m-ETF: earliest task first under memory limits, with transfers that occupy devices' channels."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.baechi import (
    MemoryParams,
    place_dynamic,
    why_not_dynamic,
)
from placegap.solvers.placers.earliest_start import earliest_start_first
from placegap.solvers.placers.list_problem import (
    NOWHERE,
    admission_of,
    order_by,
    outcome_of,
    problem_of,
)


def m_etf(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Repeatedly start the ready op that can start earliest where it fits, booking its transfers.

    Jeon, Cai, Srivastava, Jiang, Ke, Meng, Xie, Gupta, "Baechi: fast device placement of machine
    learning graphs", ACM SoCC 2020. A heuristic for the makespan. Its planning model is Baechi's:
    each device has one clock for sending and receiving, a tensor goes once to each device, and
    transfers are booked when their consumer is placed; the referee judges the plan by the task's
    own channels. Ties: topological position (first-in-first-out Kahn over the input order), then
    device index.
    Deviations: times may differ between devices (Baechi: one time per op; it does not enter the
    choice) and between links (Baechi: one linear fit for all pairs); memory is the resident bytes,
    fixed, unless ``memory=dynamic`` lets outputs and scratch memory come and go as in Baechi
    (`dynamic_memory`: slower; its plans fit the resident bytes, too); the admission test of a
    colocation group is the resident bytes and the support of all its members; ops are not grouped
    beforehand.
    O((V + E) K log V) time where channels are rarely the bottleneck; a pair whose booking moved
    is tried again, at worst every waiting pair in every step.

    Examples
    --------
    >>> from placegap.instances import Makespan, example, simulate
    >>> semantics = Makespan(channels="half_duplex")
    >>> plan = m_etf(Task(example(), semantics)).plan
    >>> plan.placement, simulate(example(), plan, semantics).makespan_ns
    (((0,), (0,), (0,), (0,)), 43)
    """
    arrays = task.instance.arrays
    problem, admission = problem_of(arrays), admission_of(arrays)
    topological_order = order_by(np.zeros_like(arrays.group), arrays)
    if isinstance(params, MemoryParams) and params.memory == "dynamic":
        no_favourites = np.full(task.instance.num_ops, NOWHERE)
        return place_dynamic(task.instance, topological_order, no_favourites)
    times = earliest_start_first(problem, admission, topological_order, True)
    return outcome_of(task.instance, times, admission)


register(
    Method(
        name="m-etf",
        claim="heuristic",
        objectives=("makespan",),
        paper="Jeon et al. 2020 (Baechi)",
        cites=("jeon2020",),
        summary="ETF with memory limits; transfers booked on the devices' channels",
        starts={"makespan": Cost(0.4, 4.1)},
        run=m_etf,
        params=MemoryParams,
        applies=why_not_dynamic,
    )
)
