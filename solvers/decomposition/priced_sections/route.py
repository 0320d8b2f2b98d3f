"""The shortest path of a chain where each byte on a device has a price.

Sections take at least what their arcs prove, and pay for the bytes of their ops. For any prices the
least of time and price along the chain, less the price of all room, is a bound: what sections
cannot have for nothing, such as many ops elsewhere at once, is weighed in each of them as a whole
(`placements`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from placegap.formulations.shared.families import possible_devices
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_LIMIT, NO_WAY
from placegap.instances.problem.semantics import Makespan
from placegap.instances.structure.sections import Section
from placegap.solvers.bounds.placed_sections import channel_table
from placegap.solvers.bounds.prices.cuts import cut_prices
from placegap.solvers.bounds.room_prices import FREE, RoomPrices
from placegap.solvers.core.interrupts import never
from placegap.solvers.decomposition.arcs import Chain, Lengths, Use
from placegap.solvers.decomposition.priced_sections.placements import cheapest_placement
from placegap.solvers.decomposition.priced_sections.section_ops import SectionOps, section_ops

MOST_INNER, MOST_NODES = 100, 2_000_000
"""Ops between the ends of a section that is searched, and nodes of its search."""

MOST_PLACED, MORE_PLACED = 16, 24
"""Of these, with the exit, so many are placed, and then more: that takes ten times as long."""


class Part(NamedTuple):
    """What a search places of a section, and which of the ops behind its entry these are."""

    ops: SectionOps
    placed: Ints


class PricedPath(NamedTuple):
    """The least cost less the worth of all room, `NO_WAY` if there is no path.

    `ends` has the devices of each section's entry and exit (rows and columns of its table), and
    `used_bytes` what the placements behind them hold on each device.
    """

    ns: int
    ends: list[tuple[int, int]]
    used_bytes: Ints


@dataclass(eq=False)
class KnownPlacements:
    """What is known of one section with its ends on two devices.

    Attributes
    ----------
    place : (m,) int64
        The best placement found last, at whatever prices; -1: none.
    prices : RoomPrices
    costs_ns : mapping floor -> cost
        At these prices.
    is_hard : bool
        Whether nodes did not suffice once.
    """

    place: Ints
    prices: RoomPrices
    costs_ns: dict[int, int] = field(default_factory=dict)
    is_hard: bool = False


@dataclass(frozen=True, eq=False)
class PricedSections:
    """A chain, the ops of its sections, and prices.

    Attributes
    ----------
    instance : Instance
    chain : Chain
    parts : tuple of Part or None
        None: a section without inner ops, with too many, or without an end.
    channel, num_channels
        As in `nested_layers.ports`.
    stop : callable
        Whether time is over: sections that were not searched by then take what their arcs prove.
    prices : RoomPrices
    known : mapping (part, entry, leave) -> KnownPlacements
        Sections that are alike share theirs.
    """

    instance: Instance
    chain: Chain
    parts: tuple[Part | None, ...]
    channel: Ints
    num_channels: int
    stop: Callable[[], bool] = never
    prices: RoomPrices = FREE
    known: dict[tuple[int, int, int], KnownPlacements] = field(default_factory=dict)

    def shortest(self, lengths: Lengths) -> tuple[int, list[Use]]:
        """The least cost of a path, less the worth of all room, and its arcs."""
        found = self._search([lengths(uses) for uses in self.chain.uses])
        return found.ns, [
            uses[a][b] for uses, (a, b) in zip(self.chain.uses, found.ends, strict=False)
        ]

    def priced(
        self, lengths: Lengths, value_ns: int, stop: Callable[[], bool] = never
    ) -> PricedSections:
        """The same chain with the prices that prove most, of those that are tried from its own on.

        See `cut_prices`; `stop` ends that. Planes need no value to aim at, as `Runs.priced` does.
        """
        tables = [lengths(uses) for uses in self.chain.uses]

        def trial(prices: RoomPrices) -> tuple[int, Ints]:
            found = replace(self, prices=prices, stop=stop)._search(tables)
            return found.ns, found.used_bytes

        total = int(self.instance.arrays.resident_bytes.sum())
        best = cut_prices(trial, _rooms(self.instance), total, stop, self.prices)
        return replace(self, prices=best) if best.each else self

    def _search(self, tables: Sequence[Ints]) -> PricedPath:
        """Sections are searched where they are on a shortest path, until that path's all are."""
        costs = [self._at_least(s, table) for s, table in enumerate(tables)]
        searched: set[tuple[int, int, int]] = set()
        while True:
            total, ends = _shortest(costs, self._before(), self.chain.after_ns)
            path = [(s, a, b) for s, (a, b) in enumerate(ends) if self.parts[s] is not None]
            todo = [arc for arc in path if arc not in searched]
            if total >= NO_WAY or not todo or self.stop():
                break
            for s, a, b in todo:
                if self.stop():
                    break
                searched.add((s, a, b))
                costs[s][a, b] = max(int(costs[s][a, b]), self._cost(s, a, b, int(tables[s][a, b])))
        if total >= NO_WAY:
            return PricedPath(NO_WAY, [], np.zeros(self.instance.num_devices, np.int64))
        worth = self.prices.worth_ns(_rooms(self.instance)) if self.prices.each else 0
        return PricedPath(max(0, min(NO_WAY, total - worth)), ends, self._used(ends))

    def _charge(self, ops: Sequence[int]) -> Ints:
        """What ops pay on each device, rounded down, (m, K); `NO_WAY` where one cannot be."""
        price = np.array(self.prices.each or [0] * self.instance.num_devices, np.int64)
        charge = (self.instance.arrays.resident_bytes[ops][:, None] * price) >> self.prices.shift
        return np.where(possible_devices(self.instance)[ops], charge, NO_WAY)

    def _before(self) -> Ints:
        """What leads to the first section, with the price of its entry."""
        entry, before = self.chain.sections[0].entry, self.chain.before_ns
        return before if entry is None else _capped(before + self._charge([entry])[0])

    def _at_least(self, s: int, table: Ints) -> Ints:
        """The arcs of a section with each inner op where its bytes cost least."""
        section = self.chain.sections[s]
        charge = self._charge(_behind_entry(section))
        if section.exit is None:
            return _capped(table + _sum(charge.min(axis=1)))
        return _capped(table + _sum(charge[:-1].min(axis=1)) + charge[-1][None, :])

    def _known(self, s: int, a: int, b: int) -> KnownPlacements:
        part = self.parts[s]
        assert part is not None
        none = np.full(len(part.placed), -1)
        known = self.known.setdefault((id(part), a, b), KnownPlacements(none, self.prices))
        if known.prices != self.prices:
            known.prices, known.costs_ns = self.prices, {}
        return known

    def _cost(self, s: int, a: int, b: int, floor_ns: int) -> int:
        """The least cost of a section that takes no less than a floor; 0 if it is not known."""
        part, known = self.parts[s], self._known(s, a, b)
        assert part is not None
        if floor_ns >= NO_WAY or known.is_hard:
            return 0
        if floor_ns not in known.costs_ns:
            charge = self._charge(_behind_entry(self.chain.sections[s]))
            placed, others = charge[part.placed], np.delete(charge, part.placed, axis=0)
            beside = _sum(others.min(axis=1))

            def search(most: int) -> int:
                return cheapest_placement(
                    part.ops,
                    self.channel,
                    self.num_channels,
                    placed,
                    a,
                    b,
                    floor_ns,
                    most,
                    MOST_NODES,
                    known.place,
                )

            cost, least = search(NO_WAY), 0
            if cost < 0:  # perhaps half of what is open can be proven
                least = floor_ns + _sum(placed.min(axis=1))
                cost = search(least + max(0, -cost - 1 - least) // 2)
                known.is_hard = cost < 0
            known.costs_ns[floor_ns] = min(NO_WAY, max(least, cost) + beside)
        return known.costs_ns[floor_ns]

    def _used(self, ends: Sequence[tuple[int, int]]) -> Ints:
        """Bytes on each device: those of placements, else where they cost least."""
        size_bytes = self.instance.arrays.resident_bytes
        used = np.zeros(self.instance.num_devices, np.int64)
        first = self.chain.sections[0].entry
        if first is not None:
            used[ends[0][0]] += size_bytes[first]
        for s, (a, b) in enumerate(ends):
            section, part = self.chain.sections[s], self.parts[s]
            ops = _behind_entry(section)
            device = self._charge(ops).argmin(axis=1)
            if section.exit is not None:
                device[-1] = b
            if part is not None and (place := self._known(s, a, b).place)[0] >= 0:
                device[part.placed] = place
            np.add.at(used, device, size_bytes[ops])
        return used


def priced_sections(
    instance: Instance, semantics: Makespan, chain: Chain, stop: Callable[[], bool] = never
) -> PricedSections | None:
    """A chain whose sections are searched; None if there is none to search."""
    parts = _parts(instance, semantics, chain, MOST_PLACED)
    if not any(parts):
        return None
    channel, num_channels, _ = channel_table(semantics, instance.num_devices)
    return PricedSections(instance, chain, parts, channel, num_channels, stop)


def with_more_placed(priced: PricedSections, semantics: Makespan) -> PricedSections | None:
    """The same prices with more ops of large sections placed; None if no section is large."""
    parts = _parts(priced.instance, semantics, priced.chain, MORE_PLACED)
    sizes = [[len(part.placed) for part in each if part] for each in (priced.parts, parts)]
    return replace(priced, parts=parts, known={}) if sizes[0] != sizes[1] else None


def _parts(
    instance: Instance, semantics: Makespan, chain: Chain, most: int
) -> tuple[Part | None, ...]:
    made: dict[int, Part] = {}
    parts: list[Part | None] = []
    for section, uses in zip(chain.sections, chain.uses, strict=True):
        part = None
        if None not in (section.entry, section.exit) and 0 < section.num_inner <= MOST_INNER:
            alike = uses[0][0].arc.section  # equal sections share it
            if id(alike) not in made:
                made[id(alike)] = Part(*section_ops(instance, alike, semantics, most))
            part = made[id(alike)]
        parts.append(part)
    return tuple(parts)


def _behind_entry(section: Section) -> list[int]:
    return list(section.ops[section.entry is not None :])


def _rooms(instance: Instance) -> Ints:
    room = instance.arrays.memory_bytes
    return np.where(room == NO_LIMIT, np.iinfo(np.int64).max, room)


def _capped(costs: Ints) -> Ints:
    least: Ints = np.minimum(costs, NO_WAY)
    return least


def _sum(costs: Ints) -> int:
    return int(min(NO_WAY, sum(costs.tolist())))


def _shortest(
    costs: Sequence[Ints], before: Ints, after: Ints
) -> tuple[int, list[tuple[int, int]]]:
    """The least cost of a path through tables, and its rows and columns."""
    ahead, came = before, list[Ints]()
    for table in costs:
        ways = ahead[:, None] + table
        came.append(ways.argmin(axis=0))
        ahead = _capped(ways.min(axis=0))
    ends = ahead + after
    b, path = int(ends.argmin()), list[tuple[int, int]]()
    for rows in reversed(came):
        a = int(rows[b])
        path.append((a, b))
        b = a
    return int(ends.min()), path[::-1]
