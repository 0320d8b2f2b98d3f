"""``placegap study``: run what is missing of a study, then print and write its gap tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placegap.experiments.rendering import errors, gap_tables, output, plain_table, warn
from placegap.experiments.stop_signals import stop_status
from placegap.instances.errors import InputError

if TYPE_CHECKING:
    from placegap.experiments.gap_table import GapCell

METHODS_DISAGREE = 1


def study_command(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A study's YAML file.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder for all files; default results/NAME."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes; default: all cores.")
    ] = None,
) -> None:
    """Run a study; what is in its log already is not run again."""
    from placegap.experiments.pool import PoolError
    from placegap.experiments.report import write_report
    from placegap.experiments.study import LOG_NAME, results_folder, run_study
    from placegap.experiments.study_config import load_study
    from placegap.experiments.study_plan import absent_models

    asked = load_study(config)
    folder = results_folder(asked, out)
    for model in absent_models(asked, config):
        warn(f"{config}: left out, since it is not there: {model}")
    try:
        with _progress() as told:
            study, cells = run_study(config, folder, workers=workers, progress=told)
    except KeyboardInterrupt:
        warn(
            f"stopped; {folder / LOG_NAME} keeps every run that is done,"
            " and the same command goes on from there"
        )
        raise typer.Exit(stop_status()) from None
    except PoolError as error:
        raise InputError(str(error)) from None
    files = write_report(study, cells, folder)
    print_study(cells)
    output().print(f"written: {', '.join(map(str, files))}", markup=False, soft_wrap=True)
    if not _judge(cells):
        raise typer.Exit(METHODS_DISAGREE)


def print_study(cells: Sequence[GapCell]) -> None:
    """The gap tables on stdout."""
    from placegap.experiments.gap_layout import lay_out
    from placegap.experiments.model_table import MODEL_HEAD
    from placegap.experiments.report import SUMMARY_HEAD, summary_row

    console = output()
    for table in lay_out(cells):
        for grid in gap_tables(table, console.width):
            console.print(grid)
        rows = [summary_row(summary) for summary in table.summaries]
        console.print(plain_table(None, SUMMARY_HEAD, rows))
        if table.models:
            console.print(plain_table(None, MODEL_HEAD, table.models))
        for note in table.notes:
            console.print(note, markup=False)
        console.print()


def _judge(cells: Sequence[GapCell]) -> bool:
    """Report failures and contradictions on stderr; whether there are no contradictions."""
    from placegap.experiments.gap_table import FAILURES, disagreements

    failed = [cell for cell in cells if cell.status in FAILURES]
    if failed:
        warn(f"{len(failed)} of {len(cells)} runs failed; the notes under the tables say why")
    contradictions = disagreements(cells)
    for sentence in contradictions:
        warn(f"METHODS DISAGREE: {sentence}")
    return not contradictions


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on stderr, if that is a terminal."""
    console = errors()
    if not console.is_terminal:
        yield lambda done, total, last: None
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def tell(done: int, total: int, last: str) -> None:
            bar.update(task, completed=done, total=total or None, description=escape(last))

        yield tell
