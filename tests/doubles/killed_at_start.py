"""A module whose import kills the process, unless the file that FILE names is there already."""

import os
import signal
from pathlib import Path

killed = Path(os.environ["FILE"])
if not killed.exists():
    killed.touch()
    os.kill(os.getpid(), signal.SIGKILL)
