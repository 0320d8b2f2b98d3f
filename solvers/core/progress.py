"""What a method has found so far: what a search keeps of it, and its listeners.

Best plans and bounds are kept in a `Known`. Methods, and what many of them share (starts, the rule
for exact methods, the solvers' callbacks), report better ones with `report`, with the instance and
the rules. So what is solved on the way, such as sections, coarser graphs or plainer rules, is
never taken for the given task. For each listener, a `ProgressLog` keeps the best that was reported,
and a `Control` lets callbacks stop the search.

A value that a MIP solver reports is its own, to its tolerances: the referee judges the plan when
the solver has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from placegap.instances.problem import Instance, Plan, Semantics
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.problem.semantics import Unit
from placegap.solvers.core.clock import Interruptible
from placegap.solvers.core.method import Task
from placegap.solvers.core.result import (
    NO_PLAN_NS,
    NOTHING_PROVEN,
    Bound,
    cost,
    describe_basis,
    is_better,
    refutation,
    relative_gap,
)


@dataclass(frozen=True)
class Progress:
    """The best plan's value and the best bound so far, and who found that plan."""

    # `plan` is that plan, where it is at hand; `doing` is what takes long now, if that is no
    # search. Progress that differs in nothing else is the same.
    value: int | None = None
    bound: Bound | None = None
    by: str = ""
    plan: Plan | None = field(default=None, compare=False, repr=False)
    doing: str = field(default="", compare=False, repr=False)
    unit: Unit = field(default="ns", compare=False, repr=False)

    @property
    def bound_value(self) -> int | None:
        """The bound alone."""
        return self.bound and self.bound.value


NO_PROGRESS = Progress()

Listener = Callable[[Progress], None]


class Report(Protocol):
    """What a search calls with a value, a bound, or both (`reporter`)."""

    def __call__(self, value: int | None, bound: int | None, plan: Plan | None = None) -> None:
        """Report them, and the plan of that value where it is at hand."""


def report_nothing(value: int | None, bound: int | None, plan: Plan | None = None) -> None:
    """Report nothing."""


@dataclass(eq=False, kw_only=True)
class Known:
    """The best plan and the best bound so far; where they contradict each other, a fault."""

    rules: Semantics | None = None  # of the values and bounds; None: nanoseconds, less is better
    gap: float = 0.0  # relative gap that suffices
    plan: Plan | None = None
    value: int | None = None  # in the unit of the rules; None without a plan
    by: str = ""  # who found the plan
    bound: Bound = NOTHING_PROVEN
    on_progress: Report = report_nothing  # called with both whenever one of them is better
    #: Claims of a phase or a solver that a known plan contradicts, or how it failed.
    faults: list[str] = field(default_factory=list)
    details: dict[str, int | float | str] = field(default_factory=dict)

    def improve(self, value: int | None, plan: Plan | None = None, by: str = "") -> bool:
        """Whether the value of a plan, None of one that breaks a rule, is better; then it stays."""
        if value is None or not is_better(value, self.value, self.rules):
            return False
        self.plan, self.value, self.by = plan, value, by
        if self._refutes(self.bound):
            self.forget_bound()
        self.on_progress(value, self.bound.value or None, plan)
        return True

    def prove(self, bound: Bound) -> bool:
        """Take over a bound if it is better; one above the plan's value is a fault."""
        if self._refutes(bound) or not (
            bound.value >= NO_PLAN_NS or is_better(self.bound.value, bound.value, self.rules)
        ):
            return False
        self.bound = bound
        if not self.is_infeasible:
            self.on_progress(self.value, bound.value)
        return True

    def _refutes(self, bound: Bound) -> bool:
        """Whether the plan is better than a bound allows; then that is a fault."""
        by = f"{self.by} has" if self.by else "there is"
        words = refutation(bound, self.value, self.rules, by)
        if words:
            self.faults.append(f"{describe_basis(bound.origin, bound.basis)}: {words}")
        return bool(words)

    def forget_bound(self) -> None:
        """Nothing is left of a bound that was wrong."""
        is_maximized = self.rules is not None and self.rules.is_maximized
        self.bound = unproven(self.rules) if is_maximized else NOTHING_PROVEN

    def offer_plan(self, task: Task, plan: Plan | None) -> bool:
        """Take over a plan if the referee finds it feasible and better."""
        from placegap.instances.referee.evaluate import feasible_value  # brings numba

        if plan is None:
            return False
        return self.improve(feasible_value(task.instance, plan, task.semantics), plan)

    def take_over(self, other: Known) -> None:
        """Take over what is better."""
        self.improve(other.value, other.plan, other.by)
        self.prove(other.bound)
        self.faults += [fault for fault in other.faults if fault not in self.faults]

    @property
    def is_infeasible(self) -> bool:
        """Whether it is proven that no plan exists."""
        return self.bound.value >= NO_PLAN_NS

    @property
    def is_close(self) -> bool:
        """Whether the gap is small enough."""
        found = relative_gap(self.value, self.bound.value)
        return found is not None and found <= self.gap


def unproven(rules: Semantics | None) -> Bound:
    """A bound that says nothing, also of values below 0 and of what is maximized."""
    return Bound(cost(-LARGEST_SUM, rules))


@dataclass(eq=False)
class ProgressLog(Known):
    """The best that was reported, and the listener that gets each improvement."""

    listener: Listener
    best: Progress = NO_PROGRESS

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self.forget_bound()

    def forget_bound(self) -> None:
        """Nothing is known, also of what is maximized."""
        self.bound = unproven(self.rules)

    def enter(self, progress: Progress) -> None:
        """Take over what is better; solvers call from threads of their own."""
        with self._lock:
            self.improve(progress.value, progress.plan, progress.by)
            if progress.bound is not None:  # one above the value is a fault, as the result says
                self.prove(progress.bound)
            says_nothing = self.bound.value == 0 and progress.unit == "ns"
            is_unproven = says_nothing or self.bound.value == unproven(self.rules).value
            bound = None if is_unproven else self.bound
            found = Progress(self.value, bound, self.by, self.plan, unit=progress.unit)
            if found != self.best:
                self.best = found
                self.listener(found)


_logs: list[tuple[Instance, Semantics, ProgressLog]] = []


@contextmanager
def listening(
    instance: Instance, semantics: Semantics, listener: Listener | None
) -> Iterator[None]:
    """Call a listener, in this process, with what is found for an instance under a semantics."""
    if listener is None:
        yield
        return
    entry = (instance, semantics, ProgressLog(listener, rules=semantics))
    _logs.append(entry)
    try:
        yield
    finally:
        _logs.remove(entry)


def has_listener(instance: Instance, semantics: Semantics) -> bool:
    """Whether anyone listens: callbacks that cost something are set up only then."""
    return any(instance is known and semantics == rules for known, rules, _ in _logs)


def report(
    instance: Instance,
    semantics: Semantics,
    by: str,
    *,
    value: int | None = None,
    bound: Bound | None = None,
    plan: Plan | None = None,
) -> None:
    """Report a plan's value, with the plan where it is at hand, a bound on all, or both.

    A long method calls it for each better plan: `run_method` passes it to its callbacks, and a
    study keeps it for curves over time (`anytime`).

    Parameters
    ----------
    instance, semantics
        Those of the method's task.
    by
        Name of the method.
    value, bound, plan
        What is better: a value in the unit of the semantics, a `Bound`, the plan of the value.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> report(example(), Makespan(), "my-placer", value=34)
    """
    for known, rules, log in tuple(_logs):
        if instance is known and semantics == rules:
            log.enter(Progress(value, bound, by, plan, unit=semantics.unit))


_watchers: list[Callable[[str], object]] = []


@contextmanager
def watching(watcher: Callable[[str], object]) -> Iterator[None]:
    """Call a watcher, in this process, with what is done meanwhile, in words."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def say(doing: str) -> None:
    """Report what is done from now on."""
    for watcher in tuple(_watchers):
        watcher(doing)


def each_plan_once(listener: Listener) -> Listener:
    """A listener that is given no plan that it was given before: large plans travel slowly."""
    last: list[Plan | None] = [None]

    def pass_on(progress: Progress) -> None:
        is_new, last[0] = progress.plan is not last[0], progress.plan
        listener(progress if is_new else replace(progress, plan=None))

    return pass_on


def reporter(instance: Instance, semantics: Semantics, by: str) -> Report:
    """`report` for one instance, semantics and method."""

    def report_by(value: int | None, bound: int | None, plan: Plan | None = None) -> None:
        proven = None if bound is None else Bound(bound, by, "")
        report(instance, semantics, by, value=value, bound=proven, plan=plan)

    return report_by


# Called with the value of a better plan, and the plan where the method hands it over already.
OnPlan = Callable[[int, Plan | None], object]
OnBound = Callable[[int, str], object]  # called with a better bound and who proves it


class StopSearch(Exception):
    """Raised by a callback: the search ends, and returns the plan so far."""


@dataclass(eq=False)
class Control:
    """A listener that passes progress to callbacks; where one says so, the search ends."""

    # The search ends as by Ctrl-C: solvers call from threads of their own, but what ends is what
    # runs in `region` in the main thread, from which `run_method` has to be called for that.

    #: on_plan, on_bound: One that returns False, or raises `StopSearch`, ends the search.
    on_plan: OnPlan | None = None
    on_bound: OnBound | None = None
    listener: Listener | None = None  # called with all progress
    best: Progress = NO_PROGRESS  # the newest
    plan: Plan | None = None  # the last plan that was handed over
    is_stopped: bool = False  # whether a callback has ended the search
    region: Interruptible = field(default_factory=Interruptible)  # to be entered for the search
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def pass_on(self, progress: Progress) -> None:
        """Pass progress on; after the end nothing is passed on."""
        with self._lock:
            if self.is_stopped:
                return
            before, self.best = self.best, progress
            self.plan = progress.plan or self.plan
            try:
                if self.listener is not None:
                    self.listener(progress)
                goes_on = self._call(before, progress)
            except StopSearch:
                goes_on = False
            if not goes_on:
                self.is_stopped = True
                self.region.interrupt()

    def _call(self, before: Progress, progress: Progress) -> bool:
        """Call the callbacks with what is new; whether none of them has enough."""
        answers: list[object] = []
        if self.on_plan is not None and progress.value not in (None, before.value):
            answers.append(self.on_plan(progress.value or 0, progress.plan))
        if (
            self.on_bound is not None
            and progress.bound
            and progress.bound_value != before.bound_value
        ):
            answers.append(self.on_bound(progress.bound.value, progress.bound.origin))
        return not any(answer is False for answer in answers)
