"""The files of a finished study: ``table.md``, ``runs.csv`` and ``gaps.png``."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placegap.experiments.show.drawing import Style, new_figure, plain_label, png, styles
from placegap.experiments.show.figures import format_gap, format_s
from placegap.experiments.show.rendering import warn
from placegap.experiments.studies.config import Study
from placegap.experiments.studies.gap_tables import MODEL_HEAD, CellText, TableText, lay_out
from placegap.experiments.studies.gaps import GapCell, MethodSummary, disagreements, summarize
from placegap.instances.files.output_files import attempt, write_bytes
from placegap.instances.problem import DEFAULTS, Semantics
from placegap.instances.reading.errors import MissingExtra
from placegap.instances.reading.printable import printable
from placegap.solvers.core.result import relative_gap

if TYPE_CHECKING:
    from matplotlib.axes import Axes


QUESTIONS = {
    "makespan": "When has one pass ended?",
    "max_load": "How heavy is the heaviest stage?",
    "max_load_fwd_bwd": "How heavy are the heaviest forward and backward stages?",
    "latency_subgraphs": "When has one sample ended?",
    "pipeline_iteration": "How long is a training iteration?",
    "hybrid_pipeline": "How long is a batch?",
}
"""The question of an objective; others are named by their label."""


def plot_gaps(cells: Sequence[GapCell]) -> bytes:
    """A PNG: tables by their question, a mark per instance and cluster, bars at medians.

    Methods are ordered by their median gap; the axis is linear up to 1 % and logarithmic above, so
    that 0 has a place. Marks at 0 stand side by side, to the left of it.
    """
    questions: dict[str, dict[str, list[GapCell]]] = {}
    for cell in cells:
        tables = questions.setdefault(question(cell.cell.semantics), {})
        tables.setdefault(cell.cell.table, []).append(cell)
    panels = [table for tables in questions.values() for table in tables.values()]
    firsts = {id(next(iter(tables.values()))): asked for asked, tables in questions.items()}
    ranked = [rank(summarize(table)) for table in panels]
    heights = [max(1, len(order)) + 1.6 for order in ranked]
    style = styles(cell.cell.cluster for cell in cells)
    at_zero = Counter((cell.cell.table, cell.cell.label) for cell in cells if _is_zero(cell.gap))
    aside = ASIDE * max(at_zero.values(), default=1)
    figure = new_figure(9, 0.34 * sum(heights) + 0.3 * len(questions) + 0.9)
    axes = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)
    for axis, table, order in zip(axes[:, 0], panels, ranked, strict=True):
        draw_panel(axis, table, order, style, aside)
        if id(table) in firsts:
            axis.set_title(f"{firsts[id(table)]}\n", loc="left", fontsize=12, fontweight="bold")
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=plain_label(name), **own.dots) for name, own in style.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return png(figure)


def question(semantics: Semantics) -> str:
    """The question of a table, in words, and for which plans."""
    asked = QUESTIONS.get(semantics.objective, semantics.label)
    plans = getattr(semantics, "plans", None)
    return f"{asked} ({plans})" if plans else asked


def rank(summaries: Sequence[MethodSummary]) -> list[MethodSummary]:
    """Methods that have gaps, the best median first."""
    return sorted(
        (summary for summary in summaries if summary.median_gap is not None),
        key=lambda summary: (summary.median_gap, summary.mean_gap, summary.label),
    )


def draw_panel(
    axis: Axes,
    cells: Sequence[GapCell],
    order: Sequence[MethodSummary],
    style: Mapping[str, Style],
    aside: float,
) -> None:
    """Draw one table's gaps on given axes, with some room to the left of 0."""
    place = {summary.label: row for row, summary in enumerate(order)}
    clusters = [name for name in style if any(cell.cell.cluster == name for cell in cells)]
    at_zero = dict.fromkeys(place, 0)
    for cell in cells:
        if cell.gap is None:
            continue
        # each cluster has its own lane, so that dots do not hide one another
        lane = (clusters.index(cell.cell.cluster) - (len(clusters) - 1) / 2) * 0.36 / len(clusters)
        gap, row = 100 * cell.gap, place[cell.cell.label]
        if _is_zero(cell.gap):
            gap, lane = -ASIDE * at_zero[cell.cell.label], 0.0
            at_zero[cell.cell.label] += 1
        axis.plot(
            gap,
            row + lane,
            **style[cell.cell.cluster].dots,
            markersize=5.5,
            alpha=0.75,
            markeredgewidth=0,
            clip_on=False,
        )
    for row, summary in enumerate(order):
        median = 100 * (summary.median_gap or 0.0)
        axis.plot(
            [median, median],
            [row - 0.34, row + 0.34],
            color="#222222",
            linewidth=1.8,
            zorder=1,
            clip_on=False,
        )
        axis.annotate(
            f"{summary.num_optimal}/{summary.num_gaps}",
            (1.01, row),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=9,
            color="#444444",
        )
    axis.annotate(
        "optimal", (1.01, 1.0), xycoords="axes fraction", va="bottom", fontsize=9, color="#444444"
    )
    first = cells[0].cell
    label = first.semantics.label
    title = label if first.table == first.semantics.objective else f"{first.table}: {label}"
    axis.text(0, 1.01, plain_label(title), transform=axis.transAxes, va="bottom", fontsize=10.5)
    _dress(axis, [plain_label(summary.label) for summary in order], aside)


LEAST_GAP, ASIDE = 5e-5, 0.07
"""Smaller gaps are drawn at 0, where marks are this many per cent apart."""


def _is_zero(gap: float | None) -> bool:
    return gap is not None and gap < LEAST_GAP


def _dress(axis: Axes, labels: Sequence[str], aside: float) -> None:
    axis.set_xscale("symlog", linthresh=1, linscale=0.5)
    axis.set_xlim(-aside, 100)
    axis.axvspan(-aside, 0, color="#f1f4f6", linewidth=0, zorder=0)
    ticks = (0, 1, 2, 5, 10, 20, 50, 100)
    axis.set_xticks(ticks, [f"{tick} %" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_ylim(max(1, len(labels)) - 0.4, -0.6)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_xlabel("gap to the best bound (bar: median)", fontsize=9)
    axis.grid(axis="x", color="#dddddd", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(axis="x", length=0)
    axis.tick_params(axis="y", length=0, pad=10)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


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


REPORT_FILES = ("table.md", "runs.csv", "gaps.png")


def write_report(study: Study, cells: Sequence[GapCell], folder: str | Path) -> tuple[Path, ...]:
    """Write the files of a study that can be written (`attempt`), and return their paths."""
    written, folder = list[Path](), Path(folder)
    for name in REPORT_FILES:
        with attempt(folder / name):
            try:
                write_bytes(_report_file(name, study, cells), folder / name)
            except MissingExtra as error:
                warn(f"no plot: {error}")
            else:
                written.append(folder / name)
    return tuple(written)


def _report_file(name: str, study: Study, cells: Sequence[GapCell]) -> bytes:
    if name == "table.md":
        return markdown(study, cells).encode()
    return runs_csv(study, cells).encode() if name == "runs.csv" else plot_gaps(cells)


def runs_csv(study: Study, cells: Sequence[GapCell]) -> str:
    """One line per cell, those included that have no run; times of plans in ns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for cell in cells:
        row = _csv_row(study, cell)
        writer.writerow({k: printable(v) if isinstance(v, str) else v for k, v in row.items()})
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
    return "\n".join(map(printable, lines))


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
