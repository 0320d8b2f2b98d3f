"""Where a plan puts whole modules: the device, or the stage, of each layer; else one line why not.

Exports in terms of modules are exact, never rounded: a plan that divides a layer is refused.

``device_map`` of accelerate and transformers: the device of each module, as JSON.

Source: accelerate's guide "Big model inference": ``{"model.embed_tokens": 0, "model.layers.0": 0,
"lm_head": "cpu"}``; a number is a GPU, and every parameter needs an entry of a module that holds
it. Each entry's module gets a hook that moves its inputs to its device.

Beside it a CSV file with one row per op: where it runs, and when, for spreadsheets and scripts.
"""

from __future__ import annotations

import csv
import json
from io import StringIO
from itertools import pairwise, product
from typing import Any

from placegap.instances.costing.catalogue import is_cpu
from placegap.instances.objectives.iteration.stages import plan_stages
from placegap.instances.problem import (
    WITHOUT_OPS,
    Edge,
    Instance,
    Op,
    PipelineIteration,
    Plan,
    Semantics,
)
from placegap.instances.problem.integers import NS_PER_S, UNSUPPORTED, ceil_div
from placegap.instances.problem.modules import feeders, is_expert, layer_of, numbered_layers
from placegap.instances.problem.op_kernel import ExpertsKernel, MatrixProduct
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.printable import printable
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.rules import PlanError

APART = "~host"  # ends the names of ops of experts that are apart from those on the card
# Of which a part of the experts has its share.
SIZES = ("flops", "bytes_moved", "parameter_bytes", "resident_bytes", "state_bytes")


def layer_devices(instance: Instance, plan: Plan) -> dict[str, int]:
    """The device of each layer, in the order in which the layers run."""
    _refuse_replicas(instance, plan)
    layers, device = layer_of(instance.graph), plan.devices.tolist()
    names = [spec.name for spec in instance.cluster.devices]
    return _by_layer(instance, layers, device, "devices", names)


def op_stages(instance: Instance, plan: Plan, semantics: Semantics) -> list[int]:
    """The stage of each op under pipeline_iteration; nothing under other rules."""
    if not isinstance(semantics, PipelineIteration):
        return []
    stage: list[int] = plan_stages(instance, plan, semantics).stage.tolist()
    return stage


def layer_stages(instance: Instance, plan: Plan, semantics: Semantics) -> list[list[str]]:
    """The layers of each stage, in the order in which they run."""
    _refuse_replicas(instance, plan)
    layers = layer_of(instance.graph)
    try:
        stage = op_stages(instance, plan, semantics)
    except PlanError as error:
        raise InputError(f"the plan is not a pipeline: {error}") from None
    if not stage:  # gradients of tied weights go any way: the forward pass orders the devices
        devices, order = plan.devices.tolist(), run_order(instance)
        number: dict[int, int] = {}
        for i in sorted(range(instance.num_ops), key=lambda i: order[i]):
            if layers[i] is not None and not instance.arrays.backward[i]:
                number.setdefault(devices[i], len(number))
        stage = [number.setdefault(k, len(number)) for k in devices]
    count = max(stage) + 1
    found = _by_layer(instance, layers, stage, "stages", [f"stage {s}" for s in range(count)])
    # the forward op of a module may be a part of its reader's; then only backward ops name it
    runs = {layers[i] for i in range(instance.num_ops) if not instance.arrays.backward[i]}
    forward = [(layer, s) for layer, s in found.items() if layer in runs]
    for (before, one), (after, other) in pairwise(forward):
        if one > other:
            raise InputError(
                f"{after!r} runs after {before!r}, but is in the earlier stage {other}; place a"
                " pipeline (--objective max_load --plans chain)"
            )
    lists = [[layer for layer, s in found.items() if s == at] for at in range(count)]
    if not all(lists):
        raise InputError(f"stage {lists.index([])} has no layer; add --granularity layer")
    return lists


def layer_list(instance: Instance) -> list[str]:
    """The only list of numbered layers, in order."""
    lists = numbered_layers(layer_of(instance.graph))
    if len(lists) != 1:
        what = f"{len(lists)} lists of layers ({', '.join(lists)})" if lists else "no layers"
        raise InputError(
            f"{instance.graph.name} has {what}, and this format counts the layers of one list;"
            " export torchtitan, pipelining or device_map"
        )
    ((owner, found),) = lists.items()
    if found != [f"{owner}.{k}" for k in range(len(found))]:
        raise InputError(f"the layers of {owner} do not run in the order of their numbers")
    return found


def _refuse_replicas(instance: Instance, plan: Plan) -> None:
    for op, devices in zip(instance.graph.ops, plan.placement, strict=True):
        if len(devices) > 1:
            raise InputError(
                f"op {op.name!r} is on {len(devices)} devices, which share its stage; this format"
                " has no replicas: leave out --replicas"
            )


def _by_layer(
    instance: Instance,
    layers: tuple[str | None, ...],
    place: list[int],
    what: str,
    names: list[str],
) -> dict[str, int]:
    graph = instance.graph
    if not any(layers):
        raise InputError(f"no op of {graph.name} names its module; trace the model (hf:, py:)")
    first: dict[str, int] = {}
    order = run_order(instance)
    for i in sorted(range(instance.num_ops), key=lambda i: (instance.arrays.backward[i], order[i])):
        layer = layers[i]
        if layer is None:
            continue
        if first.setdefault(layer, i) != i and place[first[layer]] != place[i]:
            both = f"{names[place[first[layer]]]} and {names[place[i]]}"
            raise InputError(
                f"{layer!r} is on two {what} ({both}), but this format keeps modules whole; add"
                " --granularity layer"
            )
    for b, a in feeders(instance, layers).items():
        if not instance.arrays.backward[b] and place[a] != place[b]:
            raise InputError(
                f"op {graph.ops[b].name!r} of {graph.ops[b].module or 'the model itself'!r} and"
                f" {graph.ops[a].name!r}, which feeds it, are on different {what} inside one"
                " module; add --granularity layer"
            )
    return {layer: place[i] for layer, i in first.items()}


def run_order(instance: Instance) -> list[int]:
    """When each op runs in the model's code: the order of the file, if it is a possible one."""
    index = instance.arrays.index
    if (index.producer < index.consumer).all():
        return list(range(instance.num_ops))
    order = [0] * instance.num_ops
    for at, i in enumerate(index.topological_order.tolist()):
        order[i] = at
    return order


def device_map(instance: Instance, plan: Plan) -> dict[str, int | str]:
    """The device of each layer: the number of an accelerator, or "cpu"."""
    # Modules that hold weights and that no op names (their ops were folded, or never run) are with
    # the first layer that shares most of their path.
    cluster, number, cpus = instance.cluster, dict[int, int | str](), list[int]()
    for k, spec in enumerate(cluster.devices):
        if is_cpu(spec, cluster):
            cpus.append(k)
        number[k] = "cpu" if is_cpu(spec, cluster) else k - len(cpus)
    home = layer_devices(instance, plan)
    for k in home.values():
        if k in cpus[1:]:
            raise InputError(
                f"layers are on {cluster.devices[k].name!r}, but accelerate has one CPU, the first"
                f" one, {cluster.devices[cpus[0]].name!r}; leave the others out of the cluster"
            )
    found = {layer: number[k] for layer, k in home.items()}
    complete = dict(found)
    for module in modules_without_ops(instance):
        if not any(module == layer or module.startswith(f"{layer}.") for layer in complete):
            complete[module] = found[max(found, key=lambda layer: _shared(module, layer))]
    return complete


def write_device_map(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The device map as a JSON file."""
    return json.dumps(device_map(instance, plan), indent=2) + "\n"


def priced_map(instance: Instance, main: int) -> Instance:
    """The instance as accelerate runs a map."""
    # What is on a CPU runs on the main card, to which its weights are copied in every pass
    # (``dispatch_model``: ``execution_device=main_device``). Links stay: what such a module reads
    # and writes is small beside its weights.
    arrays, cluster, ops = instance.arrays, instance.cluster, list(instance.graph.ops)
    devices, kinds = list(cluster.devices), dict[str, str]()
    of_cards = {device.kind for device in devices if not is_cpu(device, cluster)}
    for k, device in enumerate(devices):
        if not is_cpu(device, cluster):
            continue
        own = f"{device.kind} (copies)" if device.kind in of_cards else device.kind
        devices[k] = device.model_copy(update={"kind": own})
        if kinds.setdefault(own, device.name) != device.name:
            continue  # times are by kind: those of its first device count
        if (k, main) not in cluster.widest_paths:
            raise InputError(
                f"no link leads from {device.name!r} to {cluster.devices[main].name!r}, to which"
                " accelerate copies its weights"
            )
        bandwidth, _ = cluster.widest_paths[k, main]
        for i, op in enumerate(ops):
            time = {**op.time_ns}
            if device.kind in time:
                time[own] = time[device.kind]
            if arrays.time_ns[i, main] != UNSUPPORTED:
                copied = ceil_div(op.parameter_bytes * NS_PER_S, bandwidth)
                time[own] = int(arrays.time_ns[i, main]) + copied
            ops[i] = op.model_copy(update={"time_ns": time})
    graph = instance.graph.model_copy(update={"ops": tuple(ops)})
    return instance.model_copy(
        update={
            "graph": graph,
            "cluster": cluster.model_copy(update={"devices": tuple(devices)}),
            "best_known": (),
        }
    )


def parted_experts(instance: Instance, on_card: int) -> Instance:
    """The instance with the experts of each layer in two parts, side by side."""
    # They are `on_card`, and, by names with `APART`, the others. Of a token's experts each part
    # runs as large a share as it holds, in the mean; ops that hold no weights both parts run.
    graph, count = instance.graph, num_experts(instance)
    if not 0 <= on_card <= count:
        raise InputError(f"there are {count} experts in a layer, and {on_card} cannot be on a card")
    shares = [(name, n) for name, n in (("", on_card), (APART, count - on_card)) if n]
    ops, names = list[Op](), dict[str, list[str]]()
    for op in graph.ops:
        parts = shares if is_expert(op) else [("", count)]
        if parts == [("", count)]:
            ops.append(op)
            continue
        names[op.name] = [op.name + name for name, _ in parts]
        for name, n in parts:
            group = None if op.colocation is None else op.colocation + name
            changes: dict[str, Any] = {"name": op.name + name, "colocation": group}
            if op.parameter_bytes and n < count:
                sizes = {size: getattr(op, size) or 0 for size in SIZES}
                changes |= {size: ceil_div(whole * n, count) for size, whole in sizes.items()}
                changes["time_ns"] = {k: ceil_div(ns * n, count) for k, ns in op.time_ns.items()}
            ops.append(op.model_copy(update=changes))
    edges = list[Edge]()
    for edge in graph.edges:
        if edge.producer not in names and edge.consumer not in names:
            edges.append(edge)
            continue
        a, b = (names.get(end, [end]) for end in (edge.producer, edge.consumer))
        pairs = zip(a, b, strict=True) if len(a) == len(b) else product(a, b)
        edges += [edge.model_copy(update={"producer": x, "consumer": y}) for x, y in pairs]
    return instance.with_graph(graph.model_copy(update={"ops": tuple(ops), "edges": tuple(edges)}))


def num_experts(instance: Instance) -> int:
    """How many experts a layer has, by their kernel or by what the router computes."""
    kernels = [(op.kernel, (op.module or "").rpartition(".")[2]) for op in instance.graph.ops]
    found = {kernel.experts for kernel, _ in kernels if isinstance(kernel, ExpertsKernel)}
    found |= {
        kernel.n
        for kernel, last in kernels
        if isinstance(kernel, MatrixProduct) and last in ("gate", "router")
    }
    if len(found) != 1:
        raise InputError(f"{instance.graph.name} does not say how many experts a layer has")
    return found.pop()


def modules_without_ops(instance: Instance) -> list[str]:
    """Modules that hold weights and that no op names, as the reader of the model noted them."""
    noted = instance.graph.provenance.parameters.get(WITHOUT_OPS)
    return noted.split() if isinstance(noted, str) else []


def _shared(one: str, other: str) -> int:
    """How many components two paths have in common from the start."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), len(other))


COLUMNS = (
    *("name", "kind", "module", "backward", "device", "device_kind", "stage", "time_ns"),
    *("start_ns", "end_ns", "resident_bytes", "parameter_bytes"),
)


def write_op_table(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The table of a plan; an op of a replicated stage has a row for each of its devices."""
    # ``stage`` is empty but under pipeline_iteration, ``start_ns`` and ``end_ns`` are where the
    # value has no schedule of ops. Control characters of names are written as escapes.
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    schedule = evaluate(instance, plan, semantics).schedule
    stage = op_stages(instance, plan, semantics)
    for i, (op, devices) in enumerate(zip(instance.graph.ops, plan.placement, strict=True)):
        when = ("", "") if schedule is None else (schedule.start_ns[i], schedule.end_ns[i])
        for k in devices:
            spec = instance.cluster.devices[k]
            table.writerow(
                (
                    *map(printable, (op.name, op.kind, op.module or "")),
                    int(op.backward),
                    *map(printable, (spec.name, spec.kind)),
                    stage[i] if stage else "",
                    int(instance.arrays.time_ns[i, k]),
                    *when,
                    op.resident_bytes,
                    op.parameter_bytes,
                )
            )
    return text.getvalue()
