"""What a method has found so far: what a search keeps of it, and its listeners.

Best plans and bounds are kept in an `Incumbent`. Methods, and what many of them share (starts, the
rule for exact methods, the solvers' callbacks), report better ones with `tell`, with the instance
and the rules. So what is solved on the way, such as sections, coarser graphs or plainer rules, is
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
from placegap.solvers.core.clock import Interruptible
from placegap.solvers.core.method import Task
from placegap.solvers.core.result import NOTHING_PROVEN, Bound, relative_gap


@dataclass(frozen=True)
class Progress:
    """The best plan's value and the best bound so far, and who found that plan.

    `plan` is that plan, where whoever tells has one; `doing` is what takes long now, if that is no
    search. Progress that differs in nothing else is the same.
    """

    value_ns: int | None = None
    bound: Bound | None = None
    by: str = ""
    plan: Plan | None = field(default=None, compare=False, repr=False)
    doing: str = field(default="", compare=False, repr=False)

    @property
    def bound_ns(self) -> int | None:
        """The bound alone."""
        return self.bound and self.bound.ns


NOTHING = Progress()

Listener = Callable[[Progress], None]


class Teller(Protocol):
    """What a search calls with a value, a bound, or both (`teller`)."""

    def __call__(
        self, value_ns: int | None, bound_ns: int | None, plan: Plan | None = None
    ) -> None:
        """Tell of them, and of the plan of that value where it is at hand."""


def unheard(value_ns: int | None, bound_ns: int | None, plan: Plan | None = None) -> None:
    """Report nothing."""


@dataclass(eq=False, kw_only=True)
class Incumbent:
    """The best plan and the best bound so far."""

    #: Relative gap that suffices.
    gap: float = 0.0
    plan: Plan | None = None
    #: None without a plan.
    value_ns: int | None = None
    #: Who found the plan.
    by: str = ""
    bound: Bound = NOTHING_PROVEN
    #: Called with both whenever one of them is better.
    on_news: Teller = unheard
    #: Claims of a phase or a solver that a known plan contradicts, or how it failed.
    faults: list[str] = field(default_factory=list)
    details: dict[str, int | float | str] = field(default_factory=dict)

    def improve(self, value_ns: int | None, plan: Plan | None = None, by: str = "") -> bool:
        """Whether the value of a plan, None of one that breaks a rule, is better; then it stays."""
        if value_ns is None or (self.value_ns is not None and value_ns >= self.value_ns):
            return False
        self.plan, self.value_ns, self.by = plan, value_ns, by
        self.on_news(value_ns, self.bound_ns or None, plan)
        return True

    @property
    def bound_ns(self) -> int:
        """The bound alone."""
        return self.bound.ns

    def prove(self, bound: Bound) -> None:
        """Take over a bound if it is better; one above the plan's value is a fault."""
        if self.value_ns is not None and bound.ns > self.value_ns:
            self.faults.append(
                f"{bound.origin} claims that no plan below {bound.ns} ns exists, but a plan of"
                f" {self.value_ns} ns is known"
            )
        elif bound.ns > self.bound.ns:
            self.bound = bound
            self.on_news(self.value_ns, bound.ns)

    def offer_plan(self, task: Task, plan: Plan | None) -> bool:
        """Take over a plan if the referee finds it feasible and better."""
        from placegap.instances.referee.evaluate import feasible_value  # brings numba

        if plan is None:
            return False
        return self.improve(feasible_value(task.instance, plan, task.semantics), plan)

    def take_over(self, other: Incumbent) -> None:
        """Take over what is better."""
        self.improve(other.value_ns, other.plan, other.by)
        self.prove(other.bound)
        self.faults += [fault for fault in other.faults if fault not in self.faults]

    @property
    def is_close(self) -> bool:
        """Whether the gap is small enough."""
        found = relative_gap(self.value_ns, self.bound_ns)
        return found is not None and found <= self.gap


UNPROVEN = Bound(-LARGEST_SUM)
"""Below every value, also below those of what is maximized."""


@dataclass(eq=False)
class ProgressLog(Incumbent):
    """The best that was reported, and the listener that gets each improvement."""

    listener: Listener
    best: Progress = NOTHING

    def __post_init__(self) -> None:
        self.bound, self._lock = UNPROVEN, threading.RLock()

    def enter(self, news: Progress) -> None:
        """Take over what is better; solvers call from threads of their own."""
        with self._lock:
            self.improve(news.value_ns, news.plan, news.by)
            if news.bound is not None:  # one above the value is a fault, which the result names
                self.prove(news.bound)
            bound = None if self.bound_ns in (0, UNPROVEN.ns) else self.bound
            found = Progress(self.value_ns, bound, self.by, self.plan)
            if found != self.best:
                self.best = found
                self.listener(found)


_open: list[tuple[Instance, Semantics, ProgressLog]] = []


@contextmanager
def listening(
    instance: Instance, semantics: Semantics, listener: Listener | None
) -> Iterator[None]:
    """Hear, in this process, what is found for an instance under a semantics."""
    if listener is None:
        yield
        return
    entry = (instance, semantics, ProgressLog(listener))
    _open.append(entry)
    try:
        yield
    finally:
        _open.remove(entry)


def is_heard(instance: Instance, semantics: Semantics) -> bool:
    """Whether anyone listens: callbacks that cost something are set up only then."""
    return any(instance is known and semantics == rules for known, rules, _ in _open)


def tell(
    instance: Instance,
    semantics: Semantics,
    by: str,
    *,
    value_ns: int | None = None,
    bound: Bound | None = None,
    plan: Plan | None = None,
) -> None:
    """Tell of a plan's value, with the plan where it is at hand, of a bound on all, or of both."""
    for known, rules, log in tuple(_open):
        if instance is known and semantics == rules:
            log.enter(Progress(value_ns, bound, by, plan))


_hearers: list[Callable[[str], object]] = []


@contextmanager
def hearing(hearer: Callable[[str], object]) -> Iterator[None]:
    """Hear, in this process, what is done meanwhile, in words."""
    _hearers.append(hearer)
    try:
        yield
    finally:
        _hearers.remove(hearer)


def say(doing: str) -> None:
    """Report what is done from now on."""
    for hearer in tuple(_hearers):
        hearer(doing)


def each_plan_once(listener: Listener) -> Listener:
    """A listener that is given no plan that it was given before: large plans travel slowly."""
    last: list[Plan | None] = [None]

    def hear(news: Progress) -> None:
        is_new, last[0] = news.plan is not last[0], news.plan
        listener(news if is_new else replace(news, plan=None))

    return hear


def teller(instance: Instance, semantics: Semantics, by: str) -> Teller:
    """`tell` for one instance, semantics and method."""

    def told(value_ns: int | None, bound_ns: int | None, plan: Plan | None = None) -> None:
        bound = None if bound_ns is None else Bound(bound_ns, by, "")
        tell(instance, semantics, by, value_ns=value_ns, bound=bound, plan=plan)

    return told


OnPlan = Callable[[int, Plan | None], object]
"""Called with the value of a better plan, and the plan where the method hands it over already."""

OnBound = Callable[[int, str], object]
"""Called with a better bound and who proves it."""


class StopSearch(Exception):
    """Raised by a callback: the search ends, and returns the plan so far."""


@dataclass(eq=False)
class Control:
    """A listener that passes news to callbacks, and ends the search where one of them says so.

    The search ends as by Ctrl-C: solvers call from threads of their own, but what ends is what runs
    in `region` in the main thread, from which `run_method` has to be called for that.
    """

    #: on_plan, on_bound: One that returns False, or raises `StopSearch`, ends the search.
    on_plan: OnPlan | None = None
    on_bound: OnBound | None = None
    #: Hears all news.
    listener: Listener | None = None
    #: The newest.
    best: Progress = NOTHING
    #: The last plan that was handed over.
    plan: Plan | None = None
    #: Whether a callback has ended the search.
    is_stopped: bool = False
    #: To be entered for the search.
    region: Interruptible = field(default_factory=Interruptible)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def hear(self, news: Progress) -> None:
        """Pass news on; after the end nothing is passed on."""
        with self._lock:
            if self.is_stopped:
                return
            before, self.best = self.best, news
            self.plan = news.plan or self.plan
            try:
                if self.listener is not None:
                    self.listener(news)
                goes_on = self._ask(before, news)
            except StopSearch:
                goes_on = False
            if not goes_on:
                self.is_stopped = True
                self.region.interrupt()

    def _ask(self, before: Progress, news: Progress) -> bool:
        """Tell the callbacks what is new; whether none of them has enough."""
        answers: list[object] = []
        if self.on_plan is not None and news.value_ns not in (None, before.value_ns):
            answers.append(self.on_plan(news.value_ns or 0, news.plan))
        if self.on_bound is not None and news.bound and news.bound_ns != before.bound_ns:
            answers.append(self.on_bound(news.bound.ns, news.bound.origin))
        return not any(answer is False for answer in answers)
