"""Pictures of runs as matplotlib Axes in the style of the site, for each function of `analysis`.

A gap's axis is linear up to 1 % and logarithmic above, so that 0, proven optimal, has a place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placegap.experiments.show.drawing import (
    Style,
    dress,
    new_figure,
    plain_label,
    png,
    styles,
    write_figure,
)
from placegap.experiments.studies.analysis import (
    CAUSES,
    anytime,
    as_costs,
    compare,
    gap_table,
    over_seeds,
    profile,
    ratios,
    regressions,
    summary,
    wide,
    with_quality,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.ticker import Locator

TICKS = (0, 1, 2, 5, 10, 20, 50, 100)

# Columns of two-column papers are 3.25 (ACM) to 3.5 inches (IEEE) wide.
COLUMN_IN, COLUMN_PT = 3.3, 7

FEW = 6  # methods whose lines are bold where all would hide one another


def plot_summary(runs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The gaps of one table: a mark per row, a bar at the median, the best method on top.

    On the right: how many are optimal.

    Parameters
    ----------
    runs, ax
        Runs as of `load_runs`; axes to draw on, or None for a new figure.

    Examples
    --------
    >>> from placegap.experiments import example_runs
    >>> [text.get_text() for text in plot_summary(example_runs()).get_yticklabels()]
    ['x', 'y']
    """
    axis = ax or _new(runs["label"].nunique())
    style = styles(runs["cluster"])
    _draw_summary(axis, runs, style)
    for name, own in style.items():
        axis.plot([], [], **own.dots, label=plain_label(name))
    legend(axis)
    return axis


def _draw_summary(axis: Axes, runs: pd.DataFrame, style: Mapping[str, Style]) -> None:
    counts, known = summary(runs, "label"), over_seeds(runs).dropna(subset="gap")
    ranked = known.groupby("label", sort=False)["gap"].agg(["median", "mean"])
    ranked = ranked.sort_values(["median", "mean"], kind="stable")
    row_of = {label: row for row, label in enumerate(ranked.index)}
    for name, mine in known.groupby("cluster", sort=False):
        dots: dict[str, Any] = {"markersize": 5.5, "alpha": 0.6, "markeredgewidth": 0}
        at = mine["label"].map(row_of)
        axis.plot(100 * mine["gap"], at, **style[str(name)].dots, **dots, clip_on=False)
    for label, row in row_of.items():
        bar: dict[str, Any] = {"color": "#222222", "linewidth": 1.8, "zorder": 1}
        axis.vlines(100 * ranked["median"][label], row - 0.34, row + 0.34, **bar)
        _beside(axis, row, f"{counts['optimal'][label]}/{counts['plans'][label]}")
    _beside(axis, -0.8, "optimal")
    gap_axis(axis, "x")
    axis.set_ylim(max(1, len(row_of)) - 0.4, -0.6)
    axis.set_yticks(range(len(row_of)), [plain_label(str(label)) for label in row_of])
    _name(axis, "", "gap to the best bound (bar: median)")
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0, pad=8)


def _name(axis: Axes, title: str, x: str, y: str = "") -> None:
    axis.set_xlabel(x, fontsize=9)
    axis.set_ylabel(y, fontsize=9)
    dress(axis, title)


def _beside(axis: Axes, row: float, text: str) -> None:
    at: Any = ("axes fraction", "data")
    axis.annotate(text, (1.01, row), xycoords=at, va="center", fontsize=9, color="#444444")


def plot_gap_table(runs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The gap table as a heat map, in percent; grey where there is no gap.

    Parameters
    ----------
    runs, ax
        Runs as of `load_runs`; axes to draw on, or None for a new figure.

    Examples
    --------
    >>> from placegap.experiments import example_runs
    >>> [text.get_text() for text in plot_gap_table(example_runs()).texts]
    ['0', '50', '20', '50', '0']
    """
    gaps = 100 * gap_table(runs).astype(float)
    axis = ax or _new(len(gaps))
    axis.set_facecolor("#dddddd")
    axis.imshow(gaps, cmap="YlOrBr", vmin=0, vmax=100, aspect="auto")
    axis.set_xticks(
        range(gaps.shape[1]), [plain_label(str(x)) for x in gaps], rotation=60, ha="right"
    )
    axis.set_yticks(range(len(gaps)), [plain_label(", ".join(map(str, x))) for x in gaps.index])
    axis.tick_params(length=0, labelsize=8)
    for row, line in enumerate(gaps.to_numpy()):
        for column, gap in enumerate(line):
            if not math.isnan(gap):
                axis.text(column, row, f"{gap:.3g}", ha="center", va="center", fontsize=8)
    return axis


def plot_compare(runs: pd.DataFrame, a: str, b: str, ax: Axes | None = None) -> Axes:
    """Value of `a` over value of `b`, row by row, the best first; below 1 `a` is better.

    Parameters
    ----------
    runs, ax
        Runs as of `load_runs`; axes to draw on, or None for a new figure.
    a, b
        Labels of two methods.

    Examples
    --------
    >>> from placegap.experiments import example_runs
    >>> plot_compare(example_runs(), "x", "y").lines[0].get_ydata().tolist()
    [0.5, 0.625]
    """
    from matplotlib.ticker import MaxNLocator

    axis = ax or _new(8)
    compared, style = compare(runs, a, b), styles(runs["table"])
    for table, group in over_seeds(as_costs(runs, "value_ns")).groupby("table", sort=False):
        values = wide(group, "label", "value_ns").reindex(columns=[*dict.fromkeys([a, b])])
        over = ratios(values[a], values[b]).dropna().sort_values()
        if len(over):
            line = compared.loc[table]
            label = f"{table}: {line.ratio:.3f} ({line.low:.3f} to {line.high:.3f})"
            own = style[str(table)].line
            axis.plot(range(1, len(over) + 1), over, label=plain_label(label), **own)
    axis.axhline(1, color="#222222", linewidth=1)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_yscale("log")
    _plain_ticks(axis.yaxis, MaxNLocator(5))  # ratios are close together
    value = f"value of {plain_label(a)} / {plain_label(b)}"
    _name(axis, f"{a} against {b}: geometric mean (95 % interval)", "rows, sorted", value)
    axis.legend(frameon=False, fontsize=8.5)
    return axis


def plot_profile(runs: pd.DataFrame, of: str = "gap", ax: Axes | None = None) -> Axes:
    """The performance profile: for each method the share of rows whose gap is at most x.

    Parameters
    ----------
    runs, ax
        Runs as of `load_runs`; axes to draw on, or None for a new figure.
    of
        ``gap`` or ``lost``, as of `profile`.

    Examples
    --------
    >>> from placegap.experiments import example_runs
    >>> len(plot_profile(example_runs()).lines)
    2
    """
    axis = ax or _new(14)
    shares = profile(runs, of)
    style = styles(map(str, shares))
    for at, (label, own) in enumerate(style.items()):
        line: dict[str, Any] = {"color": own.color, "linestyle": own.linestyle}
        line |= {"linewidth": 2.2 if at < FEW else 1.2, "label": plain_label(label)}
        axis.step(100 * shares.index, 100 * shares[label], where="post", **line)
    gap_axis(axis, "x")
    axis.set_ylim(0, 101)
    to = "best bound" if of == "gap" else "best plan"
    _name(axis, "Performance profile", f"gap to the {to}, at most", "share of rows, %")
    legend(axis)
    return axis


def plot_explain(runs: pd.DataFrame, cause: str = "ccr", ax: Axes | None = None) -> Axes:
    """The gap of every method and row over one of the row's properties (`CAUSES`), by table.

    Parameters
    ----------
    runs, ax
        Runs as of `load_runs`; axes to draw on, or None for a new figure.
    cause
        A key of `CAUSES`: ``ccr``, ``num_ops``, ``memory_pressure`` or ``bound_quality``.

    Examples
    --------
    >>> from placegap.experiments import example_runs
    >>> plot_explain(example_runs(), "num_ops").lines[0].get_xdata().tolist()
    [7.0, 7.0, 9.0, 9.0, 8.0]
    """
    from matplotlib.ticker import LogLocator

    axis = ax or _new(10)
    style = styles(runs["table"])
    known = with_quality(over_seeds(runs)).dropna(subset=["gap", cause])
    for table, group in known.groupby("table", sort=False):
        gaps, own = 100 * group["gap"], style[str(table)]
        axis.plot(
            group[cause].astype(float), gaps, label=plain_label(str(table)), **own.dots, alpha=0.6
        )
    if cause != "bound_quality":
        axis.set_xscale("log")
        _plain_ticks(axis.xaxis, LogLocator(subs=(1, 2, 5)))
    gap_axis(axis, "y")
    _name(axis, "", CAUSES[cause], "gap to the best bound")
    legend(axis)
    return axis


def plot_regressions(
    old: pd.DataFrame, new: pd.DataFrame, tolerance: float = 0.01, ax: Axes | None = None
) -> Axes:
    """A bar per row that became worse, in percent; hatched if there is no plan any more.

    Parameters
    ----------
    old, new, tolerance, ax
        As for `regressions`; axes to draw on, or None for a new figure.

    Examples
    --------
    >>> from placegap.experiments import example_runs
    >>> old = example_runs()
    >>> len(plot_regressions(old, old.assign(value_ns=old["value_ns"] * 2)).patches)
    5
    """
    worse = regressions(old, new, tolerance)
    axis = ax or _new(max(1, len(worse)))
    more = 100 * (worse["ratio"] - 1)
    most = max([*more[more < math.inf], 1000 * tolerance])
    bars = axis.barh(range(len(worse)), more.clip(upper=most), color="#c1121f", alpha=0.8)
    for bar, percent in zip(bars, more, strict=True):
        bar.set_hatch("//" if percent == math.inf else "")
    names = worse["label"] + " on " + worse["instance"] + ", " + worse["cluster"]
    axis.set_yticks(range(len(worse)), [plain_label(name) for name in names])
    axis.invert_yaxis()
    title = f"{len(worse)} rows are worse by more than {100 * tolerance:g} %"
    _name(axis, title, "worse than before, %")
    return axis


def plot_anytime(runs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The mean distance to the best plan over time, a line per method (`anytime`).

    Parameters
    ----------
    runs, ax
        Runs as of `load_runs`; axes to draw on, or None for a new figure.

    Examples
    --------
    >>> from placegap.experiments import example_runs
    >>> len(plot_anytime(example_runs().assign(solve_s=0.5)).lines)
    2
    """
    axis = ax or _new(10)
    found = anytime(runs)
    for label, own in styles(map(str, found)).items():
        line: dict[str, Any] = {"color": own.color, "linestyle": own.linestyle}
        axis.step(found.index, 100 * found[label], where="post", label=plain_label(label), **line)
    axis.set_xscale("log")
    gap_axis(axis, "y")
    _name(axis, "", "seconds", "mean gap to best plan")
    legend(axis)
    return axis


def save_figure(axis: Axes, path: str | Path, width_in: float = COLUMN_IN) -> Path:
    """Write a picture for a paper: as wide as a column, 7 pt, the legend below, fonts embedded.

    Parameters
    ----------
    axis
        What a ``plot_`` function returned; its whole figure is changed and written.
    path
        A file that ends in ``.pdf`` (TrueType fonts, no Type 3), ``.svg`` or ``.png``.
    width_in
        Inches; by default a column of two.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> from placegap.experiments import example_runs
    >>> save_figure(plot_profile(example_runs()), Path(mkdtemp(), "profile.pdf")).name
    'profile.pdf'
    """
    from matplotlib.text import Text

    figure: Any = axis.figure
    shown = axis.get_legend_handles_labels()
    for old in (*figure.legends, *filter(None, [axis.get_legend()])):
        old.remove()
    columns = max(1, int(15 * width_in) // (max(map(len, shown[1]), default=0) + 6))
    if shown[1]:
        below = {"loc": "outside lower center", "frameon": False, "labelspacing": 0.2}
        figure.legend(*shown, **below, ncols=columns, columnspacing=1.0, handletextpad=0.5)
    axis.set_title("", loc="left")  # papers have captions
    for one in (axis.xaxis, axis.yaxis):
        ticks = [tick.get_text() for tick in one.get_ticklabels()]
        if any(tick.endswith(" %") for tick in ticks):
            one.set_ticklabels([tick.removesuffix(" %") for tick in ticks])
            one.set_label_text(", ".join(filter(None, [one.get_label_text(), "%"])))
    lines = math.ceil(len(shown[1]) / columns)
    high_in = max(0.62 * width_in, 0.36 * figure.get_size_inches()[1])
    figure.set_size_inches(width_in, high_in + 0.13 * lines)
    for text in figure.findobj(Text):
        text.set_fontsize(COLUMN_PT)
    write_figure(figure, Path(path))
    return Path(path)


def gaps_png(runs: pd.DataFrame) -> bytes:
    """A PNG of all tables of a study (`plot_summary`)."""
    tables = [table for _, table in runs.groupby("table", sort=False)]
    heights = [table["label"][table["gap"].notna()].nunique() + 1.9 for table in tables]
    figure = new_figure(9, 0.34 * sum(heights) + 0.9)
    axes = figure.subplots(len(tables), 1, height_ratios=heights, squeeze=False)
    style = styles(runs["cluster"])
    for axis, table in zip(axes[:, 0], tables, strict=True):
        _draw_summary(axis, table, style)
        name, semantics = table[["table", "semantics"]].iloc[0]
        title = f"{name} ({semantics.replace('_', ' ')})"
        axis.set_title(plain_label(title), loc="left", fontsize=10.5)
    for name, own in style.items():
        axes[0, 0].plot([], [], **own.dots, label=plain_label(name))
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return png(figure)


def _new(num_lines: int) -> Axes:
    figure = new_figure(9, 0.34 * max(1, num_lines) + 1.4)
    axis: Axes = figure.subplots()
    # what a notebook asks for, as there is no pyplot here that would show it
    axis._repr_png_ = partial(png, figure, dpi=90)  # type: ignore[attr-defined]
    return axis


def _plain_ticks(axis: Axis, locator: Locator) -> None:
    axis.set_major_locator(locator)
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def gap_axis(axis: Axes, which: str, least: float = 0.0) -> None:
    """Linear up to 1 % and logarithmic above; from the last tick that is at most `least`."""
    own = axis.xaxis if which == "x" else axis.yaxis
    (axis.set_xscale if which == "x" else axis.set_yscale)("symlog", linthresh=1, linscale=0.4)
    own.set_ticks(TICKS, [f"{tick} %" for tick in TICKS])
    own.set_ticks([], minor=True)
    first = max(tick for tick in TICKS if tick <= least)
    (axis.set_xlim if which == "x" else axis.set_ylim)(first, 100)  # ticks widen the limits


def legend(axis: Axes) -> None:
    """A legend to the right of the axes."""
    if axis.get_legend_handles_labels()[0]:
        axis.figure.legend(loc="outside right center", frameon=False, fontsize=8.5)
