"""Splits into stages: even-split, heaviest-stage, simulated-moves, alpa."""

import random
from itertools import combinations, pairwise

import numpy as np
from draws import draw, hybrid
from draws.pipelines import iteration_semantics, layer_row, model_row, pipeline_instance

from placegap.instances import (
    HybridPipeline,
    MaxLoad,
    Mode,
    PipelineIteration,
    evaluate,
    load_corpus,
)
from placegap.instances.problem.nets import stage_blocks
from placegap.instances.transforms.one_pipeline import one_pipeline
from placegap.solvers import run_method
from placegap.solvers.placers.pipeline_stages import alpa_cuts, lightest_cuts, stage_times

METHODS = ("even-split", "heaviest-stage", "simulated-moves")


def test_an_even_split_has_one_layer_more_in_its_first_stages() -> None:
    found = run_method(layer_row([1] * 7, None, num_devices=3), PipelineIteration(), "even-split")
    assert found.plan.stage == (0, 0, 0, 1, 1, 2, 2)
    # interleaved: as many devices as divide the microbatches
    rounds = PipelineIteration(schedule="interleaved", stages_per_device=2, microbatches=4)
    found = run_method(layer_row([1] * 9, None, num_devices=3), rounds, "even-split")
    assert found.plan.stage == (0, 0, 0, 1, 1, 2, 2, 3, 3)


def test_the_heaviest_stage_is_max_loads_optimum() -> None:
    row = model_row(12, 4, 0, 10**5)
    found = run_method(row, PipelineIteration(microbatches=4), "heaviest-stage")
    chain = MaxLoad(plans="chain")
    optimum = run_method(row, chain, "ideal-dp").value_ns
    assert evaluate(row, type(found.plan)(found.plan.placement), chain).value_ns == optimum


def test_layers_of_one_stage_may_have_different_modes() -> None:
    # the first and the last layer are tied, so that the one between them is in their stage, too
    row = layer_row([1, 1, 1], None)
    modes = [(Mode(name=name, time_ns={"gpu": 1}),) for name in ("keep", "recompute", "keep")]
    tied = draw.with_ops(row, modes=modes, colocation=["tied", None, "tied"])
    found = run_method(tied, PipelineIteration(microbatches=2), "heaviest-stage")
    assert found.value_ns == 6


def test_the_lightest_cuts_are_those_of_enumeration() -> None:
    # 4 runs of 7 loads: all three cuts tried
    for seed in range(10):
        load = np.random.default_rng(seed).integers(0, 20, 7)
        cuts = lightest_cuts(load, 4)
        best = min(
            max(load[:a].sum(), load[a:b].sum(), load[b:c].sum(), load[c:].sum())
            for a in range(1, 5)
            for b in range(a + 1, 6)
            for c in range(b + 1, 7)
        )
        assert max(part.sum() for part in np.split(load, cuts)) == best


def test_simulated_moves_are_never_worse_than_the_dp_and_help_where_few_microbatches_run() -> None:
    # m = p: the first stages wait for the last, so that a lighter last stage pays
    row, semantics = model_row(32, 8, 0, 10**5), PipelineIteration(microbatches=8)
    exact = run_method(row, semantics, "stage-cuts", time_limit_s=120)
    values = {method: run_method(row, semantics, method).value_ns for method in METHODS}
    assert exact.status == "optimal"
    assert all(value is not None and value >= (exact.value_ns or 0) for value in values.values())
    assert (values["simulated-moves"] or 0) < (values["even-split"] or 0)


def test_a_weight_that_first_and_last_layer_share_leaves_the_layers_between_apart() -> None:
    # all 212 layers of GPT-2 were one stage while the sum of the shared gradients bound its copies
    step = load_corpus("gpt2-train").instance()
    roomy = draw.with_devices(step, memory_bytes=[None] * step.num_devices)
    found = run_method(roomy, PipelineIteration(), "even-split")
    assert len(set(found.plan.placement)) == 2


def test_plans_are_chains_whatever_the_instance_is() -> None:
    made = 0
    for seed in range(16):
        instance, rng = pipeline_instance(seed), random.Random(f"splits-{seed}")
        semantics = iteration_semantics(rng)
        for method in METHODS[::2]:
            found = run_method(instance, semantics, method)
            made += found.value_ns is not None
            assert found.value_ns is not None or found.message
    assert made >= 10


# ------------------------------------------------------------------------------------------- alpa


def test_the_cuts_are_those_of_enumeration() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        times = rng.integers(0, 40, (8, 8))
        most, rounds = int(rng.integers(1, 6)), int(rng.integers(1, 9))

        def worth(cuts: tuple[int, ...]) -> int:
            ends = (0, *cuts, 7)
            runs = [int(times[a, b]) for a, b in pairwise(ends)]  # noqa: B023
            return sum(runs) + (rounds - 1) * max(runs)  # noqa: B023

        every = [c for n in range(most) for c in combinations(range(1, 7), n)]
        found = tuple(alpa_cuts(times, most, rounds).tolist())
        assert worth(found) == min(map(worth, every))


def test_a_stage_takes_its_ops_and_what_crosses_its_borders() -> None:
    folded, rules = one_pipeline(hybrid.layer_row(), HybridPipeline(microbatches=8), (1, 1), "keep")
    block = stage_blocks(folded)
    times = stage_times(folded, rules, block)
    # a byte forward and a byte backward, 1 ns each, at each border; the ends take 8, layers 30
    assert times[0, 8] == 2 * 8 + 6 * 30
    assert times[0, 1] == 8 + 2
    assert times[2, 4] == 60 + 4


def test_plans_are_no_better_than_the_optimum_and_near_it_for_many_microbatches() -> None:
    for microbatches, most in ((8, 1.08), (32, 1.03)):
        row, rules = model_row(32, 8, 0, 10**5), PipelineIteration(microbatches=microbatches)
        exact = run_method(row, rules, "stage-cuts", time_limit_s=60)
        value = run_method(row, rules, "alpa").value_ns
        assert exact.status == "optimal"
        assert exact.value_ns <= value <= most * exact.value_ns
