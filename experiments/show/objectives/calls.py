"""One pass under latency_subgraphs: the calls of accelerators, and the ops of hosts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

from placegap.experiments.show.critical_path import PathPart, Reason, walk
from placegap.experiments.show.objectives import makespan
from placegap.experiments.show.objectives.base import Judged, Parts, Words
from placegap.experiments.show.timeline import NO_OP, Bar, crossings, op_bars, timeline
from placegap.instances.problem import Instance, LatencySubgraphs, Plan, Schedule

if TYPE_CHECKING:
    from placegap.experiments.show.objectives.base import Moves


def parts(case: Judged[LatencySubgraphs]) -> Parts:
    """Bars of calls with their transfers, and of ops of hosts."""
    instance, plan, schedule = case.instance, case.plan, case.verdict.schedule
    assert schedule is not None
    meaning = "one pass; an accelerator runs its calls whole, with their transfers"
    drawn = timeline(instance, _bars(instance, plan, schedule), meaning)
    crossed = crossings(instance, plan, case.semantics, is_sent=False)
    path = _critical_path(instance, plan, schedule)
    return makespan.timed_parts(case, path, drawn=drawn, crossed=crossed)


def _bars(instance: Instance, plan: Plan, schedule: Schedule) -> Iterator[Bar]:
    members: dict[tuple[int, int], list[int]] = {}
    for bar in op_bars(instance, schedule):
        if instance.arrays.is_host[bar.row]:
            yield bar
        else:
            number = 0 if plan.call is None else plan.call[bar.op]
            members.setdefault((bar.row, number), []).append(bar.op)
    for (k, number), ops in sorted(members.items()):
        span = int(schedule.start_ns[ops[0]]), int(schedule.end_ns[ops[0]])
        name = f"call {number}: {len(ops)} op{'s'[: len(ops) != 1]}"
        label = f"call {number}"
        yield Bar(k, False, *span, name, label, ops[0] if len(ops) == 1 else NO_OP, label)


def _critical_path(instance: Instance, plan: Plan, schedule: Schedule) -> tuple[PathPart, ...]:
    index, graph = instance.arrays.index, instance.graph
    device, is_host = schedule.device.tolist(), instance.arrays.is_host.tolist()
    call = (0,) * instance.num_ops if plan.call is None else plan.call
    unit: list[Hashable] = [("op", i) if is_host[k] else (k, call[i]) for i, k in enumerate(device)]
    things: dict[Hashable, PathPart] = {}
    feeds: dict[Hashable, list[Hashable]] = {}
    size: dict[Hashable, int] = {}
    for i, key in enumerate(unit):
        start, end = int(schedule.start_ns[i]), int(schedule.end_ns[i])
        size[key] = size.get(key, 0) + 1
        name = graph.ops[i].name if size[key] == 1 else f"call {call[i]} ({size[key]} ops)"
        things[key] = PathPart(name, device[i], start, end, "start", i)
    for e, consumer in enumerate(index.consumer.tolist()):
        a, b = unit[int(index.producer[e])], unit[consumer]
        if a != b:
            feeds.setdefault(b, []).append(a)

    def waits(key: Hashable) -> Iterable[tuple[Hashable, Reason]]:
        for before in dict.fromkeys(feeds.get(key, ())):
            yield before, "data"
        for other, link in things.items():
            if link.device == things[key].device and not is_host[link.device]:
                yield other, "turn"

    return walk(things, waits)


def moves(case: Judged[LatencySubgraphs]) -> Moves:
    """Ops to another device, into each of its calls, or into its first."""
    from placegap.experiments.show.single_moves import into_groups, moves_of_ops

    plan = case.plan
    if plan.call is None:
        return moves_of_ops(case)
    return moves_of_ops(case, into_groups(plan, "call", {0}))


WORDS = Words(parts, moves, makespan.idle)
