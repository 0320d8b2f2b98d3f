"""The whole model, with what the sections have shown: the last resort of the decomposition."""

from __future__ import annotations

from collections.abc import Sequence

from placegap.formulations.makespan_cp import MakespanModel, build, read_plan, warm_start
from placegap.instances.problem.instance import Instance
from placegap.instances.referee.simulate import simulate
from placegap.solvers.core.back_ends.cp_sat import SOLVER, Answer, Settings, run_cp_sat
from placegap.solvers.decomposition.arcs import PROOFS, Use
from placegap.solvers.decomposition.chain import Chain
from placegap.solvers.decomposition.jobs import break_symmetry
from placegap.solvers.decomposition.search import SectionSearch
from placegap.solvers.models.cp_sat import MOST_PARTS

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


def solve_whole(search: SectionSearch, chains: Sequence[Chain], workers: int) -> None:
    """CP-SAT on the whole graph, for plans better than the incumbent, until a limit is reached.

    Every bound on a section is a row of it: x[u, a] and x[v, b] imply
    start[v] >= end[u] + bound - p_vb. Bounds that hold only for better plans are no harm: the
    model has no others.
    """
    task, instance = search.task, search.task.instance
    parts, left_s = whole_parts(instance), search.clock.left_s
    if parts > MOST_PARTS:
        search.note = f"{parts} ops x devices and edges x device pairs are too many for {SOLVER}"
        return
    if left_s is not None and parts > left_s * PARTS_PER_S:
        search.note = f"the time left is too short for a model of {parts} parts"
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
    limits = task.limits
    settings = Settings(workers, search.clock.left_s, limits.gap, limits.seed)
    found = run_cp_sat(
        model, task.semantics, lambda value: read_plan(model, value), settings, search.value_ns
    )
    search.interrupted |= found.interrupted
    _learn(search, found)
    if found.ending != "optimal" or model.exact:
        return
    search.note = f"optimal but for times that are rounded down to {model.unit_ns} ns"
    if search.over or search.value_ns is None:
        return
    if search.value_ns <= model.horizon_ns // 2:
        solve_whole(search, chains, workers)  # the shorter horizon has a finer unit


def _learn(search: SectionSearch, found: Answer) -> None:
    search.faults += found.faults
    search.note = {
        "refused": found.reason,
        "fault": f"{SOLVER} contradicts a known plan, and is not believed",
        "time_limit": f"time limit of {search.task.limits.named_s:g} s reached",
        "unknown": f"{SOLVER} stopped by itself after {found.seconds:.1f} s without saying why",
    }.get(found.ending, "")
    proof = PROOFS.index("cp-sat")
    if found.infeasible and search.value_ns is None:
        search.infeasible = True
    elif found.infeasible:
        search.found_bound(search.value_ns or 0, proof)
    else:
        if found.plan is not None:
            search.found_plan(found.plan)
        search.found_bound(found.bound_ns or 0, proof)


def _section_takes(model: MakespanModel, use: Use) -> None:
    entry, leave = use.section.entry, use.section.exit
    conditions = []
    for op, k in ((entry, use.entry), (leave, use.leave)):
        if op is not None and k is not None:
            if k not in model.x[op]:
                return
            conditions.append(model.x[op][k])
    lower, unit = use.arc.lower_ns, model.unit_ns
    if lower > model.horizon_ns:
        model.cp.add_bool_or([literal.negated() for literal in conditions])
        return
    if use.section.num_inner == 0:
        return
    begin = 0 if entry is None else model.end[entry]
    end = model.makespan if leave is None else model.end[leave]
    row = model.cp.add(end >= begin + lower // unit)
    if conditions:
        row.only_enforce_if(*conditions)
