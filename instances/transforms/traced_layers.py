"""Layers with modes from a traced training step, for hybrid_pipeline.

Ops belong to the layer whose number their module's path states ("model.layers.5.mlp"); what comes
before the layers and behind them is one layer each. A backward or update op belongs to the layer of
its forward op. A layer falls into blocks at the ops that every path through it passes (the sums of
the residual stream). Inside of a block, products with weights that feed another such product are
split by columns, the last ones by rows, and what lies between is divided by t. What a layer holds
are the tensors that its backward ops read.

`selective` recomputes the core of attention where its scores are kept; where attention is fused,
the blocks without attention. The costing is that of `costing.layer_modes`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from placegap.instances.costing.layer_modes import (
    HEADS,
    LayerPart,
    ModelledOn,
    Precision,
    TrainedLayer,
    layer_graph,
)
from placegap.instances.problem import Cluster, Edge, Graph, Op
from placegap.instances.reading.errors import InputError

# The part of a module's path up to its first number, or that of a block in a numbered stage.
NUMBERED = re.compile(r"^(.*?\.?\d+(?:\.(?:blocks|layers)\.\d+)?)(?:\.|$)")
BEFORE, BEHIND = "before", "behind"  # the layers of what is before and behind the numbered ones
BYTES_OF = {"float64": 8, "float32": 4}  # of one weight; 2 of all other number types


def traced_layers(graph: Graph, cluster: Cluster) -> Graph:
    """The layers of a traced training step, with the modes that they have on a cluster."""
    # O(ops + edges), but for what lies inside of one layer.
    step = _Step(graph)
    layers = [step.layer(k) for k in range(len(step.names))]
    pairs: dict[tuple[int, int], int] = defaultdict(int)
    seen = set()
    for edge in step.forward_edges:
        a, b = step.home[edge.producer], step.home[edge.consumer]
        key = edge.producer, edge.tensor or edge.consumer, b
        if a < b and key not in seen:
            seen.add(key)
            pairs[a, b] += edge.bytes
    edges = [(a, b, size) for (a, b), size in sorted(pairs.items())]
    on = ModelledOn.cluster(cluster, step.precision)
    provenance = graph.provenance
    if not step.heads:
        provenance = provenance.noting("heads are unknown: t need not divide them")
    return layer_graph(graph.name, layers, edges, on, provenance)


class _Tensor(NamedTuple):
    """A tensor that backward ops of a layer read."""

    producer: str
    bytes: int


class _Step:
    """The forward ops of a training step, each in its layer, and what backward ops read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        order = [graph.ops[i] for i in graph.index.topological_order.tolist()]
        self.ops = {op.name: op for op in order if not op.backward}
        self.forward_edges = [
            e for e in graph.edges if e.producer in self.ops and e.consumer in self.ops
        ]
        self.into: dict[str, list[str]] = defaultdict(list)
        self.out: dict[str, list[str]] = defaultdict(list)
        self.size: dict[str, int] = defaultdict(int)
        for edge in graph.edges:
            self.size[edge.producer] = max(self.size[edge.producer], edge.bytes)
        for edge in self.forward_edges:
            self.into[edge.consumer].append(edge.producer)
            self.out[edge.producer].append(edge.consumer)
        self.names: list[str] = []
        self.home = self._homes()
        self.members: list[list[Op]] = [[] for _ in self.names]
        for name, k in self.home.items():
            self.members[k].append(self.ops[name])
        self.stash = self._stashes()
        numbers = str(graph.provenance.parameters.get(HEADS, "")).split()
        self.heads = tuple(int(number) for number in numbers)

    def _homes(self) -> dict[str, int]:
        """Number of the layer of each forward op."""
        # What no module numbers is of the last layer that feeds it, or comes before or behind all.
        own = {}
        for op in self.ops.values():
            found = NUMBERED.match(op.module or "")
            if found is not None:
                own[op.name] = found[1]
        if not own:
            raise InputError(
                "no op names the module of a numbered layer, by which a training step becomes"
                " layers with modes; trace one (hf:NAME --train), or state modes",
                self.graph.name,
            )
        needed = set(own)
        for name in reversed(self.ops):
            if needed.intersection(self.out[name]):
                needed.add(name)
        begin: dict[str, int] = {}
        for at, name in enumerate(self.ops):
            if name not in own:
                fed = [own[other] for other in self.into[name]]
                late = max(fed, key=begin.__getitem__, default=BEFORE)
                own[name] = late if name in needed else BEHIND
            begin.setdefault(own[name], at)
        self.names = self._in_order(own)
        number = {label: k for k, label in enumerate(self.names)}
        return {name: number[label] for name, label in own.items()}

    def _in_order(self, own: Mapping[str, str]) -> list[str]:
        """Labels of layers, each behind those that feed it; of two the one that begins first."""
        labels = list(dict.fromkeys(own[name] for name in self.ops))
        feeds: dict[str, dict[str, Edge]] = {label: {} for label in labels}
        for edge in self.forward_edges:
            a, b = own[edge.producer], own[edge.consumer]
            if a != b:
                feeds[b][a] = edge
        order: list[str] = []
        while labels:
            ready = next((label for label in labels if feeds[label].keys() <= {*order}), None)
            if ready is None:
                a, edge = next((a, e) for a, e in feeds[labels[0]].items() if a not in order)
                raise InputError(
                    f"op {edge.producer!r} of {a} feeds {edge.consumer!r} of {labels[0]}, and"
                    " others lead back: such layers cannot be stages in a row; state modes"
                    " yourself",
                    self.graph.name,
                )
            order.append(ready)
            labels.remove(ready)
        return order

    def _stashes(self) -> list[list[_Tensor]]:
        """Tensors of forward ops that the backward ops of each layer read, each once."""
        group = {op.colocation: op.name for op in self.ops.values() if op.colocation is not None}
        backward = {op.name: op for op in self.graph.ops if op.backward}
        found: list[dict[tuple[str, str], _Tensor]] = [{} for _ in self.names]
        for edge in self.graph.edges:
            reader = backward.get(edge.consumer)
            if reader is None or edge.producer not in self.ops:
                continue
            partner = group.get(reader.colocation)
            home = self.home[partner if partner is not None else edge.producer]
            key = edge.producer, edge.tensor or edge.consumer
            found[home][key] = _Tensor(edge.producer, edge.bytes)
        return [[*own.values()] for own in found]

    @property
    def precision(self) -> Precision:
        """Number type of the products, and what each trained weight takes."""
        dtype = next((op.dtype for op in self.ops.values() if op.dtype is not None), "float32")
        item = BYTES_OF.get(dtype, 2)
        held = [_state(op) for op in self.ops.values()]
        state = max((size * item // weights for weights, size in held if weights), default=item)
        return Precision(dtype, item, item, max(0, state - 2 * item))

    def layer(self, k: int) -> TrainedLayer:
        """What a layer computes and holds."""
        members = self.members[k]
        own = {op.name for op in members}
        entering = {name for op in members for name in self.into[op.name] if name not in own}
        item = self.precision.weight_bytes
        is_end = self.names[k] in (BEFORE, BEHIND)
        segments = [members] if is_end else self._segments(members)
        block_of = {op.name: at for at, part in enumerate(segments) for op in part}
        tensors: list[list[_Tensor]] = [[] for _ in segments]
        for tensor in self.stash[k]:
            tensors[block_of.get(tensor.producer, 0)].append(tensor)
        make = self._end if is_end else self._block
        blocks = [make(*both, item) for both in zip(segments, tensors, strict=True)]
        fused = any(_is_fused(op) for op in members)
        for at, part in enumerate(segments):
            block = blocks[at]
            if fused and not any(_is_core(op) for op in part) and block.stash_bytes:
                blocks[at] = block._replace(
                    recomputed_flops=block.flops,
                    recomputed_bytes=block.stash_bytes,
                    reduces_again=True,
                )
        modules = [op.module for op in members if op.module]
        module = self.names[k] if not is_end else next(iter(modules), None)
        kind = "Layer" if not is_end else "Embedding" if self.names[k] == BEFORE else "Loss"
        return TrainedLayer(
            name=self.names[k] if not is_end else module or self.names[k],
            kind=kind,
            blocks=tuple(blocks),
            input_bytes=sum(self.size[name] for name in sorted(entering)),
            divides=() if is_end else self.heads,
            full=not is_end and bool(entering),
            module=module,
        )

    def _segments(self, members: Sequence[Op]) -> list[list[Op]]:
        """The ops of a layer, cut behind each op on all paths; parts without weights join."""
        # In topological order an op is passed by all paths if no edge leads over it.
        place = {op.name: at for at, op in enumerate(members)}
        parts, now = list[list[Op]](), list[Op]()
        outer = [(n, op.name) for op in members for n in self.into[op.name] if n not in place]
        latest = max((self.home[name] for name, _ in outer), default=-1)
        # the stream comes from the layer before, and leads past all ops before its last reader
        reach = max((place[op] for n, op in outer if self.home[n] == latest), default=-1)
        for at, op in enumerate(members):
            now.append(op)
            ends = [place[name] for name in self.out[op.name] if name in place]
            if reach <= at and any(op.flops and _state(op)[0] for op in now):
                parts.append(now)
                now = []
            reach = max([reach, *ends])
        if parts:
            parts[-1] += now
        return parts or [now]

    def _block(self, part: Sequence[Op], tensors: Sequence[_Tensor], item: int) -> LayerPart:
        own = {op.name for op in part}
        weighted = [op.name for op in part if op.flops and _state(op)[0]]
        below = {name: self._reached([name], own) for name in weighted}
        rows = [name for name in weighted if below[name].isdisjoint(weighted)]
        columns = [name for name in weighted if name not in rows]
        past = set(rows).union(*(below[name] for name in rows))
        inner = set(columns).union(*(below[name] for name in columns)) - past
        core = [op for op in part if _is_core(op) and op.name in inner]
        kept = [tensor for tensor in tensors if tensor.producer in inner]
        scores = set[str]()
        if core and not any(_is_fused(op) for op in core):
            names = [op.name for op in core]
            scores = {*names[:-1]}.union(*(self._reached([n], own) for n in names[:-1]))
            scores -= {names[-1], *self._reached([names[-1]], own)}
        split = sum(_state(op)[0] for op in part if op.name in weighted)
        return LayerPart(
            flops=sum(op.flops or 0 for op in part),
            weights=split // item,
            whole_weights=(sum(_state(op)[0] for op in part) - split) // item,
            stash_bytes=sum(tensor.bytes for tensor in kept),
            stream_bytes=sum(tensor.bytes for tensor in tensors if tensor.producer not in inner),
            reduced_bytes=max((self.size[name] for name in rows), default=0),
            recomputed_flops=sum(op.flops or 0 for op in core) if scores else 0,
            recomputed_bytes=sum(t.bytes for t in kept if t.producer in scores),
        )

    def _end(self, part: Sequence[Op], tensors: Sequence[_Tensor], item: int) -> LayerPart:
        """Embedding or loss, split by words: half an all-reduce in each pass."""
        own = {op.name for op in part}
        tables = [op.name for op in part if _is_table(op)]
        inner = set(tables) | self._reached(tables, own) if any(op.flops for op in part) else set()
        split = sum(_state(op)[0] for op in part if op.name in tables)
        ends = [
            self.size[other]
            for name in tables
            for other in (self.into[name] if self.ops[name].flops else [name])
        ]
        return LayerPart(
            flops=sum(op.flops or 0 for op in part),
            weights=split // item,
            whole_weights=(sum(_state(op)[0] for op in part) - split) // item,
            stash_bytes=sum(tensor.bytes for tensor in tensors if tensor.producer in inner),
            stream_bytes=sum(tensor.bytes for tensor in tensors if tensor.producer not in inner),
            reduced_bytes=max(ends, default=0) // 2,
        )

    def _reached(self, starts: Iterable[str], own: set[str]) -> set[str]:
        """The ops of a part behind some of its ops."""
        found, waiting = set[str](), list(starts)
        while waiting:
            for name in self.out[waiting.pop()]:
                if name in own and name not in found:
                    found.add(name)
                    waiting.append(name)
        return found


def _state(op: Op) -> tuple[int, int]:
    """Bytes of an op's trained weights, and of all its state; constants have no gradient."""
    state = (op.state_bytes or 0) + sum(op.shared_state.values())
    return (op.parameter_bytes, state) if state > op.parameter_bytes else (0, 0)


def _is_fused(op: Op) -> bool:
    return "scaled_dot_product" in op.kind or "flash_attention" in op.kind


def _is_core(op: Op) -> bool:
    """A product of activations: attention itself."""
    return bool(op.flops) and not _state(op)[0]


def _is_table(op: Op) -> bool:
    """A product with weights, or rows of a table."""
    return bool(_state(op)[0]) and (bool(op.flops) or "embedding" in op.kind)
