"""Operator splitting: ops become parts and a gather, edges become slices.

After Zeng et al., FD-DPS (Mathematics 2022, 10, 4788), section 4.1 and figure 2. Which ops are
split is decided elsewhere (`split_rule`, or a search). A plan of the finer instance is a plan of
another instance: of the instance that was split it is none, and its value may lie below that
instance's optimum.

Data parallelism (`replicate`) is the whole graph on each of several devices, each with its share of
the samples. Copy j of an op reads what the copies j of other ops write, so that within a copy
nothing is gathered or sent. Before each update of parameters an all-reduce adds up the gradients of
all copies (`split_gradients`). Without update ops nothing is sent at all: copies of an inference
graph work side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Cache, Edge, Graph, Instance, Op
from placegap.instances.problem.graph_index import freeze
from placegap.instances.problem.integers import ceil_div
from placegap.instances.reading.errors import InputError, as_input_error, paused_collector
from placegap.instances.transforms.split_gradients import (
    all_reduce,
    gradient_bytes,
    group_parameters,
    is_update,
    works_on_weights,
)

WHOLE, GATHER = -1, -2  # in place of a part's number: an op not split, and what joins the parts
MOST_PARTS = 1_000_000  # of all ops together; a part takes some 10 KB of memory, with its edges


@dataclass(frozen=True, eq=False)
class OpSplit:
    """An instance of n ops and the finer one of n' ops that its split ops make."""

    coarse: Instance
    fine: Instance
    op: Ints  # (n',) int64: The op of `coarse` that each op of `fine` is, is a part of, or gathers
    part: Ints  # (n',) int64: Number of the part, from 0; `WHOLE` or `GATHER` where it is none

    @property
    def num_split(self) -> int:
        """Number of ops that were split."""
        return len(np.unique(self.op[self.part >= 0]))

    @property
    def num_parts(self) -> int:
        return int((self.part >= 0).sum())

    @property
    def summary(self) -> str:
        """``1 op split into 2 parts``."""
        ops = "1 op" if self.num_split == 1 else f"{self.num_split} ops"
        return f"{ops} split into {self.num_parts} parts"


def split_ops(instance: Instance, cuts: Mapping[int, Cut]) -> OpSplit:
    """Split ops into parts and a gather."""
    # Parts get whole elements of the axis, as equally as possible, or equal shares where its size
    # is not known. Of time, FLOPs and bytes moved each part takes its share, rounded up; a tensor,
    # the parameters, caches or the output that are divided are divided exactly, what is not divided
    # every part has whole (`Axis`). The gather ("Concat", or "Sum" of partial outputs) runs
    # wherever the op runs, takes no time itself, and holds what the op held beside its state; every
    # output of the op goes through it, also to an op that is split alike. The paper gives no costs
    # of parts or gathers: all this is filled in. A colocation group is split as a whole, into
    # groups of the parts of one number: they share that part of the parameters. Explicit transfer
    # times are divided like bytes, and rounded up. Where a training step is split along its batch,
    # an op that updates parameters is copied, and an all-reduce adds up the gradients of the parts
    # first (`split_gradients`). A gradient that goes elsewhere is added up by the gather, from
    # whole partial sums. Parts and then their gather stand where their op stood. O(V + E + sum over
    # split ops of parts * edges).
    graph = instance.graph
    _check_cuts(instance, cuts)
    bounds = {i: shares(graph.ops[i], cut) for i, cut in cuts.items()}
    with paused_collector():
        sums = find_sums(instance, cuts)
        _check_sums(cuts, sums)
        partial, reduced = find_partial_sums(instance, cuts, sums), tensors_of(instance, sums)
        kept, past = kept_bytes(instance, partial | reduced), kept_bytes(instance, reduced)
        names, groups = _names(instance, cuts), _part_groups(instance, cuts)
        ops: list[Op] = []
        origin: list[tuple[int, int]] = []
        for i, op in enumerate(graph.ops):
            if i not in cuts:
                ops.append(op)
                origin.append((i, WHOLE))
                continue
            copied = cuts[i].axis == "batch" and is_update(op)
            for j, name in enumerate(names[i].parts):
                group = groups.get((i, j))
                made = (
                    op.model_copy(update={"name": name, "colocation": group})
                    if copied
                    else _part(op, cuts[i], bounds[i], j, name, group, kept.get(i, 0))
                )
                ops.append(made)
                origin.append((i, j))
            ops.append(_gather(op, cuts[i], names[i].gather, past.get(i, 0)))
            origin.append((i, GATHER))
        edges = split_edges(instance, cuts, bounds, names, sums, partial)
        num_parts = sum(cut.parts for cut in cuts.values())
        change = f"{len(cuts)} ops split into {num_parts} parts (after FD-DPS)"
        fine = _finer(instance, ops, edges, "split", change)
    of, part = np.array(origin, np.int64).T.copy()
    split = OpSplit(instance, fine, of, part)
    freeze(split)
    return split


def _finer(
    instance: Instance, ops: list[Op], edges: list[Edge], word: str, change: str
) -> Instance:
    """An instance of the finer graph; of ``net@cluster`` it is called ``net-word@cluster``."""
    end = f"@{instance.cluster.name}"
    bare = instance.name.removesuffix(end)
    name = f"{bare}-{word}{end if bare != instance.name else ''}"
    provenance = instance.graph.provenance.noting(change)
    update = {"ops": tuple(ops), "edges": tuple(edges), "provenance": provenance}
    with as_input_error(source=instance.name):  # sums beyond 2**62
        return instance.with_graph(instance.graph.model_copy(update=update), name)


def _check_cuts(instance: Instance, cuts: Mapping[int, Cut]) -> None:
    ops, parts = instance.graph.ops, sum(cut.parts for cut in cuts.values())
    if parts > MOST_PARTS:
        raise InputError(f"{parts} parts of {len(cuts)} ops; choose {MOST_PARTS} at most in all")
    for i, cut in cuts.items():
        size = ops[i].axis_sizes.get(cut.axis, cut.parts)
        if not 2 <= cut.parts <= size:
            raise InputError(
                f"op {ops[i].name!r}: cannot be split into {cut.parts} parts along {cut.axis};"
                f" choose at least 2{'' if size == cut.parts else f' and at most {size}'}"
            )
    of_group: dict[str, Cut | None] = {}
    for i, op in enumerate(ops):
        if op.colocation is not None and of_group.setdefault(op.colocation, cuts.get(i)) != (
            cuts.get(i)
        ):
            raise InputError(
                f"op {op.name!r}: its colocation group {op.colocation!r} must be split as a whole,"
                " all its ops alike"
            )


def _check_sums(cuts: Mapping[int, Cut], sums: Mapping[int, Mapping[int, int]]) -> None:
    """Each part of a gradient goes from all parts to all copies: many parts take many edges."""
    num_edges = sum(cuts[i].parts ** 2 * len(found) for i, found in sums.items())
    if num_edges > MOST_PARTS:
        raise InputError(
            f"all-reduces of {num_edges} transfers; choose fewer parts, {MOST_PARTS} transfers are"
            " the most"
        )


def _part(
    op: Op, cut: Cut, bounds: tuple[int, ...], j: int, name: str, group: str | None, kept: int
) -> Op:
    """Part j of an op; `kept` bytes of its output are gradients, which each part has whole."""
    state, output = _memory(op)
    caches = _part_caches(op, bounds, j)
    whole = op.parameter_bytes
    if cut.axis != "batch":
        state, whole = (divide(size, bounds, j) for size in (state, whole))
    if cut.axis != "in_channel":
        kept = min(kept, output)
        output = kept + divide(output - kept, bounds, j)
    sizes = dict(op.axis_sizes)
    if cut.axis in sizes:
        sizes[cut.axis] = bounds[j + 1] - bounds[j]
    return op.model_copy(
        update={
            "name": name,
            "time_ns": {kind: round_up(time, bounds, j) for kind, time in op.time_ns.items()},
            "resident_bytes": state + output + _cached_bytes(caches),
            "parameter_bytes": whole,
            "workspace_bytes": round_up(op.workspace_bytes, bounds, j),
            "caches": caches,
            **_part_state(op, cut, bounds, j),
            "colocation": group,
            "flops": None if op.flops is None else round_up(op.flops, bounds, j),
            "bytes_moved": None if op.bytes_moved is None else round_up(op.bytes_moved, bounds, j),
            "axis_sizes": sizes,
            "kernel": None,
        }
    )


def _memory(op: Op) -> tuple[int, int]:
    """An op's state and outputs, without its caches, which are in the state if that is stated."""
    held, cached = held_bytes(op), _cached_bytes(op.caches)
    state = held if op.state_bytes is None else max(0, held - cached)
    return state, max(0, op.resident_bytes - cached - state)


def _cached_bytes(caches: Iterable[Cache]) -> int:
    return sum(cache.held_bytes(cache.tokens) for cache in caches)


def _part_caches(op: Op, bounds: tuple[int, ...], j: int) -> tuple[Cache, ...]:
    """A part's share of each token: its samples', or its heads'."""
    shares = ((cache, divide(cache.token_bytes, bounds, j)) for cache in op.caches)
    return tuple(cache.model_copy(update={"token_bytes": size}) for cache, size in shares if size)


def _part_state(op: Op, cut: Cut, bounds: tuple[int, ...], j: int) -> dict[str, object]:
    """State goes with the parameters."""
    # Whole parts of a batch hold all of it, by the same names; but not all of the caches.
    state = op.state_bytes
    if state is not None:
        state = max(0, state - _cached_bytes(op.caches))
        state = state if cut.axis == "batch" else divide(state, bounds, j)
        state += _cached_bytes(_part_caches(op, bounds, j))
    if cut.axis == "batch":
        return {"state_bytes": state}
    where = f"[{cut.axis} {bounds[j]}:{bounds[j + 1]} of {bounds[-1]}]"
    # ops that are split alike share the slice
    shared = {
        f"{name[:900]}{where}": divide(size, bounds, j) for name, size in op.shared_state.items()
    }
    return {
        "state_bytes": state,
        "shared_state": {name: size for name, size in shared.items() if size},
    }


def _gather(op: Op, cut: Cut, name: str, past: int) -> Op:
    """What joins the parts; `past` bytes of their outputs do not go through it."""
    output = _memory(op)[1]
    return Op(
        name=name,
        kind="Sum" if cut.axis == "in_channel" else "Concat",
        time_ns=dict.fromkeys(op.time_ns, 0),
        resident_bytes=output - min(past, output),
        backward=op.backward,
        weight_gradient=op.weight_gradient,
        update=op.update,
        module=op.module,
        dtype=op.dtype,
    )


def _names(instance: Instance, cuts: Mapping[int, Cut]) -> dict[int, PartNames]:
    """Names of what each split op becomes."""
    taken = {op.name for op in instance.graph.ops}

    def named(name: str, parts: int) -> PartNames:
        numbers = range(1, parts + 1)
        made = [fresh(f"{name}/{j}of{parts}", taken) for j in numbers]
        return PartNames(made, fresh(f"{name}/gather", taken))

    return {i: named(instance.graph.ops[i].name, cut.parts) for i, cut in cuts.items()}


def _part_groups(instance: Instance, cuts: Mapping[int, Cut]) -> dict[tuple[int, int], str]:
    """The colocation group of each part, by op and number."""
    taken = {op.colocation for op in instance.graph.ops if op.colocation is not None}
    groups: dict[tuple[str, int], str] = {}
    found = {}
    for i, cut in cuts.items():
        own = instance.graph.ops[i].colocation
        if own is None:
            continue
        for j in range(cut.parts):
            if (own, j) not in groups:
                groups[own, j] = fresh(f"{own}/{j + 1}of{cut.parts}", taken)
            found[i, j] = groups[own, j]
    return found


def stated_batch(graph: Graph) -> int | None:
    """The least batch that an op of the graph states as an axis, None where none does."""
    stated = (op.axis_sizes["batch"] for op in graph.ops if "batch" in op.axis_sizes)
    return min(stated, default=None)


def replicate(instance: Instance, batch: int, copies: int) -> OpSplit:
    """The instance of several copies of the graph, each with whole samples of the batch."""
    # Of time, FLOPs, bytes moved and outputs a copy has its share, rounded up. Whole in each copy
    # are parameters and their gradients, and the ops that work on those alone: updates, what reads
    # nothing but weights, and what lies between one gradient and its update. Copy j of op i of n is
    # number ``j n + i``. O(copies (V + E) + copies**2 updates).
    graph = instance.graph
    if not 2 <= copies <= batch:
        raise InputError(f"a batch of {batch} has no {copies} shares; ask for at most that many")
    sums = _sums(graph)
    transfers = copies**2 * sum(len(found) for found in sums.values())
    if max(copies * len(graph.ops), transfers) > MOST_PARTS:
        raise InputError(
            f"{copies} copies of {len(graph.ops)} ops with {len(sums)} all-reduces; copies and"
            f" transfers are limited to {MOST_PARTS}"
        )
    cut = Cut("batch", copies)
    bounds = shares(Op(name="batch", axis_sizes={"batch": batch}), cut)
    whole, kept = works_on_weights(graph), kept_bytes(instance, tensors_of(instance, sums))
    with paused_collector():
        names, groups = _replica_names(graph, copies), _groups(graph, copies)
        ops: list[Op] = []
        edges: list[Edge] = []
        for j in range(copies):
            for i, op in enumerate(graph.ops):
                name, group = names[j][i], groups[j].get(op.colocation or "")
                ops.append(
                    op.model_copy(update={"name": name, "colocation": group})
                    if whole[i]
                    else _part(op, cut, bounds, j, name, group, kept.get(i, 0))
                )
            edges += _edges_of_copy(graph, names[j], whole, sums, bounds, j)
        origin = [(i, j) for j in range(copies) for i in range(len(graph.ops))]
        for i, found in sums.items():
            updates = [copy[i] for copy in names]
            for e, size in found.items():
                parts = [copy[graph.index.producer[e]] for copy in names]
                edges += all_reduce(graph.edges[e], size, parts, updates)
        of, part = np.array(origin, np.int64).T.copy()
        change = f"{copies} copies, each with its share of a batch of {batch}"
        fine = _finer(
            instance, ops, edges, f"{copies}-copies", f"{change}; gradients are summed up"
        )
        split = OpSplit(instance, fine, of, part)
    freeze(split)
    return split


def _sums(graph: Graph) -> dict[int, dict[int, int]]:
    """The edges that bring gradients to each update op, and their bytes."""
    held = group_parameters(graph)
    updates = [i for i, op in enumerate(graph.ops) if is_update(op)]
    found = {i: gradient_bytes(graph, i, held) for i in updates}
    return {i: edges for i, edges in found.items() if edges}


def _edges_of_copy(
    graph: Graph,
    names: list[str],
    whole: list[bool],
    sums: Mapping[int, Mapping[int, int]],
    bounds: tuple[int, ...],
    j: int,
) -> Iterator[Edge]:
    """The edges within copy j: shares of what the ops write, but for gradients of all-reduces."""
    index = graph.index
    summed = {e for found in sums.values() for e in found}
    ends = zip(index.producer.tolist(), index.consumer.tolist(), strict=True)
    for e, (edge, (a, b)) in enumerate(zip(graph.edges, ends, strict=True)):
        if e in summed:
            continue
        if whole[a]:
            yield edge.model_copy(update={"producer": names[a], "consumer": names[b]})
        else:
            yield slice_edge(edge, names[a], names[b], edge.tensor, bounds, j)


def _replica_names(graph: Graph, copies: int) -> list[list[str]]:
    """Names of the ops of each copy."""
    taken = {op.name for op in graph.ops}
    numbers = range(1, copies + 1)
    return [[fresh(f"{op.name}/{j}of{copies}", taken) for op in graph.ops] for j in numbers]


def _groups(graph: Graph, copies: int) -> list[dict[str, str]]:
    """Colocation groups of each copy, by those of the graph."""
    old = list(dict.fromkeys(op.colocation for op in graph.ops if op.colocation is not None))
    taken = set(old)
    numbers = range(1, copies + 1)
    return [{group: fresh(f"{group}/{j}of{copies}", taken) for group in old} for j in numbers]


# What a split divides. ``batch`` (figure 2a): inputs and outputs; parameters are copied.
# ``in_channel`` (figure 2b): inputs and parameters; every part makes a whole output, and these are
# added up. ``out_channel``: parameters and outputs; every part reads all inputs.
Axis = Literal["batch", "out_channel", "in_channel"]


@dataclass(frozen=True)
class Cut:
    """How one op is split: along which axis, and into how many parts."""

    axis: Axis
    parts: int


def shares(op: Op, cut: Cut) -> tuple[int, ...]:
    """Where the parts begin and end on the axis: 0, ..., its size."""
    size = op.axis_sizes.get(cut.axis, cut.parts)
    lengths = (size // cut.parts + (j < size % cut.parts) for j in range(cut.parts))
    return tuple(accumulate(lengths, initial=0))


def divide(amount: int, bounds: tuple[int, ...], j: int) -> int:
    """What part j has of an amount that is divided exactly."""
    size = bounds[-1]
    return amount * bounds[j + 1] // size - amount * bounds[j] // size


def round_up(amount: int, bounds: tuple[int, ...], j: int) -> int:
    """What part j takes of a cost."""
    return ceil_div(amount * (bounds[j + 1] - bounds[j]), bounds[-1])


def held_bytes(op: Op) -> int:
    """What of an op's resident bytes is state, parameters at least; the rest are outputs."""
    state = op.parameter_bytes if op.state_bytes is None else op.state_bytes
    return min(op.resident_bytes, state + sum(op.shared_state.values()))


def fresh(name: str, taken: set[str]) -> str:
    """The name, with marks at its end until it is new; long names are cut to leave room."""
    name = name if len(name) <= 900 else f"{name[:450]}...{name[-440:]}"
    while name in taken:
        name += "'"
    taken.add(name)
    return name


class PartNames(NamedTuple):
    """Names of what one split op becomes."""

    parts: list[str]
    gather: str


def split_edges(
    instance: Instance,
    cuts: Mapping[int, Cut],
    shares: Mapping[int, tuple[int, ...]],
    names: Mapping[int, PartNames],
    sums: Mapping[int, Mapping[int, int]],
    partial: Set[int] = frozenset(),
) -> list[Edge]:
    """Edges into parts, edges of the graph, from parts to gathers, and those of all-reduces."""
    # `shares` says where the parts of each split op begin and end; `sums` is from `find_sums`, and
    # `partial` from `find_partial_sums`.
    graph, index, tensors = instance.graph, instance.graph.index, _tensor_names(instance, cuts)
    edges: list[Edge] = []
    summed = {e for found in sums.values() for e in found}
    ends = zip(index.producer.tolist(), index.consumer.tolist(), strict=True)
    for e, (edge, (a, b)) in enumerate(zip(graph.edges, ends, strict=True)):
        if e in summed:
            continue
        source = names[a].gather if a in cuts else edge.producer
        if b not in cuts:
            edges.append(edge if a not in cuts else edge.model_copy(update={"producer": source}))
            continue
        whole = cuts[b].axis == "out_channel" or is_update(graph.ops[b])
        for j, part in enumerate(names[b].parts):
            if whole:
                update = {"producer": source, "consumer": part, "tensor": tensors[e]}
                edges.append(edge.model_copy(update=update))
            else:
                at = f"{tensors[e]}, {cuts[b].axis} {_place(shares[b], j)}"
                edges.append(slice_edge(edge, source, part, at, shares[b], j))
    for i, cut in cuts.items():
        parts, gather = names[i].parts, names[i].gather
        outputs = _outputs(instance, i, summed)
        for j, part in enumerate(parts):
            if not outputs:
                edges.append(Edge(producer=part, consumer=gather))
            for e in outputs:
                edge = graph.edges[e]
                if cut.axis == "in_channel" or int(index.tensor[e]) in partial:
                    update = {"producer": part, "consumer": gather, "tensor": tensors[e]}
                    edges.append(edge.model_copy(update=update))
                else:
                    edges.append(slice_edge(edge, part, gather, tensors[e], shares[i], j))
    for i, found in sums.items():
        for e, size in found.items():
            parts = names[int(index.producer[e])].parts
            edges += all_reduce(graph.edges[e], size, parts, names[i].parts)
    return edges


def find_sums(instance: Instance, cuts: Mapping[int, Cut]) -> dict[int, dict[int, int]]:
    """Edges that bring gradients of parts to copies of an update op, by op, and their bytes."""
    graph, index = instance.graph, instance.graph.index
    copied = [i for i, cut in cuts.items() if cut.axis == "batch" and is_update(graph.ops[i])]
    held = group_parameters(graph) if copied else {}
    found = {
        i: {
            e: size
            for e, size in gradient_bytes(graph, i, held).items()
            if cuts.get(int(index.producer[e])) == cuts[i]
        }
        for i in copied
    }
    return {i: edges for i, edges in found.items() if edges}


def find_partial_sums(
    instance: Instance, cuts: Mapping[int, Cut], sums: Mapping[int, Mapping[int, int]]
) -> set[int]:
    """Tensors of ops split along the batch that hold a gradient: parts add up, none has a slice."""
    # They are what backward ops hand to ops that work on weights alone, but not to all-reduces.
    graph, index = instance.graph, instance.graph.index
    divided = [i for i, cut in cuts.items() if cut.axis == "batch" and graph.ops[i].backward]
    if not divided:
        return set()
    of_weights = works_on_weights(graph)
    summed = {e for found in sums.values() for e in found}
    found = set()
    for i in divided:
        for e in [] if of_weights[i] else _outputs(instance, i, summed):
            u = index.tensor[e]
            readers = index.consumer[
                index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
            ]
            if all(of_weights[b] for b in readers.tolist()):
                found.add(int(u))
    return found


def tensors_of(instance: Instance, sums: Mapping[int, Mapping[int, int]]) -> set[int]:
    """The tensors that all-reduces sum up."""
    tensor = instance.graph.index.tensor
    return {int(tensor[e]) for found in sums.values() for e in found}


def kept_bytes(instance: Instance, tensors: Iterable[int]) -> dict[int, int]:
    """Bytes of some tensors by the op that makes them."""
    index = instance.graph.index
    kept: dict[int, int] = {}
    for u in sorted(tensors):
        producer = int(index.tensor_producer[u])
        size = instance.graph.edges[index.tensor_first_edge[u]].bytes
        kept[producer] = kept.get(producer, 0) + size
    return kept


def _outputs(instance: Instance, i: int, summed: Set[int]) -> list[int]:
    """The first edge of each tensor that op i makes, but for what goes to all-reduces alone."""
    index = instance.graph.index
    leaving = index.succ_edge[index.succ_ptr[i] : index.succ_ptr[i + 1]]
    if summed:
        leaving = leaving[[e not in summed for e in leaving.tolist()]]
    first = index.tensor_first_edge[index.tensor[leaving]]
    return list(dict.fromkeys(first.tolist()))


def _place(bounds: tuple[int, ...], j: int) -> str:
    return f"{bounds[j]}:{bounds[j + 1]} of {bounds[-1]}"


def slice_edge(
    edge: Edge, producer: str, consumer: str, tensor: str | None, bounds: tuple[int, ...], j: int
) -> Edge:
    """Part j of what an edge carries."""
    host, matrix = edge.host_time_ns, edge.transfer_ns
    return Edge(
        producer=producer,
        consumer=consumer,
        bytes=divide(edge.bytes, bounds, j),
        tensor=tensor,
        host_time_ns=None if host is None else round_up(host, bounds, j),
        transfer_ns=None
        if matrix is None
        else tuple(tuple(round_up(time, bounds, j) for time in row) for row in matrix),
    )


def _tensor_names(instance: Instance, cuts: Mapping[int, Cut]) -> dict[int, str]:
    """A name for the tensor of each edge at a split op: its own, or a new one."""
    index, edges = instance.graph.index, instance.graph.edges
    taken = {edge.tensor for edge in edges if edge.tensor is not None}
    return {
        e: edge.tensor if edge.tensor is not None else fresh(f"to {edge.consumer}", taken)
        for e, (edge, a, b) in enumerate(
            zip(edges, index.producer.tolist(), index.consumer.tolist(), strict=True)
        )
        if a in cuts or b in cuts
    }
