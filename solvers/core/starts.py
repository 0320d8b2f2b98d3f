"""What an exact method starts from: the best of an incumbent and of all placers that are fast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from placegap.instances.problem import Plan
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import feasible_value
from placegap.solvers.core.clock import Clock, stop_requested
from placegap.solvers.core.method import Cost, Start, Task, WrongOutcome
from placegap.solvers.core.method_homes import HOMES
from placegap.solvers.core.objective import strategy
from placegap.solvers.core.progress import report
from placegap.solvers.core.registry import METHODS, why_not
from placegap.solvers.core.result import fault_of

# A method that looks for a start gets a share of the time, and no more than this many seconds.
LONGEST_S, SHARE = 10.0, 0.2
SECOND_S = 1.0  # placers are chosen by likely cost; after this many seconds also by the clock
# Seconds of placers on small instances, which are soon solved: in all, and per op and edge.
AT_LEAST_MS, MS_PER_PART = 3.0, 0.2


# Larger graphs (ops + edges) are beyond the caches: `heft` takes 2.5 times as long for each.
LARGE_PARTS, LARGE_FACTOR = 1_500_000, 2.0

# Asked however little time there is, those that do the objective.
ALWAYS = tuple(
    name for name, home in HOMES.items() if any(cost.always for cost in home.starts.values())
)


def start_costs(task: Task) -> dict[str, Cost]:
    """The placers of a task's objective, the usual ones first, and their costs: its `starts`."""
    # Left out is what splits ops (its plans are of another instance), what needs a file or a MIP,
    # and annealing, which takes whatever time it is given.
    known = strategy(task).placers_of or task.semantics.objective
    return {name: costs[known] for name, costs in METHODS.start_costs() if known in costs}


def likely_s(cost: Cost, parts: int) -> float:
    """Seconds that a graph with this number of ops and edges is likely to cost."""
    growth = max(1.0, parts / cost.most_parts) if cost.grows else 1.0
    if parts > LARGE_PARTS:
        growth *= LARGE_FACTOR
    return 1e-3 * (cost.ms + 1e-3 * cost.us_per_part * parts * growth)


def placers(task: Task) -> tuple[str, ...]:
    """The placers that are fast on a task of its size."""
    # The clock does not count, so that they are the same every time.
    parts = task.instance.num_parts
    left_s = min(LONGEST_S, 1e-3 * (AT_LEAST_MS + MS_PER_PART * parts))
    if task.limits.time_limit_s is not None:
        left_s = min(left_s, SHARE * task.limits.time_limit_s)
    chosen = []
    for name, cost in start_costs(task).items():
        cost_s = likely_s(cost, parts)
        if name in ALWAYS or (cost_s <= left_s and parts <= cost.most_parts):
            chosen.append(name)
            left_s -= cost_s
    return tuple(chosen)


def cheapest_first(task: Task) -> tuple[tuple[str, float], ...]:
    """All placers of the task's objective, with the seconds that each is likely to take."""
    parts = task.instance.num_parts
    costs = start_costs(task)
    likely = [(name, likely_s(cost, parts)) for name, cost in costs.items()]
    return tuple(sorted(likely, key=lambda each: each[1]))


def starts(task: Task, methods: Iterable[str], faults: list[str] | None = None) -> Iterator[Start]:
    """The feasible plans of the task's incumbent and of the named methods, each as it is found."""
    # A method that does not do the task's class of plans runs for a narrower class: a chain is
    # convex, and is a plan of any kind; a plan without replicas is one of those with them. Methods
    # that do not apply at all are passed over. No method runs when the share of the task's time is
    # over. One that fails costs its plan: a warning, and a sentence among the `faults`.
    limit_s = task.limits.time_limit_s
    share_s = LONGEST_S if limit_s is None else min(LONGEST_S, limit_s * SHARE)
    clock = Clock(None if limit_s is None else max(share_s, SECOND_S))
    yield from task.starts
    if not any(start.plan is task.incumbent for start in task.starts):
        yield from _judged(task, task.incumbent, "the start")
    for name in methods:
        if clock.is_over() and name not in ALWAYS:
            break
        limits = replace(task.limits, time_limit_s=share_s)
        narrower = task_for(replace(task, limits=limits), name)
        if narrower is not None:
            yield from _judged(task, _plan_by(name, narrower, faults), name)


def best_start(
    task: Task, methods: Iterable[str] = (), faults: list[str] | None = None
) -> Start | None:
    """The best of `starts`, the first one if several tie, or None."""
    return min(
        starts(task, methods, faults),
        key=lambda start: task.semantics.cost(start.value),
        default=None,
    )


def _plan_by(name: str, task: Task, faults: list[str] | None) -> Plan | None:
    """The plan of a method, if it has one and does not fail."""
    method = METHODS[name]
    try:
        return method.outcome(task, method.params()).plan
    except WrongOutcome as error:
        fault = fault_of(name, task.instance, error)
    except InputError:
        raise
    except MemoryError:
        return None
    except Exception as error:
        if stop_requested():  # what is interrupted may fail with an error of its own
            raise KeyboardInterrupt from error
        fault = fault_of(name, task.instance, error)
    if faults is not None:
        faults.append(fault)
    return None


def _judged(task: Task, plan: Plan | None, by: str) -> Iterator[Start]:
    """The plan with its value, if there is one and it is feasible."""
    if plan is None:
        return
    value_ns = feasible_value(task.instance, plan, task.semantics)
    if value_ns is not None:
        yield Start(plan, value_ns)
        report(task.instance, task.semantics, by, value=value_ns, plan=plan)


def task_for(task: Task, name: str) -> Task | None:
    """The task, or a narrower class of plans or simpler rules that the method supports; or None."""
    method = METHODS[name]
    for semantics in task.semantics.narrower():
        other = replace(task, semantics=semantics, incumbent=None, starts=())
        if why_not(method, other, method.params()) is None:
            return other
    return None
