"""Plans that were made as if channels were free, under ports: what blindness to congestion costs.

``python -m placegap.experiments.ours.congestion [--smoke] [--record]``; at most eight
minutes on two cores. Each placer plans twice: for free channels, whose plan is then judged under
ports as it is (placement and order of ops), and for ports. `decomposition` proves what it plans, so
that its blind plan is the best one there is for free channels.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from placegap.experiments.ours.sweep import sweep_command
from placegap.experiments.running.sources import Source, load_source
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers import solve
from placegap.solvers.solving.known_bounds import known_bound, proven_by

FREE, PORT = Makespan(channels="free"), Makespan(channels="port")
CLUSTERS = ("2x4-gpu-slow-link", "celeritas-4xV100-pcie", "fd-dps-8xP100", "moirai-inter-server")
GRAPHS = ("densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet")
PLACERS = ("etf", "m-etf", "heft", "peft", "cpop", "m-sct", "order-place", "celeritas", "mp-dps")
EXACT = "decomposition"
TIME_LIMIT_S = 5.0


def tasks(smoke: bool) -> Iterator[Mapping[str, Any]]:
    """Each placer on each graph and cluster."""
    for graph in GRAPHS[1:2] if smoke else GRAPHS:
        for cluster in CLUSTERS[:2] if smoke else CLUSTERS:
            for method in (*(PLACERS[:3] if smoke else PLACERS), EXACT):
                yield {"instance": graph, "cluster": cluster, "method": method}


def measure(task: Mapping[str, Any], time_limit_s: float = TIME_LIMIT_S) -> Mapping[str, Any]:
    """Value of the blind plan where it was made and under ports, of the other, and a bound.

    Examples
    --------
    >>> found = measure({"instance": "squeezenet", "cluster": "2x4-gpu-slow-link",
    ...                  "method": "single-device"})
    >>> found["blind_free_ns"] == found["blind_port_ns"] == found["aware_ns"]
    True
    """
    instance = load_source(Source(task["instance"], task["cluster"]))
    blind = solve(instance, FREE, task["method"], time_limit_s=time_limit_s)
    aware = solve(instance, PORT, task["method"], time_limit_s=time_limit_s)
    judged = None if blind.plan is None else evaluate(instance, blind.plan, PORT)
    bound, _ = known_bound(instance, PORT, proven=proven_by(aware))
    return {
        "blind_free_ns": blind.value_ns,
        "blind_port_ns": judged.value_ns if judged is not None and judged.feasible else None,
        "aware_ns": aware.value_ns,
        "bound_ns": None if bound is None else bound.ns,
    }


if __name__ == "__main__":
    sweep_command("congestion", tasks, measure, sys.argv[1:])
