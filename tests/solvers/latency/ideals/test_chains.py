"""Chains of ideals: optimal where calls and end times are all that counts, bounds elsewhere."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from draws import draw
from draws.latency.tiny import optimum

from placegap.instances import Cluster, Device, Edge, Graph, Instance, LatencySubgraphs, Op
from placegap.instances.problem.integers import NEVER
from placegap.solvers import solve
from placegap.solvers.core.clock import Clock
from placegap.solvers.latency.call_rows import row_places
from placegap.solvers.latency.calls import build_call_problem
from placegap.solvers.latency.ideals.chains import IdealChains, build_chains
from placegap.solvers.latency.ideals.lattice import build_lattice
from placegap.solvers.latency.masks import masks, members
from placegap.solvers.latency.spine import build_nodes, build_spine

ONCE, TWICE = (LatencySubgraphs(subgraphs=q) for q in (1, 2))


def lines(seed: int, num_ops: int, accelerators: int, hosts: int, width: int = 2) -> Instance:
    """Lines of ops with edges across, no two times alike; accelerators are alike, memory binds."""
    rng = random.Random(f"lines-{seed}")
    rows = [list(range(at, num_ops, width)) for at in range(width)]
    pairs = dict.fromkeys((a, b) for row in rows for a, b in pairwise(row))
    for _ in range(num_ops // 4):
        a, b = sorted(rng.sample(range(num_ops), 2))
        pairs[a, b] = None
    sizes = [rng.randrange(1, 10**9) for _ in range(num_ops)]
    ops = [
        Op(
            name=f"op{i}",
            time_ns={"gpu": (own := rng.randrange(10**6)), "cpu": 3 * own},
            resident_bytes=sizes[i],
        )
        for i in range(num_ops)
    ]
    moves = [rng.randrange(10**5) for _ in range(num_ops)]
    edges = draw.edges(sorted(pairs), moves, [True] * num_ops, lambda: 0, "host_time_ns")
    room = max(*sizes, int(sum(sizes) / max(1, accelerators) * rng.choice([0.8, 1.1, 1.3])))
    kinds = ["cpu"] * hosts + ["gpu"] * accelerators
    devices = draw.devices(kinds, lambda k: room, hosts=hosts)[::-1]  # accelerators come first
    return draw.instance_of(f"lines-{seed}", ops, edges, devices)


def chains_of(instance: Instance, q: int) -> IdealChains:
    accelerators = ~instance.arrays.is_host
    room = int(instance.arrays.memory_bytes[accelerators].max(initial=0))
    spine = build_spine(build_nodes(instance, q), narrow=False)
    chains = build_chains(spine, room, min(int(accelerators.sum()) * q, instance.num_ops))
    assert chains is not None
    return chains


def compare(seed: int) -> bool:
    """With one call for each of equal accelerators the chains' value is the optimum."""
    sizes = ((5, 2, 1), (6, 2, 0), (5, 3, 0), (6, 1, 1))
    num_ops, accelerators, hosts = sizes[seed % len(sizes)]
    instance = lines(seed, num_ops, accelerators, hosts, width=1 + seed % 3)
    best = optimum(instance, ONCE)
    found = chains_of(instance, 1).search(NEVER - 1, 1000, Clock(None))
    assert found.exact
    if best is None:
        assert found.bound_ns == NEVER - 1
        return False
    assert found.bound_ns == best, instance.name
    assert found.row is not None
    problem = build_call_problem(instance, 1)
    place = row_places(problem, chains_of(instance, 1).spine, found.row)
    assert place is not None
    assert problem.latency_ns(place) == best
    # below the optimum there is nothing, and the search says so
    assert chains_of(instance, 1).search(best, 1000, Clock(None)).bound_ns == best
    chains = chains_of(instance, 1)  # the second search goes backward, the third uses both
    few = [chains.search(best + 1, most, Clock(None)) for most in (1, 1, 1, 2, 4)]
    assert max(one.bound_ns for one in few) <= best
    twice = optimum(instance, TWICE)
    if twice is not None:
        assert chains_of(instance, 2).search(twice + 1, 1000, Clock(None)).bound_ns <= twice
    return True


def test_its_value_is_the_optimum_of_brute_force() -> None:
    assert sum(compare(seed) for seed in range(60)) >= 40


@pytest.mark.deep
def test_its_value_is_the_optimum_of_brute_force_on_many() -> None:
    assert sum(compare(seed) for seed in range(1000, 5000)) >= 2500


@pytest.mark.parametrize("count", [63, 64, 65, pytest.param(128, marks=pytest.mark.deep)])
def test_two_lines_of_any_length_are_proven(count: int) -> None:
    # a call holds half of one line at most; nothing but the chains of ideals sees that
    instance = lines(count, count, 4, 1)
    result = solve(instance, ONCE, "latency", {"workers": 1, "moves": 20_000}, time_limit_s=60)
    assert result.status == "optimal"


def test_the_lattice_has_every_ideal_and_every_arc() -> None:
    # three lines of 22 nodes: 23^3 ideals, and 3 x 22 x 23^2 arcs; bits in two words
    inside = np.zeros((66, 66), bool)
    feeds = np.zeros((66, 66), bool)
    for line in range(3):
        row = np.arange(line, 66, 3)
        inside[np.ix_(row, row)] = np.triu(np.ones((22, 22), bool), 1)
        feeds[row[:-1], row[1:]] = True
    lattice = build_lattice(masks(inside.T), masks(feeds), 20_000)
    assert lattice is not None
    assert (len(lattice.mask), len(lattice.child)) == (23**3, 3 * 22 * 23**2)
    for i in range(0, len(lattice.mask), 1000):
        for at in range(lattice.child_ptr[i], lattice.child_ptr[i + 1]):
            more = members(lattice.mask[lattice.child[at]] & ~lattice.mask[i], 66)
            assert np.flatnonzero(more).tolist() == [lattice.added[at]]
    assert build_lattice(masks(inside.T), masks(feeds), 10_000) is None


def test_a_search_without_time_has_a_bound_all_the_same() -> None:
    instance = lines(1, 40, 4, 1)
    chains = chains_of(instance, 1)
    full = chains.search(NEVER - 1, 4, Clock(None))
    cut = chains.search(NEVER - 1, 4, Clock(0.0))
    assert (full.ended, cut.ended) == (True, False)
    assert cut.bound_ns <= full.bound_ns


def test_devices_without_a_memory_limit_lose_no_plan() -> None:
    # calls times 2**62 bytes pass 64 bits: no call seemed to have room for what is left
    times = {"a": 5, "b": 5, "c": 0, "d": 6, "e": 8}
    graph = Graph(
        name="five",
        ops=tuple(Op(name=x, time_ns={"gpu": t}, resident_bytes=1) for x, t in times.items()),
        edges=tuple(
            Edge(producer=x, consumer=y, host_time_ns=t)
            for x, y, t in (("b", "c", 1), ("b", "e", 1), ("c", "d", 0), ("c", "e", 0))
        ),
    )
    devices = tuple(Device(name=f"d{k}", kind="gpu") for k in range(3))
    instance = Instance(name="five", graph=graph, cluster=Cluster(name="three", devices=devices))
    best = optimum(instance, ONCE)
    result = solve(instance, ONCE, "latency", {"workers": 1, "moves": 0, "rounds": 0})
    assert (result.value_ns, result.bound_ns) == (best, best)
    assert result.bound_origin == "ideals"
