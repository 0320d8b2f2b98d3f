"""The method ``archer-exact``: the exact max-load MIP of Archer et al. as a method."""

from __future__ import annotations

from placegap.formulations import archer
from placegap.formulations.shared.times import granularity_ns
from placegap.instances.problem.semantics import MaxLoad
from placegap.solvers.chains.problem import why_not_two_kinds
from placegap.solvers.core.method import ExactParams, Formulation, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.models.run_mip import MipParams, run_mip, why_too_long, why_too_many_rows

STARTS = ("ideal-dp",)
"""Methods beside the placers whose plans the model starts from."""


class ArcherParams(MipParams, ExactParams):
    """Parameters of ``archer-exact``."""


def why_not(task: Task[MaxLoad], form: archer.Form) -> str | None:
    """Why the models of Archer et al. do not do a semantics or a size, or None."""
    reason = archer.why_not(task.semantics)
    if reason is not None:
        return f"its model {reason}"
    return why_too_long(archer.horizon_ns(task.instance)) or why_too_many_rows(
        archer.count_rows(task.instance, form)
    )


def applies(task: Task[MaxLoad], params: Params) -> str | None:
    """Why the semantics, the devices or the size are out of reach, or None; nothing is built."""
    if task.instance.arrays.is_host.any():
        return "takes identical accelerators, and no host"
    return why_not(task, "exact") or why_not_two_kinds(task.instance)


def formulation(task: Task[MaxLoad], params: Params) -> Formulation:
    """The model of a task, and how plans get into it and out of it."""
    instance, semantics = task.instance, task.semantics
    return Formulation(
        name="archer-exact",
        starts=STARTS,
        granularity_ns=granularity_ns(instance, transfers=False),
        build=lambda start: archer.build_exact(instance, semantics),
        warm_start=lambda model, plan: archer.warm_start(model, instance, plan, semantics),
        extract=lambda model: archer.extract(model, instance),
    )


def run(task: Task[MaxLoad], params: MipParams) -> Outcome:
    """Build, start from the best plan known, solve."""
    return run_mip(task, formulation(task, params), params.solver)


register(
    Method(
        name="archer-exact",
        usual_rules=lambda params: {"plans": "chain"},
        claim="exact",
        objectives=("max_load",),
        paper="Archer et al., ICML 2024",
        summary="The best chain of blocks for max-load as an integer program.",
        run=run,
        params=ArcherParams,
        applies=applies,
        packages=("pyomo", "highspy"),
        formulation=formulation,
    )
)
