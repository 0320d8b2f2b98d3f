"""The second referee of a makespan: its clock, and stated times.

The rule of the clock (the same as the referee's, stated again): at each instant first all ends take
effect, then the ready items are taken by (-priority, topological position, destination, number),
and each starts whose resources are free. An item of no time ends at once, which opens another round
of the same instant; until then it holds its resources.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import pairwise

from placegap.instances.oracle.facts import Facts
from placegap.instances.oracle.memory import peak_rule
from placegap.instances.oracle.rules import OrderError, judged, placed_rules
from placegap.instances.problem import (
    Evaluation,
    Instance,
    Makespan,
    Plan,
    Times,
    Transfer,
    Violation,
)


def recheck(facts: Facts, plan: Plan, rules: Makespan) -> Evaluation:
    """The end of the last op, and every rule that the plan breaks."""
    found = placed_rules(facts, plan, rules)
    if rules.channels == "free" and plan.channel_order:
        found.append(Violation("fields", f"channel_order means nothing under {rules.label}"))

    def value() -> int:
        times = planned_times(facts, plan, rules)
        if rules.memory == "peak":
            found.extend(peak_rule(facts, plan, rules, times))
        return max(end for _, end in times.ops)

    return judged(found, value)


def planned_times(facts: Facts, plan: Plan, semantics: Makespan) -> Times:
    """When each op and transfer of a plan starts and ends."""
    home = [on[0] for on in plan.placement]
    moves = transfers_of(facts, semantics, home)
    n = len(home)
    rows = {move: n + row for row, move in enumerate(sorted(moves))}
    tensor = [0] * n + [_tensor(facts, semantics, move) for move in rows]
    source = [home[facts.tensors[u][0]] for u in tensor[n:]]
    time = [facts.ops[i].time_ns[facts.devices[k].kind] for i, k in enumerate(home)]
    for move, a in zip(rows, source, strict=True):
        time.append(facts.transfer_time(tensor[rows[move]], a, move.destination))
    used: list[tuple[str, ...]] = [(f"device {k}",) for k in home]
    used += [
        channels_held(semantics.channels, a, move.destination)
        for move, a in zip(rows, source, strict=True)
    ]
    arcs = [(a, b) for a, b, _ in facts.ends if home[a] == home[b]]
    for move, consumers in moves.items():
        arcs.append((facts.tensors[tensor[rows[move]]][0], rows[move]))
        arcs += [(rows[move], b) for b in consumers]
    level = _bottom_levels(facts, home)
    rank = [(-level[i], facts.position[i], home[i], i) for i in range(n)]
    for move, item in rows.items():
        priority = max(level[b] for b in moves[move])
        position = facts.position[facts.tensors[tensor[item]][0]]
        rank.append((-priority, position, move.destination, item))
    for sequence in _sequences(facts, plan, semantics, home, rows, used):
        arcs += pairwise(sequence)
    start = _run(time, used, rank, arcs)
    spans = [(at, at + ns) for at, ns in zip(start, time, strict=True)]
    return Times(tuple(spans[:n]), {move: spans[item] for move, item in rows.items()})


def transfers_of(
    facts: Facts, semantics: Makespan, home: Sequence[int]
) -> dict[Transfer, list[int]]:
    """The transfers that a placement needs, and the ops that wait for each."""
    moves: dict[Transfer, list[int]] = {}
    for e, (a, b, u) in enumerate(facts.ends):
        if home[a] != home[b]:
            item = e if semantics.transfers == "per_edge" else u
            moves.setdefault(Transfer(item, home[b]), []).append(b)
    return moves


def channels_held(channels: str, a: int, b: int) -> tuple[str, ...]:
    """Names of what a transfer from device a to b occupies."""
    if channels == "link":
        return (f"link {a} {b}",)
    if channels == "port":
        return f"out {a}", f"in {b}"
    return (f"both {a}", f"both {b}") if channels == "half_duplex" else ()


def _channel_of_number(channels: str, num_devices: int, number: int) -> str | None:
    """What a channel's number in a plan means; None where there is no such channel."""
    high, low = divmod(number, num_devices)
    if channels == "link" and 0 <= high < num_devices:
        return f"link {high} {low}"
    if channels == "port" and high in (0, 1):
        return f"{'in' if high else 'out'} {low}"
    return f"both {low}" if channels == "half_duplex" and high == 0 else None


def _tensor(facts: Facts, semantics: Makespan, move: Transfer) -> int:
    return facts.ends[move.item][2] if semantics.transfers == "per_edge" else move.item


def _bottom_levels(facts: Facts, home: Sequence[int]) -> list[int]:
    """Longest path from the start of each op to the end, transfers at their full length."""
    level = [0] * len(home)
    for i in sorted(range(len(home)), key=lambda i: -facts.position[i]):
        tails = [level[b] + facts.transfer_time(u, home[i], home[b]) for b, u in facts.succ[i]]
        level[i] = max(tails, default=0) + facts.ops[i].time_ns[facts.devices[home[i]].kind]
    return level


def _sequences(
    facts: Facts,
    plan: Plan,
    semantics: Makespan,
    home: Sequence[int],
    rows: dict[Transfer, int],
    used: Sequence[tuple[str, ...]],
) -> list[list[int]]:
    """Items in the orders that the plan gives, each order complete."""
    found: list[list[int]] = []
    if plan.device_order is not None:
        if len(plan.device_order) != len(facts.devices):
            raise OrderError(f"device_order has {len(plan.device_order)} devices")
        for k, order in enumerate(plan.device_order):
            if order is None:
                continue
            if sorted(order) != [i for i, on in enumerate(home) if on == k]:
                raise OrderError(f"device_order[{k}] does not name each of its ops once")
            found.append(list(order))
    for number, transfers in (plan.channel_order or {}).items():
        channel = _channel_of_number(semantics.channels, len(facts.devices), number)
        if channel is None:
            raise OrderError(f"there is no channel {number}")
        items = [rows.get(transfer, -1) for transfer in transfers]
        if sorted(items) != [item for item in rows.values() if channel in used[item]]:
            raise OrderError(f"channel_order[{number}] does not name each of its transfers once")
        found.append(items)
    return found


def _run(
    time: Sequence[int],
    used: Sequence[tuple[str, ...]],
    rank: Sequence[tuple[int, ...]],
    arcs: Sequence[tuple[int, int]],
) -> list[int]:
    """Start of every item."""
    waiting, after = [0] * len(time), [list[int]() for _ in time]
    for a, b in arcs:
        after[a].append(b)
        waiting[b] += 1
    ready: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
    for item, count in enumerate(waiting):
        if not count:
            ready.setdefault(used[item], []).append(rank[item])
    for heap in ready.values():
        heapq.heapify(heap)
    start, busy = [-1] * len(time), set[str]()
    ends = [(0, -1)]
    while ends:
        now = ends[0][0]
        while ends and ends[0][0] == now:
            ended = heapq.heappop(ends)[1]
            if ended < 0:
                continue
            busy.difference_update(used[ended])
            for item in after[ended]:
                waiting[item] -= 1
                if not waiting[item]:
                    heapq.heappush(ready.setdefault(used[item], []), rank[item])
        # items that use the same resources stand in one heap: its first one may start, or none
        fronts = sorted((ready[key][0], key) for key in ready if busy.isdisjoint(key))
        for _, key in fronts:
            while key in ready and busy.isdisjoint(key):
                item = heapq.heappop(ready[key])[-1]
                if not ready[key]:
                    del ready[key]
                start[item] = now
                busy.update(key)
                heapq.heappush(ends, (now + time[item], item))
    if min(start) < 0:
        raise OrderError("the orders wait for each other")
    return start


Span = tuple[int, int]


def recheck_times(
    instance: Instance, plan: Plan, semantics: Makespan, times: Times
) -> tuple[Violation, ...]:
    """Rules that the stated times of a plan break; the plan's shape must be right."""
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
