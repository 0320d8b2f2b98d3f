"""A plan as a Gantt chart, readable with thousands of ops: blocks of layers on rows of devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from placegap.experiments.show.anatomy import Anatomy
from placegap.experiments.show.drawing import COLOURS, new_figure, plain_label
from placegap.experiments.show.figures import common_unit, format_gap, format_value
from placegap.experiments.show.timeline import Block, blocks, label_ranks
from placegap.instances.problem.integers import format_bytes
from placegap.instances.reading.errors import shorten
from placegap.instances.reading.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, ROW, MOST_HEIGHT = 12.0, 0.52, 40.0  # inches: of the figure, a row, the tallest figure
LETTER = 0.064  # inches that a letter in a bar takes
FINEST = 700  # blocks are no shorter than this part of the time
MOST_KINDS = 8  # kinds of ops with a colour of their own

LONGEST_TICK = 24
# Of a row of height 1: bars, bars of transfers and how far they are below, the critical path.
BAR, MOVE, MOVE_AT, PATH_AT = 0.58, 0.12, 0.39, -0.33
FOLDED, FOLDED_BAR = 0.46, 0.26  # height of the row of devices with nothing to do, and of its bar

OTHER, IDLE, INK, PROVEN, PATH = "#9aa5ae", "#eceff1", "#37474f", "#c1121f", "#111111"
BAR_COLOURS = tuple(colour for colour in COLOURS if colour != PROVEN)


def draw_plan(found: Anatomy) -> Figure:
    """A row per device, and transfers below it."""
    # Bars are blocks of layers (or kinds of ops) on idle time. A line above a bar says that it is
    # on the critical path; a dashed one is the bound, and what lies between it and the end is red.
    drawn = found.drawn
    bound = found.bound if found.semantics.unit == "ns" else None  # it stands on the time axis
    end_ns = max(1, drawn.end_ns, 0 if bound is None else bound.value)
    unit = common_unit([end_ns]) if drawn.unit == "ns" else (drawn.unit, 1)
    scale, rows = Scale(end_ns, *unit), fold(found)
    figure = new_figure(WIDTH, min(MOST_HEIGHT, ROW * rows.height + 0.7 + 0.8))
    axis = figure.subplots(1, 1)
    shown = blocks(drawn, end_ns // FINEST)
    ranks = label_ranks(drawn, found.instance.arrays.index.topological_position.tolist())
    colours, legend = block_colours(shown, [*ranks] if drawn.by_layer else ())
    _draw_bars(axis, found, shown, colours, scale, rows)
    _draw_path(axis, found, scale, rows)
    _write_texts(axis, shown, colours, scale, rows)
    if bound is not None:
        proven, end = bound.value / scale.unit_ns, drawn.end_ns / scale.unit_ns
        axis.axvline(proven, color=PROVEN, linewidth=1.3, linestyle=(0, (4, 2)))
        axis.axvspan(proven, end, color=PROVEN, alpha=0.12, linewidth=0, zorder=0.9)
    _dress(axis, found, scale, rows)
    axis.set_xlabel(f"{drawn.meaning} ({scale.unit})", fontsize=9)
    _add_legend(figure, found, legend)
    return figure


class Scale(NamedTuple):
    """The end of the axis of time, and its unit."""

    end_ns: int
    unit: str
    unit_ns: int


class Lanes(NamedTuple):
    """Where the rows of a plan are drawn: devices that do nothing share a low one."""

    at: tuple[float, ...]  # the middle of each row
    names: tuple[tuple[float, str], ...]  # what is written beside, and where
    folded: frozenset[float]  # of these middles, those of low rows
    height: float  # of all


def fold(found: Anatomy) -> Lanes:
    """The rows of a plan; neighbours that have nothing to do are one."""
    used = {bar.row for bar in found.drawn.bars}
    at: list[float] = []
    names: list[tuple[float, str]] = []
    folded: set[float] = set()
    top = -0.5
    for has_bars, run in groupby(enumerate(found.drawn.rows), lambda each: each[0] in used):
        listed = [shorten(name, LONGEST_TICK) for _, name in run]
        if has_bars:
            middles = [top + 0.5 + k for k in range(len(listed))]
            names += zip(middles, listed, strict=True)
            at += middles
            top += len(listed)
        else:
            middle = round(top + FOLDED / 2, 3)
            said = " to ".join(listed[:1] + listed[1:][-1:])
            names.append((middle, said))
            at += [middle] * len(listed)
            folded.add(middle)
            top += FOLDED
    return Lanes(tuple(at), tuple(names), frozenset(folded), top + 0.5)


def _draw_bars(
    axis: Axes,
    found: Anatomy,
    merged: Sequence[Block],
    colours: dict[str, str],
    scale: Scale,
    rows: Lanes,
) -> None:
    unit_ns = scale.unit_ns
    idle = found.drawn.end_ns / unit_ns
    middles = [middle for middle, _ in rows.names]
    heights = [FOLDED_BAR if middle in rows.folded else BAR for middle in middles]
    for middle in rows.folded:
        axis.text(idle / 100, middle, "nothing to do", va="center_baseline", fontsize=7, color=INK)
    axis.barh(middles, idle, height=heights, color=IDLE, linewidth=0, zorder=0.8)
    for is_move, height, below in ((False, BAR, 0.0), (True, MOVE, MOVE_AT)):
        shown = [block for block in merged if block.is_move == is_move]
        axis.barh(
            [rows.at[block.row] + below for block in shown],
            [(block.end_ns - block.start_ns) / unit_ns for block in shown],
            left=[block.start_ns / unit_ns for block in shown],
            height=height,
            color=[_shade(block, colours) for block in shown],
            edgecolor="white",
            linewidth=[
                0.5 if not is_move and block.end_ns - block.start_ns > scale.end_ns // 150 else 0.0
                for block in shown
            ],
        )


def _draw_path(axis: Axes, found: Anatomy, scale: Scale, rows: Lanes) -> None:
    for _, stretch in groupby(found.path, lambda link: (link.device, link.target)):
        links = list(stretch)
        if links[0].target < 0:
            axis.plot(
                [links[0].start_ns / scale.unit_ns, links[-1].end_ns / scale.unit_ns],
                [rows.at[links[0].device] + PATH_AT] * 2,
                color=PATH,
                linewidth=1.6,
                solid_capstyle="butt",
            )


def block_colours(
    merged: Iterable[Block], layers: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """A colour for each label, and those that a legend names."""
    # More layers than there are colours go from dark to light in the order of the model, and the
    # legend names some of them; they are named in their bars, too.
    if layers:
        if len(layers) <= len(BAR_COLOURS):
            colours = dict(zip(layers, BAR_COLOURS, strict=False))
        else:
            from matplotlib import colormaps
            from matplotlib.colors import to_hex

            shades = colormaps["viridis"].resampled(len(layers))
            colours = {label: to_hex(shades(k)) for k, label in enumerate(layers)}
        last = len(layers) - 1
        steps = min(last, MOST_KINDS - 1)
        few = dict.fromkeys(round(last * n / max(1, steps)) for n in range(steps + 1))
        return colours, {layers[k]: colours[layers[k]] for k in few}
    time_ns: dict[str, int] = {}
    for block in merged:
        if not block.is_move:
            time_ns[block.label] = time_ns.get(block.label, 0) + block.end_ns - block.start_ns
    ranked = sorted(time_ns, key=lambda label: (-time_ns[label], label))
    colours = dict(zip(ranked[:MOST_KINDS], BAR_COLOURS, strict=False))
    legend = {label: colours[label] for label in time_ns if label in colours}  # as bars begin
    return colours, legend if len(ranked) <= MOST_KINDS else {**legend, "other": OTHER}


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
    axis: Axes, merged: Iterable[Block], colours: dict[str, str], scale: Scale, rows: Lanes
) -> None:
    """Names in the bars that have room for them."""
    inches = WIDTH * 0.86 / scale.end_ns
    for block in merged:
        width = (block.end_ns - block.start_ns) * inches
        whole = printable(block.text)
        forms = (whole, whole.rpartition(".")[2])  # h.11, or at least 11
        text = next((text for text in forms if len(text) * LETTER + 0.03 <= width), "")
        if block.is_move or not text:
            continue
        axis.text(
            (block.start_ns + block.end_ns) / 2 / scale.unit_ns,
            rows.at[block.row],
            text,
            ha="center",
            va="center_baseline",
            fontsize=7,
            color=_ink_on(_shade(block, colours)),
            clip_on=True,
            parse_math=False,
        )


def _dress(axis: Axes, found: Anatomy, scale: Scale, rows: Lanes) -> None:
    gap = "" if found.gap is None else f", gap {format_gap(found.gap)}"
    broken = "" if found.verdict.feasible else ", breaks rules"
    by = f", {found.method}" if found.method else ""
    title = f"{found.instance.name}: {found.semantics.label}{by}"
    axis.set_title(
        f"{shorten(title, 110)}\n{format_value(found.value, found.semantics.unit)}{gap}{broken}",
        loc="left",
        fontsize=10,
        parse_math=False,
    )
    axis.set_ylim(rows.height - 0.4, -0.5)
    axis.set_xlim(0, scale.end_ns / scale.unit_ns * 1.005)
    middles, names = zip(*rows.names, strict=True)
    axis.set_yticks(middles, names, fontsize=8.5)
    for tick in axis.get_yticklabels():
        tick.set_parse_math(False)
    axis.tick_params(length=0)
    axis.tick_params(axis="x", labelsize=8.5)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    for middle, share in zip(rows.at, found.devices, strict=False):
        if middle in rows.folded:
            continue
        axis.annotate(
            f"{100 * share.busy:.0f} % busy\n{format_bytes(share.memory_bytes)}",
            (1, middle),
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
        Patch(color=colour, label=plain_label(shorten(kind, LONGEST_TICK)))
        for kind, colour in colours.items()
    ]
    marks.append(Patch(facecolor=IDLE, edgecolor="#b0bec5", label="idle"))
    if any(bar.is_move for bar in found.drawn.bars):
        marks.append(Line2D([], [], color=INK, linewidth=2.5, label="communication"))
    if found.path:
        marks.append(Line2D([], [], color=PATH, linewidth=1.6, label="critical path"))
    if found.bound is not None and found.semantics.unit == "ns":
        label = f"no plan is below {format_value(found.bound.value)}"
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
