"""Every instance has a value under latency_subgraphs."""

from __future__ import annotations

from placegap.instances.problem import Instance, LatencySubgraphs


def check(instance: Instance, rules: LatencySubgraphs) -> None:
    """Nothing beyond what every instance states is needed."""
