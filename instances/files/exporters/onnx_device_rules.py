"""What must hold of ``device_configurations`` in an ONNX model; ``onnx.checker`` looks at none.

Source: the comments of ``onnx.proto`` (IR 11), and the sharding rules of the ONNX Multi-Device
Proposal. Written apart from what writes them (`onnx_devices`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from placegap.instances.files.exporters.onnx_devices import FIRST_IR


def device_faults(model: Any) -> tuple[str, ...]:
    """Sentences on all that breaks a rule; none for a model without configurations.

    Parameters
    ----------
    model : ModelProto

    Examples
    --------
    >>> from onnx import helper
    >>> node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    >>> model = helper.make_model(helper.make_graph([node], "net", [], []), ir_version=11)
    >>> model.configuration.add(name="two", num_devices=2).name
    'two'
    >>> note = model.graph.node[0].device_configurations.add(configuration_id="two")
    >>> device_faults(model)
    ()
    >>> note.pipeline_stage = -1
    >>> device_faults(model)
    ("node 'relu': its stage is -1",)
    """
    return tuple(_faults(model))


def _faults(model: Any) -> Iterator[str]:
    sizes: dict[str, int] = {}
    for entry in model.configuration:
        if not entry.name or entry.name in sizes:
            yield f"configuration {entry.name!r}: has no name of its own"
        if entry.num_devices < 1:
            yield f"configuration {entry.name!r}: has {entry.num_devices} devices"
        if entry.device and len(entry.device) != entry.num_devices:
            yield f"configuration {entry.name!r}: names {len(entry.device)} devices, not all"
        if len(set(entry.device)) < len(entry.device):
            yield f"configuration {entry.name!r}: two devices have one name"
        sizes[entry.name] = entry.num_devices
    ranks = _ranks(model.graph)
    used = bool(sizes)
    stage_of: dict[tuple[str, str], int] = {}
    for node in (*_nodes_and_branches(model.graph), *(n for f in model.functions for n in f.node)):
        used = used or bool(node.device_configurations)
        seen: set[str] = set()
        for note in node.device_configurations:
            here = f"node {node.name or next(iter(node.output), '')!r}"
            name = note.configuration_id
            if name not in sizes:
                yield f"{here}: the model has no configuration {name!r}"
                continue
            if name in seen:
                yield f"{here}: names configuration {name!r} twice"
            seen.add(name)
            yield from _stage_faults(here, node, note, stage_of)
            tensors = [spec.tensor_name for spec in note.sharding_spec]
            for tensor in sorted({one for one in tensors if tensors.count(one) > 1}):
                yield f"{here}: places {tensor!r} twice"
            for spec in note.sharding_spec:
                if not spec.tensor_name or spec.tensor_name not in (*node.input, *node.output):
                    yield f"{here}: neither reads nor writes {spec.tensor_name!r}"
                for fault in _spec_faults(spec, sizes[name], ranks):
                    yield f"{here}: {spec.tensor_name!r} {fault}"
    if used and model.ir_version < FIRST_IR:
        yield f"the model has IR version {model.ir_version}, and configurations need {FIRST_IR}"


def _stage_faults(
    here: str, node: Any, note: Any, stage_of: dict[tuple[str, str], int]
) -> Iterator[str]:
    """A stage is a number from 0, and reads what it and earlier ones wrote."""
    if not note.HasField("pipeline_stage"):
        return
    name, stage = note.configuration_id, note.pipeline_stage
    if stage < 0:
        yield f"{here}: its stage is {stage}"
    for tensor in node.input:
        later = stage_of.get((name, tensor), stage)
        if later > stage:
            yield f"{here}: stage {stage} reads {tensor!r} of the later stage {later}"
    stage_of.update(((name, tensor), stage) for tensor in node.output if tensor)


def _spec_faults(spec: Any, num_devices: int, ranks: Mapping[str, int]) -> Iterator[str]:
    groups = {entry.key: list(entry.value) for entry in spec.index_to_device_group_map}
    if len(groups) < len(spec.index_to_device_group_map):
        yield "has a group of devices twice"
    if not spec.device:
        yield "is on no device"
    if len(set(spec.device)) < len(spec.device):
        yield "names a device twice"
    for k in spec.device:
        members = groups.get(k, [k])
        if not members or len(set(members)) < len(members):
            yield f"has a group {k} that is empty, or names a device twice"
        for member in members:
            if not 0 <= member < num_devices:
                yield f"is on device {member} of {num_devices}"
    rank, axes, shards = ranks.get(spec.tensor_name), set(), []
    for dim in spec.sharded_dim:
        axis = dim.axis
        if rank is not None and not -rank <= axis < rank:
            yield f"is divided along axis {axis}, and has {rank}"
        elif rank is not None:
            axis %= rank
        if axis in axes:
            yield f"is divided along axis {axis} twice"
        axes.add(axis)
        numbers = [part.num_shards for part in dim.simple_sharding]
        if not numbers or min(numbers) < 1:
            yield f"is divided along axis {axis} into no parts"
        shards += [max(1, number) for number in numbers]
    if spec.sharded_dim and prod(shards) != len(spec.device):
        yield f"has {prod(shards)} parts for {len(spec.device)} devices"
    if not spec.sharded_dim and len(spec.device) > 1:
        yield "is whole, and on several devices that are no group"


def _nodes_and_branches(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _nodes_and_branches(inner)


def _ranks(graph: Any) -> dict[str, int]:
    """Numbers of axes of the tensors whose shapes the file states."""
    found = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape"):
            found[value.name] = len(value.type.tensor_type.shape.dim)
    return found
