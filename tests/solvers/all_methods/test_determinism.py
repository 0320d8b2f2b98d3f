"""Every method returns the same plan whatever Python's hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from references.agreement import little
from references.brute_force import makespan_draws, max_load_draws
from placegap.instances import Makespan,  MaxLoad
from placegap.solvers import METHODS, solve
from placegap.solvers.core.method import Task
from placegap.solvers.core.registry import why_not

draws = [makespan_draws()[3], max_load_draws()[3]]
rules = [Makespan(), MaxLoad(plans="chain"),
         MaxLoad()]
for instance in draws:
    for semantics in rules:
        for name, method in METHODS.items():
            params = little(method)
            if why_not(method, Task(instance, semantics), method.params(**params)) is None:
                result = solve(instance, semantics, name, params)
                print(instance.name, semantics.label, name, result.status, result.value_ns,
                      result.bound_ns, result.plan)
"""


def run(hash_seed: str) -> str:
    tests = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_plans_values_and_bounds_do_not_depend_on_the_hash_seed() -> None:
    first = run("1")
    assert {"moirai", "cp-sat", "ideal-dp", "throughput-ip", "heft"} <= set(first.split())
    assert run("77") == first
