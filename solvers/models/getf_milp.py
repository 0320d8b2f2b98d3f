"""The method ``getf-milp``: GETF's MILP without device-dependent communication."""

from __future__ import annotations

from dataclasses import replace

from placegap.formulations.getf import critical_path_ns
from placegap.formulations.getf import milp as getf
from placegap.formulations.shared.times import granularity_ns
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.method import Formulation, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.models.lp_bounds import with_path
from placegap.solvers.models.run_mip import MipParams, run_mip, why_too_long, why_too_many_rows

ORIGIN = "getf-milp (no device-dependent communication)"


def applies(task: Task[Makespan], params: Params) -> str | None:
    """Why the size is out of reach, or None; nothing is built."""
    return why_too_long(getf.milp_horizon_ns(task.instance)) or why_too_many_rows(
        getf.count_rows(task.instance)
    )


def formulation(task: Task[Makespan], params: Params) -> Formulation:
    """What the runner needs."""
    instance = task.instance
    return Formulation(
        name="getf-milp",
        starts=(),
        granularity_ns=granularity_ns(instance, transfers=True),
        build=lambda start: getf.build(instance),
        warm_start=lambda model, plan: getf.warm_start(model, instance, plan),
        extract=lambda model: getf.extract(model, instance),
    )


def run(task: Task[Makespan], params: MipParams) -> Outcome:
    """Build and solve; the plan is the MILP's own, or the incumbent where that is better.

    No placer's plan is a start: what is compared as GETF's should not be HEFT's. The bound is
    the model's, whose transfers and queues are shorter than real ones, and the plan's value is the
    referee's: the two may stay apart however long the solver runs.
    """
    outcome = run_mip(task, formulation(task, params), params.solver)
    if outcome.proven_infeasible:
        return outcome
    return with_path(replace(outcome, bound_origin=ORIGIN), critical_path_ns(task.instance))


register(
    Method(
        name="getf-milp",
        claim="heuristic",
        objectives=("makespan",),
        paper="Zhang et al. 2023 (Moirai), after Su et al. 2020 (GETF)",
        summary="Placements by a MILP without device-dependent communication; makespan bound.",
        run=run,
        params=MipParams,
        applies=applies,
        formulation=formulation,
        packages=("pyomo", "highspy"),
    )
)
