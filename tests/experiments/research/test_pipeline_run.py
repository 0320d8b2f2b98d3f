"""Predicted against measured: what is compared, and what is refused."""

from __future__ import annotations

import pytest

from placegap.experiments.research.pipeline_run import (
    ProcessReport,
    StageWork,
    compared,
    pipeline_job,
)
from placegap.instances import InputError, Instance, MaxLoad, PipelineIteration, Plan, example
from placegap.instances.torch_models.options import TraceOptions

TWO = PipelineIteration(schedule="gpipe", microbatches=2)


def in_layers() -> Instance:
    """The diamond of four ops, as two layers of two ops each."""
    instance = example()
    ops = [
        op.model_copy(update={"module": f"h.{number // 2}"})
        for number, op in enumerate(instance.graph.ops)
    ]
    graph = instance.graph.model_copy(update={"ops": tuple(ops)})
    return instance.model_copy(update={"graph": graph})


def test_work_is_that_of_all_microbatches_and_an_iteration_spans_all_processes() -> None:
    instance = in_layers()
    plan = Plan.on([0, 0, 1, 1])
    job, predicted = pipeline_job(instance, plan, TWO, "hf:net", TraceOptions())
    assert (job.begins, job.num_processes) == (("h.1",), 2)
    reports = [
        ProcessReport(((0, 50), (100, 190)), (StageWork(0, (40, 60), (0, 0)),), None),
        ProcessReport(((5, 80), (95, 210)), (StageWork(1, (30, 34), (0, 0)),), 0.0),
    ]
    found = compared(instance, job, predicted, reports)
    # ops take 25 and 18 ns in the two stages; the docstring of simulate_iteration derives 89
    assert found.predicted_ns == 89
    assert [stage.predicted_ns for stage in found.stages] == [(50, 0), (36, 0)]
    assert [stage.measured_ns for stage in found.stages] == [(50, 0), (32, 0)]  # medians
    assert [stage.best_ns for stage in found.stages] == [(40, 0), (30, 0)]
    assert found.iterations_ns == (80, 115)  # 80 - 0, 210 - 95
    assert (found.measured_ns, found.best_ns, found.difference) == (98, 80, 0.0)


def test_a_plan_that_is_no_pipeline_is_refused_in_one_line() -> None:
    instance = in_layers()
    plan = Plan.on([0, 0, 1, 1])
    with pytest.raises(InputError, match="place with --objective pipeline_iteration"):
        pipeline_job(instance, plan, MaxLoad(), "hf:net", TraceOptions())
    with pytest.raises(InputError, match=r"is on two stages .* --granularity layer"):
        pipeline_job(instance, Plan.on([0, 1, 1, 1]), TWO, "hf:net", TraceOptions())
    apart = PipelineIteration(schedule="zero_bubble")
    with pytest.raises(InputError, match="zero_bubble: torch has no such schedule"):
        pipeline_job(instance, plan, apart, "hf:net", TraceOptions())
    rules = PipelineIteration(schedule="interleaved", stages_per_device=2)
    with pytest.raises(InputError, match="interleaved: torch runs it for training only"):
        pipeline_job(instance, plan, rules, "hf:net", TraceOptions())
