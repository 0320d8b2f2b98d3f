"""What a search has found so far.

A line that changes on a terminal, or lines where stderr is none; lines of JSON in a file; and when
it has ended, a picture.
"""

from __future__ import annotations

import json
import math
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from placegap.experiments.show.figures import common_unit, format_gap, format_s, format_value
from placegap.experiments.show.rendering import SOON_S, shows_live, spinner, warn
from placegap.instances.files.output_files import OutputFile, attempt
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.printable import printable
from placegap.solvers.core.progress import NO_PROGRESS, Listener, Progress
from placegap.solvers.core.result import relative_gap

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FORMATS = (".png", ".svg")


class Moment(NamedTuple):
    """What was known after some seconds, and what had just reported something better."""

    seconds: float
    value_ns: int | None
    bound_ns: int | None
    source: str


def both(first: Listener, second: Listener) -> Listener:
    """A listener that calls two others."""

    def enter(progress: Progress) -> None:
        first(progress)
        second(progress)

    return enter


def check_plot(path: Path | None) -> None:
    """Refuse a picture that cannot be drawn, before anything is computed."""
    if path is None:
        return
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"plots are {' or '.join(FORMATS)} files", path)
    from placegap.experiments.show.drawing import new_figure

    new_figure(1, 1)  # says what to install, if it has to be


@contextmanager
def search_log(log: Path | None, plot: Path | None, title: str) -> Iterator[Listener]:
    """A listener that writes each line to `log` at once, and `plot` at the end or on errors."""
    # A line is an object: ``seconds``, ``value_ns``, ``bound_ns``, ``source``. A log replaces an
    # older one with its first line, or at the end. If it cannot be written, the search goes on
    # without.
    began, moments, newest = time.monotonic(), list[Moment](), [NO_PROGRESS]
    with ExitStack() as stack:
        file = None if log is None else stack.enter_context(OutputFile(log))

        def append(line: str) -> None:
            nonlocal file
            if file is None:
                return
            with attempt(file.path) as failed:
                file.write(line.encode())
                file.place()
            if failed:
                file = None

        def enter(progress: Progress) -> None:
            if progress == newest[0]:  # and reports what is done meanwhile
                return
            is_plan, newest[0] = progress.value != newest[0].value, progress
            source = progress.by if is_plan or not progress.bound else progress.bound.origin
            seconds = round(time.monotonic() - began, 3)
            moments.append(Moment(seconds, progress.value, progress.bound_value, source))
            append(json.dumps(moments[-1]._asdict()) + "\n")

        try:
            yield enter
            append("")
        finally:
            if plot is not None:
                from placegap.experiments.show.drawing import write_figure

                with attempt(plot):
                    write_figure(draw(moments, time.monotonic() - began, title), plot)


TITLE_LETTERS = 68  # of a line of the plot's title


def draw(moments: Sequence[Moment], end_s: float, title: str) -> Figure:
    """Value and bound over time, as steps until the end, and the gap between them."""
    # The bound is a broken line on the value's wider one, so both are seen where they are equal.
    from placegap.experiments.show.drawing import COLOURS, dress, new_figure

    figure = new_figure(7.2, 4.0)
    axes = figure.add_subplot()
    known = [x for moment in moments for x in (moment.value_ns, moment.bound_ns) if x is not None]
    unit, size = common_unit(known)
    seconds = [*(moment.seconds for moment in moments), end_s]
    values, bounds = (
        [math.nan if x is None else x / size for x in (*given, *given[-1:])]
        for given in ([m.value_ns for m in moments], [m.bound_ns for m in moments])
    )
    for name, colour, heights, drawn in (
        ("best plan", COLOURS[0], values, {"linewidth": 3.0}),
        ("bound", "#c1121f", bounds, {"linewidth": 1.5, "linestyle": (0, (4, 2))}),
    ):
        if heights and not math.isnan(heights[-1]):
            label = f"{name}, {format_value(round(heights[-1] * size))}"
            axes.plot(seconds, heights, color=colour, label=label, drawstyle="steps-post", **drawn)
    gap = relative_gap(moments[-1].value_ns, moments[-1].bound_ns) if moments else None
    if gap is not None:
        axes.fill_between(seconds, bounds, values, step="post", color="#c1121f", alpha=0.12)
        has_room = gap > ROOM
        axes.annotate(
            f"gap {format_gap(gap)}",
            (end_s, (values[-1] + bounds[-1]) / 2 if has_room else values[-1]),
            (-6, 0 if has_room else 6),
            textcoords="offset points",
            ha="right",
            va="center" if has_room else "bottom",
            fontweight="bold",
        )
    dress(axes, "\n".join(textwrap.wrap(printable(title), TITLE_LETTERS)))
    axes.set(xlabel="seconds", ylabel=unit)
    axes.set_xlim(0, end_s)
    axes.set_ylim(0, 1.12 * max((x for x in (*values, *bounds) if not math.isnan(x)), default=1))
    if known:
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


ROOM = 0.12  # a gap that is larger is written between the lines, a smaller one above them
# Lines are at least this many seconds apart, and at least this share of the time until then.
EVERY_S, EVERY = 1.0, 0.05
DOING_S = 20.0  # seconds between lines on what takes long, while nothing better is found


def progress_text(progress: Progress) -> str:
    """The best value, the gap, the bound, and what found the plan; the first is cut last."""
    gap = relative_gap(progress.value, progress.bound_value)
    value, bound, unit = progress.value, progress.bound_value, progress.unit
    texts = (
        progress.doing or None,
        None if value is None else f"best {format_value(value, unit)}",
        None if gap is None else f"gap {format_gap(gap)}",
        None if bound is None else f"bound {format_value(bound, unit)}",
        None if value is None else f"by {progress.by}",
    )
    return ", ".join(filter(None, texts))


@contextmanager
def live_line(what: str, *, quiet: bool = False) -> Iterator[Listener]:
    """A function that takes `Progress` and shows it on stderr; with `quiet`, only on a terminal."""
    # Nothing is shown, and no thread begun, before the first report: a worker process that is
    # started until then may be a copy of this one. `what` is shown while no report says what is
    # being done.
    if shows_live():
        with ExitStack() as stack:
            yield _changing(what, stack)
        return
    lines = _Lines()
    try:
        yield (lambda progress: None) if quiet else lines.listen
    finally:
        lines.close()


def _changing(what: str, stack: ExitStack) -> Listener:
    """A listener that shows what is known, then what is done, on a line of a terminal."""
    shown: list[Callable[[str], None]] = []
    doing = [""]

    def enter(progress: Progress) -> None:
        if not shown:
            shown.append(stack.enter_context(spinner(what)))
        doing[:] = [progress.doing or doing[0]]
        known = progress_text(replace(progress, doing=""))
        shown[0](", ".join(filter(None, (known, *doing))) or what)

    return enter


class _Lines:
    """A line for the first plan, and for later ones when the last line is old enough."""

    def __init__(self) -> None:
        # What is done meanwhile stands in a line of its own where nothing else is known for a
        # while.
        self.began = self.printed = time.monotonic()
        self.newest = NO_PROGRESS
        self.timer: threading.Timer | None = None
        self.lock = threading.Lock()

    def listen(self, progress: Progress) -> None:
        with self.lock:
            is_first = self.newest.value is None and progress.value is not None
            self.newest = progress
            now = time.monotonic()
            if progress.doing:
                due = self.printed + (SOON_S if progress.value is None else DOING_S)
            elif progress.value is not None:
                due = now if is_first else self.printed + max(EVERY_S, EVERY * (now - self.began))
            else:
                return
            if due <= now:
                self._print()
            elif self.timer is None:
                self.timer = threading.Timer(due - now, self._later)
                self.timer.daemon = True
                self.timer.start()

    def _later(self) -> None:
        with self.lock:
            if self.timer is not None:
                self.timer = None
                self._print()

    def _print(self) -> None:
        self.printed = time.monotonic()
        warn(f"after {format_s(self.printed - self.began)}: {progress_text(self.newest)}")

    def close(self) -> None:
        """What is not printed yet stands in the result."""
        with self.lock:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None
