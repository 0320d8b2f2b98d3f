"""The second referee of latency_subgraphs: calls and ops that wait for each other."""

from __future__ import annotations

from itertools import pairwise

from placegap.instances.oracle.facts import Facts
from placegap.instances.oracle.rules import OrderError, judged, placed_rules
from placegap.instances.problem import Evaluation, LatencySubgraphs, Plan

Unit = tuple[int, ...]  # (device, call) of an accelerator, or (host, -1, op): starts as a whole


def recheck(facts: Facts, plan: Plan, rules: LatencySubgraphs) -> Evaluation:
    """The end of the last call or op, and every rule that the plan breaks."""
    return judged(placed_rules(facts, plan, rules), lambda: latency_value(facts, plan, rules))


def latency_value(facts: Facts, plan: Plan, semantics: LatencySubgraphs) -> int:
    """End of the last call or op."""
    unit = _units(facts, plan, semantics)
    time: dict[Unit, int] = dict.fromkeys(unit, 0)
    for i, at in enumerate(unit):
        time[at] += facts.ops[i].time_ns[facts.devices[at[0]].kind]
    borders, before = set[tuple[int, Unit]](), {at: set[Unit]() for at in time}
    for a, b, u in facts.ends:
        if unit[a] != unit[b]:
            before[unit[b]].add(unit[a])
            borders |= {(u, unit[a]), (u, unit[b])}
    for u, at in borders:
        if at[1] >= 0:
            time[at] += facts.host_time(u, at[0])
    for one, other in pairwise(sorted(at for at in time if at[1] >= 0)):
        if one[0] == other[0]:
            before[other].add(one)
    after: dict[Unit, list[Unit]] = {at: [] for at in time}
    for at, waits in before.items():
        for other in waits:
            after[other].append(at)
    start, ready = dict.fromkeys(time, 0), [at for at, waits in before.items() if not waits]
    for at in ready:  # grows while it is read
        for follower in after[at]:
            start[follower] = max(start[follower], start[at] + time[at])
            before[follower].remove(at)
            if not before[follower]:
                ready.append(follower)
    if len(ready) < len(time):
        raise OrderError("calls wait for each other")
    return max(start[at] + time[at] for at in ready)


def _units(facts: Facts, plan: Plan, semantics: LatencySubgraphs) -> list[Unit]:
    """Where and with what each op runs."""
    call = plan.call if plan.call is not None else (0,) * len(facts.ops)
    if len(call) != len(facts.ops):
        raise OrderError(f"call has {len(call)} entries for {len(facts.ops)} ops")
    units: list[Unit] = []
    for i, (on, number) in enumerate(zip(plan.placement, call, strict=True)):
        if facts.devices[on[0]].is_host:
            units.append((on[0], -1, i))
        elif number in range(semantics.subgraphs):
            units.append((on[0], number))
        else:
            raise OrderError(f"op {facts.ops[i].name!r} is in call {number}, which does not exist")
    return units
