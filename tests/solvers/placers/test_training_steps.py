"""Training steps of the corpus as pipelines: each method that applies finds a plan."""

from __future__ import annotations

from functools import cache

import pytest
from draws import draw

from placegap.instances import Document, Instance, PipelineIteration
from placegap.instances.corpus.corpus import corpus_names, load_corpus
from placegap.instances.problem.gradients import mark_weight_gradients
from placegap.instances.problem.nets import stage_blocks
from placegap.solvers import Task, run_method
from placegap.solvers.core.registry import find_method, why_not

METHODS = ("even-split", "heaviest-stage", "simulated-moves", "stage-cuts")

load = cache(load_corpus)


def roomy(document: Document) -> Instance:
    """On its own devices, whose memory never ends."""
    instance = document.instance()
    return draw.with_devices(instance, memory_bytes=[None] * instance.num_devices)


def check(name: str, semantics: PipelineIteration) -> None:
    instance = roomy(load(name))
    if semantics.schedule == "zero_bubble":
        instance = Instance(
            name=name, graph=mark_weight_gradients(instance.graph), cluster=instance.cluster
        )
    block = stage_blocks(instance)
    parts = 0 if block is None else int(block.max()) + 1
    for name in METHODS:
        method = find_method(name)
        if why_not(method, Task(instance, semantics), method.params()) is None:
            found = run_method(instance, semantics, name, time_limit_s=1)
            if parts < semantics.stages_per_device:
                assert f"too few layers for this schedule: {parts};" in found.message
            else:
                assert found.value_ns is not None, (instance.name, name, found.message)


@pytest.mark.deep
@pytest.mark.parametrize("name", corpus_names())
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zero_bubble"])
def test_every_method_finds_a_plan_for_every_training_step(name: str, schedule: str) -> None:
    if any(op.backward for op in load(name).graph.ops):
        chunks = 2 if schedule == "interleaved" else 1
        rules = {"schedule": schedule, "stages_per_device": chunks, "microbatches": 24}
        check(name, PipelineIteration.model_validate(rules))


def test_a_weight_that_first_and_last_layer_share_leaves_the_layers_between_apart() -> None:
    # all 212 layers of GPT-2 were one stage while the sum of the shared gradients bound its copies
    found = run_method(roomy(load("gpt2-train")), PipelineIteration(), "even-split")
    assert len(set(found.plan.placement)) == 2
