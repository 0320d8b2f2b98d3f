"""The whole model, with what the sections have shown: the last resort of the decomposition."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ortools.sat.python import cp_model

from placegap.formulations.makespan_cp import build, read_plan, warm_start
from placegap.formulations.makespan_cp_vars import MakespanModel
from placegap.formulations.windows import NEVER
from placegap.instances.model import Instance
from placegap.instances.simulate import simulate
from placegap.solvers.cp_sat import BOUND_SEARCH, MOST_PARTS, PORTFOLIO
from placegap.solvers.cp_sat_search import new_solver
from placegap.solvers.decomposition_search import Search
from placegap.solvers.interrupts import run_stoppable
from placegap.solvers.section_arcs import PROOFS, Use
from placegap.solvers.section_chain import Chain
from placegap.solvers.section_jobs import break_symmetry

PARTS_PER_S = 20_000
"""A model that would take longer to build and to presolve than there is time is not built."""


def whole_parts(instance: Instance) -> int:
    """The size of the whole model: ops x devices and edges x device pairs.

    Examples
    --------
    >>> from placegap.instances import example
    >>> whole_parts(example())
    24
    """
    k = instance.num_devices
    return instance.num_ops * k + len(instance.graph.edges) * k * k


def solve_whole(search: Search, chains: Iterable[Chain], workers: int) -> None:
    """CP-SAT on the whole graph, for plans better than the incumbent, until a limit is reached.

    Every bound on a section is a row of it: x[u, a] and x[v, b] imply
    start[v] >= end[u] + bound - p_vb. Bounds that hold only for better plans are no harm: the
    model has no others.
    """
    task, instance = search.task, search.task.instance
    parts, left_s = whole_parts(instance), search.remaining_s
    if parts > MOST_PARTS or (left_s is not None and parts > left_s * PARTS_PER_S):
        return
    horizon = None if search.value_ns is None else search.value_ns - 1
    model = build(instance, task.semantics, horizon)
    plan = break_symmetry(model, search.plan)
    if plan is not None:  # too long for the model, but most of it may stay
        warm_start(model, simulate(instance, plan, task.semantics))
    for chain in chains:
        for uses in chain.uses:
            for row in uses:
                for use in row:
                    _section_takes(model, use)
    model.cp.add(model.makespan >= search.bound_ns // model.unit_ns)
    solver = new_solver(task.limits, workers, 0.0)
    parameters = solver.parameters
    parameters.linearization_level = 0
    parameters.cp_model_probing_level = 0
    if workers > 1:
        parameters.subsolvers.extend(BOUND_SEARCH if workers < 4 else PORTFOLIO)
    if search.deadline is not None:
        parameters.max_time_in_seconds = max(0.0, search.deadline - time.perf_counter())
    status, interrupted = run_stoppable(lambda: solver.solve(model.cp), solver.stop_search)
    search.interrupted |= interrupted
    _learn(search, model, solver, status)


def _learn(search: Search, model: MakespanModel, solver: cp_model.CpSolver, status: object) -> None:
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT rejects its model: {model.cp.validate()}")
    proof = PROOFS.index("cp-sat")
    if status == cp_model.INFEASIBLE:
        if search.value_ns is None:
            search.infeasible = True
        else:
            search.found_bound(search.value_ns, proof)
        return
    bound = int(solver.response_proto.inner_objective_lower_bound) * model.unit_ns
    if search.value_ns is not None:
        bound = min(bound, search.value_ns)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        search.found_plan(read_plan(model, solver.value))
    search.found_bound(bound, proof)


def _section_takes(model: MakespanModel, use: Use) -> None:
    entry, leave = use.section.entry, use.section.exit
    conditions = []
    for op, k in ((entry, use.entry), (leave, use.leave)):
        if op is not None and k is not None:
            if k not in model.x[op]:
                return
            conditions.append(model.x[op][k])
    lower, unit = use.arc.lower_ns, model.unit_ns
    if lower >= NEVER:
        model.cp.add_bool_or([literal.negated() for literal in conditions])
        return
    if use.section.num_inner == 0:
        return
    begin = 0 if entry is None else model.end[entry]
    end = model.makespan if leave is None else model.end[leave]
    row = model.cp.add(end >= begin + lower // unit)
    if conditions:
        row.only_enforce_if(*conditions)
