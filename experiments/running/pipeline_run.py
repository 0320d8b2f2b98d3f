"""A pipeline run by torch on processes of this machine, beside what the referee predicts of it.

The processes end together: one that dies, raises or takes too long ends all of them, and so does
the end of the command, for the parent kills them, and the kernel does where the parent is killed
itself (`worker_process`). What they do is in `pipeline_stage`, which needs torch.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from statistics import median
from typing import Any

from placegap.instances.io.export_stages import split_points
from placegap.instances.problem import Instance, PipelineIteration, Plan, Semantics
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.iteration import Iteration, simulate_iteration
from placegap.instances.referee.simulate import PlanError
from placegap.instances.torch_models.options import DeviceType, TraceOptions
from placegap.solvers.core.worker_process import WorkerProcess, silence

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


GRACE_S = 1.0
"""How long the others are heard after a first complaint: it may be about one that has died."""

LOOPBACKS = ("lo", "lo0")


class ProcessesFailed(RuntimeError):
    """One process of several ended them all; the message is one line."""


@dataclass(frozen=True)
class _Complaint:
    """What a process raised, in one line."""

    sentence: str


def run_together(
    function: Callable[..., Any], args: tuple[Any, ...], count: int, limit_s: float
) -> list[Any]:
    """Call ``function(*args, store, rank)`` in so many processes at a time; their answers.

    Parameters
    ----------
    function : callable
        A function of a module (it is pickled by name). It gets the path of a file at which
        processes find each other, and its number.
    args : tuple
        What can be pickled.
    limit_s : float
        Seconds for all.
    """
    processes: list[WorkerProcess] = []
    with tempfile.TemporaryDirectory(prefix="placegap-") as folder:
        try:
            for rank in range(count):
                task = (function, (*args, str(Path(folder) / "store"), rank))
                processes.append(WorkerProcess(_serve, task))
            return _answers(processes, limit_s)
        except OSError as error:
            raise ProcessesFailed(f"processes cannot start ({error.strerror})") from None
        finally:
            for process in processes:
                process.kill()


def _answers(processes: list[WorkerProcess], limit_s: float) -> list[Any]:
    rank_of = {process.pipe: rank for rank, process in enumerate(processes)}
    answers: dict[int, Any] = {}
    complaint: str | None = None
    deadline = time.monotonic() + limit_s
    while rank_of:
        heard = wait(list(rank_of), timeout=max(0.0, deadline - time.monotonic()))
        if not heard and complaint is None:
            open_ones = ", ".join(str(rank) for rank in sorted(rank_of.values()))
            raise ProcessesFailed(
                f"process {open_ones} of {len(processes)} had not ended after {limit_s:g} s; all"
                " were stopped"
            )
        if not heard:
            break
        for pipe in heard:
            assert isinstance(pipe, Connection)
            rank = rank_of.pop(pipe)
            try:
                answer = pipe.recv()
            except (EOFError, ConnectionResetError):
                how = processes[rank].last_words()
                raise ProcessesFailed(
                    f"process {rank} of {len(processes)} died ({how}); all were stopped"
                ) from None
            if isinstance(answer, _Complaint) and complaint is None:
                complaint = f"process {rank} of {len(processes)}: {answer.sentence}"
                deadline = min(deadline, time.monotonic() + GRACE_S)
            answers[rank] = answer
    if complaint is not None:
        raise ProcessesFailed(complaint)
    return [answers[rank] for rank in range(len(processes))]


def _serve(pipe: Connection, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Life of one process."""
    silence()
    try:
        answer = function(*args)
    except Exception as error:  # torch and models of users raise whatever they like
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        answer = _Complaint(f"{type(error).__name__}: {lines[0] if lines else 'no message'}")
    pipe.send(answer)


def loopback() -> str | None:
    """Name of the network interface that leads from this machine to itself, if it has one."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in LOOPBACKS if name in names), None)


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


def relative_error(predicted_ns: int, measured_ns: int) -> float | None:
    """By which share of the prediction the measured time is above it."""
    return (measured_ns - predicted_ns) / predicted_ns if predicted_ns else None


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
    from placegap.experiments.running.pipeline_stage import run_stages

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
