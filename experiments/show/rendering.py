"""Output of a command: tables on stdout, progress and warnings on stderr."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from placegap.instances.reading.errors import shorten
from placegap.instances.reading.printable import json_text, printable

LONGEST_WARNING = 300
# Where stderr is no terminal, a line reports what takes longer: within two seconds of the start, of
# which loading takes half.
SOON_S = 1.0
PADDING = 3  # between two columns
PLAIN_WIDTH = 120  # width of tables where there is no terminal
LONGEST_PAIR = (
    10  # letters that stay on a line: "3 of 128", "<=10 %"; "15.48 GB of 24 GB" may take two
)


class _Output(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts as they are, each on one line: names of files are in them."""
        shown = (printable(each) if isinstance(each, str) else each for each in objects)
        super().print(*shown, **options)

    def on_broken_pipe(self) -> None:
        """Let the command line handle a reader that went away."""
        raise  # noqa: PLE0704 (rich calls this while it handles the BrokenPipeError)


def output(file: TextIO | None = None) -> Console:
    """The console for results, on stdout (made anew, since tests replace it) or into a file."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, **_styles()}
    if file is not None:
        return _Output(file=file, width=PLAIN_WIDTH, **{**plain, "color_system": None})
    return _Output(file=sys.stdout, width=width, soft_wrap=False, **plain)


def _styles() -> dict[str, Any]:
    """NO_COLOR drops bold, too: rich keeps it."""
    return {"color_system": None} if os.environ.get("NO_COLOR") else {}


class _Errors:
    """Stderr, whose reader may be gone (a terminal that closed), which must not end the command."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


def print_json(content: Any) -> None:
    """One line of JSON on stdout."""
    print(json_text(content), flush=True)


def print_line(text: str) -> None:
    """One line on stdout, at most 300 characters; folded only where a width is stated."""
    folds = sys.stdout.isatty() or "COLUMNS" in os.environ
    output().print(shorten(text, LONGEST_WARNING), soft_wrap=not folds)


def errors() -> Console:
    """The console for progress and warnings."""
    return Console(file=cast("TextIO", _Errors()), highlight=False, **_styles())


class Quiet:
    """Whether a command shows no progress, by its option."""

    is_set = False


def shows_live() -> bool:
    """Whether stderr is a terminal on which a line can change; it is None where it was closed."""
    if Quiet.is_set or sys.stderr is None:
        return False
    return sys.stderr.isatty() and not errors().is_dumb_terminal


def warn(sentence: str) -> None:
    """One line on stderr."""
    if sys.stderr is None:  # closed: print would take stdout
        return
    line = f"placegap: {' '.join(sentence.split())}"
    print(shorten(line, LONGEST_WARNING), file=_Errors(), flush=True)


@contextmanager
def spinner(what: str, *, reports: bool = False) -> Iterator[Callable[[str], None]]:
    """A line with a spinner, a text and a clock on stderr, if that is a terminal; it goes away."""
    # What it yields changes the text, which is cut where the terminal is too narrow for it. Where
    # stderr is no terminal, one that `reports` prints what it is about after a second. No thread is
    # left of either.
    if not shows_live():
        timer = threading.Timer(SOON_S, warn, [f"after {SOON_S:g} s: {what}"])
        if reports:
            timer.start()
        try:
            yield lambda text: None
        finally:
            timer.cancel()
            if reports:
                timer.join()
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    one_line = Column(no_wrap=True, overflow="ellipsis")
    text_column = TextColumn("{task.description}", table_column=one_line)
    clock = TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=len("0:00:00")))
    columns = (SpinnerColumn(), clock, text_column)
    with Progress(*columns, console=errors(), transient=True) as progress:
        line = progress.add_task(escape(printable(what)), total=None)
        yield lambda text: progress.update(line, description=escape(printable(text)))


# Heads of tables where there is no room for the whole words.
SHORT_HEADS = {
    "communication": "moves",
    "peak memory": "peak",
    "best bound": "bound",
    "best value": "value",
}


class PlainTable(Table):
    """A table of texts; where it is too narrow for its words, tighter, else one line per cell."""

    head: Sequence[str] = ()
    texts: Sequence[Sequence[str]] = ()
    needs: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, or its rows one below the other."""
        if self.needs <= options.max_width or not self.show_header:
            yield from super().__rich_console__(console, options)
            return
        tight = _tight(self)
        if tight.needs <= options.max_width:
            yield tight
            return
        if self.title is not None:
            yield Text(str(self.title), style="bold")
        for row in self.texts:
            yield Text(row[0], overflow="fold")
            for name, value in zip(self.head[1:], row[1:], strict=True):
                if value:
                    yield Padding(Text(f"{name}: {value}", overflow="fold"), (0, 0, 0, 2))


def _tight(table: PlainTable) -> PlainTable:
    """The table with short heads, two spaces between columns, and limits below what they limit."""
    head = [SHORT_HEADS.get(name, name) for name in table.head]
    texts = [
        [text.replace(" of ", "\nof ") if len(text) > LONGEST_PAIR else text for text in row]
        for row in table.texts
    ]
    title = None if table.title is None else str(table.title)
    found = plain_table(title, head, texts, has_lines=True)
    found.collapse_padding = True
    found.needs -= len(head)
    return found


def plain_table(
    title: str | None,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    has_lines: bool = False,
) -> PlainTable:
    """A table of texts; every column but the first is aligned right if it holds figures."""
    # `has_lines` says whether cells may have several lines: names of files may not.
    if not has_lines:
        rows = [[*map(printable, row)] for row in rows]
    table = PlainTable(
        title=title and printable(title),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_header=any(head),
    )
    table.head, table.texts = head, rows
    for number, name in enumerate(head):
        figures = bool(rows) and all(
            row[number].lstrip("<")[:1].isdigit() or row[number] in "-" for row in rows
        )
        whole = number == 0 or figures  # names that are copied from here, and 1.5 ms
        pieces = name.split() if len(name) > LONGEST_PAIR else [name]
        for row in rows:
            text = row[number]  # a value and what belongs to it stay whole, too: 2.5 (20 %, 1 s)
            is_value = whole or (text[:1].isdigit() and text.endswith(")"))
            pieces += text.split("\n") if is_value else text.split()
        longest = max(map(len, pieces), default=0)
        table.needs += longest + PADDING
        table.add_column(
            Text(name),
            justify="right" if figures else "left",
            overflow="fold",
            no_wrap=number == 0,
            min_width=longest if any(head) else None,
        )
    for row in rows:
        table.add_row(*(Text(value) for value in row))
    return table


def markdown_grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table in Markdown."""
    for number, cells in enumerate((head, *rows)):
        escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
        yield f"| {' | '.join(escaped)} |"
        if number == 0:
            yield f"|{'---|' * len(head)}"
