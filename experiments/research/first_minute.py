"""What a user waits for before anything is solved: CPU and wall seconds of the first commands.

``python -m placegap.experiments.research.first_minute`` runs each command a few times, warm, in a
process of its own, and prints the least of its times, those of the processes that it starts
included, and how many modules all of them import. Wall seconds mean something on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from typing import NamedTuple

REPEATS = 3
PLACE = "-m placegap place --quiet"
SOLVE = "import placegap; placegap.solve('zfnet512', 'moirai-intra-server', method='heft')"


class Command(NamedTuple):
    """What Python is called with, and the seconds that it may take."""

    name: str
    args: tuple[str, ...]
    goal_s: float


COMMANDS = (
    Command("--version", ("-m", "placegap", "--version"), 0.2),
    Command(
        "place inception_v1 --method heft",
        (*f"{PLACE} inception_v1 --cluster celeritas-4xV100-pcie --method heft".split(),),
        0.8,
    ),
    Command(
        "place zfnet512, proven at once",
        (*f"{PLACE} zfnet512 --cluster moirai-intra-server".split(),),
        1.5,
    ),
    Command(
        "place zfnet512 --objective max_load",
        (*f"{PLACE} zfnet512 --cluster moirai-intra-server --objective max_load".split(),),
        1.5,
    ),
    Command("import placegap", ("-c", "import placegap"), 0.1),
    Command("placegap.solve(zfnet512, heft)", ("-c", SOLVE), 1.0),
)


class Spent(NamedTuple):
    """Seconds of a run, on all cores and on the wall."""

    cpu_s: float
    wall_s: float


def spent_by(args: tuple[str, ...]) -> Spent:
    """What Python spends with these arguments, all processes together."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *args], check=True, capture_output=True)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(cpu_s, wall_s)


def modules_of(args: tuple[str, ...]) -> int:
    """How many modules all processes of a run import."""
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, *args]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stderr.count("import time:")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS, help="runs of each command")
    repeats = parser.parse_args().repeats
    print(f"{'command':36} {'CPU s':>6} {'wall s':>6} {'goal':>5} {'modules':>7}")
    bare = spent_by(("-c", "pass"))
    print(f"{'Python alone':36} {bare.cpu_s:6.2f} {bare.wall_s:6.2f}")
    for name, args, goal_s in COMMANDS:
        modules = modules_of(args)  # and what has to be compiled is, then
        runs = [spent_by(args) for _ in range(repeats)]
        cpu_s, wall_s = (min(times) for times in zip(*runs, strict=True))
        print(f"{name:36} {cpu_s:6.2f} {wall_s:6.2f} {goal_s:5.2f} {modules:7}", flush=True)


if __name__ == "__main__":
    main()
