"""What a search found when: as lines of JSON while it runs, and as a picture when it has ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from placegap.experiments.show.figures import common_unit
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.progress import NOTHING, Listener, News

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")


class Moment(NamedTuple):
    """What was known after some seconds, and who had just told something better."""

    seconds: float
    value_ns: int | None
    bound_ns: int | None
    source: str


def both(first: Listener, second: Listener) -> Listener:
    """A listener that hears for two."""

    def hear(news: News) -> None:
        first(news)
        second(news)

    return hear


def check_plot(path: Path | None) -> None:
    """Refuse a picture that cannot be drawn, before anything is computed.

    Examples
    --------
    >>> check_plot(Path("run.gif"))
    Traceback (most recent call last):
    placegap.instances.reading.errors.InputError: run.gif: plots are .png or .svg files
    """
    if path is None:
        return
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"plots are {' or '.join(FORMATS)} files", path)
    from placegap.experiments.show.drawing import new_figure

    new_figure(1, 1)  # says what to install, if it has to be


@contextmanager
def search_log(log: Path | None, plot: Path | None, title: str) -> Iterator[Listener]:
    """A listener that writes each line to `log` at once, and `plot` at the end, however that comes.

    Parameters
    ----------
    log : Path or None
        Gets an object per line: ``seconds``, ``value_ns``, ``bound_ns``, ``source``.
    plot : Path or None
    title : str
        Of the plot.
    """
    began, moments, newest = time.monotonic(), list[Moment](), [NOTHING]
    with ExitStack() as stack:
        file: TextIO | None = None
        if log is not None:
            file = stack.enter_context(open(log, "w", encoding="utf-8"))

        def hear(news: News) -> None:
            if news == newest[0]:  # and tells what is done meanwhile
                return
            is_plan, newest[0] = news.value_ns != newest[0].value_ns, news
            source = news.by if is_plan else news.bound_by or news.by
            seconds = round(time.monotonic() - began, 3)
            moments.append(Moment(seconds, news.value_ns, news.bound_ns, source))
            if file is not None:
                print(json.dumps(moments[-1]._asdict()), file=file, flush=True)

        try:
            yield hear
        finally:
            if plot is not None:
                from placegap.experiments.show.drawing import write_figure

                write_figure(draw(moments, time.monotonic() - began, title), plot)


def draw(moments: Sequence[Moment], end_s: float, title: str) -> Figure:
    """Value and bound over time, as steps, until the end.

    Examples
    --------
    >>> moments = [Moment(0.1, 40, None, "heft"), Moment(0.2, 40, 30, "work")]
    >>> [line.get_label() for line in draw(moments, 1.0, "net").axes[0].lines]
    ['best plan', 'bound']
    """
    from placegap.experiments.show.drawing import COLOURS, new_figure

    figure = new_figure(6.4, 3.6)
    axes = figure.add_subplot()
    known = [x for moment in moments for x in (moment.value_ns, moment.bound_ns) if x is not None]
    unit, size = common_unit(known)
    for name, colour, values in (
        ("best plan", COLOURS[0], [moment.value_ns for moment in moments]),
        ("bound", COLOURS[1], [moment.bound_ns for moment in moments]),
    ):
        steps = [
            (moment.seconds, value / size)
            for moment, value in zip(moments, values, strict=True)
            if value is not None
        ]
        if steps:
            seconds, heights = zip(*steps, (end_s, steps[-1][1]), strict=True)
            axes.plot(seconds, heights, color=colour, label=name, drawstyle="steps-post")
    axes.set(title=title, xlabel="seconds", ylabel=unit)
    axes.set_ylim(bottom=0)
    if known:
        axes.legend()
    return figure
