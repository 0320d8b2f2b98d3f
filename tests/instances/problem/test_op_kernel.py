"""Kernels of ops: exact in files and hashes, and gone where a transform changes the work."""

import json
from pathlib import Path
from typing import Any

from doubles.bad_files import good_document
from draws.hybrid import layer_row

from placegap.experiments.research.workloads.variants import in_half_precision
from placegap.instances import (
    AttentionKernel,
    ExpertsKernel,
    Graph,
    HybridPipeline,
    Instance,
    MatrixProduct,
    Op,
    load_document,
    save_document,
)
from placegap.instances.certificates.certificate_checker import digest
from placegap.instances.corpus.generate import mirror_training
from placegap.instances.files.document import Document, parse_document
from placegap.instances.transforms.merge import merge_groups
from placegap.instances.transforms.one_pipeline import one_pipeline
from placegap.instances.transforms.op_splitting import Cut, replicate, split_ops

PRODUCT = MatrixProduct(m=8, n=5, k=3, batch=2, dtype="float16")
ATTENTION = AttentionKernel(
    phase="generation",
    batch=3,
    heads=4,
    kv_heads=2,
    head_size=8,
    new_tokens=1,
    held_tokens=50,
    dtype="bfloat16",
    cache_dtype="float8_e4m3fn",
    window=64,
)
EXPERTS = ExpertsKernel(tokens=7, hidden=4, inner=6, chosen=2, experts=8, dtype="bfloat16")
KERNELS = (PRODUCT, ATTENTION, EXPERTS)


def with_kernels(kernels: Any = KERNELS) -> Instance:
    """The three ops that no test of bad files spoils, each with a kernel."""
    instance = parse_document(good_document(), "good").instance()
    pairs = zip(instance.graph.ops, kernels, strict=True)
    ops = tuple(op.model_copy(update={"kernel": kernel}) for op, kernel in pairs)
    return instance.with_graph(instance.graph.model_copy(update={"ops": ops}))


def kernels(graph: Graph) -> list[Any]:
    return [op.kernel for op in graph.ops]


def test_flops_count_a_multiply_add_as_two() -> None:
    assert PRODUCT.flops == 2 * 2 * 8 * 5 * 3
    # each of 7 tokens meets 2 experts of 3 matrices of 4 x 6
    assert EXPERTS.flops == 2 * 7 * 2 * 3 * 24


def test_files_keep_kernels_and_leave_out_those_that_are_not_stated(tmp_path: Path) -> None:
    for path in (tmp_path / "a.json", tmp_path / "a.json.gz"):
        save_document(Document.of(with_kernels()), path)
        assert kernels(load_document(path).graph) == list(KERNELS)
    save_document(Document.of(with_kernels([None, None, EXPERTS])), tmp_path / "one.json")
    text = (tmp_path / "one.json").read_text()
    assert text.count("kernel") == 1
    # three matrices are the default
    written = json.loads(text)["graph"]["ops"][2]["kernel"]
    routed = {"chosen": 2, "experts": 8, "dtype": "bfloat16"}
    assert written == {"type": "mixture_of_experts", "tokens": 7, "hidden": 4, "inner": 6, **routed}


def test_hashes_leave_kernels_out() -> None:
    bare, full = with_kernels([None] * 3), with_kernels()
    assert full.content_hash == bare.content_hash
    graph, cluster = (part.model_dump(mode="json") for part in (full.graph, full.cluster))
    parts = {"devices": cluster["devices"], "links": cluster["links"]}
    parts |= {"edges": graph["edges"], "ops": graph["ops"]}
    assert digest(parts) == bare.content_hash


def test_ops_that_stay_whole_keep_their_kernels_and_others_lose_them() -> None:
    instance = with_kernels()
    # second and third become one op
    merged = merge_groups(instance, [0, 1, 1], "merged", "a test").coarse.graph
    assert kernels(merged) == [PRODUCT, None]
    # two parts and what joins them
    assert kernels(split_ops(instance, {0: Cut("batch", 2)}).fine.graph) == [
        *[None] * 3,
        ATTENTION,
        EXPERTS,
    ]
    assert kernels(replicate(instance, 8, 2).fine.graph) == [None] * 6
    single = Graph(name="single", ops=(Op(name="a", kernel=PRODUCT),))
    assert kernels(in_half_precision(single)) == [None]
    layers = layer_row()
    ops = tuple(op.model_copy(update={"kernel": PRODUCT}) for op in layers.graph.ops)
    layers = layers.with_graph(layers.graph.model_copy(update={"ops": ops}))
    folded, _ = one_pipeline(layers, HybridPipeline(microbatches=64), (1, 1), "keep")
    assert set(kernels(folded.graph)) == {None}
    # three ops, then their backward ops; no op has parameters to update
    assert kernels(mirror_training(instance.graph)) == [*KERNELS, *[None] * 3]
