"""Every instance has a value under makespan."""

from __future__ import annotations

from placegap.instances.problem import Instance, Makespan


def check(instance: Instance, rules: Makespan) -> None:
    """Nothing beyond what every instance states is needed."""
