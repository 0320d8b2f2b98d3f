"""The method that runs where none is named, for each problem."""

from __future__ import annotations

from placegap.instances.problem.semantics import Semantics


def default_method(semantics: Semantics) -> str:
    """The exact method that proves most of a problem's instances.

    For makespan decomposition; for max_load the ideal DP where plans are chains, and column
    generation where they may be any; for latency_subgraphs rows of calls. Else the throughput IP.

    Examples
    --------
    >>> default_method(Semantics(objective="makespan"))
    'decomposition'
    >>> default_method(Semantics(objective="max_load", plans="chain"))
    'ideal-dp'
    >>> default_method(Semantics(objective="max_load", plans="convex"))
    'throughput-ip'
    """
    if semantics.objective == "makespan":
        return "decomposition"
    if semantics.objective == "latency_subgraphs":
        return "latency"
    if semantics.objective == "max_load" and semantics.plans == "chain":
        return "ideal-dp"
    plain = not semantics.replicas and semantics.levels == 1
    if semantics.objective == "max_load" and semantics.plans == "any" and plain:
        return "noncontiguous"
    return "throughput-ip"


def quick_method(semantics: Semantics) -> str:
    """A placer that takes no time, whose plan stands if all else fails.

    Examples
    --------
    >>> quick_method(Semantics(objective="makespan"))
    'heft'
    """
    return "heft" if semantics.objective == "makespan" else "m-topo"
