"""What a placement has found so far: one line that changes on a terminal, or lines in a file."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from placegap.experiments.show.figures import format_gap, format_ns, format_s
from placegap.experiments.show.rendering import shows_live, spinner, warn
from placegap.solvers.core.progress import NOTHING, Listener, News
from placegap.solvers.core.result import relative_gap

EVERY_S, EVERY = 1.0, 0.05
"""Lines are at least so many seconds apart, and at least this share of the time until then."""

DOING_S = 20.0
"""Where nothing better is found, a line says so often what takes long."""


def news_text(news: News) -> str:
    """The best value, the gap, the bound, and who found the plan; the first is cut last.

    Examples
    --------
    >>> news_text(News(12_500_000, 10_000_000, "heft"))
    'best 12.50 ms, gap 20.0 %, bound 10.00 ms, by heft'
    >>> news_text(News(12_500_000, None, "heft"))
    'best 12.50 ms, by heft'
    >>> news_text(News(12_500_000, None, "heft", doing="compiling"))
    'compiling, best 12.50 ms, by heft'
    """
    gap = relative_gap(news.value_ns, news.bound_ns)
    texts = (
        news.doing or None,
        None if news.value_ns is None else f"best {format_ns(news.value_ns)}",
        None if gap is None else f"gap {format_gap(gap)}",
        None if news.bound_ns is None else f"bound {format_ns(news.bound_ns)}",
        None if news.value_ns is None else f"by {news.by}",
    )
    return ", ".join(filter(None, texts))


@contextmanager
def live_line(what: str, *, quiet: bool = False) -> Iterator[Listener]:
    """A function that takes `News` and shows it on stderr, as that is a terminal or not.

    Parameters
    ----------
    what : str
        What is being done, until there are news.
    quiet : bool
        Show nothing where stderr is no terminal.
    """
    if shows_live():
        with spinner(what) as show:
            yield lambda news: show(news_text(news))
        return
    lines = _Lines()
    try:
        yield (lambda news: None) if quiet else lines.listen
    finally:
        lines.close()


class _Lines:
    """A line for the first news, and for later ones when the last line is old enough."""

    def __init__(self) -> None:
        self.began = self.printed = time.monotonic()
        self.newest = NOTHING
        self.timer: threading.Timer | None = None
        self.lock = threading.Lock()

    def listen(self, news: News) -> None:
        with self.lock:
            is_first = self.newest.value_ns is None
            self.newest = news
            now = time.monotonic()
            if news.doing and (self.printed == self.began or now - self.printed > DOING_S):
                self._print()
            if news.doing or news.value_ns is None or self.timer is not None:
                return
            wait_s = self.printed + max(EVERY_S, EVERY * (now - self.began)) - now
            if is_first or wait_s <= 0:
                self._print()
                return
            self.timer = threading.Timer(wait_s, self._later)
            self.timer.daemon = True
            self.timer.start()

    def _later(self) -> None:
        with self.lock:
            if self.timer is not None:
                self.timer = None
                self._print()

    def _print(self) -> None:
        self.printed = time.monotonic()
        warn(f"after {format_s(self.printed - self.began)}: {news_text(self.newest)}")

    def close(self) -> None:
        """What is not printed yet stands in the result."""
        with self.lock:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None
