"""One training iteration of a pipeline of stages."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from placegap.instances.objectives.base import PEAK, MemoryRule, PlanClass, Semantics

PipelineSchedule = Literal["gpipe", "1f1b", "interleaved", "zero_bubble"]
Sending = Literal["overlap", "blocking"]

MAX_MICROBATCHES = 4096
MAX_STAGES_PER_DEVICE = 64  # a schedule has two events for each microbatch and stage


class PipelineIteration(Semantics):
    """Time of one training iteration of a pipeline of stages (`iteration.referee`).

    Without backward ops: the time of all microbatches.

    Examples
    --------
    >>> PipelineIteration(microbatches=4).label
    'pipeline_iteration 1f1b m=4 overlap'
    >>> PipelineIteration(schedule="interleaved", stages_per_device=2, sending="blocking").label
    'pipeline_iteration interleaved v=2 m=8 blocking'
    """

    folder: ClassVar[str] = "iteration"
    has_stages: ClassVar[bool] = True
    plan_fields: ClassVar[frozenset[str]] = frozenset({"stage"})

    objective: Literal["pipeline_iteration"] = "pipeline_iteration"
    #: In which order a device runs the microbatches: all forward, then all backward; one forward,
    #: one backward; that with several stages per device, or with gradients of weights apart, later
    #: than those of inputs (`stages.device_orders`).
    schedule: PipelineSchedule = "1f1b"

    #: How many stages a device has under ``interleaved``; else 1.
    stages_per_device: Annotated[int, Field(ge=1, le=MAX_STAGES_PER_DEVICE)] = 1

    #: How many microbatches an iteration has; the times of ops are those of one.
    microbatches: Annotated[int, Field(ge=1, le=MAX_MICROBATCHES)] = 8

    #: What moves tensors: the links, beside the work of the devices; or the devices themselves, as
    #: under max_load with ``load: add``.
    sending: Sending = "overlap"

    #: What a device holds of the microbatch that it works on: the resident bytes of its ops; or
    #: their state, and what is live at the fullest moment, as for max_load. And what is kept of
    #: further ones (`iteration.referee`).
    memory: MemoryRule = "sum"

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if self.schedule == "interleaved" and self.stages_per_device == 1:
            raise ValueError("stages_per_device: the schedule interleaved needs 2 or more")
        if self.schedule != "interleaved" and self.stages_per_device > 1:
            raise ValueError(
                f"stages_per_device: more than 1 needs the schedule interleaved, not"
                f" {self.schedule}"
            )
        return self

    @property
    def plan_class(self) -> PlanClass:
        """Chains of stages."""
        return "chain"

    @property
    def memory_moment(self) -> Literal["step", "op"]:
        """Where all of a device's ops pass at a stretch, a step; else nothing beside one op."""
        whole = self.stages_per_device == 1 and self.schedule != "zero_bubble"
        return "step" if whole else "op"

    @property
    def label(self) -> str:
        """Short text that names every rule in force."""
        stages = f" v={self.stages_per_device}" if self.stages_per_device > 1 else ""
        rules = f"{self.schedule}{stages} m={self.microbatches} {self.sending}"
        return f"pipeline_iteration {rules}{PEAK[self.memory]}"
