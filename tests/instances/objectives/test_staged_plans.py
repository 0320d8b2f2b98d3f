"""Brute force over chains of stages."""

from __future__ import annotations

from draws.pipelines import layer_row, shared_weight_row

from placegap.instances import PipelineIteration, example
from placegap.instances.objectives.staged_plans import best_chain, count_chains
from placegap.solvers import run_method


def test_enumerates_stages_and_devices() -> None:
    # one device: 1 chain on each of 2; two devices: 2 orders of 2^4 ways to give 4 ops a stage
    assert count_chains(example(), PipelineIteration()) == 2 + 2 * 2**4


def test_the_registry_asks_it_for_few_layers_alone() -> None:
    row, semantics = layer_row([2, 1, 1], None, num_devices=2), PipelineIteration(microbatches=3)
    # two stages of 2 ns each: 2 + 2 + 2 * 2
    assert run_method(row, semantics, "brute-force").value_ns == 8
    assert best_chain(row, semantics) is not None


def test_layers_that_share_a_weight_may_be_apart() -> None:
    # m = 2, f = 1 and b = 2 in two layers: 9 ns in two stages (gpipe's sum), 12 on one device
    row, semantics = shared_weight_row([1, 1], [2, 2], 10**6), PipelineIteration(microbatches=2)
    assert run_method(row, semantics, "brute-force").value_ns == 9
    assert run_method(row, semantics, "stage-cuts").value_ns == 9
