"""Seeded random graphs of any size, by family."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from placegap.instances.corpus import shapes
from placegap.instances.corpus.generate import Shape, mirror_training
from placegap.instances.problem.instance import Edge, Graph, Name, Op, Provenance
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.reading.errors import (
    InputError,
    from_validation_error,
    instead_of,
    paused_collector,
)

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


class FamilyParams(BaseModel):
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

    def size(self) -> float:
        """About how many ops and edges the graph will have."""
        raise NotImplementedError


class LayeredParams(FamilyParams):
    """Parameters of `layered`: `width` ops per layer on average, `density` of the layer before."""

    ops: Size = 100
    width: Size = 8
    density: Share = 0.3

    def size(self) -> float:
        """About how many ops and edges the graph will have."""
        return self.ops * (2 + self.density * min(self.width, self.ops))


class SeriesParallelParams(FamilyParams):
    """Parameters of `series-parallel`: `parallel` is the share of parallel compositions."""

    ops: Annotated[int, Field(ge=2, le=LARGEST_GRAPH)] = 100
    parallel: Share = 0.4

    def size(self) -> float:
        """About how many ops and edges the graph will have."""
        return self.ops * (2 + self.parallel)


class BlocksParams(FamilyParams):
    """Parameters of `blocks`: blocks in a row, branches of each, ops per branch."""

    blocks: Size = 9
    branches: Size = 4
    length: Size = 2

    def size(self) -> float:
        """About how many ops and edges the graph will have."""
        return 1 + self.blocks * self.branches * (2 * self.length + 1)


class ChainsParams(FamilyParams):
    """Parameters of `parallel-chains`."""

    chains: Size = 4
    length: Size = 25

    def size(self) -> float:
        """About how many ops and edges the graph will have."""
        return 2 * self.chains * self.length


class ForkJoinParams(FamilyParams):
    """Parameters of `fork-join`: `stages` in a row, `width` ops side by side in each."""

    stages: Size = 5
    width: Size = 18

    def size(self) -> float:
        """About how many ops and edges the graph will have."""
        return 3 * self.stages * (self.width + 1)


class TrainingParams(LayeredParams):
    """Parameters of `training`: `ops` forward ops, layered; the graph has three times as many."""

    def size(self) -> float:
        """About how many ops and edges the graph will have."""
        return 3 * super().size()


@dataclass(frozen=True)
class Family:
    """A family of graphs: its parameters and its shape; `mirrored` makes it a training graph."""

    summary: str
    params: type[FamilyParams]
    shape: Callable[[random.Random, Any], Shape]
    mirrored: bool = False


FAMILIES: dict[str, Family] = {
    "layered": Family(
        "layers of random width, each fed by a share of the one before",
        LayeredParams,
        lambda rng, p: shapes.layered(rng, p.ops, p.width, p.density),
    ),
    "series-parallel": Family(
        "grown op by op, in series or in parallel",
        SeriesParallelParams,
        lambda rng, p: shapes.series_parallel(rng, p.ops, p.parallel),
    ),
    "blocks": Family(
        "blocks in a row, each of parallel branches, as in Inception",
        BlocksParams,
        lambda rng, p: shapes.blocks(p.blocks, p.branches, p.length),
    ),
    "parallel-chains": Family(
        "chains that share nothing",
        ChainsParams,
        lambda rng, p: shapes.parallel_chains(p.chains, p.length),
    ),
    "fork-join": Family(
        "stages of ops side by side between a fork and a join",
        ForkJoinParams,
        lambda rng, p: shapes.fork_join(p.stages, p.width),
    ),
    "training": Family(
        "a layered graph with its mirrored backward pass and parameter updates",
        TrainingParams,
        lambda rng, p: shapes.layered(rng, p.ops, p.width, p.density),
        mirrored=True,
    ),
}


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
        Its provenance states family, parameters and seed. O(ops + edges).

    Raises
    ------
    InputError
        Unknown family, unknown or wrong parameters.

    Examples
    --------
    >>> graph = generate("layered", {"ops": 20, "width": 3}, seed=7)
    >>> len(graph.ops), graph == generate("layered", {"ops": "20", "width": "3"}, seed=7)
    (20, True)
    """
    if family not in FAMILIES:
        raise InputError(f"there is no family {family!r}{instead_of(family, FAMILIES)}")
    chosen = FAMILIES[family]
    try:
        parsed = chosen.params.model_validate(dict(params or {}))
        if parsed.size() > LARGEST_GRAPH:
            raise InputError(f"{family}: more than {LARGEST_GRAPH} ops and edges")
        with paused_collector():
            rng = random.Random(f"{family} {seed}")
            graph = _dress(chosen.shape(rng, parsed), rng, parsed, family, seed, chosen.mirrored)
            return mirror_training(graph) if chosen.mirrored else graph
    except ValidationError as error:
        raise from_validation_error(error, source=f"parameters of {family}") from None


def _dress(
    shape: Shape, rng: random.Random, params: FamilyParams, family: str, seed: int, grouped: bool
) -> Graph:
    """Give ops times and sizes, and edges bytes; `grouped`: a colocation group of its own each."""
    n = shape.num_ops
    base_ns = [1 + int(params.op_time_ns * (0.5 + rng.random())) for _ in range(n)]
    parameters = [int(params.parameter_bytes * (0.5 + rng.random())) for _ in range(n)]
    output = _output_bytes(shape, rng, params, sum(base_ns) / n)
    ops = tuple(
        Op(
            name=f"op{i}",
            time_ns={kind: ceil(base_ns[i] * factor) for kind, factor in params.kinds.items()},
            resident_bytes=parameters[i] + output[i],
            colocation=f"op{i}" if grouped else None,
            parameter_bytes=parameters[i],
            flops=base_ns[i] * FLOPS_PER_NS,
            bytes_moved=base_ns[i] * BYTES_MOVED_PER_NS,
        )
        for i in range(n)
    )
    edges = tuple(
        Edge(producer=ops[a].name, consumer=ops[b].name, bytes=output[a], tensor="out")
        for a, b in shape.pairs
    )
    kinds = ",".join(f"{kind}:{factor:g}" for kind, factor in params.kinds.items())
    return Graph(
        name=f"{family}-{seed}",
        ops=ops,
        edges=edges,
        provenance=Provenance(
            source=f"placegap generate {family}",
            parameters={**params.model_dump(mode="json"), "kinds": kinds, "seed": seed},
        ),
    )


def _output_bytes(
    shape: Shape, rng: random.Random, params: FamilyParams, mean_ns: float
) -> list[int]:
    """Output of every op, scaled so that the mean over edges meets the communication ratio."""
    weight = [0.5 + rng.random() for _ in range(shape.num_ops)]
    over_edges = sum(weight[a] for a, _ in shape.pairs)
    mean_bytes = params.communication_ratio * mean_ns * params.bandwidth_bytes_per_s / NS_PER_S
    scale = mean_bytes * len(shape.pairs) / over_edges if over_edges else mean_bytes
    return [round(w * scale) for w in weight]
