"""ONNX import: light models, and what becomes what."""

import sys
from pathlib import Path
from typing import Any

import pytest
from doubles.onnx_nets import INT64, helper, nodes, save, tensor, weight

from placegap.instances import InputError, MatrixProduct
from placegap.instances.costing.weight_formats import weight_format
from placegap.instances.importers.onnx_model import load_onnx

onnx = pytest.importorskip("onnx", reason="needs the onnx extra")
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


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
    graph = load_onnx(LIGHT / f"light_{name}.onnx").graph
    assert (len(graph.ops), len(graph.edges)) == (ops, num_edges)
    parameters = sum(op.parameter_bytes for op in graph.ops) / 4e6
    flops = sum(op.flops or 0 for op in graph.ops if op.kind in ("Conv", "Gemm")) / 1e9
    assert parameters == pytest.approx(mega_parameters, rel=0.01)
    assert flops == pytest.approx(giga_flops, rel=0.01)


def test_a_small_net_is_counted_exactly(tmp_path: Path) -> None:
    net = nodes("conv: Conv image kernel > features", pads=[1, 1, 1, 1])
    net += nodes("relu: Relu features > active; flatten: Flatten active > flat")
    net += nodes("gemm: Gemm flat matrix bias > logits", transB=1)
    weights = [weight("kernel", 3, 2, 3, 3), weight("matrix", 5, 48), weight("bias", 5)]
    path = save(tmp_path, net, [tensor("image", 1, 2, 4, 4)], "logits", initializer=weights)
    graph = load_onnx(path).graph
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


def products(path: Path, **options: Any) -> list[tuple[int, ...] | None]:
    """Batch, m, n and k of the ops that compute most, in float32."""
    ops = [op for op in load_onnx(path, **options).graph.ops if op.kind in KINDS]
    found = [op.kernel for op in ops]
    for op, kernel in zip(ops, found, strict=True):
        assert kernel is None or kernel == product(*sizes_of_product(kernel))
        assert kernel is None or kernel.flops == op.flops
    return [None if kernel is None else sizes_of_product(kernel) for kernel in found]


KINDS = {"Conv", "Gemm", "MatMul", "MatMulNBits", "QLinearMatMul"}


def sizes_of_product(kernel: Any) -> tuple[int, ...]:
    return kernel.batch, kernel.m, kernel.n, kernel.k


def product(batch: int, m: int, n: int, k: int) -> MatrixProduct:
    return MatrixProduct(batch=batch, m=m, n=n, k=k, dtype="float32")


def test_products_and_convolutions_state_their_kernels(tmp_path: Path) -> None:
    net = nodes("Conv image kernel > features", pads=[1, 1, 1, 1], group=2)
    net += nodes("Reshape features rows > x; MatMul x right > a; MatMul left a > b")
    net += nodes("Gemm b tall > y", transB=1)
    weights = [weight("kernel", 6, 1, 3, 3), weight("rows", 2, values=[6, 16])]
    weights += [weight("right", 16, 10), weight("left", 4, 6), weight("tall", 7, 10)]
    path = save(tmp_path, net, [tensor("image", 1, 2, 4, 4)], initializer=weights)
    # 16 pixels, of 2 groups with 3 channels of 9 numbers; 6 rows of 16 meet 10 columns; 10 columns
    # of activations meet 4 rows of a weight; 4 rows of 10 meet 7
    assert products(path) == [(2, 16, 3, 9), (1, 6, 10, 16), (1, 10, 4, 6), (1, 4, 7, 10)]


def test_weights_that_are_unpacked_are_no_kernel_of_a_table(tmp_path: Path) -> None:
    net = nodes("MatMul x w > y")
    path = save(tmp_path, net, [tensor("x", 3, 8)], initializer=[weight("w", 8, 5)])
    assert products(path) == [(1, 3, 5, 8)]
    assert products(path, weights=weight_format("int4")) == [None]
    net = nodes("DequantizeLinear q scale > w; MatMul x w > y")
    packed = helper.make_tensor("q", onnx.TensorProto.INT8, (8, 5), bytes(40), raw=True)
    scale = weight("scale")
    path = save(tmp_path, net, [tensor("x", 3, 8)], initializer=[packed, scale])
    assert products(path) == [None]
    # integers that are multiplied as such are no floats
    net = nodes("QLinearMatMul x one zero q one zero one zero > y")
    zero = helper.make_tensor("zero", onnx.TensorProto.INT8, (), bytes(1), raw=True)
    x = tensor("x", 3, 8, kind=onnx.TensorProto.INT8)
    path = save(tmp_path, net, [x], initializer=[packed, weight("one"), zero])
    (op,) = load_onnx(path).graph.ops
    assert op.kernel == MatrixProduct(m=3, n=5, k=8, dtype="int8")


def test_a_value_with_two_readers_is_one_tensor_and_each_op_has_a_name_of_its_own(
    tmp_path: Path,
) -> None:
    net = nodes("Relu x > a; r: Relu a > b; r: Mul a a > c; Add b c > r")
    edges = load_onnx(save(tmp_path, net, [tensor("x", 1, 8)], "r")).graph.edges
    assert [(e.producer, e.consumer) for e in edges[:2]] == [("a", "r"), ("a", "r#2")]
    assert [(e.producer, e.consumer) for e in edges[2:]] == [("r", "r#3"), ("r#2", "r#3")]
    assert [e.tensor for e in edges] == ["a", "a", "b", "c"]


def test_side_outputs_that_nobody_reads_take_no_memory(tmp_path: Path) -> None:
    pool = nodes("pool: MaxPool x > y indices", kernel_shape=[2, 2])
    (op,) = load_onnx(save(tmp_path, pool, [tensor("x", 1, 1, 3, 3)])).graph.ops
    assert (op.resident_bytes, op.flops) == (4 * 4, 4 * 4)


def test_constants_that_several_ops_read_are_shared_state(tmp_path: Path) -> None:
    # w has 12 floats and is read twice, v has 4 and is read once
    net = nodes("1: MatMul x w > a; 2: Add a v > b; 3: MatMul x w > c; 4: Add b c > y")
    weights = [weight("w", 3, 4), weight("v", 4)]
    ops = load_onnx(save(tmp_path, net, [tensor("x", 1, 3)], initializer=weights)).graph.ops
    assert [op.parameter_bytes for op in ops] == [48, 16, 48, 0]
    assert [op.state_bytes for op in ops] == [0, None, 0, None]
    assert [op.shared_state for op in ops] == [{"w": 48}, {}, {"w": 48}, {}]


@pytest.mark.parametrize("stored", [False, True])
def test_a_mask_of_positions_is_workspace_and_one_of_stored_numbers_is_state(
    tmp_path: Path, stored: bool
) -> None:
    # positions 0 to 7, from the length of x or from the file; both ops read a mask of 8 x 8 bytes
    net = nodes("Shape x > shape; Gather shape zero > length; Range zero length one > order")
    net = [] if stored else net
    net += nodes("Unsqueeze order axis > column")
    net += nodes(
        "GreaterOrEqual column order > mask; first: Where mask x x > a; Where mask a x > y"
    )
    constants = [weight("zero", values=[0]), weight("one", values=[1])]
    constants += [weight("axis", 1, values=[1])]
    constants += [weight("order", 8, values=list(range(8)))] if stored else []
    for op in load_onnx(save(tmp_path, net, [tensor("x", 8, 8)], initializer=constants)).graph.ops:
        held = (op.parameter_bytes, sum(op.shared_state.values()), op.workspace_bytes)
        assert held == ((64, 64, 0) if stored else (0, 0, 64))
        # the mask, x (the last also a), and what is written: 8 x 8 numbers of 4 bytes
        assert op.bytes_moved == 64 + 256 * (2 if op.name == "first" else 3)
        assert op.resident_bytes == held[0] + 256


def test_a_mask_that_is_filled_up_by_constants_of_the_file_is_state(tmp_path: Path) -> None:
    # 16 numbers of the file are no shape, and one number of it is no data
    net = nodes("Shape x > shape; ConstantOfShape shape > zeros; Add zeros w > mixed")
    net += nodes("Add zeros one > ones; Add x mixed > a; Add a ones > y")
    constants = [weight("w", 4, 4), weight("one", 1)]
    ops = load_onnx(save(tmp_path, net, [tensor("x", 4, 4)], initializer=constants)).graph.ops
    assert [(op.parameter_bytes, op.workspace_bytes) for op in ops] == [(64, 0), (0, 64)]


def test_arithmetic_on_static_shapes_is_folded_and_constants_become_parameters(
    tmp_path: Path,
) -> None:
    net = nodes("Shape x > shape; Gather shape zero > batch; Unsqueeze batch first > batch1")
    net += nodes("Concat batch1 rest > target", axis=0) + nodes("flat: Reshape x target > flat")
    net += nodes("Constant > dims", value=weight("v", 2, values=[8, 6]))
    net += nodes("ConstantOfShape dims > made; Transpose made > turned; MatMul flat turned > y")
    sizes = {"first": 0, "rest": -1}
    constants = [weight(name, 1, values=[size]) for name, size in sizes.items()]
    constants.append(weight("zero", values=[0]))
    graph = load_onnx(save(tmp_path, net, [tensor("x", "N", 2, 3)], initializer=constants)).graph
    found = [(op.name, op.parameter_bytes, op.flops) for op in graph.ops]
    assert found == [("flat", 0, 0), ("y", 4 * 48, 2 * 8 * 6)]
    assert "nodes of constant inputs folded into parameters" in " ".join(graph.provenance.changes)


def test_an_input_with_an_initializer_is_a_parameter_and_one_without_is_data(
    tmp_path: Path,
) -> None:
    inputs = [tensor("ids", 2, 4, kind=INT64), tensor("table", 100, 8)]
    embed, table = nodes("Gather table ids > y"), weight("table", 100, 8)
    (op,) = load_onnx(save(tmp_path, embed, inputs, initializer=[table])).graph.ops
    # reads 8 ids of 8 bytes and the 8 rows it writes, not the whole table of 3200 bytes
    assert (op.parameter_bytes, op.bytes_moved, op.flops) == (3200, 64 + 2 * 8 * 32, 0)


def test_an_unknown_batch_is_one_and_a_symbol_means_the_same_size_everywhere(
    tmp_path: Path,
) -> None:
    inputs = [tensor("z", 6, "N"), tensor("x", "N", 6)]
    path = save(tmp_path, nodes("MatMul x z > y"), inputs)
    assert load_onnx(path, dims={"N": 3}).graph.ops[0].flops == 2 * 3 * 3 * 6
    graph = load_onnx(path).graph
    assert graph.ops[0].flops == 2 * 6
    assert "dimension 0 of input x set to 1" in graph.provenance.changes


def open_inputs(folder: Path, *inputs: tuple[str, list[int | str | None]]) -> Path:
    """A net that adds inputs, of which it takes one as the other's shape; None has no name."""
    values = [tensor(name, *(1 if dim is None else dim for dim in dims)) for name, dims in inputs]
    for value, (_, dims) in zip(values, inputs, strict=True):
        for axis, dim in enumerate(dims):
            if dim is None:
                value.type.tensor_type.shape.dim[axis].Clear()
    net = nodes("; ".join(f"Relu {name} > y_{name}" for name, _ in inputs))
    return save(folder, net, values, " ".join(f"y_{name}" for name, _ in inputs))


def sizes_of(path: Path, **dims: int) -> list[int]:
    graph = load_onnx(path, {key.replace("_", "."): size for key, size in dims.items()}).graph
    return [op.flops or 0 for op in graph.ops]


def test_a_dimension_without_a_name_goes_by_its_input_and_axis(tmp_path: Path) -> None:
    # a Relu counts one FLOP per element; the first axis is the batch, 1 if nobody says
    path = open_inputs(tmp_path, ("ids", [None, -1]), ("mask", [-1, "L"]))
    assert sizes_of(path, ids_1=5, L=7) == [1 * 5, 1 * 7]
    assert sizes_of(path, ids_0=2, ids_1=5, mask_0=3, L=7) == [2 * 5, 3 * 7]
    assert sizes_of(path, batch=4, ids_0=2, ids_1=5, mask_1=7) == [2 * 5, 4 * 7]


def test_a_negative_size_is_refused_and_batch_may_be_the_name_of_another(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="input 'x': dimension 1 is -2"):
        load_onnx(open_inputs(tmp_path, ("x", [1, -2])))
    assert sizes_of(open_inputs(tmp_path, ("ids", [None, "batch"])), batch=3) == [3]


def test_weights_in_a_file_beside_the_model_are_not_needed(tmp_path: Path) -> None:
    table = weight("w", 50, 50)
    onnx.external_data_helper.set_external_data(table, location="absent.bin")
    table.ClearField("raw_data")
    path = save(tmp_path, nodes("MatMul x w > y"), [tensor("x", 1, 50)], initializer=[table])
    assert load_onnx(path).graph.ops[0].parameter_bytes == 10_000


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    body, sets = nodes("Relu a > m; Relu m > b"), [helper.make_opsetid("", 21)]
    twice = helper.make_function("own", "Twice", ["a"], ["b"], body, sets)
    call = nodes("Twice x > y", domain="own")
    path = save(tmp_path, call, [tensor("x", 1, 4)], functions=[twice])
    assert [op.kind for op in load_onnx(path).graph.ops] == ["Relu", "Relu"]


def test_a_missing_extra_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(b"not a model")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"x.onnx: .*'placegap\[onnx\]'"):
        load_onnx(path)
