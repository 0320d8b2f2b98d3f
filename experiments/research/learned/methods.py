"""hrl and placeto: placers that learn from simulated placements, by policy gradient.

What they learn with needs torch.
"""

from __future__ import annotations

from functools import partial

from placegap.experiments.research.learned.params import HrlParams, PlacetoParams
from placegap.instances.problem import Makespan
from placegap.solvers.core.method import Task, why_not_installed
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome

missing = partial(why_not_installed, "torch", "torch")


@method(
    "hrl",
    objectives=("makespan",),
    cites="Mirhoseini et al. 2018",
    missing=missing,
    packages=("torch", "numba"),
    seeded=True,
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


@method(
    "placeto",
    objectives=("makespan",),
    cites="Addanki et al. 2019",
    missing=missing,
    packages=("torch", "numba"),
    seeded=True,
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
