"""m-SCT: earliest task first under memory limits, where devices wait for favourite children."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from placegap.formulations import m_sct as lp
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Makespan
from placegap.instances.reading.errors import paused_collector
from placegap.solvers.core.back_ends import solve_model
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import Cost, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.models.run_mip import why_too_long
from placegap.solvers.placers.baechi import MemoryParams, place_booked, why_not_dynamic
from placegap.solvers.placers.list_problem import NOWHERE


class SctParams(MemoryParams):
    """Parameters of m-SCT; `memory` as of m-ETF."""

    #: Children that the LP sets apart by no more than this are favourites; Baechi's function has
    #: 0.5, its command line 0.1.
    threshold: float = Field(default=0.5, ge=0, lt=1)
    #: Above this many ops, the LP is solved piece by piece: so many ops in topological order at a
    #: time, with the edges between them.
    window: int = Field(default=2500, ge=1)


def applies(task: Task[Makespan], params: Params) -> str | None:
    """Why the LP is out of reach, or None; nothing is built."""
    return why_too_long(lp.horizon_ns(task.instance)) or why_not_dynamic(task, params)


@method(
    "m-sct",
    objectives=("makespan",),
    cites="Jeon et al. 2020 (Baechi)",
    applies=applies,
    packages=("pyomo", "highspy"),
    starts={"makespan": Cost(200.0, 60.0)},
)
def m_sct(task: Task[Makespan], params: SctParams | None = None) -> Outcome:
    """m-ETF, but a device waits for its last op's favourite child, chosen by an LP.

    Jeon, Cai, Srivastava, Jiang, Ke, Meng, Xie, Gupta, "Baechi: fast device placement of machine
    learning graphs", ACM SoCC 2020, after Hanen, Munier 1995. A heuristic for the makespan.
    Favourites come from the published LP (`formulations.m_sct`), solved by HiGHS, and Baechi's
    rounding; `earliest_start_first` places. The planning model is Baechi's, as for m-ETF. Time
    beside the LP as for m-ETF.

    Deviations: as for m-etf; times in the LP are the least over the devices; above `window` ops
    the LP is solved in pieces. The LP has many optima: results depend on the solver's version.
    """
    chosen = params or SctParams()
    found = favourites(task, chosen)
    outcome = place_booked(task.instance, found.child, dynamic=chosen.memory == "dynamic")
    details = {"pieces": found.pieces, "favourites": int((found.child != NOWHERE).sum())}
    message = "; ".join(filter(None, (outcome.message, found.message)))
    return replace(outcome, build_s=found.build_s, details=details, message=message)


@dataclass(frozen=True, eq=False)
class FoundFavourites:
    """The favourite child of each op or -1, (n,); LPs solved, seconds to build them, complaints."""

    child: Ints
    pieces: int
    build_s: float
    message: str


def favourites(task: Task[Makespan], params: SctParams) -> FoundFavourites:
    """Favourite children by the LP, or by one LP per piece of the topological order."""
    instance, limits = task.instance, task.limits
    clock = limits.clock()
    child = np.full(instance.num_ops, NOWHERE)
    build_s, pieces, message = 0.0, 0, ""
    for members, piece in _pieces(instance, params.window):
        built = now_s()
        with paused_collector():
            model = lp.build(piece, task.semantics)
        build_s += now_s() - built
        outcome = solve_model(model, limits.left(clock), relax=True)
        build_s += outcome.hand_off_s
        if outcome.ending != "optimal":
            message = f"the LP of ops without favourites ended with {outcome.ending}"
            break
        pieces += 1
        found = lp.extract(model, piece, threshold=params.threshold, check=False)
        for op, favourite in enumerate(found):
            if favourite is not None:
                child[members[op]] = members[favourite]
    return FoundFavourites(child, pieces, build_s, message)


def _pieces(instance: Instance, window: int) -> Iterator[tuple[list[int], Instance]]:
    """The instance in pieces along its topological order, each with its ops' numbers."""
    n, graph = instance.num_ops, instance.graph
    if n <= window:
        yield list(range(n)), instance
        return
    index = instance.arrays.index
    number = index.topological_position // window
    inside = np.flatnonzero(number[index.producer] == number[index.consumer])
    of_edge = number[index.producer[inside]]
    for p in range(int(number.max()) + 1):
        members = np.flatnonzero(number == p).tolist()
        part = graph.model_copy(
            update={
                "ops": tuple(graph.ops[i] for i in members),
                "edges": tuple(graph.edges[e] for e in inside[of_edge == p].tolist()),
            }
        )
        yield members, instance.model_copy(update={"graph": part, "best_known": ()})
