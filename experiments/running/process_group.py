"""Processes that work together, and end together.

One that dies, raises or takes too long ends all of them, and so does the end of the command, for
the parent kills them, and the kernel does where the parent is killed itself (`worker_process`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from placegap.solvers.core.worker_process import WorkerProcess, silence

GRACE_S = 1.0
"""Seconds to wait for the others after a first error, which may be about one that has died."""


class ProcessesFailed(RuntimeError):
    """One process of several ended them all; the message is one line."""


@dataclass(frozen=True)
class _Complaint:
    """What a process raised, in one line."""

    sentence: str


def run_together(
    function: Callable[..., Any], args: tuple[Any, ...], count: int, limit_s: float
) -> list[Any]:
    """Call ``function(*args, store, rank)`` in `count` processes at a time; their answers.

    All have `limit_s` seconds together. The function is pickled by name; `store` is the path of a
    file at which processes find each other.
    """
    processes: list[WorkerProcess] = []
    with tempfile.TemporaryDirectory(prefix="placegap-") as folder:
        try:
            for rank in range(count):
                task = (function, (*args, str(Path(folder) / "store"), rank))
                processes.append(WorkerProcess(_serve, task))
            return _answers(processes, limit_s)
        except OSError as error:
            raise ProcessesFailed(f"processes cannot start ({error.strerror})") from None
        finally:
            for process in processes:
                process.kill()


def _answers(processes: list[WorkerProcess], limit_s: float) -> list[Any]:
    rank_of = {process.pipe: rank for rank, process in enumerate(processes)}
    answers: dict[int, Any] = {}
    complaint: str | None = None
    deadline = time.monotonic() + limit_s
    while rank_of:
        heard = wait(list(rank_of), timeout=max(0.0, deadline - time.monotonic()))
        if not heard and complaint is None:
            open_ones = ", ".join(str(rank) for rank in sorted(rank_of.values()))
            raise ProcessesFailed(
                f"process {open_ones} of {len(processes)} had not ended after {limit_s:g} s; all"
                " were stopped"
            )
        if not heard:
            break
        for pipe in heard:
            assert isinstance(pipe, Connection)
            rank = rank_of.pop(pipe)
            try:
                answer = pipe.recv()
            except (EOFError, ConnectionResetError):
                how = processes[rank].last_words()
                raise ProcessesFailed(
                    f"process {rank} of {len(processes)} died ({how}); all were stopped"
                ) from None
            if isinstance(answer, _Complaint) and complaint is None:
                complaint = f"process {rank} of {len(processes)}: {answer.sentence}"
                deadline = min(deadline, time.monotonic() + GRACE_S)
            answers[rank] = answer
    if complaint is not None:
        raise ProcessesFailed(complaint)
    return [answers[rank] for rank in range(len(processes))]


def _serve(pipe: Connection, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Life of one process."""
    silence()
    try:
        answer = function(*args)
    except Exception as error:  # torch and models of users raise whatever they like
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        answer = _Complaint(f"{type(error).__name__}: {lines[0] if lines else 'no message'}")
    pipe.send(answer)
