"""Layers with modes from a training step: what is split, what is held, what is recomputed."""

import pytest

from placegap.instances import Edge, Graph, Op, load_corpus
from placegap.instances.costing.layer_modes import HEADS, cluster_rates
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.problem import Mode, Provenance
from placegap.instances.transforms.traced_layers import traced_layers

CLUSTER = load_cluster("2x2xA100-80GB")
STREAM, WIDE, SCORES = 64, 256, 1024
"""Bytes of the residual stream, of what lies inside of blocks, and of attention's scores."""


def weighted(name: str, flops: int, weights: int, module: str, kind: str = "mm") -> Op:
    """An op with so many weights of 2 bytes: 16 bytes each with gradient and Adam."""
    return Op(
        name=name,
        kind=kind,
        flops=flops,
        dtype="bfloat16",
        parameter_bytes=2 * weights,
        state_bytes=16 * weights,
        module=module,
        colocation=name,
    )


def training_step(*, fused: bool = False) -> Graph:
    """Two layers of attention and feed-forward with residual sums, between embedding and loss."""
    ops = [weighted("embed", 0, 1000, "embed", "embedding")]
    edges: list[Edge] = []

    def feed(a: str, b: str, size: int) -> None:
        edges.append(Edge(producer=a, consumer=b, bytes=size, tensor="out"))

    def add(op: Op, *, reads_again: bool = True, **inputs: int) -> str:
        """An op and its backward op, which may read the same inputs."""
        ops.append(op.model_copy(update={"colocation": op.name}))
        ops.append(Op(name=f"{op.name}/back", backward=True, colocation=op.name, flops=2))
        for a, size in inputs.items():
            feed(a, op.name, size)
            if reads_again:
                feed(a, f"{op.name}/back", size)
        return op.name

    stream = "embed"
    for number in range(2):
        at, h = f"h.{number}", f"h{number}"
        qkv = add(weighted(f"{h}_qkv", 600, 30, f"{at}.attn"), **{stream: STREAM})
        if fused:
            sdpa = Op(name=f"{h}_sdpa", kind="scaled_dot_product", flops=200, module=at)
            core = add(sdpa, **{qkv: WIDE})
        else:
            scores = add(Op(name=f"{h}_scores", kind="bmm", flops=100, module=at), **{qkv: WIDE})
            soft = Op(name=f"{h}_softmax", kind="softmax", module=at)
            add(soft, reads_again=False, **{scores: SCORES})
            context = Op(name=f"{h}_context", kind="bmm", flops=100, module=at)
            core = add(context, **{soft.name: SCORES})
        proj = add(weighted(f"{h}_proj", 200, 10, f"{at}.attn"), **{core: WIDE})
        middle = Op(name=f"{h}_add", kind="add", module=at)
        add(middle, reads_again=False, **{stream: STREAM, proj: STREAM})
        up = add(weighted(f"{h}_up", 800, 40, f"{at}.mlp"), **{middle.name: STREAM})
        down = add(weighted(f"{h}_down", 800, 40, f"{at}.mlp"), **{up: WIDE})
        last = Op(name=f"{h}_sum", kind="add", module=at)
        stream = add(last, reads_again=False, **{middle.name: STREAM, down: STREAM})
    head = add(weighted("head", 5000, 1000, "head"), **{stream: STREAM})
    add(Op(name="loss", kind="loss"), **{head: WIDE})
    provenance = Provenance(parameters={HEADS: "4 2"})
    return Graph(name="net", ops=tuple(ops), edges=tuple(edges), provenance=provenance)


def modes_of(graph: Graph, number: int) -> dict[tuple[str, int], Mode]:
    return {(mode.name, mode.tensor): mode for mode in graph.ops[number].modes}


def test_a_training_step_becomes_a_chain_of_layers() -> None:
    graph = traced_layers(training_step(), CLUSTER)
    assert [op.name for op in graph.ops] == ["embed", "h.0", "h.1", "head"]
    assert [op.kind for op in graph.ops] == ["Embedding", "Layer", "Layer", "Loss"]
    assert [(e.producer, e.consumer) for e in graph.edges] == [
        ("embed", "h.0"),
        ("h.0", "h.1"),
        ("h.1", "head"),
    ]
    # each of up to two devices sends its part
    assert {edge.bytes for edge in graph.edges} == {STREAM // 2}
    assert all(not op.backward for op in graph.ops)


def test_products_and_what_lies_between_are_split() -> None:
    modes = modes_of(traced_layers(training_step(), CLUSTER), 1)
    # inside: q, k, v, softmax, context, up; of the stream the inputs of two blocks
    inside = WIDE + SCORES + WIDE + WIDE
    assert modes["keep", 1].held_bytes == inside + 2 * STREAM
    assert modes["keep", 2].held_bytes == (inside + 2 * STREAM) // 2
    assert modes["full", 1].held_bytes == STREAM
    assert modes["selective", 1].held_bytes == inside - SCORES + 2 * STREAM
    for t in (1, 2):  # 120 weights, 16 bytes each: 2, their gradient's 2, Adam's 12
        assert modes["keep", t].state_bytes == 16 * 120 // t
        assert modes["keep", t].sharded_bytes == 12 * 120 // t
        assert modes["keep", t].parameter_bytes == 2 * 120 // t


def test_fused_attention_keeps_no_scores_and_recomputes_the_rest() -> None:
    modes = modes_of(traced_layers(training_step(fused=True), CLUSTER), 1)
    assert modes["keep", 1].held_bytes == 3 * WIDE + 2 * STREAM
    assert modes["selective", 1].held_bytes == 2 * WIDE + 2 * STREAM  # without that of up


def test_the_ends_are_split_by_words() -> None:
    graph = traced_layers(training_step(), CLUSTER)
    for number, held in ((0, 0), (3, WIDE + STREAM)):
        modes = modes_of(graph, number)
        assert {name for name, _ in modes} == {"keep"}
        assert modes["keep", 2].state_bytes == 16 * 1000 // 2
        assert modes["keep", 1].held_bytes == held


def test_heads_that_t_does_not_divide_leave_out_t() -> None:
    step = training_step()
    provenance = Provenance(parameters={HEADS: "3 3"})
    graph = traced_layers(step.model_copy(update={"provenance": provenance}), CLUSTER)
    assert {mode.tensor for mode in graph.ops[1].modes} == {1}
    assert {mode.tensor for mode in graph.ops[0].modes} == {1, 2}


@pytest.mark.parametrize(
    ("name", "most"),
    # 25 heads; 32, 8 of keys; 4, 8, 16 and 32 in the four parts of Swin
    [("gpt2-xl-train", 1), ("mixtral-8x7b-train", 8), ("swin-base-train", 4)],
)
def test_networks_of_the_corpus_are_split_by_whole_heads(name: str, most: int) -> None:
    layers = traced_layers(load_corpus(name).graph, load_cluster("1x16xA100-80GB")).ops[1:-1]
    split = {mode.tensor for op in layers if op.kind == "Layer" for mode in op.modes}
    assert max(split) == most


def test_an_op_between_layers_is_of_the_last_of_them_that_feeds_it() -> None:
    # three ops of the root read the embedding alone; what they make enters between two layers
    names = {"embed": "embed", "a": "h.0", "b": "h.1", "x": None, "y": None, "z": None}
    names |= {"sum": None, "c": "h.2"}
    ops = tuple(Op(name=name, module=module, flops=1) for name, module in names.items())
    ends = ("embed a", "a b", "embed x", "x y", "y z", "z sum", "b sum", "sum c")
    edges = tuple(Edge(producer=p, consumer=c, bytes=8) for p, c in map(str.split, ends))
    found = traced_layers(Graph(name="net", ops=ops, edges=edges), CLUSTER)
    assert [op.name for op in found.ops] == ["embed", "h.0", "h.1", "h.2"]
    assert [(e.producer, e.consumer) for e in found.edges] == [
        ("embed", "h.0"),
        ("embed", "h.1"),
        ("h.0", "h.1"),
        ("h.1", "h.2"),
    ]


@pytest.mark.parametrize(("name", "layers"), [("gpt2-train", 14), ("swin-base-train", 29)])
def test_traced_models_of_the_corpus_lose_no_work_and_no_weights(name: str, layers: int) -> None:
    step = load_corpus(name).graph
    graph = traced_layers(step, CLUSTER)
    assert len(graph.ops) == layers
    forward = [op for op in step.ops if not op.backward]
    flops = sum(op.flops or 0 for op in forward)
    dtype = next((op.dtype for op in forward if op.dtype), "float32")
    rate = cluster_rates(CLUSTER, dtype)["A100-80GB"].flops_per_s
    # forward, and twice as much backward, rounded up for each layer
    total_ns = sum(op.modes[0].time_ns["A100-80GB"] for op in graph.ops)
    assert total_ns == pytest.approx(3 * flops * 1e9 / rate, abs=layers)
    # the model's own count of its weights; tied tables count in the first and in the last layer,
    # and bias tables of Swin as they are read
    item = 4 if dtype == "float32" else 2
    weights = sum(op.parameter_bytes for op in graph.ops) / item
    counted = step.provenance.parameters["parameters"]
    assert isinstance(counted, int)
    assert 0.999 * counted < weights < 1.35 * counted
