"""Training steps split along their batch: copies of updates, and what sums up gradients."""

import pytest
from draws import draw

from placegap.instances import Edge, Graph, InputError, Instance, Makespan, Op, Plan, evaluate
from placegap.instances.corpus.generate import mirror_training
from placegap.instances.transforms import op_splitting as split_module
from placegap.instances.transforms.op_splitting import Cut, split_ops
from placegap.instances.transforms.split_gradients import gradient_bytes, is_update
from placegap.instances.transforms.split_rule import SplitRule, choose_cuts

FREE = Makespan(channels="free")


def on_pair(graph: Graph) -> Instance:
    """On two devices, 6 bytes per ns between them."""
    links = draw.links(2, lambda a, b: (6 * 10**9, 0))
    return draw.instance_of("pair", graph.ops, graph.edges, draw.devices(["gpu"] * 2), links)


def step(batch: int = 4) -> Graph:
    """One op of 8 ns with 12 bytes of parameters and 8 of output, its backward op and update.

    The backward op takes 16 ns, the update 1 ns.
    """
    op = Op(
        name="f",
        kind="Conv",
        time_ns={"gpu": 8},
        resident_bytes=20,
        parameter_bytes=12,
        splittable_axes=("batch",),
        axis_sizes={"batch": batch},
    )
    return mirror_training(Graph(name="step", ops=(op,)))


TRIPLE = {i: Cut("batch", 2) for i in range(3)}


def test_updates_are_known_by_their_kind() -> None:
    kinds = ("update", "adam", "ResourceApplyGradientDescent", "Adam8bit", "AddN", "Conv/backward")
    found = [kind for kind in kinds if is_update(Op(name="u", kind=kind))]
    assert found == ["update", "adam", "ResourceApplyGradientDescent", "Adam8bit"]


def test_forward_backward_and_update_are_split_together() -> None:
    assert choose_cuts(on_pair(step()), SplitRule(max_parameters=10**12)) == TRIPLE
    # an op of the group that has no batch keeps all of them whole
    graph = step()
    fixed = graph.ops[1].model_copy(update={"splittable_axes": (), "kind": "other"})
    graph = graph.model_copy(update={"ops": (graph.ops[0], fixed, graph.ops[2])})
    assert choose_cuts(on_pair(graph), SplitRule(max_parameters=10**12)) == {}


def test_an_update_alone_is_not_split_along_the_batch() -> None:
    update = Op(name="u", kind="update", time_ns={"gpu": 5})
    rule = SplitRule(max_parameters=10**12, axes=("batch",))
    assert choose_cuts(on_pair(Graph(name="u", ops=(update,))), rule) == {}


def test_parts_of_a_step_sum_up_their_gradients_before_copies_of_the_update() -> None:
    split = split_ops(on_pair(step()), TRIPLE)
    graph = split.fine.graph
    assert [(op.name, op.time_ns["gpu"], op.colocation) for op in graph.ops] == [
        ("f/1of2", 4, "f/1of2"),
        ("f/2of2", 4, "f/2of2"),
        ("f/gather", 0, None),
        ("f/backward/1of2", 8, "f/1of2"),
        ("f/backward/2of2", 8, "f/2of2"),
        ("f/backward/gather", 0, None),
        # whole updates, for each has all parameters
        ("f/update/1of2", 1, "f/1of2"),
        ("f/update/2of2", 1, "f/2of2"),
        ("f/update/gather", 0, None),
    ]
    assert [op.parameter_bytes for op in graph.ops[:2]] == [12, 12]
    # twice the parameters: the optimizer's state, in each copy
    assert [op.resident_bytes for op in graph.ops[6:8]] == [24, 24]
    sent = [
        (edge.producer, edge.consumer, edge.bytes)
        for edge in graph.edges
        if edge.consumer in ("f/update/1of2", "f/update/2of2")
    ]
    # 2 / 2 of 12 bytes from each part to each copy
    assert sorted(sent) == [
        (f"f/backward/{a}of2", f"f/update/{b}of2", 12) for a in (1, 2) for b in (1, 2)
    ]
    assert (split.num_split, split.num_parts) == (3, 6)


def test_the_all_reduce_takes_the_time_of_a_ring() -> None:
    # copy j on device j, gathers on d0: f 4, whose output is no edge's, b 8; 2 (r - 1) / r of 12
    # bytes are 12, at 6 bytes/ns 2; update 1
    fine = split_ops(on_pair(step()), TRIPLE).fine
    plan = Plan.on([0, 1, 0, 0, 1, 0, 0, 1, 0])
    assert evaluate(fine, plan, FREE).value_ns == 4 + 8 + 2 + 1


def test_a_gradient_of_no_bytes_is_that_of_the_parameters() -> None:
    graph = step()
    edges = tuple(
        edge.model_copy(update={"bytes": 0}) if edge.consumer == "f/update" else edge
        for edge in graph.edges
    )
    graph = graph.model_copy(update={"edges": edges})
    fine = split_ops(on_pair(graph), TRIPLE).fine.graph
    assert {e.bytes for e in fine.edges if e.consumer in ("f/update/1of2", "f/update/2of2")} == {12}


def test_a_gradient_that_is_worked_on_first_is_added_up_from_partial_sums() -> None:
    # the backward op's gradient of 12 bytes is clipped before the update, which stays whole
    ops = (
        Op(name="x", kind="Placeholder", time_ns={"gpu": 1}),
        Op(name="b", kind="c", backward=True, time_ns={"gpu": 8}, resident_bytes=20),
        Op(name="clip", kind="Mul", backward=True, time_ns={"gpu": 1}),
        Op(name="u", kind="adam", backward=True, time_ns={"gpu": 1}),
        Op(name="end", kind="Sum", backward=True, time_ns={"gpu": 1}),
    )
    edges = tuple(
        Edge(producer=a, consumer=b, bytes=size, tensor=f"from {a} to {b}")
        for a, b, size in (("x", "b", 8), ("b", "clip", 12), ("clip", "u", 12), ("b", "end", 8))
    )
    split = split_ops(on_pair(Graph(name="late", ops=ops, edges=edges)), {1: Cut("batch", 2)})
    sent = sorted((e.producer, e.bytes) for e in split.fine.graph.edges if e.consumer == "b/gather")
    # of the other output each part has half
    assert sent == [("b/1of2", 4), ("b/1of2", 12), ("b/2of2", 4), ("b/2of2", 12)]
    held = [op.resident_bytes for op in split.fine.graph.ops if op.name.startswith("b/")]
    # 20 bytes of output: 12 in each part, half of 8; the gather has both
    assert held == [16, 16, 20]


def test_numbers_that_steer_all_updates_are_no_gradients() -> None:
    ops = tuple(
        Op(name=name, kind=kind, backward=True)
        for name, kind in (
            ("rate", "Mul"),
            ("g1", "c"),
            ("g2", "c"),
            ("u1", "adam"),
            ("u2", "adam"),
        )
    )
    edges = tuple(
        Edge(producer=a, consumer=b, bytes=size, tensor="out")
        for a, b, size in (("rate", "u1", 4), ("rate", "u2", 4), ("g1", "u1", 90), ("g2", "u2", 4))
    )
    graph = Graph(name="two", ops=ops, edges=edges)
    assert gradient_bytes(graph, 3, {}) == {2: 90}
    # a scalar parameter: what is as large as its gradient is taken for one, too
    assert gradient_bytes(graph, 4, {}) == {1: 4, 3: 4}


def test_channel_axes_need_no_all_reduce() -> None:
    cuts = {i: Cut("out_channel", 2) for i in range(3)}
    split = split_ops(on_pair(step()), cuts)
    into = [e for e in split.fine.graph.edges if e.consumer == "f/update/1of2"]
    # half of the gradient, from what gathers the backward op's parts
    assert [(e.producer, e.bytes) for e in into] == [("f/backward/gather", 12)]


def test_all_reduces_that_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_module, "MOST_PARTS", 15)
    with pytest.raises(InputError, match="; choose fewer parts"):
        split_ops(on_pair(step()), {i: Cut("batch", 4) for i in range(3)})
