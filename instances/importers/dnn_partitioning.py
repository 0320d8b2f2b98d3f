"""Read the JSON files of dnn-partitioning (Tarnawski et al., NeurIPS 2020).

A file states a graph whose nodes have one time on a CPU and one on an accelerator, and how many of
each there are. The cost of an edge is a property of its source: the time to move the node's output
between an accelerator and host memory.

Its split files say which nodes are on which accelerator and CPU.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainValidator, ValidationError

from placegap.instances.files.document import Document, parse_json
from placegap.instances.problem import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    InstancePart,
    MaxLoad,
    Op,
    Plan,
    Provenance,
)
from placegap.instances.reading.errors import InputError, from_validation_error
from placegap.instances.reading.input_files import read_content, refuse_other
from placegap.instances.reading.time_unit import Number, TimeReader, TimeUnit, Whole

ACCELERATOR, CPU = "accelerator", "cpu"
# What the file's authors compute for it: the contiguous split of least maximum load.
SEMANTICS = MaxLoad(plans="chain")

COST_TOLERANCE = Decimal("1e-6")
MAX_DEVICES = 1000


def _flag(value: Any) -> bool:
    if value is not True and value is not False and value not in (0, 1):
        raise ValueError("is not one of true, false, 0, 1")
    return bool(value)


Flag = Annotated[bool, PlainValidator(_flag)]
"""0 and 1 occur beside true and false."""

Id = Annotated[int, Field(strict=True)]


class _Node(InstancePart):
    id: Id
    name: str = ""
    supported: Annotated[Flag, Field(alias="supportedOnFpga")]
    cpu_latency: Annotated[Number, Field(alias="cpuLatency")]
    accelerator_latency: Annotated[Number | None, Field(alias="fpgaLatency")] = None
    backward: Annotated[Flag, Field(alias="isBackwardNode")] = False
    color_class: Annotated[Id | None, Field(alias="colorClass")] = None
    layer_id: Annotated[Any, Field(alias="layerId")] = None
    size: Whole = 0


class _Arc(InstancePart):
    source: Annotated[Id, Field(alias="sourceId")]
    target: Annotated[Id, Field(alias="destId")]
    cost: Number
    size: Number = Decimal(0)


class _Input(InstancePart):
    memory_bytes: Annotated[Whole, Field(alias="maxSizePerFPGA")]
    accelerators: Annotated[Whole, Field(alias="maxFPGAs")]
    cpus: Annotated[Whole, Field(alias="maxCPUs")]
    nodes: Annotated[tuple[_Node, ...], Field(min_length=1)]
    edges: tuple[_Arc, ...]


def is_dnn_partitioning(raw: Any) -> bool:
    """Whether parsed JSON looks like an input of dnn-partitioning."""
    return isinstance(raw, dict) and "nodes" in raw and ("maxFPGAs" in raw or "maxCPUs" in raw)


def load_dnn_partitioning(path: str | Path, time_unit: TimeUnit = "ms") -> Document:
    """Read an input of dnn-partitioning, with its own devices and semantics."""
    # Node ids become op names, and the nodes' names, which are not unique, modules; colour classes
    # become colocation groups. Every node's output is one tensor with the node's cost as its host
    # time. Accelerators come before CPUs, which are hosts without a memory limit. Files do not
    # state the unit; their authors mean milliseconds. ``graph.provenance.changes`` tells what was
    # not taken over as it stands: rounded times, dropped duplicate edges, sizes of edges that are
    # no whole bytes, and sizes of out-edges of one node that differ, of which the largest is kept.
    # No value depends on the sizes of edges: costs do. J. Tarnawski et al., Efficient Algorithms
    # for Device Placement of DNN Graph Operators, NeurIPS 2020;
    # github.com/msr-fiddle/dnn-partitioning.
    times = TimeReader(time_unit)
    raw = parse_json(read_content(path), path, parse_float=Decimal)
    try:
        content = _Input.model_validate(raw)
        _check(content)
        stem = Path(path).name.removesuffix(".gz").removesuffix(".json")
        return Document(
            name=stem,
            graph=_graph(content, Path(path).name, stem, times),
            cluster=_cluster(content),
            semantics=SEMANTICS,
        ).read_from(path)
    except ValidationError as error:
        raise from_validation_error(error, raw, path) from None
    except ValueError as error:
        raise InputError(str(error), path) from None


def _check(content: _Input) -> None:
    """What needs more than one node or edge to see."""
    devices = content.accelerators + content.cpus
    if not 0 < devices <= MAX_DEVICES:
        raise ValueError(f"maxFPGAs + maxCPUs is {devices}; it must be 1 to {MAX_DEVICES}")
    nodes: dict[int, _Node] = {}
    for number, node in enumerate(content.nodes):
        if node.id in nodes:
            raise ValueError(f"nodes[{number}]: id {node.id} appears twice")
        if node.supported and node.accelerator_latency is None:
            raise ValueError(f"nodes[{number}] of id {node.id}: fpgaLatency is missing")
        nodes[node.id] = node
    cost: dict[int, Decimal] = {}
    for number, arc in enumerate(content.edges):
        place = f"edges[{number}] '{arc.source} -> {arc.target}'"
        for end in (arc.source, arc.target):
            if end not in nodes:
                raise ValueError(f"{place}: there is no node of id {end}")
        if nodes[arc.source].backward and not nodes[arc.target].backward:
            raise ValueError(f"{place}: leads from a backward to a forward node")
        first = cost.setdefault(arc.source, arc.cost)
        if abs(first - arc.cost) > COST_TOLERANCE:
            raise ValueError(
                f"{place}: costs {arc.cost}, but another edge out of node {arc.source} {first};"
                " all must agree to 1e-6"
            )


def _cluster(content: _Input) -> Cluster:
    accelerators = tuple(
        Device(name=f"{ACCELERATOR}{k}", kind=ACCELERATOR, memory_bytes=content.memory_bytes)
        for k in range(content.accelerators)
    )
    cpus = tuple(Device(name=f"{CPU}{k}", kind=CPU, is_host=True) for k in range(content.cpus))
    return Cluster(
        name=f"{len(accelerators)}-accelerators-{len(cpus)}-cpus", devices=accelerators + cpus
    )


def _graph(content: _Input, source: str, name: str, times: TimeReader) -> Graph:
    ops = tuple(
        _op(node, f"nodes[{number}] of id {node.id}", times)
        for number, node in enumerate(content.nodes)
    )
    edges, changes = _edges(content, times)
    note = "ids are the ops' names, names their modules, colour classes their groups"
    return Graph(
        name=name,
        ops=ops,
        edges=edges,
        provenance=Provenance(
            source=f"dnn-partitioning input {source} (Tarnawski et al., NeurIPS 2020)",
            changes=(note, *times.changes(), *changes),
            parameters={"format": "dnn-partitioning", "time_unit": times.unit},
        ),
    )


def _op(node: _Node, place: str, times: TimeReader) -> Op:
    time_ns = {CPU: times.ns(node.cpu_latency, place)}
    if node.supported and node.accelerator_latency is not None:
        time_ns[ACCELERATOR] = times.ns(node.accelerator_latency, place)
    return Op(
        name=str(node.id),
        time_ns=time_ns,
        resident_bytes=node.size,
        colocation=None if node.color_class is None else str(node.color_class),
        backward=node.backward,
        module=node.name or None,
    )


def _edges(content: _Input, times: TimeReader) -> tuple[tuple[Edge, ...], list[str]]:
    """One edge per pair of nodes, all edges out of a node carrying its one tensor."""
    cost: dict[int, Decimal] = {}
    sizes: dict[int, set[Decimal]] = {}
    differing: dict[int, None] = {}
    for arc in content.edges:
        if cost.setdefault(arc.source, arc.cost) != arc.cost:
            differing[arc.source] = None
        sizes.setdefault(arc.source, set()).add(arc.size)
    host_time_ns = {
        source: times.ns(time, f"edges out of node {source}") for source, time in cost.items()
    }
    pairs = dict.fromkeys((arc.source, arc.target) for arc in content.edges)
    edges = tuple(
        Edge(
            producer=str(a),
            consumer=str(b),
            bytes=math.ceil(max(sizes[a])),
            tensor="out",
            host_time_ns=host_time_ns[a],
        )
        for a, b in pairs
    )
    unequal = [source for source, found in sizes.items() if len(found) > 1]
    changes = []
    if len(pairs) < len(content.edges):
        changes.append(f"{len(content.edges) - len(pairs)} duplicate edges dropped")
    if differing:
        changes.append(f"costs of edges out of nodes {_ids(differing)} differ; the first counts")
    fractional = sum(arc.size != math.ceil(arc.size) for arc in content.edges)
    if fractional:
        changes.append(f"{fractional} sizes of edges rounded up to whole bytes")
    if unequal:
        changes.append(f"sizes of edges out of nodes {_ids(unequal)} differ; the largest is kept")
    return edges, changes


def _ids(ids: dict[int, None] | list[int]) -> str:
    return ", ".join(str(i) for i in ids)


class _Stage(InstancePart):
    load: float | None = None
    nodes: tuple[Id, ...]


class _Split(InstancePart):
    accelerators: Annotated[tuple[_Stage, ...], Field(alias="fpgas")] = ()
    cpus: tuple[_Stage, ...] = ()
    max_load: Annotated[float | None, Field(alias="maxLoad")] = None


def load_split(instance: Instance, path: str | Path) -> Plan:
    """Read a split file (``{"fpgas": [{"nodes": ...}], "cpus": ...}``) as a plan of an instance.

    The i-th entry of ``fpgas`` is the i-th device that is not a host, the i-th entry of ``cpus``
    the i-th host. A node that the file leaves out goes where its colour class is, as in the
    reference program's ``-expert`` on training graphs. Text after the first JSON value is ignored:
    the program appends messages to its output.

    Parameters
    ----------
    instance : Instance
    path : str or Path

    Raises
    ------
    InputError
        Unknown nodes, a node on two devices, too many devices, a node without a device.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from placegap.instances import Device, Graph, Instance, Op
    >>> graph = Graph(name="two", ops=[Op(name=name, time_ns={"fpga": 1}) for name in "01"])
    >>> two = Cluster(name="two", devices=[Device(name=name, kind="fpga") for name in "ab"])
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "split.json")
    ...     _ = path.write_text('{"fpgas": [{"nodes": [1]}, {"nodes": [0]}], "cpus": []}')
    ...     load_split(Instance(name="two", graph=graph, cluster=two), path).devices
    array([1, 0])
    """
    raw = parse_json(_first_value(read_content(path)), path)
    refuse_other(raw, "a plan", path)
    try:
        return Plan.on(_devices(instance, _Split.model_validate(raw)))
    except ValidationError as error:
        raise from_validation_error(error, raw, path) from None
    except ValueError as error:
        raise InputError(str(error), path) from None


def _first_value(data: bytes) -> bytes | str:
    """The text up to the end of the first JSON value, or all of it if there is none."""
    try:
        text = data.decode().lstrip()
        return text[: json.JSONDecoder().raw_decode(text)[1]]
    except (ValueError, RecursionError):
        return data


def _devices(instance: Instance, split: _Split) -> list[int]:
    device: dict[int, int] = {}
    for k, where, stage in _stages(instance, split):
        for node in stage.nodes:
            op = instance.graph.op_index.get(str(node))
            if op is None:
                raise ValueError(f"{where}: there is no op '{node}' in {instance.name}")
            if device.setdefault(op, k) != k:
                raise ValueError(f"{where}: op '{node}' is on another device, too")
    of_class: dict[str, int] = {}
    for op, k in device.items():
        color = instance.graph.ops[op].colocation
        if color is not None:
            of_class.setdefault(color, k)
    for i, spec in enumerate(instance.graph.ops):
        if i not in device:
            if spec.colocation not in of_class:
                raise ValueError(f"op {spec.name!r} is on no device, nor is its colour class")
            device[i] = of_class[spec.colocation]
    return [device[i] for i in range(instance.num_ops)]


def _stages(instance: Instance, split: _Split) -> Iterator[tuple[int, str, _Stage]]:
    """Device, place in the file, and content of every stage."""
    for field, stages, is_host in (
        ("fpgas", split.accelerators, False),
        ("cpus", split.cpus, True),
    ):
        own = [k for k, spec in enumerate(instance.cluster.devices) if spec.is_host == is_host]
        if len(stages) > len(own):
            raise ValueError(f"{field}: {len(stages)} devices, but {instance.name} has {len(own)}")
        for number, stage in enumerate(stages):
            yield own[number], f"{field}[{number}]", stage
