"""The rule for every method made to prove: it is never worse than what costs next to nothing.

It starts from the best plan of all placers that are fast at the instance's size (`start`), and its
bound is never below what cheap methods prove (`bounds`). Where the method itself fails or
contradicts a plan that is known, the rest stands, and the result says what went wrong.

What the method found by itself stays to be seen, for studies that compare methods: the details
`own_bound_ns` and `own_value_ns`, wherever a cheap bound or a placer's plan takes its place.
"""

from __future__ import annotations

import traceback
from dataclasses import replace

from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.bounds.cheap_bounds import method_bound, quick_bound
from placegap.solvers.bounds.portfolio import expensive_bounds
from placegap.solvers.core.clock import Clock, stop_asked
from placegap.solvers.core.method import AnyMethod, ExactParams, Params, Start, Task
from placegap.solvers.core.progress import tell
from placegap.solvers.core.result import Bound, Outcome, fault_of
from placegap.solvers.core.starts import best_start, placers, starts

AFTERWARDS = ("ideal-dp",)
"""Methods with quick starts of their own: placers run only if they end without a proof."""

BOUND_SHARE = 0.1
"""Of the time for bounds that cost more than the quick one, before the method begins."""

SMALL = 60
"""Ops and edges of instances that an exact method mostly closes faster than an LP is built."""


def run_exact(method: AnyMethod, task: Task, params: Params) -> Outcome:
    """Run a method by the rule; brute force, and what is made inexact, run as they are.

    With the parameter `start` false no placer runs; the incumbent still counts.
    """
    if not isinstance(params, ExactParams) or not params.keeps_exact:
        return method.outcome(task, params)
    asked = params.start
    clock = task.limits.clock()
    before = asked and method.name not in AFTERWARDS
    found, faults = list[Start](), list[str]()
    floor = Bound(0, "")
    try:
        floor = quick_bound(task.instance, task.semantics)
        for start in starts(task, placers(task) if before else (), faults):
            found.append(start)  # one by one: those before an interrupt count
        ordered = sorted(found, key=lambda start: start.value_ns)
        floor = _floor(task, floor, ordered[0] if ordered else None)
        tell(task.instance, task.semantics, floor.origin, bound=floor)
        known = replace(task, starts=tuple(ordered), floor_ns=floor.ns)
        outcome = method.outcome(replace(known, limits=task.limits.left(clock)), params)
    except InputError:
        raise
    except KeyboardInterrupt:
        outcome = Outcome(message="interrupted")
    except MemoryError:
        outcome = Outcome(message="out of memory")
    except Exception as error:  # the user gets the best plan so far, and the reason
        stopped = Outcome(message="interrupted") if stop_asked() else None
        outcome = stopped or _failed(method, task, error)
    best = best_start(replace(task, starts=tuple(found)))
    outcome, best = _not_worse(method, task, outcome, best)
    open_ = _is_open(task, outcome, best, floor)
    if open_ and asked and not before:
        again = best_start(task, placers(task), faults)
        if again is not None and (best is None or again.value_ns < best.value_ns):
            outcome, best = replace(outcome, plan=again.plan, claim_ns=None), again
    if open_ and task.instance.num_ops + len(task.instance.graph.edges) <= SMALL:
        floor = method_bound(task, floor, 1.0)
    if best is not None and floor.ns > best.value_ns:
        said = f"proves {floor.ns}, and a plan of {best.value_ns} ns is known"
        faults.append(fault_of(floor.origin, task.instance, said))
        floor = Bound(0, "")
    outcome = _not_below(outcome, floor)
    outcome = replace(outcome, faults=(*outcome.faults, *faults))
    return _in_words(outcome, best, task.limits.gap, clock)


def _floor(task: Task, floor: Bound, start: Start | None) -> Bound:
    """What cheap bounds prove; expensive ones run where the known plan leaves a gap."""
    small = task.instance.num_ops + len(task.instance.graph.edges) <= SMALL
    if small or (start is not None and start.value_ns <= floor.ns):
        return floor
    return max((floor, *expensive_bounds(task, floor, BOUND_SHARE)), key=Bound.rank)


def _failed(method: AnyMethod, task: Task, error: Exception) -> Outcome:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
    return _fault(Outcome(message=f"stopped by an error ({where})"), method, task, error)


def _fault(outcome: Outcome, method: AnyMethod, task: Task, said: str | Exception) -> Outcome:
    """Note what went wrong, in the result and as a warning."""
    fault = fault_of(method.name, task.instance, said)
    return replace(outcome, faults=(*outcome.faults, fault))


def _not_worse(
    method: AnyMethod, task: Task, outcome: Outcome, start: Start | None
) -> tuple[Outcome, Start | None]:
    """The outcome with the better of its plan and the start, and that plan with its value.

    What contradicts that plan is left out: that there were none, or that all plans took longer.
    """
    best, own = start, None
    if outcome.plan is not None and (start is None or outcome.plan is not start.plan):
        verdict = evaluate(task.instance, outcome.plan, task.semantics)
        if verdict.feasible and verdict.value_ns is not None:
            own = Start(outcome.plan, verdict.value_ns)
        elif outcome.claim_ns is not None:
            reasons = "; ".join(str(violation) for violation in verdict.violations[:3])
            outcome = _fault(outcome, method, task, f"claims a plan with {reasons}")
        if own is not None and outcome.claim_ns is not None and outcome.claim_ns < own.value_ns:
            said = f"claims {outcome.claim_ns}, the referee finds {own.value_ns}"
            outcome = _fault(replace(outcome, claim_ns=None, bound=None), method, task, said)
        if own is not None and (best is None or own.value_ns <= best.value_ns):
            best = own
    if best is None:
        return outcome, None
    if best is not own:
        details = dict(outcome.details)
        if own is not None:
            details["own_value_ns"] = own.value_ns
        outcome = replace(outcome, plan=best.plan, claim_ns=None, details=details)
    if outcome.proven_infeasible:
        said = f"claims that there is no plan, but one of {best.value_ns} ns is known"
        outcome = _fault(replace(outcome, bound=None, message=""), method, task, said)
    if outcome.bound_ns is not None and outcome.bound_ns > best.value_ns:
        said = f"its bound {outcome.bound_ns} is above the value {best.value_ns} of a plan"
        outcome = _fault(replace(outcome, bound=None), method, task, said)
    return outcome, best


def _is_open(task: Task, outcome: Outcome, best: Start | None, floor: Bound) -> bool:
    """Whether the gap that is left is larger than requested."""
    if outcome.proven_infeasible:
        return False
    if best is None:
        return True
    bound_ns = max(floor.ns, outcome.bound_ns or 0)
    return best.value_ns - bound_ns > task.limits.gap * best.value_ns


def _not_below(outcome: Outcome, floor: Bound) -> Outcome:
    """The outcome with the better of its bound and the cheap one, and what that rests on.

    Of equal bounds the one counts that placegap proved.
    """
    if outcome.proven_infeasible or floor.ns == 0:
        return outcome
    own = outcome.bound
    if own is not None and own.rank() >= floor.rank():
        return outcome
    details = dict(outcome.details)
    if own is not None:
        details["own_bound_ns"] = own.ns
    return replace(outcome, bound=floor, details=details)


def _in_words(outcome: Outcome, best: Start | None, gap: float, clock: Clock) -> Outcome:
    """A message wherever a plan or its proof is missing."""
    missing = None
    if best is not None and outcome.bound_ns is not None:
        missing = best.value_ns - outcome.bound_ns - gap * best.value_ns
    if outcome.message or (missing is not None and missing <= 0):
        return outcome
    at_limit = clock.limit_s is not None and clock.spent_s >= 0.95 * clock.limit_s
    return replace(
        outcome,
        message="stopped at the time limit" if at_limit else "ended unproven",
    )
