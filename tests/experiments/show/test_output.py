"""Output that nobody takes: files are written all the same, and it costs no traceback."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from doubles.processes import PLACEGAP

from placegap.experiments.show import rendering
from placegap.experiments.show.rendering import output, plain_table

HERE = (
    "import sys; from placegap.experiments.running import placing, pool;"
    " placing.run_pool = pool.run_here;"
    " from placegap.experiments.cli import main; sys.exit(main())"
)
"""The command ``placegap`` without the worker, which takes as long to start."""

PLACE = "place zfnet512 --cluster celeritas-4xV100-pcie --method single-device -o plan.json -q"

needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


def shell(
    folder: Path, redirection: str, command: str = PLACE, program: str = HERE
) -> tuple[int, str]:
    """The exit status of a command in a shell, and what is on stderr, if that is open."""
    line = f"{sys.executable} -c '{program}' {command} {redirection}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [
        ("| true", 141, ""),
        (">&- 2>&- <&-", 0, ""),
        pytest.param(
            "> /dev/full", 1, "placegap: output: No space left on device\n", marks=needs_full
        ),
    ],
)
def test_the_plan_is_written_all_the_same(
    redirection: str, status: int, said: str, tmp_path: Path
) -> None:
    # without any stream, the pipe to the worker has the number of one
    program = PLACEGAP if "<&-" in redirection else HERE
    assert shell(tmp_path, redirection, program=program) == (status, said)
    assert (tmp_path / "plan.json").exists()


@needs_full
def test_commands_that_only_print_say_that_they_cannot(tmp_path: Path) -> None:
    said = "placegap: output: No space left on device\n"
    assert shell(tmp_path, "> /dev/full", "--version") == (1, said)


@pytest.mark.parametrize(("told", "escapes"), [("", True), ("1", False)])
def test_no_color_leaves_out_bold_as_well(
    told: str, escapes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", told)
    output().print(plain_table("title", ["name"], [["a"]]))
    assert ("\x1b[" in screen.getvalue()) is escapes


def test_warnings_and_progress_never_end_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "w") as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        rendering.warn("nobody reads this")
        rendering.errors().print("nor this")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), theirs)


def test_a_table_of_layers_stays_a_table_at_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head = ("device", "kind", "layers", "compute", "communication", "load", "peak memory")
    row = ("RTX3090-0", "RTX3090", "embed_tokens, 0-7", *("113.6 ms",) * 3, "7.95 GB of 24 GB")
    for width, line in (
        (120, "RTX3090-0   RTX3090   embed_tokens, 0-7   113.6 ms"),
        (80, "RTX3090-0  RTX3090  embed_tokens, 0-7"),
        (60, "  kind: RTX3090"),
    ):
        monkeypatch.setenv("COLUMNS", str(width))
        output().print(plain_table(None, head, [row]))
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= width
        assert any(line in each for each in lines)
        assert any("communication" in each for each in lines) == (width != 80)  # short heads
