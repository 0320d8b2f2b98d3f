"""A chain of sections under memory: each run of it on one device must fit there.

The nodes of a chain (`decomposition.chain`) are ops; their colocation groups, in the order in which
the chain first meets them, are the *stops*. A training step meets its layers twice, forward and
backward, and what it takes between two neighbouring stops adds up over both passes.

Whatever the placement, the stops fall into runs: neighbouring stops on the same device, as long as
possible. The groups of a run are on its device together, so that their bytes fit there; and where
one run ends and the next begins, the sections between take what their arcs prove for two unlike
devices. So the least cost of any division into runs that fit is a bound. What lies between two
stops of one run either is on the run's device, and its bytes count and its times add up; or some
groups of it are elsewhere, and then a path leads there and back (`through_lengths`). Groups are
left out by *modes*: mode 0 leaves out none, the others all those whose way there and back takes no
longer than some threshold.

All costs are what others prove (arcs, paths, sums of times); the search is a shortest path with a
resource (the bytes of the current run), in integers.

Several runs may be on one device. Where devices differ, *prices* see to that: for prices p[k] >= 0,
the least of cost + sum over k of p[k] (bytes on k - room of k) is a bound as well. A subgradient
method looks for prices that prove much (`priced`); any that it finds are valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from placegap.formulations.sections.paths import through_lengths
from placegap.formulations.shared.families import possible_devices
from placegap.formulations.shared.windows import NEVER
from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_LIMIT
from placegap.instances.structure.bottlenecks import memory_is_slack
from placegap.solvers.decomposition.arcs import Use
from placegap.solvers.decomposition.chain import Chain, Lengths

Floats = NDArray[np.float64]

MODES = 4
"""Ways to count what lies between two stops on one device."""

MOST_LABELS = 64
"""Partial runs that are told apart at a stop; beyond, neighbours count as one, at the least of both
costs and both sizes."""

MOST_WORK = 20_000_000
"""Stops x devices x labels; longer chains are not tried."""

MOST_INNER = 2_000
"""Of larger sections no way through is looked at: what lies between their ends counts nowhere."""


PRICE_BITS, MOST_BITS = 20, 60
"""A price is an integer of about so many bits over a power of two; with bytes it has at most so
many."""

MOST_STEPS, STALL = 40, 8
"""Steps of the subgradient method; after so many without progress its steps are halved."""


class Passage(NamedTuple):
    """One section between two neighbouring stops.

    Attributes
    ----------
    section : int
        Its place in the chain.
    backward : bool
        Whether it leads to the earlier stop.
    away_ns : (G, K, K) int64
        Entry [g, a, c]: at least so long if the ends are on a and group g of the link on c.
    work_ns : (G, K) int64
        Time of group g's ops in the section on each device.
    rest_ns : (K,) int64
        Time of the ops of both stops in it, the entry aside.
    """

    section: int
    backward: bool
    away_ns: Ints
    work_ns: Ints
    rest_ns: Ints


class BetweenStops(NamedTuple):
    """What lies between a stop and the next one: sections, and the bytes of the groups inside."""

    passages: tuple[Passage, ...]
    size_bytes: Ints


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs along a chain, apart from what its arcs are worth.

    Attributes
    ----------
    chain : Chain
    links : tuple of BetweenStops
        Per stop but the last, what lies between it and the next.
    inside : tuple of (section, stop)
        Sections between ops of the same stop.
    other : tuple of int
        Sections between stops that are no neighbours.
    size_bytes : (c,) int64
        Of each stop's group.
    room_bytes : (K,) int64
    first, last : int
        Stops of the chain's first and last node.
    price : tuple of int
        Of a byte on each device, in ns times 2 to the power of `shift`; empty: nothing.
    shift : int
    """

    chain: Chain
    links: tuple[BetweenStops, ...]
    inside: tuple[tuple[int, int], ...]
    other: tuple[int, ...]
    size_bytes: Ints
    room_bytes: Ints
    first: int
    last: int
    price: tuple[int, ...] = ()
    shift: int = 0

    def shortest(self, lengths: Lengths) -> tuple[int, list[Use]]:
        """Least cost of runs that fit, and the arcs that it is made of; `NEVER` if none fit."""
        total, path, _ = self.cheapest(lengths)
        return total, path

    def cheapest(self, lengths: Lengths) -> tuple[int, list[Use], Ints]:
        """The same, and the bytes that these runs hold on each device, (K,)."""
        tables = [lengths(uses) for uses in self.chain.uses]
        num, num_devices = len(self.size_bytes), len(self.room_bytes)
        unary = np.zeros((num, num_devices), np.int64)
        before, after = self.chain.before_ns, self.chain.after_ns
        sections = self.chain.sections
        if sections[0].entry is None:
            before = np.minimum(before[0] + tables[0][0], NEVER)
        if sections[-1].exit is None:
            after = np.minimum(tables[-1][:, 0] + after[0], NEVER)
        unary[self.first] += before
        unary[self.last] += after
        for s, stop in self.inside:
            unary[stop] += np.diag(tables[s])
        unary = np.minimum(unary, NEVER)
        constant = sum(int(tables[s].min()) for s in self.other)
        pair = np.zeros((num - 1, num_devices, num_devices), np.int64)
        cost = np.full((num - 1, num_devices, MODES), NEVER)
        held = np.zeros((num - 1, num_devices, MODES), np.int64)
        for c, link in enumerate(self.links):
            for passage in link.passages:
                table = tables[passage.section]
                pair[c] = np.minimum(pair[c] + (table.T if passage.backward else table), NEVER)
            _modes(link, tables, np.diag(pair[c]), cost[c], held[c])
        if self.price:
            constant -= self._charge(unary, pair, cost, held)
        total, at, mode = _least_runs(
            unary, pair, cost, held, self.size_bytes, self.room_bytes, MOST_LABELS
        )
        if total >= NEVER:
            return NEVER, [], np.zeros(num_devices, np.int64)
        path = self._path(tables, at.tolist())
        return max(0, min(NEVER, int(total) + constant)), path, self._bytes(held, at, mode)

    def _charge(self, unary: Ints, pair: Ints, cost: Ints, held: Ints) -> int:
        """Add what bytes cost, rounded down, and return what the room is worth, rounded up.

        What is not on the device of a run is where a byte costs least.
        """
        price = np.array(self.price, np.int64)
        between = np.array([link.size_bytes.sum() for link in self.links], np.int64)
        least = int(price.min())
        unary += (self.size_bytes[:, None] * price) >> self.shift
        pair += ((between * least) >> self.shift)[:, None, None]
        away = (between[:, None, None] - held) * least
        cost += (held * price[None, :, None] + away) >> self.shift
        for costs in (unary, pair, cost):
            np.minimum(costs, NEVER, out=costs)
        charged = zip(self.price, self.room_bytes.tolist(), strict=True)
        worth: int = sum(each * room for each, room in charged if each)
        return -(-worth >> self.shift)

    def _bytes(self, held: Ints, at: Ints, mode: Ints) -> Ints:
        used = np.bincount(at, weights=self.size_bytes, minlength=len(self.room_bytes))
        cheap = int(np.argmin(self.price)) if self.price else 0
        for c, link in enumerate(self.links):
            inside = held[c, at[c], mode[c]] if mode[c] >= 0 else 0
            used[at[c]] += inside
            used[cheap] += link.size_bytes.sum() - inside
        return used.astype(np.int64)

    def priced(
        self, lengths: Lengths, value_ns: int, stop: Callable[[], bool] = lambda: False
    ) -> Runs:
        """The same runs with the prices that prove most, of those that a subgradient method tries.

        Its steps are those of Polyak (1969) towards the value of a known plan, until `stop`.
        """
        best, found, price = self.shortest(lengths)[0], self, np.zeros(len(self.room_bytes))
        if best >= NEVER:
            return self
        finite = self.room_bytes < np.iinfo(np.int64).max
        scale, stalled, trial = 1.0, 0, replace(self, price=(), shift=0)
        for _ in range(MOST_STEPS):
            if stop():
                break
            total, _, used = trial.cheapest(lengths)
            if total >= NEVER:  # dearer than numbers reach: it says nothing
                break
            stalled += 1
            if total > best:
                best, found, stalled = total, trial, 0
            if stalled == STALL:
                scale, stalled = scale / 2, 0
            slope = np.where(finite, used - np.where(finite, self.room_bytes, 0), 0.0).astype(float)
            slope[(price == 0) & (slope < 0)] = 0.0
            steep = float(slope @ slope)
            if steep == 0.0 or value_ns <= total:
                break
            price = np.maximum(0.0, price + scale * (value_ns - total) / steep * slope)
            trial = self._at(price)
        return found

    def _at(self, price: Floats) -> Runs:
        """The runs at prices near the given ones that are integers over a power of two."""
        most = float(price.max())
        if most <= 0.0:
            return replace(self, price=(), shift=0)
        total = int(self.size_bytes.sum()) + sum(int(x.size_bytes.sum()) for x in self.links)
        highest, exponent = MOST_BITS - total.bit_length(), math.frexp(most)[1]
        shift = max(0, min(PRICE_BITS, highest) - exponent)
        if exponent > highest or shift >= MOST_BITS:
            return replace(self, price=(), shift=0)
        whole = np.floor(price * 2.0**shift).astype(np.int64)
        return replace(self, price=tuple(whole.tolist()), shift=shift)

    def _path(self, tables: list[Ints], at: list[int]) -> list[Use]:
        """The arcs of the sections in the chain's order, by the devices of the stops."""
        ends: dict[int, tuple[int, int]] = {s: (stop, stop) for s, stop in self.inside}
        for c, link in enumerate(self.links):
            for passage in link.passages:
                ends[passage.section] = (c + 1, c) if passage.backward else (c, c + 1)
        path = []
        for s, uses in enumerate(self.chain.uses):
            if s in ends:
                a, b = (at[stop] for stop in ends[s])
            elif len(uses) == 1 or len(uses[0]) == 1:
                a = 0 if len(uses) == 1 else at[self.last]
                b = 0 if len(uses[0]) == 1 else at[self.first]
            else:
                a, b = divmod(int(tables[s].argmin()), tables[s].shape[1])
            path.append(uses[a][b])
        return path


def runs_of(instance: Instance, chain: Chain) -> Runs | None:
    """What memory asks of a chain; None if it asks nothing, or the chain is too long."""
    group, num_devices = instance.arrays.group, instance.num_devices
    nodes = [section.entry for section in chain.sections if section.entry is not None]
    nodes += [section.exit for section in chain.sections[-1:] if section.exit is not None]
    stop: dict[int, int] = {}
    for i in nodes:
        stop.setdefault(int(group[i]), len(stop))
    if len(stop) < 2 or len(stop) * num_devices * MOST_LABELS > MOST_WORK:
        return None
    if memory_is_slack(instance):
        return None
    passing: list[list[tuple[int, bool]]] = [[] for _ in range(len(stop) - 1)]
    inside, other = list[tuple[int, int]](), list[int]()
    for s, section in enumerate(chain.sections):
        if section.entry is None or section.exit is None:
            continue  # counted at its only stop
        g, h = stop[int(group[section.entry])], stop[int(group[section.exit])]
        if abs(g - h) == 1:
            passing[min(g, h)].append((s, h < g))
        elif g == h:
            inside.append((s, g))
        else:
            other.append(s)
    size = np.zeros(instance.arrays.num_groups, np.int64)
    np.add.at(size, group, instance.arrays.resident_bytes)
    seen, links, known = set(stop), list[BetweenStops](), dict[int, Ints]()
    names = list(stop)
    for c, sections in enumerate(passing):
        ops = [i for s, _ in sections for i in chain.sections[s].ops]
        groups = [g for g in dict.fromkeys(group[ops].tolist()) if g not in seen]
        if any(chain.sections[s].num_inner > MOST_INNER for s, _ in sections):
            groups = []
        seen.update(groups)
        passages = tuple(
            _passage(instance, chain, s, backward, (groups, names[c : c + 2]), known)
            for s, backward in sections
        )
        links.append(BetweenStops(passages, size[groups]))
    room = np.where(
        instance.arrays.memory_bytes == NO_LIMIT, np.iinfo(np.int64).max,
        instance.arrays.memory_bytes,
    )  # fmt: skip
    first, last = (stop[int(group[i])] for i in (nodes[0], nodes[-1]))
    return Runs(chain, tuple(links), tuple(inside), tuple(other), size[names], room, first, last)


def _passage(
    instance: Instance, chain: Chain, s: int, backward: bool,
    groups: tuple[list[int], list[int]], known: dict[int, Ints],
) -> Passage:  # fmt: skip
    """What a section says of the groups of its link, and of those of its two stops."""
    section, alike = chain.sections[s], chain.uses[s][0][0].arc.section
    inner, stops = groups
    num_devices = instance.num_devices
    time = np.where(possible_devices(instance), instance.arrays.time_ns, NEVER)
    away = np.zeros((len(inner), num_devices, num_devices), np.int64)
    work = np.zeros((len(inner), num_devices), np.int64)
    rest = np.zeros(num_devices, np.int64)
    at = {g: place for place, g in enumerate(inner)}
    through = None
    if inner:
        if id(alike) not in known:
            known[id(alike)] = through_lengths(instance, alike)
        through = known[id(alike)]
    for place, i in enumerate(section.ops):
        g = int(instance.arrays.group[i])
        if g in at and through is not None:
            work[at[g]] = np.minimum(work[at[g]] + time[i], NEVER)
            away[at[g]] = np.maximum(away[at[g]], through[:, place])
        elif g in stops and place > 0:
            rest = np.minimum(rest + time[i], NEVER)
    return Passage(s, backward, away, work, rest)


def _modes(link: BetweenStops, tables: list[Ints], together: Ints, cost: Ints, held: Ints) -> None:
    """Fill in the least times between two stops on one device, (K, MODES), and the bytes held.

    Mode 0 has all groups there. In every other one some are elsewhere; those that may be are all
    whose least time elsewhere is no more than a threshold, and the first of them costs its time.
    """
    num_devices, num = len(together), len(link.size_bytes)
    away = np.zeros((num, num_devices, num_devices), np.int64)
    for passage in link.passages:
        stay = np.diag(tables[passage.section])
        way = np.maximum(passage.away_ns, stay[None, :, None])
        away = np.minimum(away + way, NEVER)
    diagonal = np.arange(num_devices)
    away[:, diagonal, diagonal] = NEVER  # elsewhere: not on the device of the run
    least = away.min(axis=2) if num else np.zeros((0, num_devices), np.int64)
    for a in range(num_devices):
        keys = np.unique(least[:, a])
        keys = keys[keys < NEVER]
        parts = np.array_split(keys, min(MODES - 1, len(keys))) if len(keys) else []
        for mode in range(len(parts) + 1):
            stays = np.ones(num, np.bool_) if mode == 0 else least[:, a] > parts[mode - 1][-1]
            serial = 0
            for passage in link.passages:
                work = int(passage.rest_ns[a]) + sum(passage.work_ns[stays, a].tolist())
                serial += max(work, int(tables[passage.section][a, a]))
            begin = int(together[a]) if mode == 0 else int(parts[mode - 1][0])
            cost[a, mode] = min(NEVER, max(begin, serial))
            held[a, mode] = link.size_bytes[stays].sum()


@njit(cache=True)
def _least_runs(
    unary: Ints, pair: Ints, cost: Ints, held: Ints, size: Ints, room: Ints, most: int
) -> tuple[int, Ints, Ints]:
    """Least cost of runs that fit, the device of each stop, and the mode after it, -1 for a cut.

    A label is the cost so far and the bytes of the current run; labels of a stop and device are
    sorted by cost, and of rising cost each has fewer bytes.
    """
    num, num_devices = unary.shape
    modes = cost.shape[2]
    count = np.zeros((num, num_devices), np.int64)
    spent = np.zeros((num, num_devices, most), np.int64)
    bytes_ = np.zeros((num, num_devices, most), np.int64)
    from_device = np.zeros((num, num_devices, most), np.int64)
    from_label = np.zeros((num, num_devices, most), np.int64)
    from_mode = np.full((num, num_devices, most), -1)
    for a in range(num_devices):
        if unary[0, a] < NEVER and size[0] <= room[a]:
            count[0, a], spent[0, a, 0], bytes_[0, a, 0] = 1, unary[0, a], size[0]
    wide = most * modes + 1
    c_spent, c_bytes = np.zeros(wide, np.int64), np.zeros(wide, np.int64)
    c_device, c_label = np.zeros(wide, np.int64), np.zeros(wide, np.int64)
    c_mode = np.zeros(wide, np.int64)
    for c in range(1, num):
        for b in range(num_devices):
            if unary[c, b] >= NEVER or size[c] > room[b]:
                continue
            n, best = 0, NEVER
            for a in range(num_devices):
                if a != b and count[c - 1, a] > 0:
                    total = spent[c - 1, a, 0] + pair[c - 1, a, b] + unary[c, b]
                    if total < best:
                        best, n = total, 1
                        c_spent[0], c_bytes[0], c_device[0], c_label[0] = total, size[c], a, 0
                        c_mode[0] = -1
            for at in range(count[c - 1, b]):
                for mode in range(modes):
                    total = spent[c - 1, b, at] + cost[c - 1, b, mode] + unary[c, b]
                    load = bytes_[c - 1, b, at] + held[c - 1, b, mode] + size[c]
                    if total < NEVER and load <= room[b]:
                        c_spent[n], c_bytes[n], c_device[n], c_label[n] = total, load, b, at
                        c_mode[n] = mode
                        n += 1
            order = np.argsort(c_spent[:n], kind="mergesort")
            kept = 0
            for q in order:
                if kept == 0 or c_bytes[q] < c_bytes[order[kept - 1]]:
                    order[kept] = q
                    kept += 1
            step = 1
            while (kept + step - 1) // step > most:
                step *= 2
            m = 0
            for q in range(0, kept, step):  # of neighbours the least cost and the fewest bytes
                last = order[min(q + step, kept) - 1]
                spent[c, b, m], bytes_[c, b, m] = c_spent[order[q]], c_bytes[last]
                from_device[c, b, m], from_label[c, b, m] = c_device[order[q]], c_label[order[q]]
                from_mode[c, b, m] = c_mode[order[q]]
                m += 1
            count[c, b] = m
    at_device, least = -1, NEVER
    for a in range(num_devices):
        if count[num - 1, a] > 0 and spent[num - 1, a, 0] < least:
            at_device, least = a, spent[num - 1, a, 0]
    device, passed, label = np.zeros(num, np.int64), np.full(num, -1), 0
    if at_device >= 0:
        for c in range(num - 1, -1, -1):
            device[c] = at_device
            if c > 0:
                passed[c - 1] = from_mode[c, at_device, label]
            at_device, label = from_device[c, at_device, label], from_label[c, at_device, label]
    return least, device, passed
