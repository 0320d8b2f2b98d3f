"""The best plan and the best bound of all parts of `auto`, judged as they come in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from placegap.instances.problem import PLAN_CLASSES, Plan, Semantics
from placegap.instances.referee.evaluate import feasible_value
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Incumbent, Progress, each_plan_once, tell
from placegap.solvers.core.registry import METHODS
from placegap.solvers.core.result import NO_PLAN_NS, Bound, Outcome, Result


class Contradiction(NamedTuple):
    """What a method claims and the referee denies, in words: a fault, not a mere failure."""

    said: str


Answer = Result | Contradiction | str
"""How a step ends: a result, a fault, or a sentence that says why there is neither."""


@dataclass(eq=False, kw_only=True)
class JudgedIncumbent(Incumbent):
    """What is known of a task; a plan counts once the referee has judged it under its rules.

    Two threads may write to it: the one that runs a proof, and the one that listens to the search.
    """

    task: Task
    #: Whether the part that has proven the bound has not ended yet.
    is_first_word: bool = False
    #: The proof that no plan exists, if there is one.
    no_plan: Bound | None = None

    def __post_init__(self) -> None:
        self.gap = self.task.limits.gap
        #: notes, words: How parts have failed, and the final messages of those that have not, by
        #: method.
        self.notes: dict[str, str] = {}
        self.words: dict[str, str] = {}
        self._lock = threading.RLock()

    def offer(self, plan: Plan, by: str, value_ns: int | None = None) -> bool:
        """Judge a plan, unless `value_ns` is the referee's already, and keep it if it is better."""
        if value_ns is None:
            value_ns = feasible_value(self.task.instance, plan, self.task.semantics)
        with self._lock:
            if value_ns is None or not self.improve(value_ns, plan, by):
                return False
            if self.no_plan:
                self.faults.append(
                    f"{self.no_plan.origin}: claims that no plan exists; {by} has one"
                )
                self.no_plan = None
            if self.bound.ns > value_ns:
                self.faults.append(
                    f"{self.bound.origin}: its bound {self.bound.ns} is above the value {value_ns}"
                    " of a plan"
                )
                self._forget_bound()
        # outside of the lock: a listener may hold one that the other thread waits for
        tell(self.task.instance, self.task.semantics, by, value_ns=value_ns, plan=plan)
        return True

    def prove(self, bound: Bound, *, is_first_word: bool = False) -> None:
        """Take over a bound if it is better, or as good and proved by placegap.

        Of a part that still runs it is the first word: what it rests on is known at the end.
        """
        with self._lock:
            before = self.bound
            super().prove(bound)
            is_known_better = bound.ns == before.ns and (
                bound.rank() > before.rank() or (self.is_first_word and not is_first_word)
            )
            if is_known_better:
                self.bound = bound
            if self.bound is not before:
                self.is_first_word = is_first_word
            is_news = self.bound.ns > before.ns
        if is_news:
            tell(self.task.instance, self.task.semantics, bound.origin, bound=bound)

    def listener(self, method: str, semantics: Semantics) -> Callable[[Progress], None]:
        """What hears a method while it runs: its plans are judged, and its bounds, if it does the
        task's own rules, rest on its solvers until the result comes.
        """
        basis = METHODS[method].basis

        def hear(news: Progress) -> None:
            if news.plan is not None:
                self.offer(news.plan, news.by)
            bound = news.bound if semantics == self.task.semantics else None
            if bound is not None and bound.ns > self.bound.ns:
                self.prove(bound._replace(basis=bound.basis or basis), is_first_word=True)

        return each_plan_once(hear)

    def take_answer(self, method: str, answer: Answer) -> None:
        """How a step of a method has ended. Results that contradict the referee are discarded."""
        if isinstance(answer, Result):
            self.take(answer)
        elif isinstance(answer, Contradiction):
            self.faults.append(f"{method}: {answer.said}")
            if self.is_first_word:
                self._forget_bound()
        else:
            self.notes[method] = answer

    def _forget_bound(self) -> None:
        """Nothing is left of it but what costs next to nothing, if that is not what was wrong."""
        self.bound, self.is_first_word = Bound(0), False
        least = quick_bound(self.task.instance, self.task.semantics)
        if self.value_ns is None or least.ns <= self.value_ns:
            self.prove(least)

    def take(self, result: Result) -> None:
        """What a part has found, perhaps for another class of plans or under other rules."""
        own = self.task.semantics
        if result.split is None and result.plan is not None:
            known = result.value_ns if result.semantics == own else None
            self.offer(result.plan, result.method, known)
        theirs = result.semantics.plan_class
        is_wider = PLAN_CLASSES.index(theirs) >= PLAN_CLASSES.index(own.plan_class)
        bound = result.bound if is_wider else None
        if bound and bound.ns < NO_PLAN_NS:
            self.prove(bound._replace(origin=bound.origin or result.method))
        elif bound:
            if self.value_ns is None:
                self.no_plan = bound._replace(origin=result.method)
            else:
                self.faults.append(
                    f"{result.method}: claims that no plan exists; {self.by} has one"
                )
        self.faults += [fault for fault in result.faults if fault not in self.faults]
        self.words[result.method] = result.message

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to find."""
        return self.is_close or bool(self.no_plan)

    def outcome(self, message: str) -> Outcome:
        """What `auto` returns."""
        if self.no_plan:
            by = self.no_plan.origin
            return Outcome(
                bound=self.no_plan,
                faults=tuple(self.faults),
                message=self.words.get(by) or f"proven by {by}",
                details=self.details,
            )
        return Outcome(
            plan=self.plan,
            claim_ns=self.value_ns,
            bound=self.bound,
            faults=tuple(self.faults),
            message="" if self.is_close and not self.gap else message,
            details={**self.details, "plan_by": self.by},
        )
