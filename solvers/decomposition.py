"""Bottleneck decomposition and interval chains: proven makespans of real inference graphs.

1. *Sections* (`instances.bottlenecks`, where the theorem is). The graph is cut where every schedule
   splits. The optimum is a shortest path over (cut, device), whose arcs are the optima of the
   sections between two cuts, both end devices fixed. An arc starts with what paths prove; only
   arcs on a shortest path are refined, by the section LP where it pays and by CP-SAT, so that most
   are never solved (`decomposition_search`). Section plans in a row are a plan of the whole.
2. *Intervals* (`instances.intervals`). A section that is too large for that, such as a whole
   encoder-decoder graph, still has a chain of intervals along a long path; the same search raises
   what is proven of them. That is a bound only.
3. *The whole* (`decomposition_whole`). What is still open (too large a section, memory that binds)
   is left to CP-SAT on the whole graph, with all that was proven of sections as rows.

With slack memory the first step alone is exact; the last makes the method exact in any case.
"""

from __future__ import annotations

import time
from collections.abc import Generator

from pydantic import Field

from placegap.formulations.makespan_cp_vars import LARGEST_HORIZON_NS
from placegap.formulations.scaled_times import serial_horizon_ns
from placegap.instances.bottlenecks import cuts, memory_is_slack
from placegap.instances.intervals import choose_chain, intervals
from placegap.instances.sections import Section, sections_between
from placegap.solvers.decomposition_search import Progress, Search
from placegap.solvers.decomposition_whole import solve_whole
from placegap.solvers.endings import say_rest
from placegap.solvers.makespan_annealing import Annealing, usual_moves
from placegap.solvers.registry import Method, Params, Task, register
from placegap.solvers.result import Outcome
from placegap.solvers.section_arcs import PROOFS, Arc, ArcTable
from placegap.solvers.section_chain import interval_chain, tiling
from placegap.solvers.section_jobs import Step
from placegap.solvers.section_workers import SectionWorkers
from placegap.solvers.start import best_start

STARTS = ("heft", "peft", "etf", "single-device")
"""Methods whose plans the search starts from."""

LP_FROM = 40
"""Sections of so many inner ops get the LP first: CP-SAT alone proves smaller ones in a second."""

MOST_INNER = 100
"""Sections with more ops between their ends are not solved by themselves."""


PATIENCE = 10
"""With a time limit, runs of annealing may be so many times longer than by default."""


class DecompositionParams(Params):
    """Parameters of ``decomposition``.

    Attributes
    ----------
    workers : int
        Worker processes for sections, from the second second on, and threads for the whole model.
        With one, and without a time limit, the same plan comes back every time.
    start : bool
        Whether placers are asked for a first plan besides the task's incumbent.
    """

    workers: int = Field(default=2, ge=1, le=1024)
    start: bool = True


def applies(task: Task, params: Params) -> str | None:
    """Why the method does not apply, or None."""
    if serial_horizon_ns(task.instance) > LARGEST_HORIZON_NS:
        return "its times sum to more than 2**59 ns"
    return None


def run(task: Task, params: Params) -> Outcome:
    """Search until the proof or a limit; the best plan and the best bound come back.

    An interrupt (Ctrl-C) ends the search and returns what is known by then.
    """
    assert isinstance(params, DecompositionParams)
    began, limit_s = time.perf_counter(), task.limits.time_limit_s
    with SectionWorkers(params.workers) as workers:
        search = Search(
            task, ArcTable(task.instance, task.semantics), workers,
            None if limit_s is None else began + limit_s,
        )  # fmt: skip
        try:
            start = best_start(task, STARTS if params.start else ())
            if start is not None:
                search.found_plan(start.plan)
            for _ in solve(search, params):
                pass
        except KeyboardInterrupt:
            search.interrupted = True
        except MemoryError:
            search.note = "out of memory"
    return Outcome(
        plan=search.plan,
        claim_ns=search.claim_ns,
        bound_ns=None if search.infeasible else search.bound_ns,
        bound_origin=f"decomposition, {PROOFS[search.proof]}",
        faults=search.faults,
        proven_infeasible=search.infeasible,
        message=_message(search),
        details={"jobs": search.jobs, "arcs": len(search.table.known)},
    )


def _message(search: Search) -> str:
    if search.infeasible:
        return "no placement fits"
    if search.interrupted:
        return "interrupted"
    if search.value_ns == search.bound_ns:
        return ""
    limits = search.task.limits
    if search.remaining_s == 0.0:
        return f"time limit of {limits.time_limit_s:g} s reached"
    return say_rest(search.value_ns, search.bound_ns, limits, search.note) or search.note


def solve(search: Search, params: DecompositionParams) -> Generator[Progress]:
    """Refine sections, then intervals, then the whole; what is known after each step."""
    instance = search.task.instance
    sections = sections_between(instance, cuts(instance))
    chains = [tiling(search.table, sections)]
    exact = memory_is_slack(instance)

    def join() -> None:
        search.join_plans(chains[0], exact=exact)

    yield from search.dive(chains[0], join, _step)
    yield from search.refine(chains[0], join, _step)
    if not search.over and not exact:
        yield from _anneal(search)
        yield from search.dive_into_memory(chains[0], _step)
    if search.over:
        return
    if any(_too_large(section) for section in sections):
        chosen = choose_chain(instance, intervals(instance))
        if chosen:
            limit = serial_horizon_ns(instance) if search.value_ns is None else search.value_ns
            chains.append(interval_chain(search.table, chosen, limit))
            yield from search.refine(chains[1], lambda: None, _lp_step)
            if search.over:
                return
    if exact:
        yield from _anneal(search)
    search.workers.close()
    solve_whole(search, chains, params.workers)
    yield Progress(search.value_ns, search.bound_ns)


def _anneal(search: Search) -> Generator[Progress]:
    """Anneal the incumbent, within a third of the time that is left."""
    if search.over or search.plan is None:
        return
    annealing = Annealing(search.task.instance, search.task.semantics)
    limit_s = None if search.remaining_s is None else search.remaining_s / 3
    moves = usual_moves(search.task.instance) * (1 if limit_s is None else PATIENCE)
    for plan in annealing.runs(
        search.plan.devices, seed=search.task.limits.seed, moves=moves, limit_s=limit_s
    ):
        search.found_plan(plan)
        search.interrupted |= annealing.interrupted
        yield Progress(search.value_ns, search.bound_ns)
        if search.over:
            return


def _too_large(section: Section) -> bool:
    """Whether a section is left to intervals and the whole model, as a graph without cuts is."""
    whole = section.entry is None and section.exit is None
    return whole or section.num_inner > MOST_INNER


def _step(arc: Arc) -> Step | None:
    """The LP for a start in larger sections, then CP-SAT for longer and longer."""
    if _too_large(arc.section):
        return None
    return "lp" if arc.steps == 0 and arc.section.num_inner >= LP_FROM else "cp"


def _lp_step(arc: Arc) -> Step | None:
    """The same, but nothing besides the LP in larger sections, where CP-SAT proves no more."""
    step = _step(arc)
    return None if step == "cp" and arc.section.num_inner >= LP_FROM else step


register(
    Method(
        name="decomposition",
        claim="exact",
        objectives=("makespan",),
        paper="placegap",
        summary="shortest path over bottlenecks and devices; sections by LP and CP-SAT, lazily",
        run=run,
        params=DecompositionParams,
        applies=applies,
        packages=("ortools", "highspy"),
    )
)
