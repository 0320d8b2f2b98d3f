"""Training graphs and the joint programs they are read from: groups, FLOPs, stashes, state."""

from typing import Any

import pytest

from placegap.instances import Graph

pytestmark = pytest.mark.torch


def program_of(module: Any, *args: Any, **options: Any) -> Any:
    from placegap.instances.torch_models.training_graph import read_training_graph

    return read_training_graph(step_of(module, *args), **options)


def step_of(module: Any, *args: Any, **kwargs: Any) -> Any:
    from placegap.instances.torch_models.joint_program import joint_program

    return joint_program(module, args, kwargs)


def graph_of(module: Any, *args: Any, **options: Any) -> Graph:
    program = program_of(module, *args, **options)
    return Graph(name="net", ops=tuple(program.ops), edges=tuple(program.edges))


def ops(graph: Graph) -> dict[str, Any]:
    return {op.name: op for op in graph.ops}


def perceptron(dtype: str = "float32") -> tuple[Any, Any]:
    """Layers 4 -> 8 -> 2 on 16 examples."""
    import torch
    from torch import nn

    kind = getattr(torch, dtype)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(kind)
    return net, torch.zeros(16, 4, dtype=kind)


def tied() -> tuple[Any, Any]:
    """Two products with one matrix of 4 x 4."""
    import torch
    from torch import nn

    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False))
    net[2].weight = net[0].weight
    return net, torch.zeros(16, 4)


def test_backward_and_update_ops_are_in_the_group_of_their_forward_op_and_counted() -> None:
    graph = graph_of(*perceptron())
    groups: dict[str | None, list[str]] = {}
    for op in graph.ops:
        groups.setdefault(op.colocation, []).append(op.name)
    # gradients of weight and bias; that of the input is nobody's
    assert groups["addmm"] == ["addmm", "mm_2", "sum_2", "addmm/adam"]
    assert groups["relu"] == ["relu", "threshold_backward"]
    assert groups["addmm_1"] == ["addmm_1", "mm", "mm_1", "sum_1", "addmm_1/adam"]
    assert [op.name for op in graph.ops if not op.backward] == ["addmm", "relu", "addmm_1"]
    assert None not in groups
    found = ops(graph)
    # 2 x 16 x 4 x 8 forward; of the first layer only the gradient of its weights
    assert found["addmm"].flops == found["mm_2"].flops == 2 * 16 * 4 * 8
    # of the second layer that of its input, too
    assert found["mm"].flops == found["mm_1"].flops == 2 * 16 * 8 * 2
    # state and outputs; the gradient of a weight lies in the state, and that of an activation not
    assert found["addmm"].resident_bytes == (4 * 8 + 8) * 16 + 16 * 8 * 4
    assert (found["mm"].resident_bytes, found["mm_1"].resident_bytes) == (16 * 8 * 4, 0)


def test_frozen_weights_are_held_and_not_updated() -> None:
    net, example = perceptron()
    net[0].requires_grad_(False)
    found = ops(graph_of(net, example))
    assert found["addmm"].state_bytes == (4 * 8 + 8) * 4
    assert [name for name in found if name.endswith("/adam")] == ["addmm_1/adam"]


def test_stashed_activations_are_edges_from_forward_to_backward_ops() -> None:
    graph = graph_of(*perceptron())
    backward = {op.name for op in graph.ops if op.backward}
    stashed = {
        (edge.producer, edge.tensor): edge.bytes
        for edge in graph.edges
        if edge.consumer in backward and edge.producer not in backward
    }
    # what relu writes, for its own gradient and that of the second matrix: once, 16 x 8 floats
    assert sum(stashed.values()) == 16 * 8 * 4
    readers = {edge.consumer for edge in graph.edges if edge.producer == "relu"}
    assert readers == {"addmm_1", "threshold_backward", "mm_1"}


@pytest.mark.parametrize(
    ("optimizer", "dtype", "bytes_per_weight"),
    [
        ("momentum", "float32", 4 + 4 + 4),  # weight, gradient, state
        ("adam", "float16", 2 + 2 + 4 + 8),  # Rajbhandari et al. 2020: 16 bytes
    ],
)
def test_forward_ops_hold_weights_gradients_and_optimizer_state(
    optimizer: str, dtype: str, bytes_per_weight: int
) -> None:
    found = ops(graph_of(*perceptron(dtype), optimizer=optimizer))
    assert found["addmm"].state_bytes == (4 * 8 + 8) * bytes_per_weight
    assert found["addmm_1"].state_bytes == (8 * 2 + 2) * bytes_per_weight
    assert found["addmm_1"].parameter_bytes == (8 * 2 + 2) * (4 if dtype == "float32" else 2)
    rest = [op for op in found.values() if op.backward]
    assert sum(op.state_bytes or 0 for op in rest) == 0
    assert sum(op.parameter_bytes for op in rest) == 0


def test_updates_wait_for_their_gradients_and_move_weights_and_state() -> None:
    graph = graph_of(*perceptron())
    waits = {edge.producer: edge.bytes for edge in graph.edges if edge.consumer == "addmm/adam"}
    assert waits == {"mm_2": 0, "sum_2": 0}
    update = ops(graph)["addmm/adam"]
    assert [op.name for op in graph.ops if op.update] == ["addmm/adam", "addmm_1/adam"]
    # reads weight, gradient and two states, writes weight and two states
    assert (update.kind, update.flops, update.bytes_moved) == ("adam", 0, (4 * 8 + 8) * 7 * 4)


def test_copies_of_tied_weights_are_shared_state_and_updated_each() -> None:
    graph = graph_of(*tied(), tied="copy")
    holders = [op for op in graph.ops if op.shared_state]
    assert [op.shared_state for op in holders] == [{"0.weight": 4 * 4 * 16}] * 2
    assert [op.state_bytes for op in holders] == [0, 0]
    updates = [op for op in graph.ops if op.kind == "adam"]
    assert [op.colocation for op in updates] == [op.colocation for op in holders]
    (added,) = (op.name for op in graph.ops if op.kind == "add")
    # the copy on the other device gets the sum of the gradients
    bytes_to = {edge.consumer: edge.bytes for edge in graph.edges if edge.producer == added}
    assert sorted(bytes_to.values()) == [0, 4 * 4 * 4]
    # together they are updated once
    graph = graph_of(*tied(), tied="together")
    assert sum(op.kind == "adam" for op in graph.ops) == 1
    assert len({op.colocation for op in graph.ops if op.shared_state or op.kind == "adam"}) == 1


def test_an_op_that_reads_only_weights_is_a_part_of_its_first_reader() -> None:
    import torch
    from torch import nn

    class Biased(nn.Linear):
        """A table of biases, looked up by constant positions, as in Swin and T5."""

        def __init__(self) -> None:
            super().__init__(4, 4, bias=False)
            self.table = nn.Parameter(torch.zeros(9, 4))
            self.register_buffer("positions", torch.zeros(16, dtype=torch.long))

        def forward(self, x: Any) -> Any:
            return super().forward(x) + self.table[self.positions]

    program = program_of(Biased(), torch.zeros(16, 4))
    forward = [op for op in program.ops if not op["backward"]]
    assert [op["kind"] for op in forward] == ["mm", "add"]
    assert program.op_of["index"] == "add"
    assert forward[1]["state_bytes"] == 9 * 4 * 16
    # the gradient of the table is put to the same positions, 16 of 8 bytes
    assert forward[1]["shared_state"] == {"positions": 16 * 8}
    (looked_up,) = (op for op in program.ops if "index_put" in op["kind"])
    assert looked_up["colocation"] == "add"


def calls(step: Any) -> dict[str, str]:
    """Name and schema of all calls."""
    nodes = (node for node in step.graph_module.graph.nodes if node.op == "call_function")
    return {node.name: str(node.target) for node in nodes}


def test_every_backward_call_is_linked_to_a_forward_call() -> None:
    from placegap.instances.torch_models.joint_program import is_backward

    net, example = perceptron()
    step = step_of(net, example)
    nodes = {node.name: node for node in step.graph_module.graph.nodes}
    backward = {name for name in calls(step) if is_backward(nodes[name])}
    assert backward == set(step.forward_of)
    assert not backward & set(step.forward_of.values())
    assert step.forward_of["threshold_backward"] == "relu"
    # both products of the second layer's backward pass belong to its product
    assert step.forward_of["mm"] == step.forward_of["mm_1"] == "addmm_1"
    assert step.module_of["mm"] == "2"
    # and every parameter has its gradient
    assert sorted(step.gradient_of) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert sorted(step.parameter_of.values()) == sorted(step.gradient_of)
    meta = step_of(*(each.to("meta") for each in perceptron()))
    assert calls(step) == calls(meta)  # of a real module


def test_dropout_is_off_and_batch_normalization_normalizes_the_batch() -> None:
    import torch
    from torch import nn

    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    names = " ".join(calls(step_of(net, torch.zeros(16, 4))).values())
    assert "native_batch_norm_backward" in names
    for word in ("dropout", "bernoulli", "copy_"):  # running means are no outputs
        assert word not in names


def test_a_loss_that_comes_first_is_the_only_output() -> None:
    import torch
    from torch import nn

    class Net(nn.Linear):
        def forward(self, x: Any, *, labels: Any) -> tuple[Any, Any]:
            found = super().forward(x)
            return nn.functional.cross_entropy(found, labels), found

    step = step_of(Net(4, 2), torch.zeros(3, 4), labels=torch.zeros(3, dtype=torch.long))
    (output,) = step.graph_module.graph.find_nodes(op="output")
    assert len(output.args[0]) == 1 + 2  # the loss, and the gradients of weight and bias
