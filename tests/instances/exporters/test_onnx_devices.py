"""A plan in a copy of an ONNX model: each node is where its op is, and the copy keeps the rules."""

from pathlib import Path
from typing import Any

import pytest
from doubles.onnx_nets import helper, nodes, save, tensor, weight

from placegap.experiments.running.exporting import write_exports
from placegap.instances import (
    InputError,
    Instance,
    Makespan,
    MaxLoad,
    Plan,
    Semantics,
    load_cluster,
)
from placegap.instances.exporters.onnx import annotate, device_faults
from placegap.instances.importers.onnx_model import inlined_model, load_onnx
from placegap.solvers import run_method

onnx = pytest.importorskip("onnx", reason="needs the onnx extra")
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
CHAIN = MaxLoad(plans="chain")


def net(folder: Path, made: list[Any], outputs: str = "y", **more: Any) -> Path:
    return save(folder, made, [tensor("x", 2, 3)], outputs, **{"ir_version": 8, **more})


def read(path: Path) -> Instance:
    return load_onnx(path).instance(load_cluster("celeritas-4xV100-pcie"))


def annotated(path: Path, placement: dict[str, int], semantics: Semantics) -> Any:
    """The model of a file with the plan in it; it keeps all rules."""
    instance, model = read(path), inlined_model(path)
    plan = Plan.on(placement[op.name] for op in instance.graph.ops)
    annotate(model, instance, plan, semantics)
    assert device_faults(model) == ()
    return model


def devices(node: Any) -> set[int]:
    """The devices of all tensors of a node, groups resolved."""
    found: set[int] = set()
    for note in node.device_configurations:
        assert note.configuration_id == "placegap"
        for spec in note.sharding_spec:
            groups = {entry.key: entry.value for entry in spec.index_to_device_group_map}
            found.update(k for at in spec.device for k in groups.get(at, [at]))
    return found


def test_every_tensor_of_a_node_is_on_its_device(tmp_path: Path) -> None:
    path = net(tmp_path, nodes("r: Relu x > a; e: Exp a > y"))
    model = annotated(path, {"r": 2, "e": 1}, Makespan())
    (spec,) = model.configuration
    assert (spec.name, spec.num_devices) == ("placegap", 4)
    assert list(spec.device) == ["gpu0", "gpu1", "gpu2", "gpu3"]
    places = [
        {spec.tensor_name: list(spec.device) for spec in note.sharding_spec}
        for at in model.graph.node
        for note in at.device_configurations
    ]
    assert places == [{"x": [2], "a": [2]}, {"a": [1], "y": [1]}]
    notes = [at.device_configurations[0] for at in model.graph.node]
    assert not any(note.HasField("pipeline_stage") for note in notes)  # one pass has no stages


def test_stages_are_in_the_order_of_the_pipeline_and_a_plan_that_goes_back_has_none(
    tmp_path: Path,
) -> None:
    path = net(tmp_path, nodes("r: Relu x > a; e: Exp a > b; z: Abs b > y"))
    model = annotated(path, {"r": 3, "e": 0, "z": 0}, CHAIN)
    assert [at.device_configurations[0].pipeline_stage for at in model.graph.node] == [0, 1, 1]
    back = annotated(path, {"r": 0, "e": 1, "z": 0}, MaxLoad(plans="any"))
    assert [devices(at) for at in back.graph.node] == [{0}, {1}, {0}]
    notes = [at.device_configurations[0] for at in back.graph.node]
    assert not any(note.HasField("pipeline_stage") for note in notes)


def test_a_node_of_constants_is_where_it_is_read_and_a_dead_one_nowhere(tmp_path: Path) -> None:
    made = nodes("Neg w > v; Relu x > dead; first: Add x v > a; second: Mul a v > y")
    path = net(tmp_path, made, initializer=[weight("w", 2, 3)])
    model = annotated(path, {"first": 1, "second": 2}, CHAIN)
    assert [devices(at) for at in model.graph.node] == [{1, 2}, set(), {1}, {2}]
    assert model.graph.node[0].device_configurations[0].pipeline_stage == 0


def test_nodes_of_one_name_are_told_apart_by_what_they_write(tmp_path: Path) -> None:
    # the importer calls the second and third op n#2 and n#3; the folded node has the name too
    made = nodes("n: Neg w > v; n: Add x v > a; n: Exp a > y; n: Abs a > z")
    path = net(tmp_path, made, "y z", initializer=[weight("w", 2, 3)], ir_version=12)
    model = annotated(path, {"n": 0, "n#2": 1, "n#3": 2}, Makespan())
    assert [devices(at) for at in model.graph.node] == [{0}, {0}, {1}, {2}]
    assert model.ir_version == 12


def test_functions_are_inlined_so_that_each_call_has_its_place(tmp_path: Path) -> None:
    body, sets = nodes("Relu p > q; Exp q > r"), [helper.make_opsetid("", 21)]
    both = helper.make_function("own", "Both", ["p"], ["r"], body, sets)
    path = net(tmp_path, nodes("Both x > a; Both a > y", domain="own"), functions=[both])
    names = [op.name for op in read(path).graph.ops]
    model = annotated(path, {name: k for k, name in enumerate(names)}, CHAIN)
    assert [devices(at) for at in model.graph.node] == [{0}, {1}, {2}, {3}]


def test_a_configuration_of_ours_is_replaced_and_others_stay(tmp_path: Path) -> None:
    path = net(tmp_path, nodes("r: Relu x > y"))
    model = annotated(path, {"r": 1}, Makespan())
    model.configuration.add(name="other", num_devices=2)
    model.graph.node[0].device_configurations.add(configuration_id="other")
    annotate(model, read(path), Plan.on([3]), Makespan())
    assert device_faults(model) == ()
    assert model.ir_version == 11  # of 8: raised only as far as needed
    assert [entry.name for entry in model.configuration] == ["other", "placegap"]
    notes = {note.configuration_id: note for note in model.graph.node[0].device_configurations}
    assert sorted(notes) == ["other", "placegap"]
    assert [list(spec.device) for spec in notes["placegap"].sharding_spec] == [[3], [3]]


def test_a_replicated_op_is_refused(tmp_path: Path) -> None:
    path = net(tmp_path, nodes("r: Relu x > y"))
    with pytest.raises(InputError, match=r"op 'r' .*--replicas"):
        annotate(inlined_model(path), read(path), Plan(((0, 1),)), MaxLoad(plans="any"))


def test_a_network_keeps_all_its_nodes_and_each_op_is_where_the_plan_says(tmp_path: Path) -> None:
    source = LIGHT / "light_shufflenet.onnx"
    instance = read(source)
    result = run_method(instance, CHAIN, "slicing")
    assert result.plan is not None
    assert write_exports(instance, result, {"onnx": tmp_path / "net.onnx"}, str(source), {}) == (
        (),
        (),
    )
    model, old = onnx.load(tmp_path / "net.onnx"), onnx.load(source)
    assert device_faults(model) == ()
    onnx.checker.check_model(model)
    assert [at.op_type for at in model.graph.node] == [at.op_type for at in old.graph.node]
    place = result.plan.devices.tolist()
    ops = {op.name: k for op, k in zip(instance.graph.ops, place, strict=True)}
    found = {at.name or at.output[0]: devices(at) for at in model.graph.node}
    assert {name: found[name] for name in ops} == {name: {k} for name, k in ops.items()}


def test_weights_beside_the_model_are_named_where_the_copy_lies_elsewhere(tmp_path: Path) -> None:
    stored = weight("w", 2, 3)
    stored.ClearField("raw_data")
    stored.data_location = 1
    stored.external_data.add(key="location", value="weights.bin")
    path = net(tmp_path, nodes("Add x w > y"), initializer=[stored])
    instance = read(path)
    result = run_method(instance, Makespan(), "single-device")
    (tmp_path / "out").mkdir()
    (line,), _ = write_exports(instance, result, {"onnx": tmp_path / "out/b.onnx"}, str(path), {})
    assert line.startswith("onnx: the weights stay in weights.bin, beside ")
    assert write_exports(instance, result, {"onnx": tmp_path / "b.onnx"}, str(path), {}) == ((), ())
