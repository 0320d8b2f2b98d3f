"""A chain and the work beside it: least cuts over sides, and branching over them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice, pairwise, product

import numpy as np
import pytest
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, more_makespan, oracle

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Makespan, Op
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.bounds.side_cuts import (
    ELSEWHERE,
    FREE,
    HERE,
    Branches,
    LeastSides,
    SideArcs,
    TwoSides,
)

NEVER = 10**9


def arcs_of_edges(instance: Instance, chain: list[int], device: int) -> SideArcs:
    """What the edges of a path prove: the least times of ops and transfers by sides."""
    arrays, index = instance.arrays, instance.arrays.index
    time = np.where(arrays.time_ns == UNSUPPORTED, NEVER, arrays.time_ns)
    sides = [[k for k in range(instance.num_devices) if k != device], [device]]
    edges = zip(
        index.producer.tolist(), index.consumer.tolist(), index.tensor.tolist(), strict=True
    )
    tensor = {(i, j): u for i, j, u in edges}

    def arc(i: int, j: int, a: int, b: int) -> int:
        moves = arrays.transfer_ns[tensor[i, j]]
        ways = product(sides[a], sides[b])
        times = (
            int(time[j, to] + (moves[arrays.link_class[k, to]] if k != to else 0)) for k, to in ways
        )
        return min(NEVER, *times)

    steps = list(pairwise(chain))
    between = [[[arc(i, j, a, b) for b in (0, 1)] for a in (0, 1)] for i, j in steps]
    return SideArcs(
        np.array([time[chain[0], side].min() for side in sides]),
        np.zeros(2, np.int64),
        np.array(between, np.int64).reshape(-1, 2, 2),
    )


def some_path(instance: Instance, rng: random.Random) -> list[int]:
    index = instance.arrays.index
    path = [rng.randrange(instance.num_ops)]
    while True:
        edges = index.succ_edge[index.succ_ptr[path[-1]] : index.succ_ptr[path[-1] + 1]]
        if not len(edges):
            return path
        path.append(int(index.consumer[rng.choice(edges.tolist())]))


def searches(
    draws: Iterator[Instance],
) -> Iterator[tuple[Instance, Makespan, TwoSides, SideArcs, LeastSides]]:
    rng = random.Random("side work")
    for number, instance in enumerate(draws):
        semantics = MAKESPAN_SEMANTICS[number % len(MAKESPAN_SEMANTICS)]
        if instance.num_devices == 1:
            continue
        device, chain = rng.randrange(instance.num_devices), some_path(instance, rng)
        sides = TwoSides(instance, semantics, device, chain)
        arcs = arcs_of_edges(instance, chain, device)
        found = Branches(sides).search(arcs, NEVER, lambda: False)
        yield instance, semantics, sides, arcs, found


def check_optima(draws: Iterator[Instance], least: int) -> None:
    checked = 0
    for instance, semantics, _, _, found in searches(draws):
        optimum = oracle(instance, semantics)
        if optimum is not None:
            checked += 1
            assert found.bound_ns <= optimum, (instance.name, semantics.label)
    assert checked >= least


def test_no_bound_is_above_an_optimum() -> None:
    check_optima(makespan_draws(), 30)


@pytest.mark.deep
def test_no_bound_is_above_an_optimum_of_thousands() -> None:
    check_optima(islice(more_makespan(9000), 4000), 1500)


def test_branching_finds_the_sides_whose_longest_load_is_least() -> None:
    checked = 0
    for instance, _, sides, arcs, found in searches(makespan_draws()):
        choices = [
            (bool(fixed),) if fixed != FREE else (False, True) for fixed in sides.fixed.tolist()
        ]
        if (sides.fixed == FREE).sum() > 8:
            continue
        fit = arcs.fit_for_cuts()
        least = min(int(sides.loads(np.array(here), fit).max()) for here in product(*choices))
        # rounded weights, and shares below which no node branches, cost next to nothing
        assert 0.99 * least - 1 <= found.bound_ns <= least, instance.name
        checked += 1
    assert checked >= 30


def beside_a_chain(transfer_bytes: int) -> Instance:
    """Three ops of 10 ns in a row on two equal devices, and one of 10 ns between first and last."""
    ops = tuple(Op(name=name, time_ns={"gpu": 10}) for name in "abcs")
    sizes = {"ab": 100, "bc": 100, "as": transfer_bytes, "sc": transfer_bytes}
    edges = tuple(Edge(producer=p[0], consumer=p[1], bytes=size) for p, size in sizes.items())
    names = ("g0", "g1")
    return Instance(
        name="beside",
        graph=Graph(name="beside", ops=ops, edges=edges),
        cluster=Cluster(
            name="pair",
            devices=tuple(Device(name=name, kind="gpu") for name in names),
            links=tuple(
                Link(source=a, target=b, bandwidth_bytes_per_s=10**9)
                for a, b in (names, names[::-1])
            ),
        ),
    )


@pytest.mark.parametrize(
    ("transfer_bytes", "bound_ns"),
    [
        (100, 40),  # no transfer ends in time: all four ops are on one device
        (1, 30),  # the op beside the chain is elsewhere, and its transfers take 1 ns each
        (35, 35),  # elsewhere its input takes 35 ns of the port
    ],
)
def test_work_beside_a_chain_stays_where_a_port_cannot_carry_it(
    transfer_bytes: int, bound_ns: int
) -> None:
    instance = beside_a_chain(transfer_bytes)
    sides = TwoSides(instance, Makespan(channels="port"), 0, [0, 1, 2])
    begin = sides.fixed.copy()
    begin[sides.chain[0]] = HERE
    arcs = arcs_of_edges(instance, [0, 1, 2], 0)
    assert arcs.between.tolist() == [[[10, 110], [110, 10]]] * 2
    assert Branches(sides, begin).search(arcs, NEVER, lambda: False).bound_ns == bound_ns


def test_a_flow_that_is_none_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Liar:
        OPTIMAL = 0

        def add_arcs_with_capacity(self, tail: object, head: object, capacity: object) -> object:
            self.capacity = np.asarray(capacity)
            return np.arange(len(self.capacity))

        def solve(self, source: int, sink: int) -> int:
            return self.OPTIMAL

        def flows(self, arcs: object) -> object:
            return self.capacity + 1

        def get_source_side_min_cut(self) -> list[int]:
            return [0]

    monkeypatch.setattr("ortools.graph.python.max_flow.SimpleMaxFlow", Liar)
    instance = beside_a_chain(100)
    sides = TwoSides(instance, Makespan(channels="port"), 0, [0, 1, 2])
    arcs = arcs_of_edges(instance, [0, 1, 2], 0)
    fixed = np.array([HERE, FREE, FREE, ELSEWHERE])
    # weight 1 for work alone: without a flow only the 10 ns of the op that is fixed here count
    value, _ = sides.least(arcs, np.array([0, 1, 0, 0]), fixed)
    assert value <= 10


def test_times_beyond_what_cuts_can_add_up_prove_nothing() -> None:
    instance = beside_a_chain(100)
    sides = TwoSides(instance, Makespan(channels="port"), 0, [0, 1, 2])
    arcs = arcs_of_edges(instance, [0, 1, 2], 0)
    huge = arcs._replace(head=np.array([2**58, 2**58]))
    assert Branches(sides).search(huge, 2**62, lambda: False).bound_ns == 0
