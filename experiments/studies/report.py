"""The files of a finished study: ``table.md``, ``runs.csv`` and ``gaps.png``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from placegap.experiments.show.figures import format_gap, format_s
from placegap.experiments.studies.config import Study
from placegap.experiments.studies.gap_tables import MODEL_HEAD, CellText, TableText, lay_out
from placegap.experiments.studies.gaps import GapCell, MethodSummary, disagreements
from placegap.experiments.studies.report import plot_gaps
from placegap.instances.problem.semantics import DEFAULTS
from placegap.instances.reading.errors import InputError, MissingExtra
from placegap.solvers.core.result import relative_gap

CSV_COLUMNS = (
    "study",
    "table",
    "objective",
    *DEFAULTS,
    "instance",
    "cluster",
    "num_ops",
    "num_devices",
    "ccr",
    "memory_pressure",
    "method",
    "label",
    "params",
    "seed",
    "time_limit_s",
    "gap_limit",
    "status",
    "value_ns",
    "bound_ns",
    "bound_class",
    "own_gap",
    "best_bound_ns",
    "best_bound_by",
    "bound_origin",
    "rests_on",
    "best_rests_on",
    "faults",
    "gap",
    "build_s",
    "solve_s",
    "setup_s",
    "rows",
    "columns",
    "message",
    "instance_hash",
    "key",
    "made_by",
)


def write_report(study: Study, cells: Sequence[GapCell], folder: str | Path) -> tuple[Path, ...]:
    """Write all files of a study and return their paths; the plot where matplotlib is installed.

    Raises
    ------
    InputError
        If a file cannot be written; no file is ever left half written.
    """
    folder = Path(folder)
    files = {
        "table.md": markdown(study, cells).encode(),
        "runs.csv": runs_csv(study, cells).encode(),
    }
    with suppress(MissingExtra):
        files["gaps.png"] = plot_gaps(cells)
    for name, data in files.items():
        write_file(folder / name, data)
    return tuple(folder / name for name in files)


def write_file(path: Path, data: bytes) -> None:
    """Write a file as a whole; InputError, and no half of it, where that fails."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path) from None
    finally:  # also after an interrupt
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def runs_csv(study: Study, cells: Sequence[GapCell]) -> str:
    """One line per cell, those included that have no run; times of plans in ns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for cell in cells:
        writer.writerow(_csv_row(study, cell))
    return text.getvalue()


def _csv_row(study: Study, cell: GapCell) -> dict[str, Any]:
    place, run = cell.cell, cell.cell.run
    return {
        "study": study.name,
        "table": place.table,
        **place.semantics.model_dump(),
        "instance": place.instance,
        "cluster": place.cluster,
        "num_ops": place.num_ops,
        "num_devices": place.num_devices,
        "ccr": place.ccr,
        "memory_pressure": place.memory_pressure,
        "method": place.method,
        "label": place.label,
        "params": json.dumps(place.params, sort_keys=True),
        "seed": place.seed,
        "time_limit_s": "" if run is None else run.time_limit_s,
        "gap_limit": "" if run is None else run.gap,
        "status": cell.status,
        "value_ns": cell.value_ns,
        "bound_ns": cell.bound_ns,
        "bound_class": cell.bound_class,
        "own_gap": relative_gap(cell.value_ns, cell.bound_ns),
        "best_bound_ns": cell.best_bound_ns,
        "best_bound_by": cell.best_bound_by,
        "bound_origin": cell.bound_origin,
        "rests_on": cell.rests_on,
        "best_rests_on": cell.best_rests_on,
        "faults": "; ".join(cell.faults),
        "gap": cell.gap,
        "build_s": cell.build_s,
        "solve_s": cell.solve_s,
        "setup_s": cell.setup_s,
        "rows": cell.details.get("rows"),
        "columns": cell.details.get("columns"),
        "message": cell.message,
        "instance_hash": place.instance_hash,
        "key": "" if run is None else run.key,
        "made_by": cell.made_by,
    }


def markdown(study: Study, cells: Sequence[GapCell]) -> str:
    """All gap tables of a study as Markdown."""
    lines = [f"# {study.name}", ""]
    contradictions = disagreements(cells)
    if contradictions:
        lines += ["**METHODS DISAGREE: at least one of them is wrong.**", ""]
        lines += [f"- {_escape(sentence)}" for sentence in contradictions] + [""]
    for table in lay_out(cells):
        lines += _markdown_table(table)
    makers = dict.fromkeys(cell.made_by for cell in cells if cell.made_by)
    lines += [f"Made by {_escape(maker)}." for maker in makers]
    return "\n".join(lines)


def _markdown_table(table: TableText) -> Iterator[str]:
    yield f"## {table.name}: {table.semantics}"
    yield ""
    yield (
        f"Value in {table.unit}, gap to the row's best bound, time of the method."
        " Bold: the value meets the bound, so it is optimal."
    )
    yield ""
    yield from markdown_grid(
        ("instance", "cluster", f"best bound ({table.unit})", *table.columns),
        [(row.instance, row.cluster, row.bound, *map(_flat, row.cells)) for row in table.rows],
    )
    yield ""
    yield from markdown_grid(SUMMARY_HEAD, [summary_row(summary) for summary in table.summaries])
    yield ""
    if table.models:
        yield from markdown_grid(MODEL_HEAD, table.models)
        yield ""
    for note in table.notes:
        yield f"- {_escape(note)}"
    if table.notes:
        yield ""


SUMMARY_HEAD = (
    "method",
    "plans",
    "gaps",
    "mean gap",
    "median gap",
    "optimal",
    "proved by it",
    "total time",
)


def summary_row(summary: MethodSummary) -> tuple[str, ...]:
    """A method's line under a table."""
    return (
        summary.label,
        str(summary.num_plans),
        str(summary.num_gaps),
        "-" if summary.mean_gap is None else format_gap(summary.mean_gap),
        "-" if summary.median_gap is None else format_gap(summary.median_gap),
        str(summary.num_optimal),
        str(summary.num_proved),
        format_s(summary.total_s) if summary.total_s else "-",
    )


def markdown_grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table in Markdown."""
    yield "| " + " | ".join(map(_escape, head)) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(map(_escape, row)) + " |"


def _flat(cell: CellText) -> str:
    if not cell.gap:
        return cell.value
    value = f"**{cell.value}**" if cell.tone == "optimal" else cell.value
    return f"{value} ({cell.gap}, {cell.time})"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
