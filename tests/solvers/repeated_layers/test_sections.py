"""Sections between bottlenecks: what lies in each, and which are equal."""

import numpy as np
from draws import draw
from draws.layered import stack

from placegap.instances import Edge, Op
from placegap.solvers.repeated_layers.sections import (
    FREE,
    LayerSections,
    bottlenecks_of,
    branches_of,
    has_repeats,
)


def test_a_stack_of_equal_layers_is_one_class() -> None:
    instance = stack(4, branches=3)
    bottlenecks = bottlenecks_of(instance)
    ops = instance.graph.ops
    assert [ops[i].name for i in bottlenecks.ops] == ["op0", "op1", "op2", "op3", "op4"]
    assert bottlenecks.section.tolist() == [0, *(s for s in range(1, 5) for _ in range(4))]
    assert has_repeats(instance, bottlenecks)
    at = np.where(bottlenecks.pinned, 0, FREE)
    sections = LayerSections(instance, bottlenecks, np.zeros(len(ops), np.int64))
    found = []
    for s in range(1, 5):
        section = sections.make(s, at)
        found.append(section.signature)
        at[section.ops] = 0
    assert len(set(found)) == 1
    # where a bottleneck before it runs elsewhere, its tensors come from there
    at[bottlenecks.ops[3]] = 1
    assert sections.make(4, at).signature != found[0]
    # three branches of one op each, and all are equal
    branches = branches_of(section)
    assert np.diff(branches.ptr).tolist() == [1, 1, 1]
    assert np.diff(branches.same_ptr).tolist() == [3]


def test_side_inputs_and_ends_hide_no_bottleneck() -> None:
    # a mask that the second layer reads belongs to that; what logs the first join comes after it
    plain = stack(2, branches=2)
    beside = [Op(name=name, time_ns={"gpu": 1}) for name in ("mask", "log")]
    edges = [("mask", "l1b0"), ("op1", "log")]
    instance = draw.changed(
        plain,
        ops=(*plain.graph.ops, *beside),
        edges=(*plain.graph.edges, *(Edge(producer=a, consumer=b, bytes=1) for a, b in edges)),
    )
    found = bottlenecks_of(instance)
    assert [instance.graph.ops[i].name for i in found.ops] == ["op0", "op1", "op2"]
    assert found.section[-2:].tolist() == [2, 2]


def test_a_graph_without_parallel_ops_has_no_repeats() -> None:
    chain = draw.row([draw.op(i, {"gpu": 3}) for i in range(9)], draw.devices(["gpu", "gpu"]))
    assert not has_repeats(chain, bottlenecks_of(chain))
    assert not has_repeats(stack(1, branches=4), bottlenecks_of(stack(1, branches=4)))
