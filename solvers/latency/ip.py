"""The method ``latency-ip``: Tarnawski et al.'s latency IP, as a MIP or for CP-SAT."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from placegap.formulations import latency_ip
from placegap.formulations.latency_ip import cp as latency_cp
from placegap.formulations.latency_ip.calls import serial_horizon_ns
from placegap.formulations.latency_ip.chain_bound import chain_bound_ns
from placegap.formulations.latency_ip.cp import LatencyModel
from placegap.formulations.shared.times import LARGEST_HORIZON_NS, granularity_ns
from placegap.instances.problem import LatencySubgraphs
from placegap.instances.problem.integers import NEVER
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.back_ends.cp_sat import Settings, search
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import ExactParams, Formulation, Start, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome, no_plan
from placegap.solvers.core.starts import best_start
from placegap.solvers.latency.slices import with_slices
from placegap.solvers.models.run_mip import LONGEST_NS, MipParams, run_mip, why_too_many_rows

STARTS = ("single-device", "m-topo")  # methods for the objective whose plans the search starts from


class LatencyIpParams(MipParams, ExactParams):
    #: cp-sat, or mip. CP-SAT with two workers closed the operator graph of BERT-3, one call per
    #: accelerator, to 1e-7 in 39 s; HiGHS was 0.6 % from its bound after a minute.
    model: Literal["mip", "cp-sat"] = "cp-sat"
    #: Form of the MIP; CP-SAT has one form.
    form: latency_ip.Form = "strengthened"
    #: Threads of CP-SAT. The MIP solvers run on one.
    workers: int = Field(default=2, ge=1, le=1024)


def applies(task: Task[LatencySubgraphs], params: LatencyIpParams) -> str | None:
    """Why the semantics or the size is out of reach, or None; nothing is built."""
    reason = latency_ip.why_not(task.semantics)
    if reason is not None:
        return f"its model {reason}"
    horizon, most_ns = serial_horizon_ns(task.instance), LARGEST_HORIZON_NS
    if params.model == "mip":
        most_ns = LONGEST_NS
    if horizon > most_ns:
        return f"its times sum to {horizon} ns, more than 2**{most_ns.bit_length() - 1}"
    rows = latency_ip.count_rows(task.instance, task.semantics, params.form)
    return why_too_many_rows(rows, params.form)


def formulation(task: Task[LatencySubgraphs], params: LatencyIpParams) -> Formulation:
    """The MIP for the runner."""
    if params.model != "mip":
        raise InputError("latency-ip solves a CP-SAT model by default; add --param model=mip")
    bound_ns = None
    if params.form == "strengthened":
        bound_ns = min(chain_bound_ns(task.instance, task.semantics), NEVER)
    return _formulation(task, params, bound_ns)


@method(
    "latency-ip",
    objectives=("latency_subgraphs",),
    claim="exact",
    cites="Tarnawski et al. 2020",
    scope="latency_subgraphs",
    applies=applies,
    formulation=formulation,
    packages=("pyomo", "highspy", "ortools"),
)
def run(task: Task[LatencySubgraphs], params: LatencyIpParams) -> Outcome:
    """CP-SAT, or a MIP with `model=mip`.

    Start from the best of the incumbent, of `STARTS` and of `best_slices`; build, solve. Except for
    the published form, the bound is the better of the solver's and `chain_bound_ns`. That bound is
    a row of the models as well, but a solver that is stopped early may not have reached it.
    """
    clock = task.limits.clock()
    task = with_slices(task)
    if params.model == "mip" and params.form == "as_published":
        return run_mip(task, _formulation(task, params, None), params.solver, clock)
    chains_ns = chain_bound_ns(task.instance, task.semantics)
    if chains_ns >= NEVER:
        words = "some path of ops fits nowhere"
        return Outcome(bound=no_plan(), message=words)
    if params.model == "mip":
        outcome = run_mip(task, _formulation(task, params, chains_ns), params.solver, clock)
    else:
        outcome = solve_cp(task, params.workers, chains_ns, clock)
    if outcome.proven_infeasible or (outcome.bound_value or 0) > chains_ns:
        return outcome
    return replace(outcome, bound=Bound(chains_ns, "chains"))


def _formulation(
    task: Task[LatencySubgraphs], params: LatencyIpParams, bound_ns: int | None
) -> Formulation:
    instance, semantics, form = task.instance, task.semantics, params.form
    return Formulation(
        name="latency-ip",
        starts=STARTS,
        granularity_ns=granularity_ns(instance, transfers=False),
        build=lambda start: latency_ip.build(
            instance,
            semantics,
            form=form,
            horizon_ns=None if start is None else start.value,
            bound_ns=bound_ns,
            symmetry=form == "strengthened",
        ),
        warm_start=lambda model, plan: latency_ip.warm_start(model, instance, plan),
        extract=lambda model: latency_ip.extract(model, instance, check=False),
    )


def solve_cp(
    task: Task[LatencySubgraphs], workers: int, bound_ns: int, clock: Clock | None = None
) -> Outcome:
    """Solve the CP-SAT model from the best of the incumbent and `STARTS`."""
    # Returns the better of the solver's plan and the start, or the start if an interrupt or a lack
    # of memory comes before the solver's plan. The bound holds for all plans. `bound_ns` is a row
    # of the model.
    clock = clock or task.limits.clock()
    settings = Settings(workers, gap=task.limits.gap, seed=task.limits.seed, scheduling=False)

    def prepare(start: Start | None) -> LatencyModel:
        model = latency_cp.build(
            task.instance,
            task.semantics,
            horizon_ns=start.value if start else None,
            bound_ns=bound_ns,
            symmetry=True,
        )
        if start:
            latency_cp.warm_start(model, task.instance, start.plan)
        return model

    start = best_start(task, STARTS)
    extract = latency_cp.extract
    return search(task, start, prepare, extract, lambda _: (0, ""), settings, clock)
