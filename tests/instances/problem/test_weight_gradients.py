"""Which backward ops only weights need: what other layers read is not marked."""

from placegap.instances import Edge, Graph, Op
from placegap.instances.corpus.corpus import load_corpus
from placegap.instances.problem.gradients import mark_weight_gradients


def marked(graph: Graph) -> set[str]:
    return {op.name for op in mark_weight_gradients(graph).ops if op.weight_gradient}


def step(layers: dict[str, str], ends: list[tuple[str, str]]) -> Graph:
    """A training step: the layer of each op, and who feeds whom; forward ops begin with f."""
    ops = tuple(
        Op(name=name, colocation=layer, backward=name[0] != "f") for name, layer in layers.items()
    )
    return Graph(name="g", ops=ops, edges=tuple(Edge(producer=a, consumer=b) for a, b in ends))


def test_half_of_the_products_of_gpt2s_backward_pass_are_for_weights() -> None:
    # 12 blocks of 4 products and the head: one gradient for the input and one for the weight each
    graph = mark_weight_gradients(load_corpus("gpt2-train").graph)
    products = [op.weight_gradient for op in graph.ops if op.backward and op.kind == "mm"]
    assert (products.count(True), products.count(False)) == (4 * 12 + 1, 4 * 12 + 1)
    assert all(op.weight_gradient for op in graph.ops if op.kind == "adam")


def test_an_op_that_makes_both_gradients_at_once_is_not_marked() -> None:
    layers = {"f1": "1", "f2": "2", "both2": "2", "u2": "2", "both1": "1", "u1": "1"}
    graph = step(layers, [("f1", "f2"), ("both2", "u2"), ("both2", "both1"), ("both1", "u1")])
    # the first layer has no input that needs a gradient, so that all of its work may wait
    assert marked(graph) == {"u2", "both1", "u1"}


def test_the_parts_of_a_shared_weights_gradient_are_marked_in_both_layers() -> None:
    layers = dict.fromkeys(("f1", "w1", "sum", "u1"), "1") | dict.fromkeys(
        ("f2", "b2", "w2", "u2"), "2"
    )
    ends = [("f1", "f2"), ("b2", "w1"), ("w2", "sum"), ("w1", "sum"), ("sum", "u1"), ("sum", "u2")]
    assert marked(step(layers, ends)) == {"w2", "w1", "sum", "u1", "u2"}


def test_what_is_marked_feeds_only_what_is_marked() -> None:
    for name in ("bert-base-train", "bert_l-3_training"):
        graph = mark_weight_gradients(load_corpus(name).graph)
        marks = {op.name: op.weight_gradient for op in graph.ops}
        assert all(marks[e.consumer] or not marks[e.producer] for e in graph.edges)
        assert all(op.backward for op in graph.ops if op.weight_gradient)
