"""Placers and `auto` from a thousand to a million ops: CPU seconds, peak memory, gap.

``python -m placegap.experiments.ours.scaling [--smoke] [--record]``; at most eight minutes
on two cores. The graphs are those of `experiments.bench.placers`: layered, width 50, on eight equal
GPUs that hold them one and a half times. Each run is a process of its own, and its peak has the
instance in it. Gaps are to the better of what `auto` proves and of a cheap bound (paths, work).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from placegap.experiments.ours.sweep import sweep_command
from placegap.experiments.research.bench.measuring import measure_apart
from placegap.experiments.research.bench.placers import DEVICES, layered
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Makespan
from placegap.solvers import solve
from placegap.solvers.bounds.cheap_bounds import quick_bound

PORT = Makespan(channels="port")
SIZES = (1_000, 10_000, 100_000, 1_000_000)
METHODS = ("m-topo", "m-etf", "heft", "order-place", "celeritas", "metis", "auto")
TIME_LIMIT_S = 20.0
KILL_AFTER_S = 120.0


def tasks(smoke: bool) -> Iterator[Mapping[str, Any]]:
    """Each method on each size."""
    for num_ops in SIZES[:2] if smoke else SIZES:
        for method in METHODS[:3] if smoke else METHODS:
            yield {"num_ops": num_ops, "method": method}


@lru_cache(maxsize=1)
def _instance(num_ops: int) -> tuple[Instance, int]:
    """Instance and cheap bound in ns; the tasks of one size follow one another."""
    instance = layered(num_ops, DEVICES)
    _ = instance.content_hash  # part of every result, and computed once
    return instance, quick_bound(instance, PORT).ns


def measure(task: Mapping[str, Any], time_limit_s: float = TIME_LIMIT_S) -> Mapping[str, Any]:
    """Value, bound, CPU seconds and peak memory of one method on one size."""
    (instance, cheap_ns), small = _instance(task["num_ops"]), layered(200, DEVICES)

    def run(on: Instance = instance, limit_s: float = time_limit_s) -> str:
        result = solve(on, PORT, task["method"], time_limit_s=limit_s)
        return json.dumps({"value_ns": result.value_ns, "bound_ns": result.bound_ns})

    found = measure_apart(run, lambda: run(small, 1.0), KILL_AFTER_S)
    if isinstance(found, str):
        return {"message": found, "cheap_bound_ns": cheap_ns}
    return {
        **json.loads(found.remark),
        "cheap_bound_ns": cheap_ns,
        "cpu_s": round(found.cpu_s, 4),
        "peak_bytes": found.peak_bytes,
    }


if __name__ == "__main__":
    sweep_command("scaling", tasks, measure, sys.argv[1:])
