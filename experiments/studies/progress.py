"""Progress of a study: what it will do, for how long at most, and how far it is."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from placegap.experiments.show.figures import counted, format_duration
from placegap.experiments.show.rendering import errors, warn
from placegap.instances.reading.errors import shorten

if TYPE_CHECKING:
    from placegap.experiments.studies.plan import Row, Run

LINE_S = 5.0
"""Seconds between two lines of progress, in the first five minutes."""

LINES = 60
"""Later a line appears whenever the time has grown by one part in this number."""

BAR_S = 0.25

LONGEST = 160
"""Characters of a line of progress."""


READING, WARMING, COMPILING, RUNNING = "reading", "warming up", "compiling kernels", "running"
"""What a run's worker is at; what comes before the run itself may take minutes, the first time."""


def intention(name: str, rows: Sequence[Row], workers: int, log: Path) -> str:
    """What a study will do and for how long at most, before any instance has been read."""
    limits = [limit_s for row in rows for limit_s in row.limits_s]
    if not limits:
        return f"{name}: no runs"
    least, most = min(limits), max(limits)
    each = f"{least:g} s" if least == most else f"{least:g} to {most:g} s"
    sentence = (
        f"{name}: at most {counted(len(limits), 'run')} of at most {each} each,"
        f" {workers} at a time: at most {format_duration(longest_s(limits, workers))} in all"
    )
    kept = 0
    with suppress(OSError):  # opening the log says what is wrong with it
        kept = log.read_bytes().count(b"\n")
    return f"{sentence}; {log} holds {counted(kept, 'run')} already" if kept else sentence


def longest_s(limits_s: Sequence[float], workers: int) -> float:
    """Most seconds that runs with these limits take, started in order, `workers` at a time.

    The last run starts when all workers have been busy with the others.
    """
    if not limits_s:
        return 0.0
    last = max(limits_s)
    return (sum(limits_s) - last) / workers + last


class StudyProgress:
    """How far a study is, as a sentence."""

    def __init__(self) -> None:
        #: Runs that are done, of those that are known to be or may be.
        self.done = self.total = 0
        #: The model that is being read for the next runs.
        self.reading = ""
        #: The runs that workers have, by key, and what these are at.
        self.running: dict[str, Run] = {}
        self._at: dict[str, str] = {}
        self._began = time.monotonic()

    def say(self, sentence: str) -> None:
        """Print what should be known of a run or a file that is left out."""
        warn(sentence)

    def started(self, run: Run) -> None:
        """A worker has got a run."""
        self.running[run.key] = run

    def doing(self, news: tuple[str, str]) -> None:
        """The worker of a run, by its key, has begun something."""
        key, self._at[key] = news

    def ended(self, run: Run) -> None:
        """A run is in the log."""
        self.running.pop(run.key, None)
        self.done += 1

    @property
    def elapsed_s(self) -> float:
        """Seconds since the study began."""
        return time.monotonic() - self._began

    def now(self) -> str:
        """What runs, what of it reads or compiles, and what is read for the next runs."""
        texts = []
        for key, run in list(self.running.items()):
            at = self._at.get(key)
            texts.append(f"{at} for {run.label}" if at in (READING, COMPILING) else run.label)
        return "; ".join([*texts, *filter(None, [self.reading and f"reading {self.reading}"])])


@contextmanager
def progress_shown() -> Iterator[StudyProgress]:
    """A bar on stderr if that is a terminal, else a line every few seconds."""
    console, told = errors(), StudyProgress()
    if sys.stderr is None or not console.is_terminal or console.is_dumb_terminal:
        with _every(lambda: next_line_s(told.elapsed_s), lambda: _print_line(told)):
            yield told
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=None)

        def show() -> None:
            text = escape(shorten(told.now(), LONGEST))
            bar.update(task, completed=told.done, total=told.total or None, description=text)
            bar.refresh()

        with _every(lambda: BAR_S, show):
            yield told


def next_line_s(elapsed_s: float) -> float:
    """Seconds until the next line of progress."""
    return max(LINE_S, elapsed_s / LINES)


def _print_line(told: StudyProgress) -> None:
    minutes, seconds = divmod(int(told.elapsed_s), 60)
    how_far = f"{told.done} of {told.total} runs, " if told.total else ""
    if told.now():
        warn(shorten(f"{how_far}{minutes}:{seconds:02d}: {told.now()}", LONGEST))


@contextmanager
def _every(pause_s: Callable[[], float], show: Callable[[], None]) -> Iterator[None]:
    """Call `show` again and again, from a thread that no signal reaches."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(pause_s()):
            with suppress(OSError):  # the pipe is closed
                show()

    thread = threading.Thread(target=tick, daemon=True)
    # a thread starts with the mask of the one that starts it: signals are the main thread's
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield
    finally:
        over.set()
        thread.join()
