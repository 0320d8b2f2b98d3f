"""Modes of layers: the published formulas for time, activations and state of transformers."""

import pytest

from placegap.instances.corpus.layer_chains import SHAPES, chain_with_modes, shape_layers
from placegap.instances.costing.layer_modes import ModelledOn, Rates, layer_modes, tensor_choices
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.problem import Mode

SLOW = Rates(10**12, 10**11)
GPT, TENSOR = SHAPES["megatron-22b"], 8
TOKENS, HIDDEN, HEADS = GPT.tokens, GPT.hidden, GPT.heads
UNIT = TOKENS * HIDDEN


def modes_of(number: int, *, sequence: bool = True) -> dict[tuple[str, int], Mode]:
    on = ModelledOn({"gpu": SLOW}, (1, TENSOR), sequence=sequence)
    found = layer_modes(shape_layers(GPT)[number], on)
    return {(mode.name, mode.tensor): mode for mode in found}


def test_activations_are_those_of_korthikanti_et_al() -> None:
    # table 2: s b h / t (34 + 5 a s / h); 34 s b h / t; with full recomputation the input, 2 s b h
    scores = 5 * HEADS * TOKENS**2
    modes = modes_of(1)
    assert modes["keep", TENSOR].held_bytes == (34 * UNIT + scores) // TENSOR
    assert modes["selective", TENSOR].held_bytes == 34 * UNIT // TENSOR
    assert modes["full", TENSOR].held_bytes == 2 * UNIT // TENSOR
    # without sequence parallelism: s b h (10 + 24 / t + 5 a s / (h t))
    whole = modes_of(1, sequence=False)
    assert whole["keep", TENSOR].held_bytes == 10 * UNIT + (24 * UNIT + scores) // TENSOR
    # what is recomputed is there once, while the layer's backward pass runs
    dropped = modes["keep", TENSOR].held_bytes - modes["full", TENSOR].held_bytes
    assert modes["full", TENSOR].workspace_bytes == dropped


def test_times_are_the_products_and_the_collectives() -> None:
    # Narayanan et al. 2021: 24 s h^2 (1 + s / 6 h) FLOPs forward, twice as many backward
    forward = 24 * TOKENS * HIDDEN**2 + 4 * TOKENS**2 * HIDDEN
    modes = modes_of(1)
    assert modes["keep", 1].time_ns["gpu"] == pytest.approx(3 * forward / 1000, abs=1)
    assert modes["full", 1].time_ns["gpu"] == pytest.approx(4 * forward / 1000, abs=1)
    scores = 4 * TOKENS**2 * HIDDEN  # the core of attention, once more
    again = modes["selective", 1].time_ns["gpu"] - modes["keep", 1].time_ns["gpu"]
    assert again == pytest.approx(scores / 1000, abs=1)
    # four all-reduces of 2 s h bytes, six with full recomputation; a ring sends 2 (t - 1) / t
    each = 2 * 7 / 8 * 2 * UNIT * 1e9 / 1e11
    for name, flops, count in (("keep", 3 * forward, 4), ("full", 4 * forward, 6)):
        expected = flops / 8 / 1000 + count * each
        assert modes[name, TENSOR].time_ns["gpu"] == pytest.approx(expected, abs=10)


@pytest.mark.parametrize(("name", "billions"), [("175b", 175), ("530b", 530), ("1t", 1008)])
def test_all_layers_have_the_published_parameters_and_flops(name: str, billions: float) -> None:
    shape = SHAPES[f"megatron-{name}"]
    graph = chain_with_modes(f"megatron-{name}-train", ModelledOn({"gpu": SLOW}, (1,)))
    # the first and the last layer have a table of words each
    weights = sum(op.parameter_bytes for op in graph.ops) // 2 - shape.words * shape.hidden
    assert weights / 1e9 == pytest.approx(billions, rel=0.01)
    state = sum(op.modes[0].state_bytes for op in graph.ops)
    assert state == 18 * (weights + shape.words * shape.hidden)  # 2 + 4 + 12 with Adam
    # 72 s l h^2 (1 + s / 6 h + V / 12 l h), Narayanan et al. 2021, equation 3 without recomputation
    s, layers, h = shape.tokens, shape.layers, shape.hidden
    flops = 72 * s * layers * h**2 * (1 + s / (6 * h) + shape.words / (12 * layers * h))
    total_ns = sum(op.time_ns["gpu"] for op in graph.ops)
    assert total_ns * 1000 == pytest.approx(flops, rel=1e-6)


def test_a_layer_is_split_over_what_divides_its_heads() -> None:
    layer = shape_layers(SHAPES["llama-70b"])[1]  # 8 heads of keys and values
    modes = layer_modes(layer, ModelledOn({"gpu": SLOW}, (1, 2, 8, 16)))
    assert sorted({mode.tensor for mode in modes}) == [1, 2, 8]
    # fused attention keeps no scores: the feed-forward part is what selective computes again
    held = {mode.name: mode.held_bytes for mode in modes if mode.tensor == 1}
    assert held["full"] < held["selective"] < held["keep"]


def test_each_of_t_devices_sends_its_part_between_stages() -> None:
    graph = chain_with_modes("llama-8b-train", ModelledOn({"gpu": SLOW}, (1, 8)))
    size = 8192 * 4096 * 2
    edge, layer = graph.edges[1], graph.ops[1]
    assert edge.bytes == size // 8
    sent = {m.tensor: edge.bytes + m.leave_bytes.get(edge.consumer, 0) for m in layer.modes}
    assert sent == {1: size, 8: size // 8}


def test_a_layer_may_be_split_over_what_divides_a_server() -> None:
    assert tensor_choices(load_cluster("4x6xH100")) == (1, 2)
