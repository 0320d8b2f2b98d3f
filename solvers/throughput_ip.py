"""The method ``throughput-ip``: the throughput IP of Tarnawski et al. through HiGHS."""

from __future__ import annotations

from placegap.formulations import throughput_ip
from placegap.formulations.common import granularity_ns
from placegap.solvers.mip import Formulation, run_mip
from placegap.solvers.registry import Method, Params, Task, register
from placegap.solvers.result import Outcome

MOST_ROWS = 300_000
"""Larger models are refused: HiGHS hardly ends their root node."""

LONGEST_NS = 2**53
"""Longer loads, over 100 days, are refused: floating-point numbers do not resolve their ns."""

STARTS = ("single-device", "m-topo", "ideal-dp")


class ThroughputParams(Params):
    """Which plans compete."""

    contiguous: throughput_ip.Contiguous = "no"


def applies(task: Task, params: Params) -> str | None:
    """Why the semantics or the size is out of reach, or None; nothing is built."""
    assert isinstance(params, ThroughputParams)
    reason = throughput_ip.why_not(task.semantics, params.contiguous)
    if reason is not None:
        return f"its model {reason}"
    if throughput_ip.horizon_ns(task.instance) > LONGEST_NS:
        return "its times are too long for floating-point numbers"
    rows = throughput_ip.count_rows(task.instance)
    if rows > MOST_ROWS:
        return f"its model would have {rows} rows, more than {MOST_ROWS}"
    return None


def run(task: Task, params: Params) -> Outcome:
    """Build, start from the best of the plans of `STARTS`, solve."""
    assert isinstance(params, ThroughputParams)
    instance, semantics, contiguous = task.instance, task.semantics, params.contiguous
    return run_mip(
        task,
        Formulation(
            name="throughput-ip",
            starts=STARTS,
            granularity_ns=granularity_ns(instance, transfers=False),
            build=lambda start: throughput_ip.build(instance, semantics, contiguous),
            warm_start=lambda model, plan: throughput_ip.warm_start(
                model, instance, plan, semantics
            ),
            extract=lambda model: throughput_ip.extract(model, instance),
        ),
    )


register(
    Method(
        name="throughput-ip",
        claim="exact",
        objectives=("max_load",),
        paper="Tarnawski et al. 2020",
        summary="Non-contiguous max-load as an integer program, through HiGHS.",
        run=run,
        params=ThroughputParams,
        applies=applies,
        packages=("pyomo", "highspy"),
    )
)
