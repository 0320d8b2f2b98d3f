"""Workloads of the papers: as many ops as the papers say, and the published parameters."""

from functools import lru_cache

import pytest

from placegap.experiments.research.workloads.catalogue import (
    Workload,
    build_workload,
    count_parameters,
    workloads,
)
from placegap.instances import Graph
from placegap.instances.reading.checkout import PAPERS, is_workload

LARGE = 3_000
"""Ops; larger workloads are built by the deep tests alone."""

built = lru_cache(maxsize=1)(lambda name: build_workload(name).graph)
"""Graphs at the papers' sizes: the last one is kept, all of them are gigabytes."""


def test_a_wheel_knows_the_names_of_all_papers() -> None:
    assert {name.partition(":")[0] for name in workloads()} == {*PAPERS}
    assert all(map(is_workload, workloads()))
    assert not any(map(is_workload, ("fd-dps", "net.onnx", "hf:gpt2", "other:vgg-16")))


def exact(workload: Workload) -> bool:
    """Whether the published number of parameters is more than a rounded one."""
    return workload.parameters is not None and not workload.cited.endswith("rounded")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.deep] if (workload.ops or 0) > LARGE else [])
        for name, workload in workloads().items()
    ],
)
def test_a_graph_has_the_papers_size_and_is_sound(name: str) -> None:
    graph, workload = built(name), workloads()[name]
    assert workload.ops is not None
    assert len(graph.ops) == pytest.approx(workload.ops, rel=0.1)
    if workload.edges is not None and not name.endswith("layers-training"):
        # dnn-partitioning's layer graphs have no edges from forward to backward ops
        assert len(graph.edges) == pytest.approx(workload.edges, rel=0.2)
    no_op_stands_alone_and_no_backward_op_comes_before_a_forward_op(graph)
    memory_is_state_and_outputs(graph)


def no_op_stands_alone_and_no_backward_op_comes_before_a_forward_op(graph: Graph) -> None:
    assert {edge.producer for edge in graph.edges} | {edge.consumer for edge in graph.edges} == {
        op.name for op in graph.ops
    }
    backward = {op.name for op in graph.ops if op.backward}
    assert all(edge.consumer in backward for edge in graph.edges if edge.producer in backward)


def memory_is_state_and_outputs(graph: Graph) -> None:
    for op in graph.ops:
        state = op.parameter_bytes if op.state_bytes is None else op.state_bytes
        assert op.resident_bytes >= state + sum(op.shared_state.values())
        assert op.resident_bytes >= op.parameter_bytes
        if op.flops == op.bytes_moved == 0:  # views keep nothing of their own
            assert op.resident_bytes == state + sum(op.shared_state.values())


@pytest.mark.parametrize("name", [name for name in workloads() if exact(workloads()[name])])
def test_the_parameters_are_the_published_ones_within_one_percent(name: str) -> None:
    published = workloads()[name].parameters
    assert published is not None
    assert count_parameters(name) / 1e6 == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("name", [name for name in workloads() if not exact(workloads()[name])])
def test_rounded_numbers_of_parameters_are_met_within_two_percent(name: str) -> None:
    published = workloads()[name].parameters  # "13B" stands for 12.5 to 13.5 billion: 4 %
    if published is not None:
        assert count_parameters(name) / 1e6 == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(
    "name", ["fd-dps:resnet-50", pytest.param("celeritas:inception-v3", marks=pytest.mark.deep)]
)
def test_optimizers_hold_as_much_as_their_slots(name: str) -> None:
    # a slot is of a weight's size: Momentum keeps 1, RMSProp 2 per trained weight
    workload, graph = workloads()[name], built(name)
    slots = [op for op in graph.ops if f"/{workload.dialect.optimizer}_" in op.name]
    held = sum(op.state_bytes or 0 for op in slots)
    updates = [op for op in graph.ops if op.kind == f"Apply{workload.dialect.optimizer}"]
    weights = {op.name: op.parameter_bytes for op in graph.ops if op.kind == "VariableV2"}
    updated = sum(weights[op.name.partition("/")[2]] for op in updates)
    assert held == workload.dialect.slots * updated
