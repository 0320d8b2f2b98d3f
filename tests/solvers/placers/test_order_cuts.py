"""Slices of an order that fit: memory-cuts and interleaved-cuts."""

from itertools import pairwise

import pytest
from draws import draw
from references.placers import pressed_instance, with_room

from placegap.instances import Edge, Instance, Makespan, Op, evaluate, load_corpus
from placegap.solvers import Task
from placegap.solvers.placers.order_cuts import interleaved_cuts, memory_cuts

# ------------------------------------------------------------------------------------ memory-cuts


def test_it_finds_a_plan_of_a_training_step_that_memory_cuts_into_six() -> None:
    # 2691.351 ms was the best value known before
    instance = load_corpus("inception-v3-layers-train").instance()
    plan = memory_cuts(Task(instance, Makespan())).plan
    verdict = evaluate(instance, plan, Makespan())
    assert verdict.feasible
    assert verdict.value_ns <= 2_540_000_000


# ------------------------------------------------------------------------------- interleaved-cuts


PORT = Makespan()


def training_step(layers: int) -> Instance:
    """A chain of layers forward and back; of each layer all ops are colocated; nothing is sent."""
    every = range(layers)
    ops = [Op(name=f"{x}{n}", time_ns={"gpu": 1}, colocation=str(n)) for x in "fbw" for n in every]
    row = [*(f"f{n}" for n in every), *(f"b{n}" for n in reversed(every))]
    weights = [(before, f"w{b[1:]}") for before, b in pairwise(row) if b[0] == "b"]
    edges = [*pairwise(row), *weights]
    joined = [Edge(producer=a, consumer=b, bytes=0) for a, b in edges]
    devices = draw.devices(["gpu"] * 2)
    return draw.instance_of("step", ops, joined, devices, draw.fast_links(devices))


def test_weights_of_one_layer_overlap_the_step_back_of_the_next() -> None:
    # forward 8, backward 8, and the gradient of the last weights beside the one before: at least
    # 17 ns in turn; one slice per device has at most half of the gradients beside steps back
    instance = training_step(8)
    plan = interleaved_cuts(Task(instance, PORT)).plan
    assert evaluate(instance, plan, PORT).value_ns == 17


@pytest.mark.parametrize(("memory", "times"), [("sum", 1), ("peak", 3)])
def test_plans_fit(memory: str, times: int) -> None:
    semantics = PORT.model_copy(update={"memory": memory})
    fitting = 0
    for seed in range(5):
        instance = with_room(pressed_instance(seed, num_ops=30, num_devices=4), times)
        plan = interleaved_cuts(Task(instance, semantics)).plan
        if plan is not None:
            fitting += 1
            assert evaluate(instance, plan, semantics).feasible
    assert fitting >= 1


def test_it_finds_a_plan_of_a_training_step_whose_memory_binds() -> None:
    # 535.2 ms was the best value known before
    instance = load_corpus("bert-base-train").instance()
    semantics = Makespan(memory="peak")
    plan = interleaved_cuts(Task(instance, semantics)).plan
    value_ns = evaluate(instance, plan, semantics).value_ns
    assert value_ns <= 534_200_000
