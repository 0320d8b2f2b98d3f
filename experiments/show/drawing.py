"""Figures as PNG, without pyplot: nothing here chooses a backend, or is left behind."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placegap.instances.files.output_files import write_bytes
from placegap.instances.reading.errors import MissingExtra
from placegap.instances.reading.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placegap.instances.importers.measurements import Deviations


NO_FIGURES = "figures need matplotlib: pip install 'placegap[plots]'"

COLOURS = (
    "#2a6f97",
    "#e07a1f",
    "#6a994e",
    "#9b5de5",
    "#c1121f",
    "#8d6e63",
    "#17becf",
    "#555555",
    "#e377c2",
    "#bcbd22",
    "#1b3a8c",
    "#7a0045",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Style:
    """How one of several things is drawn, as keywords for matplotlib."""

    color: str
    marker: str
    linestyle: str = ""

    @property
    def dots(self) -> dict[str, Any]:
        """Markers without lines."""
        return {**asdict(self), "linestyle": ""}

    @property
    def line(self) -> dict[str, Any]:
        """A line with markers."""
        return asdict(self)


def styles(names: Iterable[str]) -> dict[str, Style]:
    """A style for each name; of 96 names no two have the same colour and marker."""
    # Neighbours differ in both. Lines change with every round of colours.
    return {
        name: Style(
            COLOURS[k % len(COLOURS)],
            MARKERS[(k + k // len(COLOURS)) % len(MARKERS)],
            LINES[k // len(COLOURS) % len(LINES)],
        )
        for k, name in enumerate(dict.fromkeys(names))
    }


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra(NO_FIGURES) from None
    return Figure(figsize=(width, height), layout="constrained")


def png(figure: Figure, dpi: int = 150) -> bytes:
    """A figure as PNG; equal figures give equal bytes."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=dpi, metadata={"Software": None})
    return data.getvalue()


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, PDF or SVG, by the name of the file."""
    from matplotlib import rc_context

    data = io.BytesIO()
    if path.suffix.lower() == ".png":
        data.write(png(figure))
    elif path.suffix.lower() == ".pdf":
        with rc_context({"pdf.fonttype": 42}):  # TrueType: journals refuse Type 3
            figure.savefig(data, format="pdf", metadata={"CreationDate": None})
    else:
        figure.savefig(data, format="svg", metadata={"Date": None, "Creator": None})
    write_bytes(data.getvalue(), path)


def plain_label(name: str) -> str:
    r"""A name for a legend or an axis: no formula, and no sign that is not seen."""
    return printable(name).replace("$", r"\$")


def dress(axis: Axes, title: str) -> None:
    """A title at the left, a grey grid behind the curves, and no frame but the axes."""
    axis.set_title(title, loc="left", fontsize=10.5, fontweight="bold", parse_math=False)
    axis.grid(color="#dddddd", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


LARGEST_PERCENT = 100.0


def plot_deviations(found: Mapping[str, Deviations], title: str) -> bytes:
    """A PNG with a step per quantity: share of items whose relative deviation is at most x."""
    # As figure 5 of the Celeritas paper. The axis ends at 100 %; curves that end below 1 there have
    # items that are further off, or all items are undefined.
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
            label=plain_label(f"{name} ({len(one.relative)})"),
            color=style[name].color,
            linestyle=style[name].linestyle,
        )
    axis.set_xlim(0, LARGEST_PERCENT)
    axis.set_ylim(0, 1.02)
    axis.set_xlabel("relative deviation, %", fontsize=9)
    axis.set_ylabel("share of items", fontsize=9)
    dress(axis, title)
    if found:
        axis.legend(frameon=False, fontsize=9, loc="lower right")
    return png(figure)


def distribution(one: Deviations) -> tuple[list[float], list[float]]:
    """Corners of the distribution function: deviation in percent, and share of items up to it."""
    import numpy as np  # the command line loads this module

    value, count = np.unique(100 * one.relative, return_counts=True)
    share = np.cumsum(count) / max(1, len(one.relative))
    inside = value <= LARGEST_PERCENT
    at, up_to = value[inside].tolist(), share[inside].tolist()
    if not at or at[-1] < LARGEST_PERCENT:
        at.append(LARGEST_PERCENT)
        up_to.append(up_to[-1] if up_to else 0.0)
    return at, up_to
