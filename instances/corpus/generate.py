"""Seeded random graphs of any size, by family; and training graphs: every op mirrored."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from placegap.instances.costing.costing import with_costs
from placegap.instances.problem import Edge, Graph, Name, Op, Provenance
from placegap.instances.problem.integers import NS_PER_S, ceil_div
from placegap.instances.reading.errors import InputError, as_input_error, look_up, paused_collector

LARGEST_GRAPH = 10_000_000  # ops or edges; a limit against slips, far above what any method takes

FLOPS_PER_NS = 10_000

# An op that takes 1 ns on the reference device does 10,000 FLOPs and moves 500 bytes (10 TFLOP/s,
# 0.5 TB/s), so that ops can also be costed for the kinds of the catalogue.
BYTES_MOVED_PER_NS = 500

Size = Annotated[int, Field(ge=1, le=LARGEST_GRAPH)]

Share = Annotated[float, Field(ge=0, le=1)]


def _kinds(value: Any) -> Any:
    """Also as text: "gpu:1,cpu:10"."""
    if not isinstance(value, str):
        return value
    pairs = (part.rpartition(":") for part in value.split(","))
    return {kind.strip(): factor for kind, _, factor in pairs}


class FamilyParams(BaseModel):
    """What all families share."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    #: Mean time of an op on a kind of factor 1; times are uniform in [0.5, 1.5] of it.
    op_time_ns: Annotated[int, Field(ge=2, le=10**12)] = 100_000
    #: Device kinds, and how many times slower than the reference each is; as text "gpu:1,cpu:10".
    kinds: Annotated[
        dict[Name, Annotated[float, Field(gt=0, le=10**6)]],
        BeforeValidator(_kinds),
        Field(min_length=1),
    ] = Field(default={"gpu": 1.0, "cpu": 10.0})
    #: Mean transfer time of an edge at `bandwidth_bytes_per_s`, divided by the mean time of an op
    #: (HEFT's CCR). All edges out of an op carry its one output.
    communication_ratio: Annotated[float, Field(ge=0, le=10**6)] = 0.5
    #: Reference bandwidth that sizes tensors; the cluster decides the real one.
    bandwidth_bytes_per_s: Annotated[int, Field(ge=1, le=10**15)] = 10**10
    #: Mean size of an op's parameters; what is resident is parameters plus output.
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
        lambda rng, p: layered(rng, p.ops, p.width, p.density),
    ),
    "series-parallel": Family(
        "grown op by op, in series or in parallel",
        SeriesParallelParams,
        lambda rng, p: series_parallel(rng, p.ops, p.parallel),
    ),
    "blocks": Family(
        "blocks in a row, each of parallel branches, as in Inception",
        BlocksParams,
        lambda rng, p: blocks(p.blocks, p.branches, p.length),
    ),
    "parallel-chains": Family(
        "chains that share nothing",
        ChainsParams,
        lambda rng, p: parallel_chains(p.chains, p.length),
    ),
    "fork-join": Family(
        "stages of ops side by side between a fork and a join",
        ForkJoinParams,
        lambda rng, p: fork_join(p.stages, p.width),
    ),
    "training": Family(
        "a layered graph with its mirrored backward pass and parameter updates",
        TrainingParams,
        lambda rng, p: layered(rng, p.ops, p.width, p.density),
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
    chosen, parsed = family_of(family, params)
    with as_input_error(source=f"parameters of {family}"), paused_collector():
        rng = random.Random(f"{family} {seed}")
        graph = _dress(chosen.shape(rng, parsed), rng, parsed, family, seed, chosen.mirrored)
        graph = mirror_training(graph) if chosen.mirrored else graph
        return with_costs(graph, "roofline")


def family_of(name: str, params: Mapping[str, Any] | None) -> tuple[Family, FamilyParams]:
    """A family with its parameters, or what is wrong with them, before a graph is made."""
    chosen = look_up("family", name, FAMILIES)
    with as_input_error(source=f"parameters of {name}", model=chosen.params):
        parsed = chosen.params.model_validate(dict(params or {}))
    if parsed.size() > LARGEST_GRAPH:
        raise InputError(f"{name}: more than {LARGEST_GRAPH} ops and edges")
    return chosen, parsed


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


@dataclass(frozen=True)
class Shape:
    """Ops 0 .. num_ops - 1 and the pairs (producer, consumer) that edges join."""

    num_ops: int
    pairs: tuple[tuple[int, int], ...]


def layered(rng: random.Random, num_ops: int, width: int, density: float) -> Shape:
    """Layers of 1 to 2 width - 1 ops; each op is fed by about density of the layer before."""
    # The number of an op's producers is density times the size of the layer before it, rounded up
    # or down at random so that the mean is right, and at least one. O(ops + edges).
    pairs: list[tuple[int, int]] = []
    before = range(0)
    first = 0
    while first < num_ops:
        layer = range(first, min(num_ops, first + 1 + below(rng, 2 * width - 1)))
        for op in layer:
            if before:
                wanted = int(density * len(before) + rng.random())
                count = min(len(before), max(1, wanted))
                pairs += [(before[j], op) for j in choose(rng, len(before), count)]
        before, first = layer, layer.stop
    return Shape(num_ops, tuple(pairs))


def series_parallel(rng: random.Random, num_ops: int, parallel: float) -> Shape:
    """A two-terminal series-parallel graph, grown op by op from a single edge."""
    # Each new op is put on a random edge (u, v): with probability `parallel` beside it, which keeps
    # (u, v), else in it. Ops 0 and 1 are source and sink. O(ops).
    pairs = [(0, 1)]
    for op in range(2, num_ops):
        at = below(rng, len(pairs))
        u, v = pairs[at]
        if rng.random() < parallel:
            pairs += [(u, op), (op, v)]
        else:
            pairs[at] = (u, op)
            pairs.append((op, v))
    return Shape(num_ops, tuple(pairs))


def blocks(num_blocks: int, branches: int, length: int) -> Shape:
    """A chain of blocks, each of `branches` parallel chains of `length` ops, as in Inception."""
    # The op that joins a block splits the next one: 1 + num_blocks * (branches * length + 1) ops.
    pairs: list[tuple[int, int]] = []
    split = 0
    for _ in range(num_blocks):
        join = split + branches * length + 1
        for branch in range(branches):
            chain = range(split + 1 + branch * length, split + 1 + (branch + 1) * length)
            path = [split, *chain, join]
            pairs += pairwise(path)
        split = join
    return Shape(split + 1, tuple(pairs))


def parallel_chains(chains: int, length: int) -> Shape:
    """Chains that share nothing."""
    starts = range(0, chains * length, length)
    pairs = ((at, at + 1) for start in starts for at in range(start, start + length - 1))
    return Shape(chains * length, tuple(pairs))


def fork_join(stages: int, width: int) -> Shape:
    """Stages of a fork op, `width` ops side by side, and a join op that feeds the next fork."""
    pairs: list[tuple[int, int]] = []
    for fork in range(0, stages * (width + 2), width + 2):
        join = fork + width + 1
        for op in range(fork + 1, join):
            pairs += [(fork, op), (op, join)]
        if fork:
            pairs.append((fork - 1, fork))
    return Shape(stages * (width + 2), tuple(pairs))


def below(rng: random.Random, bound: int) -> int:
    """A random integer in [0, bound), from `random()` alone: its stream never changes."""
    return int(rng.random() * bound)


def choose(rng: random.Random, population: int, count: int) -> list[int]:
    """`count` distinct integers of range(population), ascending."""
    if 2 * count > population:
        left_out = set(choose(rng, population, population - count)) if count < population else set()
        return [at for at in range(population) if at not in left_out]
    chosen: set[int] = set()
    while len(chosen) < count:
        chosen.add(below(rng, population))
    return sorted(chosen)


CHANGE = "mirrored to a training graph: backward ops take twice the time, updates a tenth"


def mirror_training(graph: Graph) -> Graph:
    """The training graph of an inference graph: a backward op per op, an update per parameters."""
    # Backward op ``x/backward`` takes twice the time of x; it gets x's output from x, and for each
    # edge x -> y a gradient of the edge's size from ``y/backward``. An op with parameters gets
    # ``x/update``, which takes a tenth of the time of x, rounded up, and holds twice the parameters
    # (Adam's moments). The three are one colocation group, for they share the parameters; ops that
    # were colocated stay so. They can be split along the same axes, but for an update's batch. The
    # layout is that of dnn-partitioning's training graphs. Forward ops come first, then backward
    # ops, then updates.
    if any(op.backward for op in graph.ops):
        raise InputError("has backward ops already", graph.name)
    group = {op.name: op.colocation or op.name for op in graph.ops}
    output: dict[str, Edge] = {}
    for edge in graph.edges:
        known = output.get(edge.producer)
        if known is None or edge.bytes > known.bytes:
            output[edge.producer] = edge
    trained = [op for op in graph.ops if op.parameter_bytes]
    ops = (
        *(
            op if op.colocation else op.model_copy(update={"colocation": group[op.name]})
            for op in graph.ops
        ),
        *(_backward_op(op, group[op.name]) for op in graph.ops),
        *(_update_op(op, group[op.name]) for op in trained),
    )
    edges = (
        *graph.edges,
        *(_activation(op.name, output.get(op.name)) for op in graph.ops),
        *(_gradient(edge) for edge in graph.edges),
        *(
            Edge(
                producer=f"{op.name}/backward",
                consumer=f"{op.name}/update",
                bytes=op.parameter_bytes,
                tensor="parameters",
            )
            for op in trained
        ),
    )
    provenance = graph.provenance.noting(CHANGE)
    return Graph(name=f"{graph.name}-training", ops=ops, edges=edges, provenance=provenance)


def _backward_op(op: Op, group: str) -> Op:
    return Op(
        name=f"{op.name}/backward",
        kind=f"{op.kind}/backward",
        time_ns={kind: 2 * time for kind, time in op.time_ns.items()},
        workspace_bytes=op.workspace_bytes,
        shared_state=op.shared_state,
        colocation=group,
        backward=True,
        module=op.module,
        dtype=op.dtype,
        flops=None if op.flops is None else 2 * op.flops,
        bytes_moved=None if op.bytes_moved is None else 2 * op.bytes_moved,
        splittable_axes=op.splittable_axes,
        axis_sizes=op.axis_sizes,
    )


def _update_op(op: Op, group: str) -> Op:
    return Op(
        name=f"{op.name}/update",
        kind="update",
        time_ns={kind: ceil_div(time, 10) for kind, time in op.time_ns.items()},
        resident_bytes=2 * op.parameter_bytes,
        state_bytes=2 * (op.parameter_bytes if op.state_bytes is None else op.state_bytes),
        update=True,
        shared_state={f"{name[:900]}/moments": 2 * size for name, size in op.shared_state.items()},
        colocation=group,
        backward=True,
        module=op.module,
        dtype=op.dtype,
        flops=None if op.flops is None else ceil_div(op.flops, 10),
        bytes_moved=None if op.bytes_moved is None else ceil_div(op.bytes_moved, 10),
        splittable_axes=tuple(axis for axis in op.splittable_axes if axis != "batch"),
        axis_sizes={axis: size for axis, size in op.axis_sizes.items() if axis != "batch"},
    )


def _activation(name: str, out: Edge | None) -> Edge:
    """The op's largest output, kept for its backward op; the same tensor as its other consumers."""
    if out is None:
        return Edge(producer=name, consumer=f"{name}/backward")
    return Edge(
        producer=name,
        consumer=f"{name}/backward",
        bytes=out.bytes,
        tensor=out.tensor,
        host_time_ns=out.host_time_ns,
        transfer_ns=out.transfer_ns,
    )


def _gradient(edge: Edge) -> Edge:
    return Edge(
        producer=f"{edge.consumer}/backward",
        consumer=f"{edge.producer}/backward",
        bytes=edge.bytes,
        tensor=None if edge.tensor is None else f"gradient of {edge.producer}/{edge.tensor}",
        host_time_ns=edge.host_time_ns,
        transfer_ns=edge.transfer_ns,
    )
