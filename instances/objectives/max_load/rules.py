"""Loads of devices: one, or one for each pass."""

from __future__ import annotations

from typing import ClassVar, Literal

from placegap.instances.objectives.base import (
    PEAK,
    PLAN_CLASSES,
    LoadRule,
    MemoryRule,
    PlanClass,
    Semantics,
)


class Loads(Semantics):
    """The value is made of loads of devices: no schedule, a class of plans."""

    folder: ClassVar[str] = "max_load"

    #: Which plans compete. Where a file of version 1 states none, it means any.
    plans: PlanClass = "chain"

    #: Compute + communication, or the larger of the two.
    load: LoadRule = "add"

    #: As for makespan; at the fullest step of a pipeline.
    memory: MemoryRule = "sum"

    @property
    def memory_moment(self) -> Literal["step"]:
        """Ops run one after another."""
        return "step"

    def narrower(self) -> tuple[Semantics, ...]:
        """Classes of plans within this one; then those of max_load without replicas and levels."""
        nested = PLAN_CLASSES[PLAN_CLASSES.index(self.plans) :: -1]
        rules = [self.with_plans(plans) for plans in nested]
        return (*rules, *(self.together.with_plans(plans) for plans in nested))

    @property
    def together(self) -> MaxLoad:
        """The rules of one load of each device, without replicas and levels."""
        return MaxLoad(plans=self.plans, load=self.load, memory=self.memory)


class MaxLoad(Loads):
    """Load of the heaviest device: the time per sample of a full pipeline (`loads`).

    Examples
    --------
    >>> MaxLoad(plans="chain", levels=2).label
    'max_load chain add 2 levels'
    """

    load_passes: ClassVar[tuple[bool | None, ...]] = (None,)

    objective: Literal["max_load"] = "max_load"
    #: Whether several equal devices may share a stage (`loads`).
    replicas: bool = False

    #: 2 charges what crosses servers to the servers (`loads`).
    levels: Literal[1, 2] = 1

    @property
    def label(self) -> str:
        """Short text that names every rule in force."""
        options = (" replicas" if self.replicas else "") + (" 2 levels" if self.levels == 2 else "")
        return f"max_load {self.plans} {self.load}{options}{PEAK[self.memory]}"


class MaxLoadFwdBwd(Loads):
    """Load of the heaviest forward device + that of the heaviest backward device (`loads`)."""

    load_passes: ClassVar[tuple[bool | None, ...]] = (False, True)

    objective: Literal["max_load_fwd_bwd"] = "max_load_fwd_bwd"

    @property
    def label(self) -> str:
        """Short text that names every rule."""
        return f"max_load_fwd_bwd {self.plans} {self.load}{PEAK[self.memory]}"
