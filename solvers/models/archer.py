"""Max-load of chains after Archer et al. (ICML 2024): the exact MIP, and bounds without a plan.

- ``archer-exact``: the exact MIP, for identical accelerators;
- ``archer-combinatorial``: sums (`combinatorial_bound`), in milliseconds;
- ``archer-three-blocks``: one MIP, of a size that does not depend on the number of devices;
- ``archer-bottleneck``: such a MIP for each place b that a device can have in the chain.

Each MIP of a bound starts from the combinatorial bound, so that theirs are never lower. The bounds
hold for clusters of any kind, and for chains only (`formulations.archer` says why). A load is a sum
of op and host times, so the true optimum is a multiple of their greatest common divisor g (the
optimum of a relaxation is not: a part of c devices has c T); what is above a bound less the
solver's margin is therefore at least the next multiple of g, and bounds are rounded up to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Literal

import pyomo.environ as pyo

from placegap.formulations import archer
from placegap.formulations.archer import Units, build_units
from placegap.formulations.shared.times import granularity_ns
from placegap.instances.problem import LoadRule, MaxLoad
from placegap.instances.problem.integers import UNSUPPORTED, ceil_div
from placegap.instances.reading.errors import paused_collector
from placegap.solvers.chains.problem import why_not_two_kinds
from placegap.solvers.core.back_ends import LABELS, SolverName, require, solve_model, word
from placegap.solvers.core.back_ends.outcome import ENDINGS, Ending, bound_ns
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import ExactParams, Formulation, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome, no_plan
from placegap.solvers.models.run_mip import MIP, MipParams, run_mip, why_too_long, why_too_many_rows

STARTS = ("ideal-dp",)
"""Methods beside the placers whose plans the model starts from."""


class ArcherParams(MipParams, ExactParams):
    """Parameters of ``archer-exact``."""


def why_not(task: Task[MaxLoad], form: archer.Form) -> str | None:
    """Why the models of Archer et al. do not do a semantics or a size, or None."""
    reason = archer.why_not(task.semantics)
    if reason is not None:
        return f"its model {reason}"
    return why_too_long(archer.horizon_ns(task.instance)) or why_too_many_rows(
        archer.count_rows(task.instance, form)
    )


def applies(task: Task[MaxLoad], params: Params) -> str | None:
    """Why the semantics, the devices or the size are out of reach, or None; nothing is built."""
    if task.instance.arrays.is_host.any():
        return "takes identical accelerators, and no host"
    return why_not(task, "exact") or why_not_two_kinds(task.instance)


def formulation(task: Task[MaxLoad], params: ArcherParams) -> Formulation:
    """The model of a task, and how plans get into it and out of it."""
    instance, semantics = task.instance, task.semantics
    return Formulation(
        name="archer-exact",
        starts=STARTS,
        granularity_ns=granularity_ns(instance, transfers=False),
        build=lambda start: archer.build_exact(instance, semantics),
        warm_start=lambda model, plan: archer.warm_start(model, instance, plan, semantics),
        extract=lambda model: archer.extract(model, instance),
    )


@method(
    "archer-exact",
    objectives=("max_load",),
    claim="exact",
    cites="Archer et al. 2024",
    scope="max_load, chain plans, identical accelerators",
    applies=applies,
    formulation=formulation,
    packages=MIP,
    solver="HiGHS",
)
def run_exact(task: Task[MaxLoad], params: ArcherParams) -> Outcome:
    """Integer program over the blocks of a chain."""
    return run_mip(task, formulation(task, params), params.solver)


def combinatorial_bound(units: Units, load: LoadRule) -> int:
    """The larger of `spread_work` and `heaviest_unit`, in ns.

    It does not use the order of a chain; units are what chain plans keep together. A unit that no
    device takes counts for nothing: then there is no plan.
    """
    return max(spread_work(units), heaviest_unit(units, load))


def spread_work(units: Units) -> int:
    """Least T in which k accelerators and C hosts do all compute, units split at will.

    For any prices p of accelerator time and q of host time with k p + C q = 1, a plan of load T
    has T >= p (work of the accelerators) + q (work of the hosts) >= the sum over the units v of
    min(p a_v, q h_v). The best prices make some unit indifferent, p / q = h_v / a_v, or one of them
    0; O(u log u).
    """
    k, hosts = units.num_accelerators, units.num_hosts
    pairs = list(zip(units.accelerators.time_ns, units.hosts.time_ns, strict=True))
    # sums of compute on accelerators and on hosts, as the ratio h / a falls
    on_accelerators = sum(a for a, h in pairs if h == UNSUPPORTED and a != UNSUPPORTED)
    on_hosts = sum(h for a, h in pairs if h != UNSUPPORTED)
    best = ceil_div(on_accelerators, k)
    on_both = [(a, h) for a, h in pairs if a > 0 and h != UNSUPPORTED]
    on_hosts -= sum(h for a, h in pairs if a == 0 and h != UNSUPPORTED)
    for a, h in sorted(on_both, key=lambda pair: Fraction(pair[1], pair[0]), reverse=True):
        on_accelerators, on_hosts = on_accelerators + a, on_hosts - h
        if h:
            best = max(best, ceil_div(h * on_accelerators + a * on_hosts, k * h + hosts * a))
    return max(best, ceil_div(on_hosts, hosts)) if hosts else best


def heaviest_unit(units: Units, load: LoadRule) -> int:
    """The most that a unit makes its device do, wherever it is; O(p) for p pins.

    Each net of unit v is assigned to one other pin u, its heaviest. Either u is with v, and costs
    its time a_u, or all nets assigned to u are cut: v's device does at least the sum over the u of
    min(a_u, the weight assigned to u) on top of a_v. With ``overlap`` loads it does a_v at least.
    """
    time, weight = units.accelerators.time_ns, units.accelerators.weight_ns
    extra: list[dict[int, int]] = [{} for _ in time]
    for pins, cost in zip(units.pins, weight, strict=True):
        # of the two most expensive pins of a net, each unit takes the one that it is not
        dear = sorted(pins, key=lambda u: (time[u] != UNSUPPORTED, -time[u], u))[:2]
        for v in pins:
            other = dear[1] if v == dear[0] else dear[0]
            extra[v][other] = extra[v].get(other, 0) + cost
    best = 0
    for v, (own, on_host) in enumerate(zip(time, units.hosts.time_ns, strict=True)):
        choices = [] if on_host == UNSUPPORTED else [on_host]
        if own != UNSUPPORTED:
            joined = sum(
                cost if time[u] == UNSUPPORTED else min(time[u], cost)
                for u, cost in extra[v].items()
            )
            choices.append(own + (joined if load == "add" else 0))
        best = max(best, min(choices, default=0))
    return best


COMBINATORIAL = "archer combinatorial"


class BottleneckParams(MipParams):
    """Which of the bounds for b = 1 .. k is taken."""

    #: ``max``: the largest, as each is a bound on its own. ``min``: the least, which is what a
    #: guess of the bottleneck's index proves.
    over: Literal["max", "min"] = "max"


# ---------------------------------------------------------------------------------- one bound, or k


@dataclass
class BoundSearch:
    """Solves models of one task within its time limit, and keeps count."""

    task: Task[MaxLoad]
    #: Name of the models, for the origin of their bounds.
    what: str
    solver: SolverName = "highs"

    def __post_init__(self) -> None:
        require(self.solver)
        self._clock = self.task.limits.clock()
        units = build_units(self.task.instance)
        #: k.
        self.num_blocks = units.num_accelerators
        #: In ns; divides every load.
        self.granularity = granularity_ns(self.task.instance, transfers=False)
        least = combinatorial_bound(units, self.task.semantics.load)
        #: The combinatorial bound, rounded up as all bounds are.
        self.floor_ns = self.granularity * ceil_div(least, self.granularity)
        self.build_s = self._longest_s = 0.0
        self._is_cut = False
        self.counts = {"rows": 0, "columns": 0, "nodes": 0}
        #: How the last solve of each model ended; by b, 0 if there is none.
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
                bound=no_plan(word(self.solver)),
                message=message,
                build_s=self.build_s,
                details=details,
            )
        words = [
            ENDINGS[ending].format(solver=LABELS[self.solver])
            for ending in self.endings.values()
            if ending != "infeasible"  # a guess above the cut-off
        ]
        proven = Bound(self.floor_ns, COMBINATORIAL)
        if bound > self.floor_ns:
            proven = Bound(bound, f"{self.what} ({self.solver})", word(self.solver))
        return Outcome(
            bound=proven,
            message=next(filter(None, words), "stopped at the time limit" if self._is_cut else ""),
            build_s=self.build_s,
            details=details,
        )


def bound_applies(task: Task[MaxLoad], params: Params) -> str | None:
    """Why the semantics or the size is out of reach, or None; nothing is built."""
    return why_not(task, "superblocks")


bound = partial(
    method,
    objectives=("max_load",),
    claim="bound",
    cites="Archer et al. 2024",
    scope="max_load, chain plans",
    applies=bound_applies,
)


@bound("archer-combinatorial")
def run_combinatorial(task: Task[MaxLoad], params: Params) -> Outcome:
    """The work spread over all devices, the heaviest unit."""
    search = BoundSearch(task, COMBINATORIAL)
    return replace(search.outcome(search.floor_ns), details={})


@bound("archer-three-blocks", packages=MIP)
def run_three_blocks(task: Task[MaxLoad], params: MipParams) -> Outcome:
    """Integer program over three superblocks."""
    search = BoundSearch(task, "archer three blocks", params.solver)
    model = search.build(
        lambda: archer.build_three_blocks(
            task.instance, task.semantics, at_least_ns=search.floor_ns
        )
    )
    ending, bound = search.solve(model)
    return search.outcome(None if ending == "infeasible" else bound)


# ----------------------------------------------------------------------------- guess the bottleneck


@bound("archer-bottleneck", packages=MIP)
def run_bottleneck(task: Task[MaxLoad], params: BottleneckParams) -> Outcome:
    """Integer programs for each position of the bottleneck block in the chain.

    One for each b; at the time limit every dual bound is still a bound, and a b that was not
    reached has the combinatorial bound.
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
