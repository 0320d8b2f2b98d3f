"""The picture of a deviation report: the distribution of how far estimates are off."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from placegap.experiments.show.drawing import new_figure, png, styles
from placegap.instances.io.measurements import Deviations

LARGEST_PERCENT = 100.0


def plot_deviations(found: Mapping[str, Deviations], title: str) -> bytes:
    """A PNG with a step per quantity: share of items whose relative deviation is at most x.

    As figure 5 of the Celeritas paper. The axis ends at 100 %; curves that end below 1 there have
    items that are further off, or all items are undefined.
    """
    figure = new_figure(7, 4.2)
    axis = figure.subplots()
    style = styles(found)
    for name, one in found.items():
        at, share = distribution(one)
        axis.step(
            at,
            share,
            where="post",
            linewidth=1.8,
            label=f"{name} ({len(one.relative)})",
            color=style[name].color,
            linestyle=style[name].linestyle,
        )
    axis.set_xlim(0, LARGEST_PERCENT)
    axis.set_ylim(0, 1.02)
    axis.set_xlabel("relative deviation, %", fontsize=9)
    axis.set_ylabel("share of items", fontsize=9)
    axis.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
    axis.grid(color="#dddddd", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    if found:
        axis.legend(frameon=False, fontsize=9, loc="lower right")
    return png(figure)


def distribution(one: Deviations) -> tuple[list[float], list[float]]:
    """Corners of the distribution function: deviation in percent, and share of items up to it.

    Examples
    --------
    >>> distribution(Deviations(np.array([0.0, 0.1, 0.1, 2.0]), 0))
    ([0.0, 10.0, 100.0], [0.25, 0.75, 0.75])
    """
    value, count = np.unique(100 * one.relative, return_counts=True)
    share = np.cumsum(count) / max(1, len(one.relative))
    inside = value <= LARGEST_PERCENT
    at, up_to = value[inside].tolist(), share[inside].tolist()
    if not at or at[-1] < LARGEST_PERCENT:
        at.append(LARGEST_PERCENT)
        up_to.append(up_to[-1] if up_to else 0.0)
    return at, up_to
