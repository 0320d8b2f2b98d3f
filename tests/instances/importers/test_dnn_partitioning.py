"""dnn-partitioning inputs and split files: what becomes of every field, and the experts' values."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from doubles.bad_files import good_dnn
from draws.tiny import SHARED, needs_dnn_partitioning

from placegap.instances import MaxLoad, Plan, evaluate
from placegap.instances.files.document import Document, load_document, save_document, write_json
from placegap.instances.importers.dnn_partitioning import load_dnn_partitioning, load_split

INPUTS = SHARED / "instances" / "dnn-partitioning"


def read(folder: Path, content: dict[str, Any], **options: Any) -> Document:
    write_json(content, folder / "input.json")
    return load_dnn_partitioning(folder / "input.json", **options)


def test_every_field_has_its_place(tmp_path: Path) -> None:
    content = good_dnn()
    content["nodes"][1].update(colorClass=7, supportedOnFpga=False, layerId=3)
    content["nodes"][2].update(colorClass=7)
    document = read(tmp_path, content)
    first, second, third, _ = document.graph.ops
    # 2.5 ms and 0.25 ms
    assert (first.name, first.module, first.resident_bytes) == ("1", "node1", 8)
    assert first.time_ns == {"cpu": 2_500_000, "accelerator": 250_000}
    assert second.time_ns == {"cpu": 2_500_000}
    assert (first.colocation, second.colocation, third.colocation) == (None, "7", "7")
    assert [op.backward for op in document.graph.ops] == [False, False, True, True]
    # both edges out of node 1 carry its one output: 4 bytes, 0.5 ms to or from host memory
    edges = [edge for edge in document.graph.edges if edge.producer == "1"]
    assert [edge.consumer for edge in edges] == ["2", "4"]
    assert {(edge.bytes, edge.tensor, edge.host_time_ns) for edge in edges} == {(4, "out", 500_000)}
    assert document.cluster is not None
    devices = [(d.name, d.memory_bytes, d.is_host) for d in document.cluster.devices]
    cards = [("accelerator0", 64, False), ("accelerator1", 64, False)]
    assert devices == [*cards, ("cpu0", None, True)]
    assert document.semantics == MaxLoad(plans="chain")


def test_times_are_rounded_half_to_even_from_their_text_and_it_is_noted(tmp_path: Path) -> None:
    # 0.30000000000000000001 ms, .5 and 1.5 ns over a whole number: a float would lose the first
    text = json.dumps(good_dnn())
    for written in ("0.0000005", "0.0000015", "0.00000250000000000000000001", "0.3"):
        text = text.replace('"cpuLatency": 2.5', f'"cpuLatency": {written}', 1)
    (tmp_path / "input.json").write_text(text)
    graph = load_dnn_partitioning(tmp_path / "input.json").graph
    assert [op.time_ns["cpu"] for op in graph.ops] == [0, 2, 3, 300_000]
    # 4 CPU times, 4 accelerator times, 3 nodes with out-edges
    rounded = "3 of 11 times rounded half to even to whole ns, by at most 0.5 ns"
    assert rounded in graph.provenance.changes
    whole = read(tmp_path, good_dnn(), time_unit="ns").graph
    assert whole.ops[0].time_ns["cpu"] == 2  # 2.5 ns
    assert whole.provenance.parameters["time_unit"] == "ns"


def test_what_is_not_taken_over_is_recorded(tmp_path: Path) -> None:
    content = good_dnn()
    content["edges"] += [
        {"sourceId": 1, "destId": 2, "cost": 0.5, "size": 4},  # a duplicate
        {"sourceId": 2, "destId": 4, "cost": 0.5000001, "size": 9.5},  # node 2 has cost 0.5, size 4
    ]
    graph = read(tmp_path, content).graph
    assert len(graph.edges) == 5
    assert {(e.bytes, e.host_time_ns) for e in graph.edges if e.producer == "2"} == {(10, 500_000)}
    assert graph.provenance.changes[1:] == (
        "1 duplicate edges dropped",
        "costs of edges out of nodes 2 differ; the first counts",
        "1 sizes of edges rounded up to whole bytes",
        "sizes of edges out of nodes 2 differ; the largest is kept",
    )


def test_a_split_places_by_id_and_the_rest_by_colour_class(tmp_path: Path) -> None:
    content = good_dnn()
    for node, color in zip(content["nodes"], (5, 6, 6, 5), strict=True):
        node["colorClass"] = color
    instance = read(tmp_path, content).instance()
    split = tmp_path / "split.json"
    # nodes 3 and 4 follow 2 and 1; the reference program appends messages to its JSON
    split.write_text(
        '{"fpgas": [{"load": -1, "nodes": []}, {"nodes": [1]}], "maxLoad": 3,\n'
        '"cpus": [{"load": 0.0, "nodes": [2]}]}\nFAIL: different maxLoad'
    )
    assert load_split(instance, split) == Plan.on([1, 2, 2, 1])


def reference_rows() -> list[dict[str, str]]:
    with (SHARED / "reference" / "dnn-partitioning.csv").open() as file:
        return list(csv.DictReader(file))


@needs_dnn_partitioning
def test_public_inputs_are_read_and_survive_our_own_format(tmp_path: Path) -> None:
    rows = sorted(reference_rows(), key=lambda row: int(row["nodes"]))
    assert len(rows) == 24
    for row in rows[::5]:
        document = load_dnn_partitioning(INPUTS / row["file"])
        instance = document.instance()
        hosts = sum(device.is_host for device in instance.cluster.devices)
        found = instance.num_ops, len(instance.graph.edges), instance.num_devices - hosts, hosts
        assert found == tuple(int(row[x]) for x in ("nodes", "edges", "accelerators", "cpus"))
        save_document(document, tmp_path / "copy.json.gz")
        assert load_document(tmp_path / "copy.json.gz") == document


@needs_dnn_partitioning
def test_the_experts_splits_reach_the_values_of_the_reference_program() -> None:
    rows = [row for row in reference_rows() if row["human_expert"]]
    assert len(rows) == 8
    for row in rows:
        name, experts = Path(row["file"]).stem, INPUTS / "human-experts"
        split = experts / f"{name}_expert.json"
        if not split.is_file():  # training nodes that the inference split leaves out follow theirs
            split = experts / f"{name.split('_')[0]}_inference_expert.json"
        instance = load_dnn_partitioning(INPUTS / row["file"]).instance()
        verdict = evaluate(instance, load_split(instance, split), MaxLoad(plans="any"))
        assert verdict.feasible
        assert verdict.value_ns == pytest.approx(float(row["human_expert"]) * 1e6, rel=1e-6)
