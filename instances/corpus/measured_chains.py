"""Training chains with measured times: layers of three language models on six kinds of GPU.

The data are Sailor's rows of half precision in which qkv is split by columns (docs/corpus.md)::

    zcat training-ops.csv.gz | awk -F, 'NR == 1 || ($2 == "fp16" && $6 == 0)' |
        cut -d, -f1,3-5,7-9,12- | gzip -n9 > instances/data/measured/sailor/training-ops.csv.gz

MB are MiB: 4 x 2048 x 2560 numbers of two bytes are 40. Of t devices all is what one has, with its
collectives: on four RTX 3090 an op that ends in an all-reduce of 40 MiB takes 12.9 ms beyond a
quarter of its time on one, and the all-reduce alone 12.8.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from placegap.instances.costing.layer_modes import Precision
from placegap.instances.files.document import Document
from placegap.instances.problem import Cluster, Edge, Graph, Mode, Op, Provenance
from placegap.instances.reading.errors import InputError, look_up
from placegap.instances.reading.input_files import data_path

PREFIX = "measured:"

# Cards of the data, and of the catalogue. Sizes are those of the first that has them: a few
# allocations are rounded differently, and GH-96 has 51,200 words for OPT-30's 50,272.
KINDS = {
    "A100-40": "A100-40GB",
    "RTX-3090": "RTX3090",
    "GH-96": "GH200-96GB",
    "RTX-2080": "RTX2080",
    "Titan-RTX": "TitanRTX",
    "V100-16": "V100-16GB",
}

PARTS = ("embedding", "layer", "head")
# Which of `PARTS` an op is in; the others are a layer's.
PART = {"encoder-embedding": 0, "final-layernorm": 2, "gpt-post-process": 2}
FILLER_US = 10_000_000.0  # in place of a time, where the run failed; none measured is as long
TOKENS = 2048  # of a sequence
HALF = Precision("float16", 2, 2, 12)  # with Adam: a weight copy and both moments in float32


class ProfiledModel(NamedTuple):
    """A model, and its name in the data."""

    row: str
    layers: int
    hidden: int

    @property
    def chain(self) -> dict[str, int]:
        """Names of the chain in its order, and which of `PARTS` each is."""
        return {"embedding": 0, **{f"layer{k}": 1 for k in range(self.layers)}, "head": 2}


# The models by name, behind `PREFIX`.
MEASURED = {
    "gpt-neo-2.7b": ProfiledModel("GPT-Neo-2.7", 32, 2560),
    "opt-350m": ProfiledModel("OPT-350", 24, 1024),
    "opt-30b": ProfiledModel("OPT-30", 48, 7168),
}

# Nothing else of it counts as memory: with gradients and optimizer it would hold 485 GB, more than
# any cluster of these cards that ships.
WEIGHTS_ALONE = ("OPT-30",)


class MeasuredPart(NamedTuple):
    """The embedding, a layer or the head: ns by device kind, and bytes; pairs are of passes."""

    time_ns: dict[str, tuple[int, int]]
    weight_bytes: int
    kept_bytes: int
    reserved_bytes: tuple[int, int]  # the most that an op holds besides
    state_bytes: int  # held between passes


class RowDegrees(NamedTuple):
    """Sequences of a microbatch, and devices that a layer is split over."""

    microbatch: int = 1
    tensor: int = 1


DEGREES = (1, 2, 4, 8)  # of both: eight devices on RTX 3090, RTX 2080 and Titan RTX alone


@cache
def _data() -> dict[tuple[str, RowDegrees], list[MeasuredPart]]:
    """The parts of each model, by the row's name, and degrees."""
    rows = defaultdict[tuple[str, RowDegrees, int], dict[str, list[list[float]]]](dict)
    with gzip.open(data_path("measured/sailor/training-ops.csv.gz"), "rt") as file:
        for gpu, model, microbatch, tensor, op, *values in list(csv.reader(file))[1:]:
            key = model, RowDegrees(int(microbatch), int(tensor)), PART.get(op, 1)
            rows[key].setdefault(gpu, []).append([float(value) for value in values])
    found = defaultdict[tuple[str, RowDegrees], list[MeasuredPart]](list)
    for (model, degrees, _), cards in sorted(rows.items()):
        times, sizes = {}, list[tuple[float, ...]]()
        for gpu in filter(cards.__contains__, KINDS):
            forward, backward, *others = zip(*cards[gpu], strict=True)
            if max(forward + backward) < FILLER_US:
                times[KINDS[gpu]] = round(1000 * sum(forward)), round(1000 * sum(backward))
                sizes = sizes or others
        weights, kept, *more = ([ceil(mb * 2**20) for mb in each] for each in sizes)
        state = sum(weights) * sum(HALF[1:]) // HALF.weight_bytes
        part = MeasuredPart(times, sum(weights), sum(kept), (max(more[0]), max(more[1])), state)
        if model in WEIGHTS_ALONE:
            part = MeasuredPart(times, part.weight_bytes, 0, (0, 0), part.weight_bytes)
        found[model, degrees].append(part)
    return dict(found)


def _chosen(name: str, sizes: Mapping[str, int]) -> tuple[ProfiledModel, RowDegrees]:
    model = look_up("measured chain", name.removeprefix(PREFIX), MEASURED)
    for size, value in sizes.items():
        if size not in RowDegrees._fields or value not in DEGREES:
            known = f"{' and '.join(RowDegrees._fields)} are one of {', '.join(map(str, DEGREES))}"
            raise InputError(f"{name} has no rows for {size} {value}; {known}")
    return model, RowDegrees(**sizes)


def chain_edges(stash_bytes: Mapping[str, int], size_bytes: int) -> list[Edge]:
    """Edges of layers in a row and their backward ops, ``<layer>/backward``, which read stashes."""
    edges = []
    for a, b in pairwise(stash_bytes):
        edges.append(Edge(producer=a, consumer=b, bytes=size_bytes, tensor="out"))
        edges.append(Edge(producer=f"{b}/backward", consumer=f"{a}/backward", bytes=size_bytes))
    return edges + [
        Edge(producer=name, consumer=f"{name}/backward", bytes=stash, tensor="kept")
        for name, stash in stash_bytes.items()
    ]


def measured_document(name: str, sizes: Mapping[str, int]) -> Document:
    """One training step on a microbatch, as a document without a cluster."""
    model, degrees = _chosen(name, sizes)
    parts = {layer: _data()[model.row, degrees][k] for layer, k in model.chain.items()}
    ops = [
        Op(
            name=f"{layer}/backward" if backward else layer,
            kind="Layer",
            time_ns={kind: times[backward] for kind, times in part.time_ns.items()},
            resident_bytes=0 if backward else part.state_bytes + part.kept_bytes,
            parameter_bytes=0 if backward else part.weight_bytes,
            state_bytes=0 if backward else part.state_bytes,
            workspace_bytes=part.reserved_bytes[backward],
            colocation=layer,
            backward=backward,
        )
        for backward in (False, True)
        for layer, part in parts.items()
    ]
    stash = {layer: part.kept_bytes for layer, part in parts.items()}
    edges = chain_edges(stash, _sent_bytes(model, degrees))
    return Document(name=name, graph=_graph(name, degrees, ops, edges))


def measured_with_modes(
    name: str, kinds: Collection[str], tensors: Sequence[int], sizes: Mapping[str, int]
) -> Graph:
    """Layers with a mode for each tensor degree, of those given, that all kinds have rows for."""
    # All devices of a layer hold its input and its output, and send them on whole.
    model, degrees = _chosen(name, sizes)
    sent, modes = _sent_bytes(model, degrees), tuple[list[Mode], ...](([], [], []))
    for t in [degrees.tensor] if "tensor" in sizes else tensors:
        for k, part in enumerate(_data().get((model.row, degrees._replace(tensor=t)), ())):
            if part.time_ns.keys() >= set(kinds):
                modes[k].append(_mode(part, t))
                if k == 1:
                    modes[k].append(_mode(part, t, input_bytes=sent))
    for k, found in enumerate(modes):
        if not found:
            raise _no_rows(name, degrees, k, sorted(kinds))
    ops = [
        Op(name=layer, kind="Layer", time_ns=modes[k][0].time_ns, modes=tuple(modes[k]))
        for layer, k in model.chain.items()
    ]
    ahead = [Edge(producer=a.name, consumer=b.name, bytes=sent) for a, b in pairwise(ops)]
    return _graph(name, degrees, ops, ahead)


def _mode(part: MeasuredPart, tensor: int, input_bytes: int | None = None) -> Mode:
    """All is kept; or the input alone, from which the forward pass runs again."""
    again = input_bytes is not None
    weights = part.weight_bytes if part.state_bytes > part.weight_bytes else 0
    return Mode(
        name="full" if again else "keep",
        tensor=tensor,
        time_ns={kind: (1 + again) * f + b for kind, (f, b) in part.time_ns.items()},
        parameter_bytes=part.weight_bytes,
        state_bytes=part.state_bytes,
        sharded_bytes=weights * HALF.optimizer_bytes // HALF.weight_bytes,
        gradient_bytes=weights * HALF.gradient_bytes // HALF.weight_bytes,
        held_bytes=part.kept_bytes if input_bytes is None else min(input_bytes, part.kept_bytes),
        workspace_bytes=max(part.reserved_bytes) + again * part.kept_bytes,
    )


def check_rows(name: str, sizes: Mapping[str, int], cluster: Cluster) -> None:
    """Refuse a cluster with a kind, not a host's, that some part of a chain has no rows of."""
    model, degrees = _chosen(name, sizes)
    kinds = {device.kind for device in cluster.devices if not device.is_host}
    for k, part in enumerate(_data()[model.row, degrees]):
        if missing := sorted(kinds - part.time_ns.keys()):
            raise _no_rows(name, degrees, k, missing)


def _no_rows(name: str, degrees: RowDegrees, part: int, kinds: list[str]) -> InputError:
    row = MEASURED[name.removeprefix(PREFIX)].row
    return InputError(
        f"{name}: no {PARTS[part]} was measured on {', '.join(kinds)} with microbatch"
        f" {degrees.microbatch} and tensor {degrees.tensor}; it was on"
        f" {', '.join(_data()[row, degrees][part].time_ns)} (--dim chooses other degrees)"
    )


def _sent_bytes(model: ProfiledModel, degrees: RowDegrees) -> int:
    return degrees.microbatch * TOKENS * model.hidden * HALF.weight_bytes


def _graph(name: str, degrees: RowDegrees, ops: list[Op], edges: list[Edge]) -> Graph:
    trained = f"activations as recorded, and {sum(HALF[1:])} bytes per parameter"
    alone = MEASURED[name.removeprefix(PREFIX)].row in WEIGHTS_ALONE
    changes = (
        "a layer is the sum of its ops, each measured on its own in half precision, and stands as"
        " often as the model has it",
        "the times of a tensor degree include its collectives",
        "backward times lack gradients of weights, but for the embedding's",
        f"memory: {'weights alone' if alone else trained}",
    )
    source = "eth-easl/sailor (Strati et al., SOSP 2025): profiles for its Aceso baseline"
    provenance = Provenance(
        source=source, licence="MIT", changes=changes, parameters=degrees._asdict()
    )
    return Graph(name=name, ops=tuple(ops), edges=tuple(edges), provenance=provenance)
