"""Language models as chains of layers: their sizes, and what they are on devices."""

import pytest

from placegap.experiments.research.tables.pipelines import pipeline_of
from placegap.instances.corpus.layer_chains import SHAPES, layer_chain


@pytest.mark.parametrize(
    ("name", "billions"), [("llama-7b", 6.7), ("gpt-3-13b", 12.9), ("moe-16b", 15.6)]
)
def test_the_parameters_add_up_to_what_the_papers_say(name: str, billions: float) -> None:
    # norms and biases are left out, and the MoE model's attention is written in full
    parameters = sum(op.parameter_bytes for op in layer_chain(name).ops) / 2 / 1e9
    assert parameters == pytest.approx(billions, rel=0.05)


def test_every_layer_has_a_backward_op_of_twice_the_work_beside_it() -> None:
    for name in SHAPES:
        ops = layer_chain(name).ops
        half = len(ops) // 2
        for forward, backward in zip(ops[:half], ops[half:], strict=True):
            assert backward.backward
            assert backward.colocation == forward.colocation
            assert backward.flops == 2 * (forward.flops or 0)


def test_the_loss_layer_is_heavy_and_the_embedding_light() -> None:
    instance = pipeline_of(layer_chain("moe-16b"), 2)
    times = instance.arrays.time_ns[: len(instance.graph.ops) // 2, 0]
    assert times[0] < times[1] < times[-1]
