"""Read the split files of dnn-partitioning: which nodes are on which accelerator and CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from placegap.instances.io.dnn_partitioning import Id
from placegap.instances.io.document import parse_json
from placegap.instances.problem.instance import Instance, InstancePart
from placegap.instances.problem.plan import Plan
from placegap.instances.reading.errors import InputError, from_validation_error
from placegap.instances.reading.input_files import read_content


class _Stage(InstancePart):
    load: float | None = None
    nodes: tuple[Id, ...]


class _Split(InstancePart):
    accelerators: Annotated[tuple[_Stage, ...], Field(alias="fpgas")] = ()
    cpus: tuple[_Stage, ...] = ()
    max_load: Annotated[float | None, Field(alias="maxLoad")] = None


def read_split(instance: Instance, path: str | Path) -> Plan:
    """Read a split file (``{"fpgas": [{"nodes": ...}], "cpus": ...}``) as a plan of an instance.

    The i-th entry of ``fpgas`` is the i-th device that is no host, the i-th entry of ``cpus`` the
    i-th host. A node that the file leaves out goes where its colour class is, as in the reference
    program's ``-expert`` on training graphs. Text after the first JSON value is ignored: the
    program appends messages to its output.

    Raises
    ------
    InputError
        Unknown nodes, a node on two devices, too many devices, a node without a device.
    """
    raw = parse_json(_first_value(read_content(path)), path)
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
