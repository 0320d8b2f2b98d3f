"""Training curves: a CSV with every update, and a plot with a panel per graph."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from placegap.experiments.research.learned.table import LearnedRun
from placegap.experiments.show.drawing import new_figure, styles, write_figure
from placegap.instances.io.document import write_text

COLUMNS = ("graph", "cluster", "search", "seed", "evaluated", "mean_ns", "best_ns")

TICKS = (0, 5, 10, 20, 50, 100, 200, 400)
"""Percent; the scale is logarithmic above 10."""


def write_csv(runs: Sequence[LearnedRun], path: Path) -> None:
    """Write a line per update: placements so far, mean of the update, best so far."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        for evaluated, mean_ns, best_ns in run.curve:
            writer.writerow(
                [
                    run.graph,
                    run.cluster,
                    run.search,
                    run.seed,
                    evaluated,
                    round(mean_ns),
                    "" if best_ns is None else best_ns,
                ]
            )
    write_text(text.getvalue(), path)


def write_plot(runs: Sequence[LearnedRun], path: Path) -> None:
    """Draw the best placement (line) and the mean of updates (dots) over placements, seed 0.

    A search without updates is a dashed line at what it found in the end.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    """
    drawn = [run for run in runs if run.seed == 0 and (run.curve or run.value_ns is not None)]
    graphs = list(dict.fromkeys(run.graph for run in drawn))
    style = styles(dict.fromkeys(run.search for run in drawn))
    figure = new_figure(9, 2.4 * len(graphs))
    axes = figure.subplots(len(graphs), 1, squeeze=False)[:, 0]
    for axis, graph in zip(axes, graphs, strict=True):
        for run in (run for run in drawn if run.graph == graph):
            colour = style[run.search].color
            if not run.curve:
                axis.axhline(100 * (run.gap or 0), color=colour, ls="--", label=run.search)
                continue
            points = [point for point in run.curve if point[2] is not None]
            best = [100 * (point[2] or 0) / run.optimum_ns - 100 for point in points]
            mean = [100 * point[1] / run.optimum_ns - 100 for point in run.curve]
            axis.plot([point[0] for point in points], best, color=colour, label=run.search)
            axis.plot([point[0] for point in run.curve], mean, ".", color=colour, markersize=2)
        axis.set_title(graph, fontsize=9)
        axis.set_yscale("symlog", linthresh=10)
        axis.set_yticks(TICKS, [f"{tick} %" for tick in TICKS])
        axis.set_ylabel("above optimum")
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("evaluated placements (line: best so far, dots: mean of an update)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    write_figure(figure, path)
