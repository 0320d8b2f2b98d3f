"""Charts have ops and transfers where the referee put them."""

from __future__ import annotations

import sys

import pytest
from matplotlib.patches import Rectangle

from placegap.experiments.show.anatomy import Anatomy, take_apart
from placegap.experiments.show.gantt import BAR_COLOURS, INK, block_colours, draw_plan
from placegap.instances import Makespan, Plan, example
from placegap.solvers.core.result import Bound

Bar = tuple[float, float]
"""Where a bar starts and ends, in ns."""

TWO_DEVICES = Plan.on([0, 0, 1, 0])
"""Op 3 alone on the second device: its input takes 20 ns to it, its output 10 ns back.

Ops 1 and 2 end at 5 and 25. Op 3 runs from 5 + 20 = 25 to 35, its output arrives at 45, op 4 ends
at 53.
"""


def apart(plan: Plan, bound_ns: int | None = None) -> Anatomy:
    bound = None if bound_ns is None else Bound(bound_ns, "a test")
    found = take_apart(example(), plan, Makespan(), bound, num_moves=0)
    assert found is not None
    return found


def bars(axis: object, colour: str) -> dict[int, list[Bar]]:
    """The bars of a colour by the device in whose row they are."""
    from matplotlib.colors import to_rgba

    found: dict[int, list[Bar]] = {}
    for bar in axis.patches:  # type: ignore[attr-defined]
        assert isinstance(bar, Rectangle)
        if bar.get_facecolor() == to_rgba(colour):
            row = int(bar.get_y() + bar.get_height() / 2)
            found.setdefault(row, []).append((bar.get_x(), bar.get_x() + bar.get_width()))
    return {row: sorted(found[row]) for row in sorted(found)}


def test_ops_are_bars_in_the_row_of_their_device() -> None:
    (axis,) = draw_plan(apart(TWO_DEVICES)).axes
    # ops 1 and 2, of one kind and one after the other, are one bar
    assert bars(axis, BAR_COLOURS[0]) == {0: [(0, 25), (45, 53)], 1: [(25, 35)]}


def test_a_transfer_stands_under_its_sender_and_its_receiver() -> None:
    (axis,) = draw_plan(apart(TWO_DEVICES)).axes
    assert bars(axis, INK) == {0: [(5, 25), (35, 45)], 1: [(5, 25), (35, 45)]}


def test_a_chart_says_the_value_and_the_gap() -> None:
    (axis,) = draw_plan(apart(TWO_DEVICES, 34)).axes
    # (53 - 34) / 53
    assert axis.get_title(loc="left").splitlines()[1] == "53 ns, gap 35.8 %"
    assert axis.get_xlim() == (0, 53 * 1.005)


def test_more_layers_than_colours_go_from_dark_to_light_in_their_order() -> None:
    layers = [f"h.{k}" for k in range(24)]
    colours, legend = block_colours([], layers)
    light = [sum(int(colours[name][at : at + 2], 16) for at in (1, 3, 5)) for name in layers]
    assert len(set(colours.values())) == 24
    assert light[0] < light[12] < light[23]
    assert (min(legend, key=layers.index), max(legend, key=layers.index)) == ("h.0", "h.23")


def test_a_picture_that_is_asked_for_is_an_error_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from placegap.experiments.show.drawing import new_figure
    from placegap.instances.reading.errors import InputError

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"'placegap\[plots\]'"):
        new_figure(1, 1)
