"""Graphs from tapes: forward ops, their gradients and updates, in three frameworks' words."""

from placegap.experiments.research.workloads.layers import add, dense, loss, placeholder
from placegap.experiments.research.workloads.lowering import lower
from placegap.experiments.research.workloads.tape import MODULES, Dialect, Tape
from placegap.instances import Graph
from placegap.instances.problem import Provenance

SGD = Dialect("tensorflow", training=True, optimizer="GradientDescent")


def graph_of(tape: Tape) -> Graph:
    return lower(tape, "net", Provenance())


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


def into(graph: Graph, name: str) -> dict[str, int]:
    """Producers of an op's inputs, and what each sends."""
    return {edge.producer: edge.bytes for edge in graph.edges if edge.consumer == name}


def test_a_layer_in_modules_holds_its_weights_and_reads_them() -> None:
    tape = Tape(MODULES)
    dense(tape, placeholder(tape, (2, 3)), 4)
    [_, op] = graph_of(tape).ops
    # 3 x 4 weights and 4 biases of 4 bytes; 2 x 4 outputs
    assert (op.parameter_bytes, op.resident_bytes) == (64, 64 + 32)
    assert op.flops == 2 * 2 * 3 * 4
    assert op.bytes_moved == 24 + 32 + 64  # input, output, weights


def test_modules_are_mirrored_and_run_where_their_forward_ops_run() -> None:
    tape = Tape(Dialect("modules", training=True))
    x = placeholder(tape, (2, 3))
    a = dense(tape, x, 3)
    add(tape, a, x)
    graph = graph_of(tape)
    assert len(graph.ops) == 2 * 3
    by_name = {op.name: op for op in graph.ops}
    back = by_name["Linear/backward"]
    assert back.flops == 2 * (by_name["Linear"].flops or 0)
    assert back.state_bytes == by_name["Linear"].parameter_bytes  # the gradient
    assert back.colocation == by_name["Linear"].colocation == "Linear"
    # the gradient of a sum goes to both terms; a module comes before its mirror
    assert into(graph, "Linear/backward") == {"add/backward": 24, "Linear": 0}
    assert set(into(graph, "Input/backward")) == {"add/backward", "Linear/backward", "Input"}


def test_tensorflow_has_a_variable_a_read_and_an_update_of_each_weight() -> None:
    tape = Tape(SGD)
    loss(tape, dense(tape, placeholder(tape, (2, 3)), 4))
    graph = graph_of(tape)
    assert kinds(graph).count("VariableV2") == 2
    assert kinds(graph).count("GradientDescent") == 2
    ops = {op.name: op for op in graph.ops}
    variable, read = ops["dense/weights"], ops["dense/weights/read"]
    assert (variable.parameter_bytes, variable.resident_bytes, read.resident_bytes) == (48, 48, 0)
    assert variable.colocation == read.colocation
    assert into(graph, "dense/MatMul") == {"Input": 24, "dense/weights/read": 48}
    # MatMul's gradient for the weight reads the input and the gradient above, and no weight
    assert set(into(graph, "gradients/dense/MatMul_grad/MatMul")) == {
        "Input",
        "gradients/dense/BiasAdd_grad/tuple/control_dependency",
    }
