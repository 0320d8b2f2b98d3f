"""Pictures of committed results: performance profile, gap against time, CCR and memory."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from placegap.experiments.research.measures import (
    by_share,
    gaps_of,
    share_within,
    with_looser_bounds,
)
from placegap.experiments.show.drawing import Style, new_figure, png, styles
from placegap.experiments.studies.log import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TICKS = (0, 1, 2, 5, 10, 20, 50, 100)
FEW = 6
"""Placers whose lines are drawn where all would hide one another."""


def plot_profile(rows: Sequence[Record]) -> bytes:
    """A PNG: for each placer the share of instances whose gap is at most x, best ones first."""
    gaps = gaps_of(rows)
    order = by_share(gaps)
    style = styles(order)
    figure = new_figure(9, 5.6)
    axis = figure.subplots()
    for label in order:
        at = sorted({0.0, *(gap for gap in gaps[label] if gap is not None), 1.0})
        axis.step(
            [100 * gap for gap in at],
            [100 * share_within(gaps[label], gap) for gap in at],
            where="post",
            linewidth=2.2 if label in order[:FEW] else 1.2,
            label=label,
            color=style[label].color,
            linestyle=style[label].linestyle,
        )
    _gap_axis(axis, "x")
    axis.set_ylim(0, 101)
    axis.set_xlabel("gap to the best bound, at most", fontsize=9)
    axis.set_ylabel(f"share of {len(next(iter(gaps.values()), []))} instances, %", fontsize=9)
    _dress(axis, "Performance profile of the placers")
    figure.legend(loc="outside right center", frameon=False, fontsize=8.5)
    return png(figure)


def plot_time(rows: Sequence[Record]) -> bytes:
    """A PNG: mean gap of each placer over its median time, on the rows where it has a plan."""
    gaps = gaps_of(rows)
    order = by_share(gaps)
    style = styles(order)
    figure = new_figure(9, 5.2)
    axis = figure.subplots()
    for label in order:
        known = [gap for gap in gaps[label] if gap is not None]
        runs = [row["runs"].get(label, {}) for row in rows]
        times = [run["time_s"] for run in runs if run.get("value_ns") and run.get("time_s")]
        if not known or not times:
            continue
        axis.plot(
            1000 * statistics.median(times),
            100 * statistics.fmean(known),
            markersize=7,
            label=f"{label} ({len(known)})",
            **style[label].dots,
        )
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    _gap_axis(axis, "y", _lowest(axis))
    axis.set_xlabel("median time of the placer, ms", fontsize=9)
    axis.set_ylabel("mean gap to the best bound", fontsize=9)
    _dress(axis, "Gap against time (number of plans)")
    figure.legend(loc="outside right center", frameon=False, fontsize=8.5)
    return png(figure)


def plot_ccr(rows: Sequence[Record], least: int = 4) -> bytes:
    """A PNG: median gap of the best placers over the communication of the graph.

    Rows are sorted by CCR and cut into groups of nearly equal size, of `least` rows or more.
    """
    bounded = sorted((r for r in rows if r["bound_ns"] is not None), key=lambda r: r["ccr"])
    few = by_share(gaps_of(bounded))[:FEW]
    style = styles(few)
    count = max(1, min(8, len(bounded) // least))
    cuts = [round(k * len(bounded) / count) for k in range(count + 1)]
    groups = [bounded[a:b] for a, b in pairwise(cuts)]
    figure = new_figure(9, 4.8)
    axis = figure.subplots()
    for label in few:
        points = []
        for group in groups:
            known = [gap for gap in gaps_of(group).get(label, []) if gap is not None]
            if known:
                at = statistics.geometric_mean([max(row["ccr"], 1e-3) for row in group])
                points.append((at, 100 * statistics.fmean(known)))
        _draw_line(axis, points, label, style)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    _gap_axis(axis, "y")
    axis.set_xlabel("CCR: transfer times of all edges / times of all ops", fontsize=9)
    axis.set_ylabel("mean gap to the best bound", fontsize=9)
    _dress(axis, f"Gap against communication, {len(bounded)} instances in {count} groups")
    figure.legend(loc="outside right center", frameon=False, fontsize=8.5)
    return png(figure)


def plot_memory(rows: Sequence[Record]) -> bytes:
    """A PNG of two panels over the memory share: share of rows with a plan, and mean gap.

    A method has a mean where it has all plans.
    """
    rows = with_looser_bounds(rows)
    shares = sorted({row["memory_share"] for row in rows})
    labels = list(dict.fromkeys(label for row in rows for label in row["runs"]))
    style = styles(labels)
    figure = new_figure(9, 6.4)
    plans, means = figure.subplots(2, 1, sharex=True)
    for label in labels:
        found, gap_at = [], []
        for share in shares:
            gaps = gaps_of([row for row in rows if row["memory_share"] == share]).get(label, [])
            known = [gap for gap in gaps if gap is not None]
            found.append((100 * share, 100 * len(known) / max(1, len(gaps))))
            if known and len(known) == len(gaps):  # means over fewer rows compare with none
                gap_at.append((100 * share, 100 * statistics.fmean(known)))
        _draw_line(plans, found, label, style)
        _draw_line(means, gap_at, "", style)
    plans.set_ylim(0, 104)
    plans.set_ylabel("instances with a plan, %", fontsize=9)
    _gap_axis(means, "y", _lowest(means))
    means.set_ylabel("mean gap to the best bound", fontsize=9)
    means.set_xlabel("what every device holds, % of all bytes", fontsize=9)
    means.invert_xaxis()  # both panels share it
    _dress(plans, "Plans as memory gets tighter")
    _dress(means, "Mean gap of the methods that have all plans")
    figure.legend(loc="outside right center", frameon=False, fontsize=8.5)
    return png(figure)


def _draw_line(
    axis: Axes, points: Sequence[tuple[float, float]], label: str, style: Mapping[str, Style]
) -> None:
    own = style[label] if label else list(style.values())[len(axis.lines)]
    axis.plot(
        [x for x, _ in points],
        [y for _, y in points],
        label=label or None,
        color=own.color,
        marker=own.marker,
        linestyle=own.linestyle,
        markersize=5,
        linewidth=1.5,
    )


def _lowest(axis: Axes) -> float:
    """The least y of all that is drawn; 0 where nothing is."""
    low = float(axis.dataLim.ymin)
    return max(0.0, low) if math.isfinite(low) else 0.0


def _gap_axis(axis: Axes, which: str, least: float = 0.0) -> None:
    """Linear up to 1 % and logarithmic above, so that 0 (proven optimal) has a place.

    The axis begins at the last tick that is at most `least` percent.
    """
    own = axis.xaxis if which == "x" else axis.yaxis
    (axis.set_xscale if which == "x" else axis.set_yscale)("symlog", linthresh=1, linscale=0.4)
    own.set_ticks(TICKS, [f"{tick} %" for tick in TICKS])
    own.set_ticks([], minor=True)
    first = max(tick for tick in TICKS if tick <= least)
    (axis.set_xlim if which == "x" else axis.set_ylim)(first, 100)  # ticks widen the limits


def _dress(axis: Axes, title: str) -> None:
    axis.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
    axis.grid(color="#dddddd", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
