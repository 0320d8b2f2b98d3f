"""Data parallelism: copies of a graph with shares of the batch."""

import pytest
from draws import draw

from placegap.instances import (
    Edge,
    InputError,
    Instance,
    Makespan,
    Op,
    Plan,
    evaluate,
    example,
    load_cluster,
    load_corpus,
)
from placegap.instances.corpus.generate import mirror_training
from placegap.instances.costing.costing import cost_graph
from placegap.instances.transforms import op_splitting as replicas_module
from placegap.instances.transforms.op_splitting import replicate, stated_batch

FREE = Makespan(channels="free")


def test_copies_of_inference_send_nothing() -> None:
    fine = replicate(example(), 2, 2).fine
    both = evaluate(fine, Plan.on([0] * 4 + [1] * 4), FREE)
    # all on one device takes 43: 5 + 20 + 10 + 8, halves rounded up 3 + 10 + 5 + 4
    assert both.value_ns == 22


def test_what_works_on_weights_alone_is_whole_in_each_copy() -> None:
    """A variable, its read, a penalty, the gradient's producer, its clipping, the update."""
    kinds = {
        "variable": "VariableV2",
        "read": "Identity",
        "image": "Placeholder",
        "conv": "Conv",
        "conv/filter": "ConvFilter",
        "clip": "Mul",
        "update": "ApplyAdam",
        "conv/input": "ConvInput",
        "result": "Sum",
    }
    ops = [
        Op(name=name, kind=kind, backward=number > 3, time_ns={"gpu": 8})
        for number, (name, kind) in enumerate(kinds.items())
    ]
    pairs = (
        "variable-read read-conv image-conv conv-conv/filter conv/filter-clip clip-update "
        "variable-update conv-conv/input conv/input-result"
    )
    edges = [
        Edge(producer=a, consumer=b, bytes=6) for a, b in (p.split("-") for p in pairs.split())
    ]
    instance = draw.instance_of("x", ops, edges, draw.devices(["gpu"]))
    fine = replicate(instance, 2, 2).fine.graph
    time = {op.name.removesuffix("/1of2"): op.time_ns["gpu"] for op in fine.ops[:9]}
    halved = {"image", "conv", "conv/filter", "conv/input", "result"}
    assert time == {name: 4 if name in halved else 8 for name in kinds}
    # from each copy to each update go 2 / 2 of the gradient
    assert [e.bytes for e in fine.edges if e.producer.startswith("clip/")] == [6] * 4


def test_impossible_copies_are_input_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas_module, "MOST_PARTS", 7)
    with pytest.raises(InputError, match="4 ops"):
        replicate(example(), 2, 2)


def test_all_copies_together_compute_what_the_graph_does() -> None:
    cluster = load_cluster("celeritas-4xV100-pcie")
    graph = cost_graph(mirror_training(load_corpus("squeezenet").graph), cluster)
    instance = Instance(name="net", graph=graph, cluster=cluster)
    split = replicate(instance, 64, 4)
    kind = cluster.devices[0].kind
    total = [0] * len(graph.ops)
    for op, i, part in zip(split.fine.graph.ops, split.op, split.part, strict=True):
        if part >= 0:
            total[i] += op.time_ns[kind]
    for op, found in zip(graph.ops, total, strict=True):
        copies = 4 if op.kind == "update" else 1
        assert op.time_ns[kind] * copies <= found < op.time_ns[kind] * copies + 4
    assert stated_batch(graph) is None
    assert len(split.fine.graph.ops) == 4 * len(graph.ops)
