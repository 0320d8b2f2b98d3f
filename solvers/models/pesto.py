"""The method ``pesto``: Pesto's ILP through HiGHS, of the graph or of a coarser one."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from placegap.formulations import pesto
from placegap.formulations.shared.times import granularity_ns, serial_horizon_ns
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.transforms.merge import Merge, expand_plan
from placegap.instances.transforms.pesto_merge import MergeOrder, merge_ops
from placegap.solvers.core.method import ExactParams, Formulation, Method, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import placers
from placegap.solvers.models.run_mip import (
    MOST_EDGES,
    MipParams,
    run_mip,
    why_too_long,
    why_too_many_rows,
)


class PestoParams(MipParams, ExactParams):
    """Which form of the model, and of which graph.

    `num_ops` None: the graph as it is, and the method is exact. Otherwise larger graphs are merged
    to so many ops first, in the order `merge`, and the method proves nothing.
    """

    form: pesto.Form = "strengthened"
    num_ops: Annotated[int, Field(ge=1)] | None = None
    merge: MergeOrder = "dearest_first"

    @property
    def keeps_exact(self) -> bool:
        """Merging may lose every optimum."""
        return self.num_ops is None


def applies(task: Task[Makespan], params: PestoParams) -> str | None:
    """Why the semantics or the size is out of reach, or None; no model is built."""
    reason = pesto.why_not(task.semantics)
    if reason is not None:
        return f"its model {reason}"
    reason = why_too_long(serial_horizon_ns(task.instance))
    if reason is not None:
        return reason
    merge = _merge(task, params)
    instance = task.instance if merge is None else merge.coarse
    num_edges = len(instance.graph.edges)
    if num_edges > MOST_EDGES:
        return f"takes at most {MOST_EDGES} edges, not {num_edges}; merge with num_ops"
    reason = why_too_many_rows(pesto.count_rows(instance, params.form), params.form)
    return None if reason is None else f"{reason}; merge with num_ops"


def run(task: Task[Makespan], params: PestoParams) -> Outcome:
    """Solve the graph as it is, or a merged one, whose plan is expanded and whose bound is dropped.

    Merging restricts placements: an optimum of the merged graph bounds nothing, and that it has no
    plan proves nothing. An incumbent is a plan of the graph as it is, of no use to a merged one.
    """
    merge = _merge(task, params)
    if merge is None:
        return run_mip(task, _formulation(task, params.form), params.solver)
    coarse = replace(task, instance=merge.coarse, incumbent=None)
    asked = placers(coarse) if params.start else ()
    found = run_mip(coarse, _formulation(coarse, params.form, asked), params.solver)
    words = [f"merged to {merge.coarse.num_ops} ops, so that there is no bound"]
    plan = None
    if found.plan is not None:
        plan = expand_plan(merge, found.plan, task.semantics)
        value_ns = evaluate(merge.coarse, found.plan, task.semantics).value_ns
        bound = "" if found.bound_ns is None else f", with a bound of {found.bound_ns} ns"
        words.append(f"there the plan takes {value_ns} ns{bound}")
    if found.proven_infeasible:
        words.append("there no plan fits, which proves nothing here")
    return replace(
        found,
        plan=plan,
        bound_ns=None,
        bound_origin="",
        rests_on="",
        proven_infeasible=False,
        message="; ".join(filter(None, [*words, found.message])),
        details={**found.details, "merged_ops": merge.coarse.num_ops},
    )


def formulation(task: Task[Makespan], params: PestoParams) -> Formulation:
    """What the runner needs, of the graph as it is or of the merged one."""
    merge = _merge(task, params)
    if merge is not None:
        task = replace(task, instance=merge.coarse, incumbent=None, starts=())
    return _formulation(task, params.form)


def _merge(task: Task[Makespan], params: PestoParams) -> Merge | None:
    """The merged instance, None where the graph is small enough as it is."""
    if params.num_ops is None or params.num_ops >= task.instance.num_ops:
        return None
    return merge_ops(task.instance, params.num_ops, params.merge)


def _formulation(
    task: Task[Makespan], form: pesto.Form, starts: tuple[str, ...] = ()
) -> Formulation:
    """What the runner needs.

    The strengthened form takes the start's value as its horizon; the published form has the end of
    a serial schedule as its big-M.
    """
    instance = task.instance
    return Formulation(
        name="pesto",
        starts=starts,
        granularity_ns=granularity_ns(instance, transfers=True),
        build=lambda start: pesto.build(
            instance,
            task.semantics,
            form,
            None if start is None or form == "as_published" else start.value_ns,
        ),
        warm_start=lambda model, plan: pesto.warm_start(model, instance, plan),
        extract=lambda model: pesto.extract(model, instance),
    )


register(
    Method(
        name="pesto",
        usual_rules=lambda params: {"channels": "link"},
        claim="exact",
        objectives=("makespan",),
        paper="after Hafeez et al. 2021 (Pesto)",
        summary="ILP over placements, op and link orders, through HiGHS; may merge ops first.",
        run=run,
        params=PestoParams,
        applies=applies,
        formulation=formulation,
        packages=("pyomo", "highspy"),
    )
)
