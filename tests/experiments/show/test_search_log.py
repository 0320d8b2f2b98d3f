"""The log of a search: a line at once for each news, and a picture when it has ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doubles.full_disk import full_disk

from placegap.experiments.show.search_log import Moment, check_plot, draw, search_log
from placegap.instances.files.output_files import release_outputs
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.progress import Progress
from placegap.solvers.core.result import Bound


def test_each_line_is_in_the_file_as_soon_as_it_is_known(tmp_path: Path) -> None:
    log, plot = tmp_path / "run.jsonl", tmp_path / "run.svg"
    with search_log(log, plot, "net") as hear:
        hear(Progress(40, None, "heft"))
        assert len(log.read_text().splitlines()) == 1
        hear(Progress(40, Bound(30, "work"), "heft"))
        hear(Progress(35, Bound(30, "work"), "annealing"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["value_ns"], line["bound_ns"], line["source"]) for line in lines] == [
        (40, None, "heft"),
        (40, 30, "work"),
        (35, 30, "annealing"),
    ]
    assert all(line["seconds"] >= 0 for line in lines)
    assert "<svg" in plot.read_text()


def test_an_older_log_stays_until_there_is_a_line(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text("old")
    search = search_log(log, None, "net")
    search.__enter__()
    assert not search.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert ([path.name for path in tmp_path.iterdir()], log.read_text()) == (["run.jsonl"], "old")
    with search_log(log, None, "net"):  # a search that finds nothing has an empty log
        assert log.read_text() == "old"
    assert log.read_text() == ""


def test_on_a_full_disk_the_search_goes_on_and_the_log_is_named_once(tmp_path: Path) -> None:
    log, plot = tmp_path / "run.jsonl", tmp_path / "run.png"
    with search_log(log, plot, "net") as hear:
        hear(Progress(40, None, "heft"))
        first = log.read_bytes()
        with full_disk(len(first) + 10):
            hear(Progress(38, None, "etf"))
        hear(Progress(35, None, "annealing"))
    assert log.read_bytes() == first
    assert plot.read_bytes()[1:4] == b"PNG"
    lines = [str(error) for error in release_outputs()]
    assert lines == [f"{log}: cannot be written: File too large"]


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


def test_other_formats_are_refused() -> None:
    with pytest.raises(InputError, match=r"run.pdf: plots are .png or .svg files"):
        check_plot(Path("run.pdf"))
