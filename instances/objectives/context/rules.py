"""Tokens whose keys and values fit on every device."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from placegap.instances.objectives.base import LoadRule, PlanClass, Semantics, Unit
from placegap.instances.objectives.max_load.rules import MaxLoad

MOST_TOKENS = 10**9
"""What the value is where no device's memory limits the tokens."""


class MaxContext(Semantics):
    """Number of tokens whose keys and values fit on every device; maximized.

    Ops hold their resident bytes, with their stated caches replaced by caches of that many tokens
    (`Cache`). Loads are computed from the stated times.

    Examples
    --------
    >>> MaxContext(plans="chain", at_most_ns=20).label
    'max_context chain add at most 20 ns'
    """

    folder: ClassVar[str] = "context"
    unit: ClassVar[Unit] = "tokens"
    is_maximized: ClassVar[bool] = True

    objective: Literal["max_context"] = "max_context"
    #: Which plans compete. Where a file of version 1 states none, it means any.
    plans: PlanClass = "chain"

    #: Compute + communication, or the larger of the two.
    load: LoadRule = "add"

    #: The load that no device may exceed, as under max_load; None: no limit.
    at_most_ns: Annotated[int, Field(ge=0, le=2**62)] | None = None

    @property
    def label(self) -> str:
        """Short text that names every rule in force."""
        limit = "" if self.at_most_ns is None else f" at most {self.at_most_ns} ns"
        return f"max_context {self.plans} {self.load}{limit}"

    @property
    def loads(self) -> MaxLoad:
        """The rules of the loads that are limited."""
        return MaxLoad(plans=self.plans, load=self.load)
