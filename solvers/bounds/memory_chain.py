"""Memory along a chain of intervals: what does not fit on one device must move, and pays.

Take a chain of ops u[0], u[1], ..., with an interval or an edge between each and the next. From the
end of one to the end of the next at least passes, by `interval_arcs`,

- all on one device a (*clean*): the time of all ops between and of the next, one after the other;
- at least one op between them elsewhere, or the next on another device (*broken*): less.

**Runs.** The ops of neighbouring clean intervals on one device are together there, so their bytes
are no more than its memory: a run ends where it is full.

**Multipliers.** Whatever multipliers lam[k] >= 0, the bytes on k exceed its memory in no plan, so
that adding sum over k of lam[k] (bytes on k - memory of k) to the length only lowers it. Bytes of
clean intervals are on their device; bytes of broken ones are counted where lam is least. Of a
colocation group only the first op of the chain counts. Slow devices with much memory are thus
compared with fast ones with little: a subgradient method looks for good multipliers.

The shortest path over positions, devices and runs is a bound for every lam: integers throughout,
with times in 2**-`bits` ns and sizes in whole units, rounded so that more fits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from placegap.formulations.shared.windows import NEVER
from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import ceil_div
from placegap.instances.structure.intervals import Interval, choose_chain
from placegap.solvers.bounds.interval_arcs import interval_arcs
from placegap.solvers.bounds.work_windows import Windows

UNITS = 2**20
"""Of memory, in all ops together."""

BIG, MOST_PRICE = 2**61, 2.0**38
"""Longer than every path; the most that a unit of memory may cost."""

ROUNDS, STALLED = 120, 12
"""Of the subgradient method; after so many without a better bound its steps are halved."""


def memory_bound(instance: Instance, windows: Windows) -> int:
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
    between, own = _sizes(instance, parts, unit)
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
    bits = windows.bits
    first, clean, broken, last = (_scaled(part, bits) for part in (first, clean, broken, last))
    most = int(between.sum() + own.sum())
    room = np.array([min(most, ceil_div(m, unit)) for m in arrays.memory_bytes.tolist()], np.int64)
    return ceil_div(_best_multipliers(first, clean, broken, last, between, own, room), 2**bits)


def _sizes(instance: Instance, parts: list[Interval], unit: int) -> tuple[Ints, Ints]:
    """Units of the groups first met between two ops of the chain, and at each op of the chain."""
    arrays, seen = instance.arrays, set[int]()
    total = np.zeros(arrays.num_groups, np.int64)
    np.add.at(total, arrays.group, arrays.resident_bytes)
    units, group = (total // unit).tolist(), arrays.group.tolist()

    def met(ops: Sequence[int]) -> int:
        new = [g for g in dict.fromkeys(group[i] for i in ops) if g not in seen]
        seen.update(new)
        return sum(units[g] for g in new)

    own, between = [met([parts[0].entry])], [0]
    for part in parts:
        between.append(met(part.inner))
        own.append(met([part.exit]))
    return np.array(between, np.int64), np.array(own, np.int64)


def _scaled(times: Ints, bits: int) -> Ints:
    return np.where(times < NEVER, np.minimum(times, NEVER >> bits) << bits, BIG)


def _best_multipliers(
    first: Ints, clean: Ints, broken: Ints, last: Ints, between: Ints, own: Ints, room: Ints
) -> int:
    """The best bound of a subgradient method over the multipliers (Held, Wolfe, Crowder 1974)."""
    binds = room < int(between.sum() + own.sum())
    price, best, at_best, step, stalled = np.zeros(len(room)), 0, np.zeros(len(room)), 0.5, 0
    for _ in range(ROUNDS if binds.any() else 1):
        whole = np.rint(price).astype(np.int64)
        length, used = _shortest(first, clean, broken, last, between, own, room, whole)
        if length >= BIG:
            break  # no plan at all: nothing that the portfolio says
        value = int(length) - sum(p * r for p, r in zip(whole.tolist(), room.tolist(), strict=True))
        stalled += 1
        if value > best:
            best, at_best, stalled = value, price.copy(), 0
        if stalled == STALLED:
            price, step, stalled = at_best.copy(), step / 2, 0
            continue
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
) -> tuple[int, Ints]:  # fmt: skip
    """Length of the shortest path by positions, devices and runs; the units that it uses of each.

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
    cheapest = np.argmin(price)
    for j in range(num_parts + 1):
        for b in range(num_devices):
            if j == 0:
                begun[j, b] = min(BIG, first[b] + price[b] * own[0])
            else:
                for a in range(num_devices):
                    way = done[j - 1, a] + broken[j - 1, a, b]
                    if way < begun[j, b]:
                        begun[j, b], came[j, b] = way, a
                extra = price[b] * own[j] + price[cheapest] * between[j]
                begun[j, b] = min(BIG, begun[j, b] + extra)
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
        used[cheapest] += between[i]
        at, a = i - 1, came[i, a]
    return min(BIG, length), used
