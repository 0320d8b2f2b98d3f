"""Interleaved cuts: slices of the order go round, so that all devices work in a training step."""

from __future__ import annotations

import pytest
from references.placers import pressed_instance, with_room

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    Link,
    Makespan,
    Op,
    evaluate,
    load_corpus,
)
from placegap.solvers import Task
from placegap.solvers.placers.order_cuts import interleaved_cuts

PORT = Makespan()


def training_step(layers: int) -> Instance:
    """A chain of layers forward and back; of each layer all ops are colocated; nothing is sent."""
    ops, edges, before = [], [], ""
    for layer in range(layers):
        ops.append(Op(name=f"f{layer}", time_ns={"gpu": 1}, colocation=str(layer)))
        edges += [(before, f"f{layer}")] * bool(before)
        before = f"f{layer}"
    for layer in reversed(range(layers)):
        ops.append(Op(name=f"b{layer}", time_ns={"gpu": 1}, colocation=str(layer)))
        ops.append(Op(name=f"w{layer}", time_ns={"gpu": 1}, colocation=str(layer)))
        edges += [(before, f"b{layer}"), (before, f"w{layer}")]
        before = f"b{layer}"
    return Instance(
        name="step",
        graph=Graph(
            name="step",
            ops=tuple(ops),
            edges=tuple(Edge(producer=a, consumer=b, bytes=0) for a, b in edges),
        ),
        cluster=Cluster(
            name="two",
            devices=tuple(Device(name=name, kind="gpu") for name in ("g0", "g1")),
            links=tuple(
                Link(source=a, target=b, bandwidth_bytes_per_s=10**9)
                for a, b in (("g0", "g1"), ("g1", "g0"))
            ),
        ),
    )


def test_weights_of_one_layer_overlap_the_step_back_of_the_next() -> None:
    # forward 8, backward 8, and the gradient of the last weights beside the one before: at least
    # 17 ns in turn; one slice per device has at most half of the gradients beside steps back
    instance = training_step(8)
    plan = interleaved_cuts(Task(instance, PORT)).plan
    assert plan is not None
    assert evaluate(instance, plan, PORT).value_ns == 17


@pytest.mark.parametrize(("memory", "times"), [("sum", 1), ("peak", 3)])
def test_plans_fit(memory: str, times: int) -> None:
    semantics = PORT.model_copy(update={"memory": memory})
    fitting = 0
    for seed in range(20):
        instance = with_room(pressed_instance(seed, num_ops=30, num_devices=4), times)
        plan = interleaved_cuts(Task(instance, semantics)).plan
        if plan is not None:
            fitting += 1
            assert evaluate(instance, plan, semantics).feasible
    assert fitting >= 5


def test_it_finds_a_plan_of_a_training_step_whose_memory_binds() -> None:
    # 535.2 ms was the best value known before (docs/decomposition.md)
    instance = load_corpus("bert-base-train").instance()
    semantics = Makespan(memory="peak")
    plan = interleaved_cuts(Task(instance, semantics)).plan
    assert plan is not None
    value_ns = evaluate(instance, plan, semantics).value_ns
    assert value_ns is not None
    assert value_ns <= 534_200_000
