"""What a newcomer waits for: starting Python, loading the package, the shortest commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

COMMAND = "from placegap.experiments.cli import main; main({!r})"

STARTS = {
    "start: python alone": "pass",
    "start: placegap --version": COMMAND.format(["--version"]),
    "start: placegap --help": COMMAND.format(["--help"]),
    "start: import placegap": "import placegap",
    "start: import placegap.instances": "import placegap.instances",
    "start: import placegap.solvers": "import placegap.solvers",
    "start: every name of placegap.instances": "from placegap.instances import *",
    "start: every method": "from placegap.solvers import METHODS; list(METHODS.values())",
    "start: place, one placer": COMMAND.format(
        ["place", "inception_v1", "--cluster", "celeritas-4xV100-pcie", "--method", "heft"]
    ),
    "start: place, defaults": COMMAND.format(
        ["place", "inception_v1", "--cluster", "celeritas-4xV100-pcie"]
    ),
}
"""Names of the rows, and what a fresh Python runs."""


def start_benches() -> Iterator[tuple[str, Callable[[], object]]]:
    """Each start, in a process of its own; its CPU seconds count its children's."""
    for name, code in STARTS.items():
        yield name, partial(_run, code)


def _run(code: str) -> None:
    # workers start as processes that import the main module: it must be a file, or nothing
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
