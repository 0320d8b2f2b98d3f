"""``device_configurations`` of ONNX: a model's nodes with their devices, in a copy of its file.

Source: ONNX IR 11 (``onnx.proto``: ``DeviceConfigurationProto``, ``NodeDeviceConfigurationProto``,
``ShardingSpecProto``) and the ONNX Multi-Device Proposal. The model names a configuration and its
devices. Each node names the configuration, and the device of each tensor that it reads or writes,
whole and undivided: transfers are implied. Under an objective of pipelines it has its stage too.

``onnx.checker`` looks at no configuration. `device_faults` says what breaks a rule of them
(comments of ``onnx.proto``, sharding rules of the proposal); it shares no code with what writes
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import Any

from placegap.instances.exporters.modules import op_stages
from placegap.instances.problem import Instance, Plan, Semantics
from placegap.instances.reading.errors import InputError

CONFIGURATION = "placegap"  # what the configuration is called
FIRST_IR = 11  # the first version of ONNX' IR that has configurations


def annotate(model: Any, instance: Instance, plan: Plan, semantics: Semantics) -> None:
    """Write a plan into a model, in place; a configuration of the same name is replaced."""
    # The model has no functions of its own. A node that is no op, as its inputs are constants, is
    # on the devices of the nodes that read it; a node that nothing depends on is nowhere.
    for op, devices in zip(instance.graph.ops, plan.placement, strict=True):
        if len(devices) > 1:
            raise InputError(f"op {op.name!r} is on {len(devices)} devices; leave out --replicas")
    names = [spec.name for spec in instance.cluster.devices]
    for at in reversed(range(len(model.configuration))):
        if model.configuration[at].name == CONFIGURATION:
            del model.configuration[at]
    model.configuration.add(name=CONFIGURATION, num_devices=len(names), device=names)
    model.ir_version = max(FIRST_IR, model.ir_version)
    nodes = list(_nodes(model.graph))
    homes = _homes(nodes, _op_of(nodes, instance), plan.devices.tolist())
    stages = _stages(instance, plan, semantics)
    last = _homes(nodes, _op_of(nodes, instance), stages) if stages else {}
    for at, node in enumerate(nodes):
        for old in reversed(range(len(node.device_configurations))):
            if node.device_configurations[old].configuration_id == CONFIGURATION:
                del node.device_configurations[old]
        if not homes[at]:
            continue
        note = node.device_configurations.add(configuration_id=CONFIGURATION)
        if stages:
            note.pipeline_stage = min(last[at])
        for tensor in dict.fromkeys(filter(None, (*node.input, *node.output))):
            spec = note.sharding_spec.add(tensor_name=tensor)
            _place(spec, sorted(homes[at]))


def _place(spec: Any, devices: list[int]) -> None:
    """On one device, or whole on each of several: a group, whose number is negative."""
    if len(devices) == 1:
        spec.device.append(devices[0])
    else:
        spec.device.append(-1)
        spec.index_to_device_group_map.add(key=-1, value=devices)


def _nodes(graph: Any) -> Iterator[Any]:
    """All nodes; those of branches stand before the node that has the branches."""
    for node in graph.node:
        for inner in _branches(node):
            yield from _nodes(inner)
        yield node


def _branches(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _op_of(nodes: list[Any], instance: Instance) -> list[int | None]:
    """The op that each node is: by the tensors that it writes, else by its name."""
    # The name, as the importer gives them, is for nodes whose tensors nothing reads.
    ops, index = instance.graph.ops, instance.arrays.index
    writer = {
        edge.tensor: int(i)
        for edge, i in zip(instance.graph.edges, index.producer.tolist(), strict=True)
    }
    found = [next((writer[name] for name in node.output if name in writer), None) for node in nodes]
    labels = [node.name or next(filter(None, node.output), "") or node.op_type for node in nodes]
    free: dict[str, list[int]] = defaultdict(list)
    read = {name for node in nodes for name in node.input}
    for at, node in enumerate(nodes):
        if found[at] is None and read.isdisjoint(filter(None, node.output)):
            free[labels[at]].append(at)
    ends: dict[str, list[int]] = defaultdict(list)
    known = set(found)
    for i, op in enumerate(ops):
        if i not in known:
            label = op.name if op.name in free else op.name.rpartition("#")[0]
            ends[label].append(i)
    for label, missing in ends.items():
        if len(missing) != len(free[label]):
            raise InputError(
                f"op {ops[missing[0]].name!r} cannot be told from others of its name; give the"
                " nodes of the model names"
            )
        for at, i in zip(free[label], missing, strict=True):
            found[at] = i
    return found


def _homes(nodes: list[Any], op_of: list[int | None], place: list[int]) -> dict[int, set[int]]:
    """The place of each node that is an op, and the places of its readers for others."""
    reader: dict[str, set[int]] = defaultdict(set)
    homes: dict[int, set[int]] = {}
    for at in reversed(range(len(nodes))):
        op = op_of[at]
        if op is None:
            homes[at] = set().union(*(reader[name] for name in nodes[at].output if name))
        else:
            homes[at] = {place[op]}
        results = (value.name for inner in _branches(nodes[at]) for value in inner.output)
        for name in (*nodes[at].input, *results):
            reader[name] |= homes[at]
    return homes


def _stages(instance: Instance, plan: Plan, semantics: Semantics) -> list[int]:
    """The stage of each op under an objective of pipelines, if the plan has such; else nothing."""
    if not semantics.load_passes:
        return op_stages(instance, plan, semantics)
    devices, index = plan.devices.tolist(), instance.arrays.index
    feeds: TopologicalSorter[int] = TopologicalSorter()
    for i in index.topological_order.tolist():
        feeds.add(devices[i])
    for a, b in zip(index.producer.tolist(), index.consumer.tolist(), strict=True):
        if devices[a] != devices[b]:
            feeds.add(devices[b], devices[a])
    try:
        number = {k: s for s, k in enumerate(feeds.static_order())}
    except CycleError:  # a device's ops are before and after another's
        return []
    return [number[k] for k in devices]


def device_faults(model: Any) -> tuple[str, ...]:
    """Sentences on all that breaks a rule; none for a model without configurations."""
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
