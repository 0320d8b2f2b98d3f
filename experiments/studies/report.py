"""What a finished study prints, and its files: ``table.md``, ``runs.csv`` and ``gaps.png``."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from placegap.experiments.show.figures import common_unit, counted, format_gap, format_in, format_s
from placegap.experiments.show.rendering import markdown_grid, warn
from placegap.experiments.studies.runs import (
    NOT_APPLICABLE,
    NOT_INSTALLED,
    NOT_RUN,
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

REPORT_FILES = ("table.md", "runs.csv", "gaps.png")

SUMMARY_HEAD = (
    *("method", "plans", "mean", "median", "worst", "optimal"),
    *("<=1 %", "<=10 %", "time"),
)

MODEL_HEAD = (
    *("instance", "cluster", "model", "rows", "columns", "build", "solve"),
    *("value", "bound", "own gap"),
)

RECORDED_MARK = "(r)"
"""At a best bound that is recorded, and that no run of the study reached."""

WORDS = {NOT_APPLICABLE: "n/a", NOT_INSTALLED: "not installed", NOT_RUN: "not run"}
"""What stands in a cell without a value, if it is not the status."""


def tables_of(rows: Sequence[RunRow]) -> dict[str, list[RunRow]]:
    """The rows of each table, in order."""
    found: dict[str, list[RunRow]] = {}
    for row in rows:
        found.setdefault(row.table, []).append(row)
    return found


def summary_rows(runs: pd.DataFrame) -> list[tuple[str, ...]]:
    """A line per method of one table, as `SUMMARY_HEAD` says (`analysis.summary`)."""
    from placegap.experiments.studies.analysis import summary

    return [
        (
            str(label),
            f"{line['plans']:g} of {line['rows']:g}",
            *(told(line[name], format_gap) for name in ("mean", "median", "worst")),
            *(f"{line[name]:g}" for name in ("optimal", "within_1", "within_10")),
            told(line["seconds"], format_s),
        )
        for label, line in summary(runs, "label").iterrows()
    ]


def told(figure: float | None, form: Callable[[float], str]) -> str:
    """A figure in a cell: a dash where there is none."""
    return "-" if figure is None or math.isnan(figure) else form(figure)


def common_rows(runs: pd.DataFrame) -> str:
    """Over how many rows of one table the means of its summary are."""
    from placegap.experiments.studies.analysis import summary

    of, left_out = summary(runs, "label")[["rows", "left_out"]].iloc[0]
    if not left_out:
        return counted(int(of), "row")
    return f"means over the {of - left_out} of {of} rows where every method has a gap"


def grid_head(rows: Sequence[RunRow]) -> tuple[str, ...]:
    """What stands above the rows of one table."""
    unit, _ = _unit(rows)
    labels = dict.fromkeys(row.label for row in rows)
    return ("instance", "cluster", f"best bound ({unit})", *labels)


def grid_rows(rows: Sequence[RunRow], bold: str = "") -> Iterator[tuple[str, ...]]:
    """One line per row of one table: the best bound, and value, gap and time of each method."""
    _, size = _unit(rows)
    labels = dict.fromkeys(row.label for row in rows)
    several = len({row.seed for row in rows}) > 1
    names = {(row.instance, row.cluster, row.instance_hash) for row in rows}
    twice = Counter((name, cluster) for name, cluster, _ in names)
    for _, mine in groupby(rows, lambda row: [getattr(row, name) for name in ROW]):
        found = {row.label: row for row in mine}
        row = next(iter(found.values()))
        mark = f" {RECORDED_MARK}" if row.best_bound_by.startswith(RECORDED) else ""
        yield (
            # graphs that differ in parameters only have one name
            f"{row.instance}{f' {row.instance_hash[:6]}' * (twice[row.instance, row.cluster] > 1)}"
            f"{f' (seed {row.seed})' * several}",
            row.cluster,
            told(row.best_bound_ns, lambda ns: format_in(int(ns), size) + mark),  # noqa: B023
            *(_cell(found[name], size, bold) if name in found else "-" for name in labels),
        )


def _unit(rows: Sequence[RunRow]) -> tuple[str, int]:
    return common_unit(row.value_ns for row in rows if row.value_ns is not None)


def _cell(row: RunRow, size: int, bold: str) -> str:
    """Value, gap and time of a run, or one word in place of the value."""
    time = told(row.time_s, format_s)
    if row.value_ns is not None:
        mark = bold * row.is_optimal
        return f"{mark}{format_in(row.value_ns, size)}{mark} ({told(row.gap, format_gap)}, {time})"
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
            *(row.instance, row.cluster, row.label, str(row.rows), told(row.columns, str)),
            *(told(took_s, format_s) for took_s in (row.build_s, row.solve_s)),
            *(told(ns, lambda ns: format_in(int(ns), size)) for ns in (row.value_ns, row.bound_ns)),
            told(relative_gap(row.value_ns, row.bound_ns), format_gap),
        )
        for row in rows
        if row.rows is not None
    ]


def notes(rows: Sequence[RunRow]) -> Iterator[str]:
    """What stands below one table: why cells have no value, what bounds rest on, wrong claims."""
    for (label, _), why in _reasons(rows).items():
        more = f" ({len(why)} rows, the first of them)" if len(why) > 1 else ""
        yield f"{label}: {why[0]}{more}"
    firsts = [next(mine) for _, mine in groupby(rows, lambda row: [getattr(row, n) for n in ROW])]
    by = Counter(
        row.best_bound_by.removeprefix(RECORDED)
        for row in firsts
        if row.best_bound_by.startswith(RECORDED)
    )
    if by:
        who = "; ".join(f"{origin} ({by[origin]})" for origin in sorted(by))
        yield f"{RECORDED_MARK} recorded, and higher than all that this study's runs proved: {who}"
    count = Counter(row.best_rests_on for row in firsts if row.best_rests_on)
    if count:
        words = (f"{describe_basis('', basis)} ({count[basis]})" for basis in sorted(count))
        yield f"best bounds rest on: {'; '.join(words)}"
    for row in rows:
        if row.faults:
            yield fault_words(row.faults, f"{row.instance}, {row.label}")


def _reasons(rows: Sequence[RunRow]) -> dict[tuple[str, str], list[str]]:
    """What runs without a value say; sentences that differ only in figures count as one."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.value_ns is None and row.message and row.status != "bound":
            key = (row.label, re.sub(r"\d+", "#", row.message))
            found.setdefault(key, []).append(row.message)
    return found


def made_by(rows: Sequence[RunRow]) -> list[str]:
    """What made the runs, each machine and commit once."""
    makers = dict.fromkeys(
        (row.commit, row.versions, row.cores, row.cpu) for row in rows if row.versions
    )
    found = []
    for commit, versions, cores, cpu in makers:
        machine = cpu if cores is None else f"{counted(cores, 'core')} of {cpu}"
        found.append("; ".join(filter(None, (commit and f"commit {commit}", versions, machine))))
    return found


def write_report(study: str, rows: Sequence[RunRow], folder: str | Path) -> tuple[Path, ...]:
    """Write the files of a study that can be written (`attempt`), and return their paths."""
    written, folder = list[Path](), Path(folder)
    for name in REPORT_FILES:
        path = folder / name
        with attempt(path):
            if name == "runs.csv":
                write_rows(rows, path)
            elif name == "table.md":
                write_text(markdown(study, rows), path)
            else:
                try:
                    from placegap.experiments.studies.plots import gaps_png

                    write_bytes(gaps_png(frame_of(rows)), path)
                except MissingExtra as error:
                    warn(f"no plot: {error}")
                    continue
            written.append(path)
    return tuple(written)


def markdown(study: str, rows: Sequence[RunRow]) -> str:
    """All gap tables of a study as Markdown."""
    lines = [f"# {study}", ""]
    contradictions = disagreements(rows)
    if contradictions:
        lines += ["**METHODS DISAGREE: at least one of them is wrong.**", ""]
        lines += [f"- {sentence}" for sentence in contradictions] + [""]
    for name, table in tables_of(rows).items():
        runs = frame_of(table)
        lines += [f"## {name}: {table[0].semantics}", ""]
        lines += ["Value (gap to the row's best bound, time). Bold: proven optimal.", ""]
        lines += [*markdown_grid(grid_head(table), list(grid_rows(table, "**"))), ""]
        lines += [*markdown_grid(SUMMARY_HEAD, summary_rows(runs)), "", common_rows(runs), ""]
        models = model_rows(table)
        lines += [*markdown_grid(MODEL_HEAD, models), ""] if models else []
        lines += [f"- {note}" for note in notes(table)] + [""]
    lines += [f"Made by {maker}." for maker in made_by(rows)]
    return "\n".join(map(printable, lines)) + "\n"
