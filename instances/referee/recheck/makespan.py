"""The second referee's clock: when each op and transfer of a makespan plan starts.

The rule (the same as the referee's, told again): at each instant first all ends take effect, then
the ready items are taken by (-priority, topological position, destination, number), and each starts
whose resources are free. An item of no time ends at once, which opens another round of the same
instant; until then it holds its resources.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

from placegap.instances.problem.plan import Plan, Times, Transfer
from placegap.instances.problem.semantics import Makespan
from placegap.instances.recheck.facts import Facts


class OrderError(ValueError):
    """Orders (of ops, transfers or calls) that cannot be obeyed."""


def planned_times(facts: Facts, plan: Plan, semantics: Makespan) -> Times:
    """When each op and transfer of a plan starts and ends.

    Raises
    ------
    OrderError
        If the orders name other items than there are, or wait for each other.
    """
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
