"""Where a plan puts whole modules: the device, or the stage, of each layer; else one line why not.

Exports in terms of modules are exact, never rounded: a plan that divides a layer is refused.
"""

from __future__ import annotations

from itertools import pairwise

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.modules import layer_of, numbered_layers
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import PipelineIteration, Semantics
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.simulate import PlanError
from placegap.instances.referee.stages import plan_stages


def layer_devices(instance: Instance, plan: Plan) -> dict[str, int]:
    """The device of each layer, in the order in which the layers run.

    Raises
    ------
    InputError
        If a layer is on several devices, or an op outside of all layers is apart from what feeds
        it: no module's border is there, at which a tool could move a tensor.

    Examples
    --------
    >>> from placegap.instances import example
    >>> instance = example()
    >>> ops = [op.model_copy(update={"module": f"h.{op.name[2:]}"}) for op in instance.graph.ops]
    >>> graph = instance.graph.model_copy(update={"ops": tuple(ops)})
    >>> named = instance.model_copy(update={"graph": graph})
    >>> layer_devices(named, Plan.on([0, 0, 1, 0]))
    {'h.1': 0, 'h.2': 0, 'h.3': 1, 'h.4': 0}
    """
    _refuse_replicas(instance, plan)
    layers, device = layer_of(instance.graph), plan.devices.tolist()
    names = [spec.name for spec in instance.cluster.devices]
    return _by_layer(instance, layers, device, "devices", names)


def layer_stages(instance: Instance, plan: Plan, semantics: Semantics) -> list[list[str]]:
    """The layers of each stage, in the order in which they run.

    Raises
    ------
    InputError
        If the plan is no chain of stages, a layer is in several of them, or a stage has none.
    """
    _refuse_replicas(instance, plan)
    layers = layer_of(instance.graph)
    if isinstance(semantics, PipelineIteration):
        try:
            stages = plan_stages(instance, plan, semantics)
        except PlanError as error:
            raise InputError(f"the plan is no pipeline: {error}") from None
        last = 2 * stages.num_stages - 1
        stage = [min(step, last - step) for step in stages.step.tolist()]
    else:  # gradients of tied weights go any way: the forward pass tells the order of the devices
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
                f"{after!r} runs after {before!r}, but is in the earlier stage {other}; ask for a"
                " pipeline (--objective max_load --plans chain)"
            )
    lists = [[layer for layer, s in found.items() if s == at] for at in range(count)]
    if not all(lists):
        raise InputError(f"stage {lists.index([])} has no layer; add --granularity layer")
    return lists


def layer_list(instance: Instance) -> list[str]:
    """The only list of numbered layers, in order.

    Raises
    ------
    InputError
        If there is none, or there are several (an encoder and a decoder, stages of a ResNet).
    """
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
    graph, index = instance.graph, instance.arrays.index
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
                f"{layer!r} is on two {what} ({both}), and this format has whole modules; add"
                " --granularity layer"
            )
    for a, b in zip(index.producer.tolist(), index.consumer.tolist(), strict=True):
        if layers[b] is None and not instance.arrays.backward[b] and place[a] != place[b]:
            raise InputError(
                f"op {graph.ops[b].name!r} of {graph.ops[b].module or 'the model itself'!r} is"
                f" apart from {graph.ops[a].name!r}, which feeds it, and no module's border is"
                " between; add --granularity layer"
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
