"""A batch in a pipeline whose stages have replicas, tensor parallelism and modes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from placegap.instances.objectives.base import PlanClass, Semantics

Degrees = Literal["free", "one_t", "one"]
Recompute = Literal["per_layer", "per_stage", "all_or_none"]
Sharding = Literal["none", "optimizer", "gradients"]

MAX_BATCH = 2**20
"""Microbatches where they are no events."""


class HybridPipeline(Semantics):
    """Time of a batch in a full pipeline whose stages have replicas, tensor parallelism and modes.

    The time of the slowest stage; `bubble` adds filling and draining (`hybrid.referee`).

    Examples
    --------
    >>> HybridPipeline(microbatches=64).label
    'hybrid_pipeline m=64 one per_layer'
    >>> HybridPipeline(microbatches=64, degrees="free", sharding="optimizer").label
    'hybrid_pipeline m=64 free per_layer shard=optimizer'
    >>> HybridPipeline(microbatches=64, bubble=True).label
    'hybrid_pipeline m=64 one per_layer bubble'
    """

    folder: ClassVar[str] = "hybrid"
    has_stages: ClassVar[bool] = True
    allows_hosts: ClassVar[bool] = False
    plan_fields: ClassVar[frozenset[str]] = frozenset({"stage", "tensor", "mode"})

    objective: Literal["hybrid_pipeline"] = "hybrid_pipeline"
    #: How many microbatches a batch has; the times of ops are those of one.
    microbatches: Annotated[int, Field(ge=1, le=MAX_BATCH)] = 8

    #: Which replicas d and tensor degrees t the stages may have: any, any d and one t, or one d and
    #: one t for all, as trainers run them.
    degrees: Degrees = "one"

    #: What chooses a mode by its name: a layer, a stage, or all of the model at once.
    recompute: Recompute = "per_layer"

    #: What the replicas of a stage divide among them: nothing, the optimizer's state, or that and
    #: the gradients.
    sharding: Sharding = "none"

    #: Whether filling and draining the pipeline count, which one d for all stages makes equal.
    bubble: bool = False

    @model_validator(mode="after")
    def _check_degrees(self) -> Self:
        if self.bubble and self.degrees != "one":
            raise ValueError(
                f"bubble: filling and draining do not count for degrees {self.degrees}; add"
                " --degrees one or --no-bubble"
            )
        return self

    @property
    def plan_class(self) -> PlanClass:
        """Chains of stages."""
        return "chain"

    @property
    def label(self) -> str:
        """Short text that names every rule in force."""
        shard = "" if self.sharding == "none" else f" shard={self.sharding}"
        shard += " bubble" if self.bubble else ""
        return f"hybrid_pipeline m={self.microbatches} {self.degrees} {self.recompute}{shard}"
