"""Schedules as a Gantt chart: what every device does and when, one schedule above the other.

``python -m placegap.experiments.show.gantt NETWORK CLUSTER HEURISTIC OUT.png`` draws the schedule
of a heuristic above the best one that `decomposition` finds, with the bound that it proves.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from placegap.experiments.show.drawing import COLOURS, new_figure, png
from placegap.experiments.show.figures import common_unit, format_gap, format_ns
from placegap.instances import load_cluster, load_corpus
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Schedule
from placegap.instances.problem.semantics import Makespan
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers import solve
from placegap.solvers.core.result import relative_gap, with_reason
from placegap.solvers.solving.known_bounds import known_bound, proven_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAKESPAN = Makespan(channels="port")
"""The rules of the command's schedules: one transfer at a time in and out of each device."""

TIME_LIMIT_S = 20.0
DPI = 200
NUM_KINDS = 4
"""Kinds of ops with a colour of their own; the others share one."""

OTHER, IDLE, INK, PROVEN = "#9aa5ae", "#e6eaed", "#222222", "#c1121f"
OP_HEIGHT, TRANSFER_HEIGHT, TRANSFER_AT = 0.56, 0.14, 0.38
"""Of a row of height 1: the bar of ops, the bar of transfers, and how far it is below."""


class Scheduled(NamedTuple):
    """A schedule to draw, the instance that it is of, and the line above it."""

    title: str
    instance: Instance
    schedule: Schedule


def draw_schedules(shown: Sequence[Scheduled], bound_ns: int | None = None) -> Figure:
    """A chart with one panel for each schedule, all on the same time axis.

    A row is a device: its ops in the colour of their kind, a grey background where it is idle, and
    a thin black bar below for as long as it sends or receives a tensor.

    Parameters
    ----------
    shown : sequence of Scheduled
        From top to bottom; a line marks the makespan of each.
    bound_ns : int, optional
        What no plan's makespan is below: a dashed line through all panels.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.

    Examples
    --------
    >>> from placegap.instances import Plan, example
    >>> schedule = evaluate(example(), Plan.on([0, 0, 1, 0]), MAKESPAN).schedule
    >>> len(draw_schedules([Scheduled("a plan", example(), schedule)], bound_ns=34).axes)
    1
    """
    longest_ns = max([one.schedule.makespan_ns for one in shown] + [bound_ns or 1])
    unit, unit_ns = common_unit([longest_ns])
    colours = kind_colours(shown)
    rows = [one.instance.num_devices for one in shown]
    figure = new_figure(9, 0.4 * sum(rows) + 0.45 * len(rows) + 0.8)
    axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
    for axis, one in zip(axes, shown, strict=True):
        _draw_ops(axis, one, colours, unit_ns)
        _draw_transfers(axis, one.schedule, unit_ns)
        _mark(axis, one, bound_ns, unit_ns)
        _dress(axis, one)
        axis.set_xlim(0, longest_ns / unit_ns)
    axes[-1].set_xlabel(f"time, {unit}", fontsize=9)
    axes[-1].tick_params(axis="x", labelsize=8.5)
    _add_legend(figure, colours, bound_ns)
    return figure


def kind_colours(shown: Sequence[Scheduled]) -> dict[str, str]:
    """A colour for each of the kinds of ops that run longest, and one for all ``other`` kinds.

    Examples
    --------
    >>> from placegap.instances import Plan, example
    >>> schedule = evaluate(example(), Plan.on([0, 0, 0, 0]), MAKESPAN).schedule
    >>> kind_colours([Scheduled("one device", example(), schedule)])
    {'op': '#2a6f97'}
    """
    time_ns: dict[str, int] = {}
    for one in shown:
        lasts_ns = (one.schedule.end_ns - one.schedule.start_ns).tolist()
        for op, ns in zip(one.instance.graph.ops, lasts_ns, strict=True):
            time_ns[op.kind] = time_ns.get(op.kind, 0) + ns
    ranked = sorted(time_ns, key=lambda kind: (-time_ns[kind], kind))
    colours = dict(zip(ranked[:NUM_KINDS], COLOURS, strict=False))
    return colours if len(ranked) <= NUM_KINDS else {**colours, "other": OTHER}


def _draw_ops(axis: Axes, one: Scheduled, colours: Mapping[str, str], unit_ns: int) -> None:
    schedule, devices = one.schedule, range(one.instance.num_devices)
    axis.barh(
        devices,
        schedule.makespan_ns / unit_ns,
        height=OP_HEIGHT,
        color=IDLE,
        linewidth=0,
        zorder=0.8,
    )
    axis.barh(
        schedule.device,
        (schedule.end_ns - schedule.start_ns) / unit_ns,
        left=schedule.start_ns / unit_ns,
        height=OP_HEIGHT,
        linewidth=0.4,
        edgecolor="white",
        color=[colours.get(op.kind, OTHER) for op in one.instance.graph.ops],
    )


def _draw_transfers(axis: Axes, schedule: Schedule, unit_ns: int) -> None:
    moved = schedule.transfers
    for device in (moved.source, moved.destination):
        axis.barh(
            device + TRANSFER_AT,
            (moved.end_ns - moved.start_ns) / unit_ns,
            left=moved.start_ns / unit_ns,
            height=TRANSFER_HEIGHT,
            color=INK,
            linewidth=0,
        )


def _mark(axis: Axes, one: Scheduled, bound_ns: int | None, unit_ns: int) -> None:
    """Lines at the makespan and at the bound, what lies between in red, and the figures above."""
    end_ns = one.schedule.makespan_ns
    gap = relative_gap(end_ns, bound_ns)
    text = format_ns(end_ns) if gap is None else f"{format_ns(end_ns)}, gap {format_gap(gap)}"
    axis.axvline(end_ns / unit_ns, color=INK, linewidth=1.6, clip_on=False)
    axis.annotate(
        text,
        (end_ns / unit_ns, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=9.5,
        fontweight="bold",
    )
    if bound_ns is not None:
        axis.axvline(bound_ns / unit_ns, color=PROVEN, linewidth=1.4, linestyle=(0, (4, 2)))
        lost = bound_ns / unit_ns, end_ns / unit_ns
        axis.axvspan(*lost, color=PROVEN, alpha=0.12, linewidth=0, zorder=0.9)


def _dress(axis: Axes, one: Scheduled) -> None:
    names = [device.name for device in one.instance.cluster.devices]
    axis.set_title(one.title, loc="left", fontsize=10.5, fontweight="bold")
    axis.set_ylim(len(names) - 0.45, -0.45)
    axis.set_yticks(range(len(names)), names, fontsize=8.5)
    axis.tick_params(length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def _add_legend(figure: Figure, colours: Mapping[str, str], bound_ns: int | None) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Patch | Line2D] = [Patch(color=c, label=kind) for kind, c in colours.items()]
    marks.append(Patch(color=IDLE, label="idle"))
    marks.append(Line2D([], [], color=INK, linewidth=2.5, label="sends or receives"))
    if bound_ns is not None:
        label = f"no plan ends before {format_ns(bound_ns)}"
        marks.append(Line2D([], [], color=PROVEN, linestyle=(0, (4, 2)), label=label))
    figure.legend(
        handles=marks,
        loc="outside lower center",
        ncols=len(marks),
        frameon=False,
        fontsize=8.5,
        handlelength=1.3,
        columnspacing=1.3,
        handletextpad=0.5,
    )


def draw_gap(instance: Instance, heuristic: str) -> Figure:
    """The schedule of a heuristic above the best that `decomposition` finds, and its bound.

    Raises
    ------
    InputError
        If the heuristic finds no plan.
    MissingExtra
        If matplotlib is not installed.
    """
    before = solve(instance, MAKESPAN, heuristic)
    if before.plan is None:
        raise InputError(f"{heuristic} finds no plan: {with_reason(before, instance).message}")
    after = solve(
        instance,
        MAKESPAN,
        "decomposition",
        {"workers": 1},
        time_limit_s=TIME_LIMIT_S,
        incumbent=before.plan,
    )
    best = "the proven optimum of the same problem"
    bound, _ = known_bound(instance, MAKESPAN, after.value_ns, proven_by(after))
    if bound is None or bound.ns != after.value_ns:
        best = "the best plan found for the same problem"
    heading = f"{heuristic}: {instance.graph.name} on {instance.cluster.name}"
    shown = []
    for title, result in ((heading, before), (best, after)):
        assert result.plan is not None
        schedule = evaluate(instance, result.plan, MAKESPAN).schedule
        assert schedule is not None
        shown.append(Scheduled(title, instance, schedule))
    return draw_schedules(shown, None if bound is None else bound.ns)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what the arguments ask for into a file; 0 is success, 2 bad input."""
    parser = argparse.ArgumentParser(prog="gantt", description=__doc__)
    parser.add_argument("network", help="a graph of the corpus")
    parser.add_argument("cluster", help="a cluster that ships with the package, or a file")
    parser.add_argument("heuristic", help="a method that makes a plan, such as heft")
    parser.add_argument("out", type=Path, help="the picture, a PNG")
    options = parser.parse_args(arguments)
    try:
        instance = load_corpus(options.network).instance(load_cluster(options.cluster))
        options.out.write_bytes(png(draw_gap(instance, options.heuristic), dpi=DPI))
    except InputError as error:
        print(f"gantt: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
