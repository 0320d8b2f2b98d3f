"""Instances are validated once, at the door."""

import pytest
from draws.tiny import tiny_instance
from pydantic import ValidationError

from placegap.instances import Edge, Graph, Instance, Op, example


def ops(*names: str) -> tuple[Op, ...]:
    return tuple(Op(name=name, time_ns={"gpu": 1}) for name in names)


def test_equal_tensor_names_of_two_producers_are_two_tensors() -> None:
    edges = (
        Edge(producer="a", consumer="c", bytes=1, tensor="t"),
        Edge(producer="b", consumer="c", bytes=2, tensor="t"),
    )
    assert len(Graph(name="g", ops=ops("a", "b", "c"), edges=edges).index.tensor_producer) == 2


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
