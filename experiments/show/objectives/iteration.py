"""One iteration of a pipeline: the events of its stages, and the chain of them that ends last."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain
from typing import TYPE_CHECKING

from placegap.experiments.show.critical_path import PathPart, Reason, walk
from placegap.experiments.show.memory_levels import Levels, levels_of
from placegap.experiments.show.objectives.base import Judged, Parts, Words
from placegap.experiments.show.objectives.makespan import timed_parts
from placegap.experiments.show.place_report import EXACT, is_heuristic, unused
from placegap.experiments.show.timeline import (
    NO_OP,
    Bar,
    Move,
    Timeline,
    crossings,
    last_end,
    move_bars,
)
from placegap.instances.objectives.iteration.referee import (
    Iteration,
    alone_bytes,
    kept_bytes,
    simulate_iteration,
    stash_bytes,
)
from placegap.instances.objectives.iteration.stages import Event
from placegap.instances.problem import Evaluation, Instance, PipelineIteration

if TYPE_CHECKING:
    from placegap.experiments.show.objectives.base import Moves
    from placegap.solvers.core.result import Result

EVENT_WORK = 20  # what an event costs the referee, in ops and edges


def parts(case: Judged[PipelineIteration]) -> Parts:
    """A bar for each event of a stage and microbatch, and one for each message."""
    instance, rules = case.instance, case.semantics
    run = simulate_iteration(instance, case.plan, rules)
    home = run.stages.device.tolist()
    moves, bars = list[Move](), list[Bar]()
    for message in run.messages:
        name = f"microbatch {message.sender.microbatch} to stage {message.receiver.stage}"
        ends = home[message.sender.stage], home[message.receiver.stage]
        moves.append(Move(*ends, message.start_ns, message.end_ns, name, 0))
    for event, start, end in chain.from_iterable(run.events):
        about = _name(event), event.part, NO_OP, "" if event.update else str(event.microbatch)
        bars.append(Bar(home[event.stage], False, start, end, *about))
    bars += move_bars(moves)
    rows = tuple(spec.name for spec in instance.cluster.devices)
    meaning = "one iteration; a bar is the work of a stage on a microbatch"
    own = "resident bytes" if rules.memory_rule == "sum" else "what a stage works on"
    return timed_parts(
        case,
        _critical_path(run, moves),
        "stages",
        drawn=Timeline(rows, tuple(bars), tuple(moves), last_end(bars), meaning),
        crossed=crossings(
            instance,
            case.plan,
            rules,
            is_sent=rules.sending == "overlap",
            ignored=instance.arrays.exchanged,
        ),
        memory=levels_in_flight(case, run),
        held=f"{own} and what microbatches in flight keep",
        per=", per microbatch",
    )


def _name(event: Event) -> str:
    return f"{event.part} of stage {event.stage}{event.turn}"


def _critical_path(run: Iteration, moves: list[Move]) -> tuple[PathPart, ...]:
    home, count = run.stages.device.tolist(), run.stages.num_stages
    things: dict[Hashable, PathPart] = {}
    previous: dict[Hashable, Hashable] = {}
    arriving: dict[Hashable, list[Hashable]] = {}
    on_channel: dict[tuple[int, int, int], list[Hashable]] = {}
    for spans in run.events:
        for at, (event, start, end) in enumerate(spans):
            things[event] = PathPart(_name(event), home[event.stage], start, end, "start")
            if at:
                previous[event] = spans[at - 1].event
    for number, (message, move) in enumerate(zip(run.messages, moves, strict=True)):
        a, b, start, end, name, _ = move
        things[number] = PathPart(name, a, start, end, "start", -1, b)
        arriving.setdefault(message.receiver, []).append(number)
        on_channel.setdefault((a, b, end), []).append(number)

    def waits(key: Hashable) -> Iterable[tuple[Hashable, Reason]]:
        if isinstance(key, int):
            yield run.messages[key].sender, "data"
            link = things[key]
            for other in on_channel.get((link.device, link.target, link.start_ns), ()):
                yield other, "turn"
            return
        for number in arriving.get(key, ()):
            yield number, "data"
        assert isinstance(key, Event)
        if key.weight or key.update:
            yield key._replace(weight=False, update=False), "data"
        elif key.backward:
            last = key.stage == count - 1
            yield Event(not last, key.stage + (not last), key.microbatch), "data"
        elif key.stage:
            yield Event(False, key.stage - 1, key.microbatch), "data"
        if key in previous:
            yield previous[key], "turn"

    return walk(things, waits)


def levels_in_flight(case: Judged[PipelineIteration], run: Iteration) -> list[Levels]:
    """The levels of one iteration: stages keep their stash from forward to backward events."""
    # Where weight events are apart, what those read is kept until they end. Under `interleaved` the
    # highest may be below what the referee counts, which adds the fullest moments of stages.
    instance = case.instance
    home = run.stages.device.tolist()
    stash = stash_bytes(instance, run.stages).tolist() if run.stages.trains else []
    kept = kept_bytes(instance, run.stages).tolist()
    splits = {event.stage for spans in run.events for event, _, _ in spans if event.weight}
    changes = []
    for event, start, end in (span for spans in run.events if stash for span in spans):
        s = event.stage
        if event.update:
            continue
        if event.weight:
            # the base holds all of the microbatch at work: its stash in place of what is kept
            changes += [(home[s], start, stash[s] - kept[s]), (home[s], end, -stash[s])]
        elif event.backward:
            changes.append((home[s], end, (kept[s] if s in splits else 0) - stash[s]))
        else:
            changes.append((home[s], start, stash[s]))
    # the base has one microbatch in it: while there is none, its stash counts as well
    base = alone_bytes(instance, case.plan, run.stages, case.semantics)
    for s, kept in enumerate(stash):
        base[home[s]] -= kept
    return levels_of(base.tolist(), changes)


def moves(case: Judged[PipelineIteration]) -> Moves:
    """Ops to another device, into each of its stages."""
    from placegap.experiments.show.single_moves import into_groups, moves_of_ops

    plan, events = case.plan, case.instance.num_devices * case.semantics.microbatches
    changed = None if plan.stage is None else into_groups(plan, "stage")
    return moves_of_ops(case, changed, EVENT_WORK * events)


def idle(instance: Instance, result: Result, verdict: Evaluation) -> str:
    """Another stage delays the first microbatch, or does not fit the rounds."""
    rules, spare = result.semantics, unused(verdict)
    assert isinstance(rules, PipelineIteration)
    if rules.schedule == "interleaved" and rules.microbatches % instance.num_devices:
        return (
            f"{spare}: {rules.microbatches} microbatches are not a multiple"
            f" of {instance.num_devices} devices; interleaved needs one (--microbatches)"
        )
    from placegap.instances.problem.nets import gradient_tie  # loads networkx

    tie = gradient_tie(instance)
    if tie is not None:
        return f"{spare}: {tie}"
    if result.status == "optimal":
        return f"{spare}: no plan with more stages has a shorter iteration"
    if is_heuristic(result.method):
        return f"{spare}. {EXACT}"
    return f"{spare}: the search found no shorter iteration with more stages"


WORDS = Words(parts, moves, idle)
