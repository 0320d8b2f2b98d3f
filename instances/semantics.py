"""Semantics: what a number means. Every comparison is made under exactly one of these."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

Objective = Literal["makespan", "max_load"]
Transfers = Literal["per_edge", "per_tensor"]
Channels = Literal["free", "link", "port", "half_duplex"]
PlanClass = Literal["any", "convex", "chain"]
LoadRule = Literal["add", "overlap"]

PLAN_CLASSES: tuple[PlanClass, ...] = ("chain", "convex", "any")
"""Each class is contained in all that follow it."""


class Semantics(BaseModel):
    """The rules that turn a plan into a value.

    Attributes
    ----------
    objective : {"makespan", "max_load"}
        End of the last op of one pass, or the load of the heaviest device (the time per sample of
        a full pipeline).
    transfers : {"per_edge", "per_tensor"}
        makespan only: every remote edge is a transfer, or a tensor goes once to each device.
    channels : {"free", "link", "port", "half_duplex"}
        makespan only: what a transfer occupies. ``free``: nothing (HEFT); ``link``: the ordered
        device pair (Pesto); ``port``: the sender's output and the receiver's input (Moirai, eq. 8);
        ``half_duplex``: both devices' only port.
    plans : {"any", "convex", "chain"}
        max_load only: which plans compete.
    load : {"add", "overlap"}
        max_load only: compute + communication, or the larger of the two.

    Examples
    --------
    >>> Semantics(objective="makespan", channels="link").label
    'makespan link per_edge'
    >>> Semantics(objective="max_load", plans="chain").label
    'max_load chain add'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    objective: Objective
    transfers: Transfers = "per_edge"
    channels: Channels = "port"
    plans: PlanClass = "any"
    load: LoadRule = "add"

    @model_validator(mode="after")
    def _only_what_applies(self) -> Self:
        foreign = ("plans", "load") if self.objective == "makespan" else ("transfers", "channels")
        for name in foreign:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} does not apply to the objective {self.objective}")
        return self

    @property
    def label(self) -> str:
        """Short text that names every rule that applies."""
        if self.objective == "makespan":
            return f"makespan {self.channels} {self.transfers}"
        return f"max_load {self.plans} {self.load}"
