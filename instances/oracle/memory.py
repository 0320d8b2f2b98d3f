"""The second referee's memory at its peak.

It is a walk over each device's events. The rule (the same as the referee's, stated again): a device
always holds the state of its ops, shared state once by each name; a tensor is there from the first
event on the device that writes, moves or reads it until the last such event has ended; workspace is
there while its op runs. At one moment ends free before starts take. Events are ops and transfers at
their times or, where there is no schedule, ops alone in the order of steps.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from placegap.instances.oracle.facts import Facts
from placegap.instances.problem import Plan, Semantics, Times, Violation

Span = tuple[int, int]


def peak_rule(
    facts: Facts, plan: Plan, semantics: Semantics, times: Times | None
) -> Iterator[Violation]:
    """Devices that hold more than they can at some moment."""
    held = peak_bytes(facts, plan, semantics, times)
    for device, most in zip(facts.devices, held, strict=True):
        if device.memory_bytes is not None and most > device.memory_bytes:
            yield Violation(
                "memory",
                f"{device.name!r} holds {most} bytes of {device.memory_bytes}",
                device=device.name,
            )


def peak_bytes(facts: Facts, plan: Plan, semantics: Semantics, times: Times | None) -> list[int]:
    """What each device holds at its fullest moment, in bytes."""
    # Times are those of a makespan plan; None counts steps.
    when = steps(facts) if times is None else list(times.ops)
    live: list[dict[int, Span]] = [{} for _ in facts.devices]

    def touch(k: int, u: int, span: Span) -> None:
        known = live[k].get(u, span)
        live[k][u] = min(known[0], span[0]), max(known[1], span[1])

    for a, b, u in facts.ends:
        for i in (a, b):
            for k in plan.placement[i]:
                touch(k, u, when[i])
    for move, span in ({} if times is None else times.transfers).items():
        u = facts.ends[move.item][2] if semantics.per_edge else move.item
        touch(plan.placement[facts.tensors[u][0]][0], u, span)
        touch(move.destination, u, span)
    held = []
    for k in range(len(facts.devices)):
        here = [i for i, on in enumerate(plan.placement) if k in on]
        rows = [(*span, facts.tensors[u][1].bytes) for u, span in live[k].items()]
        rows += [(*when[i], facts.ops[i].workspace_bytes) for i in here]
        held.append(state_held(facts, here) + most_at_once(rows))
    return held


def state_held(facts: Facts, here: list[int]) -> int:
    """State of some ops that are on one device."""
    total, shared = 0, dict[str, int]()
    for i in here:
        op = facts.ops[i]
        total += op.state_bytes if op.state_bytes is not None else op.parameter_bytes
        shared |= op.shared_state
    return total + sum(shared.values())


def most_at_once(rows: list[tuple[int, int, int]]) -> int:
    """Largest sum of the sizes of (begin, end, size) that hold at one moment."""
    now = most = 0
    open_: list[Span] = []
    for begin, end, size in sorted(row for row in rows if row[0] < row[1]):
        while open_ and open_[0][0] <= begin:
            now -= heapq.heappop(open_)[1]
        heapq.heappush(open_, (end, size))
        now += size
        most = max(most, now)
    return most


def steps(facts: Facts) -> list[Span]:
    """A step of its own for each op: by changes of the pass on the way to it, then by position."""
    before: list[list[int]] = [[] for _ in facts.ops]
    for a, b, _ in facts.ends:
        before[b].append(a)
    changes: dict[int, int] = {}
    for i in sorted(range(len(facts.ops)), key=lambda i: facts.position[i]):
        own = facts.ops[i].backward
        ways = (changes[a] + (facts.ops[a].backward is not own) for a in before[i])
        changes[i] = max(ways, default=1 if own else 0)
    order = sorted(changes, key=lambda i: (changes[i], facts.position[i]))
    step = {i: at for at, i in enumerate(order)}
    return [(step[i], step[i] + 1) for i in range(len(facts.ops))]
