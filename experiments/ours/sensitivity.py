"""Plans that were made with wrong costs, judged with the true ones.

``python -m placegap.experiments.ours.sensitivity [--smoke] [--record]``; at most six minutes
on two cores. Times of ops and sizes of tensors are off by up to 10, 20 and 30 % (`wrong_costs`),
by three draws. A record has what the placer believes of its plan, and what it is worth.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from placegap.experiments.ours.sweep import sweep_command
from placegap.experiments.ours.wrong_costs import with_wrong_costs
from placegap.experiments.running.sources import Source, load_source
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers import solve
from placegap.solvers.solving.known_bounds import known_bound

PORT = Makespan(channels="port")
CLUSTERS = ("celeritas-4xV100-pcie", "moirai-inter-server")
GRAPHS = ("densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet")
PLACERS = (
    "single-device",
    "m-topo",
    "metis",
    "etf",
    "m-etf",
    "heft",
    "peft",
    "cpop",
    "m-sct",
    "order-place",
    "celeritas",
    "mp-dps",
)
EXACT = "decomposition"
OFF = (0.0, 0.1, 0.2, 0.3)
SEEDS = (1, 2, 3)
TIME_LIMIT_S = 1.0


def tasks(smoke: bool) -> Iterator[Mapping[str, Any]]:
    """Each placer on each graph and cluster, with true costs, and with those of every draw."""
    for graph in GRAPHS[1:2] if smoke else GRAPHS:
        for cluster in CLUSTERS[:1] if smoke else CLUSTERS:
            for off in OFF:
                for seed in SEEDS[:1] if smoke or off == 0 else SEEDS:
                    for method in (*(PLACERS[:6] if smoke else PLACERS), EXACT):
                        yield {
                            "instance": graph,
                            "cluster": cluster,
                            "off": off,
                            "seed": seed,
                            "method": method,
                        }


@lru_cache(maxsize=2)
def _wrong(graph: str, cluster: str, off: float, seed: int) -> Instance:
    """The tasks of one draw follow one another."""
    return with_wrong_costs(load_source(Source(graph, cluster)), off, seed)


def measure(task: Mapping[str, Any], time_limit_s: float = TIME_LIMIT_S) -> Mapping[str, Any]:
    """What the placer's plan is worth with wrong costs, and with true ones.

    Examples
    --------
    >>> found = measure({"instance": "squeezenet", "cluster": "2x4-gpu-slow-link", "off": 0.0,
    ...                  "seed": 1, "method": "m-topo"})
    >>> found["believed_ns"] == found["true_ns"]
    True
    """
    instance = load_source(Source(task["instance"], task["cluster"]))
    wrong = _wrong(task["instance"], task["cluster"], task["off"], task["seed"])
    result = solve(wrong, PORT, task["method"], time_limit_s=time_limit_s)
    judged = None if result.plan is None else evaluate(instance, result.plan, PORT)
    bound, _ = known_bound(instance, PORT)
    return {
        "believed_ns": result.value_ns,
        "true_ns": judged.value_ns if judged is not None and judged.feasible else None,
        "bound_ns": None if bound is None else bound.ns,
    }


if __name__ == "__main__":
    sweep_command("sensitivity", tasks, measure, sys.argv[1:])
