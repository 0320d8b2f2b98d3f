"""The method that runs where none is named, for each problem."""

from __future__ import annotations

from placegap.instances.problem.semantics import (
    LatencySubgraphs,
    Makespan,
    MaxLoad,
    PipelineIteration,
    Semantics,
)


def default_method(semantics: Semantics) -> str:
    """The method that runs where none is named: `auto`, whatever the semantics.

    Examples
    --------
    >>> default_method(Makespan())
    'auto'
    """
    return "auto"


def proving_method(semantics: Semantics) -> str:
    """The exact method that proves most of a problem's instances.

    For makespan decomposition; for max_load the ideal DP where plans are chains, and column
    generation where they may be any; for latency_subgraphs rows of calls; for pipeline_iteration
    cuts of a chain of stages. Else the throughput IP. `auto` begins with it.

    Examples
    --------
    >>> proving_method(Makespan())
    'decomposition'
    >>> proving_method(MaxLoad(plans="chain"))
    'ideal-dp'
    >>> proving_method(MaxLoad(plans="convex"))
    'throughput-ip'
    """
    match semantics:
        case Makespan():
            return "decomposition"
        case LatencySubgraphs():
            return "latency"
        case PipelineIteration():
            return "stage-cuts"
        case MaxLoad(plans="chain"):
            return "ideal-dp"
        case MaxLoad(plans="any", replicas=False, levels=1):
            return "noncontiguous"
        case _:
            return "throughput-ip"
