"""What made a result: the commit, the versions, and the machine."""

from __future__ import annotations

import platform
import resource
import subprocess
import time
from functools import cache
from importlib.metadata import version
from pathlib import Path

from placegap.solvers.core.worker_process import num_cores

# Packages whose versions decide how far a method gets, beside placegap and Python.
PACKAGES = ("highspy", "ortools", "numpy", "numba")

GIT_S = 5.0


@cache
def made_by() -> dict[str, str | int]:
    """Commit, versions and machine, as far as they can be known: columns of a run."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("placegap", *PACKAGES))
    return {
        "commit": _commit(),
        "versions": f"{versions}, Python {platform.python_version()}, {platform.system()}",
        "cpu": _processor(),
        "cores": num_cores(),
    }


def cpu_s() -> float:
    """CPU seconds of this process and of the programs that it ran."""
    programs = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + programs.ru_utime + programs.ru_stime


def _commit() -> str:
    """The commit that is checked out, and whether files differ from it; nothing for a wheel."""
    folder = Path(__file__).resolve().parent  # of an editable install: the repository
    ask = ("git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude=*")
    try:
        # a wheel may lie in somebody else's repository
        tracked = subprocess.run(
            (*ask[:3], "ls-files", "--error-unmatch", Path(__file__).name),
            capture_output=True,
            timeout=GIT_S,
            check=False,
        )
        said = subprocess.run(ask, capture_output=True, text=True, timeout=GIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if tracked.returncode or said.returncode:
        return ""
    return said.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
