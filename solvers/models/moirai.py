"""The method ``moirai``: Moirai's MILP through HiGHS."""

from __future__ import annotations

from placegap.formulations import moirai
from placegap.formulations.shared.times import granularity_ns, serial_horizon_ns
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.method import ExactParams, Formulation, Method, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.models.run_mip import (
    MOST_EDGES,
    MipParams,
    run_mip,
    why_too_long,
    why_too_many_rows,
)


class MoiraiParams(MipParams, ExactParams):
    """Which form of the model, and whether the strengthened one breaks symmetries."""

    form: moirai.Form = "strengthened"
    symmetry: bool = True


def applies(task: Task[Makespan], params: MoiraiParams) -> str | None:
    """Why the semantics or the size is out of reach, or None; nothing is built."""
    instance, reason = task.instance, moirai.why_not(task.semantics, params.form)
    if reason is not None:
        return f"its model {reason}"
    num_edges = len(instance.graph.edges)
    if num_edges > MOST_EDGES:
        return f"takes at most {MOST_EDGES} edges, not {num_edges}"
    return why_too_long(serial_horizon_ns(instance)) or why_too_many_rows(
        moirai.count_rows(instance, params.form, task.semantics, params.symmetry), params.form
    )


def formulation(task: Task[Makespan], params: MoiraiParams) -> Formulation:
    """What the runner needs.

    The strengthened form takes that plan's value as its horizon; the published form has the end of
    a serial schedule as its big-M.
    """
    instance, semantics, form = task.instance, task.semantics, params.form
    return Formulation(
        name="moirai",
        starts=(),
        granularity_ns=granularity_ns(instance, transfers=True),
        build=lambda start: moirai.build(
            instance,
            semantics,
            form,
            None if start is None or form == "as_published" else start.value_ns,
            params.symmetry,
        ),
        warm_start=lambda model, plan: moirai.warm_start(model, instance, plan, semantics),
        extract=lambda model: moirai.extract(model, instance, semantics),
    )


def run(task: Task[Makespan], params: MoiraiParams) -> Outcome:
    """Build, start from the best plan known, solve."""
    return run_mip(task, formulation(task, params), params.solver)


register(
    Method(
        name="moirai",
        claim="exact",
        objectives=("makespan",),
        paper="Zhang et al. 2023 (Moirai)",
        summary="MILP over placements, op orders and transfer orders, through HiGHS.",
        run=run,
        params=MoiraiParams,
        applies=applies,
        formulation=formulation,
        packages=("pyomo", "highspy"),
    )
)
