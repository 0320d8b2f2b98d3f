"""placeto: a graph network re-places one node after the other; it learns from the simulator."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.clock import LimitReached
from placegap.solvers.core.method import EFFORT, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.learned.evaluations import Evaluations
from placegap.solvers.learned.placeto.nodes import Nodes, nodes_of
from placegap.solvers.learned.torch_runs import missing, seeded

MOST_NODES = 1_000
"""The network is dense: its matrices have so many rows and columns at most."""


class PlacetoParams(Params):
    """Parameters of ``placeto``.

    Attributes
    ----------
    evaluations : int
        How many placements are simulated.
    nodes : int
        Graphs are merged to so many nodes.
    rounds : int
        Rounds of message passing.
    workers : int
        Episodes of one update.
    start : {"one-device", "random"}
        Where episodes begin: all on the device that alone is fastest, or a random placement.
    """

    evaluations: int = Field(default=4_000, ge=1, json_schema_extra=EFFORT)
    nodes: int = Field(default=32, ge=1, le=MOST_NODES)
    rounds: int = Field(default=8, ge=1, le=64)
    workers: int = Field(default=4, ge=1, le=64)
    start: Literal["one-device", "random"] = "one-device"


def run(task: Task[Makespan], params: PlacetoParams) -> Outcome:
    """Train a policy on the instance, and return the best placement that it ever tried.

    A heuristic; deterministic for a seed without a time limit.
    """
    tried = Evaluations(task.instance, task.semantics, params.evaluations, "placeto")
    message = train(task, params, tried)
    plan = tried.plan()
    if plan is None:
        message = message or f"none of {tried.done} placements fits into memory"
    return Outcome(plan, message=message, details={"evaluations": tried.done})


def train(task: Task[Makespan], params: PlacetoParams, tried: Evaluations) -> str:
    """Train within the budget of `tried`; why it ended early, or an empty text."""
    from placegap.solvers.learned.placeto.network import PlacetoPolicy
    from placegap.solvers.learned.placeto.training import Placeto

    clock = task.limits.clock()
    nodes = nodes_of(task.instance, params.nodes)
    if len(nodes.first_op) > MOST_NODES:
        return f"the graph cannot be merged below {len(nodes.first_op)} nodes"
    with seeded(task.limits.seed):
        policy = PlacetoPolicy(nodes.num_features, task.instance.num_devices, params.rounds)
        start = start_of(nodes, params.start, task.limits.seed)
        learner = Placeto(nodes, tried, policy, start)
        steps = len(nodes.visits)
        try:
            learner.train((tried.left - steps) // (steps * params.workers), params.workers, clock)
            if tried.left >= steps:
                learner.play(1, clock, greedy=True)
        except LimitReached as reached:
            return str(reached)
    return ""


def start_of(nodes: Nodes, start: str, seed: int) -> Ints:
    """Device of each node at the beginning, (N,).

    Examples
    --------
    >>> from placegap.instances import example
    >>> start_of(nodes_of(example(), 4), "one-device", 0).tolist()
    [0, 0, 0, 0]
    """
    if start == "random":
        rng = np.random.default_rng(seed)
        device = np.zeros(len(nodes.first_op), np.int64)
        for together in nodes.visits:
            device[together] = rng.choice(np.flatnonzero(nodes.supported[together[0]]))
        return device
    slow = np.where(nodes.supported, nodes.time_ns, np.inf)
    alone = np.where(nodes.supported, nodes.time_ns, 2.0 * slow.min(axis=1).sum()).sum(axis=0)
    best = int(alone.argmin())
    return np.where(nodes.supported[:, best], best, slow.argmin(axis=1)).astype(np.int64)


register(
    Method(
        name="placeto",
        claim="heuristic",
        objectives=("makespan",),
        paper="Addanki et al. 2019",
        summary="a graph network re-places node after node, trained on simulated placements",
        run=run,
        params=PlacetoParams,
        missing=missing,
        packages=("torch", "numba"),
    )
)
