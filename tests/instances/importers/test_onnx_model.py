"""ONNX import: light models, what becomes what, and what cannot be read."""

from __future__ import annotations

import sys
from math import prod
from pathlib import Path
from typing import Any

import pytest

from placegap.instances import InputError
from placegap.instances.importers.onnx_model import read_onnx

onnx = pytest.importorskip("onnx", reason="needs the onnx extra")
helper = pytest.importorskip("onnx.helper")
FLOAT, INT64 = 1, 7
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def tensor(name: str, *dims: int | str, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def weight(name: str, *dims: int, values: list[int] | None = None) -> Any:
    """An initializer of zeros, or of the given integers."""
    if values is not None:
        return helper.make_tensor(name, INT64, dims, values)
    return helper.make_tensor(name, FLOAT, dims, bytes(4 * prod(dims)), raw=True)


def node(kind: str, reads: str, writes: str, name: str = "", **attributes: Any) -> Any:
    return helper.make_node(kind, reads.split(), writes.split(), name=name, **attributes)


def save(folder: Path, nodes: list[Any], inputs: list[Any], outputs: str, **rest: Any) -> Path:
    functions = rest.pop("functions", [])
    ends = [helper.make_empty_tensor_value_info(name) for name in outputs.split()]
    graph = helper.make_graph(nodes, "net", inputs, ends, **rest)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("custom", 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=functions)
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("name", "ops", "num_edges", "mega_parameters", "giga_flops"),
    [  # compute ops after folding, edges, parameters, FLOPs of convolutions and Gemms, as they were
        # measured before this importer was written
        ("bvlc_alexnet", 24, 23, 60.97, 1.31),
        ("resnet50", 176, 191, 25.61, 8.18),
        ("shufflenet", 203, 218, 1.42, 0.25),
    ],
)
def test_a_light_model_has_its_ops_parameters_and_flops(
    name: str, ops: int, num_edges: int, mega_parameters: float, giga_flops: float
) -> None:
    graph = read_onnx(LIGHT / f"light_{name}.onnx").graph
    assert (len(graph.ops), len(graph.edges)) == (ops, num_edges)
    parameters = sum(op.parameter_bytes for op in graph.ops) / 4e6
    flops = sum(op.flops or 0 for op in graph.ops if op.kind in ("Conv", "Gemm")) / 1e9
    assert parameters == pytest.approx(mega_parameters, rel=0.01)
    assert flops == pytest.approx(giga_flops, rel=0.01)


def test_a_small_net_is_counted_exactly(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        [
            node("Conv", "image kernel", "features", "conv", pads=[1, 1, 1, 1]),
            node("Relu", "features", "active", "relu"),
            node("Flatten", "active", "flat", "flatten"),
            node("Gemm", "flat matrix bias", "logits", "gemm", transB=1),
        ],
        [tensor("image", 1, 2, 4, 4)],
        "logits",
        initializer=[weight("kernel", 3, 2, 3, 3), weight("matrix", 5, 48), weight("bias", 5)],
    )
    graph = read_onnx(path).graph
    # image 32 elements, kernel 54, features 48, matrix 240, bias 5, logits 5; 4 bytes each
    fields = "flops", "bytes_moved", "parameter_bytes", "resident_bytes"
    assert {op.name: tuple(getattr(op, field) for field in fields) for op in graph.ops} == {
        "conv": (2 * 48 * 18, 4 * (32 + 54 + 48), 4 * 54, 4 * (54 + 48)),
        "relu": (48, 4 * (48 + 48), 0, 4 * 48),
        "flatten": (0, 0, 0, 0),
        "gemm": (2 * 5 * 48, 4 * (48 + 245 + 5), 4 * 245, 4 * 250),
    }
    wires = [("conv", "relu", 192), ("relu", "flatten", 192), ("flatten", "gemm", 192)]
    assert [(edge.producer, edge.consumer, edge.bytes) for edge in graph.edges] == wires


def test_a_value_with_two_readers_is_one_tensor_and_each_op_has_a_name_of_its_own(
    tmp_path: Path,
) -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Relu", "a", "b", "r"),
        node("Mul", "a a", "c", "r"),
        node("Add", "b c", "r"),
    ]
    graph = read_onnx(save(tmp_path, nodes, [tensor("x", 1, 8)], "r")).graph
    assert [(e.producer, e.consumer, e.tensor) for e in graph.edges] == [
        ("a", "r", "a"),
        ("a", "r#2", "a"),
        ("r", "r#3", "b"),
        ("r#2", "r#3", "c"),
    ]


def test_side_outputs_that_nobody_reads_take_no_memory(tmp_path: Path) -> None:
    pool = node("MaxPool", "x", "y indices", "pool", kernel_shape=[2, 2])
    (op,) = read_onnx(save(tmp_path, [pool], [tensor("x", 1, 1, 3, 3)], "y")).graph.ops
    assert (op.resident_bytes, op.flops) == (4 * 4, 4 * 4)


def test_constants_that_several_ops_read_are_shared_state(tmp_path: Path) -> None:
    # w has 12 floats and is read twice, v has 4 and is read once
    nodes = [
        node("MatMul", "x w", "a", "first"),
        node("Add", "a v", "b", "second"),
        node("MatMul", "x w", "c", "third"),
        node("Add", "b c", "y", "last"),
    ]
    weights = [weight("w", 3, 4), weight("v", 4)]
    path = save(tmp_path, nodes, [tensor("x", 1, 3)], "y", initializer=weights)
    found = {
        op.name: (op.parameter_bytes, op.state_bytes, op.shared_state)
        for op in read_onnx(path).graph.ops
    }
    assert found == {
        "first": (48, 0, {"w": 48}),
        "second": (16, None, {}),
        "third": (48, 0, {"w": 48}),
        "last": (0, None, {}),
    }


@pytest.mark.parametrize("stored", [False, True])
def test_a_mask_of_positions_is_workspace_and_one_of_stored_numbers_is_state(
    tmp_path: Path, stored: bool
) -> None:
    # positions 0 to 7, from the length of x or from the file; both ops read a mask of 8 x 8 bytes
    positions = [node("Shape", "x", "shape"), node("Gather", "shape zero", "length")]
    positions += [node("Range", "zero length one", "order")]
    nodes = [
        *([] if stored else positions),
        node("Unsqueeze", "order axis", "column"),
        node("GreaterOrEqual", "column order", "mask"),
        node("Where", "mask x x", "a", "first"),
        node("Where", "mask a x", "y", "last"),
    ]
    constants = [weight("zero", values=[0]), weight("one", values=[1])]
    constants += [weight("axis", 1, values=[1])]
    constants += [weight("order", 8, values=list(range(8)))] if stored else []
    path = save(tmp_path, nodes, [tensor("x", 8, 8)], "y", initializer=constants)
    for op in read_onnx(path).graph.ops:
        held = (op.parameter_bytes, sum(op.shared_state.values()), op.workspace_bytes)
        assert held == ((64, 64, 0) if stored else (0, 0, 64))
        # the mask, x (the last also a), and what is written: 8 x 8 numbers of 4 bytes
        assert op.bytes_moved == 64 + 256 * (2 if op.name == "first" else 3)
        assert op.resident_bytes == held[0] + 256


def test_a_mask_that_is_filled_up_by_constants_of_the_file_is_state(tmp_path: Path) -> None:
    # 16 numbers of the file are no shape, and one number of it is no data
    nodes = [
        node("Shape", "x", "shape"),
        node("ConstantOfShape", "shape", "zeros"),
        node("Add", "zeros w", "mixed"),
        node("Add", "zeros one", "ones"),
        node("Add", "x mixed", "a", "first"),
        node("Add", "a ones", "y", "last"),
    ]
    constants = [weight("w", 4, 4), weight("one", 1)]
    path = save(tmp_path, nodes, [tensor("x", 4, 4)], "y", initializer=constants)
    found = {op.name: (op.parameter_bytes, op.workspace_bytes) for op in read_onnx(path).graph.ops}
    assert found == {"first": (64, 0), "last": (0, 64)}


def test_arithmetic_on_static_shapes_is_folded_and_constants_become_parameters(
    tmp_path: Path,
) -> None:
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "batch"),
        node("Concat", "batch1 rest", "target", axis=0),
        node("Reshape", "x target", "flat", "reshape"),
        node("Constant", "", "dims", value=weight("v", 2, values=[8, 6])),
        node("ConstantOfShape", "dims", "made"),
        node("Transpose", "made", "turned"),
        node("MatMul", "flat turned", "y", "product"),
    ]
    nodes.insert(2, node("Unsqueeze", "batch first", "batch1"))
    constants = [weight("zero", values=[0]), weight("first", 1, values=[0])]
    constants.append(weight("rest", 1, values=[-1]))
    graph = read_onnx(
        save(tmp_path, nodes, [tensor("x", "N", 2, 3)], "y", initializer=constants)
    ).graph
    assert [(op.name, op.parameter_bytes, op.flops) for op in graph.ops] == [
        ("reshape", 0, 0),
        ("product", 4 * 48, 2 * 8 * 6),
    ]
    assert "nodes of constant inputs folded into parameters" in " ".join(graph.provenance.changes)


def test_an_input_with_an_initializer_is_a_parameter_and_one_without_is_data(
    tmp_path: Path,
) -> None:
    inputs = [tensor("ids", 2, 4, kind=INT64), tensor("table", 100, 8)]
    embed, table = node("Gather", "table ids", "y", "embed"), weight("table", 100, 8)
    (op,) = read_onnx(save(tmp_path, [embed], inputs, "y", initializer=[table])).graph.ops
    # reads 8 ids of 8 bytes and the 8 rows it writes, not the whole table of 3200 bytes
    assert (op.parameter_bytes, op.bytes_moved, op.flops) == (3200, 64 + 2 * 8 * 32, 0)


def test_an_unknown_batch_is_one_and_a_symbol_means_the_same_size_everywhere(
    tmp_path: Path,
) -> None:
    inputs = [tensor("z", 6, "N"), tensor("x", "N", 6)]
    path = save(tmp_path, [node("MatMul", "x z", "y", "product")], inputs, "y")
    assert read_onnx(path, dims={"N": 3}).graph.ops[0].flops == 2 * 3 * 3 * 6
    graph = read_onnx(path).graph
    assert graph.ops[0].flops == 2 * 6
    assert "dimension 0 of input x set to 1" in graph.provenance.changes


def test_another_unknown_dimension_must_be_given(tmp_path: Path) -> None:
    path = save(tmp_path, [node("Relu", "x", "y")], [tensor("x", 1, "length")], "y")
    with pytest.raises(InputError, match=r"input 'x': dimension 1 \(length\) is not known"):
        read_onnx(path)
    assert read_onnx(path, dims={"length": 7}).graph.ops[0].flops == 7
    with pytest.raises(InputError, match="dims: 'length' must be a positive integer"):
        read_onnx(path, dims={"length": 0})
    with pytest.raises(InputError, match="input 'x': dimension 1 is -2"):
        read_onnx(save(tmp_path, [node("Relu", "x", "y")], [tensor("x", 1, -2)], "y"))


def open_inputs(folder: Path, *inputs: tuple[str, list[int | str | None]]) -> Path:
    """A net that adds inputs, of which it takes one as the other's shape; None has no name."""
    values = [tensor(name, *(1 if dim is None else dim for dim in dims)) for name, dims in inputs]
    for value, (_, dims) in zip(values, inputs, strict=True):
        for axis, dim in enumerate(dims):
            if dim is None:
                value.type.tensor_type.shape.dim[axis].Clear()
    nodes = [node("Relu", name, f"y{at}", f"n{at}") for at, (name, _) in enumerate(inputs)]
    return save(folder, nodes, values, " ".join(f"y{at}" for at in range(len(inputs))))


def sizes_of(path: Path, **dims: int) -> list[int]:
    graph = read_onnx(path, {key.replace("_", "."): size for key, size in dims.items()}).graph
    return [op.flops or 0 for op in graph.ops]


def test_a_dimension_without_a_name_goes_by_its_input_and_axis(tmp_path: Path) -> None:
    # a Relu counts one FLOP per element; the first axis is the batch, 1 if nobody says
    path = open_inputs(tmp_path, ("ids", [None, -1]), ("mask", [-1, "L"]))
    assert sizes_of(path, ids_1=5, L=7) == [1 * 5, 1 * 7]
    assert sizes_of(path, ids_0=2, ids_1=5, mask_0=3, L=7) == [2 * 5, 3 * 7]
    assert sizes_of(path, batch=4, ids_0=2, ids_1=5, mask_1=7) == [2 * 5, 4 * 7]
    with pytest.raises(InputError, match=r"'mask.1' is 8 and 7; state one"):
        sizes_of(path, ids_1=5, L=7, mask_1=8)
    with pytest.raises(InputError, match=r"dimension 'ids.2' open, only: ids.0, ids.1, mask.0, L"):
        sizes_of(path, ids_2=5)


def test_all_sizes_that_are_missing_are_asked_for_at_once(tmp_path: Path) -> None:
    path = open_inputs(tmp_path, ("ids", ["N", "L", None]), ("mask", ["N", "L", -1]))
    asked = r"3 dimensions are not known; state them \(--dim L=SIZE --dim ids.2=SIZE --dim mask.2="
    with pytest.raises(InputError, match=asked):
        read_onnx(path)
    with pytest.raises(
        InputError, match=r"dimension 2 \(mask.2\) is not known; state it \(--dim m"
    ):
        sizes_of(path, L=2, ids_2=3)
    # "batch" is the name of another dimension here, and so means that alone
    path = open_inputs(tmp_path, ("ids", [None, "batch"]))
    assert sizes_of(path, batch=3) == [3]


def test_weights_in_a_file_beside_the_model_are_not_needed(tmp_path: Path) -> None:
    table = weight("w", 50, 50)
    onnx.external_data_helper.set_external_data(table, location="absent.bin")
    table.ClearField("raw_data")
    nodes = [node("MatMul", "x w", "y")]
    path = save(tmp_path, nodes, [tensor("x", 1, 50)], "y", initializer=[table])
    assert read_onnx(path).graph.ops[0].parameter_bytes == 10_000


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    body, sets = [node("Relu", "a", "m"), node("Relu", "m", "b")], [helper.make_opsetid("", 17)]
    twice = helper.make_function("custom", "Twice", ["a"], ["b"], body, sets)
    call = helper.make_node("Twice", ["x"], ["y"], domain="custom")
    path = save(tmp_path, [call], [tensor("x", 1, 4)], "y", functions=[twice])
    assert [op.kind for op in read_onnx(path).graph.ops] == ["Relu", "Relu"]


def branch() -> Any:
    return helper.make_graph([node("Relu", "x", "t")], "branch", [], [tensor("t", 1)])


IF = node("If", "x", "y", "choose", then_branch=branch(), else_branch=branch())
MAGIC = node("Magic", "x", "m", "wand", domain="custom")
EINSUM = node("Einsum", "x x", "y", "sum", equation="ij,jk->ik")
NO_SHAPE = "cannot be inferred"


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([IF], r"node 'choose' \(If\): control flow has no static graph"),
        ([MAGIC, node("Relu", "m", "y")], rf"node 'wand' \(Magic\): the shape of 'm' {NO_SHAPE}"),
        ([EINSUM], rf"node 'sum' \(Einsum\): the shape of 'y' {NO_SHAPE} \(Rank of"),
        (
            [node("Relu", "b", "y"), node("Relu", "y", "b")],
            r"node 'y' \(Relu\): no earlier node writes its input 'b'",
        ),
        (
            [node("Relu", "x", "y"), node("Relu", "x", "y")],
            r"node 'y' \(Relu\): its output 'y' is written twice",
        ),
        (
            [node("Constant", "", "y", value=weight("v", 1))],
            "no node is left after folding constants",
        ),
        ([], "is not an ONNX model, or a model without nodes"),
    ],
)
def test_a_model_that_cannot_be_read_is_a_one_line_error(
    tmp_path: Path, nodes: Any, message: str
) -> None:
    path = save(tmp_path, nodes, [tensor("x", 1)], "y")
    with pytest.raises(InputError, match=message) as caught:
        read_onnx(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_sizes_beyond_64_bits_are_an_error_that_names_the_op(tmp_path: Path) -> None:
    path = save(tmp_path, [node("Relu", "x", "y", "relu")], [tensor("x", 2**40, 2**40)], "y")
    with pytest.raises(InputError, match=r"ops\[0\] 'relu'\."):
        read_onnx(path)


@pytest.mark.parametrize("content", [b"not a model", b""])
def test_a_file_that_is_no_model_is_a_one_line_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not an ONNX model"):
        read_onnx(path)


def test_without_the_extra_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, [node("Relu", "x", "y")], [tensor("x", 1)], "y")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"net.onnx: .*pip install 'placegap\[onnx\]'"):
        read_onnx(path)
