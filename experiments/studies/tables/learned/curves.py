"""Training curves: a CSV with every update, and a plot with a panel per graph."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from placegap.experiments.show.drawing import new_figure, styles, write_figure
from placegap.experiments.studies.tables.learned.runs import LearnedRun
from placegap.instances.files.document import write_text

COLUMNS = ("graph", "cluster", "search", "seed", "evaluated", "mean_ns", "best_ns")


def write_csv(runs: Sequence[LearnedRun], path: Path) -> None:
    """Write a line per update: placements so far, mean of the update, best so far."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        for evaluated, mean_ns, best_ns in run.curve:
            writer.writerow(
                [run.graph, run.cluster, run.search, run.seed, evaluated, round(mean_ns),
                 "" if best_ns is None else best_ns]
            )  # fmt: skip
    write_text(text.getvalue(), path)


def write_plot(runs: Sequence[LearnedRun], path: Path) -> None:
    """Draw the best placement (line) and the mean of updates (dots) over placements, seed 0.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    """
    drawn = [run for run in runs if run.seed == 0 and run.curve]
    graphs = list(dict.fromkeys(run.graph for run in drawn))
    style = styles(dict.fromkeys(run.search for run in drawn))
    figure = new_figure(9, 2.4 * len(graphs))
    axes = figure.subplots(len(graphs), 1, squeeze=False)[:, 0]
    for axis, graph in zip(axes, graphs, strict=True):
        for run in (run for run in drawn if run.graph == graph):
            colour = style[run.search].color
            points = [point for point in run.curve if point[2] is not None]
            best = [100 * (point[2] or 0) / run.optimum_ns - 100 for point in points]
            mean = [100 * point[1] / run.optimum_ns - 100 for point in run.curve]
            axis.plot([point[0] for point in points], best, color=colour, label=run.search)
            axis.plot([point[0] for point in run.curve], mean, ".", color=colour, markersize=2)
        axis.set_title(graph, fontsize=9)
        axis.set_yscale("symlog", linthresh=10)
        axis.set_ylabel("% above optimum")
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("evaluated placements (line: best so far, dots: mean of an update)")
    axes[0].legend(frameon=False, fontsize=8)
    write_figure(figure, path)
