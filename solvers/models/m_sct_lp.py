"""The method ``m-sct-lp``: m-SCT's LP with truncated transfers, a bound on every makespan."""

from __future__ import annotations

from dataclasses import replace

from placegap.formulations import m_sct
from placegap.instances.problem.semantics import Makespan
from placegap.solvers.core.method import Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.models.lp_bounds import run_lp_bound
from placegap.solvers.models.run_mip import why_too_long, why_too_many_rows


def applies(task: Task[Makespan], params: Params) -> str | None:
    """Why the size is out of reach, or None; nothing is built."""
    return why_too_long(m_sct.horizon_ns(task.instance)) or why_too_many_rows(
        m_sct.count_rows(task.instance), is_lp=True
    )


def run(task: Task[Makespan], params: Params) -> Outcome:
    """Build and solve the LP; `details` says how many transfers are truncated.

    With none, the value is that of the published LP.
    """
    instance = task.instance
    times = m_sct.sct_times(instance)
    shortened = m_sct.truncate(times)
    outcome = run_lp_bound(
        task,
        "m-sct-lp",
        lambda: m_sct.build(instance, truncated=True),
    )
    details = {
        **outcome.details,
        "small_communication": int(m_sct.communication_ratio(times) <= 1),
        "truncated": sum(
            shortened.move_ns[pair] < transfer for pair, transfer in times.move_ns.items()
        ),
    }
    return replace(outcome, details=details)


register(
    Method(
        name="m-sct-lp",
        claim="bound",
        objectives=("makespan",),
        paper="Hanen, Munier 1995; Jeon et al. 2020 (Baechi)",
        summary="Makespan bound: the favourite-child LP, transfers cut to what keeps it valid.",
        run=run,
        params=Params,
        applies=applies,
        packages=("pyomo", "highspy"),
    )
)
