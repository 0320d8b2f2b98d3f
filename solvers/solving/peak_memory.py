"""Every method under the memory rule `peak`: by runs on instances whose memory adds up.

Methods know one rule, `sum`. Under `peak` a method runs on instances that differ in resident bytes
and in the devices' room alone (`additive_memory`), until the referee finds that a plan
fits at its peak on the instance itself:

1. the *floor*, a relaxation: its bound, and its proof that no plan exists, hold. Where its plan
   fits, that is all;
2. the floor with *less room*, twice: every device has as many bytes less as the plan before held
   beyond its floor on a device that it overfilled, or half as many less if there was no plan;
3. the *ceiling*, whose plans fit for certain, if there are any;
4. instances *between* floor and ceiling, by bisection, four times.

An exact method also has the best plan of the fast placers that fits, once its own does not; and if
it can `settle` the rule `peak` itself, that comes right after the floor. The first run has most of
the time, and each other one half of what is left. Where a plan is given, the first run has nearly
all of it: of an exact method it alone proves anything, and a search goes on from that plan. A
search whose plan fits goes on from it on the floor while there is time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from placegap.instances.problem import Evaluation, Instance, Plan, Semantics
from placegap.instances.problem.additive_memory import ceiling_bytes, relax_memory, with_resident
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.transforms.op_splitting import OpSplit
from placegap.solvers.core.clock import Clock, stop_requested
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Progress, has_listener, listening, report
from placegap.solvers.core.result import Outcome, relative_gap
from placegap.solvers.core.starts import placers, starts

# Of the time that is left, for the run on the floor, for that run where a plan that fits is known,
# and for each other one.
FIRST_SHARE, KNOWN_SHARE, SHARE = 0.6, 0.9, 0.5
TIMED_SHARE = 0.9  # a run that takes this share of its time, or more, is one that the clock ended
PARTS = 16  # bisection between floor and ceiling goes by such parts of the way

FLOOR, LESS_ROOM, CEILING, BETWEEN = "floor", "less room", "ceiling", "between"
GIVEN, PLACER, SETTLED = "given plan", "placer", "settled"

# What messages call the runs.
WORDS = {
    LESS_ROOM: "a run with less room",
    CEILING: "a run on the sum of all that ops may hold",
    BETWEEN: "a run with more bytes for each op",
    GIVEN: "the start",
    PLACER: "a placer",
    SETTLED: "a run with the peak memory of stages",
}


class _Try(NamedTuple):
    """A plan as the referee judges it, and the run that it is from."""

    run: str
    plan: Plan
    verdict: Evaluation
    #: claim, split: As in `Outcome`.
    claim: int | None = None
    split: OpSplit | None = None
    beyond_bytes: int = 0  # the most that an overfilled device holds beyond its resident bytes


def run_at_peak(
    task: Task,
    run: Callable[[Task], Outcome],
    by: str,
    *,
    is_exact: bool,
    most_runs: int | None = None,
    settle: Callable[[Task, Outcome, Plan | None], Outcome | None] | None = None,
) -> Outcome:
    """Run a method by the rule above."""
    # `run` is the method, for tasks of the same graph whose semantics has memory ``sum``; `by` is
    # its name. If it is exact, the task's incumbent, and placers, stand in where the method's own
    # plans do not fit. It ends after `most_runs`, whether a plan fits or not; `settle` is as in
    # `Method`. The outcome is that of the run on the floor, with the best plan of all runs. The
    # detail `memory_run` names the run that the plan is from; `memory_runs` counts them.
    clock, tries, runs = task.limits.clock(), list[_Try](), 0
    if is_exact and task.incumbent is not None:
        tries.append(_judged(GIVEN, task, task.instance, task.incumbent))
    floor, plain = relax_memory(task.instance, task.semantics)
    first = Outcome()
    instances = _instances(task.instance, floor)
    name, instance = next(instances)
    share = FIRST_SHARE if task.incumbent is None else KNOWN_SHARE
    while True:
        part = _part(task, instance, plain, tries, clock, SHARE if runs else share)
        before_s = clock.spent_s
        with nullcontext() if runs else _report_bounds(task, part):
            outcome = run(part)
        first, runs = first if runs else outcome, runs + 1
        found = None
        if outcome.plan is not None:
            found = _judged(name, task, instance, outcome.plan, outcome)
            tries.append(found)
            if found.verdict.feasible:
                report(task.instance, task.semantics, by, value=found.verdict.value)
                limit_s, spent_s = part.limits.time_limit_s, clock.spent_s - before_s
                timed = limit_s is not None and spent_s > TIMED_SHARE * limit_s
                if timed and not is_exact and most_runs is None and not stop_requested():
                    # a search: it goes on from its plan in the time that is left
                    outcome = run(_part(task, floor, plain, tries, clock, 1.0))
                    runs += 1
                    if outcome.plan is not None:
                        tries.append(_judged(FLOOR, task, floor, outcome.plan, outcome))
                break
        is_late = task.incumbent is not None and clock.is_over()  # some plan is known
        if first.plan is None or runs == most_runs or is_late or stop_requested():
            break
        if is_exact and runs == 1:
            tries += _placed(task, part)
            if settle is not None:
                first, is_settled = _settled(task, settle, first, tries, clock, by)
                if is_settled:
                    break
        try:
            name, instance = instances.send(found)
        except StopIteration:
            break
    return _with_best(first, tries, runs)


def _instances(
    instance: Instance, floor: Instance
) -> Generator[tuple[str, Instance], _Try | None, None]:
    """The instances of the runs by name; sent is the last run's plan, which does not fit."""
    found = yield FLOOR, floor
    less_bytes = 0
    for _ in range(2):
        less_bytes = less_bytes // 2 if found is None else less_bytes + found.beyond_bytes
        found = yield LESS_ROOM, _with_less_room(floor, less_bytes)
    low, high = floor.arrays.resident_bytes, ceiling_bytes(instance)
    if float(high.astype(np.float64).sum()) > LARGEST_SUM:
        return
    found = yield CEILING, with_resident(instance, high)
    least, most = 0, PARTS
    while most - least > 1:
        middle = (least + most) // 2
        size = low + (high - low) // PARTS * middle  # rounds down, also where the ceiling is less
        size = np.maximum(size, np.minimum(low, high))
        found = yield BETWEEN, with_resident(instance, size)
        least, most = (least, middle) if found is None else (middle, most)


def _settled(
    task: Task,
    settle: Callable[[Task, Outcome, Plan | None], Outcome | None],
    first: Outcome,
    tries: list[_Try],
    clock: Clock,
    by: str,
) -> tuple[Outcome, bool]:
    """The outcome on the floor with the bound of what settles `peak`, and whether that is all."""
    known = _best(tries)
    limits = task.limits.left(clock, SHARE)
    outcome = settle(replace(task, limits=limits), first, known and known.plan)
    if outcome is None:
        return first, False
    if outcome.plan is not None:
        tries.append(_judged(SETTLED, task, task.instance, outcome.plan, outcome))
    if outcome.bound_value is not None and outcome.bound_value > (first.bound_value or 0):
        first = replace(first, bound=outcome.bound, message=outcome.message)
        report(task.instance, task.semantics, by, bound=outcome.bound)
    best = _best(tries)
    gap = None if best is None else relative_gap(best.verdict.value, first.bound_value)
    return first, gap is not None and gap <= task.limits.gap


def _placed(task: Task, part: Task) -> Iterator[_Try]:
    """The plans of the placers that are fast, as they fit."""
    for start in starts(part, placers(part)):
        yield _judged(PLACER, task, part.instance, start.plan)


def _part(
    task: Task,
    instance: Instance,
    plain: Semantics,
    tries: Sequence[_Try],
    clock: Clock,
    share: float,
) -> Task:
    """The task of one run: its share of the time, and the best plan known, if it fits there."""
    best = _best(tries)
    start = task.incumbent if best is None else best.plan if best.split is None else None
    if start is not None and not evaluate(instance, start, plain).feasible:
        start = None
    limits = task.limits.left(clock, share)
    return Task(instance, plain, limits, start, at_peak=task.instance)


def _report_bounds(task: Task, part: Task) -> AbstractContextManager[None]:
    """Report the floor's bounds to those who listen to the task; its plans may not fit."""

    def pass_on(progress: Progress) -> None:
        report(task.instance, task.semantics, progress.by, bound=progress.bound)

    if not has_listener(task.instance, task.semantics):
        return nullcontext()
    return listening(part.instance, part.semantics, pass_on)


def _with_less_room(instance: Instance, less_bytes: int) -> Instance:
    cluster = instance.cluster
    devices = tuple(
        device
        if device.memory_bytes is None
        else device.model_copy(update={"memory_bytes": max(0, device.memory_bytes - less_bytes)})
        for device in cluster.devices
    )
    smaller = cluster.model_copy(update={"devices": devices})
    return instance.model_copy(update={"cluster": smaller})


def _judged(
    run: str, task: Task, instance: Instance, plan: Plan, of: Outcome | None = None
) -> _Try:
    """A plan judged on the instance of the task, or on what the method split that to."""
    judged, claim, split = task.instance, None, None
    if of is not None:
        claim, split = of.claim, of.split
    if split is not None:
        judged = instance = split.fine
    verdict = evaluate(judged, plan, task.semantics)
    if not verdict.feasible and (plan.device_order or plan.channel_order):
        free = Plan(plan.placement)  # the clock's own orders may need less
        loose = evaluate(judged, free, task.semantics)
        if loose.feasible:
            verdict, plan, claim = loose, free, None
    if not verdict.uses:
        return _Try(run, plan, verdict, claim, split)
    held = np.array([use.memory_bytes for use in verdict.uses], np.int64)
    too_full = held > judged.arrays.memory_bytes
    beyond = (held - _counted(instance, plan, task.semantics))[too_full].max(initial=1)
    return _Try(run, plan, verdict, claim, split, int(beyond))


def _counted(
    instance: Instance, plan: Plan, semantics: Semantics
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """What the rule `sum` counts on each device, (K,)."""
    if "stage" in semantics.plan_fields:  # microbatches in flight, too
        plain = semantics.model_copy(update={"memory": "sum"})
        uses = evaluate(instance, plan, plain).uses
        return np.array([use.memory_bytes for use in uses], np.int64)
    total = np.zeros(instance.num_devices, np.int64)
    for on, size in zip(plan.placement, instance.arrays.resident_bytes.tolist(), strict=True):
        total[list(on)] += size
    return total


def _best(tries: Sequence[_Try]) -> _Try | None:
    """The plan that fits and has the least value, the first if several tie."""
    fitting = [known for known in tries if known.verdict.feasible]
    return min(fitting, key=lambda known: known.verdict.value or 0, default=None)


def _with_best(first: Outcome, tries: Sequence[_Try], runs: int) -> Outcome:
    """The outcome of the floor with the best plan of all runs, and where that is from."""
    best = _best(tries)
    details = {**first.details, "memory_runs": runs}
    if best is None:
        message = first.message
        if tries:
            why = "; ".join(str(violation) for violation in tries[-1].verdict.violations[:2])
            message = f"no plan of {runs} runs fits at its peak ({why})"
        return replace(first, plan=None, claim=None, split=None, message=message, details=details)
    details["memory_run"] = best.run
    if best.run == FLOOR:
        return replace(first, plan=best.plan, claim=best.claim, details=details)
    words = [f"peak memory: the plan is from {WORDS[best.run]}", first.message]
    return replace(
        first,
        plan=best.plan,
        claim=None,
        split=best.split,
        message="; ".join(filter(None, words)),
        details=details,
    )
