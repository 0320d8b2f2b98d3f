"""Each rule of device configurations, broken once; the faultless model breaks none."""

from collections.abc import Callable
from typing import Any

import pytest
from doubles.onnx_nets import helper, nodes, tensor

from placegap.instances.exporters.onnx import device_faults


def model() -> Any:
    """x -> r -> a -> e -> y on two devices: a is whole on both, y in halves along axis 1."""
    x, a, y = (tensor(name, 2, 4) for name in "xay")
    graph = helper.make_graph(nodes("r: Relu x > a; e: Exp a > y"), "net", [x], [y], value_info=[a])
    made = helper.make_model(graph, ir_version=11)
    made.configuration.add(name="two", num_devices=2, device=["left", "right"])
    for at, (name, stage) in enumerate((("a", 0), ("y", 1))):
        note = made.graph.node[at].device_configurations.add(configuration_id="two")
        note.pipeline_stage = stage
        note.sharding_spec.add(tensor_name=name)
    whole, halves = spec(made, 0), spec(made, 1)
    whole.device.append(-1)
    whole.index_to_device_group_map.add(key=-1, value=[0, 1])
    halves.device.extend([0, 1])
    halves.sharded_dim.add(axis=1).simple_sharding.add(num_shards=2)
    return made


def note(made: Any, at: int) -> Any:
    return made.graph.node[at].device_configurations[0]


def spec(made: Any, at: int) -> Any:
    return note(made, at).sharding_spec[0]


def group(made: Any) -> Any:
    return spec(made, 0).index_to_device_group_map


def halved(made: Any) -> Any:
    return spec(made, 1).sharded_dim[0]


def test_a_model_that_keeps_all_rules_or_has_no_configurations_has_no_fault() -> None:
    assert device_faults(model()) == ()
    graph = helper.make_graph(nodes("Relu x > y"), "net", [], [])
    assert device_faults(helper.make_model(graph, ir_version=7)) == ()


DAMAGES: list[tuple[Callable[[Any], object], str]] = [
    (lambda m: setattr(m, "ir_version", 10), "IR version 10, and configurations need 11"),
    (lambda m: m.configuration.add(name="two", num_devices=1), "'two': has no name of its own"),
    (lambda m: m.configuration.add(name="one"), "'one': has 0 devices"),
    (lambda m: m.configuration[0].device.append("c"), "'two': names 3 devices, not all"),
    (lambda m: m.configuration[0].device.__setitem__(1, "left"), "two devices have one name"),
    (lambda m: setattr(note(m, 0), "configuration_id", "no"), "has no configuration 'no'"),
    (
        lambda m: m.graph.node[1].device_configurations.add(configuration_id="two"),
        "node 'e': names configuration 'two' twice",
    ),
    (lambda m: setattr(note(m, 0), "pipeline_stage", -1), "node 'r': its stage is -1"),
    (lambda m: setattr(note(m, 0), "pipeline_stage", 2), "stage 1 reads 'a' of the later stage 2"),
    (lambda m: setattr(spec(m, 0), "tensor_name", "y"), "neither reads nor writes 'y'"),
    (lambda m: note(m, 0).sharding_spec.add(tensor_name="a", device=[0]), "places 'a' twice"),
    (lambda m: spec(m, 1).device.__setitem__(0, 2), "'y' is on device 2 of 2"),
    (lambda m: spec(m, 1).device.__setitem__(0, 1), "'y' names a device twice"),
    (lambda m: spec(m, 0).device.__setitem__(0, -2), "'a' is on device -2 of 2"),
    (lambda m: spec(m, 0).ClearField("device"), "'a' is on no device"),
    (lambda m: group(m)[0].value.append(2), "'a' is on device 2 of 2"),
    (lambda m: group(m).add(key=-1, value=[0]), "'a' has a group of devices twice"),
    (lambda m: group(m)[0].ClearField("value"), "'a' has a group -1 that is empty"),
    (lambda m: setattr(halved(m), "axis", 2), "'y' is divided along axis 2, and has 2"),
    (
        lambda m: spec(m, 1).sharded_dim.add(axis=-1).simple_sharding.add(num_shards=1),
        "'y' is divided along axis 1 twice",
    ),
    (lambda m: halved(m).ClearField("simple_sharding"), "along axis 1 into no parts"),
    (
        lambda m: setattr(halved(m).simple_sharding[0], "num_shards", 3),
        "'y' has 3 parts for 2 devices",
    ),
    (lambda m: spec(m, 1).ClearField("sharded_dim"), "on several devices that are no group"),
]


@pytest.mark.parametrize(("damage", "fault"), DAMAGES)
def test_a_broken_rule_is_a_sentence(damage: Callable[[Any], object], fault: str) -> None:
    made = model()
    damage(made)
    assert fault in "\n".join(device_faults(made))
