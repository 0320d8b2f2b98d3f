"""Progress of a study: how far it is, and what its workers do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from placegap.experiments.show.figures import format_s
from placegap.experiments.show.rendering import shows_live, spinner, warn
from placegap.instances.reading.errors import shorten

if TYPE_CHECKING:
    from placegap.experiments.studies.runs import Run

LINE_S = 5.0  # seconds between two lines of progress, in the first five minutes
LINES = 60  # later a line appears whenever the time has grown by one part in this number
LONGEST = 160  # characters of a line of progress
# What a run's worker is at; what comes before the run itself may take minutes, the first time.
READING, WARMING, COMPILING, RUNNING = "reading for ", "warming up ", "compiling kernels for ", ""


class StudyProgress:
    """How far a study is, as a sentence, which is shown whenever it changes."""

    def __init__(self, show: Callable[[str], None] = lambda sentence: None) -> None:
        #: Runs that are done, of those that are known to be or may be.
        self.done = self.total = 0
        #: The runs that workers have, by key, and what these are at.
        self.running: dict[str, Run] = {}
        self._at: dict[str, str] = {}
        self._show = show

    def reads(self, model: str) -> None:
        """A model is read for the next runs."""
        self._update(f"reading {model}")

    def started(self, run: Run) -> None:
        """A worker has got a run."""
        self.running[run.key] = run
        self._update()

    def doing(self, step: tuple[str, str]) -> None:
        """The worker of a run, by its key, has begun something."""
        key, self._at[key] = step
        self._update()

    def ended(self, run: Run) -> None:
        """A run is in the log."""
        self.running.pop(run.key, None)
        self.done += 1
        self._update()

    def _update(self, *more: str) -> None:
        now = [f"{self._at.get(key, '')}{run.label}" for key, run in self.running.items()]
        self._show(shorten(f"{self.done}/{self.total} runs; {'; '.join([*now, *more])}", LONGEST))


@contextmanager
def progress_shown(name: str) -> Iterator[StudyProgress]:
    """A line on stderr that changes, if that is a terminal, else one every few seconds."""
    with spinner(name) as show:
        yield StudyProgress(show if shows_live() else _lines())


def _lines() -> Callable[[str], None]:
    began = last = time.monotonic()

    def show(sentence: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= max(LINE_S, (now - began) / LINES):
            last = now
            warn(f"after {format_s(now - began)}: {sentence}")

    return show
