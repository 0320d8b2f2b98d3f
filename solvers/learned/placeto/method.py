"""placeto: a graph network re-places one node after the other; it learns from the simulator."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from placegap.experiments.research.learned.evaluations import (
    Evaluations,
    missing,
    seeded,
    usual_evaluations,
)
from placegap.experiments.research.learned.placeto_nodes import PlacetoNodes, nodes_of
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.clock import LimitReached
from placegap.solvers.core.method import EFFORT, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome

MOST_NODES = 1_000
"""The network is dense: its matrices have so many rows and columns at most."""


class PlacetoParams(Params):
    """Parameters of ``placeto``.

    Attributes
    ----------
    evaluations : int or None
        How many placements are simulated; by default `evaluations.usual_evaluations`.
    nodes : int
        Graphs are merged to so many nodes.
    rounds : int
        Rounds of message passing.
    workers : int
        Episodes of one update.
    start : {"one-device", "random"}
        Where episodes begin: all on the device that alone is fastest, or a random placement.
    learning_rate, entropy : float
        Of Adam, and of the bonus for entropy, at the beginning. Placeto's own are 0.001 and 1; they
        are for far more episodes.
    policy : str or None
        A policy to begin with: one that ships (`policy_file.shipped`), or a file.
    train : bool
        Whether the policy is trained at all; without it, it places each node once.
    """

    evaluations: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    nodes: int = Field(default=64, ge=1, le=MOST_NODES)
    rounds: int = Field(default=8, ge=1, le=64)
    workers: int = Field(default=4, ge=1, le=64)
    start: Literal["one-device", "random"] = "one-device"
    learning_rate: float = Field(default=0.01, gt=0, le=1)
    entropy: float = Field(default=0.003, ge=0, le=10)
    policy: str | None = None
    train: bool = True


def run(task: Task[Makespan], params: PlacetoParams) -> Outcome:
    """Train a policy on the instance, and return the best placement that it ever tried.

    Addanki et al., "Placeto: learning generalizable device placement algorithms for distributed
    machine learning" (2019). A heuristic; deterministic for a seed without a time limit. It takes
    O(rounds x N^2) for each placement of a graph merged to N nodes, besides its simulation.

    Deviations: graphs are merged by Pesto's rule, not by co-location groups and small neighbours;
    the simulator is ours; costs are in units of the start's, and memory beyond a device costs 2 for
    each 1/16 of it, where Placeto's costs 2 per GB; the return of a step is its cost minus the
    least later one (a variant of theirs); learning rate and entropy are for some thousand
    placements. An episode places only where an op can run.

    Examples
    --------
    Without torch the registry says what to install. With it:

    >>> from placegap.solvers import METHODS
    >>> METHODS["placeto"].paper
    'Addanki et al. 2019'
    """
    budget = params.evaluations or usual_evaluations(task.instance)
    tried = Evaluations(task.instance, task.semantics, budget, "placeto")
    return tried.outcome(learn(task, params, tried))


def learn(task: Task[Makespan], params: PlacetoParams, tried: Evaluations) -> str:
    """Train within the budget of `tried`; why it ended early, or an empty text.

    A policy that was given first places each node once; the last episode takes the likeliest
    device of each node.
    """
    from placegap.experiments.research.learned.placeto import (
        Placeto,
        Tuning,
        load_policy,
        new_policy,
        train,
    )

    clock = task.limits.clock()
    nodes = nodes_of(task.instance, params.nodes)
    if len(nodes.first_op) > MOST_NODES:
        return f"the graph cannot be merged below {len(nodes.first_op)} nodes"
    num_devices = task.instance.num_devices
    with seeded(task.limits.seed):
        if params.policy is None:
            policy = new_policy(num_devices, params.rounds)
        else:
            policy = load_policy(params.policy, num_devices)
        start = start_of(nodes, params.start, task.limits.seed)
        learner = Placeto(nodes, tried, policy, start)
        steps = len(nodes.visits)
        try:
            if params.policy is not None or not params.train:
                learner.play(1, clock, greedy=True)
            if params.train:
                updates = max(0, tried.left - steps) // (steps * params.workers)
                tuning = Tuning(updates, params.workers, params.learning_rate, params.entropy)
                train([learner], tuning, clock)
                if tried.left >= steps:
                    learner.play(1, clock, greedy=True)
        except LimitReached as reached:
            return str(reached)
    return ""


def start_of(nodes: PlacetoNodes, start: str, seed: int) -> Ints:
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
        cites=("addanki2019",),
        summary="a graph network re-places node after node, trained by simulation (`[torch]`)",
        run=run,
        params=PlacetoParams,
        missing=missing,
        packages=("torch", "numba"),
    )
)
