"""auto, the default: the method that proves most of such problems, and a search beside it.

1. A problem that is likely to be proven goes to that method after three placers: it has all of the
   time, its own first plans, and the machine to itself for the first half of the limit.
2. Of another one, first the placers that are fast at its size, then bounds, then the same method.
3. Beside it, another process looks for plans (`beside`), with what has not been asked yet. Where
   there can be no other process, searches and proofs take turns in this one.
4. What is left of the time goes to the other exact methods, and to searches with other seeds.

The value is that of the best plan of all parts, as the referee judges it, and the bound the best
of all: no part makes another one worse. A part that crashes, runs out of memory or past its limit
costs what it had not told, and a sentence. The time limit is used up unless the gap is small
enough, or there is nothing left to try. What is found in time depends on the machine's speed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import Field

from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.explain import explain_infeasible
from placegap.instances.problem.semantics import OBJECTIVES, LoadSemantics, Makespan
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.core.clock import Clock, stop_asked
from placegap.solvers.core.method import Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import PROOF, Outcome, Result, fault_of
from placegap.solvers.core.starts import LONGEST_S, SHARE, cheapest_first
from placegap.solvers.core.worker_process import may_start_processes
from placegap.solvers.solving.auto.beside import LEAST_STEP_S, Beside, run_step
from placegap.solvers.solving.auto.board import Board
from placegap.solvers.solving.auto.first_plans import Placed, first_plans, still_waiting
from placegap.solvers.solving.auto.steps import (
    BOUND_SHARE,
    BOUNDS,
    LARGE_PARTS,
    AutoStep,
    bound_step,
    exact_steps,
    is_likely_proven,
    parts_of,
    plans,
    with_params,
)

USUAL_S = 60.0
"""The limit where none is given."""

HEAD_START, LONGEST_HEAD_START_S = 0.5, 30.0
"""Of the limit, and seconds at most, that a likely proof works alone: both processes take at most
1.5 times what a proof of up to a minute takes by itself, and no search waits longer."""

SECOND_SEED = 1_000
"""Searches of this process have seeds so far beyond those of the other one."""

PROOF_SHARE = 2 / 3
"""Of the time that is left, for a proof that has no search beside it."""

LARGE_BOUND_SHARE = 0.5
"""Of the time, for the portfolio of more than `LARGE_PARTS`, where little else proves anything."""

MOST_SKIPPED = 4
"""Searches in a row that are left out as too slow: then all of them are."""

FIRST_PLANS_S = 2.0
"""Placers, and a method that no plan is known to, have no less, however short the limit is."""

MOST_PARTS, US_PER_PART_HANDED, HANDED_SHARE = 1_500_000, 15.0, 0.5
"""A larger graph (ops + edges) stays in one process, for two copies of it would need more than
6 GB; and so does one whose copying is likely to take more than a share of the time."""

PROCESS_S = 3.0
"""With less time no process is started: that alone takes about a second."""

RESERVE_SHARE, US_PER_PART, LONGEST_RESERVE = 0.01, 3.0, 0.25
"""Kept of the limit for judging the last plans: a share, and for the size, but no more than the
last share."""

US_PER_PART_STARTED = 35.0
"""Of a graph of a million ops, before a search or a proof first looks at the clock."""

ENDED, AT_LIMIT, INTERRUPTED = "nothing is left to try", "stopped at the time limit", "interrupted"

USUAL = ("ended unproven", AT_LIMIT, INTERRUPTED)
"""Last words of a part that say nothing beyond those of the whole."""

MEMORY = "memory"
"""What proves that there is no plan, where no method has to."""


class AutoParams(Params):
    """Parameters of ``auto``.

    Attributes
    ----------
    workers : int or None
        Threads and processes at a time; by default as many as there are cores.
    """

    workers: int | None = Field(default=None, ge=1, le=1024)


def run(task: Task, params: AutoParams) -> Outcome:
    """Run the parts by the rules above.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> outcome = run(Task(example(), Makespan()), AutoParams())
    >>> outcome.claim_ns, outcome.bound_ns
    (34, 34)
    """
    limit_s = task.limits.time_limit_s
    clock = Clock(_working_s(task, USUAL_S if limit_s is None else limit_s))
    task = replace(task, limits=replace(task.limits, time_limit_s=clock.limit_s))
    board, workers = Board(task=task, gap=task.limits.gap), params.workers or _cores()
    beside: Beside | None = None
    try:
        if task.incumbent is not None:
            board.offer(task.incumbent, "the start")
        waiting = _first_plans(task, board)
        if board.plan is None:
            _look_for_room(task, board)
        head_start_s = _head_start_s(task, clock, workers)
        is_alone = head_start_s is None
        steps = _steps_here(task, board, waiting, workers, is_alone=is_alone)
        if is_alone:
            steps = _in_time(steps, task, clock)
        with Beside(board, clock, head_start_s, waiting, workers) as beside:
            _run_steps(steps, board, clock, beside)
            beside.wait()
        end = INTERRUPTED if stop_asked() else AT_LIMIT if _is_over(clock) else ENDED
    except KeyboardInterrupt:
        was_late = beside is not None and beside.has_interrupted
        end = AT_LIMIT if was_late and not stop_asked() else INTERRUPTED
    if limit_s is None and not board.is_over:
        end = f"{end} of {USUAL_S:g} s, the usual where none is given"
    return board.outcome(_message(board, end))


def _is_over(clock: Clock) -> bool:
    return (clock.left_s or 0.0) < LEAST_STEP_S


def _steps_here(
    task: Task, board: Board, waiting: Sequence[str], workers: int, *, is_alone: bool
) -> Iterator[AutoStep]:
    """What this process does: proofs, and then searches; without another process, in turn."""
    is_likely = is_likely_proven(task)
    share = PROOF_SHARE if is_alone else 1.0
    # placers have been asked before an unlikely proof, and the other process anneals
    asked = {} if is_likely else {"start": False, "anneal": is_alone}
    seed = task.limits.seed + (0 if is_alone else SECOND_SEED)
    searches = plans(task, seed, waiting if is_alone else (), 1, lambda: board.value_ns)
    if not is_likely:
        yield from _until_search(searches) if is_alone else ()
        few = parts_of(task) <= LARGE_PARTS
        yield bound_step(task, BOUND_SHARE if few else LARGE_BOUND_SHARE)
    for step in exact_steps(task):  # one by one: some take a second to load
        chosen = with_params(step, {"workers": 1 if is_alone else workers, **asked})
        yield replace(chosen, share=share)
    yield bound_step(task)
    if is_alone or workers > 1:
        yield from searches


def _until_search(steps: Iterator[AutoStep]) -> Iterator[AutoStep]:
    """The placers, and the first search."""
    for step in steps:
        yield step
        if not step.is_placer:
            return


def _in_time(steps: Iterator[AutoStep], task: Task, clock: Clock) -> Iterator[AutoStep]:
    """Those steps that are likely to return in time, for nothing can end them in this process."""
    likely_s, search_s = dict(cheapest_first(task)), 1e-6 * US_PER_PART_STARTED * parts_of(task)
    skipped = 0
    for step in steps:
        needed_s = likely_s[step.method] if step.is_placer else search_s
        if needed_s <= (clock.left_s or 0.0) or step.method == BOUNDS:  # which looks at the clock
            skipped = 0
            yield step
        elif not step.is_placer:
            skipped += 1
            if skipped == MOST_SKIPPED:
                return


def _run_steps(steps: Iterator[AutoStep], board: Board, clock: Clock, beside: Beside) -> None:
    """Run steps in this process while there is something to find and time, and at least one."""
    is_first = True
    while not board.is_over and (is_first or not _is_over(clock)):
        step = next(steps, None)  # which may load a solver
        if step is None or stop_asked():
            return
        before, limit_s = board.plan, step.share * (clock.left_s or 0.0)
        if before is None:  # late is better than no plan
            limit_s = max(limit_s, FIRST_PLANS_S)
        with beside.may_end_a_proof():
            answer = run_step(board, step, limit_s)
        board.take_answer(step.method, answer)
        if board.plan is not None and board.plan is not before:
            beside.tell(board.plan)
        said = answer.message if isinstance(answer, Result) else answer
        if stop_asked() or (isinstance(said, str) and INTERRUPTED in said):
            raise KeyboardInterrupt
        is_first = False


def _first_plans(task: Task, board: Board) -> tuple[str, ...]:
    """Offer the plans of the fast placers, and prove what is cheap after the first of them; the
    placers that are still to be asked. A likely proof begins after the fastest of all.
    """
    limit_s, heard = task.limits.time_limit_s or 0.0, list[Placed]()
    most_s = max(FIRST_PLANS_S, min(LONGEST_S, SHARE * limit_s))
    clock = Clock(0.0 if is_likely_proven(task) else most_s)
    for placed in first_plans(task, clock, board.faults):
        heard.append(placed)
        if placed.plan is not None:
            is_first = board.value_ns is None
            board.offer(placed.plan, placed.name, placed.value_ns)
            if is_first and board.value_ns is not None:
                _prove_what_is_cheap(task, board)
        if board.is_over:
            break
    return still_waiting(task, heard, is_huge=parts_of(task) > MOST_PARTS)


def _prove_what_is_cheap(task: Task, board: Board) -> None:
    try:
        board.take_bound(quick_bound(task.instance, task.semantics))
    except MemoryError:
        pass
    except Exception as error:  # plans are known, and other parts may prove more
        if stop_asked():
            raise KeyboardInterrupt from error
        board.faults.append(fault_of("quick bound", task.instance, error))


def _look_for_room(task: Task, board: Board) -> None:
    """Whether cheap conditions on memory already say that no plan fits."""
    if isinstance(task.semantics, Makespan | LoadSemantics):
        reasons = explain_infeasible(relax_memory(task.instance, task.semantics)[0])
        if reasons:
            board.no_plan_by, board.no_plan_rests_on = MEMORY, PROOF
            board.words[MEMORY] = reasons[0]


def _head_start_s(task: Task, clock: Clock, workers: int) -> float | None:
    """Seconds after which another process looks for plans; None: never."""
    limit_s, parts = clock.limit_s or 0.0, parts_of(task)
    handed_s = 1e-6 * US_PER_PART_HANDED * parts
    head_start_s = (
        min(HEAD_START * limit_s, LONGEST_HEAD_START_S) if is_likely_proven(task) else 0.0
    )
    left_s = limit_s - max(head_start_s, clock.spent_s)
    may = workers > 1 and may_start_processes() and parts <= MOST_PARTS
    return head_start_s if may and left_s > max(PROCESS_S, handed_s / HANDED_SHARE) else None


def _message(board: Board, end: str) -> str:
    """How it ended, what became of parts that failed, and why all ended before the time did."""
    said = {**(board.words if end == ENDED else {}), **board.notes}
    notes = [f"{by}: {note}" for by, note in said.items() if note and note not in USUAL]
    return "; ".join(filter(None, [end, *notes]))


def _working_s(task: Task, limit_s: float) -> float:
    """The limit less what is kept for judging the last plans."""
    kept_s = RESERVE_SHARE * limit_s + 1e-6 * US_PER_PART * parts_of(task)
    return limit_s - min(LONGEST_RESERVE * limit_s, kept_s)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


register(
    Method(
        name="auto",
        claim="exact",
        objectives=OBJECTIVES,
        paper="placegap",
        summary="the default: the method that proves most of such problems, a search beside it",
        run=run,
        params=AutoParams,
        packages=("ortools", "highspy", "numba"),
        memory_rules=("sum", "peak"),
    )
)
