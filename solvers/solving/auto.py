"""auto, the default: the best exact method for the problem, with a search in parallel.

1. Where a proof is likely, the exact method runs after three placers. It has all of the time, its
   own first plans, and the machine to itself for the first half of the limit. If memory binds a
   makespan, bounds run before it.
2. Otherwise the placers that are fast at this size run first, then the bounds, then the same
   method. `memory-knapsack` runs before them where layers or nearly all ops run in a row, or a host
   must hold something.
3. In parallel another process looks for plans (`search_process`), with the methods that are left.
   If there can be no other process, proofs and searches take turns in this one.
4. The rest of the time goes to the other exact methods, and to searches with other seeds.

The value is that of the best plan of all steps, as the referee judges it, and the bound the best
of all: no step makes another one worse. If a step crashes, runs out of memory or past its limit,
only what it had not yet reported is lost, and a warning is printed. The time limit is used up
unless the gap is small enough, or there is nothing left to try. What is found in time depends on
the machine's speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from pydantic import Field

from placegap.instances.problem import OBJECTIVES, Instance
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.explain import explain_infeasible
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.core.clock import USUAL_S, Clock, stop_requested
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.objective import BOUNDS, Step, able, proofs, strategy, with_params
from placegap.solvers.core.registry import find_method, method
from placegap.solvers.core.result import Outcome, Result, fault_of, no_plan
from placegap.solvers.core.starts import (
    ALWAYS,
    LONGEST_S,
    SHARE,
    best_start,
    cheapest_first,
    placers,
)
from placegap.solvers.core.worker_process import may_start_processes, num_cores
from placegap.solvers.solving.incumbent import JudgedKnown
from placegap.solvers.solving.peak_memory import run_at_peak
from placegap.solvers.solving.search_process import LEAST_STEP_S, SearchProcess, plans

# Of the limit, and seconds at most, that a likely proof works alone: both processes take at most
# 1.5 times what a proof of up to a minute takes by itself, and no search waits longer.
HEAD_START, LONGEST_HEAD_START_S = 0.5, 30.0
SECOND_SEED = 1_000  # searches of this process have seeds so far beyond those of the other one

# Of the time, for bounds that come before a proof that is not likely, and before any where memory
# binds: most end within seconds, but labels of a frontier may need half a minute, and then prove a
# third more (layers of ResNet-50 on two servers).
BOUND_SHARE, MEMORY_BOUND_SHARE = 0.2, 0.5
# Of the time, for a likely proof that takes turns with searches, and for bounds and proofs of other
# problems: there searches find most within half of the time.
PROOF_SHARE, UNLIKELY_PROOF_SHARE = 2 / 3, 1 / 2
# Placers, and a method that no plan is known to, have no less, however short the limit is.
FIRST_PLANS_S = 2.0
MOST_PARTS = 1_500_000  # larger graphs (ops + edges) stay in one process: two copies need over 6 GB
PROCESS_S = 3.0  # with less time no process is started: that alone takes about a second
RESERVE_SHARE, US_PER_PART = 0.01, 3.0  # of the limit for judging the last plans: share, size
END_SHARE = 0.05  # what ends with less of the limit left was ended by it: a MIP of 20 s keeps 0.4
US_PER_PART_STARTED = 35.0  # of a million ops, before a search or proof first looks at the clock

ENDED, AT_LIMIT, INTERRUPTED = "nothing is left to try", "stopped at the time limit", "interrupted"

USUAL = ("ended unproven", AT_LIMIT, INTERRUPTED)  # messages that add nothing to auto's own
MEMORY = "memory"  # what proves that there is no plan, where no method has to


class AutoParams(Params):
    #: Threads and processes at a time; by default as many as there are cores.
    workers: int | None = Field(default=None, ge=1, le=1024)


@method(
    "auto",
    objectives=OBJECTIVES,
    claim="exact",
    paper="placegap",
    packages=("ortools", "highspy", "numba"),
    memory_rules=("sum", "peak"),
)
def run(task: Task, params: AutoParams) -> Outcome:
    """The default: the best exact method for this kind of problem, with a search in parallel."""
    solvers = strategy(task)
    if solvers.is_alone:
        return find_method(solvers.provers[0].method).run(task, Params())
    limit_s = task.limits.time_limit_s
    clock = Clock(_working_s(task, USUAL_S if limit_s is None else limit_s))
    task = replace(task, limits=replace(task.limits, time_limit_s=clock.limit_s))
    known, workers = JudgedKnown(task=task), params.workers or num_cores()
    search: SearchProcess | None = None
    try:
        if task.incumbent is not None:
            known.offer(task.incumbent, "the start")
        waiting = _run_placers(known)
        if known.plan is None:
            _look_for_room(known)
        head_start_s = _head_start_s(task, clock, workers)
        if head_start_s is None:
            steps = _in_time(_in_turn(known, waiting, clock), task, clock)
        else:
            steps = _first_proofs(known, workers)
        with SearchProcess(known, clock, head_start_s, waiting, workers) as search:
            _run_steps(steps, known, clock, search)
            search.wait()
        end = INTERRUPTED if stop_requested() else AT_LIMIT if _is_over(clock, END_SHARE) else ENDED
    except KeyboardInterrupt:
        was_late = search is not None and search.proof.has_interrupted
        end = AT_LIMIT if was_late and not stop_requested() else INTERRUPTED
    if limit_s is None and not known.is_over:
        end = f"{end}, {USUAL_S:g} s by default"
    return known.outcome(_message(known, end))


def _run_placers(known: JudgedKnown) -> tuple[str, ...]:
    """Offer the plans of the fast placers; returns the placers that have not run yet."""
    # What is cheap is proved after the first of them; a likely proof begins after the fastest of
    # all.
    task, tried, without_plan = known.task, list[str](), list[str]()
    limit_s = task.limits.time_limit_s or 0.0
    most_s = max(FIRST_PLANS_S, min(LONGEST_S, SHARE * limit_s))
    clock, whole = Clock(0.0 if is_likely_proven(task) else most_s), Clock(limit_s)
    likely_s, chosen = dict(cheapest_first(task)), placers(task)
    for name in sorted(chosen, key=lambda name: name not in ALWAYS):
        if known.is_over or (clock.left_s == 0.0 and name not in ALWAYS):
            break
        if known.value is not None and likely_s[name] > (whole.left_s or 0.0):
            continue
        tried.append(name)
        if not _offer_plan_of(name, known, most_runs=1):
            without_plan.append(name)
    for name in without_plan:  # memory at its peak may need more runs, and some plan is needed
        if known.value is None and name in ALWAYS:
            _offer_plan_of(name, known, most_runs=None)
    # a huge graph is left to placers, for no search does more there
    left_s = limit_s if task.instance.num_parts > MOST_PARTS else SHARE * limit_s
    left = []
    for name, s in cheapest_first(task):
        if name not in tried and s <= left_s:
            left.append(name)
            left_s -= s
    return (*left, *(without_plan if task.semantics.memory_rule == "peak" else ()))


def _offer_plan_of(name: str, known: JudgedKnown, most_runs: int | None) -> bool:
    """Whether a placer has a plan that fits; the first one shows what is cheap to prove."""
    task, is_first = replace(known.task, incumbent=None), known.value is None

    def plan_by(part: Task) -> Outcome:
        start = best_start(part, [name], known.faults)
        return Outcome() if start is None else Outcome(start.plan, start.value)

    if task.semantics.memory_rule in find_method(name).memory_rules:
        found = plan_by(task)
    else:
        found = run_at_peak(task, plan_by, name, is_exact=False, most_runs=most_runs)
        found = replace(found, claim=None)  # of an instance whose memory adds up
    if found.plan is None:
        return False
    known.offer(found.plan, name, found.claim)
    if is_first and known.value is not None:
        _prove_what_is_cheap(known)
    return True


def is_likely_proven(task: Task) -> bool:
    """Whether the best exact method for such problems is likely to settle this one."""
    found = strategy(task)
    is_small = _choices(task.instance) <= found.most_choices
    return is_small and next(able(task, found.provers), None) is not None


def _memory_binds(task: Task) -> bool:
    """Whether some device cannot hold all that it can run."""
    return not relax_memory(task.instance, task.semantics)[0].arrays.memory_is_slack


def _choices(instance: Instance) -> int:
    """What there is to choose: groups of ops, and edges between them."""
    group, index = instance.arrays.group, instance.graph.index
    between = group[index.producer] != group[index.consumer]
    return instance.arrays.num_groups + int(between.sum())


def _first_proofs(known: JudgedKnown, workers: int) -> Iterator[Step]:
    """What this process does beside another one that looks for plans: proofs, then searches."""
    task = known.task
    yield from _proving(task, workers, {"start": False, "anneal": False})  # the other anneals
    if workers > 1:
        yield from plans(known, task.limits.seed + SECOND_SEED)


def _proving(task: Task, workers: int, options: Mapping[str, object]) -> Iterator[Step]:
    """Bounds for a while, if no proof is likely or memory binds, then proofs, then bounds."""
    # An unlikely proof gets the `options`: less effort, as placers ran before. If memory binds, the
    # knapsack comes first: its bound and its plan are the best ones.
    is_likely = is_likely_proven(task)
    binds = strategy(task).bounds is not None and _memory_binds(task)
    waits = not is_likely or binds
    for step in proofs(task):  # one by one: some take a second to load
        if waits and step.needs_bounds:
            share = MEMORY_BOUND_SHARE if binds else BOUND_SHARE
            yield Step(BOUNDS, task.semantics, share)
            waits = False
        yield with_params(step, {"workers": workers, **({} if is_likely else options)})
    yield Step(BOUNDS, task.semantics)


def _in_turn(known: JudgedKnown, waiting: Sequence[str], clock: Clock) -> Iterator[Step]:
    """What one process does alone: proofs and searches in turn, each side with its own time."""
    # The side that has had less of its share goes on. A step has a part of what its side has left,
    # and bounds, which end early, a part of all that is left. What one side does not use is the
    # other's.
    task, is_likely = known.task, is_likely_proven(known.task)
    limit_s = clock.left_s or 0.0
    steps = _proving(task, 1, {"start": False, "anneal": False})
    first = next(steps)
    share = PROOF_SHARE if is_likely else UNLIKELY_PROOF_SHARE
    proof = _Side(chain([first], steps), share)
    search = _Side(plans(known, task.limits.seed, waiting), 1 - share)
    sides = [proof, search] if is_likely or not first.needs_bounds else [search, proof]
    while sides:
        side = min(sides, key=lambda one: one.spent_s / one.share)
        step = next(side.steps, None)
        if step is None:
            sides.remove(side)
            continue
        left_s, own_s = clock.left_s or 0.0, side.share * limit_s - side.spent_s
        if len(sides) > 1 and left_s > own_s:
            may_s = left_s if step.method == BOUNDS else own_s
            step = replace(step, share=min(step.share * may_s, own_s) / left_s)
        before_s = clock.spent_s
        yield step
        side.spent_s += clock.spent_s - before_s


@dataclass
class _Side:
    """Steps that share the time with others, and the seconds that they have taken."""

    steps: Iterator[Step]
    share: float
    spent_s: float = 0.0


def _in_time(steps: Iterator[Step], task: Task, clock: Clock) -> Iterator[Step]:
    """Those steps that are likely to return in time, for nothing can end them in this process."""
    likely_s = dict(cheapest_first(task))
    search_s = 1e-6 * US_PER_PART_STARTED * task.instance.num_parts
    for step in steps:
        takes_s = likely_s.get(step.method, search_s) if step.is_placer else search_s
        if step.method == BOUNDS or takes_s <= (clock.left_s or 0.0):
            yield step
        elif not step.is_placer:
            yield Step(BOUNDS, task.semantics)  # it looks at the clock
            return


def _run_steps(
    steps: Iterator[Step], known: JudgedKnown, clock: Clock, search: SearchProcess
) -> None:
    """Run steps in this process while there is something to find and time, and at least one."""
    is_first = True
    while not known.is_over and (is_first or not _is_over(clock)):
        step = next(steps, None)  # which may load a solver
        if step is None or stop_requested():
            return
        before, limit_s = known.plan, step.share * (clock.left_s or 0.0)
        if before is None:  # late is better than no plan
            limit_s = max(limit_s, FIRST_PLANS_S)
        with search.proof:
            answer = known.run(step, limit_s)
        known.take_answer(step.method, answer)
        if known.plan is not None and known.plan is not before:
            search.send_plan(known.plan)
        message = answer.message if isinstance(answer, Result) else answer
        if stop_requested() or (isinstance(message, str) and INTERRUPTED in message):
            raise KeyboardInterrupt
        is_first = False


def _is_over(clock: Clock, share: float = 0.0) -> bool:
    return (clock.left_s or 0.0) < max(LEAST_STEP_S, share * (clock.limit_s or 0.0))


def _prove_what_is_cheap(known: JudgedKnown) -> None:
    instance = known.task.instance
    try:
        known.prove(quick_bound(instance, known.task.semantics))
    except MemoryError:
        pass
    except Exception as error:  # plans are known, and other steps may prove more
        if stop_requested():
            raise KeyboardInterrupt from error
        known.faults.append(fault_of("quick bound", instance, error))


def _look_for_room(known: JudgedKnown) -> None:
    """Whether cheap conditions on memory already prove that no plan fits."""
    task = known.task
    if strategy(task).explains_memory:
        reasons = explain_infeasible(relax_memory(task.instance, task.semantics)[0])
        if reasons:
            known.prove(no_plan(origin=MEMORY))
            known.messages[MEMORY] = reasons[0]


def _head_start_s(task: Task, clock: Clock, workers: int) -> float | None:
    """Seconds after which another process looks for plans; None: never."""
    limit_s = clock.limit_s or 0.0
    is_likely = is_likely_proven(task)
    head_start_s = min(HEAD_START * limit_s, LONGEST_HEAD_START_S) if is_likely else 0.0
    left_s = limit_s - max(head_start_s, clock.spent_s)
    may = workers > 1 and may_start_processes() and task.instance.num_parts <= MOST_PARTS
    return head_start_s if may and left_s > PROCESS_S else None


def _message(known: JudgedKnown, end: str) -> str:
    """How it ended, what became of steps that failed, and why all ended before the time did."""
    messages = {**(known.messages if end == ENDED else {}), **known.notes}
    notes = [f"{by}: {note}" for by, note in messages.items() if note and note not in USUAL]
    return "; ".join(filter(None, [end, *notes]))


def _working_s(task: Task, limit_s: float) -> float:
    """The limit less what is kept for judging the last plans, a quarter of it at most."""
    kept_s = RESERVE_SHARE * limit_s + 1e-6 * US_PER_PART * task.instance.num_parts
    return limit_s - min(0.25 * limit_s, kept_s)
