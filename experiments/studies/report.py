"""What a finished study prints, and its files: ``table.md``, ``runs.csv`` and ``gaps.png``."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from placegap.experiments.show.figures import common_unit, counted, format_gap, format_in, format_s
from placegap.experiments.show.rendering import markdown_grid, warn
from placegap.experiments.studies.analysis import summary
from placegap.experiments.studies.runs import (
    NOT_APPLICABLE,
    NOT_INSTALLED,
    NOT_RUN,
    PROBLEM,
    ROW,
    RunRow,
    disagreements,
    frame_of,
    write_rows,
)
from placegap.instances.files.output_files import attempt, write_bytes, write_text
from placegap.instances.reading.errors import MissingExtra
from placegap.instances.reading.printable import printable
from placegap.solvers.core.result import RECORDED, describe_basis, fault_words, relative_gap

if TYPE_CHECKING:
    import pandas as pd

Grid = tuple[tuple[str, ...], list[tuple[str, ...]]]  # a head and rows

REPORT_FILES = ("table.md", "runs.csv", "gaps.png")

SUMMARY_HEAD = (
    *("method", "plans", "mean", "median", "worst", "optimal"),
    *("<=1 %", "<=10 %", "time"),
)

MODEL_HEAD = (
    *("instance", "cluster", "model", "rows", "columns", "build", "solve"),
    *("value", "bound", "own gap"),
)

RECORDED_MARK = "(r)"  # at a best bound that is recorded, and that no run of the study reached
# What stands in a cell without a value, if it is not the status.
WORDS = {NOT_APPLICABLE: "n/a", NOT_INSTALLED: "not installed", NOT_RUN: "not run"}


class TableText(NamedTuple):
    """One table in words: grids of a head and rows, for a terminal and for Markdown."""

    title: str
    summary: Grid
    gaps: Grid
    models: Grid
    notes: list[str]


def table_texts(rows: Sequence[RunRow], bold: str = "") -> Iterator[TableText]:
    """Every table, in order; `bold` stands around values that are proven optimal."""
    for name, group in groupby(rows, attrgetter("table")):
        mine = list(group)
        runs = frame_of(mine)
        yield TableText(
            f"{name}: {mine[0].semantics}; {common_rows(runs)}",
            (SUMMARY_HEAD, summary_rows(runs)),
            gap_grid(mine, bold),
            (MODEL_HEAD, model_rows(mine)),
            list(notes(mine)),
        )


def summary_rows(runs: pd.DataFrame) -> list[tuple[str, ...]]:
    """A line per method of one table, as `SUMMARY_HEAD` says (`analysis.summary`)."""
    return [
        (
            str(label),
            f"{line['plans']:g} of {line['rows']:g}",
            *(shown(line[name], format_gap) for name in ("mean", "median", "worst")),
            *(f"{line[name]:g}" for name in ("optimal", "within_1", "within_10")),
            shown(line["seconds"], format_s),
        )
        for label, line in summary(runs, "label").iterrows()
    ]


def shown(figure: float | None, form: Callable[[float], str]) -> str:
    """A figure in a cell: a dash where there is none."""
    return "-" if figure is None or math.isnan(figure) else form(figure)


def common_rows(runs: pd.DataFrame) -> str:
    """Over how many rows of one table the means of its summary are."""
    of, left_out = summary(runs, "label")[["rows", "left_out"]].iloc[0]
    seeds = runs.groupby("label", sort=False)["seed"].nunique()
    is_row = seeds.max() <= 1
    words, each = ("row", "") if is_row else ("problem", f" x {seeds.max()} seeds")
    once = [str(label) for label in seeds.index[seeds == 1]]
    each += f" (once: {', '.join(once)})" * (not is_row and bool(once))
    if not left_out:
        return f"{counted(int(of), words)}{each}"
    return f"means over the {of - left_out} of {of} {words}s{each} where every method has a gap"


def gap_grid(rows: Sequence[RunRow], bold: str = "") -> Grid:
    """The rows of one table: the best bound, and value, gap and time of each method."""
    unit, size = _unit(rows)
    labels = dict.fromkeys(row.label for row in rows)
    several = len({row.seed for row in rows}) > 1
    names = {(row.instance, row.cluster, row.instance_hash) for row in rows}
    twice = Counter((name, cluster) for name, cluster, _ in names)
    lines = []
    for _, mine in groupby(rows, attrgetter(*ROW)):
        found = {row.label: row for row in mine}
        row = next(iter(found.values()))
        name = row.instance  # graphs that differ in parameters only have one name
        name += f" {row.instance_hash[:6]}" * (twice[name, row.cluster] > 1)
        name += f" (seed {row.seed})" * several
        bound = "-" if row.best_bound_ns is None else format_in(row.best_bound_ns, size)
        bound += f" {RECORDED_MARK}" * row.best_bound_by.startswith(RECORDED)
        cells = (_cell(found[label], size, bold) if label in found else "-" for label in labels)
        lines.append((name, row.cluster, bound, *cells))
    return ("instance", "cluster", f"best bound ({unit})", *labels), lines


def _unit(rows: Sequence[RunRow]) -> tuple[str, int]:
    values = (row.value_ns for row in rows if row.value_ns is not None)
    return common_unit(values, rows[0].stated.unit if rows else "ns")


def _cell(row: RunRow, size: int, bold: str) -> str:
    """Value, gap and time of a run, or one word in place of the value."""
    time = shown(row.time_s, format_s)
    if row.over_limit_s is not None:
        time += f" of {shown(row.time_limit_s, format_s)}"
    if row.value_ns is not None:
        mark = bold * row.is_optimal
        return f"{mark}{format_in(row.value_ns, size)}{mark} ({shown(row.gap, format_gap)}, {time})"
    if row.split_value_ns is not None:  # of another instance: no bound of the row holds for it
        return f"{format_in(row.split_value_ns, size)} (split, {time})"
    if row.status == "bound" and row.bound_ns is not None:
        return f">= {format_in(row.bound_ns, size)} ({time})"
    return WORDS.get(row.status, row.status.replace("_", " "))


def model_rows(rows: Sequence[RunRow]) -> list[tuple[str, ...]]:
    """One line per run that built a model, as `MODEL_HEAD` says, with its own bound and gap."""
    _, size = _unit(rows)
    return [
        (
            *(row.instance, row.cluster, row.label, str(row.rows), shown(row.columns, str)),
            *(shown(took_s, format_s) for took_s in (row.build_s, row.solve_s)),
            *(
                shown(ns, lambda ns: format_in(int(ns), size))
                for ns in (row.value_ns, row.bound_ns)
            ),
            shown(relative_gap(row.value_ns, row.bound_ns), format_gap),
        )
        for row in rows
        if row.rows is not None
    ]


def notes(rows: Sequence[RunRow]) -> Iterator[str]:
    """What stands below one table: why cells have no value, what bounds rest on, wrong claims."""
    problem_of = attrgetter(*PROBLEM)
    messages = dict[tuple[str, str], dict[object, str]]()
    for row in rows:
        if row.value_ns is None and row.message and row.status != "bound":
            key = (row.label, re.sub(r"\d+", "#", row.message))  # those that differ in figures
            messages.setdefault(key, {}).setdefault(problem_of(row), row.message)
    for (label, _), why in messages.items():
        more = f" ({len(why)} rows, the first of them)" if len(why) > 1 else ""
        yield f"{label}: {next(iter(why.values()))}{more}"
    late = Counter(row.label for row in rows if row.over_limit_s is not None)
    yield from (f"{x}: beyond its time limit in {counted(n, 'run')}" for x, n in late.items())
    firsts = {problem_of(row): row for row in reversed(rows)}.values()
    origins = Counter(row.best_bound_by for row in firsts if row.best_bound_by.startswith(RECORDED))
    if origins:
        who = [f"{origin.removeprefix(RECORDED)} ({n})" for origin, n in sorted(origins.items())]
        yield (
            f"{RECORDED_MARK} recorded, and higher than every bound proved in this study:"
            f" {'; '.join(who)}"
        )
    bases = Counter(row.best_rests_on for row in firsts if row.best_rests_on)
    if bases:
        words = [f"{describe_basis('', basis)} ({n})" for basis, n in sorted(bases.items())]
        yield f"best bounds rest on: {'; '.join(words)}"
    yield from (
        fault_words(row.faults, f"{row.instance}, {row.label}") for row in rows if row.faults
    )


def made_by(rows: Sequence[RunRow]) -> list[str]:
    """What made the runs, each machine and commit once."""
    found = dict[str, None]()
    for row in rows:
        if row.versions:
            cores = "" if row.cores is None else f"{counted(row.cores, 'core')} of "
            commit = row.commit and f"commit {row.commit}"
            found["; ".join(filter(None, (commit, row.versions, cores + row.cpu)))] = None
    return list(found)


def write_report(study: str, rows: Sequence[RunRow], folder: Path) -> tuple[Path, ...]:
    """Write the files of a study that can be written (`attempt`), and return their paths."""
    from placegap.experiments.studies.plots import gaps_png

    table, runs, picture = (folder / name for name in REPORT_FILES)
    write: dict[Path, Callable[[], None]] = {
        table: lambda: write_text(markdown(study, rows), table),
        runs: lambda: write_rows(rows, runs),
        picture: lambda: write_bytes(gaps_png(frame_of(rows)), picture),
    }
    written = []
    for path, write_it in write.items():
        with attempt(path):
            try:
                write_it()
                written.append(path)
            except MissingExtra as error:
                warn(f"no plot: {error}")
    return tuple(written)


def markdown(study: str, rows: Sequence[RunRow]) -> str:
    """All gap tables of a study as Markdown."""
    lines = [f"# {study}", ""]
    contradictions = disagreements(rows)
    if contradictions:
        lines += ["**METHODS DISAGREE: at least one of them is wrong.**", ""]
        lines += [f"- {sentence}" for sentence in contradictions] + [""]
    for table in table_texts(rows, "**"):
        lines += [f"## {table.title}", ""]
        lines += ["Value (gap to the row's best bound, time). Bold: proven optimal.", ""]
        for head, grid in (table.gaps, table.summary, table.models):
            lines += [*markdown_grid(head, grid), ""] if grid else []
        lines += [f"- {note}" for note in table.notes] + [""]
    lines += [f"Made by {maker}." for maker in made_by(rows)]
    return "\n".join(map(printable, lines)) + "\n"
