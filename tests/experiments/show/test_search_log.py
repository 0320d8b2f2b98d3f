"""Progress of a search: its log, its picture, and the line that changes on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from doubles.full_disk import full_disk

from placegap.experiments.show import search_log as module
from placegap.experiments.show.search_log import Moment, draw, live_line, progress_text, search_log
from placegap.instances.files.output_files import release_outputs
from placegap.solvers.core.progress import Progress
from placegap.solvers.core.result import Bound


def test_each_line_is_in_the_file_as_soon_as_it_is_known(tmp_path: Path) -> None:
    log, plot = tmp_path / "run.jsonl", tmp_path / "run.svg"
    with search_log(log, plot, "net") as on_progress:
        on_progress(Progress(40, None, "heft"))
        assert len(log.read_text().splitlines()) == 1
        on_progress(Progress(40, Bound(30, "work"), "heft"))
        on_progress(Progress(35, Bound(30, "work"), "annealing"))
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
    with search_log(log, plot, "net") as on_progress:
        on_progress(Progress(40, None, "heft"))
        first = log.read_bytes()
        with full_disk(len(first) + 10):
            on_progress(Progress(38, None, "etf"))
        on_progress(Progress(35, None, "annealing"))
    assert log.read_bytes() == first
    assert plot.read_bytes()[1:4] == b"PNG"
    lines = [str(error) for error in release_outputs()]
    assert lines == [f"{log}: cannot be written: File too large"]


def test_the_gap_is_written_between_the_lines_on_an_axis_from_0() -> None:
    title = "a very long name of a network on a very long name of a cluster: makespan, auto"
    (axes,) = draw([Moment(1.0, 40, 30, "heft")], 5.0, title).axes
    (said,) = axes.texts
    # (40 - 30) / 40, at the end of the time and halfway between the two
    assert (said.get_text(), said.xy) == ("gap 25.0 %", (5.0, 35.0))
    assert axes.get_ylim()[0] == 0
    assert len(axes.get_title(loc="left").splitlines()) == 2


Capture = pytest.CaptureFixture[str]


def lines(capsys: Capture) -> list[str]:
    out, err = capsys.readouterr()
    assert out == ""
    assert all(line.startswith("placegap: after ") for line in err.splitlines())
    return [line.partition(": ")[2].partition(": ")[2] for line in err.splitlines()]


def test_a_text_says_best_bound_gap_and_who() -> None:
    assert progress_text(Progress(2_000_000, Bound(1_500_000, "heft"), "heft")) == (
        "best 2.000 ms, gap 25.0 %, bound 1.500 ms, by heft"
    )
    assert progress_text(Progress(None, Bound(1_500_000, ""), "")) == "bound 1.500 ms"


def test_into_a_file_goes_a_line_at_each_improvement(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.0)
    monkeypatch.setattr(module, "EVERY", 0.0)
    with live_line("placing") as listen:
        listen(Progress(None, Bound(5, ""), ""))  # no plan yet
        listen(Progress(40, Bound(5, "heft"), "heft"))
        listen(Progress(30, Bound(5, "cp-sat"), "cp-sat"))
        listen(Progress(30, Bound(30, "cp-sat"), "cp-sat"))
    assert lines(capsys) == [
        "best 40 ns, gap 87.5 %, bound 5 ns, by heft",
        "best 30 ns, gap 83.3 %, bound 5 ns, by cp-sat",
        "best 30 ns, gap 0 %, bound 30 ns, by cp-sat",
    ]


def test_many_improvements_in_a_short_time_share_a_line_and_the_newest_is_printed(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.2)
    with live_line("placing") as listen:
        for value in range(1000, 900, -1):
            listen(Progress(value, None, "heft"))
        patience = time.monotonic() + 20
        found = ""
        while found.count("\n") < 2 and time.monotonic() < patience:
            time.sleep(0.05)
            found += capsys.readouterr().err
    texts = [line.rpartition(": ")[2] for line in found.splitlines()]
    assert texts == ["best 1.000 us, by heft", "best 901 ns, by heft"]


def test_on_a_terminal_one_line_changes_and_is_cleared() -> None:
    code = (
        "import time\n"
        "from placegap.experiments.show.search_log import live_line\n"
        "from placegap.solvers.core.progress import Progress\n"
        "from placegap.solvers.core.result import Bound\n"
        "with live_line('placing a model with a rather long name, makespan') as listen:\n"
        "    for value in (3_000_000, 2_000_000):\n"
        "        listen(Progress(value, Bound(1_000_000, 'decomposition'), 'decomposition'))\n"
        "        time.sleep(0.4)\n"
    )
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    env = {**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        env.pop(name, None)
    child = subprocess.Popen([sys.executable, "-c", code], stderr=slave, env=env)
    os.close(slave)
    text = b""
    while True:
        try:
            read = os.read(master, 4096)
        except OSError:  # the child has ended
            break
        if not read:
            break
        text += read
    assert child.wait() == 0
    seen = text.decode()
    assert "best 3.000 ms" in seen
    assert "best 2.000 ms" in seen
    assert "0:00:00" in seen
    assert "gap 50.0 %" in seen
    assert "by decomposition" not in seen  # too narrow: the line is cut
    # a line is redrawn in its place, and erased at the end: the cursor never goes further down
    assert seen.count("\n") <= 1
    assert seen.replace("\x1b[?25h", "").rstrip().endswith("\x1b[2K")
