"""Callbacks on a search: each better plan, each better bound, and the wish to stop."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from placegap.instances.problem.plan import Plan
from placegap.solvers.core.progress import NOTHING, Listener, News

OnPlan = Callable[[int, Plan | None], object]
"""Called with the value of a better plan, and the plan where the method hands it over already."""

OnBound = Callable[[int, str], object]
"""Called with a better bound and who proves it."""


class StopSearch(Exception):
    """Raised by a callback: the search ends, and returns the plan so far."""


@dataclass(eq=False)
class Control:
    """A listener that passes news to callbacks, and ends the search where one of them says so.

    The search ends as by Ctrl-C: solvers call from threads of their own, but what ends is the main
    thread, from which `solve` has to be called for that.

    Attributes
    ----------
    on_plan, on_bound : callable, optional
        One that returns False, or raises `StopSearch`, ends the search.
    listener : callable, optional
        Hears all news.
    best : News
        The newest.
    plan : Plan or None
        The last plan that was handed over.
    is_stopped : bool
        Whether a callback has ended the search.

    Examples
    --------
    >>> control = Control(on_bound=lambda bound_ns, by: print(bound_ns, by))
    >>> control.hear(News(None, 33, "", bound_by="critical path"))
    33 critical path
    """

    on_plan: OnPlan | None = None
    on_bound: OnBound | None = None
    listener: Listener | None = None
    best: News = NOTHING
    plan: Plan | None = None
    is_stopped: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def hear(self, news: News) -> None:
        """Pass news on; after the end nothing is heard any more."""
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
                _thread.interrupt_main()

    def _ask(self, before: News, news: News) -> bool:
        """Tell the callbacks what is new; whether none of them has enough."""
        answers: list[object] = []
        if self.on_plan is not None and news.value_ns not in (None, before.value_ns):
            answers.append(self.on_plan(news.value_ns or 0, news.plan))
        if self.on_bound is not None and news.bound_ns not in (None, before.bound_ns):
            answers.append(self.on_bound(news.bound_ns or 0, news.bound_by or news.by))
        return not any(answer is False for answer in answers)


@contextmanager
def stopped_quietly(control: Control) -> Iterator[None]:
    """Take the interrupt of a control for the end of the search, and no other one.

    Examples
    --------
    >>> control = Control(on_plan=lambda value_ns, plan: False)
    >>> with stopped_quietly(control):
    ...     control.hear(News(40, None, "heft"))
    >>> control.is_stopped
    True
    """
    try:
        yield
    except KeyboardInterrupt:
        if not control.is_stopped:
            raise
