"""Programs that tests start, signal and wait for."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
PATIENCE_S = 240
"""Against hanging for ever (kernels may have to be compiled); nothing is measured."""

PLACEGAP = "import sys; from placegap.experiments.cli import main; sys.exit(main())"
"""What the command ``placegap`` runs."""


def begin(
    code: str, *args: str, ignored: Sequence[int] = (), env: Mapping[str, str] = {}, **options: Any
) -> subprocess.Popen[str]:
    """Start Python code as a terminal starts a program: a process group of its own."""
    paths = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    with dispositions(ignored):
        return subprocess.Popen(
            [sys.executable, "-c", code, *args],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": paths, **env},
            start_new_session=True,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )


@contextmanager
def dispositions(ignored: Sequence[int] = ()) -> Iterator[None]:
    """What the signals that stop a program do here, and in children that are started here."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def send(process: subprocess.Popen[str], number: int = signal.SIGINT) -> None:
    """What a terminal, `timeout` and Slurm do: the signal goes to every process of the group."""
    os.killpg(process.pid, number)


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it wrote; nothing that it started may be left."""
    try:
        return process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def wait_for(process: subprocess.Popen[str], *files: Path) -> None:
    """Wait until some files are there."""
    patience = time.monotonic() + PATIENCE_S
    while not all(file.exists() for file in files):
        if process.poll() is not None or time.monotonic() > patience:
            pytest.fail(f"no {files}: {finish(process)}")
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    return _stat(pid)[:1] not in ([], ["Z"])


def children(pid: int | None = None) -> list[int]:
    """The processes that a process has started and that run."""
    parent = str(os.getpid() if pid is None else pid)
    return [child for child in _processes() if _stat(child)[1:2] == [parent] and is_alive(child)]


def session(pid: int) -> list[int]:
    """The processes that run in the session of a program that `begin` has started."""
    return [one for one in _processes() if _stat(one)[3:4] == [str(pid)] and is_alive(one)]


def no_session(pid: int) -> bool:
    """Whether a program and all that it started end by themselves."""
    patience = time.monotonic() + 10
    while session(pid) and time.monotonic() < patience:
        time.sleep(0.02)
    return not session(pid)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """State, parent, group, session, ... of a process; nothing if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
