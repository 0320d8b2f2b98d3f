"""hrl: a grouper and a placer of groups, trained together on simulated placements."""

from __future__ import annotations

from pydantic import Field

from placegap.experiments.research.learned.evaluations import (
    Evaluations,
    missing,
    seeded,
    usual_evaluations,
)
from placegap.experiments.research.learned.hrl import op_features
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.clock import LimitReached
from placegap.solvers.core.method import EFFORT, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome


class HrlParams(Params):
    """Parameters of ``hrl``.

    Attributes
    ----------
    evaluations : int or None
        How many placements are simulated; by default `evaluations.usual_evaluations`.
    groups : int
        Groups that the grouper may fill.
    samples : int
        Placements of one grouping, and of one update.
    width : int
        Width of the placer's LSTMs.
    learning_rate : float
        Adam's.
    """

    evaluations: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    groups: int = Field(default=16, ge=1, le=1_024)
    samples: int = Field(default=4, ge=1, le=64)
    width: int = Field(default=64, ge=2, le=1_024)
    learning_rate: float = Field(default=0.003, gt=0, le=1)


def run(task: Task[Makespan], params: HrlParams) -> Outcome:
    """Train both policies on the instance, and return the best placement that they ever tried.

    Mirhoseini et al., "A hierarchical model for device placement" (ICLR 2018), for which no code
    was released. A heuristic; deterministic for a seed without a time limit. An update takes
    O(U x groups + groups^2 x (width + samples)) for U ops or colocation groups, besides the
    simulation of its placements.

    Deviations: fewer groups and narrower LSTMs, and a learning rate to suit (theirs are 256, 512
    and 0.1); ops that are colocated are grouped as one; an op that its group's device cannot run
    goes to the fastest that can, as TensorFlow's soft placement does; the square root is of the
    time in units of all ops one after the other.

    Examples
    --------
    Without torch the registry says what to install. With it:

    >>> from placegap.solvers import METHODS
    >>> METHODS["hrl"].paper
    'Mirhoseini et al. 2018'
    """
    budget = params.evaluations or usual_evaluations(task.instance)
    tried = Evaluations(task.instance, task.semantics, budget, "hrl")
    return tried.outcome(learn(task, params, tried))


def learn(task: Task[Makespan], params: HrlParams, tried: Evaluations) -> str:
    """Train within the budget of `tried`; why it ended early, or an empty text."""
    from placegap.experiments.research.learned.hrl import Hrl

    clock = task.limits.clock()
    with seeded(task.limits.seed):
        ops = op_features(task.instance)
        groups = min(params.groups, len(ops.kind))
        learner = Hrl(ops, tried, groups, params.width, params.learning_rate)
        try:
            learner.train(params.samples, clock)
        except LimitReached as reached:
            return str(reached)
    return ""


register(
    Method(
        name="hrl",
        claim="heuristic",
        objectives=("makespan",),
        paper="Mirhoseini et al. 2018",
        cites=("mirhoseini2018",),
        summary="policies that group ops and place the groups, trained by simulation (`[torch]`)",
        run=run,
        params=HrlParams,
        missing=missing,
        packages=("torch", "numba"),
    )
)
