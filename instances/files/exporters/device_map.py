"""``device_map`` of accelerate and transformers: the device of each module, as JSON.

Source: accelerate's guide "Big model inference": ``{"model.embed_tokens": 0, "model.layers.0": 0,
"lm_head": "cpu"}``; a number is a GPU, and every parameter needs an entry of a module that holds
it. Each entry's module gets a hook that moves its inputs to its device.
"""

from __future__ import annotations

import json

from placegap.instances.io.costing import is_cpu
from placegap.instances.io.export_modules import layer_devices
from placegap.instances.problem.instance import WITHOUT_OPS, Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import Semantics


def device_map(instance: Instance, plan: Plan) -> dict[str, int | str]:
    """The device of each layer: the number of an accelerator, or "cpu".

    Modules that hold weights and that no op names (their ops were folded, or never run) are with
    the first layer that shares most of their path.

    Raises
    ------
    InputError
        If the plan divides a layer (`layer_devices`).
    """
    number: dict[int, int | str] = {}
    for k, spec in enumerate(instance.cluster.devices):
        number[k] = "cpu" if is_cpu(spec) else sum(isinstance(at, int) for at in number.values())
    found = {layer: number[k] for layer, k in layer_devices(instance, plan).items()}
    complete = dict(found)
    for module in modules_without_ops(instance):
        if not any(module == layer or module.startswith(f"{layer}.") for layer in complete):
            complete[module] = found[max(found, key=lambda layer: _shared(module, layer))]
    return complete


def write_device_map(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The device map as a JSON file."""
    return json.dumps(device_map(instance, plan), indent=2) + "\n"


def modules_without_ops(instance: Instance) -> list[str]:
    """Modules that hold weights and that no op names, as the reader of the model noted them."""
    noted = instance.graph.provenance.parameters.get(WITHOUT_OPS)
    return noted.split() if isinstance(noted, str) else []


def _shared(one: str, other: str) -> int:
    """How many components two paths have in common from the start."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), len(other))
