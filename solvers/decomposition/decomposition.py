"""Bottleneck decomposition and interval chains: proven makespans of real inference graphs.

1. *Sections* (`instances.problem.sections`, where the theorem is). The graph is cut where
   every schedule splits. The optimum is a shortest path over (cut, device), whose arcs are the
   optima of the sections between two cuts, both end devices fixed. An arc starts with the bound of
   paths; only arcs on a shortest path are refined, by the section LP where it pays and by CP-SAT,
   so that most are never solved (`decomposition.search`). Section plans in a row are a plan of the
   whole.
2. *Intervals* (`problem.sections`). A section that is too large for that, such as a
   whole encoder-decoder graph, still has a chain of intervals along a long path; the same search
   raises their bounds. A chain of intervals gives a bound on the whole, and no plan.
3. *The whole* (`solve_whole`). Gaps that are still open (too large a section, memory that binds)
   are left to CP-SAT on the whole graph, with all bounds on sections as rows.

With slack memory the first step alone is exact; the last makes the method exact in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from placegap.formulations.shared.times import LARGEST_HORIZON_NS
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.sections import (
    Interval,
    Section,
    choose_chain,
    cuts,
    intervals,
    sections_between,
)
from placegap.solvers.core.back_ends.outcome import MOST_PARTS, say_rest
from placegap.solvers.core.clock import stop_requested
from placegap.solvers.core.method import ExactParams, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import (
    PROOF,
    Bound,
    Outcome,
    fault_of,
    no_plan,
    solver_and_version,
)
from placegap.solvers.core.starts import best_start
from placegap.solvers.decomposition.arcs import (
    PROOFS,
    Arc,
    ArcTable,
    Chain,
    Use,
    interval_chain,
    lower_table,
    tiling,
)
from placegap.solvers.decomposition.search import Runs, SectionSearch, runs_of
from placegap.solvers.decomposition.section_jobs import SectionWorkers, Step
from placegap.solvers.local_search.annealing import Annealing, usual_moves

if TYPE_CHECKING:  # CP-SAT brings pandas, which take half a second; many graphs need neither
    from placegap.formulations.makespan_cp import MakespanModel
    from placegap.solvers.core.back_ends.cp_sat import Answer

LP_FROM = 40  # sections of this size and more get the LP first: CP-SAT proves most smaller in 1 s
MOST_INNER = 100  # sections with more ops between their ends are not solved by themselves


PATIENCE = 10  # with a time limit, runs of annealing may be this many times longer than by default
# Annealing gets `SHARE` of the time left. CP-SAT on the whole graph rarely closes models of more
# than `PROMISING` parts: then annealing gets `LARGE_SHARE`, and all of it where there is no model.
PROMISING, SHARE, LARGE_SHARE = 20_000, 1 / 3, 0.8
# Sections get this share of the time left where some section is too large or memory binds, and so
# does a chain of intervals or runs: the rest is for annealing and the whole model.
SECTIONS_SHARE = 1 / 3
PRICE_SHARE = 0.1  # share of the time left for prices of bytes along one chain of runs
MOST_OPS_OF_CHAINS = 20_000  # larger graphs have no search for intervals: windows take seconds
PARTS_PER_S = 20_000  # parts of a model built and presolved in a second; no larger one is built
# Annealing begins at no more plans than this, whose values are at most `NEAR` times the best.
MOST_STARTS, NEAR = 4, 1.03


class DecompositionParams(ExactParams):
    #: Worker processes for sections, from the second second on, and threads for the whole model.
    #: With one, and without a time limit, the same plan comes back every time.
    workers: int = Field(default=2, ge=1, le=1024)
    #: Whether annealing searches for plans after the sections. Without it, small whole models get
    #: that time, and large ones are left out, which pays where other searches find the plans.
    anneal: bool = True


def applies(task: Task[Makespan], params: Params) -> str | None:
    """Why the method does not apply, or None."""
    if task.instance.arrays.serial_horizon_ns > LARGEST_HORIZON_NS:
        return "its times sum to more than 2**59 ns"
    return None


@method(
    "decomposition",
    objectives=("makespan",),
    claim="exact",
    paper="placegap",
    scope="makespan, all channels and transfers",
    solver="CP-SAT",
    applies=applies,
    packages=("ortools", "highspy"),
)
def run(task: Task[Makespan], params: DecompositionParams) -> Outcome:
    """Shortest path over bottlenecks and devices; sections by LP and CP-SAT, lazily.

    An interrupt (Ctrl-C) ends the search and returns the plan and the bound found so far.
    """
    clock = task.limits.clock()
    with SectionWorkers(params.workers) as workers:
        search = SectionSearch(task, ArcTable(task.instance, task.semantics), workers, clock)
        try:
            search.found_bound(task.floor_ns, 0)
            start = best_start(task)
            if start is not None:
                search.found_plan(start.plan)
            solve(search, params)
        except KeyboardInterrupt:
            search.interrupted = True
        except MemoryError:
            search.note = "out of memory"
        except Exception as error:  # the plan and the bound found so far count
            search.interrupted |= stop_requested()
            if not search.interrupted:
                search.faults += [fault_of("decomposition", task.instance, error)]
                search.note = "stopped by an error"
    bound = Bound(search.bound.value, f"decomposition, {PROOFS[search.proof]}", _basis(search))
    if search.infeasible:
        bound = no_plan(bound.basis, bound.origin)
    elif search.bound.value == task.floor_ns:
        bound = Bound(task.floor_ns, basis="")
    return Outcome(
        plan=search.plan,
        claim=search.claim,
        bound=bound,
        faults=tuple(search.faults),
        message=_message(search),
        details={"jobs": search.jobs, "arcs": len(search.table.known)},
    )


def _basis(search: SectionSearch) -> str:
    """CP-SAT if it raised any arc, as the path is shortest only by the bounds of all others."""
    highest = max((arc.proof for arc in search.table.known.values()), default=0)
    by_solver = PROOFS[max(search.proof, highest)] == "cp-sat"
    return solver_and_version("ortools") if by_solver else PROOF


def _message(search: SectionSearch) -> str:
    if search.infeasible:
        return "no placement fits"
    if search.interrupted:
        return "interrupted"
    if search.value == search.bound.value:
        return ""
    limits = search.task.limits
    if search.clock.left_s == 0.0:
        return f"time limit of {limits.named_s:g} s reached"
    ending = say_rest(search.value, search.bound.value, limits, search.note) or search.note
    return ending or "ended: neither sections nor CP-SAT on the whole graph proved a higher bound"


def solve(search: SectionSearch, params: DecompositionParams) -> None:
    """Refine sections, then intervals, then the whole."""
    instance = search.task.instance
    sections = sections_between(instance, cuts(instance))
    # nothing to decompose, and too large for a model of the whole: only annealing is left
    if len(sections) == 1 and instance.num_ops > MOST_OPS_OF_CHAINS:
        while params.anneal and _anneal(search, 1.0) and search.clock.left_s is not None:
            pass
        return
    tiles, exact = tiling(search.table, sections), instance.arrays.memory_is_slack
    chains, large = [tiles], any(_too_large(section) for section in sections)

    def join() -> None:
        search.join_plans(tiles, exact=exact)

    # Where memory binds, sections are not independent: their shortest path is a bound, but its plan
    # may not fit. Runs of the same arcs that fit are a higher bound (`MemoryRuns`).
    runs = [] if exact else _runs_that_fit(search, tiles)
    if search.over:
        return
    # First paths alone, without jobs: that may close the gap already, and joins what plans there
    # are. Then a dive for a good plan, whose value makes the horizons of the proof short.
    with search.within(1.0 if exact and not large else SECTIONS_SHARE):
        search.refine(tiles, make_plans=join)
        if not large or search.promises(tiles, _step):
            search.dive(tiles, join, _step)
            search.refine(tiles, _step, join)
    if not search.over and not exact:
        # what proves comes before annealing, which only looks for plans
        search.dive_into_memory(tiles, _step)
        for each in runs:
            _refine_runs(search, each, tiles)
        if runs:
            search.dive_into_memory(tiles, _step)  # again, with the plans and bounds of more arcs
    if search.over:
        return
    if large and instance.num_ops <= MOST_OPS_OF_CHAINS:
        chains += _intervals_alone(search)
        if search.over:
            return
    # a shorter plan is a shorter horizon for the whole model, whose threads take over from
    # processes
    if params.anneal:
        _anneal(search)
    elif search.plan is not None and whole_parts(instance) > PROMISING:
        return  # it rarely proves anything: searches do more with the time
    search.workers.close()
    if search.over:
        return
    solve_whole(search, chains, params.workers)
    while params.anneal and search.clock.left_s is not None and _anneal(search, 1.0):
        pass  # annealing uses up the time limit


# ------------------------------------------------------------------------ chains of intervals


def _intervals_alone(search: SectionSearch) -> list[Chain]:
    """Refine a chain of intervals, if there is one."""
    chosen = choose_chain(search.task.instance, _intervals(search))
    if not chosen:
        return []
    chain = interval_chain(search.table, chosen, _limit(search))
    with search.within(SECTIONS_SHARE):
        search.refine(chain)
        if search.promises(chain, _lp_step):
            search.refine(chain, _lp_step)
    return [chain]


def _intervals(search: SectionSearch) -> list[Interval]:
    if search.intervals is None:
        search.intervals = intervals(search.task.instance)
    return search.intervals


def _limit(search: SectionSearch) -> int:
    """The value of the best plan, or the longest that any plan can take."""
    if search.value is None:
        return search.task.instance.arrays.serial_horizon_ns
    return search.value


# ------------------------------------------------------------------------- memory that binds


def _runs_that_fit(search: SectionSearch, tiles: Chain) -> list[Runs]:
    """Runs along the tiles, a chain of intervals and a path, the highest bound first."""
    # Tiles may have large sections, of which runs see little. Intervals are finer, and a path of
    # single edges (no candidates) is finest: it has most stops, and the least time between them.
    instance = search.task.instance
    found = list[Runs]()
    for ways in (None, True, False):
        chain = tiles
        if ways is not None:
            if search.over or instance.num_ops > MOST_OPS_OF_CHAINS:
                break
            chosen = choose_chain(instance, _intervals(search) if ways else [])
            if not chosen:
                continue
            chain = interval_chain(search.table, chosen, _limit(search))
        runs = runs_of(instance, chain)
        if runs is not None:
            search.refine(chain, shortest=runs.shortest)
            found.append(_price(search, runs))
    return sorted(found, key=lambda runs: -runs.shortest(lower_table)[0])


def _refine_runs(search: SectionSearch, runs: Runs, tiles: Chain) -> None:
    """Refine the cheapest runs of a chain, and price them anew, while that helps."""
    # prices depend on the arcs: when these have risen, other prices prove more
    before = -1
    while before < search.bound.value and not search.over:
        before = search.bound.value
        with search.within(SECTIONS_SHARE):
            pack = (lambda: search.pack(tiles)) if runs.chain is tiles else None
            search.refine(runs.chain, _step, pack, shortest=runs.shortest)
        runs = _price(search, runs)


def _price(search: SectionSearch, runs: Runs) -> Runs:
    """The same with prices for bytes, where devices differ; their bound is recorded."""
    if search.over or _are_alike(search):
        return runs
    with search.within(PRICE_SHARE):
        runs = runs.priced(lower_table, _limit(search), lambda: search.over)
    search.refine(runs.chain, shortest=runs.shortest)
    return runs


def _are_alike(search: SectionSearch) -> bool:
    """Whether all devices are identical; then prices of bytes prove nothing."""
    alike = search.table.classes
    return len(alike) == 1 and len(alike[0]) == search.task.instance.num_devices


# ---------------------------------------------------------------------------------- annealing


def _anneal(search: SectionSearch, share: float | None = None) -> bool:
    """Anneal the best plan and others nearly as good; whether any move was tried."""
    # It takes a share of the time that is left.
    if search.over or search.plan is None or search.value is None:
        return False
    task, limit_s = search.task, None
    if search.clock.left_s is not None:
        limit_s = search.clock.left_s * (_share(task.instance) if share is None else share)
    moves = usual_moves(task.instance) * (1 if limit_s is None else PATIENCE)
    if search.annealing is None:
        search.annealing = Annealing(task.instance, task.semantics)
    # another seed for each call, as it may begin with the same plans
    annealing, seed = search.annealing, task.limits.seed + search.annealed
    before = annealing.tried
    for plan in annealing.runs(_near(search), seed=seed, moves=moves, limit_s=limit_s):
        search.found_plan(plan)
        search.interrupted |= annealing.interrupted
        if search.over:
            break
    search.annealed += 1
    return annealing.tried > before


def _share(instance: Instance) -> float:
    """The share of the time left that annealing gets."""
    parts = whole_parts(instance)
    return SHARE if parts <= PROMISING else LARGE_SHARE if parts <= MOST_PARTS else 1.0


def _near(search: SectionSearch) -> list[Ints]:
    """The placements that annealing begins with: the best plan, and the others that are near."""
    assert search.plan is not None
    assert search.value is not None
    found = [search.plan.devices]
    for plan, value_ns in search.task.starts:
        if len(found) == MOST_STARTS or value_ns > NEAR * search.value:
            break
        if not any((plan.devices == devices).all() for devices in found):
            found.append(plan.devices)
    return found


def _too_large(section: Section) -> bool:
    """Whether a section is left to intervals and the whole model, as a graph without cuts is."""
    whole = section.entry is None and section.exit is None
    return whole or section.num_inner > MOST_INNER


def _step(arc: Arc) -> Step | None:
    """CP-SAT for ever longer, and the LP once."""
    # The LP comes first in larger sections, in others after the first step of CP-SAT.
    if _too_large(arc.section):
        return None
    return "lp" if arc.steps == (0 if arc.section.num_inner >= LP_FROM else 1) else "cp"


def _lp_step(arc: Arc) -> Step | None:
    """The same, but nothing besides the LP in larger sections, where CP-SAT proves no more."""
    step = _step(arc)
    return None if step == "cp" and arc.section.num_inner >= LP_FROM else step


# ------------------------------------------------------------------------------ the whole model


def whole_parts(instance: Instance) -> int:
    """The size of the whole model: ops x devices and edges x device pairs."""
    k = instance.num_devices
    return instance.num_ops * k + len(instance.graph.edges) * k * k


def solve_whole(search: SectionSearch, chains: Sequence[Chain], workers: int) -> None:
    """CP-SAT on the whole graph, for plans better than the incumbent, until a limit is reached."""
    # Every bound on a section is a row of it: x[u, a] and x[v, b] imply start[v] >= end[u] + bound
    # - p_vb. Bounds that hold only for better plans may be used: the model has no other plans.
    from placegap.formulations.makespan_cp import build, extract, warm_start
    from placegap.solvers.core.back_ends.cp_sat import SOLVER, Settings, run_cp_sat

    task, instance = search.task, search.task.instance
    parts, left_s = whole_parts(instance), search.clock.left_s
    if parts > MOST_PARTS:
        search.note = f"{parts} ops x devices and edges x device pairs are too many for {SOLVER}"
        return
    if left_s is not None and parts > left_s * PARTS_PER_S:
        search.note = f"the time left is too short for a model of {parts} parts"
        return
    horizon = None if search.value is None else search.value - 1
    model = build(instance, task.semantics, horizon_ns=horizon, symmetry=True)
    if search.plan is not None:  # longer than the horizon, but most of it may stay
        warm_start(model, instance, search.plan)
    # rows for all pairs of end devices: a model cannot know which arcs are on a shortest path
    for chain in chains:
        for uses in chain.uses:
            for row in uses:
                for use in row:
                    _section_takes(model, use)
    model.cp.add(model.makespan >= search.bound.value // model.unit_ns)
    limits = task.limits
    settings = Settings(workers, search.clock.left_s, limits.gap, limits.seed)
    found = run_cp_sat(model, extract, settings, search.value)
    search.interrupted |= found.interrupted
    _learn(search, found)
    # Long horizons have times in units of several ns, rounded down: the optimum of such a model is
    # a bound, and its plan may be longer. A far better plan than before makes the unit finer.
    if found.ending != "optimal" or model.exact:
        return
    search.note = f"optimal but for times that are rounded down to {model.unit_ns} ns"
    if search.over or search.value is None:
        return
    if search.value <= model.horizon_ns // 2:
        solve_whole(search, chains, workers)


def _learn(search: SectionSearch, found: Answer) -> None:
    """Record what CP-SAT found of the whole."""
    from placegap.solvers.core.back_ends.cp_sat import SOLVER

    search.faults += found.faults
    search.note = {
        "refused": found.reason,
        "fault": f"{SOLVER} contradicts a known plan; its result is discarded",
        "time_limit": f"time limit of {search.task.limits.named_s:g} s reached",
        "unknown": f"{SOLVER} stopped by itself after {found.seconds:.1f} s, without a reason",
    }.get(found.ending, "")
    # the model has only plans better than the incumbent: infeasible means that there is none
    proof = PROOFS.index("cp-sat")
    if found.infeasible and search.value is None:
        search.infeasible = True
    elif found.infeasible:
        search.found_bound(search.value or 0, proof)
    else:
        if found.plan is not None:
            search.found_plan(found.plan)
        search.found_bound(found.bound_ns or 0, proof)


def _section_takes(model: MakespanModel, use: Use) -> None:
    """Add the row of an arc's bound, for one pair of end devices."""
    entry, leave = use.section.entry, use.section.exit
    conditions = []
    for op, k in ((entry, use.entry), (leave, use.leave)):
        if op is not None and k is not None:
            if k not in model.x[op]:  # the model has no such placement
                return
            conditions.append(model.x[op][k])
    lower, unit = use.arc.lower_ns, model.unit_ns
    # longer than any plan of the model: not both devices; and a section without inner ops is no
    # stronger than the model's own rows for its edges
    if lower > model.horizon_ns:
        model.cp.add_bool_or([literal.negated() for literal in conditions])
        return
    if use.section.num_inner == 0:
        return
    begin = 0 if entry is None else model.end[entry]
    end = model.makespan if leave is None else model.end[leave]
    row = model.cp.add(end >= begin + lower // unit)
    if conditions:
        row.only_enforce_if(*conditions)
