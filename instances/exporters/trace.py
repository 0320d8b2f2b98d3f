"""Trace Event JSON, which Perfetto and Chrome show: ops, transfers as arrows, memory over time.

Source: Google's "Trace Event Format". A process is a device; its first row has ops, its second
what it sends. ``X`` is a span, ``s`` and ``f`` are the ends of an arrow, ``C`` is a counter, ``M``
names a row. Times are in microseconds.

What is drawn: one pass under makespan and latency_subgraphs; one iteration under
pipeline_iteration, an event of the schedule as one span; and one sample alone under max_load, whose
value is that of a full pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from placegap.instances.objectives.iteration.referee import (
    Iteration,
    alone_bytes,
    kept_bytes,
    simulate_iteration,
    stash_bytes,
)
from placegap.instances.objectives.makespan.simulate import simulate
from placegap.instances.problem import (
    AllLoads,
    Instance,
    Makespan,
    PipelineIteration,
    Plan,
    Schedule,
    Semantics,
)
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.memory import held_bytes, live_spans

OPS, SENDS = 0, 1

NS_PER_US = 1000

TraceEvent = dict[str, Any]


def write_chrome_trace(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The trace of a plan, one event per line."""
    if any(len(devices) > 1 for devices in plan.placement):
        raise InputError("a trace shows one device for each op; leave out --replicas")
    verdict = evaluate(instance, plan, semantics)
    if verdict.value_ns is None:
        raise InputError(f"the plan cannot be executed: {verdict.violations[0]}")
    if isinstance(semantics, PipelineIteration):
        events = [*_rows(instance), *_iteration(instance, plan, semantics)]
    else:
        schedule = verdict.schedule or simulate(instance, plan, Makespan())
        events = [
            *_rows(instance),
            *_pass(instance, schedule, semantics),
            *_memory(instance, plan, semantics, schedule),
        ]
    shown = "one sample alone" if isinstance(semantics, AllLoads) else "the whole value"
    about = {
        "model": instance.name,
        "semantics": semantics.label,
        "value_ns": verdict.value_ns,
        "shown": shown,
    }
    lines = ",\n".join(json.dumps(event) for event in events)
    return (
        f'{{"displayTimeUnit": "ns",\n"otherData": {json.dumps(about)},\n'
        f'"traceEvents": [\n{lines}\n]}}\n'
    )


def _rows(instance: Instance) -> Iterator[TraceEvent]:
    for k, spec in enumerate(instance.cluster.devices):
        named = (
            ("process_name", OPS, spec.name),
            ("thread_name", OPS, "ops"),
            ("thread_name", SENDS, "sends"),
        )
        for what, row, name in named:
            yield {"ph": "M", "name": what, "pid": k, "tid": row, "args": {"name": name}}


def _pass(instance: Instance, schedule: Schedule, semantics: Semantics) -> Iterator[TraceEvent]:
    device = schedule.device.tolist()
    spans = zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True)
    starts = []
    for op, k, (start, end) in zip(instance.graph.ops, device, spans, strict=True):
        starts.append(start)
        args = {"kind": op.kind, "module": op.module or "", "backward": op.backward}
        yield _span(op.name, "op", k, OPS, start, end, args)
    moves, index = schedule.transfers, instance.arrays.index
    per_edge = not isinstance(semantics, Makespan) or semantics.transfers == "per_edge"
    columns = (
        moves.item,
        moves.producer,
        moves.source,
        moves.destination,
        moves.start_ns,
        moves.end_ns,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for number, (item, producer, source, target, start, end) in enumerate(rows):
        if per_edge:
            readers, edge = [int(index.consumer[item])], item
        else:
            edges = index.tensor_edge[index.tensor_ptr[item] : index.tensor_ptr[item + 1]]
            readers, edge = index.consumer[edges].tolist(), int(index.tensor_first_edge[item])
        reader = min((i for i in readers if device[i] == target), key=lambda i: starts[i])
        name = f"{instance.graph.ops[producer].name} -> {instance.graph.ops[reader].name}"
        args = {"bytes": instance.graph.edges[edge].bytes}
        yield _span(name, "transfer", source, SENDS, start, end, args)
        yield from _arrow(number, (source, start), (target, starts[reader]))


def _iteration(
    instance: Instance, plan: Plan, semantics: PipelineIteration
) -> Iterator[TraceEvent]:
    run = simulate_iteration(instance, plan, semantics)
    home = run.stages.device.tolist()
    start_of = {}
    for spans in run.events:
        for event, start, end in spans:
            start_of[event] = start
            name = f"{event.part} {event.stage}"
            args = {"stage": event.stage, "microbatch": event.microbatch}
            yield _span(f"{name}{event.turn}", "stage", home[event.stage], OPS, start, end, args)
    for number, message in enumerate(run.messages):
        source, target = home[message.sender.stage], home[message.receiver.stage]
        name = f"microbatch {message.sender.microbatch} to stage {message.receiver.stage}"
        yield _span(name, "transfer", source, SENDS, message.start_ns, message.end_ns, {})
        yield from _arrow(number, (source, message.start_ns), (target, start_of[message.receiver]))
    yield from _counters(levels_in_flight(instance, plan, run, semantics))


def _memory(
    instance: Instance, plan: Plan, semantics: Semantics, schedule: Schedule
) -> Iterator[TraceEvent]:
    if semantics.memory_rule == "sum" or isinstance(semantics, Makespan):
        rules = semantics
    else:
        rules = Makespan(memory="peak")
    yield from _counters(memory_levels(instance, plan, rules, schedule))


def _counters(levels: list[Levels]) -> Iterator[TraceEvent]:
    for k, each in enumerate(levels):
        for time_ns, level in each:
            yield {
                "ph": "C",
                "name": "memory",
                "pid": k,
                "tid": OPS,
                "ts": time_ns / NS_PER_US,
                "args": {"bytes": level},
            }


def _span(
    name: str, category: str, device: int, row: int, start: int, end: int, args: TraceEvent
) -> TraceEvent:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": device,
        "tid": row,
        "ts": start / NS_PER_US,
        "dur": (end - start) / NS_PER_US,
        "args": args,
    }


def _arrow(number: int, tail: tuple[int, int], head: tuple[int, int]) -> Iterator[TraceEvent]:
    """From the row of sends of one device to the row of ops of another."""
    common = {"name": "transfer", "cat": "transfer", "id": number}
    (source, sent), (target, read) = tail, head
    yield {"ph": "s", **common, "pid": source, "tid": SENDS, "ts": sent / NS_PER_US}
    yield {"ph": "f", "bp": "e", **common, "pid": target, "tid": OPS, "ts": read / NS_PER_US}


Levels = list[tuple[int, int]]
"""When a level begins, in ns or in steps, and its bytes; the first begins at 0."""


def memory_levels(
    instance: Instance, plan: Plan, semantics: Semantics, schedule: Schedule | None
) -> list[Levels]:
    """The levels of each device; their highest is what the referee holds against its memory.

    Under `interleaved` it may be below that, as the referee adds the fullest moments of stages. The
    schedule is that of a makespan plan; without one, moments are the steps of
    `arrays.derive_memory`.
    """
    if isinstance(semantics, PipelineIteration):
        run = simulate_iteration(instance, plan, semantics)
        return levels_in_flight(instance, plan, run, semantics)
    held = held_bytes(instance, plan, semantics, schedule)
    assert held is not None  # the rules that need a schedule have one
    if semantics.memory_rule == "sum":
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
    base = alone_bytes(instance, plan, run.stages, semantics)
    for s, kept in enumerate(stash):
        base[home[s]] -= kept
    return levels_of(base.tolist(), changes)


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
