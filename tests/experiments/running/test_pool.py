"""Worker processes: reused, replaced after a crash or a timeout, never orphans."""

import os
import signal
import time
from multiprocessing import Pipe
from typing import Any

import pytest
from doubles.pool_jobs import job
from doubles.processes import begin, children, is_alive, no_session, send

from placegap.experiments.running import pool
from placegap.experiments.running.pool import Ending, PoolError, run_pool
from placegap.solvers.core import worker_process


def endings(
    tasks: list[tuple[str, object]], workers: int = 1, limit_s: float = 20.0
) -> list[Ending]:
    return list(run_pool(tasks, job, workers=workers, hard_limit_s=lambda task: limit_s))


def test_one_worker_serves_many_tasks_in_order() -> None:
    found = endings([("sleep", 0)] * 3)
    assert [ending.fate for ending in found] == ["done"] * 3
    assert len({ending.answer for ending in found}) == 1


def test_only_a_worker_that_is_alone_may_start_processes() -> None:
    assert [ending.answer for ending in endings([("nested", 0)])] == [True]
    assert [ending.answer for ending in endings([("nested", 0)], workers=2)] == [False]


def test_a_worker_is_replaced_after_a_crash_and_the_rest_is_done() -> None:
    found = endings([("sleep", 0), ("die", signal.SIGKILL), ("leave", 3), ("sleep", 0)])
    assert [ending.fate for ending in found] == ["done", "crashed", "crashed", "done"]
    assert "SIGKILL" in found[1].message
    assert "exit status 3" in found[2].message
    assert found[0].answer != found[3].answer


def test_a_worker_past_the_hard_limit_is_killed_and_the_others_go_on() -> None:
    began = time.monotonic()
    found = endings([("sleep", 60), ("sleep", 0), ("sleep", 0)], workers=2, limit_s=0.5)
    assert time.monotonic() - began < 20
    fates = {ending.task: ending.fate for ending in found}
    assert fates == {("sleep", 60): "timeout", ("sleep", 0): "done"}
    assert len(found) == 3


def test_progress_of_a_task_arrives_before_its_ending_and_in_order() -> None:
    reported: list[object] = []
    tasks = [("progress", range(3)), ("progress", ["last"])]
    for ending in run_pool(
        tasks, job, workers=1, hard_limit_s=lambda task: 20.0, on_progress=reported.append
    ):
        reported.append(ending.fate)
    assert reported == [0, 1, 2, "done", "last", "done"]
    assert [ending.fate for ending in endings(tasks)] == ["done", "done"]  # nobody listens


def test_closing_the_pool_kills_its_workers() -> None:
    running = run_pool([("sleep", 0), ("sleep", 60)], job, workers=1, hard_limit_s=lambda task: 99)
    pid = next(running).answer
    running.close()
    assert not is_alive(pid)


def test_an_answer_behind_unread_progress_is_not_lost_when_ctrl_c_comes() -> None:
    reported: list[object] = []
    worker: pool.TaskProcess[str] = object.__new__(pool.TaskProcess)
    worker.pipe, there = Pipe()
    worker.task, worker.limit_s, worker.last_progress = "task", 20.0, None
    worker.ready, worker.on_progress = False, reported.append
    worker._start_clock()
    for message in ["ready", pool._Report(1), pool._Report(2), "answer"]:
        there.send(message)
    assert [ending.answer for ending in pool._returned([worker])] == ["answer"]
    assert reported == [1, 2]


def test_workers_that_cannot_start_are_an_error_not_a_crash_of_every_task(
    capfd: pytest.CaptureFixture[str],
) -> None:
    options: dict[str, Any] = {"workers": 1, "modules": ["no_such_module"]}
    with pytest.raises(PoolError, match="cannot start"):
        list(run_pool([("sleep", 0)], job, hard_limit_s=lambda task: 20, **options))
    assert "no_such_module" in capfd.readouterr().err


PARENT = """
from placegap.experiments.running.pool import run_pool
from doubles.pool_jobs import job
tasks = [('sleep', 0), ('sleep', 60)]
for ending in run_pool(tasks, job, workers=1, hard_limit_s=lambda task: 99):
    print(ending.answer, flush=True)
"""


def test_a_signal_is_the_parents_business_alone_and_workers_die_with_one_that_is_killed() -> None:
    parent = begin(PARENT, ignored=[signal.SIGHUP])  # it goes on, and so do its workers
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    send(parent, signal.SIGHUP)
    time.sleep(0.2)
    assert is_alive(worker)
    parent.kill()  # the worker computes (sleeps) and does not read its pipe
    parent.communicate()
    assert no_session(parent.pid)


@pytest.mark.parametrize("copied", [True, False])
def test_processes_that_cannot_be_started_are_an_error(
    copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = children()  # another test may have left Python's tracker of resources
    monkeypatch.setattr(worker_process, "has_one_thread", lambda: copied)
    monkeypatch.setattr(worker_process.subprocess, "Popen", fail)
    monkeypatch.setattr(os, "fork", fail)
    with pytest.raises(PoolError, match="cannot start"):
        endings([("sleep", 0)])
    assert children() == before
