"""What the tests let worker processes do."""

import os
import time
from typing import Any

from placegap.experiments.running.pool import send_progress
from placegap.solvers.core.worker_process import may_start_processes


def job(task: tuple[str, Any]) -> Any:
    what, argument = task
    if what == "sleep":
        time.sleep(argument)
    elif what == "die":
        os.kill(os.getpid(), argument)
    elif what == "leave":
        os._exit(argument)
    elif what == "nested":
        time.sleep(argument)
        return may_start_processes()
    elif what == "progress":
        for each in argument:
            send_progress(each)
    return os.getpid()
