"""A chart of schedules has a bar for every op and transfer, where the referee put them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from matplotlib.patches import Rectangle

from placegap.experiments.show.drawing import COLOURS, png
from placegap.experiments.show.gantt import (
    IDLE,
    INK,
    MAKESPAN,
    OTHER,
    Scheduled,
    draw_gap,
    draw_schedules,
    kind_colours,
    main,
)
from placegap.instances import Graph, Instance, Op, Plan, evaluate, example

Bar = tuple[float, float]
"""Where a bar starts and ends, in ns."""

TWO_DEVICES = Plan.on([0, 0, 1, 0])
"""Op 3 alone on the second device: its input takes 20 ns to it, its output 10 ns back.

Ops 1 and 2 end at 5 and 25. Op 3 runs from 5 + 20 = 25 to 35, its output arrives at 45, op 4 ends
at 53.
"""


def scheduled(plan: Plan, title: str = "a plan") -> Scheduled:
    schedule = evaluate(example(), plan, MAKESPAN).schedule
    assert schedule is not None
    return Scheduled(title, example(), schedule)


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


def test_every_op_is_a_bar_in_the_row_of_its_device() -> None:
    (axis,) = draw_schedules([scheduled(TWO_DEVICES)]).axes
    assert bars(axis, COLOURS[0]) == {0: [(0, 5), (5, 25), (45, 53)], 1: [(25, 35)]}


def test_a_device_is_idle_up_to_the_makespan_where_no_op_is_drawn() -> None:
    (axis,) = draw_schedules([scheduled(TWO_DEVICES)]).axes
    assert bars(axis, IDLE) == {0: [(0, 53)], 1: [(0, 53)]}


def test_a_transfer_stands_under_its_sender_and_its_receiver() -> None:
    (axis,) = draw_schedules([scheduled(TWO_DEVICES)]).axes
    assert bars(axis, INK) == {0: [(5, 25), (35, 45)], 1: [(5, 25), (35, 45)]}


def test_every_schedule_says_its_makespan_and_its_gap() -> None:
    one_device = scheduled(Plan.on([0, 0, 0, 0]), "one device")  # 5 + 20 + 10 + 8 = 43
    figure = draw_schedules([scheduled(TWO_DEVICES), one_device], bound_ns=34)
    said = [[text.get_text() for text in axis.texts] for axis in figure.axes]
    # (53 - 34) / 53 and (43 - 34) / 43
    assert said == [["53 ns, gap 35.8 %"], ["43 ns, gap 20.9 %"]]
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["a plan", "one device"]


def test_the_time_axis_is_the_same_for_all_and_ends_with_the_longest() -> None:
    figure = draw_schedules([scheduled(Plan.on([0, 0, 0, 0])), scheduled(TWO_DEVICES)])
    assert {axis.get_xlim() for axis in figure.axes} == {(0, 53)}


def test_the_kinds_that_run_longest_have_colours_and_the_rest_share_one() -> None:
    ops = tuple(Op(name=k, kind=k, time_ns={"gpu": time}) for time, k in enumerate("abcdef", 1))
    instance = Instance(name="kinds", graph=Graph(name="kinds", ops=ops), cluster=example().cluster)
    schedule = evaluate(instance, Plan.on([0] * 6), MAKESPAN).schedule
    assert schedule is not None
    colours = kind_colours([Scheduled("kinds", instance, schedule)])
    assert colours == {**dict(zip("fedc", COLOURS, strict=False)), "other": OTHER}


def test_the_gap_of_a_heuristic_is_drawn_against_the_proven_optimum() -> None:
    figure = draw_gap(example(), "single-device")
    said = [text.get_text() for axis in figure.axes for text in axis.texts]
    assert said == ["43 ns, gap 20.9 %", "34 ns, gap 0 %"]  # FD-DPS, figure 3: 34 is optimal
    assert figure.axes[1].get_title(loc="left") == "the proven optimum of the same problem"


def test_equal_schedules_give_equal_pictures() -> None:
    first, second = (png(draw_schedules([scheduled(TWO_DEVICES)]), dpi=50) for _ in range(2))
    assert first == second


def test_the_command_writes_a_picture(tmp_path: Path) -> None:
    out = tmp_path / "zfnet.png"
    assert main(["zfnet512", "moirai-inter-server", "etf", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_the_command_says_in_one_line_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "no.png")
    assert main(["no-such-network", "moirai-inter-server", "etf", out]) == 2
    line = capsys.readouterr().err
    assert line.startswith("gantt: ")
    assert line.count("\n") == 1


def test_without_matplotlib_the_line_is_that_of_all_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out = tmp_path / "no.png"
    assert main(["zfnet512", "moirai-inter-server", "etf", str(out)]) == 2
    line = "gantt: figures need matplotlib: pip install 'placegap[plots]'\n"
    assert capsys.readouterr().err == line
    assert not out.exists()
