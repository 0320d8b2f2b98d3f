"""alpa: the cuts of enumeration for Alpa's objective, and the best iteration without sending."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from draws.hybrid import layer_row
from draws.pipelines import model_row, pipeline_instance

from placegap.instances import HybridPipeline, InputError, PipelineIteration
from placegap.instances.problem.nets import stage_blocks
from placegap.instances.transforms.one_pipeline import one_pipeline
from placegap.solvers import run_method
from placegap.solvers.placers.pipeline_stages import alpa_cuts, stage_times


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
    folded, rules = one_pipeline(layer_row(), HybridPipeline(microbatches=8), (1, 1), "keep")
    block = stage_blocks(folded)
    assert block is not None
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
        assert value is not None
        assert exact.value_ns is not None
        assert exact.value_ns <= value <= most * exact.value_ns


def test_interleaved_is_refused() -> None:
    rounds = PipelineIteration(schedule="interleaved", stages_per_device=2)
    with pytest.raises(InputError, match="one stage for each device"):
        run_method(pipeline_instance(3), rounds, "alpa")
