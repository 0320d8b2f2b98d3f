"""The rule for every method made to prove: it is never worse than what costs next to nothing.

It starts from the best plan of all placers that are fast at the instance's size (`start`), and its
bound is never below what cheap methods prove (`bounds`). Where the method itself fails or
contradicts a plan that is known, the rest stands, and the result says what went wrong.

What the method found by itself stays to be seen, for studies that compare methods: the details
`own_bound_ns` and `own_value_ns`, wherever a cheap bound or a placer's plan takes its place.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace

from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.bounds.cheap_bounds import method_bound, quick_bound
from placegap.solvers.bounds.portfolio import expensive_bounds
from placegap.solvers.core.clock import stop_requested
from placegap.solvers.core.method import AnyMethod, ExactParams, Start, Task
from placegap.solvers.core.progress import report
from placegap.solvers.core.result import (
    NOTHING_PROVEN,
    Bound,
    Outcome,
    fault_of,
    is_better,
    refutation,
    relative_gap,
    wrong_claim,
)
from placegap.solvers.core.starts import best_start, placers, starts

AFTERWARDS = ("ideal-dp",)  # have quick starts: placers and bounds run only if they end unproven
BOUND_SHARE = 0.1  # of the time for bounds beyond the quick one, before the method begins
SMALL = 60  # ops and edges of instances that exact methods close faster than an LP is built


def run_exact(method: AnyMethod, task: Task, params: ExactParams) -> Outcome:
    """Run a method by the rule."""
    # With the parameter `start` false no placer runs; the incumbent still counts.
    clock, instance = task.limits.clock(), task.instance
    before = method.name not in AFTERWARDS
    bounds_before = before and instance.num_parts > SMALL
    found, faults = list[Start](), list[str]()
    floor = NOTHING_PROVEN

    def note(said: str | Exception, by: str = method.name) -> None:
        """Note what went wrong, in the result and as a warning."""
        faults.append(fault_of(by, instance, said))

    try:
        floor = quick_bound(instance, task.semantics)
        for start in starts(task, placers(task) if params.start and before else (), faults):
            found.append(start)  # one by one: those before an interrupt count
        ordered = sorted(found, key=lambda start: start.value)
        best_ns = ordered[0].value if ordered else None
        if bounds_before and (best_ns is None or best_ns > floor.value):
            more = expensive_bounds(task, floor, BOUND_SHARE, best_ns=best_ns)
            floor = max((floor, *more), key=Bound.rank)
        report(instance, task.semantics, floor.origin, bound=floor)
        known = replace(task, starts=tuple(ordered), floor_ns=floor.value)
        outcome = method.outcome(replace(known, limits=task.limits.left(clock)), params)
    except InputError:
        raise
    except KeyboardInterrupt:
        outcome = Outcome(message="interrupted")
    except MemoryError:
        outcome = Outcome(message="out of memory")
    except Exception as error:  # the user gets the best plan so far, and the reason
        outcome = Outcome(message="interrupted")
        if not stop_requested():
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
            outcome = Outcome(message=f"stopped by an error ({where})")
            note(error)
    outcome, best = _not_worse(task, outcome, best_start(replace(task, starts=tuple(found))), note)
    is_open = not outcome.proven_infeasible
    if best is not None:
        is_open = not _is_close(task, best, max(floor.value, outcome.bound_value or 0))
    if is_open and params.start and not before:
        again = best_start(task, placers(task), faults)
        if again is not None and is_better(again.value, best and best.value):
            outcome, best = replace(outcome, plan=again.plan, claim=None), again
    if is_open and not bounds_before:
        floor = method_bound(task, floor, 1.0)
    wrong = refutation(floor, best and best.value, task.semantics)
    if wrong:
        note(wrong, floor.origin)
        floor = NOTHING_PROVEN
    outcome = _not_below(outcome, floor)
    outcome = replace(outcome, faults=(*outcome.faults, *faults))
    if outcome.message or _is_close(task, best, outcome.bound_value):
        return outcome
    at_limit = clock.limit_s is not None and clock.spent_s >= 0.95 * clock.limit_s
    return replace(outcome, message="stopped at the time limit" if at_limit else "ended unproven")


def _is_close(task: Task, best: Start | None, bound_ns: int | None) -> bool:
    """Whether the gap suffices."""
    gap = None if best is None else relative_gap(best.value, bound_ns)
    return gap is not None and gap <= task.limits.gap


def _not_worse(
    task: Task, outcome: Outcome, start: Start | None, note: Callable[[str], None]
) -> tuple[Outcome, Start | None]:
    """The outcome with the better of its plan and the start, and that plan with its value."""
    # What contradicts that plan is left out: that there were none, or that all plans took longer.
    best, own = start, None
    if outcome.plan is not None and (start is None or outcome.plan is not start.plan):
        verdict = evaluate(task.instance, outcome.plan, task.semantics)
        if verdict.feasible and verdict.value is not None:
            own = Start(outcome.plan, verdict.value)
        elif outcome.claim is not None:
            reasons = "; ".join(str(violation) for violation in verdict.violations[:3])
            note(f"claims a plan with {reasons}")
        if own is not None and outcome.claim is not None:
            wrong = wrong_claim(replace(outcome, bound=None), own.value, task.semantics)
            if wrong:
                note(wrong)
                outcome = replace(outcome, claim=None, bound=None)
        if own is not None and (best is None or not is_better(best.value, own.value)):
            best = own
    if best is None:
        return outcome, None
    if best is not own:
        details = dict(outcome.details)
        if own is not None:
            details["own_value_ns"] = own.value
        outcome = replace(outcome, plan=best.plan, claim=None, details=details)
    wrong = refutation(outcome.bound, best.value, task.semantics)
    if wrong:
        note(wrong)
        message = "" if outcome.proven_infeasible else outcome.message
        outcome = replace(outcome, bound=None, message=message)
    return outcome, best


def _not_below(outcome: Outcome, floor: Bound) -> Outcome:
    """The outcome with the better of its bound and the cheap one, and what that rests on."""
    # Of equal bounds the one counts that placegap proved.
    if outcome.proven_infeasible or floor.value == 0:
        return outcome
    own = outcome.bound
    if own is not None and own.rank() >= floor.rank():
        return outcome
    details = dict(outcome.details)
    if own is not None:
        details["own_bound_ns"] = own.value
    return replace(outcome, bound=floor, details=details)
