"""A chain of sections under memory: each run of it on one device must fit there.

*Relaxation.* The nodes of a chain are ops, with a section between each and the next
(`problem.sections`). Their colocation groups, in the order in which the chain first meets them, are
the *stops*. A training step meets its layers twice, forward and backward, and the times of the
sections between two neighbouring stops add up over both passes. Whatever the placement, the stops
fall into *runs*: neighbouring stops on the same device, as long as possible. The groups of a run
are on its device together, so their bytes fit there. Where one run ends and the next begins, the
sections between take at least what is proven of them (their *arcs*) for two different devices. What
lies between two stops of one run either is on the run's device, so that its bytes count and its
times add up; or some groups of it are elsewhere, and then a path leads there and back (`Through`).
Bytes of an earlier run on the same device are forgotten.

*State* (`least_runs`). A label has the cost so far, the bytes of the current run, and the bytes of
all runs since the path came to a pool of devices with fast links (`device_pools`), which fit there
together. Labels that another one is nowhere above are dropped, and where too many stay, neighbours
are joined (`fewer_labels`).

*Why it is a bound.* Every plan that fits has its runs, which cost no more than the plan takes, as
all costs are proven by others (arcs, paths, sums of times). The least cost of any runs that fit is
a shortest path with resources, in integers.

*Prices.* Several runs may be on one device. Where devices differ, prices count that: for p[k] >= 0,
the least of cost + sum over k of p[k] (bytes on k - room of k) is a bound as well (`room_prices`).
Between two stops each group is then on a device over which a way takes no longer than the length
between the stops: it pays to be longer where that reaches cheaper memory (`price_links`).

*Modes.* What lies between two stops on one device leaves out groups by modes: mode 0 leaves out
none, the others all those whose way there and back takes no longer than some threshold.

*Example.* Four layers of a byte and 1 ns each way, forward and back, on two devices with room for
two bytes; a transfer takes 5 ns. Four stops are at least two runs, and the one cut between them is
passed twice: 8 + 2 * 5 = 18 ns, which the plan d0 d0 d1 d1 reaches.

The portfolio's `memory_bound` takes a chain of `sections.intervals`, with the bounds of
`interval_arcs` between each op and the next as its arcs, once with groups as stops and once with
ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from placegap.formulations.shared.devices import DevicePools, device_pools
from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel, stable_order
from placegap.instances.problem import Instance
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.device_classes import identical_devices
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import Interval, Section, choose_chain
from placegap.solvers.bounds.work_windows import IntervalArcs, WorkWindows, chain_arcs
from placegap.solvers.core.clock import never
from placegap.solvers.core.room_prices import FREE, RoomPrices, climb_prices


@kernel
def fewer_labels(value: Ints, order: Ints, most: int, rows: Ints, least: Ints) -> tuple[int, bool]:
    """Write which labels of one kind stay, at most `most`; how many do, and if any are joined."""
    # `order` has the labels (rows of `value`) of the kind, the best first; it is overwritten. A
    # label stays unless one before it is nowhere above it. Where more are left, neighbours become
    # one: the first, with the least of each number. `rows` gets the labels that stay, and `least`
    # their numbers. Joining keeps a bound: what a label may become, the joined one may become as
    # well, at no higher cost. Neighbours in the order of costs are joined, so costs, which decide,
    # lose least.
    kept, width = 0, value.shape[1]
    for q in order:
        below = False
        for r in order[:kept]:
            below = True
            for x in range(width):
                if value[r, x] > value[q, x]:
                    below = False
                    break
            if below:
                break
        if not below:
            order[kept] = q
            kept += 1
    # labels per joined one: a power of two, so that a few labels too many join pairs and no more
    step, count = 1, 0
    while (kept + step - 1) // step > most:
        step *= 2
    for first in range(0, kept, step):
        rows[count], least[count] = order[first], value[order[first]]
        for r in order[first + 1 : min(first + step, kept)]:
            for x in range(width):
                least[count, x] = min(least[count, x], value[r, x])
        count += 1
    return count, step > 1


NOTHING = 2**62  # more than every price


class RunTerms(NamedTuple):
    """Costs and bytes of runs, for c stops, K devices and some modes."""

    stop_ns: Ints  # (c, K) int64: The time of each stop on each device
    cut_ns: Ints  # (c - 1, K, K) int64: The time between neighbouring stops on two devices
    #: stay_ns, held_bytes: (c - 1, K, modes) int64: The time between neighbouring stops on one
    #: device, and the bytes of the groups between them that are there, too.
    stay_ns: Ints
    held_bytes: Ints
    size_bytes: Ints  # (c,) int64: The bytes of each stop's group
    #: room_bytes, pool, pool_room_bytes: The room of devices, the pool of each, the room of pools.
    room_bytes: Ints
    pool: Ints
    pool_room_bytes: Ints


@kernel
def least_runs(terms: RunTerms, most: int) -> tuple[int, Ints, Ints]:
    """Least cost of runs that fit, the device of each stop, and the mode after it, -1 for a cut."""
    # At most `most` labels are kept at a stop and device, the cheapest first.
    stop, cut, stay, held = terms.stop_ns, terms.cut_ns, terms.stay_ns, terms.held_bytes
    size, room, pool = terms.size_bytes, terms.room_bytes, terms.pool
    num, num_devices = stop.shape
    modes = stay.shape[2]
    count = np.zeros((num, num_devices), np.int64)
    label = np.zeros((num, num_devices, most, 3), np.int64)  # cost, bytes of the run, of its pool
    origin = np.zeros((num, num_devices, most, 3), np.int64)  # device, label and mode before
    for a in range(num_devices):
        if stop[0, a] < NO_WAY and size[0] <= room[a]:
            count[0, a] = 1
            label[0, a, 0] = stop[0, a], size[0], size[0]
    wide = most * (modes + num_devices) + 1
    trial, came = np.zeros((wide, 3), np.int64), np.zeros((wide, 3), np.int64)
    rows, least_of = np.empty(wide, np.int64), np.empty((wide, 3), np.int64)
    # Stop c on device b comes from stop c - 1 in three ways: from another pool, from another device
    # of the same pool, or on the same run. Each forgets less than the one before.
    for c in range(1, num):
        for b in range(num_devices):
            if stop[c, b] >= NO_WAY or size[c] > room[b]:
                continue
            n, best, most_pooled = 0, NO_WAY, terms.pool_room_bytes[pool[b]]
            for a in range(num_devices):
                if pool[a] != pool[b] and count[c - 1, a] > 0:
                    # all bytes begin anew, so only the cheapest label of all matters
                    total = label[c - 1, a, 0, 0] + cut[c - 1, a, b] + stop[c, b]
                    if total < best:
                        best, n = total, 1
                        trial[0] = total, size[c], size[c]
                        came[0] = a, 0, -1
            for a in range(num_devices):
                if pool[a] != pool[b] or a == b:
                    continue
                # another device of the pool: a new run, and the pool's bytes go on
                for at in range(count[c - 1, a]):
                    total = label[c - 1, a, at, 0] + cut[c - 1, a, b] + stop[c, b]
                    load = label[c - 1, a, at, 2] + size[c]
                    if total < NO_WAY and load <= most_pooled:
                        trial[n] = total, size[c], load
                        came[n] = a, at, -1
                        n += 1
            # the same run: the groups between the stops are there as well, but for those left out
            for at in range(count[c - 1, b]):
                for mode in range(modes):
                    total = label[c - 1, b, at, 0] + stay[c - 1, b, mode] + stop[c, b]
                    more = held[c - 1, b, mode] + size[c]
                    load, in_pool = label[c - 1, b, at, 1] + more, label[c - 1, b, at, 2] + more
                    if total < NO_WAY and load <= room[b] and in_pool <= most_pooled:
                        trial[n] = total, load, in_pool
                        came[n] = b, at, mode
                        n += 1
            order = stable_order(trial[:n, 0])
            kept, _ = fewer_labels(trial, order, most, rows, least_of)
            for m in range(kept):
                label[c, b, m], origin[c, b, m] = least_of[m], came[rows[m]]
            count[c, b] = kept
    # labels are sorted by cost: the first of some device is the least of all
    at_device, least = -1, NO_WAY
    for a in range(num_devices):
        if count[num - 1, a] > 0 and label[num - 1, a, 0, 0] < least:
            at_device, least = a, label[num - 1, a, 0, 0]
    device, passed, at = np.zeros(num, np.int64), np.full(num, -1), 0
    if at_device >= 0:
        for c in range(num - 1, -1, -1):
            device[c] = at_device
            before = origin[c, at_device, at]
            if c > 0:
                passed[c - 1] = before[2]
            at_device, at = before[0], before[1]
    return least, device, passed


class LinkWays(NamedTuple):
    """Groups between stops, with their bytes, and ways as in `Passage`."""

    # Those of link r are from ``pointer[r]`` on; where ways are (K, 1, K), bytes of a cut pay the
    # least price of all.
    pointer: Ints
    size_bytes: Ints
    ways_ns: Ints


@kernel
def price_links(
    cut: Ints, stay: Ints, links: LinkWays, price: Ints, shift: int, at: Ints, mode: Ints
) -> tuple[Ints, Ints, Ints]:
    """Lengths (c, K, K) and (c, K, modes) with the price of bytes, floored; bytes by device."""
    # The bytes are those of stops on the devices `at`, with the modes between; they are not counted
    # where `at` is negative.
    # The price of the stops is in `stop_ns`; here are the groups between. The first call makes the
    # lengths for `least_runs`, and the second counts the bytes on the path found.
    num_links, num_devices = len(cut), cut.shape[1]
    cuts, stays, used = cut.copy(), stay.copy(), np.zeros(num_devices, np.int64)
    cheapest, wide = np.argmin(price), links.ways_ns.shape[2] > 1
    for r in range(num_links):
        first, last = links.pointer[r], links.pointer[r + 1]
        if first == last:
            continue
        size, ways = links.size_bytes[first:last], links.ways_ns[first:last]
        total = size.sum()
        for a in range(num_devices):
            for b in range(num_devices):
                if a == b or cut[r, a, b] >= NO_WAY:
                    continue
                if wide:
                    paid, where = _pay(cut[r, a, b], size, ways[:, a, b], price, shift)
                else:
                    paid = min(NO_WAY, cut[r, a, b] + ((total * price[cheapest]) >> shift))
                    where = np.full(last - first, cheapest)
                cuts[r, a, b] = paid
                if at[r] == a and at[r + 1] == b:
                    for x in range(last - first):
                        used[where[x]] += size[x]
            for m in range(stay.shape[2]):
                if stay[r, a, m] >= NO_WAY:
                    continue
                if m > 0:  # groups that are left out pay where they are
                    way = ways[:, a, a if wide else 0]
                    paid, where = _pay(stay[r, a, m], size, way, price, shift)
                else:  # all on the device of the run
                    paid = min(NO_WAY, stay[r, a, m] + ((total * price[a]) >> shift))
                    where = np.full(last - first, a)
                stays[r, a, m] = paid
                if at[r] == a and at[r + 1] == a and mode[r] == m:
                    for x in range(last - first):
                        used[where[x]] += size[x]
    return cuts, stays, used


@kernel
def _pay(start: int, size: Ints, ways: Ints, price: Ints, shift: int) -> tuple[int, Ints]:
    """The least length plus price of bytes, from `start` on; and the device of each group."""
    # The longer the section, the more devices a group can be on. The price of all bytes is a
    # falling step function of the length: the least sum is at `start`, or where some group reaches
    # a cheaper device.
    num, num_devices = ways.shape
    when, saved, paid = [start], [np.int64(0)], np.int64(0)
    for x in range(num):
        now = NOTHING
        for c in range(num_devices):
            if ways[x, c] <= start:
                now = min(now, price[c])
        if now == NOTHING:  # no way is as short as `start`: take the least price, which is no more
            now = price.min()
        paid += size[x] * now
        for c in stable_order(ways[x]):
            if ways[x, c] < NO_WAY and price[c] < now:
                when.append(ways[x, c])
                saved.append(size[x] * (now - price[c]))
                now = price[c]
    at, gain, length = start, np.int64(0), start
    # sweep over the events, and subtract what each of them saves
    best, times = int(start + (paid >> shift)), np.array(when)
    for e in stable_order(times):
        at, gain = max(at, times[e]), gain + saved[e]
        if at + ((paid - gain) >> shift) < best:
            best, length = int(at + ((paid - gain) >> shift)), at
    where = np.full(num, np.argmin(price))
    for x in range(num):
        least = NOTHING
        for c in range(num_devices):
            if ways[x, c] <= length and price[c] < least:
                least, where[x] = price[c], c
    return min(NO_WAY, best), where


MODES = 4  # ways to count what lies between two stops on one device

# For the section at a place in the chain, (K, ops, K) twice: entries [a, i, c] are the least times
# from the entry's end on device a to that of the i-th op on c, and from that to the exit's end on
# a. Rows of the ends are not read. None: no times are known.
Through = Callable[[int], tuple[Ints, Ints] | None]
MOST_LABELS = 64  # labels at a stop and device; where there are more, neighbours are joined
# Labels at least, and stops x devices x labels at most: long chains have fewer labels, and the
# longest are not tried.
FEWEST_LABELS, MOST_WORK = 8, 8_000_000
# Ops of a section; in larger ones no ways are computed, and the groups between the ends count
# nowhere.
MOST_INNER = 2_000
# Cells of ways by three devices; beyond, bytes between two devices pay the least price of all.
MOST_CELLS = 5_000_000


class Passage(NamedTuple):
    """One section between two neighbouring stops."""

    section: int  # its place in the chain
    backward: bool  # whether it leads to the earlier stop
    #: (G, K, K, K) int64: Entry [g, a, b, c]: the least time if the earlier stop is on a, the
    #: later one on b, and group g of the link on c. Without ``is_wide``, (G, K, 1, K): for both on
    #: a alone.
    way_ns: Ints
    work_ns: Ints  # (G, K) int64: Time of group g's ops in the section on each device
    rest_ns: Ints  # (K,) int64: Time of the ops of both stops in it, the entry aside


class BetweenStops(NamedTuple):
    """The sections between a stop and the next one, and the bytes of the groups inside."""

    passages: tuple[Passage, ...]
    size_bytes: Ints


class Costs(NamedTuple):
    """`RunTerms` by arcs, times of the other sections, and the ways of the groups of links."""

    # `apart_ns` is the least time of all sections between stops that are no neighbours.
    terms: RunTerms
    apart_ns: int
    links: LinkWays


class Cheapest(NamedTuple):
    """The least cost of runs that fit, `NO_WAY` if none do."""

    # `ends` has the devices of each section's entry and exit (rows and columns of its table), and
    # `used_bytes` what the runs hold on each device.
    ns: int
    ends: list[tuple[int, int]]
    used_bytes: Ints


@dataclass(frozen=True, eq=False)
class MemoryRuns:
    """Runs along a chain, without the lengths of its arcs."""

    # These are tables, one per section: rows for the devices of its entry (one, without an entry)
    # and columns for those of its exit.
    sections: tuple[Section, ...]
    #: before_ns, after_ns: The earliest end of the first section's entry, and the least time after
    #: the last one's exit, by device; of one entry where the section has no such end.
    before_ns: Ints
    after_ns: Ints
    links: tuple[BetweenStops, ...]  # for each stop but the last: sections and groups to the next
    inside: tuple[tuple[int, int], ...]  # sections between ops of the same stop
    other: tuple[int, ...]  # sections between stops that are no neighbours
    size_bytes: Ints  # (c,) int64: Of each stop's group
    room_bytes: Ints  # (K,) int64
    pools: DevicePools  # each device is a pool of its own where links are alike
    #: first, last: Stops of the chain's first and last node.
    first: int
    last: int
    prices: RoomPrices = FREE

    def cheapest(self, tables: Sequence[Ints]) -> Cheapest:
        """The cheapest runs that fit."""
        return self._cheapest(self._costs(tables), tables)

    def _costs(self, tables: Sequence[Ints]) -> Costs:
        """The lengths of arcs, added up by stops and links."""
        num, num_devices = len(self.size_bytes), len(self.room_bytes)
        stop = np.zeros((num, num_devices), np.int64)
        # a first section without an entry ends at the first stop, whatever is before: it is part of
        # that stop's time; likewise the last one
        before, after = self.before_ns, self.after_ns
        if self.sections[0].entry is None:
            before = np.minimum(before[0] + tables[0][0], NO_WAY)
        if self.sections[-1].exit is None:
            after = np.minimum(tables[-1][:, 0] + after[0], NO_WAY)
        # sections between two ops of one stop begin and end on its device
        stop[self.first] += before
        stop[self.last] += after
        for s, at in self.inside:
            stop[at] += np.diag(tables[s])
        cut = np.zeros((num - 1, num_devices, num_devices), np.int64)
        stay = np.full((num - 1, num_devices, MODES), NO_WAY)
        held = np.zeros((num - 1, num_devices, MODES), np.int64)
        ways = list[Ints]()
        for c, link in enumerate(self.links):
            for passage in link.passages:
                table = tables[passage.section]
                cut[c] = np.minimum(cut[c] + (table.T if passage.backward else table), NO_WAY)
            ways.append(ways_of(link, tables))
            fill_modes(link, tables, ways[c], np.diag(cut[c]), stay[c], held[c])
        groups = [way for way, link in zip(ways, self.links, strict=True) if len(link.size_bytes)]
        none = np.zeros((0, num_devices, num_devices, num_devices), np.int64)
        links = LinkWays(
            np.cumsum([0, *(len(link.size_bytes) for link in self.links)]),
            np.concatenate([link.size_bytes for link in self.links]),
            np.concatenate(groups) if groups else none,
        )
        terms = RunTerms(
            np.minimum(stop, NO_WAY),
            cut,
            stay,
            held,
            self.size_bytes,
            self.room_bytes,
            self.pools.pool,
            self.pools.room_bytes,
        )
        return Costs(terms, sum(int(tables[s].min()) for s in self.other), links)

    def _cheapest(self, costs: Costs, tables: Sequence[Ints]) -> Cheapest:
        """The cheapest runs at the prices of bytes."""
        labels = _labels(len(self.size_bytes), len(self.room_bytes))
        terms, worth = costs.terms, 0
        if self.prices.each:  # bytes cost something, rounded down; room is worth it, rounded up
            nowhere = np.full(len(self.size_bytes), -1)
            cut, stay, _ = self._links(costs, nowhere, nowhere)
            price = np.array(self.prices.each, np.int64)
            stop = terms.stop_ns + ((self.size_bytes[:, None] * price) >> self.prices.shift)
            terms = terms._replace(stop_ns=np.minimum(stop, NO_WAY), cut_ns=cut, stay_ns=stay)
            worth = self.prices.worth_ns(self.room_bytes)
        total, at, mode = least_runs(terms, labels)
        used = np.zeros(len(self.room_bytes), np.int64)
        if total >= NO_WAY:
            return Cheapest(NO_WAY, [], used)
        np.add.at(used, at, self.size_bytes)
        used += self._links(costs, at, mode)[2]
        least = max(0, min(NO_WAY, int(total) + costs.apart_ns - worth))
        return Cheapest(least, self._ends(tables, at.tolist()), used)

    def _links(self, costs: Costs, at: Ints, mode: Ints) -> tuple[Ints, Ints, Ints]:
        """Lengths of links with the prices of bytes, and the bytes of links between some stops."""
        price = np.array(self.prices.each or [0] * len(self.room_bytes), np.int64)
        cut, stay = costs.terms.cut_ns, costs.terms.stay_ns
        return price_links(cut, stay, costs.links, price, self.prices.shift, at, mode)

    def priced(
        self, tables: Sequence[Ints], value_ns: int | None = None, stop: Callable[[], bool] = never
    ) -> MemoryRuns:
        """The same runs with the prices that prove most, of those that `climb_prices` tries."""
        costs = self._costs(tables)
        total = int(self.size_bytes.sum()) + sum(int(x.size_bytes.sum()) for x in self.links)

        def trial(prices: RoomPrices) -> tuple[int, Ints]:
            found = replace(self, prices=prices)._cheapest(costs, tables)
            return found.ns, found.used_bytes

        best = climb_prices(trial, self.room_bytes, total, value_ns, stop)
        return replace(self, prices=best) if best.each else self

    def _ends(self, tables: Sequence[Ints], at: list[int]) -> list[tuple[int, int]]:
        """Rows and columns of the sections' tables, by the devices of the stops."""
        stops: dict[int, tuple[int, int]] = {s: (stop, stop) for s, stop in self.inside}
        for c, link in enumerate(self.links):
            for passage in link.passages:
                stops[passage.section] = (c + 1, c) if passage.backward else (c, c + 1)
        ends = []
        for s, (section, table) in enumerate(zip(self.sections, tables, strict=True)):
            if s in stops:
                a, b = (at[stop] for stop in stops[s])
            elif section.entry is None or section.exit is None:
                a = 0 if section.entry is None else at[self.last]
                b = 0 if section.exit is None else at[self.first]
            else:
                a, b = divmod(int(table.argmin()), table.shape[1])
            ends.append((a, b))
        return ends


def memory_runs(
    instance: Instance,
    sections: Sequence[Section],
    before_ns: Ints,
    after_ns: Ints,
    through: Through,
    *,
    fold: bool = True,
) -> MemoryRuns | None:
    """The runs of a chain under memory; None if memory is slack, or if the chain is too long."""
    # Without `fold` each op of the chain is a stop of its own, wherever others of its group are.
    # Then two passes do not add up, but no section is between stops that are no neighbours.
    # Folding is strong where the way back meets the layers in reverse, and each link has a section
    # of either direction. A chain that meets its groups in another order has most sections in
    # `other`, which count at their least over all devices: there stops without `fold` prove more.
    group = instance.arrays.group
    nodes = [section.entry for section in sections if section.entry is not None]
    nodes += [section.exit for section in sections[-1:] if section.exit is not None]
    keys = group[nodes].tolist() if fold else nodes
    place = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    stop = {i: place[key] for i, key in zip(nodes, keys, strict=True)}
    if len(place) < 2 or _labels(len(place), instance.num_devices) < FEWEST_LABELS:
        return None
    if instance.arrays.memory_is_slack:
        return None
    passing: list[list[tuple[int, bool]]] = [[] for _ in range(len(place) - 1)]
    inside, other = list[tuple[int, int]](), list[int]()
    # by the stops of its ends, a section is in a link, within a stop, or between stops apart
    for s, section in enumerate(sections):
        if section.entry is None or section.exit is None:
            continue  # counted at its only stop
        g, h = stop[section.entry], stop[section.exit]
        if abs(g - h) == 1:
            passing[min(g, h)].append((s, h < g))
        elif g == h:
            inside.append((s, g))
        else:
            other.append(s)
    size = instance.arrays.group_bytes
    time = np.where(instance.arrays.able, instance.arrays.time_ns, NO_WAY)
    is_wide = instance.arrays.num_groups * instance.num_devices**3 <= MOST_CELLS
    # The bytes of each group count once, where it is first met: as a stop, or in the link of its
    # first section. `names` are the groups of the stops.
    names = list(place) if fold else group[nodes].tolist()
    seen, links = set(names if fold else names[:1]), list[BetweenStops]()
    holds = size[names]
    for c, passed in enumerate(passing):
        ops, ends = [i for s, _ in passed for i in sections[s].ops], names[c : c + 2]
        groups = [g for g in dict.fromkeys(group[ops].tolist()) if g not in {*seen, *ends}]
        ways: list[tuple[Ints, Ints] | None] = [None for _ in passed]
        if any(sections[s].num_inner > MOST_INNER for s, _ in passed):
            groups = []
        elif groups:
            ways = [through(s) for s, _ in passed]
        if any(way is None for way in ways):  # nothing is proven of where they are
            groups = []
        seen.update(groups)
        if not fold and names[c + 1] in seen:
            holds[c + 1] = 0
        seen.add(names[c + 1])
        passages = tuple(
            passage_of(
                (s, backward), sections[s], (groups, ends), group, time, way, is_wide=is_wide
            )
            for (s, backward), way in zip(passed, ways, strict=True)
        )
        links.append(BetweenStops(passages, size[groups]))
    room = instance.arrays.memory_bytes
    first, last = stop[nodes[0]], stop[nodes[-1]]
    return MemoryRuns(
        tuple(sections),
        before_ns,
        after_ns,
        tuple(links),
        tuple(inside),
        tuple(other),
        holds,
        room,
        _pools(instance.arrays, room),
        first,
        last,
    )


def memory_bound(instance: Instance, windows: WorkWindows) -> int:
    """The bound of memory along a chain on every makespan, in ns; 0 if there is none."""
    sections = choose_chain(instance, windows.intervals)
    time, best = windows.time_ns, 0
    parts, arcs, all_tables = chain_arcs(instance, sections, windows)
    tables = list(all_tables)
    if not parts:
        return 0
    # outside of the chain heads and tails count; without the arcs' heads and tails (`MOST_CELLS`)
    # no group between two stops is counted
    before = windows.head_ns[parts[0].entry] + time[parts[0].entry]
    after = np.where(time[parts[-1].exit] < NO_WAY, windows.tail_ns[parts[-1].exit], NO_WAY)
    pointer = np.cumsum([0, *(len(part.inner) for part in parts)])
    known = len(arcs.head_ns) == pointer[-1]

    def through(s: int) -> tuple[Ints, Ints] | None:
        return _through(arcs, parts[s], slice(pointer[s], pointer[s + 1]), time) if known else None

    # identical devices need no prices: the best ones would be equal, and cost what room is worth
    alike = max(map(len, identical_devices(instance)), default=1) == instance.num_devices
    for fold in (True, False):
        runs = memory_runs(
            instance,
            sections[: len(parts)],
            np.minimum(before, NO_WAY),
            np.minimum(after, NO_WAY),
            through,
            fold=fold,
        )
        least = NO_WAY if runs is None else runs.cheapest(tables).ns
        if runs is None or least >= NO_WAY:
            continue  # no plan at all: the portfolio proves nothing
        if not alike:
            runs = runs.priced(tables)
        best = max(best, runs.cheapest(tables).ns)
    return best


def _through(arcs: IntervalArcs, part: Interval, rows: slice, time: Ints) -> tuple[Ints, Ints]:
    """A `Through` by the paths of the arcs; rows of the ends are 0."""
    num_devices = time.shape[1]
    shape = (num_devices, len(part.inner) + 2, num_devices)
    before, after = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    inner = time[list(part.inner)]
    head, tail = (_spread(ways[rows], num_devices) for ways in (arcs.head_ns, arcs.tail_ns))
    before[:, 1:-1] = np.minimum(head + inner, NO_WAY)
    after[:, 1:-1] = np.minimum(tail + time[part.exit][:, None, None], NO_WAY)
    return before, after


def _spread(ways: Ints, num_devices: int) -> Ints:
    """Rows of heads or tails for all devices, (K, ops, K)."""
    if ways.shape[2] == num_devices:
        return ways.transpose(1, 0, 2)
    # all devices are alike: the end's own one, and any other
    here, there = ways[None, :, 0, 0, None], ways[None, :, 0, 2, None]
    return np.where(np.eye(num_devices, dtype=np.bool_)[:, None, :], here, there)


def passage_of(
    at: tuple[int, bool],
    section: Section,
    groups: tuple[list[int], list[int]],
    group: Ints,
    time: Ints,
    through: tuple[Ints, Ints] | None,
    *,
    is_wide: bool,
) -> Passage:
    """One section between two stops: times of the groups of its link, and of its two stops."""
    # `at` is the section and whether it leads backward, `groups` those of the link and of the
    # stops.
    # A group on c is passed by a path from one stop to c and on to the other: the longest over its
    # ops. Its work adds up where it stays on the device of the run. The entry is in the section
    # before.
    inner, stops = groups
    num_devices = time.shape[1]
    way = np.zeros((len(inner), num_devices, num_devices if is_wide else 1, num_devices), np.int64)
    work = np.zeros((len(inner), num_devices), np.int64)
    rest = np.zeros(num_devices, np.int64)
    places = {g: place for place, g in enumerate(inner)}
    for place, i in enumerate(section.ops):
        g = int(group[i])
        if g in places and through is not None:
            before, after = (part[:, place] for part in (through if not at[1] else through[::-1]))
            length = before[:, None] + (after[None, :] if is_wide else after[:, None])
            work[places[g]] = np.minimum(work[places[g]] + time[i], NO_WAY)
            way[places[g]] = np.maximum(way[places[g]], np.minimum(length, NO_WAY))
        elif g in stops and place > 0:
            rest = np.minimum(rest + time[i], NO_WAY)
    return Passage(*at, way, work, rest)


def ways_of(link: BetweenStops, tables: Sequence[Ints]) -> Ints:
    """The least time between two stops with a group of the link on a device, as in `Passage`."""
    # Sections of a link follow each other, so their ways add up. Each takes the longer of the
    # group's way and of its arc, which CP-SAT may have proven to be more than any path.
    ways = np.zeros((1, 1, 1, 1), np.int64)
    for passage in link.passages:
        table = tables[passage.section]
        table = table.T if passage.backward else table
        if passage.way_ns.shape[2] == 1:
            table = np.diag(table)[:, None]
        ways = np.minimum(ways + np.maximum(passage.way_ns, table[None, :, :, None]), NO_WAY)
    return ways


def fill_modes(
    link: BetweenStops, tables: Sequence[Ints], ways: Ints, together: Ints, cost: Ints, held: Ints
) -> None:
    """Fill in the least times between two stops on one device, (K, MODES), and the bytes held."""
    # Mode 0 has all groups on the device. Else let t be the longest of the least ways of the groups
    # that are elsewhere: the link takes t at least, and all groups with a longer way are here.
    # Modes divide the possible t into ranges: a mode costs the least t of its range, and leaves out
    # all groups up to the largest. So each placement is covered by a mode that costs and holds no
    # more.
    num_devices, num = len(together), len(link.size_bytes)
    same = np.arange(num_devices)
    away = np.zeros((num, num_devices, num_devices), np.int64)
    if num:
        away[:] = ways[:, same, same % ways.shape[2]]
    away[:, same, same] = NO_WAY  # elsewhere: not on the device of the run
    least = away.min(axis=2) if num else np.zeros((0, num_devices), np.int64)
    for a in range(num_devices):
        keys = np.unique(least[:, a])
        keys = keys[keys < NO_WAY]
        parts = np.array_split(keys, min(MODES - 1, len(keys))) if len(keys) else []
        begins = [int(together[a]), *(int(part[0]) for part in parts)]
        for mode in range(len(parts) + 1):
            stays = np.ones(num, np.bool_) if mode == 0 else least[:, a] > parts[mode - 1][-1]
            # what stays runs one after the other, in each section by itself
            serial = 0
            for passage in link.passages:
                work = int(passage.rest_ns[a]) + sum(passage.work_ns[stays, a].tolist())
                serial += max(work, int(tables[passage.section][a, a]))
            cost[a, mode] = min(NO_WAY, max(begins[mode], serial))
            held[a, mode] = link.size_bytes[stays].sum()


def _pools(arrays: Arrays, room: Ints) -> DevicePools:
    """The pools; each device is its own where links are all alike."""
    pools = device_pools(arrays)
    if len(pools.room_bytes):
        return pools
    return DevicePools(np.arange(len(room)), room.copy())  # as those: one kernel for both


def _labels(num: int, num_devices: int) -> int:
    return min(MOST_LABELS, MOST_WORK // (num * num_devices))
