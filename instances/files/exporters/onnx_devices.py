"""``device_configurations`` of ONNX: a model's nodes with their devices, in a copy of its file.

Source: ONNX IR 11 (``onnx.proto``: ``DeviceConfigurationProto``, ``NodeDeviceConfigurationProto``,
``ShardingSpecProto``) and the ONNX Multi-Device Proposal. The model names a configuration and its
devices. Each node names the configuration, and the device of each tensor that it reads or writes,
whole and undivided: transfers are implied. Under an objective of pipelines it has its stage too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import LoadSemantics, PipelineIteration, Semantics
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.stages import plan_stages

CONFIGURATION = "placegap"
"""What the configuration is called."""

FIRST_IR = 11
"""The first version of ONNX' IR that has configurations."""


def annotate(model: Any, instance: Instance, plan: Plan, semantics: Semantics) -> None:
    """Write a plan into a model, in place; a configuration of the same name is replaced.

    Parameters
    ----------
    model : ModelProto
        The one that the instance was read from, without functions of its own.
    instance, plan, semantics
        A node that is no op, as its inputs are constants, is where the nodes are that read it; a
        node that nothing depends on is nowhere.

    Raises
    ------
    InputError
        If an op is on several devices, or cannot be found in the model.

    Examples
    --------
    >>> from onnx import helper
    >>> from placegap.instances import Edge, Makespan, example
    >>> edges = (("op1", "op2", "a"), ("op1", "op3", "a"), ("op2", "op4", "b"), ("op3", "op4", "c"))
    >>> edges = [Edge(producer=a, consumer=b, bytes=1, tensor=name) for a, b, name in edges]
    >>> graph = example().graph.model_copy(update={"edges": tuple(edges)})
    >>> net = Instance(name="net", graph=graph, cluster=example().cluster)
    >>> nodes = [helper.make_node("Sum", reads.split(), [made], name=op) for op, reads, made in (
    ...     ("op1", "x", "a"), ("op2", "a", "b"), ("op3", "a", "c"), ("op4", "b c", "y"))]
    >>> model = helper.make_model(helper.make_graph(nodes, "net", [], []), ir_version=8)
    >>> annotate(model, net, Plan.on([0, 1, 0, 0]), Makespan())
    >>> model.ir_version, list(model.configuration[0].device)
    (11, ['gpu0', 'gpu1'])
    >>> [node.device_configurations[0].sharding_spec[0].device[0] for node in model.graph.node]
    [0, 1, 0, 0]
    """
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
    """The op that each node is: by the tensors that it writes, and where nothing reads those, by
    its name, as the importer gives them.
    """
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
    if isinstance(semantics, PipelineIteration):
        stages = plan_stages(instance, plan, semantics)
        last = 2 * stages.num_stages - 1
        return [min(step, last - step) for step in stages.step.tolist()]
    if not isinstance(semantics, LoadSemantics):
        return []
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
