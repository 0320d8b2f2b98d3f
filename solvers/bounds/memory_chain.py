"""Memory along a chain of intervals: what does not fit on one device must move, and pays.

Take a chain of ops u[0], u[1], ..., with an interval or an edge between each and the next. From the
end of one to the end of the next at least passes, by `interval_arcs`,

- all on one device a (*clean*): the time of all ops between and of the next, one after the other;
- at least one op between them elsewhere, or the next on another device (*broken*): less.

**Runs.** The ops of neighbouring clean intervals on one device are together there, so their bytes
are no more than its memory: a run ends where it is full.

**Multipliers.** Whatever multipliers lam[k] >= 0, the bytes on k exceed its memory in no plan, so
that adding sum over k of lam[k] (bytes on k - memory of k) to the length only lowers it. Bytes of
clean intervals are on their device; bytes of broken ones are where lam is least, among the devices
that the length of the interval leaves time for. Of a colocation group only the first op counts.
Slow devices with much memory are thus compared with fast ones with little: a subgradient method
looks for good multipliers.

The shortest path over positions, devices and runs is a bound for every lam: integers throughout,
with times in 2**-`bits` ns and sizes in whole units, rounded so that more fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from placegap.formulations.shared.windows import NEVER
from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import ceil_div
from placegap.instances.structure.intervals import Interval, choose_chain
from placegap.solvers.bounds.interval_arcs import interval_arcs
from placegap.solvers.bounds.work_windows import WorkWindows

UNITS = 2**20
"""Of memory, in all ops together."""

BIG, MOST_PRICE = 2**61, 2.0**38
"""Longer than every path; the most that a unit of memory may cost."""

MOST_CELLS = 5_000_000
"""Of the table of ways, beyond which broken intervals count all bytes where they cost least."""

ROUNDS, STALLED = 120, 12
"""Of the subgradient method; after so many without a better bound its steps are halved."""


class _Chain(NamedTuple):
    """A chain of m intervals on K devices, times in whole parts of a nanosecond.

    `first` and `last` (K,) are before and after it; `clean` (m, K) and `broken` (m, K, K) lengths.
    `inner` are units of the ops between, those of interval r from ``pointer[r]`` on, ``between[r]``
    all of them before op r of the chain, and `own` the units of the chain's own ops. ``way[x, a, b,
    c]``: the length with op x on c; empty if unknown.
    """

    first: Ints
    clean: Ints
    broken: Ints
    last: Ints
    inner: Ints
    pointer: Ints
    between: Ints
    own: Ints
    way: Ints


def memory_bound(instance: Instance, windows: WorkWindows) -> int:
    """What runs and multipliers of memory prove of every makespan, in ns.

    O(m K^2) for a chain of m intervals, `ROUNDS` times.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.bounds.work_windows import work_windows
    >>> memory_bound(example(), work_windows(example()))
    34
    """
    arrays, num_devices = instance.arrays, instance.num_devices
    sections = choose_chain(instance, windows.intervals)
    parts = [
        Interval(part.entry, part.exit, tuple(part.ops[1:-1]))
        for part in sections
        if part.entry is not None and part.exit is not None
    ]
    arcs = interval_arcs(instance, parts, windows.time_ns, windows.mass, windows.weights)
    num_parts = len(arcs.entry)
    if not num_parts:
        return 0
    parts = parts[:num_parts]
    time, unit = windows.time_ns, max(1, sum(arrays.resident_bytes.tolist()) // UNITS)
    inner, own = _sizes(instance, parts, unit)
    pointer = np.cumsum([0, *(len(part.inner) for part in parts)]).astype(np.int64)
    filled = np.concatenate([[0], np.cumsum(inner)])
    between = np.concatenate([[0], filled[pointer[1:]] - filled[pointer[:-1]]]).astype(np.int64)
    serial = np.zeros((num_parts, num_devices), np.int64)
    for at, part in enumerate(parts):
        serial[at] = np.minimum(time[[*part.inner, part.exit]], NEVER // (2 * len(time))).sum(
            axis=0
        )
        serial[at, (time[[*part.inner, part.exit]] >= NEVER).any(axis=0)] = NEVER
    end, stay = time[arcs.exit], np.arange(num_devices)
    clean = np.maximum(serial, arcs.gap_ns[:, stay, stay] + end)
    broken = arcs.gap_ns + end[:, None, :]
    broken[:, stay, stay] = np.maximum(arcs.gap_ns[:, stay, stay], arcs.apart_ns) + end
    first = windows.head_ns[parts[0].entry] + time[parts[0].entry]
    last = windows.tail_ns[parts[-1].exit]
    bits, members = windows.bits, [i for part in parts for i in part.inner]
    first, clean, broken, last = (_scaled(part, bits) for part in (first, clean, broken, last))
    way = np.zeros((0, 1, 1, 1), np.int64)
    if arcs.head_ns.shape[1] == num_devices and len(members) * num_devices**3 <= MOST_CELLS:
        of_part = np.repeat(np.arange(num_parts), np.diff(pointer))
        through = arcs.head_ns + time[members][:, None, :]
        longest = end[of_part][:, None, :, None]
        way = _scaled(through[:, :, None, :] + arcs.tail_ns[:, None, :, :] + longest, bits)
    most = int(inner.sum() + own.sum())
    room = np.array([min(most, ceil_div(m, unit)) for m in arrays.memory_bytes.tolist()], np.int64)
    chain = _Chain(first, clean, broken, last, inner, pointer, between, own, way)
    return ceil_div(_best_multipliers(chain, room), 2**bits)


def _sizes(instance: Instance, parts: list[Interval], unit: int) -> tuple[Ints, Ints]:
    """Units of the groups first met at each op between two of the chain, and at those."""
    arrays, seen = instance.arrays, set[int]()
    total = np.zeros(arrays.num_groups, np.int64)
    np.add.at(total, arrays.group, arrays.resident_bytes)
    units, group = (total // unit).tolist(), arrays.group.tolist()

    def met(ops: Sequence[int]) -> int:
        new = [g for g in dict.fromkeys(group[i] for i in ops) if g not in seen]
        seen.update(new)
        return sum(units[g] for g in new)

    own, inner = [met([parts[0].entry])], list[int]()
    for part in parts:
        inner += [met([i]) for i in part.inner]
        own.append(met([part.exit]))
    return np.array(inner, np.int64), np.array(own, np.int64)


def _scaled(times: Ints, bits: int) -> Ints:
    return np.where(times < NEVER, np.minimum(times, NEVER >> bits) << bits, BIG)


def _best_multipliers(chain: _Chain, room: Ints) -> int:
    """The best bound of a subgradient method over the multipliers (Held, Wolfe, Crowder 1974)."""
    binds = room < int(chain.inner.sum() + chain.own.sum())
    price, best, at_best, step, stalled = np.zeros(len(room)), 0, np.zeros(len(room)), 0.5, 0
    for _ in range(ROUNDS if binds.any() else 1):
        whole = np.rint(price).astype(np.int64)
        nowhere = np.full(len(chain.clean), -1)
        cost, _ = _priced(chain.broken, chain.inner, chain.pointer, chain.way, whole, nowhere)
        length, used, taken = _shortest(
            chain.first, chain.clean, cost, chain.last, chain.between, chain.own, room, whole
        )
        if length >= BIG:
            break  # no plan at all: nothing that the portfolio says
        value = int(length) - sum(p * r for p, r in zip(whole.tolist(), room.tolist(), strict=True))
        stalled += 1
        if value > best:
            best, at_best, stalled = value, price.copy(), 0
        if stalled == STALLED:
            price, step, stalled = at_best.copy(), step / 2, 0
            continue
        _, moved = _priced(chain.broken, chain.inner, chain.pointer, chain.way, whole, taken)
        used += moved
        over = np.where(binds, used - room, 0).astype(float)
        square = float(over @ over)
        if square == 0:
            break
        target = best * (1 + step) - value
        price = np.clip(price + over * max(target, 0.0) / square, 0.0, MOST_PRICE)
        price[~binds] = 0.0
    return best


@njit(cache=True)
def _shortest(
    first: Ints, clean: Ints, broken: Ints, last: Ints, between: Ints, own: Ints, room: Ints,
    price: Ints,
) -> tuple[int, Ints, Ints]:  # fmt: skip
    """Length of the shortest path by positions, devices and runs; the units that its runs use.

    The last array says where the path breaks: a K + b from device a to b, else -1.

    A run on a device begins where the path breaks, and takes in clean intervals while there is
    room: of the beginnings that still fit, a queue keeps those that can become the best.
    """
    num_parts, num_devices = clean.shape
    begun, done = (
        np.full((num_parts + 1, num_devices), BIG),
        np.full((num_parts + 1, num_devices), BIG),
    )
    came, since = np.zeros(begun.shape, np.int64), np.zeros(begun.shape, np.int64)
    along, filled = np.zeros(begun.shape, np.int64), np.cumsum(between + own)
    queue = np.zeros((num_devices, num_parts + 2), np.int64)
    front, back = np.zeros(num_devices, np.int64), np.zeros(num_devices, np.int64)
    taken = np.full(num_parts, -1)
    for j in range(num_parts + 1):
        for b in range(num_devices):
            if j == 0:
                begun[j, b] = min(BIG, first[b] + price[b] * own[0])
            else:
                for a in range(num_devices):
                    way = done[j - 1, a] + broken[j - 1, a, b]
                    if way < begun[j, b]:
                        begun[j, b], came[j, b] = way, a
                begun[j, b] = min(BIG, begun[j, b] + price[b] * own[j])
                along[j, b] = along[j - 1, b]
                if clean[j - 1, b] >= BIG:
                    front[b] = back[b]  # no run goes on
                else:
                    along[j, b] += clean[j - 1, b] + price[b] * (own[j] + between[j])
            if own[j] <= room[b]:
                while back[b] > front[b]:
                    i = queue[b, back[b] - 1]
                    if begun[i, b] - along[i, b] < begun[j, b] - along[j, b]:
                        break
                    back[b] -= 1
                queue[b, back[b]] = j
                back[b] += 1
            while back[b] > front[b]:
                i = queue[b, front[b]]
                if own[i] + filled[j] - filled[i] <= room[b]:
                    done[j, b] = min(BIG, begun[i, b] - along[i, b] + along[j, b])
                    since[j, b] = i
                    break
                front[b] += 1
    used, at = np.zeros(num_devices, np.int64), num_parts
    ends = done[at] + last
    a = int(np.argmin(ends))
    length = ends[a]
    while length < BIG:
        i = since[at, a]
        used[a] += own[i] + filled[at] - filled[i]
        if i == 0:
            break
        taken[i - 1] = came[i, a] * num_devices + a
        at, a = i - 1, came[i, a]
    return min(BIG, length), used, taken


@njit(cache=True)
def _priced(
    broken: Ints, inner: Ints, pointer: Ints, way: Ints, price: Ints, taken: Ints
) -> tuple[Ints, Ints]:
    """Lengths of broken intervals with what their ops' bytes cost; of those taken, the units used.

    An interval of length G has each op on a device over which a path takes no longer than G: it
    pays to be longer where that reaches cheaper memory. Without paths, all ops are where it is
    cheapest.
    """
    num_parts, num_devices = len(broken), broken.shape[1]
    cost, used, cheapest = broken.copy(), np.zeros(num_devices, np.int64), np.argmin(price)
    for r in range(num_parts):
        first, last = pointer[r], pointer[r + 1]
        for a in range(num_devices):
            for b in range(num_devices):
                counts = taken[r] == a * num_devices + b
                if broken[r, a, b] >= BIG:
                    continue
                if not len(way):
                    cost[r, a, b] += price[cheapest] * inner[first:last].sum()
                    if counts:
                        used[cheapest] += inner[first:last].sum()
                    continue
                # memory saved by a length of at least so much
                when, saved, paid = [broken[r, a, b]], [np.int64(0)], np.int64(0)
                for x in range(first, last):
                    if inner[x] == 0:
                        continue
                    now = np.int64(2**62)
                    for c in range(num_devices):
                        if way[x, a, b, c] <= broken[r, a, b]:
                            now = min(now, price[c])
                    if now == 2**62:  # rounding: never with a valid interval
                        now = price[cheapest]
                    paid += inner[x] * now
                    order = np.argsort(way[x, a, b], kind="mergesort")
                    for c in order:
                        if way[x, a, b, c] < BIG and price[c] < now:
                            when.append(way[x, a, b, c])
                            saved.append(inner[x] * (now - price[c]))
                            now = price[c]
                at, gain = broken[r, a, b], np.int64(0)
                best, length = broken[r, a, b] + paid, broken[r, a, b]
                times = np.array(when)
                for e in np.argsort(times, kind="mergesort"):
                    at, gain = max(at, times[e]), gain + saved[e]
                    if at + paid - gain < best:
                        best, length = at + paid - gain, at
                cost[r, a, b] = min(BIG, best)
                if counts:
                    for x in range(first, last):
                        where = int(cheapest)
                        if inner[x]:
                            dear = np.int64(2**62)
                            for c in range(num_devices):
                                if way[x, a, b, c] <= length and price[c] < dear:
                                    dear, where = price[c], c
                        used[where] += inner[x]
    return cost, used
