"""What share of all memory a graph would fill."""

from __future__ import annotations

import pytest

from placegap.instances import Cluster, Device, Graph, Instance, Op, example
from placegap.instances.problem.memory_pressure import memory_pressure


def instance_on(*devices: Device) -> Instance:
    ops = (
        Op(name="a", time_ns={"gpu": 1, "cpu": 1}, resident_bytes=30),
        Op(name="b", time_ns={"gpu": 1, "cpu": 1}, resident_bytes=20),
    )
    cluster = Cluster(name="few", devices=devices)
    return Instance(name="two", graph=Graph(name="two", ops=ops), cluster=cluster)


def test_all_bytes_are_compared_with_the_memory_of_all_accelerators() -> None:
    gpus = [Device(name=f"gpu{k}", kind="gpu", memory_bytes=40 * (k + 1)) for k in range(2)]
    host = Device(name="host", kind="cpu", is_host=True, memory_bytes=10**9)
    assert memory_pressure(instance_on(*gpus)) == pytest.approx(50 / (40 + 80))
    assert memory_pressure(instance_on(*gpus, host)) == pytest.approx(50 / (40 + 80))


def test_hosts_count_where_nothing_else_is_there() -> None:
    host = Device(name="host", kind="cpu", is_host=True, memory_bytes=100)
    assert memory_pressure(instance_on(host)) == pytest.approx(0.5)


def test_without_limits_or_without_memory_there_is_none() -> None:
    assert memory_pressure(example()) is None
    empty = Device(name="gpu0", kind="gpu", memory_bytes=0)
    assert memory_pressure(instance_on(empty)) is None
