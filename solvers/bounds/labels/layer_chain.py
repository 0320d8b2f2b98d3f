"""Colocation groups that run one after another: the knapsack of `memory_knapsack`, in integers.

*Relaxation.* Where layers stay whole, a model is a row of *stops*: colocation groups of which each
waits for the one before (a chain of intervals, each with the ops of a single group). The times of
the stops on their devices and the transfers between neighbours add up in every schedule. All that
is before, behind or beside the row is left out.

*State.* A label has the time so far, the device of its stop, and the bytes on every device. Labels
of equal device and bytes have the same continuations: only the one with the least time is kept.

*Why it is a bound.* The least sum over all placements that fit is found, in integers. To find it
soon, labels are left out that cannot end below an *aim*: with prices per byte (`room_prices`) the
time so far, the price of all bytes and the least priced way to the end, less the price of all room,
are no more than the sum at the end. Where no label is left, the aim is a bound, and the next aim is
higher.

*Example.* Three stops of 2 bytes take 1 ns on d0, which has room for 4 bytes, and 4 ns on d1, which
has room for all; a transfer takes 5 ns. The least sum is d0 d0 d1: 1 + 1 + 5 + 4 = 11 ns (all on
d1: 12). Without memory it is 3, and the best price, 1.5 ns per byte of d0, proves 6: both all on d0
and all on d1 then cost 12, less 6 for the room of d0.

*Peak.* Under the memory rule `peak` devices also hold what does not add up: a state that stops
share, once; and the most of what is live while any stop runs, which is made of *steps* that the
stops with as much or more share. Each such share counts at its first stop. While the best placement
overfills a device by a share that is not counted there, the placements are divided into two parts:
the device has no stop with the share; or it has one, and less room.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count, product
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance
from placegap.instances.problem.additive_memory import group_live_bytes
from placegap.instances.problem.integers import NO_LIMIT, NO_WAY
from placegap.instances.problem.sections import choose_chain, intervals
from placegap.solvers.core.clock import never
from placegap.solvers.core.room_prices import FREE, RoomPrices, climb_prices

CHAIN = "layers in a row"  # origin of its bounds
# A stop cannot be there: more than all times and priced bytes together. Sums stay below 2**62.
NEVER = 2**58
MOST_INNER = 1_000  # ops of an interval, at most
# Labels after a stop, and ways to place groups that come more than once: with more there is no
# bound.
MOST_LABELS, MOST_TIES = 100_000, 32
MOST_PARTS = 40  # parts of all placements that are divided at most
# Bits of a sum of times in the unit of the prices; and bits by which priced bytes stay below the
# limit of `room_prices`, so that both together stay below `NEVER`.
MOST_BITS, SPARE_BITS = 57, 4
FIRST_AIM = 0.002  # the first aim is this share above the bound of the prices; it doubles each time


class Stops(NamedTuple):
    """S groups in a row on K devices."""

    group: Ints  # (S,) int64
    time_ns: Ints  # (S, K) int64: `NEVER` where it cannot be
    move_ns: Ints  # (S, K, K) int64: From the stop before on a to this one on b
    size_bytes: Ints  # (S, K) int64: 0 where a group comes again
    #: (z,) int64, (S, z) bool: Bytes that a device holds once if any of some stops is on it.
    shared_bytes: Ints
    shares: Flags


class LeastChain(NamedTuple):
    """A bound, and the devices of the stops that reach it, (S,)."""

    ns: int
    at: Ints


def stops_of(instance: Instance, at_peak: Instance | None = None) -> Stops | None:
    """The row of groups; None where groups run beside each other."""
    # Bytes are those of `at_peak`, if that is given; `instance` is then its floor.
    arrays, index, group = instance.arrays, instance.arrays.index, instance.arrays.group
    chain = choose_chain(instance, intervals(instance, MOST_INNER))
    if not chain or chain[0].entry is None:
        return None
    possible, link = instance.arrays.possible, arrays.link_class
    time = np.where(possible, arrays.time_ns, NEVER)
    groups, times = [int(group[chain[0].entry])], [time[chain[0].entry].copy()]
    moves = [np.zeros(link.shape, np.int64)]
    for part in chain:
        inside = list(part.ops[1:])
        g = int(group[inside[-1]])
        if (group[inside] != g).any():
            return None
        # the inner ops and the exit are colocated: they run one after the other, so times add up
        runs = (time[inside] < NEVER).all(axis=0)
        work = np.where(runs, np.minimum(time[inside].sum(axis=0), NEVER), NEVER)
        if g == groups[-1]:
            times[-1] = np.minimum(times[-1] + work, NEVER)
            continue
        # The group has no other producers here, so that its first op reads from the entry: at least
        # the shortest of these transfers is between the two stops.
        sent = [e for e in part.edges if index.producer[e] == part.entry]
        groups.append(g)
        times.append(work)
        moves.append(arrays.transfer_ns[index.tensor[sent]].min(axis=0)[link])
    row, size = np.array(groups), arrays.group_bytes
    # Shares of the peak: states that several ops have, and the levels of live bytes. A device with
    # 5 live bytes at its fullest stop has the steps 0..3 and 3..5 of the levels 3, 5 and 8: a
    # maximum becomes a sum of shares, each counted once.
    shared, shares = np.zeros(0, np.int64), np.zeros((len(row), 0), np.bool_)
    if at_peak is not None:
        sizes, live = at_peak.memory_arrays, group_live_bytes(at_peak, row)
        size, levels = np.zeros_like(size), np.unique(live)
        np.add.at(size, group, sizes.state_bytes)
        holds = np.zeros((len(size), len(sizes.shared_bytes)), np.bool_)
        holds[group[sizes.shared_op], sizes.shared_name] = True
        shares = np.column_stack([holds[row], live[:, None] >= levels])
        shared = np.concatenate([sizes.shared_bytes, np.diff(levels, prepend=0)])
        shared[~shares.any(axis=0)] = 0
    # a group that the row comes back to holds its bytes once
    _, first = np.unique(row, return_index=True)
    once = np.zeros((len(row), instance.num_devices), np.int64)
    once[first] = size[row[first], None]
    fits = once + (shares @ shared)[:, None] <= arrays.memory_bytes
    return Stops(row, np.where(fits, times, NEVER), np.array(moves), once, shared, shares)


def least_chain(
    instance: Instance, stops: Stops, stop: Callable[[], bool] = never
) -> LeastChain | None:
    """The least sum over all placements of the stops that fit; None beyond the limits."""
    # Groups that come more than once are tried on every device. After `MOST_PARTS` divisions, or
    # once stopped, the sum is a bound, but its placement need not fit.
    groups, times = np.unique(stops.group, return_counts=True)
    tied, num_devices = groups[times > 1].tolist(), instance.num_devices
    if num_devices ** len(tied) > MOST_TIES:
        return None
    # one part per way to place the groups that come again: labels do not remember where such a
    # group was
    room, number = instance.arrays.memory_bytes, count()
    parts = list[tuple[Ints, Flags]]()
    for homes in product(range(num_devices), repeat=len(tied)):
        time = stops.time_ns.copy()
        for g, home in zip(tied, homes, strict=True):
            away = np.arange(num_devices) != home
            time[np.ix_(stops.group == g, away)] = NEVER
        parts.append((time, np.zeros((num_devices, len(stops.shared_bytes)), np.bool_)))
    queue: list[tuple[int, int, Ints, tuple[Ints, Flags]]] = []
    least, at = 0, np.zeros(0, np.int64)
    # Best first: the part with the least sum is a bound on all others. If its placement fits, it is
    # the optimum; else its two halves are solved. Parts that could not be solved end the search
    # with the bound of their parent.
    for _ in range(MOST_PARTS):
        solved = [_least(*_counted(stops, *part, room)) for part in parts]
        known = [found for found in solved if found is not None]
        if len(known) < len(parts):
            break
        for part, found in zip(parts, known, strict=True):
            heappush(queue, (found.ns, next(number), found.at, part))
        least, _, at, part = heappop(queue)
        parts = _halves(stops, *part, at, room) if least < NEVER and not stop() else []
        if not parts:
            break
    return LeastChain(least, at) if len(at) and least < NEVER else None


def _counted(stops: Stops, time: Ints, held: Flags, room: Ints) -> tuple[Stops, Ints]:
    """The stops and the room of a part, with shares as bytes that add up."""
    # A share counts at the first of its stops, on whichever device that is: a device with later
    # stops of it alone gets it for nothing, which is why this is a relaxation. Where the part says
    # that a device holds the share, its room is less, and the stop's bytes do not count there
    # again.
    size = stops.size_bytes.copy()
    np.add.at(size, stops.shares.argmax(axis=0), np.where(held, 0, stops.shared_bytes).T)
    less = np.where(room < NO_LIMIT, held @ stops.shared_bytes, 0)
    return stops._replace(time_ns=time, size_bytes=size), room - less


def _halves(
    stops: Stops, time: Ints, held: Flags, at: Ints, room: Ints
) -> list[tuple[Ints, Flags]]:
    """Both halves of a part whose best placement overfills a device; none if it fits."""
    for k in np.unique(at).tolist():
        on = at == k
        here = stops.shares[on].any(axis=0)
        if int(stops.size_bytes[on, k].sum()) + int(stops.shared_bytes[here].sum()) > room[k]:
            # of the shares that are on k and not counted there, the largest: either none of its
            # stops is on k, or k has so much less room. Every placement is in one of the halves.
            missed = here & ~held[k] & ~on[stops.shares.argmax(axis=0)]
            z = int(np.where(missed, stops.shared_bytes, -1).argmax())
            without, there = time.copy(), held.copy()
            without[stops.shares[:, z], k], there[k, z] = NEVER, True
            return [(without, held), (time, there)]
    return []


def _least(stops: Stops, room: Ints) -> LeastChain | None:
    """The least sum where bytes add up; `NEVER` if nothing fits, None beyond the limits."""
    total = int(stops.size_bytes.max(axis=1).sum())

    # without a limit on bytes a placement is a path over stops and devices: the priced sum is exact
    def trial(prices: RoomPrices) -> tuple[int, Ints]:
        tails = _tails(stops, prices)
        at = int(tails[0].argmin())
        if tails[0][at] >= NEVER:
            return NO_WAY, np.zeros(len(room), np.int64)
        least = -((-int(tails[0][at])) >> prices.shift) - _worth_ns(prices, room)
        used, move = np.zeros(len(room), np.int64), _shifted(stops.move_ns, prices)
        for s, size in enumerate(stops.size_bytes):
            if s:
                at = int((move[s, at] + tails[s]).argmin())
            used[at] += size[at]
        return least, used

    most = int(np.where(stops.time_ns < NEVER, stops.time_ns, 0).max(axis=1).sum())
    most += int(stops.move_ns.max(axis=(1, 2)).sum()) + 1
    most_shift = MOST_BITS - most.bit_length()
    if most_shift < 0:
        return None
    if trial(FREE)[0] >= NO_WAY:
        return LeastChain(NEVER, np.zeros(0, np.int64))
    # times in the unit of the prices stay below 2**57 and priced bytes below 2**56: their sums stay
    # below `NEVER`, which a sum must not reach by itself
    prices = climb_prices(trial, room, total << SPARE_BITS, most_shift=most_shift)
    # The number of labels grows fast with the distance between the aim and the bound of the prices.
    # So aims start close, and double their distance while they are refuted.
    aim, share = max(0, trial(prices)[0]), FIRST_AIM
    while True:
        aim = min(most, int(aim * (1 + share)) + 1)
        found = _below(stops, room, prices, aim)
        if found is None or found.ns < aim:
            return found
        if aim == most:  # above every sum: nothing fits
            return LeastChain(NEVER, np.zeros(0, np.int64))
        share *= 2


def _worth_ns(prices: RoomPrices, room: Ints) -> int:
    """The price of all room, in ns."""
    return prices.worth_ns(room) if prices.each else 0


def _shifted(time_ns: Ints, prices: RoomPrices) -> Ints:
    """Times in the prices' unit; `NEVER` stays where it is."""
    return np.where(time_ns >= NEVER, NEVER, time_ns << prices.shift)


def _tails(stops: Stops, prices: RoomPrices) -> list[Ints]:
    """Least priced sum from each stop, itself included, to the end, by device, up to `NEVER`."""
    price = np.array(prices.each or [0] * stops.time_ns.shape[1], np.int64)
    own = _shifted(stops.time_ns, prices) + price * stops.size_bytes
    move = _shifted(stops.move_ns, prices)
    tails = [np.minimum(own[-1], NEVER)]
    for s in range(len(own) - 2, -1, -1):
        tails.append(np.minimum(own[s] + (move[s + 1] + tails[-1]).min(axis=1), NEVER))
    return tails[::-1]


def _below(stops: Stops, room: Ints, prices: RoomPrices, aim: int) -> LeastChain | None:
    """The least sum below an aim, else the aim; None where labels are too many."""
    tails, num_devices = _tails(stops, prices), len(room)
    price = np.array(prices.each or [0] * num_devices, np.int64)
    finite = room < NO_LIMIT
    every = np.arange(num_devices)
    value, at = np.zeros(1, np.int64), np.zeros(1, np.int64)
    used = np.zeros((1, num_devices), np.int64)
    traces: list[tuple[Ints, Ints]] = []
    worth = _worth_ns(prices, room)
    for s, size in enumerate(stops.size_bytes):
        # every label with every device of the next stop; the first label has no stop, and no move
        move = stops.move_ns[s][at]
        sums = value[:, None] + move + stops.time_ns[s]
        source, to = np.nonzero(sums < aim)
        held = used[source]
        held[np.arange(len(to)), to] += size[to]
        sums = sums[source, to]
        # The priced way to the end counts this stop, whose time and bytes are now in `sums` and
        # `held`. Rounding: up of the whole, down (by `worth`) of the room, as all sums are
        # integers. Devices without a limit have price 0, and their room no number.
        rest = tails[s][to] - _shifted(stops.time_ns[s][to], prices) - price[to] * size[to]
        paid = (held[:, finite] * price[finite]).sum(axis=1) + rest
        least = sums + -((-paid) >> prices.shift) - worth
        kept = (held <= room).all(axis=1) & (least < aim) & (tails[s][to] < NEVER)
        source, to, sums, held = source[kept], to[kept], sums[kept], held[kept]
        # Equal device and bytes: the least time stays. A label with less of everything would win as
        # well, but to find it compares all pairs.
        order = np.lexsort((sums, *held.T, to))
        keys = np.column_stack([to, held])[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        order = order[first]
        value, at, used = sums[order], to[order], held[order]
        traces.append((source[order], at))
        if not len(value):
            return LeastChain(aim, every[:0])
        if len(value) > MOST_LABELS:
            return None
    row, path = int(value.argmin()), list[int]()
    least = int(value[row])
    for source, where in reversed(traces):
        path.append(int(where[row]))
        row = int(source[row])
    return LeastChain(least, np.array(path[::-1], np.int64))


def chain_bound(
    instance: Instance, at_peak: Instance | None = None, stop: Callable[[], bool] = never
) -> int:
    """The bound of a row of stops, with bytes as in `stops_of`; 0 if there is none."""
    stops = stops_of(instance, at_peak)
    chain = None if stops is None else least_chain(instance, stops, stop)
    return 0 if chain is None else chain.ns
