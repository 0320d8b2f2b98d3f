"""Processes that work together: one that dies, raises or hangs ends all, in one line."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from doubles import group_jobs
from doubles.processes import begin, children, finish, no_session, send, wait_for

from placegap.experiments.running.process_group import ProcessesFailed, run_together

GROUP = """
import sys
from doubles.group_jobs import mark_and_wait
from placegap.experiments.running.process_group import run_together
from placegap.experiments.running.pool import handled
with handled():
    try:
        run_together(mark_and_wait, (sys.argv[1],), 2, 99.0)
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""


def test_a_process_that_dies_is_named_whoever_complains_first() -> None:
    before = children()  # a kernel of the notebooks may live as long as the tests
    with pytest.raises(ProcessesFailed) as caught:
        run_together(group_jobs.second_dies, (), 2, 60.0)
    assert str(caught.value) == "process 1 of 2 died (signal SIGKILL); all were stopped"
    assert children() == before


def test_what_a_process_raises_is_one_line_and_the_others_are_stopped() -> None:
    before = children()
    with pytest.raises(ProcessesFailed) as caught:
        run_together(group_jobs.second_raises, (), 2, 60.0)
    assert str(caught.value) == "process 1 of 2: ValueError: no such stage"
    assert children() == before


def test_a_stop_signal_leaves_no_orphan(tmp_path: Path) -> None:
    process = begin(GROUP, str(tmp_path))
    wait_for(process, tmp_path / "0-begun", tmp_path / "1-begun")
    send(process, signal.SIGTERM)
    assert finish(process) == ("stopped\n", "")
    assert no_session(process.pid)


def test_processes_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    process = begin(GROUP, str(tmp_path))
    wait_for(process, tmp_path / "0-begun", tmp_path / "1-begun")
    process.kill()
    assert finish(process) == ("", "")
    assert no_session(process.pid)
