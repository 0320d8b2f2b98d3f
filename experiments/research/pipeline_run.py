"""A pipeline run by torch on processes of this machine, beside what the referee predicts of it.

What the processes do is in `pipeline_stage`, which needs torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from placegap.experiments.running.process_group import run_together
from placegap.instances.exporters.stages import split_points
from placegap.instances.problem import Instance, PipelineIteration, Plan, Semantics
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.iteration import Iteration, simulate_iteration
from placegap.instances.referee.rules import PlanError
from placegap.instances.torch_models.options import DeviceType, TraceOptions

WARM_UPS = 2
"""Iterations that are not counted: connections are made, memory is claimed."""


@dataclass(frozen=True)
class PipelineJob:
    """A pipeline to run."""

    #: ``hf:NAME``, ``hf:PATH.json`` or ``py:module:function``.
    model: str
    #: Batch and tokens are those of one microbatch.
    tracing: TraceOptions
    #: The module before which each stage but the first begins.
    begins: tuple[str, ...]
    #: Schedule, microbatches, stages of each process.
    semantics: PipelineIteration
    device: DeviceType = "cpu"
    #: That count, after `WARM_UPS` others.
    iterations: int = 5
    #: Of the weights and inputs.
    seed: int = 0

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.begins) + 1

    @property
    def num_processes(self) -> int:
        """One for each device of the plan."""
        return self.num_stages // self.semantics.stages_per_device


@dataclass(frozen=True)
class StageWork:
    """What one stage worked on all microbatches of each iteration, in ns, without any waiting."""

    stage: int
    forward_ns: tuple[int, ...]
    backward_ns: tuple[int, ...]


@dataclass(frozen=True)
class ProcessReport:
    """What one process saw."""

    #: Begin and end of each iteration, on a clock that all processes share.
    spans_ns: tuple[tuple[int, int], ...]
    stages: tuple[StageWork, ...]
    #: By how much outputs differ at most from those of the unsplit module; None: it has no last
    #: stage.
    difference: float | None


@dataclass(frozen=True)
class StageComparison:
    """Work of one stage in one iteration, without waiting."""

    stage: int
    #: Of the plan.
    device: str
    #: The module before which the stage begins; empty for the first.
    begins: str
    #: predicted_ns, measured_ns, best_ns: Forward and backward work: predicted, the median of the
    #: iterations, and the least of them.
    predicted_ns: tuple[int, int]
    measured_ns: tuple[int, int]
    best_ns: tuple[int, int]


@dataclass(frozen=True)
class PipelineComparison:
    """One iteration, predicted and measured."""

    semantics: PipelineIteration
    stages: tuple[StageComparison, ...]
    #: Time of an iteration, as the referee simulates it.
    predicted_ns: int
    #: Times of the iterations that were measured, from the first begin to the last end.
    iterations_ns: tuple[int, ...]
    num_processes: int
    #: By how much outputs differ at most from those of the unsplit module.
    difference: float

    @property
    def measured_ns(self) -> int:
        """The median of the iterations."""
        return round(median(self.iterations_ns))

    @property
    def best_ns(self) -> int:
        """The shortest iteration: what other programs disturbed least."""
        return min(self.iterations_ns)


def error_text(predicted_ns: int, measured_ns: int) -> str:
    """By how much a measured time is above the predicted one."""
    return f"{100 * (measured_ns / predicted_ns - 1):+.0f} %" if predicted_ns else "-"


def pipeline_job(
    instance: Instance,
    plan: Plan,
    semantics: Semantics,
    model: str,
    tracing: TraceOptions,
    device: DeviceType = "cpu",
    iterations: int = 5,
) -> tuple[PipelineJob, Iteration]:
    """What the processes are to do for a plan, and the iteration that the referee predicts."""
    if not isinstance(semantics, PipelineIteration):
        raise InputError(
            f"the plan is one of {semantics.objective}, and a pipeline is run; place with"
            " --objective pipeline_iteration"
        )
    backward = bool(instance.arrays.backward.any())
    if semantics.schedule == "zero_bubble":
        raise InputError(
            "zero_bubble: torch has no such schedule for one stage per device; run a plan for 1f1b"
        )
    if semantics.schedule == "interleaved" and not backward:
        raise InputError("interleaved: torch runs it for training only; add --train")
    try:
        predicted = simulate_iteration(instance, plan, semantics)
        begins = split_points(instance, plan, semantics)
    except PlanError as error:
        raise InputError(f"the plan is no pipeline: {error}") from None
    job = PipelineJob(model, tracing, tuple(begins), semantics, device, iterations)
    return job, predicted


def run_and_compare(
    instance: Instance, job: PipelineJob, predicted: Iteration, limit_s: float
) -> PipelineComparison:
    """Run a pipeline on processes of this machine."""
    from placegap.experiments.research.pipeline_stage import run_stages

    reports = run_together(run_stages, (job,), job.num_processes, limit_s)
    return compared(instance, job, predicted, reports)


def compared(
    instance: Instance, job: PipelineJob, predicted: Iteration, reports: Sequence[ProcessReport]
) -> PipelineComparison:
    """The reports of all processes beside the prediction."""
    work = {each.stage: each for report in reports for each in report.stages}
    expected = [[0, 0] for _ in range(job.num_stages)]
    for spans in predicted.events:
        for event, start_ns, end_ns in spans:
            expected[event.stage][event.backward] += end_ns - start_ns
    stages = []
    for s, (forward_ns, backward_ns) in enumerate(expected):
        device = instance.cluster.devices[int(predicted.stages.device[s])].name
        begins = job.begins[s - 1] if s else ""
        taken = round(median(work[s].forward_ns)), round(median(work[s].backward_ns))
        least = min(work[s].forward_ns), min(work[s].backward_ns)
        stages.append(StageComparison(s, device, begins, (forward_ns, backward_ns), taken, least))
    spans_ns = zip(*(report.spans_ns for report in reports), strict=True)
    iterations_ns = tuple(
        max(end for _, end in spans) - min(begin for begin, _ in spans) for spans in spans_ns
    )
    (difference,) = (r.difference for r in reports if r.difference is not None)
    return PipelineComparison(
        job.semantics,
        tuple(stages),
        predicted.value_ns,
        iterations_ns,
        job.num_processes,
        difference,
    )
