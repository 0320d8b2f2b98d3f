"""Parameters of the placers that learn."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from placegap.solvers.core.method import EFFORT, Params


class HrlParams(Params):
    #: How many placements are simulated; by default 100 per op, at most 4,000.
    evaluations: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    #: Groups that the grouper may fill.
    groups: int = Field(default=16, ge=1, le=1_024)
    #: Placements of one grouping, and of one update.
    samples: int = Field(default=4, ge=1, le=64)
    #: Width of the placer's LSTMs.
    width: int = Field(default=64, ge=2, le=1_024)
    #: Adam's.
    learning_rate: float = Field(default=0.003, gt=0, le=1)


MOST_NODES = 1_000  # most rows and columns of the network's matrices, which are dense


class PlacetoParams(Params):
    #: How many placements are simulated; by default 100 per op, at most 4,000.
    evaluations: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)
    #: Nodes to which graphs are merged.
    nodes: int = Field(default=64, ge=1, le=MOST_NODES)
    #: Rounds of message passing.
    rounds: int = Field(default=8, ge=1, le=64)
    #: Episodes of one update.
    workers: int = Field(default=4, ge=1, le=64)
    #: Where episodes begin: all on the device that alone is fastest, or a random placement.
    start: Literal["one-device", "random"] = "one-device"
    #: Adam's, at the beginning; Placeto's 0.001 is for far more episodes.
    learning_rate: float = Field(default=0.01, gt=0, le=1)
    #: Weight of the bonus for entropy, at the beginning; Placeto's is 1.
    entropy: float = Field(default=0.003, ge=0, le=10)
    #: A policy to begin with: one that ships (`blocks-4`), or a file.
    policy: str | None = None
    #: Whether the policy is trained at all; without it, it places each node once.
    train: bool = True
