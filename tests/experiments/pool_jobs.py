"""What the tests let worker processes do."""

from __future__ import annotations

import os
import time
from typing import Any


def job(task: tuple[str, Any]) -> Any:
    what, argument = task
    if what == "sleep":
        time.sleep(argument)
    elif what == "die":
        os.kill(os.getpid(), argument)
    elif what == "leave":
        os._exit(argument)
    elif what == "print":
        print("noise on stdout", flush=True)
        os.write(2, b"noise on stderr\n")
    return os.getpid()
