"""max_context: one method solves it by questions about loads, and nothing searches."""

from __future__ import annotations

from bisect import bisect_left

from placegap.instances.problem import MOST_TOKENS, Instance, MaxContext
from placegap.solvers.bounds.cheap_bounds import ROOM
from placegap.solvers.core.method import Task
from placegap.solvers.core.objective import Step, Strategy
from placegap.solvers.core.result import Bound


def quick_bound(instance: Instance, semantics: MaxContext) -> Bound:
    """The tokens for which all devices together have room."""
    return Bound(most_tokens(instance), ROOM)


def most_tokens(instance: Instance) -> int:
    """The most tokens for which all devices together have room; 0 if the rest does not fit."""
    sizes = [device.memory_bytes for device in instance.cluster.devices]
    room = sum(size for size in sizes if size is not None)
    if None in sizes:
        return MOST_TOKENS

    def fails(tokens: int) -> bool:
        return sum(op.bytes_at(tokens) for op in instance.graph.ops) > room

    return max(0, bisect_left(range(MOST_TOKENS + 1), x=True, key=fails) - 1)


def strategy(task: Task[MaxContext]) -> Strategy:
    """The bisection of the tokens, by itself."""
    return Strategy(provers=(Step("most-tokens", task.semantics),), is_alone=True)
