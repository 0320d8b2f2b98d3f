"""The method ``throughput-ip``: the throughput IP of Tarnawski et al. as a MIP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placegap.formulations import throughput_ip
from placegap.instances.problem.semantics import LoadSemantics, MaxLoad
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.method import ExactParams, Formulation, Method, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start
from placegap.solvers.models.run_mip import MipParams, run_mip, why_too_long, why_too_many_rows

STARTS = ("ideal-dp",)
"""Methods beside the placers whose plans the model starts from."""


class ThroughputParams(MipParams, ExactParams):
    """Parameters of ``throughput-ip``.

    Attributes
    ----------
    contiguous : {"convex", "chain", "no"} or None
        Which plans compete; it must be the class of the semantics, as it is by default.
    symmetry : bool
        Whether the roles of equal devices are fixed.
    """

    contiguous: throughput_ip.Contiguous | None = None
    symmetry: bool = True


def applies(task: Task[LoadSemantics], params: ThroughputParams) -> str | None:
    """Why the semantics or the size is out of reach, or None; nothing is built."""
    instance, semantics = task.instance, task.semantics
    reason = throughput_ip.why_not(instance, semantics, params.contiguous, params.symmetry)
    if reason is not None:
        return f"its model {reason}"
    return why_too_long(throughput_ip.horizon_ns(instance, semantics)) or why_too_many_rows(
        throughput_ip.count_rows(instance, semantics, params.symmetry)
    )


def formulation(task: Task[LoadSemantics], params: ThroughputParams) -> Formulation:
    """What the runner needs."""
    instance, semantics, symmetry = task.instance, task.semantics, params.symmetry
    return Formulation(
        name="throughput-ip",
        starts=STARTS,
        granularity_ns=throughput_ip.value_step_ns(instance, semantics),
        build=lambda start: throughput_ip.build(
            instance, semantics, params.contiguous, symmetry, start and start.value_ns
        ),
        warm_start=lambda model, plan: throughput_ip.warm_start(
            model, instance, plan, semantics, symmetry
        ),
        extract=lambda model: throughput_ip.extract(model, instance, semantics, symmetry),
    )


def run(task: Task[LoadSemantics], params: ThroughputParams) -> Outcome:
    """Build, start from the best plan known, solve."""
    return run_mip(_with_plain_start(task), formulation(task, params), params.solver)


def _with_plain_start(task: Task[LoadSemantics]) -> Task[LoadSemantics]:
    """The task with a good plan of the plain max_load as incumbent, where that is feasible.

    A plan without replicas is one of those with them, and the placers know no other rules.
    """
    semantics, known = task.semantics, task.incumbent
    plain = MaxLoad(plans=semantics.plans, load=semantics.load)
    if plain == semantics:
        return task
    found = best_start(replace(task, semantics=plain, incumbent=None, starts=()), STARTS)
    if found is None:
        return task
    verdicts = [
        evaluate(task.instance, plan, semantics) for plan in (known, found.plan) if plan is not None
    ]
    values = [verdict.value_ns if verdict.feasible else None for verdict in verdicts]
    if values[-1] is None or (values[0] is not None and values[0] < values[-1]):
        return task
    return replace(task, incumbent=found.plan)


def _usual_rules(params: Mapping[str, object]) -> Mapping[str, str]:
    """The class of plans that its parameter `contiguous` asks for."""
    classes = {"no": "any", "convex": "convex", "chain": "chain"}
    asked = classes.get(str(params.get("contiguous", "no")))
    return {} if asked is None else {"plans": asked}


register(
    Method(
        name="throughput-ip",
        usual_rules=_usual_rules,
        claim="exact",
        objectives=("max_load", "max_load_fwd_bwd"),
        paper="Tarnawski et al. 2020",
        summary="The integer program for max-load, contiguous or not, replicated, over servers.",
        run=run,
        params=ThroughputParams,
        applies=applies,
        formulation=formulation,
        packages=("pyomo", "highspy"),
    )
)
