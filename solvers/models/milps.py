"""Methods that are a paper's MIP: ``moirai``, ``pesto`` and ``throughput-ip``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from placegap.formulations import helix, moirai, pesto, throughput_ip
from placegap.formulations.shared.times import granularity_ns
from placegap.instances.problem import Loads, Makespan, MaxLoad, ServingFlow
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.transforms.merge import Merge, expand_plan
from placegap.instances.transforms.pesto_merge import MergeOrder, merge_ops
from placegap.solvers.core.method import ExactParams, Formulation, Task
from placegap.solvers.core.progress import Known
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start, placers
from placegap.solvers.models.run_mip import (
    MIP,
    MOST_EDGES,
    MipParams,
    run_mip,
    why_too_long,
    why_too_many_rows,
)


class MoiraiParams(MipParams, ExactParams):
    #: The model: strengthened, as_published (mended for port), or verbatim, which proves nothing.
    form: moirai.Form = "strengthened"
    #: Whether the strengthened form fixes the roles of equal devices.
    symmetry: bool = True
    #: Larger models are refused; 0: those of more than 300,000 rows, as HiGHS gets nowhere.
    most_rows: Annotated[int, Field(ge=0)] = 0

    @property
    def keeps_exact(self) -> bool:
        """Verbatim, a tolerance of 1e-6 times the big-M of 100,000 is 0.1 units of time."""
        return self.form != "verbatim"


def moirai_applies(task: Task[Makespan], params: MoiraiParams) -> str | None:
    """Why the semantics or the size is out of reach, or None; nothing is built."""
    instance, reason = task.instance, moirai.why_not(task.semantics, params.form)
    if reason is not None:
        return f"its model {reason}"
    num_edges = len(instance.graph.edges)
    if num_edges > MOST_EDGES:
        return f"takes at most {MOST_EDGES} edges, not {num_edges}"
    rows = moirai.count_rows(instance, task.semantics, params.form, params.symmetry)
    return why_too_long(instance.arrays.serial_horizon_ns) or why_too_many_rows(
        rows, params.form, params.most_rows
    )


def moirai_formulation(task: Task[Makespan], params: MoiraiParams) -> Formulation:
    """What the runner needs."""
    # The strengthened form takes that plan's value as its horizon; the published form has the end
    # of a serial schedule as its big-M.
    instance, semantics, form = task.instance, task.semantics, params.form
    return Formulation(
        name="moirai",
        starts=(),
        granularity_ns=granularity_ns(instance, transfers=True),
        build=lambda start: moirai.build(
            instance,
            semantics,
            form=form,
            horizon_ns=None if start is None or form != "strengthened" else start.value,
            symmetry=params.symmetry and form == "strengthened",
        ),
        warm_start=lambda model, plan: moirai.warm_start(model, instance, plan),
        extract=lambda model: moirai.extract(model, instance, check=False),
    )


@method(
    "moirai",
    objectives=("makespan",),
    claim="exact",
    cites="Zhang et al. 2023 (Moirai)",
    scope="makespan, all channels, per_edge",
    solver="HiGHS",
    applies=moirai_applies,
    formulation=moirai_formulation,
    packages=MIP,
)
def run_moirai(task: Task[Makespan], params: MoiraiParams) -> Outcome:
    """MILP over placements and orders; `form=verbatim`, `as_published` (port) or `strengthened`.

    Verbatim it starts from no placer's plan and from no incumbent, and proves nothing.
    """
    if params.keeps_exact:
        return run_mip(task, moirai_formulation(task, params), params.solver)
    task = replace(task, incumbent=None, starts=())
    found = run_mip(task, moirai_formulation(task, params), params.solver)
    own = (
        "" if found.bound_value is None else f", so its bound of {found.bound_value} ns is dropped"
    )
    said = f"with a big-M of 100,000 the model proves nothing{own}"
    return replace(found, bound=None, message="; ".join(filter(None, [said, found.message])))


class HelixParams(MipParams):
    #: The model: strengthened, a relaxation, or as_published.
    form: helix.Form = "strengthened"


def helix_applies(task: Task[ServingFlow], params: HelixParams) -> str | None:
    """Why the semantics or the size is out of reach, or None."""
    reason = helix.why_not(task.semantics)
    if reason is not None:
        return f"its model {reason}"
    return why_too_many_rows(helix.count_rows(task.instance, params.form), params.form)


def helix_formulation(task: Task[ServingFlow], params: HelixParams) -> Formulation:
    """What the runner needs."""
    instance = task.instance
    return Formulation(
        name="helix",
        starts=(),
        granularity_ns=1,
        build=lambda start: helix.build(
            instance,
            task.semantics,
            form=params.form,
            most_flow=instance.flow_problem.work_bound,
            remove_redundant=True,
        ),
        warm_start=lambda model, plan: helix.warm_start(model, instance, plan),
        extract=lambda model: helix.extract(model, instance, check=False),
    )


@method(
    "helix",
    objectives=("serving_flow",),
    claim="exact",
    cites="Mei et al. 2025 (Helix)",
    scope="serving_flow without partial inference",
    solver="HiGHS",
    applies=helix_applies,
    formulation=helix_formulation,
    packages=MIP,
)
def run_helix(task: Task[ServingFlow], params: HelixParams) -> Outcome:
    """MILP over ranges of layers; `form=as_published`, or `strengthened` by counting per kind.

    Strengthened, machines of a kind are not told apart and links do not limit the flow: its bound
    holds, and its plan may pass less over links than the model says.
    """
    return run_mip(task, helix_formulation(task, params), params.solver)


class PestoParams(MipParams, ExactParams):
    #: The model: strengthened or as_published.
    form: pesto.Form = "strengthened"
    #: Larger graphs are merged to this many ops first, and the method proves nothing.
    num_ops: Annotated[int, Field(ge=1)] | None = None
    #: Which edges are merged first.
    merge: MergeOrder = "dearest_first"

    @property
    def keeps_exact(self) -> bool:
        """Merging may lose every optimum."""
        return self.num_ops is None


def pesto_applies(task: Task[Makespan], params: PestoParams) -> str | None:
    """Why the semantics or the size is out of reach, or None; no model is built."""
    reason = pesto.why_not(task.semantics)
    if reason is not None:
        return f"its model {reason}"
    reason = why_too_long(task.instance.arrays.serial_horizon_ns)
    if reason is not None:
        return reason
    merge = _merge(task, params)
    instance = task.instance if merge is None else merge.coarse
    num_edges = len(instance.graph.edges)
    if num_edges > MOST_EDGES:
        return f"takes at most {MOST_EDGES} edges, not {num_edges}; merge with num_ops"
    reason = why_too_many_rows(pesto.count_rows(instance, params.form), params.form)
    return None if reason is None else f"{reason}; merge with num_ops"


def pesto_formulation(task: Task[Makespan], params: PestoParams) -> Formulation:
    """What the runner needs, of the graph as it is or of the merged one."""
    merge = _merge(task, params)
    if merge is not None:
        task = replace(task, instance=merge.coarse, incumbent=None, starts=())
    return _pesto(task, params.form)


@method(
    "pesto",
    objectives=("makespan",),
    claim="exact",
    cites="after Hafeez et al. 2021 (Pesto)",
    scope="makespan, link, per_edge",
    solver="HiGHS",
    applies=pesto_applies,
    formulation=pesto_formulation,
    packages=MIP,
)
def run_pesto(task: Task[Makespan], params: PestoParams) -> Outcome:
    """ILP over placements and orders; with `num_ops=N` merges first, without a bound.

    Merging restricts placements: an optimum of the merged graph bounds nothing, and that it has no
    plan proves nothing. An incumbent is a plan of the graph as it is, of no use to a merged one.
    """
    merge = _merge(task, params)
    if merge is None:
        return run_mip(task, _pesto(task, params.form), params.solver)
    coarse = replace(task, instance=merge.coarse, incumbent=None)
    by_placers = placers(coarse) if params.start else ()
    found = run_mip(coarse, _pesto(coarse, params.form, by_placers), params.solver)
    words = [f"merged to {merge.coarse.num_ops} ops, so there is no bound"]
    plan = None
    if found.plan is not None:
        plan = expand_plan(merge, found.plan, task.semantics)
        value_ns = evaluate(merge.coarse, found.plan, task.semantics).value_ns
        bound = "" if found.bound_value is None else f", with a bound of {found.bound_value} ns"
        words.append(f"on the merged graph the plan takes {value_ns} ns{bound}")
    if found.proven_infeasible:
        words.append("no coarse plan fits, which proves nothing about the model")
    return replace(
        found,
        plan=plan,
        bound=None,
        message="; ".join(filter(None, [*words, found.message])),
        details={**found.details, "merged_ops": merge.coarse.num_ops},
    )


def _merge(task: Task[Makespan], params: PestoParams) -> Merge | None:
    """The merged instance, None where the graph is small enough as it is."""
    if params.num_ops is None or params.num_ops >= task.instance.num_ops:
        return None
    return merge_ops(task.instance, params.num_ops, params.merge)


def _pesto(task: Task[Makespan], form: pesto.Form, starts: tuple[str, ...] = ()) -> Formulation:
    """What the runner needs."""
    # The strengthened form takes the start's value as its horizon; the published form has the end
    # of a serial schedule as its big-M.
    instance = task.instance
    return Formulation(
        name="pesto",
        starts=starts,
        granularity_ns=granularity_ns(instance, transfers=True),
        build=lambda start: pesto.build(
            instance,
            task.semantics,
            form=form,
            horizon_ns=None if start is None or form == "as_published" else start.value,
        ),
        warm_start=lambda model, plan: pesto.warm_start(model, instance, plan),
        extract=lambda model: pesto.extract(model, instance, check=False),
    )


STARTS = ("ideal-dp",)  # methods beside the placers whose plans the model starts from


class ThroughputParams(MipParams, ExactParams):
    """Parameters of ``throughput-ip``."""

    #: Whether the roles of equal devices are fixed.
    symmetry: bool = True


def throughput_applies(task: Task[Loads], params: ThroughputParams) -> str | None:
    """Why the semantics or the size is out of reach, or None; nothing is built."""
    instance, semantics = task.instance, task.semantics
    reason = throughput_ip.why_not(instance, semantics, symmetry=params.symmetry)
    if reason is not None:
        return f"its model {reason}"
    return why_too_long(throughput_ip.horizon_ns(instance, semantics)) or why_too_many_rows(
        throughput_ip.count_rows(instance, semantics, params.symmetry)
    )


def throughput_formulation(task: Task[Loads], params: ThroughputParams) -> Formulation:
    """What the runner needs."""
    instance, semantics = task.instance, task.semantics
    return Formulation(
        name="throughput-ip",
        starts=STARTS,
        granularity_ns=throughput_ip.value_step_ns(instance, semantics),
        build=lambda start: throughput_ip.build(
            instance, semantics, horizon_ns=start and start.value, symmetry=params.symmetry
        ),
        warm_start=lambda model, plan: throughput_ip.warm_start(model, instance, plan),
        extract=lambda model: throughput_ip.extract(model, instance, check=False),
    )


@method(
    "throughput-ip",
    objectives=("max_load", "max_load_fwd_bwd"),
    claim="exact",
    cites="Tarnawski et al. 2020",
    scope="max_load, max_load_fwd_bwd; all plans, replicas, 2 levels",
    solver="HiGHS",
    applies=throughput_applies,
    formulation=throughput_formulation,
    packages=MIP,
)
def run_throughput(task: Task[Loads], params: ThroughputParams) -> Outcome:
    """Integer program over the ops of each device."""
    return run_mip(_with_plain_start(task), throughput_formulation(task, params), params.solver)


def _with_plain_start(task: Task[Loads]) -> Task[Loads]:
    """The task with a good plan of the plain max_load as incumbent, where that is feasible."""
    # A plan without replicas is one of those with them, and the placers know no other rules.
    semantics, known = task.semantics, Known()
    plain = MaxLoad(plans=semantics.plans, load=semantics.load)
    if plain != semantics:
        found = best_start(replace(task, semantics=plain, incumbent=None, starts=()), STARTS)
        known.offer_plan(task, found and found.plan)
        known.offer_plan(task, task.incumbent)
    return task if known.plan is None else replace(task, incumbent=known.plan)
