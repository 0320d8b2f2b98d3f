"""Figures as PNG, without pyplot: nothing here chooses a backend, or is left behind."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placegap.instances.reading.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """A style for each name; of 96 names no two have the same colour and marker.

    Neighbours differ in both. Lines change with every round of colours.

    Examples
    --------
    >>> found = styles(str(k) for k in range(96))
    >>> len({(style.color, style.marker) for style in found.values()})
    96
    """
    return {
        name: Style(
            COLOURS[k % len(COLOURS)],
            MARKERS[(k + k // len(COLOURS)) % len(MARKERS)],
            LINES[k // len(COLOURS) % len(LINES)],
        )
        for k, name in enumerate(dict.fromkeys(names))
    }


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra(NO_FIGURES) from None
    return Figure(figsize=(width, height), layout="constrained")


def png(figure: Figure, dpi: int = 150) -> bytes:
    """A figure as PNG; equal figures give equal bytes.

    Examples
    --------
    >>> png(new_figure(1, 1))[1:4]
    b'PNG'
    """
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=dpi, metadata={"Software": None})
    return data.getvalue()


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, by the name of the file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "empty.svg")
    ...     write_figure(new_figure(1, 1), path)
    ...     "<svg" in path.read_text()
    True
    """
    if path.suffix.lower() == ".png":
        path.write_bytes(png(figure))
    else:
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
