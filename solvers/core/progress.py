"""What a method has found so far, for those who listen while it runs.

Methods, and what many of them share (`start`, `exact`, the solvers' callbacks), `tell` of better
plans and bounds, and say of which instance under which rules. So what is solved on the way, such as
sections, coarser graphs or plainer rules, never passes for the task that was given.

A value that a MIP solver reports is its own, to its tolerances: the referee judges the plan when
the solver has ended. Nothing here decides anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import Semantics


@dataclass(frozen=True)
class News:
    """The best plan's value and the best bound so far, and who found that plan.

    `plan` is that plan, where whoever tells has one; `bound_by` is who proves the bound, and
    `rests_on` on whose word (`trust`), where that is known; `doing` is what takes long now, if that
    is no search. News that differ in nothing else are the same.
    """

    value_ns: int | None = None
    bound_ns: int | None = None
    by: str = ""
    plan: Plan | None = field(default=None, compare=False, repr=False)
    bound_by: str = field(default="", compare=False, repr=False)
    rests_on: str = field(default="", compare=False, repr=False)
    doing: str = field(default="", compare=False, repr=False)


NOTHING = News()

Listener = Callable[[News], None]

Told = Callable[[int | None, int | None], None]
"""What a search calls with a value, a bound, or both (`teller`)."""


@dataclass(eq=False)
class Ledger:
    """The best that was heard, and the listener that is told of each improvement.

    Examples
    --------
    >>> ledger = Ledger(print)
    >>> ledger.enter(News(40, None, "heft"))
    News(value_ns=40, bound_ns=None, by='heft')
    >>> ledger.enter(News(41, 30, "cp-sat"))
    News(value_ns=40, bound_ns=30, by='heft')
    >>> ledger.enter(News(40, 30, "cp-sat"))
    """

    listener: Listener
    best: News = NOTHING
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def enter(self, news: News) -> None:
        """Take over what is better; solvers call from threads of their own."""
        with self._lock:
            value, bound, by = self.best.value_ns, self.best.bound_ns, self.best.by
            plan, bound_by = self.best.plan, self.best.bound_by
            rests_on = self.best.rests_on
            if news.value_ns is not None and (value is None or news.value_ns < value):
                value, by, plan = news.value_ns, news.by, news.plan
            # a bound above a plan's value is a fault, which the result will name
            most = news.bound_ns if value is None else value
            if news.bound_ns is not None and (bound or 0) < news.bound_ns <= (most or 0):
                bound, bound_by = news.bound_ns, news.bound_by or news.by
                rests_on = news.rests_on
            found = News(value, bound, by, plan, bound_by, rests_on)
            if found != self.best:
                self.best = found
                self.listener(found)


_open: list[tuple[Instance, Semantics, Ledger]] = []


@contextmanager
def listening(
    instance: Instance, semantics: Semantics, listener: Listener | None
) -> Iterator[None]:
    """Hear, in this process, what is found for an instance under a semantics.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> diamond, makespan = example(), Makespan()
    >>> with listening(diamond, makespan, print):
    ...     tell(diamond, makespan, "heft", value_ns=40)
    ...     tell(example(), makespan, "another object", value_ns=10)
    News(value_ns=40, bound_ns=None, by='heft')
    """
    if listener is None:
        yield
        return
    entry = (instance, semantics, Ledger(listener))
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
    bound_ns: int | None = None,
    plan: Plan | None = None,
    rests_on: str = "",
) -> None:
    """Tell of a plan's value, with the plan where it is at hand, of a bound on all, or of both."""
    for known, rules, ledger in tuple(_open):
        if instance is known and semantics == rules:
            ledger.enter(News(value_ns, bound_ns, by, plan, rests_on=rests_on))


def each_plan_once(listener: Listener) -> Listener:
    """A listener that is given no plan that it was given before: large plans travel slowly.

    Examples
    --------
    >>> hear = each_plan_once(lambda news: print(news.bound_ns, news.plan is not None))
    >>> plan = Plan.on([0])
    >>> hear(News(9, 5, "heft", plan)), hear(News(9, 6, "heft", plan))
    5 True
    6 False
    (None, None)
    """
    last: list[Plan | None] = [None]

    def hear(news: News) -> None:
        is_new, last[0] = news.plan is not last[0], news.plan
        listener(news if is_new else replace(news, plan=None))

    return hear


def unheard(value_ns: int | None, bound_ns: int | None) -> None:
    """Tell nobody."""


def teller(instance: Instance, semantics: Semantics, by: str) -> Told:
    """`tell` for one instance, semantics and method."""

    def told(value_ns: int | None, bound_ns: int | None) -> None:
        tell(instance, semantics, by, value_ns=value_ns, bound_ns=bound_ns)

    return told
