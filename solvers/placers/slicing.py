"""slicing: topological orders cut into segments, each order optimally."""

from __future__ import annotations

from itertools import islice

from pydantic import Field

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import MaxLoad, Plan
from placegap.solvers.chains.orders import NUM_ORDERS, orders
from placegap.solvers.chains.slices import Slicer
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import EFFORT, Cost, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.movable_units import why_not_one_level


class SlicingParams(Params):
    #: How many topological orders are cut: depth first from either end, by least cut from either
    #: end, breadth first from either end, then the first two with random ties.
    orders: int = Field(default=NUM_ORDERS, ge=1, le=NUM_ORDERS, json_schema_extra=EFFORT)


@method(
    "slicing",
    objectives=("max_load",),
    cites="Tarnawski et al. 2020",
    scope="max_load, chain plans",
    starts={"max_load": Cost(1.5, 14.0, most_parts=100_000)},
    applies=why_not_one_level,
    packages=("numba",),
    seeded=True,
)
def slicing(task: Task[MaxLoad], params: SlicingParams) -> Outcome:
    """Cuts topological orders into one segment per device, each optimally.

    The linearized DP of Tarnawski et al. (NeurIPS 2020, "DPL"): of one order, all segments are
    ideals' differences, so a DP over the places to cut takes O(b^2 K + pins) for b blocks where the
    DP over ideals may be exponential. A heuristic: optimal for its orders, and never better than
    the best chain. With a time limit the best plan until then is returned.

    Deviations: several orders are cut, where the authors cut one; orders of more than 2,000 blocks
    are cut only where little is communicated; devices that differ come in some fixed sequences.
    """
    clock, slicer = Clock(task.limits.time_limit_s), Slicer(task)
    best: tuple[int, Ints] | None = None
    tried, message = 0, ""
    try:
        for order in islice(orders(slicer.problem, task.limits.seed), params.orders):
            found = slicer.slices(order, None if best is None else best[0] - 1)
            best = best if found is None else found
            tried += 1
            clock.check()
    except LimitReached as limit:
        message = f"stopped after {tried} orders: {limit}"
    details = {"blocks": slicer.problem.num_blocks, "orders": tried}
    if best is None:
        return Outcome(message=message or NO_SLICES, details=details)
    return Outcome(Plan.on(best[1].tolist()), message=message, details=details)


NO_SLICES = "none of its orders can be cut so that every device runs and holds its segment"
