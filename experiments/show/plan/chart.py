"""A plan as a chart that is readable with thousands of ops: blocks of layers on rows of devices."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from placegap.experiments.show.anatomy import Anatomy
from placegap.experiments.show.drawing import COLOURS, new_figure
from placegap.experiments.show.figures import common_unit, format_gap, format_ns
from placegap.experiments.show.timeline import Block, blocks
from placegap.instances.problem.integers import format_bytes
from placegap.instances.reading.errors import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, ROW, MOST_HEIGHT = 12.0, 0.52, 40.0
"""Inches: of the figure, of a row, and of the tallest figure."""

LETTER = 0.064
"""Inches that a letter in a bar takes."""

FINEST = 700
"""Blocks are no shorter than this part of the time."""

MOST_KINDS = 8
"""Kinds of ops with a colour of their own."""

LONGEST_TICK = 24
BAR, MOVE, MOVE_AT, PATH_AT = 0.58, 0.12, 0.39, -0.33
"""Of a row of height 1: bars, bars of transfers and how far they are below, the critical path."""

OTHER, IDLE, INK, PROVEN, PATH = "#9aa5ae", "#eceff1", "#37474f", "#c1121f", "#111111"
BAR_COLOURS = tuple(colour for colour in COLOURS if colour != PROVEN)


def draw_plan(found: Anatomy, width: float = WIDTH) -> Figure:
    """One row per device: blocks of layers (or kinds of ops), idle time, transfers below.

    A line above a bar says that it is on the critical path; a dashed one is the bound. The width is
    in inches: letters are larger beside a narrower chart.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.

    Examples
    --------
    >>> from placegap.experiments.show.anatomy import take_apart
    >>> from placegap.instances import Makespan, Plan, example
    >>> figure = draw_plan(take_apart(example(), Plan.on([0, 0, 1, 0]), Makespan(), num_moves=0))
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['gpu0', 'gpu1']
    """
    drawn = found.drawn
    end_ns = max(1, drawn.end_ns, found.bound.ns if found.bound else 0)
    unit, unit_ns = common_unit([end_ns])
    figure = new_figure(width, min(MOST_HEIGHT, ROW * len(drawn.rows) + 1.5))
    axis = figure.subplots()
    merged = blocks(drawn, drawn.end_ns // FINEST)
    colours, legend = block_colours(merged, by_layer=drawn.by_layer)
    rows = range(len(drawn.rows))
    axis.barh(rows, drawn.end_ns / unit_ns, height=BAR, color=IDLE, linewidth=0, zorder=0.8)
    for is_move, height, below in ((False, BAR, 0.0), (True, MOVE, MOVE_AT)):
        shown = [block for block in merged if block.is_move == is_move]
        axis.barh(
            [block.row + below for block in shown],
            [(block.end_ns - block.start_ns) / unit_ns for block in shown],
            left=[block.start_ns / unit_ns for block in shown],
            height=height,
            color=[_shade(block, colours) for block in shown],
            edgecolor="white",
            linewidth=[
                0.5 if not is_move and block.end_ns - block.start_ns > end_ns // 150 else 0.0
                for block in shown
            ],
        )
    for _, stretch in groupby(found.path, lambda link: (link.device, link.target)):
        links = list(stretch)
        if links[0].target < 0:
            axis.plot(
                [links[0].start_ns / unit_ns, links[-1].end_ns / unit_ns],
                [links[0].device + PATH_AT] * 2,
                color=PATH,
                linewidth=1.6,
                solid_capstyle="butt",
            )
    _write_texts(axis, merged, end_ns, unit_ns, colours, width)
    if found.bound is not None:
        axis.axvline(found.bound.ns / unit_ns, color=PROVEN, linewidth=1.3, linestyle=(0, (4, 2)))
    _dress(axis, found, f"{drawn.meaning} ({unit})", end_ns / unit_ns)
    _add_legend(figure, found, legend)
    return figure


def block_colours(
    merged: Iterable[Block], *, by_layer: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """A colour for each label, and those that a legend names: layers are named in their bars.

    Examples
    --------
    >>> block_colours([Block(0, False, 0, 9, "a", "Conv", "", 1, 9)], by_layer=False)[1]
    {'Conv': '#2a6f97'}
    """
    time_ns: dict[str, int] = {}
    for block in merged:
        if not block.is_move:
            time_ns[block.label] = time_ns.get(block.label, 0) + block.end_ns - block.start_ns
    if by_layer:  # neighbours differ
        return {label: BAR_COLOURS[k % len(BAR_COLOURS)] for k, label in enumerate(time_ns)}, {}
    ranked = sorted(time_ns, key=lambda label: (-time_ns[label], label))
    colours = dict(zip(ranked[:MOST_KINDS], BAR_COLOURS, strict=False))
    return colours, colours if len(ranked) <= MOST_KINDS else {**colours, "other": OTHER}


Colour = tuple[float, float, float]


def _shade(block: Block, colours: dict[str, str]) -> Colour:
    """The colour of a block; the more of it is idle, the nearer it is to that of idle time."""
    from matplotlib.colors import to_rgb

    full = to_rgb(INK if block.is_move else colours.get(block.label, OTHER))
    empty, fill = to_rgb(IDLE), block.fill
    red, green, blue = (fill * a + (1 - fill) * b for a, b in zip(full, empty, strict=True))
    return red, green, blue


def _ink_on(colour: Colour) -> str:
    """Black or white, whichever can be read on a colour."""
    red, green, blue = colour
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.6 else "white"


def _write_texts(
    axis: Axes,
    merged: Iterable[Block],
    end_ns: int,
    unit_ns: int,
    colours: dict[str, str],
    width: float,
) -> None:
    """Names in the bars that have room for them."""
    inches = width * 0.86 / end_ns
    for block in merged:
        width = (block.end_ns - block.start_ns) * inches
        forms = (block.text, block.text.rpartition(".")[2])  # h.11, or at least 11
        text = next((text for text in forms if len(text) * LETTER + 0.03 <= width), "")
        if block.is_move or not text:
            continue
        axis.text(
            (block.start_ns + block.end_ns) / 2 / unit_ns,
            block.row,
            text,
            ha="center",
            va="center_baseline",
            fontsize=7,
            color=_ink_on(_shade(block, colours)),
            clip_on=True,
            parse_math=False,
        )


def _dress(axis: Axes, found: Anatomy, label: str, end: float) -> None:
    names = [shorten(name, LONGEST_TICK) for name in found.drawn.rows]
    gap = "" if found.gap is None else f", gap {format_gap(found.gap)}"
    broken = "" if found.verdict.feasible else ", breaks rules"
    by = f", {found.method}" if found.method else ""
    title = f"{found.instance.name}: {found.semantics.label}{by}"
    axis.set_title(
        f"{shorten(title, 110)}\n{format_ns(found.value_ns)}{gap}{broken}",
        loc="left",
        fontsize=10,
        parse_math=False,
    )
    axis.set_ylim(len(names) - 0.4, -0.5)
    axis.set_xlim(0, end * 1.005)
    axis.set_yticks(range(len(names)), names, fontsize=8.5)
    for tick in axis.get_yticklabels():
        tick.set_parse_math(False)
    axis.tick_params(length=0)
    axis.tick_params(axis="x", labelsize=8.5)
    axis.set_xlabel(label, fontsize=9)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    for row, share in enumerate(found.devices):
        axis.annotate(
            f"{100 * share.busy:.0f} % busy\n{format_bytes(share.memory_bytes)}",
            (1, row),
            xycoords=("axes fraction", "data"),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
            color=INK,
            annotation_clip=False,
        )


def _add_legend(figure: Figure, found: Anatomy, colours: dict[str, str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Patch | Line2D] = [
        Patch(color=colour, label=shorten(kind, LONGEST_TICK).replace("$", r"\$"))
        for kind, colour in colours.items()
    ]
    marks.append(Patch(facecolor=IDLE, edgecolor="#b0bec5", label="idle"))
    if any(bar.is_move for bar in found.drawn.bars):
        marks.append(Line2D([], [], color=INK, linewidth=2.5, label="communication"))
    if found.path:
        marks.append(Line2D([], [], color=PATH, linewidth=1.6, label="critical path"))
    if found.bound is not None:
        label = f"no plan is below {format_ns(found.bound.ns)}"
        marks.append(Line2D([], [], color=PROVEN, linestyle=(0, (4, 2)), label=label))
    figure.legend(
        handles=marks,
        loc="outside lower center",
        ncols=min(len(marks), 8),
        frameon=False,
        fontsize=8,
        handlelength=1.3,
        columnspacing=1.3,
        handletextpad=0.5,
    )
