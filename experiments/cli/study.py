"""``placegap study``: run what is missing of a study, then print and write its gap tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placegap.experiments.cli.options import ModuleOption, QuietOption, inputs_of
from placegap.experiments.running.pool import PoolError, stop_status
from placegap.experiments.show.figures import counted, format_duration, format_s
from placegap.experiments.show.rendering import output, plain_table, warn
from placegap.instances.files.output_files import release_outputs, reserve_outputs
from placegap.instances.reading.errors import InputError

if TYPE_CHECKING:
    from placegap.experiments.studies.plan import PlannedRow
    from placegap.experiments.studies.runs import RunRow


METHODS_DISAGREE = 1


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A study's YAML file.")]
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder for all files; default results/NAME."),
    ] = None
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes; default: all cores.")
    ] = None
    rows: Annotated[
        bool, typer.Option("--rows", help="Also print every row (table.md always has them).")
    ] = False
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Run the study's smoke test, its smallest form.")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run and for how long; run nothing.")
    ] = False
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Run the I-th of N parts, for N machines."),
    ] = None
    module: ModuleOption = None
    quiet: QuietOption = False


def study_command(options: StudyOptions) -> None:
    """Run a study; runs that are in its log are not repeated."""
    from placegap.experiments.studies.config import load_study
    from placegap.experiments.studies.log import LOG_NAME
    from placegap.experiments.studies.plan import study_rows
    from placegap.experiments.studies.progress import StudyProgress, progress_shown
    from placegap.experiments.studies.report import REPORT_FILES, write_report
    from placegap.experiments.studies.run import results_folder, run_rows_of
    from placegap.solvers.core.worker_process import num_cores

    wanted, shard = load_study(options.config, smoke=options.smoke), _shard(options.shard)
    folder = results_folder(wanted, options.out, shard)
    if folder.is_dir() and not options.dry_run:
        files = [folder / name for name in REPORT_FILES]
        reserve_outputs(*files, inputs=inputs_of(options))
        release_outputs()  # a study may be killed, and leaves nothing then
    kept = f"{folder / LOG_NAME} has every finished run, and the same command continues from there"
    try:
        workers = options.workers or num_cores()
        planned = study_rows(wanted, options.config, shard)
        if not options.quiet:
            warn(intention(wanted.name, planned, workers))
        if options.dry_run and planned:
            print_tables_to_run(planned, workers)
        if options.dry_run or not planned:  # there may be more shards than instances
            return
        progress = nullcontext(StudyProgress()) if options.quiet else progress_shown(wanted.name)
        with progress as shown:
            rows = run_rows_of(
                wanted, options.config, planned, folder, workers=workers, progress=shown
            )
    except KeyboardInterrupt:
        warn(f"stopped; {kept}")
        raise typer.Exit(stop_status()) from None
    except PoolError as error:
        raise InputError(str(error)) from None
    written = write_report(wanted.name, rows, folder)
    print_tables(rows, with_rows=options.rows)
    if written:
        output().print(f"written: {', '.join(map(str, written))}", soft_wrap=True)
    if not _judge(rows):
        raise typer.Exit(METHODS_DISAGREE)


def _shard(text: str | None) -> tuple[int, int] | None:
    """Which part of how many."""
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise InputError(f"--shard {text!r} is not I/N, such as 1/4")
    return int(found[1]), int(found[2])


def intention(name: str, rows: Sequence[PlannedRow], workers: int) -> str:
    """What a study will do and for how long at most, before any instance has been read."""
    limits = [limit_s for row in rows for limit_s in row.limits_s]
    if not limits:
        return f"{name}: no runs"
    return (
        f"{name}: at most {counted(len(limits), 'run')} of at most {max(limits):g} s each,"
        f" {workers} at a time: at most {format_duration(longest_s(limits, workers))} in all"
    )


def longest_s(limits_s: Sequence[float], workers: int) -> float:
    """Most seconds that runs with these limits take, started in order, `workers` at a time."""
    # The last run starts when all workers have been busy with the others.
    last = max(limits_s)
    return (sum(limits_s) - last) / workers + last


def print_tables_to_run(rows: Sequence[PlannedRow], workers: int) -> None:
    """What each table would run, and for how long at most, on stdout."""
    tables: dict[str, list[PlannedRow]] = {}
    for row in rows:
        tables.setdefault(row.table.name, []).append(row)
    shown = []
    for name, some in tables.items():
        limits_s = [limit_s for row in some for limit_s in row.limits_s]
        methods = ", ".join(label for _, _, label in some[0].columns)
        at_most = format_duration(longest_s(limits_s, workers))
        counts = map(str, (len(some), len(limits_s)))
        shown.append([name, *counts, f"{limits_s[0]:g} s", at_most, methods])
    head = ["table", "instances", "runs", "each", "at most", "methods"]
    output().print(plain_table(None, head, shown))


def print_tables(rows: Sequence[RunRow], *, with_rows: bool) -> None:
    """A line per method and the notes of every table on stdout, and what compiling took."""
    # Perhaps also every row, and every model that was built.
    from placegap.experiments.studies.report import table_texts

    console = output()
    for table in table_texts(rows):
        console.print(plain_table(table.title, *table.summary))
        for head, grid in (table.gaps, table.models) if with_rows else ():
            if grid:
                console.print(plain_table(None, head, grid))
        for note in table.notes:
            console.print(note)
        console.print()
    setup_s = sum(row.setup_s or 0.0 for row in rows)
    if setup_s:
        console.print(
            f"loading modules and kernels: {format_s(setup_s)}; no time above includes it"
        )


def _judge(rows: Sequence[RunRow]) -> bool:
    """Report failures and contradictions on stderr; whether there are no contradictions."""
    from placegap.experiments.studies.runs import FAILURES, disagreements

    failed = [row for row in rows if row.status in FAILURES]
    if failed:
        warn(f"{len(failed)} of {len(rows)} runs failed; the notes under the tables say why")
    contradictions = disagreements(rows)
    for sentence in contradictions:
        warn(f"METHODS DISAGREE: {sentence}")
    return not contradictions
