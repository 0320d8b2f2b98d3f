"""Check a bound on serving_flow: prices of machines, by which all layers cost more than these pay.

``python certificate_flow.py INSTANCE CERTIFICATE`` beside `certificate_checker.py`; nothing but the
standard library. Suppose that a plan passes more than B tokens per second. Then some flow passes
F = B + 1 (in millionths) through every layer. A machine with a price p that holds h layers charges
p / h to each of them, rounded down, so all layers together charge at most the sum of the prices.

The machines of a layer pass F together, each at most its throughput. So a layer charges at least
the cheapest cover of F, a knapsack in B / grid, with throughputs rounded up: more than `grid` units
cover F. Links of F or more join machines to *groups*. A layer is *single* if one machine passes
all of it. A group has at most as many single layers as its machines can pass F through. Of two
single layers in a row, both are of one group. So if single layers are of g groups, there are g - 1
or more *seams*: layers between them that several machines pass. If a seam is one layer, each of its
machines has all of its flow from the one machine before, or sends all to the one behind, over a
link between groups; it passes no more than the largest of these. Other layers are covered by two
machines or more.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING or __package__:
    from placegap.instances.certificates.certificate_checker import (
        MALFORMED,
        Rejected,
        digest,
        main,
        need,
        vector,
        whole,
    )
else:  # both files alone, beside each other
    from certificate_checker import MALFORMED, Rejected, digest, main, need, vector, whole

Table = Sequence[int]  # the cheapest cover of 0, 1, .. units
SOURCE, SINK = -2, -1
MOST_RATE = 10**15  # of links that a cluster does not limit


class PricedItem(NamedTuple):
    """A machine with a number of layers: what it charges to each, and the units that it passes."""

    charge: int
    units: int
    machine: int
    layers: int


class CheapestLayers(NamedTuple):
    """The layers that charge least: all together, and how many are covered by what."""

    charge: int
    #: Single layers, each with the machine that passes it; layers in seams, and all others.
    singles: list[tuple[PricedItem, int]]
    seams: int
    others: int


Cover = Callable[[Sequence[PricedItem], int], Table]


def cover_table(items: Sequence[PricedItem], most: int) -> Table:
    """The cheapest cover of each number of units up to `most` by items, each any times."""
    table, sizes = [0], [(item.charge, item.units) for item in items]
    for need in range(1, most + 1):
        table.append(min(charge + table[max(0, need - size)] for charge, size in sizes))
    return table


def useful(items: list[PricedItem]) -> list[PricedItem]:
    """Those items that no other one replaces, the largest first."""
    kept = list[PricedItem]()
    for item in sorted(items, key=lambda item: (-item.units, item.charge)):
        if item.units and (not kept or item.charge < kept[-1].charge):
            kept.append(item)
    return kept


class FlowTerms:
    """Layers, throughputs of machines by number of layers, and rates of links, all integers."""

    def __init__(
        self, layers: int, tables: Sequence[Sequence[int]], links: Mapping[tuple[int, int], int]
    ) -> None:
        self.layers, self.tables, self.links = layers, tables, links
        #: What a machine's links bring, and take away; and what a rate asks again and again.
        self.into, self.out = [0] * len(tables), [0] * len(tables)
        for (a, b), rate in links.items():
            if a >= 0:
                self.out[a] += rate
            if b >= 0:
                self.into[b] += rate

    def passes(self, machine: int, rate: int) -> list[int]:
        """What a machine passes with 1, 2, .. layers, of at most a rate."""
        most = min(rate, self.into[machine], self.out[machine])
        return [min(most, cap) for cap in self.tables[machine][: self.layers]]

    def groups(self, rate: int) -> tuple[list[int], int]:
        """The group of each machine by links of a rate or more; the largest link between groups."""
        group, border = [*range(len(self.tables))], 0
        inner = [(ends, size) for ends, size in self.links.items() if min(ends) >= 0]
        for (a, b), size in inner:
            if size >= rate and group[a] != group[b]:
                old, new = group[a], group[b]
                group = [new if one == old else one for one in group]
        for (a, b), size in inner:
            if group[a] != group[b]:
                border = max(border, size)
        return group, border

    def cheapest(
        self, bound: int, prices: Sequence[int], grid: int, cover: Cover = cover_table
    ) -> CheapestLayers | None:
        """The layers that charge least where more than `bound` passes; None if none can."""
        rate = bound + 1
        group, border = self.groups(rate)
        for end in (SOURCE, SINK):
            if sum(min(size, rate) for ends, size in self.links.items() if end in ends) < rate:
                return None
        items, narrow, single, most = (
            list[PricedItem](),
            list[PricedItem](),
            dict[int, PricedItem](),
            dict[int, int](),
        )
        for i, price in enumerate(prices):
            deepest = 0
            for h, passed in enumerate(self.passes(i, rate), start=1):
                item = PricedItem(price // h, -(-passed * grid // bound), i, h)
                items.append(item)
                narrow.append(item._replace(units=-(-min(passed, border) * grid // bound)))
                if passed == rate:
                    single[group[i]] = min(item, single.get(group[i], item))
                    deepest = h
            if deepest:
                most[group[i]] = most.get(group[i], 0) + deepest
        several, seam = (_several(useful(each), grid + 1, cover) for each in (items, narrow))
        least: CheapestLayers | None = None
        for singles in range(min(self.layers, sum(most.values())) + 1):
            used, left = list[tuple[PricedItem, int]](), singles
            for group_of, item in sorted(single.items(), key=lambda pair: pair[1].charge):
                number = min(left, most[group_of])
                used, left = [*used, (item, number)], left - number
            seams, others = _seams(singles, most), self.layers - singles
            # a seam of two layers or more needs no more than others do
            short = max(0, 2 * seams - others)
            if seams > others:
                continue
            parts = [(item.charge, number) for item, number in used]
            parts += [(seam, short), (several, others - short)]
            charge = sum(each * number for each, number in parts if number)
            if charge < inf and (least is None or charge < least.charge):
                least = CheapestLayers(int(charge), used, short, others - short)
        return least


def _seams(singles: int, most: Mapping[int, int]) -> int:
    """How many seams there are at least between a number of single layers."""
    groups = 0
    for number in sorted(most.values(), reverse=True):
        if singles > 0:
            groups, singles = groups + 1, singles - number
    return max(0, groups - 1)


def _several(items: list[PricedItem], need: int, cover: Cover) -> Any:
    """The cheapest cover by two items or more."""
    if not items:
        return inf
    table = cover(items, need)
    alone = min(item.charge for item in items)
    rest = [(item.charge, max(0, need - item.units)) for item in items]
    return min(charge + (table[left] if left else alone) for charge, left in rest)


def terms_of(document: Any) -> FlowTerms:
    """What the file of an instance says of layers, machines and links."""
    graph, cluster = document["graph"], document["cluster"]
    ops, edges, stated = graph["ops"], graph.get("edges", []), graph.get("throughputs")
    layer = {op["name"]: op.get("colocation") or i for i, op in enumerate(ops)}
    need(len(layer) == len(ops), "two ops have one name")
    behind = {(layer[e["producer"]], layer[e["consumer"]]) for e in edges}
    order = TopologicalSorter[Any](dict.fromkeys(layer.values(), ()))
    for a, b in behind:
        if a != b:
            order.add(b, a)
    row = [*order.static_order()]
    need(behind.issuperset(pairwise(row)), "its layers are not in a row")
    at = {own: number for number, own in enumerate(row)}
    tensors = dict[Any, tuple[int, int, int]]()  # the layers that each joins, and its bytes
    for number, e in enumerate(edges):
        a, b = at[layer[e["producer"]]], at[layer[e["consumer"]]]
        key = e["producer"], e.get("tensor") or number
        tensors[key] = a, max(b, tensors.get(key, (a, b, 0))[1]), whole(e.get("bytes", 0))
    crossing = [sum(n for a, b, n in tensors.values() if a <= cut < b) for cut in range(len(row))]
    batch = graph.get("provenance", {}).get("parameters", {}).get("batch")
    tokens = batch if isinstance(batch, int) and not stated else 1

    def table(device: Any) -> list[int]:
        """What a device passes with 1, 2, .. layers, as far as it holds them."""
        if stated:
            return [*map(whole, stated.get(device["kind"], []))]
        times, sizes, room = [0] * len(row), [0] * len(row), device.get("memory_bytes")
        for op in ops:
            if device["kind"] not in op.get("time_ns", {}):
                return []
            times[at[layer[op["name"]]]] += whole(op["time_ns"][device["kind"]])
            sizes[at[layer[op["name"]]]] += whole(op.get("resident_bytes", 0))
        found = list[int]()
        for h in range(1, len(row) + 1):
            time, size = (
                max(sum(each[s : s + h]) for s in range(len(row) - h + 1))
                for each in (times, sizes)
            )
            if room is not None and size > room:
                break
            found.append(tokens * 10**15 // max(1, time))
        return found

    tables = {device["name"]: table(device) for device in cluster["devices"]}
    machines = {name: i for i, name in enumerate(name for name, own in tables.items() if own)}
    links: dict[tuple[int, int], int] = defaultdict(int)
    for link in cluster.get("links", []):
        ends = machines.get(link["source"], SOURCE), machines.get(link["target"], SINK)
        width, size = whole(link["bandwidth_bytes_per_s"]), max(crossing)
        if ends != (SOURCE, SINK):
            links[ends] += width * tokens * 10**6 // size if size else MOST_RATE
    if len(machines) == len(tables):  # all are at both ends
        for i in machines.values():
            links[SOURCE, i] = links[i, SINK] = MOST_RATE
    held = [own for own in tables.values() if own]
    return FlowTerms(len(row), held, {ends: min(r, MOST_RATE) for ends, r in links.items()})


def check(document: Any, certificate: Any, tick: Callable[[], None] = lambda: None) -> None:
    """Reject what does not prove its bound."""
    try:
        graph, cluster, proof = document["graph"], document["cluster"], certificate["proof"]
        parts = {"devices": cluster["devices"], "ops": graph["ops"]}
        parts |= {"edges": graph.get("edges", []), "links": cluster.get("links", [])}
        head = certificate["format"], certificate["version"], proof["kind"]
        need(head == ("placegap-certificate", 1, "prices"), "it is not a certificate by prices")
        own = digest(parts, graph.get("throughputs"))
        need(certificate["instance_hash"] == own, "it is for another instance")
        rules, bound = certificate["semantics"], whole(certificate["bound_ns"], least=1)
        need(rules["objective"] == "serving_flow", "prices prove nothing about this objective")
        terms = terms_of(document)
        prices, grid = vector(proof["prices"], len(terms.tables)), whole(proof["grid"], 10**6, 1)
        tick()
        least = terms.cheapest(bound, prices, grid)
        why = f"layers charge {least and least.charge}, and machines pay {sum(prices)}"
        need(least is None or least.charge > sum(prices), why)
    except Rejected:
        raise
    except MALFORMED as e:
        raise Rejected(f"it is malformed: {type(e).__name__} {str(e)[:60]!r}") from None


if __name__ == "__main__":
    unit = "millionths of a token per second"
    sys.exit(main(sys.argv[1:], check, "plan passes more than", unit))
