"""Pictures of committed results: performance profile, gap against time, CCR and memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from placegap.experiments.research.measures import ranked, with_looser_bounds
from placegap.experiments.show.drawing import dress, new_figure, png, styles
from placegap.experiments.studies.analysis import summary
from placegap.experiments.studies.plots import FEW, gap_axis, legend, plot_profile

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def profile_png(runs: pd.DataFrame) -> bytes:
    """A PNG: for each placer the share of instances whose gap is at most x, best ones first."""
    figure = new_figure(9, 5.6)
    plot_profile(runs, ax=figure.subplots())
    return png(figure)


def plot_time(runs: pd.DataFrame) -> bytes:
    """A PNG: mean gap of each placer over its mean time, on the rows where all have a plan."""
    found = ranked(runs)
    figure = new_figure(9, 5.2)
    axis = figure.subplots()
    for label, own in styles(map(str, found.index)).items():
        line = found.loc[label]
        axis.plot(1000 * line["seconds"], 100 * line["mean"], markersize=7, label=label, **own.dots)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    gap_axis(axis, "y", _lowest(axis))
    axis.set_xlabel("mean time of the placer, ms", fontsize=9)
    axis.set_ylabel("mean gap to the best bound", fontsize=9)
    left_out, rows = found[["left_out", "rows"]].iloc[0].astype(int)
    dress(axis, f"Gap against time, {rows - left_out} of {rows} instances")
    legend(axis)
    return png(figure)


def plot_ccr(runs: pd.DataFrame, least: int = 4) -> bytes:
    """A PNG: mean gap of the best placers over the communication of the graph.

    Instances are sorted by CCR and cut into groups of nearly equal size, of `least` or more.
    """
    import pandas as pd

    few = styles(map(str, ranked(runs).index[:FEW]))
    known = runs[runs["label"].isin(few)].dropna(subset="gap")
    place = (
        known[["instance_hash", "ccr"]]
        .drop_duplicates("instance_hash")
        .set_index("instance_hash")["ccr"]
    )
    count = max(1, min(8, len(place) // least))
    group = known["instance_hash"].map(pd.qcut(place.rank(method="first"), count, labels=False))
    lines = known.assign(ccr=known["ccr"].clip(lower=1e-3).map(math.log)).groupby(["label", group])
    means = lines[["ccr", "gap"]].mean()
    figure = new_figure(9, 4.8)
    axis = figure.subplots()
    for label, own in few.items():
        at = means.loc[label]
        axis.plot(at["ccr"].map(math.exp), 100 * at["gap"], label=label, **own.line)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    gap_axis(axis, "y")
    axis.set_xlabel("CCR: transfer times of all edges / times of all ops", fontsize=9)
    axis.set_ylabel("mean gap to the best bound", fontsize=9)
    dress(axis, f"Gap against communication, {len(place)} instances in {count} groups")
    legend(axis)
    return png(figure)


def plot_memory(runs: pd.DataFrame) -> bytes:
    """A PNG of two panels over the memory share: share of rows with a plan, and mean gap.

    A method has a mean where it has all plans: means over fewer rows compare with none.
    """
    found = summary(with_looser_bounds(runs), ["memory_share", "label"])
    found["share"] = 100 * found["plans"] / found["rows"]
    own_mean = with_looser_bounds(runs).groupby(["memory_share", "label"])["gap"].mean()
    found["mean"] = 100 * own_mean.where(found["plans"] == found["rows"])
    figure = new_figure(9, 6.4)
    plans, means = figure.subplots(2, 1, sharex=True)
    for label, own in styles(runs["label"]).items():
        mine = found.xs(label, level="label").sort_index()
        at = 100 * mine.index.to_numpy()
        plans.plot(at, mine["share"], label=label, **own.line, markersize=5)
        means.plot(at, mine["mean"], **own.line, markersize=5)
    plans.set_ylim(0, 104)
    plans.set_ylabel("instances with a plan, %", fontsize=9)
    gap_axis(means, "y", _lowest(means))
    means.set_ylabel("mean gap to the best bound", fontsize=9)
    means.set_xlabel("what every device holds, % of all bytes", fontsize=9)
    means.invert_xaxis()  # both panels share it
    dress(plans, "Plans as memory gets tighter")
    dress(means, "Mean gap of the methods that have all plans")
    legend(plans)
    return png(figure)


def _lowest(axis: Axes) -> float:
    """The least y of all that is drawn; 0 where nothing is."""
    low = float(axis.dataLim.ymin)
    return max(0.0, low) if math.isfinite(low) else 0.0
