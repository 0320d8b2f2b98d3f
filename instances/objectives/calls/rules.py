"""One pass whose accelerators run whole subgraphs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from placegap.instances.objectives.base import Semantics

MAX_SUBGRAPHS = 1024  # calls of one accelerator; methods make something of each, used or not


class LatencySubgraphs(Semantics):
    """End of one pass whose accelerators run whole subgraphs (`calls.referee`)."""

    folder: ClassVar[str] = "calls"
    plan_fields: ClassVar[frozenset[str]] = frozenset({"call"})
    pools_hosts: ClassVar[bool] = True

    objective: Literal["latency_subgraphs"] = "latency_subgraphs"
    #: How many calls an accelerator makes at most.
    subgraphs: Annotated[int, Field(ge=1, le=MAX_SUBGRAPHS)] = 1

    @property
    def label(self) -> str:
        """Short text that names every rule."""
        return f"latency_subgraphs {self.subgraphs}"
