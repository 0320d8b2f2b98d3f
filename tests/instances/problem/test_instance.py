"""Instances are validated once, at the door."""

from __future__ import annotations

from typing import Any

import pytest
from draws import draw
from draws.tiny import tiny_instance
from pydantic import ValidationError

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Op, example


def ops(*names: str) -> tuple[Op, ...]:
    return tuple(Op(name=name, time_ns={"gpu": 1}) for name in names)


def pair() -> Cluster:
    return Cluster(
        name="pair",
        devices=(Device(name="g0", kind="gpu"), Device(name="g1", kind="gpu")),
        links=(
            Link(source="g0", target="g1", bandwidth_bytes_per_s=10**9),
            Link(source="g1", target="g0", bandwidth_bytes_per_s=10**9),
        ),
    )


def test_a_cycle_is_named() -> None:
    edges = (Edge(producer="a", consumer="b"), Edge(producer="b", consumer="a"))
    with pytest.raises(ValidationError, match=r"a -> b -> a|b -> a -> b"):
        Graph(name="g", ops=ops("a", "b", "c"), edges=edges)


def test_edges_of_one_tensor_must_agree_on_its_size() -> None:
    edges = (
        Edge(producer="a", consumer="b", bytes=1, tensor="t"),
        Edge(producer="a", consumer="c", bytes=2, tensor="t"),
    )
    with pytest.raises(ValidationError, match="tensor 't' has another size"):
        Graph(name="g", ops=ops("a", "b", "c"), edges=edges)


def test_equal_tensor_names_of_two_producers_are_two_tensors() -> None:
    edges = (
        Edge(producer="a", consumer="c", bytes=1, tensor="t"),
        Edge(producer="b", consumer="c", bytes=2, tensor="t"),
    )
    assert len(Graph(name="g", ops=ops("a", "b", "c"), edges=edges).index.tensor_producer) == 2


def test_sums_above_2_to_the_62_are_errors() -> None:
    big = tuple(Op(name=name, time_ns={"gpu": 2**61}) for name in "abc")
    with pytest.raises(ValidationError, match=r"above 2\*\*62"):
        Graph(name="g", ops=big)


@pytest.mark.parametrize(
    ("to", "tensor"),
    [
        ("b", {"bytes": 2**60}),  # at 1 byte/s 2**60 * 1e9 ns
        ("b", {"transfer_ns": ((0, 0), (0, 0)), "host_time_ns": 2**61}),  # twice, and an op
        # moved out once and into five calls of 2**60 ns each; two host times are below 2**62
        ("bcdef", {"transfer_ns": ((0, 0), (0, 0)), "host_time_ns": 2**60}),
    ],
)
def test_transfers_that_overflow_are_errors(to: str, tensor: dict[str, Any]) -> None:
    edges = tuple(Edge(producer="a", consumer=b, tensor="t", **tensor) for b in to)
    graph = Graph(name="g", ops=ops(*"abcdef"), edges=edges)
    links = draw.links(2, lambda a, b: (1, 0))
    with pytest.raises(ValidationError, match=r"above 2\*\*62"):
        draw.instance_of("i", graph.ops, graph.edges, draw.devices(["gpu"] * 2), links)


def test_device_names_must_not_look_like_links() -> None:
    with pytest.raises(ValidationError, match="must not hold ' -> '"):
        Cluster(name="c", devices=(Device(name="a -> b", kind="gpu"),))


def test_devices_that_no_path_joins_are_named() -> None:
    one_way = pair().model_copy(update={"links": pair().links[:1]})
    graph = Graph(name="g", ops=ops("a", "b"), edges=(Edge(producer="a", consumer="b"),))
    with pytest.raises(ValidationError, match="no path leads from 'g1' to 'g0'"):
        Instance(name="i", graph=graph, cluster=one_way)


def test_frozen_parts_refuse_changes() -> None:
    with pytest.raises(ValidationError):
        example().graph.ops[0].name = "other"  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        example().arrays.time_ns[0, 0] = 7


def test_arrays_describe_the_graph() -> None:
    index = example().arrays.index
    assert index.succ_ptr.tolist() == [0, 2, 3, 4, 4]
    assert index.pred_ptr.tolist() == [0, 0, 1, 2, 4]
    assert index.topological_order.tolist() == [0, 1, 2, 3]


def test_the_content_hash_ignores_names_of_instances_but_not_times() -> None:
    base = example()
    renamed = base.model_copy(update={"name": "other"})
    slow = base.graph.ops[0].model_copy(update={"time_ns": {"gpu": 6}})
    graph = base.graph.model_copy(update={"ops": (slow, *base.graph.ops[1:])})
    slower = Instance(name=base.name, graph=graph, cluster=base.cluster)
    assert renamed.content_hash == base.content_hash
    assert slower.content_hash != base.content_hash


def test_a_changed_copy_is_validated_and_derives_its_own_arrays() -> None:
    base = example()
    assert base.arrays.memory_bytes.tolist() == [2**62, 2**62]
    devices = tuple(d.model_copy(update={"memory_bytes": 7}) for d in base.cluster.devices)
    changed = base.model_copy(
        update={"cluster": base.cluster.model_copy(update={"devices": devices})}
    )
    assert changed.arrays.memory_bytes.tolist() == [7, 7]
    with pytest.raises(ValidationError):
        base.graph.ops[0].model_copy(update={"resident_bytes": -1})


def test_an_instance_is_printed_as_a_table_of_ten_lines_at_most() -> None:
    # 12 ops: the first three and the last are shown; the devices have three kinds
    instance = tiny_instance(3, num_ops=12, num_devices=4, hosts=1)
    lines = str(instance).splitlines()
    assert lines[0] == "tiny-3: 12 ops, 22 edges, 4 devices"
    assert [line.split()[0] for line in lines[2:7]] == ["op0", "op1", "op2", "...", "op11"]
    assert "8 more ops" in lines[5]
    for seed in range(20):
        drawn = tiny_instance(seed, num_ops=1 + seed, num_devices=1 + seed % 4, hosts=seed % 2)
        assert len(str(drawn).splitlines()) <= 10


def test_the_representation_of_an_instance_is_one_short_line() -> None:
    shown = repr(tiny_instance(3, num_ops=12, num_devices=4))
    assert shown.startswith("<Instance 'tiny-3': 12 ops, ")
    assert len(shown) < 80
