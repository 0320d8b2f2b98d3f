"""What every device holds over time, as steps: levels of bytes and when they begin."""

from __future__ import annotations

from collections.abc import Iterable

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan, Schedule
from placegap.instances.problem.semantics import PipelineIteration, Semantics, memory_rule
from placegap.instances.referee.iteration import (
    Iteration,
    alone_bytes,
    kept_bytes,
    simulate_iteration,
    stash_bytes,
)
from placegap.instances.referee.memory import held_bytes, live_spans

Levels = list[tuple[int, int]]
"""When a level begins, in ns or in steps, and its bytes; the first begins at 0."""


def memory_levels(
    instance: Instance, plan: Plan, semantics: Semantics, schedule: Schedule | None
) -> list[Levels]:
    """The levels of each device; their highest is what the referee holds against its memory.

    Under `interleaved` it may be below that, as the referee adds the fullest moments of stages.

    Parameters
    ----------
    instance : Instance
    plan : Plan
        One that can be executed.
    semantics : Semantics
    schedule : Schedule or None
        Of a makespan plan; without one, moments are the steps of `problem.memory_arrays`.

    Examples
    --------
    >>> from placegap.instances import Makespan, evaluate, example
    >>> plan = Plan.on([0, 1, 0, 0])
    >>> schedule = evaluate(example(), plan, rules := Makespan(memory="peak")).schedule
    >>> memory_levels(example(), plan, rules, schedule)[1]
    [(0, 0), (5, 1), (6, 2), (26, 1), (27, 0)]
    """
    if isinstance(semantics, PipelineIteration):
        run = simulate_iteration(instance, plan, semantics)
        return levels_in_flight(instance, plan, run, semantics)
    held = held_bytes(instance, plan, semantics, schedule)
    assert held is not None  # the rules that need a schedule have one
    if memory_rule(semantics) == "sum":
        return levels_of(held.bytes.tolist(), ())
    spans = live_spans(instance, plan, semantics, schedule)
    columns = (spans.device, spans.begin, spans.end, spans.bytes)
    changes = []
    for k, begin, end, size in zip(*(column.tolist() for column in columns), strict=True):
        changes += [(k, begin, size), (k, end, -size)]
    return levels_of(held.state_bytes.tolist(), changes)


def levels_in_flight(
    instance: Instance, plan: Plan, run: Iteration, semantics: PipelineIteration
) -> list[Levels]:
    """The levels of one iteration: stages keep their stash from forward to backward events.

    Where weight events are apart, what those read is kept until they end.
    """
    home = run.stages.device.tolist()
    stash = stash_bytes(instance, run.stages).tolist() if run.stages.trains else []
    kept = kept_bytes(instance, run.stages).tolist()
    splits = {event.stage for spans in run.events for event, _, _ in spans if event.weight}
    changes = []
    for event, start, end in (span for spans in run.events if stash for span in spans):
        s = event.stage
        if event.weight:
            # the base holds all of the microbatch at work: its stash in place of what is kept
            changes += [(home[s], start, stash[s] - kept[s]), (home[s], end, -stash[s])]
        elif event.backward:
            changes.append((home[s], end, (kept[s] if s in splits else 0) - stash[s]))
        else:
            changes.append((home[s], start, stash[s]))
    # the base has one microbatch in it: while there is none, its stash counts as well
    base = alone_bytes(instance, plan, run.stages, semantics)
    for s, kept in enumerate(stash):
        base[home[s]] -= kept
    return levels_of(base.tolist(), changes)


def levels_of(base: list[int], changes: Iterable[tuple[int, int, int]]) -> list[Levels]:
    """Levels from those at the beginning and from (device, moment, change).

    Examples
    --------
    >>> levels_of([5, 0], [(0, 3, 2), (0, 7, -2)])
    [[(0, 5), (3, 7), (7, 5)], [(0, 0)]]
    """
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
