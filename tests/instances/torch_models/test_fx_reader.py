"""Graphs of small modules, whose ops, edges and bytes are worked out by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from placegap.instances import Graph
from placegap.instances.torch_models.fx_reader import FxProgram, read_fx_graph
from placegap.instances.torch_models.tracing import Traceable, traced

pytestmark = pytest.mark.torch


def read(module: Any, *inputs: Any, **options: Any) -> FxProgram:
    graph, held = traced("net", Traceable(module.eval(), inputs))
    return read_fx_graph(graph, held, **options)


def kinds(program: FxProgram) -> list[str]:
    return [op["kind"] for op in program.ops]


def edges(program: FxProgram) -> list[tuple[str, str, int]]:
    return [(edge["producer"], edge["consumer"], edge["bytes"]) for edge in program.edges]


def test_a_product_holds_its_weights_and_what_it_writes() -> None:
    from torch import nn, zeros

    (op,) = read(nn.Linear(3, 5), zeros(7, 3)).ops
    # 5 x 3 weights and 5 biases of 4 bytes; it writes 7 x 5, and reads 7 x 3; 2 x 7 x 3 x 5 FLOP
    assert op["kind"] == "addmm"
    assert op["state_bytes"] == op["parameter_bytes"] == 4 * (15 + 5)
    assert op["resident_bytes"] == 80 + 4 * 35
    assert op["bytes_moved"] == 80 + 4 * (35 + 21)
    assert op["flops"] == 210
    assert op["dtype"] is None  # float32


def net(forward: Callable[..., Any], **weights: Any) -> Any:
    """A module of a function of its weights and x."""
    from torch import nn

    class Net(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return forward(self, x)

    made = Net()
    for name, value in weights.items():
        setattr(made, name, nn.Parameter(value))
    return made


def test_views_are_no_ops_and_slices_are_tensors_of_their_own() -> None:
    from torch import zeros

    def forward(_: Any, x: Any) -> Any:
        wide = x.relu().reshape(2, 6).T  # the 12 elements of relu
        left, right = wide.chunk(2)  # 6 elements each
        return left.sigmoid() + right.expand(2, 3, 2) + wide[0, 0]

    program = read(net(forward), zeros(3, 4))
    assert kinds(program) == ["relu", "sigmoid", "add", "add"]
    # the expanded slice stays 6 elements, the corner is one; the first sum has 2 x 3 x 2
    halves = [("relu", "sigmoid", 24), ("sigmoid", "add", 24), ("relu", "add", 24)]
    assert edges(program) == [*halves, ("add", "add_1", 48), ("relu", "add_1", 4)]
    Graph(name="net", ops=program.ops, edges=program.edges)


def test_copies_that_change_the_layout_and_random_numbers_are_ops() -> None:
    from torch import rand, zeros

    copied = net(lambda _, x: x.relu().clone().T.contiguous().to(x.dtype).sigmoid())
    assert kinds(read(copied, zeros(3, 4))) == ["relu", "clone", "sigmoid"]
    assert len(read(net(lambda _, x: x + rand(4)), zeros(3, 4)).ops) == 2  # no constant
    # of a tuple only the elements that are read are held
    program = read(net(lambda _, x: x.topk(2)[0].relu()), zeros(3, 4))
    assert program.ops[0]["resident_bytes"] == 3 * 2 * 4
    assert edges(program) == [("topk", "relu", 24)]


def test_labels_that_meet_in_one_op_are_one_group() -> None:
    from torch import zeros

    labels = {"relu": ["a"], "sigmoid": ["b", "a"], "tanh": ["b"], "exp": ["alone"]}
    module = net(lambda _, x: x.relu().sigmoid().tanh().exp())
    program = read(module, zeros(2), labels=lambda node: labels[node.name])
    assert len({op.get("colocation") for op in program.ops[:3]}) == 1
    assert program.ops[0]["colocation"] in {"a", "b"}
    assert "colocation" not in program.ops[3]


def test_what_depends_on_weights_alone_is_a_constant_of_its_readers() -> None:
    from torch import arange, randn, zeros

    def forward(self: Any, x: Any) -> Any:
        bias = self.table[arange(3)].exp()  # 3 x 4: 48 bytes, held by both sums
        return (x + bias).relu() + bias

    module = net(forward, table=randn(10, 4))
    program = read(module, zeros(3, 4))
    assert kinds(program) == ["add", "relu", "add"]
    first, _, last = program.ops
    assert list(first["shared_state"].values()) == [48]
    assert first["shared_state"] == last["shared_state"]
    assert first["state_bytes"] == 0
    assert first["parameter_bytes"] == 48

    kept = read(module, zeros(3, 4), fold_parameters=False)
    assert kinds(kept) == ["index", "exp", "add", "relu", "add"]
    # a gather reads what it writes, 12 elements, and 3 indices of 8 bytes
    assert kept.ops[0]["bytes_moved"] == 48 + 48 + 24


@pytest.mark.parametrize("tied", ["copy", "together"])
def test_a_tied_weight_is_state_that_is_shared_by_name(tied: str) -> None:
    from torch import nn, tensor

    module = nn.Sequential(nn.Embedding(10, 4), nn.ReLU(), nn.Linear(4, 10, bias=False))
    module[2].weight = module[0].weight
    first, middle, last = read(module, tensor([[1, 2]]), tied=tied).ops
    assert first["shared_state"] == last["shared_state"] == {"0.weight": 160}
    assert first["state_bytes"] == last["state_bytes"] == 0
    groups = [op.get("colocation") for op in (first, middle, last)]
    assert groups == ([None] * 3 if tied == "copy" else ["0.weight", None, "0.weight"])


def test_a_matrix_that_no_rule_counts_is_named() -> None:
    from torch import cdist, randn, zeros

    program = read(net(lambda self, x: cdist(x, self.centres), centres=randn(5, 4)), zeros(3, 4))
    assert program.uncounted == ["_cdist_forward (_cdist_forward)"]


def filled(make: Any) -> FxProgram:
    """8 x 4 numbers (128 bytes), and their halves written into a tensor that the pass makes."""
    from torch import randn, zeros

    def forward(self: Any, x: Any) -> Any:
        y = x @ self.w
        out = make(y)
        out[:, 0::2] = y[:, 1::2]
        out[:, 1::2] = y[:, 0::2]
        return out

    return read(net(forward, w=randn(4, 4)), zeros(8, 4))


MADE: list[Callable[[Any], Any]] = [
    lambda y: y.new_empty(y.shape),
    lambda y: y.new_full((1, 1), 2.0).expand(y.shape).double().float().contiguous(),
    lambda y: y.detach().bool().new_ones(y.shape).to(y.dtype),
]


@pytest.mark.parametrize("make", MADE)
def test_a_tensor_that_is_made_in_the_pass_and_written_by_parts_is_no_state(make: Any) -> None:
    program = filled(make)
    assert kinds(program) == ["mm", *["copy", "slice_scatter"] * 2]
    # 4 x 4 weights are all that is stored
    assert [op["state_bytes"] for op in program.ops] == [64, 0, 0, 0, 0]
    # the product reads 128 and 64 and writes 128; a half is read and written, and the second time
    # the half that it takes the place of; then it is read with what was written, and all written
    moved = [128 + 64 + 128, 64 + 64, 64 + 128, 64 + 64 + 64, 128 + 64 + 128]
    assert [op["bytes_moved"] for op in program.ops] == moved
    assert {op["workspace_bytes"] for op in program.ops} == {0}


def test_a_mask_of_positions_is_workspace_and_one_of_a_buffer_is_state() -> None:
    from torch import arange, tensor, where, zeros

    def forward(self: Any, x: Any) -> Any:
        at = self.order if hasattr(self, "order") else arange(8)
        mask = where(at[:, None] >= at[None], tensor(0.0), tensor(-1.0))
        return (x + mask).relu() + mask

    stored = net(forward)
    stored.register_buffer("order", arange(8))
    for is_stored in (False, True):
        first, _, last = read(stored if is_stored else net(forward), zeros(8, 8)).ops
        # 8 x 8 numbers of 4 bytes, which both sums read
        held = (sum(first["shared_state"].values()), first["workspace_bytes"])
        assert held == ((256, 0) if is_stored else (0, 256))
        assert first["parameter_bytes"] == last["parameter_bytes"] == held[0]
        assert first["resident_bytes"] == held[0] + 256
        assert first["bytes_moved"] == last["bytes_moved"] == 3 * 256
