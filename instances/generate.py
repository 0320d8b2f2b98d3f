"""Seeded random graphs of any size, by family."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from placegap.instances import shapes
from placegap.instances.collector import paused_collector
from placegap.instances.errors import InputError, from_validation_error
from placegap.instances.model import Edge, Graph, Name, Op, Provenance
from placegap.instances.shapes import Shape
from placegap.instances.training import mirror_training
from placegap.instances.transfer import NS_PER_S

LARGEST_GRAPH = 10_000_000
"""Ops or edges; a limit against slips, far above what any method takes."""

FLOPS_PER_NS = 10_000
BYTES_MOVED_PER_NS = 500
"""An op that takes 1 ns on the reference device does 10,000 FLOPs and moves 500 bytes (10 TFLOP/s,
0.5 TB/s), so that ops can also be costed for the kinds of the catalogue."""

Size = Annotated[int, Field(ge=1, le=LARGEST_GRAPH)]
Share = Annotated[float, Field(ge=0, le=1)]


def _kinds(value: Any) -> Any:
    """Also as text: "gpu:1,cpu:10"."""
    if not isinstance(value, str):
        return value
    pairs = (part.rpartition(":") for part in value.split(","))
    return {kind.strip(): factor for kind, _, factor in pairs}


class Params(BaseModel):
    """What all families share.

    Attributes
    ----------
    op_time_ns : int
        Mean time of an op on a kind of factor 1; times are uniform in [0.5, 1.5] of it.
    kinds : dict of str to float
        Device kinds, and how many times slower than the reference each is; as text "gpu:1,cpu:10".
    communication_ratio : float
        Mean transfer time of an edge at `bandwidth_bytes_per_s`, divided by the mean time of an op
        (HEFT's CCR). All edges out of an op carry its one output.
    bandwidth_bytes_per_s : int
        Reference bandwidth that sizes tensors; the cluster decides the real one.
    parameter_bytes : int
        Mean size of an op's parameters; what is resident is parameters plus output.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    op_time_ns: Annotated[int, Field(ge=2, le=10**12)] = 100_000
    kinds: Annotated[
        dict[Name, Annotated[float, Field(gt=0, le=10**6)]],
        BeforeValidator(_kinds),
        Field(min_length=1),
    ] = Field(default={"gpu": 1.0, "cpu": 10.0})
    communication_ratio: Annotated[float, Field(ge=0, le=10**6)] = 0.5
    bandwidth_bytes_per_s: Annotated[int, Field(ge=1, le=10**15)] = 10**10
    parameter_bytes: Annotated[int, Field(ge=0, le=10**12)] = 1_000_000


class LayeredParams(Params):
    """Parameters of `layered`: `width` ops per layer on average, `density` of the layer before."""

    ops: Size = 100
    width: Size = 8
    density: Share = 0.3


class SeriesParallelParams(Params):
    """Parameters of `series-parallel`: `parallel` is the share of parallel compositions."""

    ops: Annotated[int, Field(ge=2, le=LARGEST_GRAPH)] = 100
    parallel: Share = 0.4


class BlocksParams(Params):
    """Parameters of `blocks`: blocks in a row, branches of each, ops per branch."""

    blocks: Size = 9
    branches: Size = 4
    length: Size = 2


class ChainsParams(Params):
    """Parameters of `parallel-chains`."""

    chains: Size = 4
    length: Size = 25


class ForkJoinParams(Params):
    """Parameters of `fork-join`: `stages` in a row, `width` ops side by side in each."""

    stages: Size = 5
    width: Size = 18


class TrainingParams(LayeredParams):
    """Parameters of `training`: `ops` forward ops, layered; the graph has three times as many."""


@dataclass(frozen=True)
class Family:
    """A family of graphs: its parameters, how large a graph they make, and the graph."""

    summary: str
    params: type[Params]
    build: Callable[[random.Random, Any], Graph]


def generate(family: str, params: Mapping[str, Any] | None = None, seed: int = 0) -> Graph:
    """Make a random graph of a family; the same arguments always give the same graph.

    Parameters
    ----------
    family : str
        A name of `FAMILIES`.
    params : mapping, optional
        Parameters of the family, as values or as text.
    seed : int

    Returns
    -------
    Graph
        Its provenance names family, parameters and seed. 100,000 ops take a few seconds.

    Raises
    ------
    InputError
        Unknown family, unknown or wrong parameters.

    Examples
    --------
    >>> graph = generate("layered", {"ops": 20, "width": 3, "communication_ratio": 2}, seed=7)
    >>> len(graph.ops), graph == generate("layered", graph_params := {
    ...     "ops": "20", "width": "3", "communication_ratio": "2"}, seed=7)
    (20, True)
    """
    if family not in FAMILIES:
        raise InputError(f"there is no family {family!r}; choose from {', '.join(FAMILIES)}")
    chosen = FAMILIES[family]
    try:
        parsed = chosen.params.model_validate(dict(params or {}))
    except ValidationError as error:
        raise from_validation_error(error, source=f"parameters of {family}") from None
    stated = parsed.model_dump(mode="json")
    stated["kinds"] = ",".join(f"{kind}:{factor:g}" for kind, factor in parsed.kinds.items())
    provenance = Provenance(
        source=f"placegap generate {family}", parameters={**stated, "seed": seed}
    )
    try:
        with paused_collector():
            graph = chosen.build(random.Random(f"{family} {seed}"), parsed)
            return graph.model_copy(update={"name": f"{family}-{seed}", "provenance": provenance})
    except ValidationError as error:
        raise from_validation_error(error, source=f"parameters of {family}") from None
