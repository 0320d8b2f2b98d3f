"""The second referee on stated times: does a makespan schedule keep every rule?"""

from __future__ import annotations

from collections.abc import Iterator

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan, Times, Transfer, Violation
from placegap.instances.problem.semantics import Makespan
from placegap.instances.recheck.facts import Facts
from placegap.instances.recheck.values import channels_held, transfers_of

Span = tuple[int, int]


def recheck_times(
    instance: Instance, plan: Plan, semantics: Makespan, times: Times
) -> tuple[Violation, ...]:
    """Rules that the stated times of a plan break; the plan's shape must be right.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> times = Times(((0, 5), (5, 25), (25, 35), (34, 42)), {})
    >>> on_one = Plan.on([0, 0, 0, 0])
    >>> broken = recheck_times(example(), on_one, Makespan(), times)
    >>> [violation.rule for violation in broken]
    ['precedence', 'device_overlap']
    """
    facts, home = Facts(instance), [on[0] for on in plan.placement]
    needed = transfers_of(facts, semantics, home)
    found: list[Violation] = []
    uses: dict[str, list[tuple[int, int, str]]] = {}
    for i, (start, end) in enumerate(times.ops):
        name = facts.ops[i].name
        if start < 0 or end - start != facts.op_time(i, home[i]):
            found.append(Violation("duration", f"{name!r} runs from {start} to {end} ns", op=name))
        uses.setdefault(f"device {home[i]}", []).append((start, end, name))
    for move, (start, end) in times.transfers.items():
        u = facts.ends[move.item][2] if semantics.transfers == "per_edge" else move.item
        producer = facts.tensors[u][0]
        a, name = home[producer], facts.ops[producer].name
        if move not in needed:
            found.append(Violation("transfer", f"nothing waits for {name!r} there", op=name))
        if start < times.ops[producer][1]:
            found.append(Violation("transfer", f"{name!r} is sent before it is done", op=name))
        if end - start != facts.transfer_time(u, a, move.destination):
            found.append(Violation("duration", f"{name!r} takes {end - start} ns", op=name))
        if a != move.destination:
            for channel in channels_held(semantics.channels, a, move.destination):
                uses.setdefault(channel, []).append((start, end, name))
    found += _inputs(facts, semantics, home, times, needed)
    for resource, spans in uses.items():
        found += _overlaps(resource, sorted(spans))
    return tuple(found)


def _inputs(
    facts: Facts,
    semantics: Makespan,
    home: list[int],
    times: Times,
    needed: dict[Transfer, list[int]],
) -> Iterator[Violation]:
    """Every op starts after its producers beside it, and after the transfers to it."""
    for a, b, _ in facts.ends:
        if home[a] == home[b] and times.ops[b][0] < times.ops[a][1]:
            yield _too_early(facts, b)
    for move, consumers in needed.items():
        if move not in times.transfers:
            name = facts.ops[consumers[0]].name
            yield Violation("transfer", f"{name!r} never receives an input", op=name)
            continue
        for b in consumers:
            if times.ops[b][0] < times.transfers[move][1]:
                yield _too_early(facts, b)


def _too_early(facts: Facts, i: int) -> Violation:
    name = facts.ops[i].name
    return Violation("precedence", f"{name!r} starts before its inputs are there", op=name)


def _overlaps(resource: str, spans: list[tuple[int, int, str]]) -> Iterator[Violation]:
    """Spans in the order of their starts; `end` is the furthest end so far."""
    end, holder = 0, ""
    for start, stop, name in spans:
        if start < end:
            rule = "device_overlap" if resource.startswith("device") else "channel_overlap"
            yield Violation(rule, f"{resource}: {holder!r} and {name!r} at {start} ns", op=name)
        if stop > end:
            end, holder = stop, name
