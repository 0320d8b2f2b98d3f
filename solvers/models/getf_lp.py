"""The method ``getf-lp``: GETF's LP through HiGHS, a lower bound on every makespan."""

from __future__ import annotations

from dataclasses import replace

from placegap.formulations.getf import build_lp, count_rows_lp, horizon_ns
from placegap.formulations.shared.devices import Grouping, device_groups, related_speeds
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.method import Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.models.lp_bounds import run_lp_bound
from placegap.solvers.models.run_mip import why_too_long, why_too_many_rows


class GetfLpParams(Params):
    """How devices are grouped.

    Groups of equal devices ("columns") give the best bound; "auto" is the paper's grouping.
    """

    groups: Grouping = "columns"


def applies(task: Task[Makespan], params: GetfLpParams) -> str | None:
    """Why the size or the grouping is out of reach, or None; nothing is built."""
    instance = task.instance
    if params.groups == "speeds" and related_speeds(instance.arrays.time_ns) is None:
        return "its times are not those of devices with speeds; use groups=auto"
    rows = count_rows_lp(instance, device_groups(instance, params.groups))
    return why_too_long(horizon_ns(instance)) or why_too_many_rows(rows, is_lp=True)


def run(task: Task[Makespan], params: GetfLpParams) -> Outcome:
    """Build and solve the LP."""
    instance, groups = task.instance, device_groups(task.instance, params.groups)
    outcome = run_lp_bound(
        task,
        "getf-lp",
        lambda: build_lp(instance, groups),
    )
    return replace(outcome, details={**outcome.details, "groups": len(groups.devices)})


register(
    Method(
        name="getf-lp",
        claim="bound",
        objectives=("makespan",),
        paper="Su et al. 2020 (GETF)",
        summary="Makespan bound: LP over fractions of groups of devices, no communication.",
        run=run,
        params=GetfLpParams,
        applies=applies,
        packages=("pyomo", "highspy"),
    )
)
