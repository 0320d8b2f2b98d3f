"""auto, the default: fast placers, cheap bounds, then a proof and a search for plans side by side.

1. The placers that are fast at the task's size, the cheapest first, and what paths and work prove.
   For those that this time does not suffice for, there is more of it in 3.
2. A small graph: the method that proves most of its problem, for a moment.
3. Two lanes of steps (`rules`), each in a process: methods that prove, and methods that look for
   plans. What one finds the next step of the other starts from. Where there is one core, or no
   process may be started, they take turns.

The value is that of the best plan of all parts, as the referee judges it, and the bound the best
of all: no part makes another one worse. A part that crashes, runs out of memory or past its limit
costs what it had not told, and a sentence. The time limit is used up unless the gap is small
enough, or there is nothing left to try. What is found in time depends on the machine's speed.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice

from pydantic import Field

from placegap.instances.problem.semantics import OBJECTIVES, LoadSemantics, Makespan
from placegap.instances.structure.additive_memory import relax_memory
from placegap.instances.structure.explain import explain_infeasible
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.interrupts import stop_asked
from placegap.solvers.core.method import Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome, Result, fault_of
from placegap.solvers.core.starts import LONGEST_S, SHARE, cheapest_first
from placegap.solvers.core.trust import PROOF
from placegap.solvers.core.worker_process import may_start_processes
from placegap.solvers.solving.auto.board import Board
from placegap.solvers.solving.auto.compile_ahead import KernelCompiler
from placegap.solvers.solving.auto.deadline import Deadline
from placegap.solvers.solving.auto.lanes import Lane, run_lanes
from placegap.solvers.solving.auto.parts import Order, run_step
from placegap.solvers.solving.auto.placing import Placed, first_plans, still_waiting
from placegap.solvers.solving.auto.rules import (
    BOUNDS,
    SECOND_S,
    SMALL_PARTS,
    TRY_S,
    TRY_SHARE,
    USUAL_S,
    AutoStep,
    plans,
    proofs,
)

RESERVE_S, RESERVE_SHARE, US_PER_PART, LONGEST_RESERVE = 0.05, 0.01, 3.0, 0.25
"""Kept of the time limit for handing over the last plans: seconds, a share, and for the size, but
no more than the last share."""

ENDED = "nothing is left to try"

MEMORY = "memory"
"""What proves that there is no plan, where no method has to."""

USUAL = ("ended unproven", "stopped at the time limit", "interrupted")
"""Last words of a part that say nothing beyond those of the whole."""

PROCESS_S = 3.0
"""With less time left no process is started: that alone takes about a second."""

MOST_PARTS, US_PER_PART_HANDED, HANDED_SHARE = 1_500_000, 15.0, 0.5
"""A larger graph (ops + edges) stays in one process, for three copies of it would need more than
8 GB; and so does one whose copying is likely to take more than a share of the time."""

MOST_SEARCHES = 4
"""Different methods among the first steps that look for plans, beside placers."""

US_PER_PART_STARTED = 35.0
"""Of a graph of a million ops, before a search or a proof first looks at the clock."""

TURN_SHARE = 0.2
"""Of the time that is left, for a step that looks for plans where the lanes take turns."""


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
    clock = Clock(USUAL_S if limit_s is None else limit_s)
    task = replace(task, limits=replace(task.limits, time_limit_s=clock.limit_s))
    board = Board(task=task, gap=task.limits.gap)
    workers = params.workers or _cores()
    lanes: list[Lane] = []
    try:
        with closing(KernelCompiler(task.instance)) as compiler:
            end = _search(task, board, clock, workers, lanes, compiler)
    except KeyboardInterrupt:
        end = "interrupted"
    finally:
        for lane in lanes:
            lane.close()
    if limit_s is None and not board.is_over:
        end = f"{end} of {USUAL_S:g} s, the usual where none is given"
    return board.outcome(_message(board, end))


def _search(
    task: Task, board: Board, clock: Clock, workers: int, lanes: list[Lane],
    compiler: KernelCompiler,
) -> str:  # fmt: skip
    """Run the stages until nothing is left to find or to do; how it ended."""
    deadline = Deadline(clock, _reserve_s(task, clock))
    may = workers > 1 and may_start_processes() and _may_copy(task, deadline)
    early = may and _parts(task) > SMALL_PARTS and deadline.left_s > PROCESS_S
    heard, waiting = list[Placed](), list[str]()
    for _ in _first_plans(task, board, heard):
        if board.is_over:
            return ""
        if early:
            compiler.begin(_ahead(task))
        if board.value_ns is not None and not lanes and early:
            lanes += _lanes(task, workers, waiting, board)  # they load while the other placers run
    if board.value_ns is None:
        _look_for_room(task, board)
    if _parts(task) <= SMALL_PARTS and not board.is_over:
        _try_at_once(task, board, deadline, workers)
    if board.is_over:
        return ""
    waiting += still_waiting(task, heard, is_huge=_parts(task) > MOST_PARTS)
    if may and (lanes or deadline.left_s > PROCESS_S):
        compiler.finish(proofs(task, workers), _ahead(task, waiting))
        lanes += [] if lanes else _lanes(task, workers, waiting, board)
        run_lanes(lanes, board, deadline)
    else:
        _take_turns(task, board, deadline, waiting)
    if stop_asked():
        return "interrupted"
    return "stopped at the time limit" if deadline.left_s <= 0 else ENDED


def _ahead(task: Task, waiting: Sequence[str] = ()) -> Iterator[AutoStep]:
    """The first steps that look for plans."""
    return islice(plans(task, task.limits.seed, waiting), len(waiting) + MOST_SEARCHES)


def _first_plans(task: Task, board: Board, heard: list[Placed]) -> Iterator[None]:
    """Offer the plans of the fast placers, and note what is `heard`; after the first of them, prove
    what is cheap.
    """
    limit_s = task.limits.time_limit_s
    clock = Clock(None if limit_s is None else max(SECOND_S, min(LONGEST_S, SHARE * limit_s)))
    if task.incumbent is not None:
        board.offer(task.incumbent, "the start")
    waiting = True
    for placed in first_plans(task, clock, board.faults):
        heard.append(placed)
        if placed.plan is not None:
            board.offer(placed.plan, placed.name, placed.value_ns)
        if waiting and board.value_ns is not None:
            waiting = False
            _prove_what_is_cheap(task, board)
        yield
    if waiting:
        _prove_what_is_cheap(task, board)
    yield


def _prove_what_is_cheap(task: Task, board: Board) -> None:
    try:
        board.take_bound(quick_bound(task.instance, task.semantics))
    except MemoryError:
        pass
    except Exception as error:  # plans are known, and the lanes may prove more
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


def _try_at_once(task: Task, board: Board, deadline: Deadline, workers: int) -> None:
    """Most small graphs are solved before a process has started."""
    step = next((step for step in proofs(task, workers) if step.method != BOUNDS), None)
    limit_s = min(TRY_S, TRY_SHARE * deadline.left_s)
    if step is not None and limit_s > 0:
        _run_here(step, limit_s, task, board)


def _take_turns(task: Task, board: Board, deadline: Deadline, waiting: Sequence[str]) -> None:
    """Steps of both lanes in turn, in this process; only when a proof ends early there is another.

    The proof has most of the time, between two searches; a placer is no turn of its own.
    """
    proving = _in_time(proofs(task, 1), task, deadline)
    steps = plans(task, task.limits.seed, waiting, least=lambda: board.value_ns)
    looking = _in_time(steps, task, deadline)
    turn = 0
    while deadline.left_s > 0 and not board.is_over and not stop_asked():
        step = next(looking if turn % 2 == 0 else proving, None)
        other = next(proving, None) if step is None and turn % 2 == 0 else step
        if other is None and turn % 2 == 1:
            other = next(looking, None)
        if other is None:
            return
        share = TURN_SHARE if turn % 2 == 0 else step.share if step is not None else TURN_SHARE
        _run_here(other, max(min(SECOND_S, deadline.left_s), share * deadline.left_s), task, board)
        turn += not other.is_placer


def _in_time(steps: Iterator[AutoStep], task: Task, deadline: Deadline) -> Iterator[AutoStep]:
    """Those steps that are likely to return in time, for nothing can end them in this process."""
    likely_s, search_s = dict(cheapest_first(task)), 1e-6 * US_PER_PART_STARTED * _parts(task)
    skipped = 0
    for step in steps:
        likely = likely_s[step.method] if step.is_placer else search_s
        if likely <= deadline.left_s or step.method == BOUNDS:  # which looks at the clock
            skipped = 0
            yield step
        elif not step.is_placer:
            skipped += 1
            if skipped == MOST_SEARCHES:  # and no placer between them: none is left
                return


def _run_here(step: AutoStep, limit_s: float, task: Task, board: Board) -> None:
    """Run a step in this process, and pass on the interrupt that has ended it."""
    order = Order(step, limit_s, task.limits.gap, board.plan, board.value_ns)
    answer = run_step(task.instance, order, None, board.take_bound)
    board.take_answer(step.method, answer)
    said = answer.message if isinstance(answer, Result) else answer
    if stop_asked() or (isinstance(said, str) and "interrupted" in said):
        raise KeyboardInterrupt


def _lanes(task: Task, workers: int, waiting: Sequence[str], board: Board) -> list[Lane]:
    packed = pickle.dumps(task.instance, pickle.HIGHEST_PROTOCOL)
    # a makespan of a graph that is not small is rarely proven: its search has what it can get
    gives_way = task.semantics.objective != "makespan" or _parts(task) <= SMALL_PARTS
    looking = plans(task, task.limits.seed, waiting, workers, lambda: board.value_ns)
    return [
        Lane(task, packed, proofs(task, workers), is_nice=False),
        Lane(task, packed, looking, is_nice=gives_way),
    ]


def _message(board: Board, end: str) -> str:
    """How it ended, what became of parts that failed, and why all ended before the time did."""
    said = {**(board.words if end == ENDED else {}), **board.notes}
    notes = [f"{by}: {note}" for by, note in said.items() if note and note not in USUAL]
    return "; ".join(filter(None, [end, *notes]))


def _parts(task: Task) -> int:
    return task.instance.num_ops + len(task.instance.graph.edges)


def _may_copy(task: Task, deadline: Deadline) -> bool:
    """Whether there is memory and time for copies of the instance in two processes."""
    parts = _parts(task)
    handed_s = 1e-6 * US_PER_PART_HANDED * parts
    return parts <= MOST_PARTS and handed_s <= HANDED_SHARE * deadline.left_s


def _reserve_s(task: Task, clock: Clock) -> float:
    limit_s = clock.limit_s or 0.0
    return min(
        LONGEST_RESERVE * limit_s,
        RESERVE_S + RESERVE_SHARE * limit_s + 1e-6 * US_PER_PART * _parts(task),
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


register(
    Method(
        name="auto",
        claim="exact",
        objectives=OBJECTIVES,
        paper="placegap",
        summary="fast placers, then the strongest proof and a search side by side; the best of all",
        run=run,
        params=AutoParams,
        packages=("ortools", "highspy", "numba"),
        memory_rules=("sum", "peak"),
    )
)
