"""Read the JSON inputs of Piper, the planner of hybrid plans (Tarnawski et al., NeurIPS 2021).

A file states layers with options (TMPCs) by the number of devices that a layer is split over, the
bytes of edges, and the devices. Each option becomes a `Mode`; its name is the option's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from placegap.instances.files.document import Document, parse_json
from placegap.instances.problem import (
    MAX_BATCH,
    Cluster,
    Device,
    Edge,
    Graph,
    HybridPipeline,
    InstancePart,
    Mode,
    Op,
    Provenance,
)
from placegap.instances.problem.links import Group, Links
from placegap.instances.reading.errors import InputError, from_validation_error
from placegap.instances.reading.input_files import MAX_DEVICES, read_content
from placegap.instances.reading.time_unit import Number, TimeReader, TimeUnit, Whole

ACCELERATOR = "accelerator"

# A microbatch whose layers take longer on one device has times in another unit, most likely: those
# of the published inputs take 1 s in seconds, and 462 and 520 in milliseconds.
LONG_MICROBATCH_S = 60

Id = Annotated[int, Field(strict=True)]


class _Option(InstancePart):
    id: str
    time: Annotated[Number, Field(alias="timePerSample")]
    parameters: Annotated[Number, Field(alias="parameterSize")]
    held: Annotated[Number, Field(alias="memoryUsageA")]
    state: Annotated[Number, Field(alias="memoryUsageB")]
    enter: Annotated[dict[str, Number], Field(alias="syncTimeFw", default_factory=dict)]
    leave: Annotated[dict[str, Number], Field(alias="syncTimeBw", default_factory=dict)]


class _Node(InstancePart):
    id: Id
    name: str = ""
    options: Annotated[dict[str, tuple[_Option, ...]], Field(alias="TMPCs")]


class _Arc(InstancePart):
    source: Annotated[Id, Field(alias="sourceId")]
    target: Annotated[Id, Field(alias="destId")]
    bytes: Annotated[Number, Field(alias="communicationCost")]


class _Input(InstancePart):
    devices: Annotated[Whole, Field(alias="maxDevices")]
    memory: Annotated[Number, Field(alias="maxMemoryPerDevice")]
    bandwidth: Annotated[Whole, Field(alias="bandwidth")]
    microbatches: Annotated[Whole, Field(alias="mbsInBatch")]
    nodes: Annotated[tuple[_Node, ...], Field(min_length=1)]
    edges: tuple[_Arc, ...]


def is_piper(raw: Any) -> bool:
    """Whether parsed JSON looks like an input of Piper."""
    return isinstance(raw, dict) and "nodes" in raw and "mbsInBatch" in raw


def load_piper(path: str | Path, time_unit: TimeUnit = "s") -> Document:
    """Read an input of Piper, with its own devices, and its semantics with free degrees."""
    # An op is named by the layer's name and id; sizes that are no whole bytes are rounded up. The
    # planner counts 4 (d - 1) / d times the weights for a sum of gradients, and `hybrid_pipeline`
    # 2: so `parameter_bytes` are twice the file's. The op's own time and sizes are those of its
    # first option with the fewest devices. The planner divides bytes by bytes per second and adds
    # them to the times, so times count as seconds; of the published inputs two are in milliseconds.
    # J. Tarnawski, D. Narayanan, A. Phanishayee, Piper: Multidimensional Planner for DNN
    # Parallelization, NeurIPS 2021; github.com/msr-fiddle/piper.
    times, sizes = TimeReader(time_unit), _Sizes()
    raw = parse_json(read_content(path), path, parse_float=Decimal)
    try:
        content = _Input.model_validate(raw)
        stem = Path(path).name.removesuffix(".gz").removesuffix(".json")
        graph = _graph(content, stem, times, sizes)
        cluster = _cluster(content, sizes)
        changes = (*times.changes(), *sizes.changes(), *_warning(graph, times))
        provenance = Provenance(
            source=f"Piper input {Path(path).name} (Tarnawski et al., NeurIPS 2021)",
            licence="MIT",
            changes=("parameter_bytes are twice the weights", *changes),
            parameters={"format": "piper", "time_unit": times.unit},
        )
        return Document(
            name=stem,
            graph=graph.model_copy(update={"provenance": provenance}),
            cluster=cluster,
            semantics=HybridPipeline(microbatches=content.microbatches, degrees="free"),
        ).read_from(path)
    except ValidationError as error:
        raise from_validation_error(error, raw, path) from None
    except ValueError as error:
        raise InputError(str(error), path) from None


class _Sizes:
    """Sizes as whole bytes, rounded up, and how many were rounded."""

    def __init__(self) -> None:
        self.rounded = 0

    def up(self, number: Decimal) -> int:
        whole = math.ceil(number)
        self.rounded += whole != number
        return whole

    def changes(self) -> tuple[str, ...]:
        return (f"{self.rounded} sizes rounded up to whole bytes",) if self.rounded else ()


def _warning(graph: Graph, times: TimeReader) -> Iterator[str]:
    """A sentence where the times are plainly in another unit than the bandwidth."""
    total_s = sum(op.time_ns[ACCELERATOR] for op in graph.ops) / 1e9
    if total_s > LONG_MICROBATCH_S:
        yield (
            f"one microbatch takes {total_s:.0f} s on one device: the times are likely no"
            f" {times.unit}, and communication counts for too little beside them; state their unit"
            " (--time-unit)"
        )


def _cluster(content: _Input, sizes: _Sizes) -> Cluster:
    if content.devices == 0 or content.bandwidth == 0:
        raise ValueError("maxDevices and bandwidth must be 1 or more")
    if not 0 < content.microbatches <= MAX_BATCH:
        raise ValueError(f"mbsInBatch is {content.microbatches}; it must be 1 to {MAX_BATCH}")
    MAX_DEVICES.check(content.devices, "maxDevices")
    memory = math.floor(content.memory)
    sizes.rounded += memory != content.memory
    names = tuple(f"{ACCELERATOR}{k}" for k in range(content.devices))
    links = Links((Group(names, content.bandwidth),) if content.devices > 1 else ())
    return Cluster(
        name=f"{content.devices}-accelerators",
        devices=tuple(Device(name=n, kind=ACCELERATOR, memory_bytes=memory) for n in names),
        links=links,
    )


def _graph(content: _Input, name: str, times: TimeReader, sizes: _Sizes) -> Graph:
    names: dict[int, str] = {}
    for number, node in enumerate(content.nodes):
        if node.id in names:
            raise ValueError(f"nodes[{number}]: id {node.id} appears twice")
        names[node.id] = f"{node.name or 'layer'}#{node.id}"
    edges = []
    for number, arc in enumerate(content.edges):
        for end in (arc.source, arc.target):
            if end not in names:
                raise ValueError(f"edges[{number}]: there is no node of id {end}")
        edges.append(
            Edge(producer=names[arc.source], consumer=names[arc.target], bytes=sizes.up(arc.bytes))
        )
    ops = tuple(_op(node, names, times, sizes) for node in content.nodes)
    return Graph(name=name, ops=ops, edges=tuple(edges))


def _op(node: _Node, names: dict[int, str], times: TimeReader, sizes: _Sizes) -> Op:
    place = f"nodes of id {node.id}"

    def ends(given: dict[str, Decimal]) -> dict[str, int]:
        found = {}
        for key, number in given.items():
            if re.fullmatch(r"\d+", key) is None or int(key) not in names:
                raise ValueError(f"{place}: there is no node of id {key}")
            if number:
                found[names[int(key)]] = sizes.up(number)
        return found

    modes = []
    for tensor, options in node.options.items():
        if re.fullmatch(r"[1-9]\d{0,5}", tensor) is None:
            raise ValueError(f"{place}: TMPCs has {tensor!r}; a number of devices is 1, 2, ..")
        for option in options:
            modes.append(
                Mode(
                    name=option.id,
                    tensor=int(tensor),
                    time_ns={ACCELERATOR: times.ns(option.time, place)},
                    parameter_bytes=sizes.up(2 * option.parameters),
                    state_bytes=sizes.up(option.state),
                    held_bytes=sizes.up(option.held),
                    enter_bytes=ends(option.enter),
                    leave_bytes=ends(option.leave),
                )
            )
    if not modes:
        raise ValueError(f"{place}: TMPCs has no option")
    modes.sort(key=lambda mode: mode.tensor)
    first = modes[0]
    return Op(
        name=names[node.id],
        kind=node.name or "layer",
        time_ns=first.time_ns,
        resident_bytes=first.state_bytes + first.held_bytes,
        parameter_bytes=min(first.parameter_bytes // 2, first.state_bytes),
        state_bytes=first.state_bytes,
        modes=tuple(modes),
    )
