"""Pictures of the pages: performance profile, memory, and two schedules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from placegap.experiments.research.measures import with_looser_bounds
from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.show.anatomy import take_apart
from placegap.experiments.show.drawing import dress, new_figure, png, styles
from placegap.experiments.show.figures import format_value
from placegap.experiments.show.gantt import IDLE, INK, PROVEN
from placegap.experiments.studies.analysis import profile, summary
from placegap.experiments.studies.plots import gap_axis, legend, plot_profile
from placegap.instances.problem import Makespan
from placegap.solvers import run_method

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


SCHEDULES = {"heft": "HEFT", "decomposition": "The proven optimum"}
OPS, US = "#2a6f97", 1000
"""The colour of ops, and ns in a microsecond."""


def plot_schedules(model: str = "inception_v1", cluster: str = "celeritas-4xV100-pcie") -> bytes:
    """A PNG: a heuristic's schedule above the optimum; what the heuristic loses is red."""
    # A telephone draws it 350 pixels wide, where 10 points of 5.2 inches are 9 pixels: few words,
    # and one colour for all ops.
    instance, rules = load_source(Source(model, cluster)), Makespan(channels="port")
    figure = new_figure(5.2, 3.6)
    axes = figure.subplots(2, 1, sharex=True)
    ends = []
    for axis, (method, name) in zip(axes, SCHEDULES.items(), strict=True):
        result = run_method(instance, rules, method, time_limit_s=60)
        assert result.plan is not None
        assert result.value is not None
        found = take_apart(instance, result.plan, rules, num_moves=0)
        assert found is not None
        rows = range(instance.num_devices)
        axis.barh(rows, result.value / US, height=0.56, color=IDLE, zorder=0)
        for is_move, at, high, colour in ((False, 0.0, 0.56, OPS), (True, 0.4, 0.16, INK)):
            bars = [bar for bar in found.drawn.bars if bar.is_move == is_move]
            axis.barh(
                [bar.row + at for bar in bars],
                [bar.time_ns / US for bar in bars],
                left=[bar.start_ns / US for bar in bars],
                height=high,
                color=colour,
            )
        ends.append(result.value / US)
        axis.set_title(f"{name}: {format_value(result.value)}", loc="left", fontsize=11)
        axis.set_yticks(rows, found.drawn.rows, fontsize=10)
        axis.set_ylim(instance.num_devices - 0.4, -0.5)
        axis.tick_params(length=0, labelsize=10)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
    for axis in axes:
        axis.axvline(min(ends), color=PROVEN, linestyle=(0, (4, 2)), linewidth=1.5)
    axes[0].axvspan(min(ends), max(ends), color=PROVEN, alpha=0.15, linewidth=0)
    axes[1].set_xlim(0, max(ends) * 1.01)
    axes[1].set_xlabel("time (us); blue: ops, dark: transfers", fontsize=10)
    return png(figure, 240)
