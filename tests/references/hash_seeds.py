"""What a program prints here, and in a Python whose strings have other hashes."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
SEEDS = ("1", "2")


def printed_here_and_there(program: str) -> tuple[str, str]:
    """The output of a program in this process, and in one of another hash seed."""
    here = io.StringIO()
    with contextlib.redirect_stdout(here):
        exec(compile(program, "program", "exec"), {"__name__": "__main__"})
    seed = next(seed for seed in SEEDS if seed != os.environ.get("PYTHONHASHSEED"))
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    there = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return here.getvalue(), there.stdout
