"""Sections at prices of bytes: the search over placements, and bounds that are never above."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from draws.bottlenecks import bottleneck_instance
from draws.training_steps import mirrored_instance, tight_instance
from references.brute_force import MAKESPAN_SEMANTICS, oracle

from placegap.formulations.shared.families import possible_devices
from placegap.formulations.shared.time_scale import serial_horizon_ns
from placegap.instances import Instance, Makespan
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.example import tight_example
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.referee.channels import channels_of
from placegap.instances.structure.bottlenecks import cuts
from placegap.instances.structure.intervals import choose_chain, intervals
from placegap.instances.structure.sections import Section, SectionMaker, sections_between
from placegap.solvers import solve
from placegap.solvers.bounds.placed_sections import channel_table
from placegap.solvers.brute_force import method as brute_force
from placegap.solvers.core.method import Params, Task
from placegap.solvers.decomposition.arcs import ArcTable, Chain, interval_chain, lower_table, tiling
from placegap.solvers.decomposition.priced_sections import route
from placegap.solvers.decomposition.priced_sections.placements import cheapest_placement
from placegap.solvers.decomposition.priced_sections.route import (
    priced_sections,
    with_more_placed,
)
from placegap.solvers.decomposition.priced_sections.section_ops import SectionOps, section_ops


def chains_of(instance: Instance, semantics: Makespan, limit_ns: int) -> list[Chain]:
    table = ArcTable(instance, semantics)
    found = [tiling(table, sections_between(instance, cuts(instance)))]
    if chosen := choose_chain(instance, intervals(instance)):
        found.append(interval_chain(table, chosen, limit_ns))
    return found


def in_real_units(instance: Instance) -> Instance:
    """The same in gigabytes and milliseconds: prices of bytes are rounded down to nanoseconds."""
    graph, cluster = instance.graph, instance.cluster
    ops = tuple(
        op.model_copy(
            update={
                "time_ns": {kind: time * 10**6 for kind, time in op.time_ns.items()},
                "resident_bytes": op.resident_bytes * 10**9,
            }
        )
        for op in graph.ops
    )
    edges = tuple(edge.model_copy(update={"bytes": edge.bytes * 10**6}) for edge in graph.edges)
    devices = tuple(
        device.model_copy(update={"memory_bytes": device.memory_bytes * 10**9})
        if device.memory_bytes is not None
        else device
        for device in cluster.devices
    )
    links = tuple(
        link.model_copy(update={"latency_ns": link.latency_ns * 10**6}) for link in cluster.links
    )
    return instance.model_copy(
        update={
            "graph": graph.model_copy(update={"ops": ops, "edges": edges}),
            "cluster": cluster.model_copy(update={"devices": devices, "links": links}),
        }
    )


def takes_at_least(
    instance: Instance, semantics: Makespan, section: Section, device: dict[int, int]
) -> int:
    """From the end of a section's entry on: the longest path, and for each machine the items that
    begin, and leave behind, at least so much.
    """
    arrays, index, num_devices = instance.arrays, instance.arrays.index, instance.num_devices
    edges = sorted(section.edges, key=lambda e: section.ops.index(int(index.consumer[e])))
    ready, after, items = dict.fromkeys(section.ops, 0), dict.fromkeys(section.ops, 0), []

    def time(i: int) -> int:
        return 0 if i == section.entry else int(arrays.time_ns[i, device[i]])

    def move(e: int) -> int:
        link = arrays.link_class[device[int(index.producer[e])], device[int(index.consumer[e])]]
        return int(arrays.transfer_ns[index.tensor[e], link])

    for e in edges:
        u, v = int(index.producer[e]), int(index.consumer[e])
        ready[v] = max(ready[v], ready[u] + time(u) + move(e))
    for e in reversed(edges):
        u, v = int(index.producer[e]), int(index.consumer[e])
        after[u] = max(after[u], move(e) + time(v) + after[v])
    for i in section.ops[1:]:
        items.append((ready[i], time(i), after[i], {("device", device[i])}))
    sent = set[tuple[int, int]]()
    for e in edges:
        u, v = int(index.producer[e]), int(index.consumer[e])
        a, b = device[u], device[v]
        tensor = (int(index.tensor[e]) if semantics.transfers == "per_tensor" else -e - 1, b)
        if a == b or tensor in sent:
            continue
        sent.add(tensor)
        held = {c for c in channels_of(semantics.channels, num_devices, a, b) if c >= 0}
        items.append((ready[u] + time(u), move(e), time(v) + after[v], held))
    least = max(begin + takes + rest for begin, takes, rest, _ in items)
    for machine in set().union(*(held for *_, held in items)):
        mine = [item for item in items if machine in item[3]]
        for (r, *_), (_, _, q, _) in itertools.product(mine, mine):
            chosen = [takes for begin, takes, rest, _ in mine if begin >= r and rest >= q]
            if sum(chosen):
                least = max(least, r + sum(chosen) + q)
    return least


def compare_placements(seed: int, seen: Counter[str]) -> None:
    """The search beside all placements of the sections of a small instance, at random prices."""
    rng = np.random.default_rng(seed)
    instance = bottleneck_instance(seed)
    semantics = MAKESPAN_SEMANTICS[seed % len(MAKESPAN_SEMANTICS)]
    possible, group = possible_devices(instance), instance.arrays.group
    for section in sections_between(instance, cuts(instance)):
        if section.entry is None or section.exit is None or not section.num_inner:
            continue
        part, _ = section_ops(instance, section, semantics, 16)
        charge = rng.integers(0, 12, (len(part.tied), instance.num_devices))
        floor_ns = int(rng.integers(0, 20))
        costs: dict[tuple[int, int], list[int]] = {}
        for devices in itertools.product(range(instance.num_devices), repeat=len(section.ops)):
            device = dict(zip(section.ops, devices, strict=True))
            together = {(int(group[i]), k) for i, k in device.items()}
            if len(together) > len({g for g, _ in together}):
                continue
            if all(possible[i, k] for i, k in device.items()):
                time = max(floor_ns, takes_at_least(instance, semantics, section, device))
                paid = sum(int(charge[x, k]) for x, k in enumerate(devices[1:]))
                costs.setdefault((devices[0], devices[-1]), []).append(time + paid)
        for a, b in itertools.product(range(instance.num_devices), repeat=2):
            best = min(costs.get((a, b), [NO_WAY]))
            if not possible[section.entry, a]:
                continue
            found = _search(instance, semantics, part, charge, (a, b, floor_ns))
            assert found == best, (seed, section, a, b)
            seen["searched"] += best < NO_WAY


def _search(
    instance: Instance,
    semantics: Makespan,
    part: SectionOps,
    charge: Ints,
    limits: tuple[int, int, int],
) -> int:
    """Twice, with what the first search found as what the second one knows."""
    channel, number, _ = channel_table(semantics, instance.num_devices)
    place, costs = np.full(len(part.tied), -1), list[int]()
    for _ in range(2):
        a, b, floor_ns = limits
        costs.append(
            cheapest_placement(part, channel, number, charge, a, b, floor_ns, NO_WAY, 10**6, place)
        )
    assert costs[0] == costs[1]
    return costs[0]


def test_the_search_finds_the_cheapest_of_all_placements() -> None:
    seen = Counter[str]()
    for seed in range(60):
        compare_placements(seed, seen)
    assert seen["searched"] > 60


@pytest.mark.deep
@pytest.mark.parametrize("first", range(1000, 3000, 500))
def test_the_search_finds_the_cheapest_of_all_placements_widely(first: int) -> None:
    seen = Counter[str]()
    for seed in range(first, first + 500):
        compare_placements(seed, seen)
    assert seen["searched"] > 500


def test_without_nodes_the_search_says_what_it_found() -> None:
    instance = tight_example()
    section = sections_between(instance, cuts(instance))[1]
    part, _ = section_ops(instance, section, Makespan(), 16)
    channel, number, _ = channel_table(Makespan(), 2)
    place, charge = np.full(len(part.tied), -1), np.zeros((len(part.tied), 2), np.int64)
    found = cheapest_placement(part, channel, number, charge, 0, 1, 0, NO_WAY, 1, place)
    assert found == -NO_WAY - 1
    assert place.tolist() == [-1, -1, -1]


def compare_bounds(seed: int, seen: Counter[str]) -> None:
    """The bound beside the optimum, arcs by paths, and by every third seed at their optima."""
    for name, instance in (
        ("mirrored", in_real_units(mirrored_instance(seed))),
        ("bottlenecks", in_real_units(bottleneck_instance(seed))),
        ("tight", tight_instance(seed, layers=1)),
    ):
        semantics = MAKESPAN_SEMANTICS[seed % len(MAKESPAN_SEMANTICS)]
        if brute_force.applies(Task(instance, semantics), Params()):
            continue  # too many transfers to order
        best = oracle(instance, semantics)
        limit = serial_horizon_ns(instance) if best is None else best
        for chain in chains_of(instance, semantics, limit):
            priced = priced_sections(instance, semantics, chain)
            if priced is None:
                continue
            if seed % 3 == 0:
                _solve_arcs(instance, semantics, chain)
            free, path = priced.shortest(lower_table)
            assert free >= NO_WAY or len(path) == len(chain.sections)
            dear = priced.priced(lower_table, limit)
            bound, _ = dear.shortest(lower_table)
            assert best is None or free <= bound <= best, (name, seed)
            more = with_more_placed(dear, semantics)
            assert more is None or best is None or more.shortest(lower_table)[0] <= best
            seen["with more"] += more is not None
            seen["all"] += 1
            seen["higher"] += chain.shortest(lower_table)[0] < bound < NO_WAY
            seen["by prices"] += free < bound < NO_WAY
            seen["tight"] += bound == best


def _solve_arcs(instance: Instance, semantics: Makespan, chain: Chain) -> None:
    maker = SectionMaker(instance)
    for use in (use for uses in chain.uses for row in uses for use in row):
        if use.arc.open:
            best = oracle(maker.make(use.arc.section, use.arc.entry, use.arc.leave), semantics)
            use.arc.lower_ns, use.arc.final = NO_WAY if best is None else best, True


def test_no_bound_is_above_the_optimum() -> None:
    seen = Counter[str]()
    for seed in range(40):
        compare_bounds(seed, seen)
    assert min(seen["higher"], seen["by prices"]) >= 5


@pytest.mark.deep
@pytest.mark.parametrize("first", range(1000, 3000, 500))
def test_no_bound_is_above_the_optimum_of_thousands(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in (16, 3, 1):
        monkeypatch.setattr(route, "MOST_PLACED", most)
        seen = Counter[str]()
        for seed in range(first, first + 500):
            compare_bounds(seed, seen)
        assert min(seen["higher"], seen["by prices"], seen["tight"]) > 20


@pytest.mark.parametrize("most", [1, 2, 3])
def test_ops_that_are_not_placed_may_be_anywhere(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "MOST_PLACED", most)
    seen = Counter[str]()
    for seed in range(30):
        compare_bounds(seed, seen)
    assert min(seen["higher"], seen["with more"]) > 3


def test_a_section_that_is_too_hard_takes_what_can_be_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route, "MOST_NODES", 3)
    seen = Counter[str]()
    for seed in range(12):
        compare_bounds(seed, seen)
    assert seen["all"] > 10


def test_after_a_stop_arcs_count_as_they_are() -> None:
    instance = tight_example()
    chain = chains_of(instance, Makespan(), 100)[0]
    priced = priced_sections(instance, Makespan(), chain, lambda: True)
    assert priced is not None
    assert priced.shortest(lower_table)[0] == chain.shortest(lower_table)[0]


def test_decomposition_compiles_the_search_where_memory_is_tight() -> None:
    solve(tight_example(), Makespan(), "decomposition", {"workers": 1})
    assert cheapest_placement.signatures
