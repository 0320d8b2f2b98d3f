"""What the processes of a group do in tests."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def second_dies(store: str, rank: int) -> None:
    """The second process is killed; the first is told so by its own library, and complains."""
    begun = Path(store).with_suffix(".begun")
    if rank == 1:
        begun.touch()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    while not begun.exists():  # on a busy machine a process may take seconds to start
        time.sleep(0.01)
    raise RuntimeError("connection closed by peer")


def second_raises(store: str, rank: int) -> None:
    """The second process fails; the first waits for it."""
    if rank == 1:
        raise ValueError("no such stage\nand more that nobody needs")
    time.sleep(60)


def mark_and_wait(folder: str, store: str, rank: int) -> None:
    """Say that it has begun, and hang."""
    (Path(folder) / f"{rank}-begun").touch()
    time.sleep(60)
