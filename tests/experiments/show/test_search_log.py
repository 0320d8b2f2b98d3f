"""The log of a search: a line at once for each news, and a picture when it has ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placegap.experiments.show.search_log import Moment, check_plot, draw, search_log
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.progress import News


def test_each_line_is_in_the_file_as_soon_as_it_is_known(tmp_path: Path) -> None:
    log, plot = tmp_path / "run.jsonl", tmp_path / "run.svg"
    with search_log(log, plot, "net") as hear:
        hear(News(40, None, "heft"))
        assert len(log.read_text().splitlines()) == 1
        hear(News(40, 30, "heft", bound_by="work"))
        hear(News(35, 30, "annealing", bound_by="work"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["value_ns"], line["bound_ns"], line["source"]) for line in lines] == [
        (40, None, "heft"),
        (40, 30, "work"),
        (35, 30, "annealing"),
    ]
    assert all(line["seconds"] >= 0 for line in lines)
    assert "<svg" in plot.read_text()


def test_the_picture_is_drawn_also_where_the_search_is_stopped(tmp_path: Path) -> None:
    plot = tmp_path / "run.png"
    search = search_log(None, plot, "net")
    search.__enter__()(News(40, 30, "heft"))
    assert not search.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)  # it goes on
    assert plot.read_bytes()[1:4] == b"PNG"


def test_lines_go_on_to_the_end_as_steps() -> None:
    (value, bound) = draw([Moment(1.0, 40, 30, "heft")], 5.0, "net").axes[0].lines
    assert list(value.get_xdata()) == list(bound.get_xdata()) == [1.0, 5.0]
    assert list(value.get_ydata()) == [40, 40]


def test_the_gap_is_written_between_the_lines_on_an_axis_from_0() -> None:
    title = "a very long name of a network on a very long name of a cluster: makespan, auto"
    (axes,) = draw([Moment(1.0, 40, 30, "heft")], 5.0, title).axes
    (said,) = axes.texts
    # (40 - 30) / 40, at the end of the time and halfway between the two
    assert (said.get_text(), said.xy) == ("gap 25.0 %", (5.0, 35.0))
    assert axes.get_ylim()[0] == 0
    assert len(axes.get_title(loc="left").splitlines()) == 2


def test_equal_lines_are_told_apart_by_their_widths() -> None:
    value, bound = draw([Moment(1.0, 40, 40, "ideal-dp")], 5.0, "net").axes[0].lines
    assert value.get_linewidth() > bound.get_linewidth()
    assert bound.get_linestyle() == "--"


def test_without_any_news_there_is_a_picture() -> None:
    assert draw([], 1.0, "net").axes[0].lines[:] == []


def test_other_formats_are_refused() -> None:
    with pytest.raises(InputError, match=r"run.pdf: plots are .png or .svg files"):
        check_plot(Path("run.pdf"))
