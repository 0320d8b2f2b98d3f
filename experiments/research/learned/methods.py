"""hrl and placeto: placers that learn from simulated placements, by policy gradient.

What they learn with needs torch.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import Field

from placegap.instances.problem import Makespan
from placegap.solvers.core.method import EFFORT, Params, Task, why_not_installed
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome

missing = partial(why_not_installed, "torch", "torch")


class HrlParams(Params):
    """Parameters of ``hrl``."""

    #: How many placements are simulated; by default 100 per op, at most 4,000.
    evaluations: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    #: Groups that the grouper may fill.
    groups: int = Field(default=16, ge=1, le=1_024)
    #: Placements of one grouping, and of one update.
    samples: int = Field(default=4, ge=1, le=64)
    #: Width of the placer's LSTMs.
    width: int = Field(default=64, ge=2, le=1_024)
    #: Adam's.
    learning_rate: float = Field(default=0.003, gt=0, le=1)


@method(
    "hrl",
    objectives=("makespan",),
    cites="Mirhoseini et al. 2018",
    missing=missing,
    packages=("torch", "numba"),
)
def run_hrl(task: Task[Makespan], params: HrlParams) -> Outcome:
    """Policies that group ops and place the groups, trained by simulation (a checkout, `[torch]`).

    The best placement that they ever tried comes back. Mirhoseini et al., "A hierarchical model for
    device placement" (ICLR 2018), for which no code was released. A heuristic; deterministic for a
    seed without a time limit. An update takes O(U x groups + groups^2 x (width + samples)) for U
    ops or colocation groups, besides the simulation of its placements.

    Deviations: fewer groups and narrower LSTMs (256 and 512 in the paper), and a learning rate to
    suit; colocated ops are grouped as one; an op that its group's device cannot run goes to the
    fastest that can.
    """
    from placegap.experiments.research.learned.hrl import run

    return run(task, params)


MOST_NODES = 1_000
"""Most rows and columns of the network's matrices, which are dense."""


class PlacetoParams(Params):
    """Parameters of ``placeto``."""

    #: How many placements are simulated; by default 100 per op, at most 4,000.
    evaluations: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    #: Nodes to which graphs are merged.
    nodes: int = Field(default=64, ge=1, le=MOST_NODES)
    #: Rounds of message passing.
    rounds: int = Field(default=8, ge=1, le=64)
    #: Episodes of one update.
    workers: int = Field(default=4, ge=1, le=64)
    #: Where episodes begin: all on the device that alone is fastest, or a random placement.
    start: Literal["one-device", "random"] = "one-device"
    #: Adam's, at the beginning; Placeto's 0.001 is for far more episodes.
    learning_rate: float = Field(default=0.01, gt=0, le=1)
    #: Weight of the bonus for entropy, at the beginning; Placeto's is 1.
    entropy: float = Field(default=0.003, ge=0, le=10)
    #: A policy to begin with: one that ships (`blocks-4`), or a file.
    policy: str | None = None
    #: Whether the policy is trained at all; without it, it places each node once.
    train: bool = True


@method(
    "placeto",
    objectives=("makespan",),
    cites="Addanki et al. 2019",
    missing=missing,
    packages=("torch", "numba"),
)
def run_placeto(task: Task[Makespan], params: PlacetoParams) -> Outcome:
    """A graph network re-places node after node, trained by simulation (a checkout, `[torch]`).

    The best placement that it ever tried comes back. Addanki et al., "Placeto: learning
    generalizable device placement algorithms for distributed machine learning" (2019). A heuristic;
    deterministic for a seed without a time limit. It takes O(rounds x N^2) for each placement of a
    graph merged to N nodes, besides its simulation.

    Deviations: graphs are merged along expensive edges to nodes of about equal work; the simulator
    is ours; memory beyond a device costs 2 for each sixteenth of it (2 per GB in Placeto); a step's
    return is its cost minus the least later one.
    """
    from placegap.experiments.research.learned.placeto import run

    return run(task, params)
