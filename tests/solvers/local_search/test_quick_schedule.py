"""Insertion: the most urgent op first, into the first gap; its orders take what it says."""

from __future__ import annotations

import numpy as np
import pytest
from draws.tiny import drawn_devices, tiny_instance

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Makespan, Op, evaluate
from placegap.solvers.local_search.disjunctive_graph import machines_of
from placegap.solvers.local_search.quick_schedule import insert_all, new_work, plan_of


def with_idle_ops(instance: Instance, rng: np.random.Generator) -> Instance:
    """The instance, some of whose ops take no time."""
    ops = tuple(
        op.model_copy(update={"time_ns": dict.fromkeys(op.time_ns, 0)})
        if rng.random() < 0.3
        else op
        for op in instance.graph.ops
    )
    graph = instance.graph.model_copy(update={"ops": ops})
    return Instance(name=instance.name, graph=graph, cluster=instance.cluster)


@pytest.mark.parametrize("channels", ["free", "link", "port", "half_duplex"])
@pytest.mark.parametrize("transfers", ["per_edge", "per_tensor"])
def test_the_orders_of_an_insertion_take_no_longer_than_it_says(
    channels: str, transfers: str
) -> None:
    semantics = Makespan(channels=channels, transfers=transfers)
    equal = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        instance = tiny_instance(seed, num_ops=9, num_devices=3, density=0.4)
        if seed % 2:
            instance = with_idle_ops(instance, rng)
        data, device = machines_of(instance, semantics), drawn_devices(instance, rng)
        work = new_work(data)
        makespan = insert_all(data, device, rng.integers(0, 20, 9), work)
        verdict = evaluate(instance, plan_of(instance, semantics, data, device, work), semantics)
        assert verdict.schedule is not None
        # sooner only what stands behind a gap that has closed
        assert verdict.schedule.makespan_ns <= makespan
        equal += verdict.schedule.makespan_ns == makespan
    assert equal >= 30


def test_a_long_op_waits_for_the_urgent_chain_and_a_short_one_fills_its_gap() -> None:
    # a chain of a (2 ns on g0), b (4 ns on g1), c (2 ns on g0), with transfers of 1 ns, needs g0
    # from 0 to 2 and from 8 on: x (5 ns) fits in between at 2, y (7 ns) only behind c, at 10
    times = {"a": (2, 0), "b": (4, 1), "c": (2, 0), "x": (5, 0), "y": (7, 0)}
    ops = tuple(Op(name=name, time_ns={"gpu": ns}) for name, (ns, _) in times.items())
    edges = tuple(Edge(producer=a, consumer=b, bytes=1) for a, b in ("ab", "bc"))
    devices = tuple(Device(name=name, kind="gpu") for name in ("g0", "g1"))
    links = tuple(
        Link(source=a, target=b, bandwidth_bytes_per_s=10**9)
        for a, b in (("g0", "g1"), ("g1", "g0"))
    )
    cluster = Cluster(name="two", devices=devices, links=links)
    instance = Instance(name="gap", graph=Graph(name="gap", ops=ops, edges=edges), cluster=cluster)
    data = machines_of(instance, Makespan())
    work = new_work(data)
    device = np.array([where for _, where in times.values()])
    makespan = insert_all(data, device, np.array([9, 8, 7, 1, 2]), work)
    assert work.start[:5].tolist() == [0, 3, 8, 2, 10]
    assert makespan == 17
    assert work.stretches.tolist() == [2, 1, 1, 1, 1, 1]  # g0, g1, then each port one transfer


def test_an_op_without_time_stands_right_behind_its_input() -> None:
    # behind a (2 ns) comes z (no time), behind z the urgent b (3 ns); c (4 ns) waits for nothing
    ops = tuple(Op(name=n, time_ns={"gpu": ns}) for n, ns in zip("azbc", (2, 0, 3, 4), strict=True))
    edges = tuple(Edge(producer=a, consumer=b, bytes=0) for a, b in ("az", "zb"))
    cluster = Cluster(name="one", devices=(Device(name="g0", kind="gpu"),), links=())
    instance = Instance(name="z", graph=Graph(name="z", ops=ops, edges=edges), cluster=cluster)
    data = machines_of(instance, Makespan())
    work = new_work(data)
    insert_all(data, np.zeros(4, np.int64), np.array([9, 1, 8, 5]), work)
    # c is booked behind a before z is: z starts at 2 all the same, and b behind c
    assert work.start[:4].tolist() == [0, 2, 6, 2]
