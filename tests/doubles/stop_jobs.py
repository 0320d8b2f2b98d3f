"""Jobs that tell when they may be stopped, and how it goes, by files that they make."""

import os
import time
from pathlib import Path

FOLDER = "PLACEGAP_TEST_STOP"


def mark(name: str) -> None:
    """Leave a file behind."""
    (Path(os.environ[FOLDER]) / name).touch()


def job(task: str) -> str:
    """Sleep for a minute, unless interrupted."""
    try:
        mark(f"{task}-begun")
        time.sleep(60)
    except KeyboardInterrupt:
        mark(f"{task}-stopped")
        if task == "stubborn":
            time.sleep(60)
        if task == "deaf":
            raise
        return f"{task} had this much"
    return "done"
