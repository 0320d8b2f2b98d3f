"""What the processes of a pipeline are asked to do, and what they answer; all can be pickled."""

from __future__ import annotations

from dataclasses import dataclass

from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.torch_models.options import DeviceType, TraceOptions

WARM_UPS = 2
"""Iterations that are not counted: connections are made, memory is claimed."""


@dataclass(frozen=True)
class PipelineJob:
    """A pipeline to run.

    Attributes
    ----------
    model : str
        ``hf:NAME``, ``hf:PATH.json`` or ``py:module:function``.
    tracing : TraceOptions
        Batch and tokens are those of one microbatch.
    begins : tuple of str
        The module before which each stage but the first begins.
    semantics : PipelineIteration
        Schedule, microbatches, stages of each process.
    device : {"cpu", "cuda"}
    iterations : int
        That count, after `WARM_UPS` others.
    seed : int
        Of the weights and inputs.
    """

    model: str
    tracing: TraceOptions
    begins: tuple[str, ...]
    semantics: PipelineIteration
    device: DeviceType = "cpu"
    iterations: int = 5
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
    """What one process saw.

    Attributes
    ----------
    spans_ns : tuple of (int, int)
        Begin and end of each iteration, on a clock that all processes share.
    stages : tuple of StageWork
    difference : float or None
        By how much outputs differ at most from those of the unsplit module; None: it has no last
        stage.
    """

    spans_ns: tuple[tuple[int, int], ...]
    stages: tuple[StageWork, ...]
    difference: float | None
