"""The unit of time that the models share."""

from __future__ import annotations

from placegap.formulations.shared.times import granularity_ns, time_unit_ns
from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Op


def test_granularity_divides_all_times_that_a_value_is_a_sum_of() -> None:
    # ops 40, 60, 0; one tensor of 30 ns with a link of 15 ns latency: 45 both ways
    ops = tuple(Op(name=f"op{i}", time_ns={"gpu": time}) for i, time in enumerate((40, 60, 0)))
    edge = Edge(producer="op0", consumer="op1", bytes=30)
    devices = (Device(name="a", kind="gpu"), Device(name="b", kind="gpu"))
    links = tuple(
        Link(source=x, target=y, bandwidth_bytes_per_s=10**9, latency_ns=15)
        for x, y in (("a", "b"), ("b", "a"))
    )
    pair = Cluster(name="pair", devices=devices, links=links)
    instance = Instance(name="i", graph=Graph(name="g", ops=ops, edges=(edge,)), cluster=pair)
    assert granularity_ns(instance, transfers=True) == 5
    assert granularity_ns(instance, transfers=False) == 5
    loose = Instance(name="i", graph=Graph(name="g", ops=ops), cluster=pair)
    assert granularity_ns(loose, transfers=True) == granularity_ns(loose, transfers=False) == 20
    idle = Instance(name="i", graph=Graph(name="g", ops=ops[2:]), cluster=pair)
    assert granularity_ns(idle, transfers=True) == 1


def test_the_unit_is_the_granularity_while_numbers_stay_moderate() -> None:
    assert time_unit_ns(1000 * 7, 7) == 7
    assert time_unit_ns(2000 * 7, 7) == 14
