"""Lower bounds on the max_load of chains, after Archer et al. (ICML 2024); they return no plan.

- ``archer-combinatorial``: sums (`archer_combinatorial`), in milliseconds;
- ``archer-three-blocks``: one MIP, of a size that does not depend on the number of devices;
- ``archer-bottleneck``: such a MIP for each place b that a device can have in the chain.

Each MIP starts from the combinatorial bound, so that theirs are never lower. All of them hold for
clusters of any kind, and for chains only (`formulations.archer` says why). A load is a sum of op
and host times, so the true optimum is a multiple of their greatest common divisor g (the optimum of
a relaxation is not: a part of c devices has c T); what is above a bound less the solver's margin is
therefore at least the next multiple of g, and bounds are rounded up to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import pyomo.environ as pyo

from placegap.formulations import archer
from placegap.formulations.archer import build_units
from placegap.formulations.shared.times import granularity_ns
from placegap.instances.problem.integers import ceil_div
from placegap.instances.problem.semantics import MaxLoad
from placegap.instances.reading.errors import paused_collector
from placegap.solvers.core.back_ends import LABELS, SolverName, require, solve_model, word
from placegap.solvers.core.back_ends.outcome import ENDINGS, Ending, bound_ns
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import Method, P, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.trust import PROOF
from placegap.solvers.models.archer import combinatorial_bound, why_not
from placegap.solvers.models.run_mip import MipParams

COMBINATORIAL = "archer combinatorial"
MIP = ("pyomo", "highspy")


class BottleneckParams(MipParams):
    """Which of the bounds for b = 1 .. k is taken.

    Attributes
    ----------
    over : {"max", "min"}
        ``max``: the largest, as each is a bound on its own. ``min``: the least, which is what a
        guess of the bottleneck's index proves.
    """

    over: Literal["max", "min"] = "max"


# ---------------------------------------------------------------------------------- one bound, or k


@dataclass
class BoundSearch:
    """Solves models of one task within its time limit, and keeps count.

    Attributes
    ----------
    task : Task[MaxLoad]
    what : str
        Name of the models, for the origin of their bounds.
    solver : str
    floor_ns : int
        The combinatorial bound, rounded up as all bounds are.
    granularity : int
        In ns; divides every load.
    num_blocks : int
        k.
    endings : dict
        How the last solve of each model ended; by b, 0 if there is none.
    """

    task: Task[MaxLoad]
    what: str
    solver: SolverName = "highs"

    def __post_init__(self) -> None:
        require(self.solver)
        self._clock = self.task.limits.clock()
        units = build_units(self.task.instance)
        self.num_blocks = units.num_accelerators
        self.granularity = granularity_ns(self.task.instance, transfers=False)
        least = combinatorial_bound(units, self.task.semantics.load)
        self.floor_ns = self.granularity * ceil_div(least, self.granularity)
        self.build_s = self._longest_s = 0.0
        self._is_cut = False
        self.counts = {"rows": 0, "columns": 0, "nodes": 0}
        self.endings: dict[int, Ending] = {}

    def solve(
        self, model: pyo.ConcreteModel, index: int = 0, share: float = 1.0
    ) -> tuple[Ending, int]:
        """Solve in a share of the time that is left: how it ended, and what it proves in ns."""
        limits = self.task.limits.left(self._clock.part(share))
        found = solve_model(model, limits, solver=self.solver)
        self.build_s += found.hand_off_s
        self.counts["rows"] = max(self.counts["rows"], found.rows)
        self.counts["columns"] = max(self.counts["columns"], found.columns)
        self.counts["nodes"] += found.nodes
        self.endings[index] = found.ending
        proven = bound_ns(found.dual_bound, pyo.value(model.unit_ns), self.granularity)
        return found.ending, max(self.floor_ns, proven or 0)

    def build(self, build: Callable[[], pyo.ConcreteModel]) -> pyo.ConcreteModel:
        """Build a model, and count the time that it takes."""
        began = now_s()
        with paused_collector():
            model = build()
        took_s = now_s() - began
        self.build_s += took_s
        self._longest_s = max(self._longest_s, took_s)
        return model

    def stops(self) -> bool:
        """Whether there is no time to build, hand over and solve one more model; it is noted."""
        left_s = self._clock.left_s
        self._is_cut = left_s is not None and left_s <= 2 * self._longest_s
        return self._is_cut

    def outcome(self, bound: int | None) -> Outcome:
        """A bound; None: there is no plan."""
        details: dict[str, int | float | str] = {"combinatorial_ns": self.floor_ns, **self.counts}
        if bound is None:
            message = f"{LABELS[self.solver]} proves that no chain plan exists"
            return Outcome(
                proven_infeasible=True,
                rests_on=word(self.solver),
                message=message,
                build_s=self.build_s,
                details=details,
            )
        words = [
            ENDINGS[ending].format(solver=LABELS[self.solver])
            for ending in self.endings.values()
            if ending != "infeasible"  # a guess above the cut-off
        ]
        return Outcome(
            bound_ns=bound,
            bound_origin=(
                f"{self.what} ({self.solver})" if bound > self.floor_ns else COMBINATORIAL
            ),
            rests_on=word(self.solver) if bound > self.floor_ns else PROOF,
            message=next(filter(None, words), "stopped at the time limit" if self._is_cut else ""),
            build_s=self.build_s,
            details=details,
        )


def run_combinatorial(task: Task[MaxLoad], params: Params) -> Outcome:
    """Sums; see `combinatorial_bound`."""
    search = BoundSearch(task, COMBINATORIAL)
    return replace(search.outcome(search.floor_ns), details={})


def run_three_blocks(task: Task[MaxLoad], params: MipParams) -> Outcome:
    """One MIP; at the time limit, its dual bound."""
    search = BoundSearch(task, "archer three blocks", params.solver)
    model = search.build(
        lambda: archer.build_three_blocks(
            task.instance, task.semantics, at_least_ns=search.floor_ns
        )
    )
    ending, bound = search.solve(model)
    return search.outcome(None if ending == "infeasible" else bound)


# ----------------------------------------------------------------------------- guess the bottleneck


def run_bottleneck(task: Task[MaxLoad], params: BottleneckParams) -> Outcome:
    """A MIP for each b; at the time limit every dual bound is still a bound.

    A b that was not reached has the combinatorial bound.
    """
    search = BoundSearch(task, "archer bottleneck", params.solver)
    return search.outcome(_largest(search) if params.over == "max" else _least(search))


def _bottleneck(search: BoundSearch, index: int, at_least_ns: int) -> pyo.ConcreteModel:
    task, k = search.task, search.num_blocks
    return search.build(
        lambda: archer.build_bottleneck(task.instance, task.semantics, k, index, at_least_ns)
    )


def _middle_out(num_blocks: int) -> list[int]:
    """1 .. k, the middle first."""
    return sorted(range(1, num_blocks + 1), key=lambda b: (abs(2 * b - num_blocks - 1), b))


def _largest(search: BoundSearch) -> int | None:
    """The largest bound over b; None: some b has no solution, so that there is no plan.

    Each model starts from the best bound so far: it ends as soon as it has a solution of that load.
    The first round takes half of the time at most; the rest goes to what it left open, the highest
    bound first.
    """
    best, still_open = search.floor_ns, []
    order = _middle_out(search.num_blocks)
    for left, b in zip(range(len(order), 0, -1), order, strict=True):
        if search.stops():
            return best
        ending, bound = search.solve(_bottleneck(search, b, best), b, 1 / (left + len(order)))
        if ending == "infeasible":
            return None
        best = max(best, bound)
        if ending == "interrupted":
            return best
        if ending != "optimal":
            still_open.append((-bound, b))
    for _, b in sorted(still_open):
        if search.stops():
            return best
        share = 1.0 if b == max(still_open)[1] else 0.5
        ending, bound = search.solve(_bottleneck(search, b, best), b, share)
        best = max(best, bound)
        if ending == "interrupted":
            return best
    return best


def _least(search: BoundSearch) -> int | None:
    """The least bound over b; None: the first b has no solution, so that there is no plan.

    The outer b first, which tend to have the least; the bound of one is the cut-off of the next.
    """
    order, least = _middle_out(search.num_blocks)[::-1], None
    for left, b in zip(range(len(order), 0, -1), order, strict=True):
        if least == search.floor_ns:
            break
        if search.stops():
            return search.floor_ns
        model = _bottleneck(search, b, search.floor_ns)
        if least is not None:
            model.largest.setub(least / pyo.value(model.unit_ns))
        ending, bound = search.solve(model, b, 1 / left)
        if ending == "infeasible":
            if least is None:
                return None
            continue  # it is above the cut-off
        least = bound if least is None else min(least, bound)
        if ending == "interrupted" and left > 1:
            return search.floor_ns
    return least


# ----------------------------------------------------------------------------------------- registry


def applies(task: Task[MaxLoad], params: Params) -> str | None:
    """Why the semantics or the size is out of reach, or None; nothing is built."""
    return why_not(task, "superblocks")


def _register(
    name: str,
    summary: str,
    run: Callable[[Task[MaxLoad], P], Outcome],
    params: type[P],
    packages: tuple[str, ...],
) -> None:
    register(
        Method(
            name=f"archer-{name}",
            usual_rules=lambda params: {"plans": "chain"},
            claim="bound",
            objectives=("max_load",),
            paper="Archer et al., ICML 2024",
            summary=f"Lower bound on the max-load of chains: {summary}.",
            run=run,
            params=params,
            applies=applies,
            packages=packages,
        )
    )


_register("combinatorial", "the work spread, the heaviest unit", run_combinatorial, Params, ())
_register("three-blocks", "three superblocks", run_three_blocks, MipParams, MIP)
_register("bottleneck", "its place in the chain guessed", run_bottleneck, BottleneckParams, MIP)
