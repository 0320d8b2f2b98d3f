"""Semantics: what a number means. Every comparison is made under exactly one of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Objective = Literal["makespan", "max_load", "max_load_fwd_bwd", "latency_subgraphs"]
Transfers = Literal["per_edge", "per_tensor"]
Channels = Literal["free", "link", "port", "half_duplex"]
PlanClass = Literal["any", "convex", "chain"]
LoadRule = Literal["add", "overlap"]
MemoryRule = Literal["sum", "peak"]

OBJECTIVES: tuple[Objective, ...] = (
    "makespan", "max_load", "max_load_fwd_bwd", "latency_subgraphs",
)  # fmt: skip

MAX_SUBGRAPHS = 1024
"""Calls of one accelerator; methods make something of each, used or not."""

PLAN_CLASSES: tuple[PlanClass, ...] = ("chain", "convex", "any")
"""Each class is contained in all that follow it."""

FIELDS: Mapping[Objective, tuple[str, ...]] = {
    "makespan": ("transfers", "channels", "memory"),
    "max_load": ("plans", "load", "replicas", "levels", "memory"),
    "max_load_fwd_bwd": ("plans", "load", "memory"),
    "latency_subgraphs": ("subgraphs",),
}
"""The rules that each objective has."""


class Semantics(BaseModel):
    """The rules that turn a plan into a value.

    Attributes
    ----------
    objective : {"makespan", "max_load", "max_load_fwd_bwd", "latency_subgraphs"}
        End of the last op of one pass; or the load of the heaviest device (the time per sample of
        a full pipeline); or the heaviest forward load + the heaviest backward load (`loads`); or
        the end of one pass whose accelerators run whole subgraphs (`latency`).
    transfers : {"per_edge", "per_tensor"}
        makespan only: every remote edge is a transfer, or a tensor goes once to each device.
    channels : {"free", "link", "port", "half_duplex"}
        makespan only: what a transfer occupies. ``free``: nothing (HEFT); ``link``: the ordered
        device pair (Pesto); ``port``: the sender's output and the receiver's input (Moirai, eq. 8);
        ``half_duplex``: both devices' only port.
    plans : {"any", "convex", "chain"}
        max_load, max_load_fwd_bwd: which plans compete.
    load : {"add", "overlap"}
        max_load, max_load_fwd_bwd: compute + communication, or the larger of the two.
    replicas : bool
        max_load only: whether several equal devices may share a stage (`replication`).
    levels : {1, 2}
        max_load only: 2 charges what crosses servers to the servers (`servers`).
    subgraphs : int
        latency_subgraphs only: how many calls an accelerator makes at most.
    memory : {"sum", "peak"}
        All but latency_subgraphs: a device holds the resident bytes of its ops all the time; or
        their state, and what is live at the fullest moment of its schedule (`referee.memory`).

    Examples
    --------
    >>> Semantics(objective="makespan", channels="link").label
    'makespan link per_edge'
    >>> Semantics(objective="max_load", plans="chain").label
    'max_load chain add'
    >>> Semantics(objective="latency_subgraphs", subgraphs=2).label
    'latency_subgraphs 2'
    >>> Semantics(objective="makespan", memory="peak").label
    'makespan port per_edge peak'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    objective: Objective
    transfers: Transfers = "per_edge"
    channels: Channels = "port"
    plans: PlanClass = "any"
    load: LoadRule = "add"
    replicas: bool = False
    levels: Literal[1, 2] = 1
    subgraphs: Annotated[int, Field(ge=1, le=MAX_SUBGRAPHS)] = 1
    memory: MemoryRule = "sum"

    @model_validator(mode="after")
    def _only_what_applies(self) -> Self:
        for name, field in type(self).model_fields.items():
            applies = name == "objective" or name in FIELDS[self.objective]
            if not applies and getattr(self, name) != field.default:
                raise ValueError(f"{name} does not apply to the objective {self.objective}")
        return self

    @property
    def label(self) -> str:
        """Short text that names every rule that applies."""
        peak = " peak" if self.memory == "peak" else ""
        if self.objective == "makespan":
            return f"makespan {self.channels} {self.transfers}{peak}"
        if self.objective == "latency_subgraphs":
            return f"latency_subgraphs {self.subgraphs}"
        options = (" replicas" if self.replicas else "") + (" 2 levels" if self.levels == 2 else "")
        return f"{self.objective} {self.plans} {self.load}{options}{peak}"

    @property
    def is_load(self) -> bool:
        """Whether the value is made of loads of devices: no schedule, a class of plans."""
        return self.objective in ("max_load", "max_load_fwd_bwd")
