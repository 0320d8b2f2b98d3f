"""Training chains with measured times: what they say, and their optima."""

from __future__ import annotations

import csv
import gzip
from itertools import groupby

import pytest
from draws.tiny import SHARED, needs_inputs
from references.agreement import proves

from placegap.experiments.running.sources import Source, load_source
from placegap.instances import HybridPipeline, InputError, MaxLoad, PipelineIteration
from placegap.instances.corpus.measured_chains import (
    MEASURED,
    PREFIX,
    ProfiledModel,
    measured_document,
    measured_with_modes,
)
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import Document
from placegap.instances.objectives.staged_plans import best_chain, best_hybrid
from placegap.instances.problem import Degrees, PipelineSchedule
from placegap.instances.problem.device_classes import links_alike
from placegap.instances.reading.input_files import data_path
from placegap.solvers import run_method
from placegap.solvers.pipeline.cuts import links_of_kinds

NEO, SMALL, LARGE = (PREFIX + name for name in MEASURED)
UNLIKE, EQUAL = "4xA100-4xV100", "4xA100-40GB-nvlink"
MIB = 2**20


def test_a_layer_is_the_sum_of_its_ops() -> None:
    # GPT-Neo-2.7, A100-40, microbatch 4, us: norm 91.112, qkv 1738.727, scores 1152.498, softmax
    # 1380.509, dropout 2343.297, context 1084.250, dense 435.090, dropout 289.899, norm 91.034,
    # products 1912.695 and 1666.516, gelu 292.188, dropout 290.877: 12768.692 in all
    ops = {op.name: op for op in measured_document(NEO, {"microbatch": 4}).graph.ops}
    layer, back = ops["layer31"], ops["layer31/backward"]
    assert layer.time_ns["A100-40GB"] == 12_768_692
    # 317.967 + 1575.315 + 1914.829 + 1861.691 + 1955.640 + 2073.401 + 395.930 + 150.669 + 328.714
    # + 1538.992 + 529.009 + 1650.184 + 148.696
    assert back.time_ns["A100-40GB"] == 14_441_037
    # final-layernorm and gpt-post-process: 191.087 + 49519.414
    assert ops["head"].time_ns["A100-40GB"] == 49_710_501
    # 37.5 + 12.5 + 50 + 50 MiB of weights, two bytes each; 16 bytes of each with Adam
    assert layer.parameter_bytes == 150 * MIB
    assert layer.state_bytes == 8 * 150 * MIB
    assert layer.resident_bytes == layer.state_bytes + _stash(NEO, 4)["layer31"]
    # the largest of backward_reserved_mb: dropout of the scores
    assert back.workspace_bytes == 4096 * MIB


def test_activations_are_what_a_forward_pass_leaves_allocated() -> None:
    # activations_mb of the 13 ops: 40.062 + 120 + 1024 + 1024 + 1536 + 40 + 40 + 60 + 40.062 + 160
    # + 160 + 40 + 60 = 4344.124; each is rounded up to a byte
    assert _stash(NEO, 4)["layer0"] == pytest.approx(4344.124 * MIB, abs=13)


def _stash(name: str, microbatch: int) -> dict[str, int]:
    edges = measured_document(name, {"microbatch": microbatch}).graph.edges
    return {edge.producer: edge.bytes for edge in edges if edge.tensor == "kept"}


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "billions"),
    # embedding of 130,304 words and positions, head of 128,256: 12 x 32 x 2560^2 + 2560 x 258,560;
    # 52,320 and 50,272 of OPT: 12 x 24 x 1024^2 + 1024 x 102,592; 12 x 48 x 7168^2 + 7168 x 102,592
    [(NEO, 32, 2560, 3.178), (SMALL, 24, 1024, 0.407), (LARGE, 48, 7168, 30.330)],
)
def test_a_layer_stands_as_often_as_the_model_has_it(
    name: str, layers: int, hidden: int, billions: float
) -> None:
    graph = measured_document(name, {}).graph
    assert len(graph.ops) == 2 * (layers + 2)
    by_kind = [op.time_ns["TitanRTX"] for op in graph.ops if not op.backward]
    assert sum(by_kind) == by_kind[0] + layers * by_kind[1] + by_kind[-1]
    assert sum(op.parameter_bytes for op in graph.ops) / 2 / 1e9 == pytest.approx(
        billions, abs=1e-3
    )
    # one sequence of 2048 tokens, two bytes for each hidden unit, ahead and back
    sent = [edge.bytes for edge in graph.edges if edge.tensor != "kept"]
    assert sent == [2048 * hidden * 2] * (2 * (layers + 1))


def test_of_the_largest_model_weights_alone_are_held() -> None:
    graph = measured_document(LARGE, {}).graph
    assert "memory: weights alone" in graph.provenance.changes
    assert all(op.resident_bytes == op.parameter_bytes == op.state_bytes for op in graph.ops)
    assert not any(op.workspace_bytes for op in graph.ops)
    assert not any(_stash(LARGE, 1).values())


def test_modes_split_a_layer_and_run_its_forward_pass_again() -> None:
    instance = load_source(Source(NEO, EQUAL, dims=(("microbatch", 4),), layers=True))
    layer = next(op for op in instance.graph.ops if op.name == "layer0")
    head = instance.graph.ops[-1]
    assert [(m.name, m.tensor) for m in layer.modes] == [
        (name, t) for t in (1, 2, 4) for name in ("keep", "full")
    ]
    assert [(m.name, m.tensor) for m in head.modes] == [("keep", t) for t in (1, 2, 4)]
    keep, full = layer.modes[:2]
    assert keep.time_ns["A100-40GB"] == 12_768_692 + 14_441_037
    assert full.time_ns["A100-40GB"] == 2 * 12_768_692 + 14_441_037
    assert full.held_bytes == 40 * MIB  # its input
    assert full.workspace_bytes == keep.workspace_bytes + keep.held_bytes
    # 2 bytes of weights, 2 of gradients and 12 of the optimizer; gradients are summed up
    assert keep.parameter_bytes == keep.gradient_bytes == 150 * MIB
    assert keep.sharded_bytes == 6 * 150 * MIB
    assert keep.state_bytes == 8 * 150 * MIB
    # two of them: 75 MiB of weights each
    assert [mode.parameter_bytes for mode in layer.modes[2:4]] == [75 * MIB] * 2


def test_a_tensor_degree_may_be_chosen_for_all_objectives() -> None:
    sizes = (("tensor", 2),)
    plain = load_source(Source(NEO, UNLIKE, dims=sizes))
    layers = load_source(Source(NEO, EQUAL, dims=sizes, layers=True))
    assert {mode.tensor for op in layers.graph.ops for mode in op.modes} == {2}
    # rows of tensor 2, microbatch 1, A100-40, us
    times = [op.time_ns["A100-40GB"] for op in plain.graph.ops if op.colocation == "layer0"]
    assert times == [2_763_174, 3_376_966]
    assert plain.graph.ops[1].parameter_bytes == 75 * MIB


def test_a_run_that_failed_is_no_time() -> None:
    # RTX-2080, GPT-Neo-2.7, microbatch 4: gpt-post-process on one device has 10000000.000
    ops = {op.name: op.time_ns for op in measured_document(NEO, {"microbatch": 4}).graph.ops}
    assert "RTX2080" in ops["layer0"]
    assert "RTX2080" not in ops["head"]
    assert "RTX2080" not in ops["head/backward"]
    sizes = (("microbatch", 4),)
    with pytest.raises(InputError, match=r"no head .* RTX2080"):
        load_source(Source(NEO, "2xRTX2080, pcie3", dims=sizes))
    # split over two it ran: that is the one mode of the head
    layers = load_source(Source(NEO, "2xRTX2080, pcie3", dims=sizes, layers=True))
    assert [mode.tensor for mode in layers.graph.ops[-1].modes] == [2]


def test_a_host_needs_no_times() -> None:
    instance = load_source(Source(SMALL, "2xTitanRTX+host, pcie3"))
    assert instance.cluster.devices[-1].is_host


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Document:
    """Two layers in place of 24."""
    monkeypatch.setitem(MEASURED, "opt-350m", ProfiledModel("OPT-350", 2, 1024))
    return measured_document(SMALL, {})


def test_optima_of_a_short_chain_are_those_of_brute_force(short: Document) -> None:
    instance = short.instance(load_cluster("2xRTX3090-2xTitanRTX"))
    rules = MaxLoad(plans="chain")
    best = run_method(instance, rules, "brute-force")
    proves(run_method(instance, rules, "ideal-dp"), best.value_ns, "max_load")
    schedules: list[PipelineSchedule] = ["gpipe", "1f1b"]
    for schedule in schedules:
        iteration = PipelineIteration(schedule=schedule, microbatches=3)
        chain = best_chain(instance, iteration)
        found = run_method(instance, iteration, "stage-cuts")
        proves(found, chain and chain[0], schedule)


def test_hybrid_optima_of_a_short_chain_are_those_of_brute_force(short: Document) -> None:
    cluster = load_cluster(EQUAL)
    graph = measured_with_modes(SMALL, ["A100-40GB"], (1, 2, 4), {})
    instance = short.model_copy(update={"graph": graph}).instance(cluster)
    ways: list[Degrees] = ["one", "free"]
    for degrees in ways:
        rules = HybridPipeline(microbatches=4, degrees=degrees)
        best = best_hybrid(instance, rules)
        proves(run_method(instance, rules, "hybrid-cuts"), best and best[0], degrees)


def test_eight_unlike_cards_with_links_by_kind_are_proven(short: Document) -> None:
    # 4! x 4! orders of the devices of each kind; they all have one value
    instance = short.instance(load_cluster(UNLIKE))
    assert links_of_kinds(instance)
    assert not links_alike(instance)
    found = run_method(instance, PipelineIteration(schedule="1f1b", microbatches=8), "stage-cuts")
    assert found.status == "optimal"
    # cards of one kind, in two servers
    assert not links_of_kinds(short.instance(load_cluster("2x2xA100-40GB, nvlink, ethernet-10g")))


needs_measured = needs_inputs("measured", "it holds the profiles of github.com/eth-easl/sailor")


@needs_measured
def test_the_rows_that_ship_are_those_of_the_source() -> None:
    with gzip.open(SHARED / "instances" / "measured" / "training-ops.csv.gz", "rt") as file:
        rows = list(csv.reader(file))
    with gzip.open(data_path("measured/sailor/training-ops.csv.gz"), "rt") as file:
        shipped = list(csv.reader(file))
    dtype, algo = rows[0].index("dtype"), rows[0].index("algo")
    kept = [rows[0], *(row for row in rows if (row[dtype], row[algo]) == ("fp16", "0"))]
    left_out = {"dtype", "algo", "input_mb", "output_mb"}
    columns = [k for k, name in enumerate(rows[0]) if name not in left_out]
    assert shipped == [[row[k] for k in columns] for row in kept]


@needs_measured
def test_times_of_a_tensor_degree_have_their_collectives_in_them() -> None:
    # an op that ends in an all-reduce takes a t-th of its time on one device, and the all-reduce;
    # on cards without a fast link that is nearly all. Microbatch 4 of GPT-Neo-2.7 reduces 40 MiB
    folder = SHARED / "instances" / "measured"
    with gzip.open(folder / "collectives.csv.gz", "rt") as file:
        reduced = {
            (row["gpu"], row["gpus"]): 1000 * float(row["ms"])
            for row in csv.DictReader(file)
            if row["collective"] == "all_reduce" and row["mb"] == "40"
        }
    with gzip.open(data_path("measured/sailor/training-ops.csv.gz"), "rt") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["model"], row["microbatch"], row["op"])
            == ("GPT-Neo-2.7", "4", "enc-attention-dense")
        ]
    checked = 0
    for gpu, of_gpu in groupby(rows, key=lambda row: row["gpu"]):
        us = {row["tensor"]: float(row["forward_us"]) for row in of_gpu}
        for t in us.keys() & {"4", "8"} if gpu.startswith(("RTX", "Titan")) else ():
            assert us[t] - us["1"] / int(t) == pytest.approx(reduced[gpu, t], rel=0.03)
            checked += 1
    assert checked == 6
