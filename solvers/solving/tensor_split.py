"""The best plan whose stages are single devices, or groups of cards that share every layer.

Every way to group the cards of a server, up to symmetry, with every composition of shares, is an
ordinary instance on virtual devices (`tensor_groups`), which `auto` places. Compositions that are
worse than another in bandwidth, arithmetic and memory are left out. Where layers run in a row, the
sum of each one's least time bounds an instance before it is solved: they are tried in that order,
and the first one whose bound is no better than the best plan ends the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise, product
from math import comb

import numpy as np

from placegap.instances.costing.catalogue import is_cpu, specs_of
from placegap.instances.exporters.lines import alike_devices
from placegap.instances.problem import Instance, Semantics
from placegap.instances.problem.modules import Granularity, with_granularity
from placegap.instances.reading.errors import InputError
from placegap.instances.transforms.tensor_groups import (
    CardGroup,
    SplitParts,
    all_reduce_ns,
    group_bytes,
    on_groups,
    share_units,
)
from placegap.solvers.bounds.labels.layer_chain import NEVER, stops_of
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.result import PROOF, Result
from placegap.solvers.solving.run_method import run_method

# More cards are refused; where a group has more compositions of shares, units are halved.
MOST_CARDS, MOST_COMPOSITIONS = 8, 50_000
LEAST_S = 2.0  # for each instance that is tried; after the limit only until there is a plan


@dataclass(frozen=True)
class TensorPlan:
    """The best plan with groups of cards, on the instance whose devices they are."""

    instance: Instance
    result: Result
    groups: tuple[CardGroup, ...]
    cards: list[int]  # the cards of the cluster, by number
    bound_ns: int  # no plan with groups is below
    num_reduced: int  # of the plan: how many all-reduces there are, and what all of them take
    reduced_ns: int
    basis: str = PROOF  # what the bound rests on

    @property
    def value_ns(self) -> int:
        assert self.result.value is not None
        return self.result.value


def best_tensor_plan(
    instance: Instance, semantics: Semantics, granularity: Granularity, limit_s: float
) -> TensorPlan | None:
    """The best plan of an instance of single ops with at least one group; None if there is none."""
    # Bounds are those of makespans.
    parts, clock = SplitParts(instance), Clock(limit_s)
    cards = _cards(instance)
    ways = list(_ways(instance, parts, cards))
    graph = parts.with_times(list(dict.fromkeys(group for way in ways for group in way)))
    coarse = with_granularity(instance.with_graph(graph), granularity)
    least = _least_sums(coarse, ways)
    best: TensorPlan | None = None
    value_ns, bound_ns, basis = NEVER, NEVER, PROOF
    for lower_ns, groups in sorted(zip(least, ways, strict=True), key=lambda pair: pair[0]):
        if lower_ns >= value_ns or (best is not None and clock.left_s == 0.0):
            bound_ns = min(bound_ns, lower_ns)
            break
        for holder in (None, *groups) if parts.embeddings else (None,):
            placed = on_groups(coarse, parts, groups, holder)
            if placed is None:
                continue
            left_s = max(LEAST_S, clock.left_s or 0.0)
            found = run_method(placed, semantics, "auto", {"workers": 1}, time_limit_s=left_s)
            basis = basis if found.rests_on in ("", PROOF) else found.rests_on
            if found.status == "infeasible":
                continue
            bound_ns = min(bound_ns, max(lower_ns, found.bound_value or 0))
            if found.value is not None and found.value < value_ns:
                value_ns = found.value
                reduced = _reduced(placed, found, parts, groups)
                best = TensorPlan(placed, found, groups, cards, 0, *reduced)
    return None if best is None else replace(best, bound_ns=min(bound_ns, value_ns), basis=basis)


def _least_sums(coarse: Instance, ways: Sequence[tuple[CardGroup, ...]]) -> list[int]:
    """For each way to group cards: no plan is below; 0 where layers run beside each other."""
    if stops_of(coarse) is None:
        return [0] * len(ways)
    ops, cluster, group = coarse.graph.ops, coarse.cluster, coarse.arrays.group
    names = list(dict.fromkeys(kind for op in ops for kind in op.time_ns))
    each = np.array([[op.time_ns.get(name, NEVER) for name in names] for op in ops], np.float64)
    whole = np.zeros((coarse.arrays.num_groups, len(names)))
    np.add.at(whole, group, each)
    found = []
    for groups in ways:
        taken = {k for one in groups for k in one.cards}
        kinds = {d.kind for k, d in enumerate(cluster.devices) if k not in taken}
        kinds |= {one.name(cluster) for one in groups}
        columns = [at for at, name in enumerate(names) if name in kinds]
        found.append(int(whole[:, columns].min(axis=1).sum()))
    return found


def _cards(instance: Instance) -> list[int]:
    """The devices that may be in groups."""
    cluster, specs = instance.cluster, specs_of(instance.cluster)
    cards = [k for k, one in enumerate(cluster.devices) if not is_cpu(one, cluster)]
    unknown = [cluster.devices[k].name for k in cards if cluster.devices[k].kind not in specs]
    if unknown:
        raise InputError(f"--tensor-split needs the rates of {unknown[0]!r} (--devices FILE)")
    if not 1 < len(cards) <= MOST_CARDS:
        raise InputError(
            f"--tensor-split groups 2 to {MOST_CARDS} cards (here {len(cards)}); leave it out",
            cluster.source,
        )
    return cards


def _ways(
    instance: Instance, parts: SplitParts, cards: Sequence[int]
) -> Iterator[tuple[CardGroup, ...]]:
    """Every way to group cards, with every composition of shares that may be best."""
    devices = instance.cluster.devices
    class_of = {k: n for n, own in enumerate(alike_devices(instance)) for k in own}
    units = share_units(instance.graph)
    known = set[tuple[tuple[int, ...], ...]]()
    shared = cache(lambda own: _compositions(instance, parts, own, units))
    for groups in _groupings(cards, [device.server for device in devices]):
        key = tuple(sorted(tuple(sorted(class_of[k] for k in own)) for own in groups))
        if groups and key not in known:
            known.add(key)
            yield from product(*map(shared, groups))


def _groupings(
    cards: Sequence[int], server: Sequence[str | None]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Disjoint groups of two cards or more of one server; other cards stay alone."""
    if not cards:
        yield ()
        return
    first, *others = cards
    near = [k for k in others if server[k] == server[first]]
    for size in range(len(near) + 1):
        for members in combinations(near, size):
            rest = [k for k in others if k not in members]
            for groups in _groupings(rest, server):
                yield ((first, *members), *groups) if members else groups


def _compositions(
    instance: Instance, parts: SplitParts, cards: tuple[int, ...], units: int
) -> list[CardGroup]:
    """The shares of a group that none is as good as in rates and memory."""
    while comb(units - 1, len(cards) - 1) > MOST_COMPOSITIONS:
        units //= 2
    cuts = combinations(range(1, units), len(cards) - 1)
    shares = np.array([[b - a for a, b in pairwise((0, *cut, units))] for cut in cuts], np.int64)
    if not len(shares):
        return []
    specs = [specs_of(instance.cluster)[instance.cluster.devices[k].kind] for k in cards]
    memory = [instance.cluster.devices[k].memory_bytes for k in cards]
    types = sorted({name for spec in specs for name in spec.peak_flops_per_s})
    rates = [[spec.bandwidth_bytes_per_s for spec in specs]]
    rates += [[spec.peak(name) for spec in specs] for name in types]
    columns = [(np.array(rate) * units // shares).min(axis=1) for rate in rates]
    for embedding in {0, parts.embedding_bytes}:
        sizes = (group_bytes(memory, own, parts.whole_bytes, embedding) for own in shares.tolist())
        columns.append(np.array([NEVER if size is None else size for size in sizes]))
    table, kept = np.stack(columns, axis=1), list[int]()
    for at in np.lexsort(-table.T[::-1]).tolist():
        if not (table[kept] >= table[at]).all(axis=1).any():
            kept.append(at)
    return [CardGroup(cards, tuple(shares[at].tolist())) for at in kept]


def _reduced(
    placed: Instance, found: Result, parts: SplitParts, groups: Sequence[CardGroup]
) -> tuple[int, int]:
    """How many all-reduces a plan has, and what they take."""
    cluster, number, total_ns = parts.instance.cluster, 0, 0
    by_name = {group.name(cluster): group for group in groups}
    assert found.plan is not None  # it has a value
    for op, k in zip(placed.graph.ops, found.plan.devices.tolist(), strict=True):
        group = by_name.get(placed.cluster.devices[k].name)
        if group is not None and op.name in parts.reduced:
            count, size = parts.reduced[op.name]
            number += count
            total_ns += count * all_reduce_ns(cluster, group.cards, size)
    return number, total_ns
