"""What is known of a task while `auto` runs its steps: plans and bounds, judged as they come in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from placegap.instances.problem import PLAN_CLASSES, Plan, Semantics
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import feasible_value
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.bounds.portfolio import improving_bounds
from placegap.solvers.core.clock import Clock, stop_requested
from placegap.solvers.core.method import Limits, Task
from placegap.solvers.core.objective import BOUNDS, Step
from placegap.solvers.core.progress import (
    Known,
    Listener,
    Progress,
    each_plan_once,
    listening,
    report,
)
from placegap.solvers.core.registry import METHODS, parse_params
from placegap.solvers.core.result import (
    Bound,
    Outcome,
    Result,
    SolverDisagreement,
    finish,
    is_better,
    refutation,
)
from placegap.solvers.solving.run_method import run_task


class Contradiction(NamedTuple):
    """What a method claims and the referee denies, in words: a fault, not a mere failure."""

    claim: str


# How a step ends: a result, a fault, or a sentence that says why there is neither.
Answer = Result | Contradiction | str


@dataclass(eq=False, kw_only=True)
class JudgedKnown(Known):
    """What is known of a task; a plan counts once the referee has judged it under its rules."""

    # Two threads may write to it: the one that runs a proof, and the one that listens to the
    # search.
    task: Task
    is_preliminary: bool = False  # whether the step that has proven the bound has not ended yet

    def __post_init__(self) -> None:
        self.rules, self.gap = self.task.semantics, self.task.limits.gap
        super().forget_bound()  # what is maximized may be larger than 0
        #: notes, messages: How steps have failed, and the final messages of those that have not,
        #: by method.
        self.notes: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self._bounds_s = 0.0  # with no more time than this, the portfolio proves nothing new
        self._lock = threading.RLock()

    def offer(self, plan: Plan, by: str, value_ns: int | None = None) -> bool:
        """Judge a plan, unless `value_ns` is the referee's already, and keep it if it is better."""
        if value_ns is None:
            value_ns = feasible_value(self.task.instance, plan, self.task.semantics)
        with self._lock:
            if not self.improve(value_ns, plan, by):
                return False
        # outside of the lock: a listener may hold one that the other thread waits for
        report(self.task.instance, self.task.semantics, by, value=value_ns, plan=plan)
        return True

    def prove(self, bound: Bound, *, is_preliminary: bool = False) -> bool:
        """Take over a bound if it is better, or as good and proved by placegap."""
        # That of a step that still runs is preliminary: what it rests on is known at the end.
        with self._lock:
            before = self.bound
            is_higher = super().prove(bound)
            if bound.value == before.value and (
                bound.rank(self.rules) > before.rank(self.rules)
                or (self.is_preliminary and not is_preliminary)
            ):
                self.bound = bound
            if self.bound is not before:
                self.is_preliminary = is_preliminary
        if is_higher and not self.is_infeasible:
            report(self.task.instance, self.task.semantics, bound.origin, bound=bound)
        return is_higher

    def forget_bound(self) -> None:
        """Nothing is left of it but what costs next to nothing, if that is not what was wrong."""
        super().forget_bound()
        self.is_preliminary, self._bounds_s = False, 0.0
        least = quick_bound(self.task.instance, self.task.semantics)
        if not refutation(least, self.value, self.rules):
            self.prove(least)

    def listener(self, method: str, semantics: Semantics) -> Callable[[Progress], None]:
        """The listener of a method while it runs."""
        # Its plans are judged, and its bounds, if it does the task's own rules, rest on its solvers
        # until the result comes.
        basis = METHODS[method].basis

        def keep(progress: Progress) -> None:
            if progress.plan is not None:
                self.offer(progress.plan, progress.by)
            bound = progress.bound if semantics == self.task.semantics else None
            if bound is not None and is_better(self.bound.value, bound.value, self.rules):
                self.prove(bound._replace(basis=bound.basis or basis), is_preliminary=True)

        return each_plan_once(keep)

    def run(self, step: Step, limit_s: float, listener: Listener = lambda progress: None) -> Answer:
        """The result of a step, judged; a sentence where it failed, none after bounds alone."""
        # What it finds on the way is kept, and passed to the listener.
        task = self.task
        try:
            if step.method == BOUNDS:
                clock = Clock(limit_s)
                if limit_s <= self._bounds_s:
                    return ""
                for bound in improving_bounds(
                    task.instance, step.semantics, limit_s, best_ns=self.value
                ):
                    self.prove(bound)
                # what ends in half of its time has left nothing out that takes twice as long
                self._bounds_s = limit_s if clock.spent_s > limit_s / 2 else 2 * limit_s
                return ""
            method, keep = METHODS[step.method], self.listener(step.method, step.semantics)

            def pass_on(progress: Progress) -> None:
                keep(progress)
                listener(progress)

            limits = Limits(limit_s, task.limits.gap, step.seed)
            part = Task(task.instance, step.semantics, limits, self.plan)
            with listening(task.instance, step.semantics, pass_on):
                outcome = run_task(method, part, parse_params(method, step.params))
            return finish(task.instance, step.semantics, method.name, outcome, solve_s=0.0)
        except KeyboardInterrupt:
            return "interrupted"
        except InputError as error:
            return str(error)
        except MemoryError:
            return "out of memory"
        except SolverDisagreement as error:
            return Contradiction(" ".join(str(error).split()))
        except Exception as error:  # the other parts go on
            if stop_requested():  # what is interrupted may fail with an error of its own
                return "interrupted"
            return " ".join(f"{type(error).__name__}: {error}".split())

    def take_answer(self, method: str, answer: Answer) -> None:
        """How a step of a method has ended. Results that contradict the referee are discarded."""
        if isinstance(answer, Result):
            self.take(answer)
        elif isinstance(answer, Contradiction):
            self.faults.append(f"{method}: {answer.claim}")
            if self.is_preliminary:
                self.forget_bound()
        else:
            self.notes[method] = answer

    def take(self, result: Result) -> None:
        """What a step has found, perhaps for another class of plans or under other rules."""
        own = self.task.semantics
        if result.split is None and result.plan is not None:
            known = result.value if result.semantics == own else None
            self.offer(result.plan, result.method, known)
        theirs = result.semantics.plan_class
        is_wider = PLAN_CLASSES.index(theirs) >= PLAN_CLASSES.index(own.plan_class)
        if result.bound is not None and is_wider:
            origin = "" if result.proven_infeasible else result.bound.origin
            self.prove(result.bound._replace(origin=origin or result.method))
        self.faults += [fault for fault in result.faults if fault not in self.faults]
        self.messages[result.method] = result.message

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to find."""
        return self.is_close or self.is_infeasible

    def outcome(self, message: str) -> Outcome:
        """What `auto` returns."""
        if self.is_infeasible:
            by = self.bound.origin
            message = self.messages.get(by) or f"proven by {by}"
        elif self.is_close and not self.gap:
            message = ""
        plan_by = {} if self.is_infeasible else {"plan_by": self.by}
        return Outcome(
            plan=self.plan,
            claim=self.value,
            bound=self.bound,
            faults=tuple(self.faults),
            message=message,
            details={**self.details, **plan_by},
        )
