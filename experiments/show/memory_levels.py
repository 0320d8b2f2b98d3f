"""What each device holds over time, as charts draw it."""

from __future__ import annotations

from collections.abc import Iterable

from placegap.instances.problem import Instance, Plan, Schedule, Semantics
from placegap.instances.referee.memory import held_bytes, live_spans

Levels = list[tuple[int, int]]  # when a level begins, in ns or in steps, and its bytes; first: 0


def memory_levels(
    instance: Instance, plan: Plan, semantics: Semantics, schedule: Schedule | None
) -> list[Levels]:
    """The levels of each device; their highest is what the referee holds against its memory."""
    # Without a schedule, moments are the steps of `arrays.derive_memory`.
    about = instance, plan, semantics, schedule
    held = held_bytes(*about)
    if semantics.memory_rule == "sum":
        return levels_of(held.bytes.tolist(), ())
    spans = live_spans(*about)
    columns = (spans.device, spans.begin, spans.end, spans.bytes)
    changes = []
    for k, begin, end, size in zip(*(column.tolist() for column in columns), strict=True):
        changes += [(k, begin, size), (k, end, -size)]
    return levels_of(held.state_bytes.tolist(), changes)


def levels_of(base: list[int], changes: Iterable[tuple[int, int, int]]) -> list[Levels]:
    """Levels from those at the beginning and from (device, moment, change)."""
    at: list[dict[int, int]] = [{0: 0} for _ in base]
    for k, moment, change in changes:
        at[k][moment] = at[k].get(moment, 0) + change
    found = []
    for k, level in enumerate(base):
        levels = []
        for moment, change in sorted(at[k].items()):
            level += change
            levels.append((moment, level))
        found.append(levels)
    return found
