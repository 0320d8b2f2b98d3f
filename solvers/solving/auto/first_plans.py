"""The first plans of `auto`: every placer of the registry, the cheapest first, while time allows.

Where memory counts at its peak, a placer whose plan does not fit is run again and again, with less
room. So all placers have one run each first, and only then the others that they may need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import memory_rule
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import Task
from placegap.solvers.core.registry import find_method
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import ALWAYS, best_start, cheapest_first, placers
from placegap.solvers.solving.peak_memory import run_at_peak

LONGEST_SHARE = 0.2
"""Of the time limit: a placer that is likely to take longer is not fast, and not asked."""


class Placed(NamedTuple):
    """What a placer has said.

    Attributes
    ----------
    name : str
    plan : Plan or None
    is_last_word : bool
        Whether further runs cannot change it.
    value_ns : int or None
        The referee's, where it has judged the plan by the task's rules.
    """

    name: str
    plan: Plan | None
    is_last_word: bool
    value_ns: int | None = None


def first_plans(task: Task, clock: Clock, faults: list[str] | None = None) -> Iterator[Placed]:
    """What the placers say that are fast on the task, until the clock is over.

    The first ones are asked however late it is, and to the end while no plan is known; afterwards
    none that is likely to take longer than what is left of the task's time limit. One that fails
    has no plan, and a sentence among the `faults`.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> next(first_plans(Task(example(), Makespan(memory="peak")), Clock(1.0))).name
    'single-device'
    """
    names, done, is_known = placers(task), set[str](), False
    whole, likely_s = Clock(task.limits.time_limit_s), dict(cheapest_first(task))
    always = [name for name in names if name in ALWAYS]
    others = [name for name in names if name not in ALWAYS]
    most_runs: tuple[int | None, ...] = (None,)
    if memory_rule(task.semantics) == "peak":
        most_runs = (1, None)
    for group in (always, others):
        for most in most_runs:
            for name in group:
                if name in done or (name in ALWAYS and most is None and is_known and most_runs[1:]):
                    continue
                if clock.left_s == 0.0 and name not in ALWAYS:
                    return
                if is_known and whole.left_s is not None and likely_s[name] > whole.left_s:
                    continue
                plan, value_ns = _plan_of(task, name, most, faults)
                is_known = is_known or plan is not None
                is_done = most is None or plan is not None
                if is_done:
                    done.add(name)
                yield Placed(name, plan, is_done, value_ns)


def still_waiting(task: Task, heard: Sequence[Placed], *, is_huge: bool = False) -> tuple[str, ...]:
    """The placers that are fast within the task's time limit and have not had their last word.

    First come those that have said nothing, the cheapest first. On a huge graph no search does
    more than a placer, so that one may take all the time that there is.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> from placegap.solvers.core.method import Limits
    >>> heard = [Placed("single-device", None, True), Placed("m-topo", None, False)]
    >>> waiting = still_waiting(Task(example(), Makespan(), Limits(60.0)), heard)
    >>> waiting[0], waiting[-1]
    ('dsc-glb', 'm-topo')
    """
    asked = {placed.name for placed in heard}
    done = {placed.name for placed in heard if placed.is_last_word}
    limit_s = task.limits.time_limit_s
    most_s = float("inf") if limit_s is None else (1.0 if is_huge else LONGEST_SHARE) * limit_s
    names = [name for name, s in cheapest_first(task) if name not in done and s <= most_s]
    return tuple(sorted(names, key=asked.__contains__))


def _plan_of(
    task: Task, name: str, most_runs: int | None, faults: list[str] | None
) -> tuple[Plan | None, int | None]:
    """The plan of a placer, if it has one that fits, and its value, where it has been judged."""
    asked = replace(task, incumbent=None)
    if memory_rule(task.semantics) in find_method(name).memory_rules:
        start = best_start(asked, [name], faults)
        return (None, None) if start is None else (start.plan, start.value_ns)

    def run(part: Task) -> Outcome:
        start = best_start(part, [name], faults)
        return Outcome(None if start is None else start.plan)

    return run_at_peak(asked, run, name, is_exact=False, most_runs=most_runs).plan, None
