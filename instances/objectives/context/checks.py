"""What max_context needs of an instance: caches."""

from __future__ import annotations

from placegap.instances.problem import Instance, MaxContext
from placegap.instances.reading.errors import InputError


def check(instance: Instance, rules: MaxContext) -> None:
    """Raise an InputError where no op has a cache."""
    if not any(op.caches for op in instance.graph.ops):
        raise InputError(
            f"{rules.objective} maximizes the tokens of caches, but no op has a cache; trace the"
            " model with --context, or state caches",
            instance.name,
        )
