"""The plot of a study: how far every method is from the best bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from placegap.experiments.show.drawing import Style, new_figure, png, styles
from placegap.experiments.studies.gaps import GapCell, MethodSummary, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_gaps(cells: Sequence[GapCell]) -> bytes:
    """A PNG with one panel per table: a mark per instance and cluster, a bar at the median.

    Methods are ordered by their median gap; the axis is linear up to 1 % and logarithmic above, so
    that 0 (proven optimal) has a place.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    """
    tables: dict[str, list[GapCell]] = {}
    for cell in cells:
        tables.setdefault(cell.cell.table, []).append(cell)
    ranked = {name: rank(summarize(table)) for name, table in tables.items()}
    heights = [max(1, len(order)) + 1.6 for order in ranked.values()]
    style = styles(cell.cell.cluster for cell in cells)
    figure = new_figure(9, 0.34 * sum(heights) + 0.9)
    axes = figure.subplots(len(tables), 1, height_ratios=heights, squeeze=False)
    for axis, (name, table) in zip(axes[:, 0], tables.items(), strict=True):
        draw_panel(axis, table, ranked[name], style)
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=name, **own.dots) for name, own in style.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return png(figure)


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
) -> None:
    """Draw one table's gaps on given axes."""
    place = {summary.label: row for row, summary in enumerate(order)}
    clusters = [name for name in style if any(cell.cell.cluster == name for cell in cells)]
    for cell in cells:
        if cell.gap is None:
            continue
        # each cluster has its own lane, so that dots do not hide one another
        lane = (clusters.index(cell.cell.cluster) - (len(clusters) - 1) / 2) * 0.36 / len(clusters)
        axis.plot(
            100 * cell.gap,
            place[cell.cell.label] + lane,
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
    axis.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
    _dress(axis, [summary.label for summary in order])


def _dress(axis: Axes, labels: Sequence[str]) -> None:
    axis.set_xscale("symlog", linthresh=1, linscale=0.5)
    axis.set_xlim(0, 100)
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
