"""Pictures of committed results: performance profile, and memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from placegap.experiments.research.measures import with_looser_bounds
from placegap.experiments.show.drawing import dress, new_figure, png, styles
from placegap.experiments.studies.analysis import profile, summary
from placegap.experiments.studies.plots import gap_axis, legend, plot_profile

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


SHOWN = 8  # the best methods alone have lines: 22 hide one another


def profile_png(runs: pd.DataFrame) -> bytes:
    """A PNG: for each of the best methods the share of instances whose gap is at most x."""
    figure = new_figure(9, 5.6)
    plot_profile(_best(runs), ax=figure.subplots())
    return png(figure)


def _best(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[runs["label"].isin(profile(runs).columns[:SHOWN])]


def plot_memory(runs: pd.DataFrame) -> bytes:
    """A PNG of two panels over the memory share: share of rows with a plan, and mean gap."""
    # A method has a mean where it has all plans: means over fewer rows compare with none.
    runs = _best(runs)
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
