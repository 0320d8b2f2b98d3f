"""The corpus and its best-known values."""

from pathlib import Path

import pytest
from references.corpus import graph_of

from placegap.experiments.research.record_best import record_best
from placegap.experiments.research.workloads.build import partitioning_name
from placegap.instances import (
    BestKnown,
    InputError,
    Instance,
    LatencySubgraphs,
    Makespan,
    MaxLoad,
    Semantics,
    example,
)
from placegap.instances.corpus.corpus import (
    NETWORK_FAMILY,
    ONNX_FAMILY,
    PARTITIONING_FAMILY,
    best_known,
    corpus_names,
    corpus_path,
    load_best_known,
)
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.importers.dnn_partitioning import load_dnn_partitioning
from placegap.instances.reading.input_files import data_path

INPUTS = Path(__file__).parents[4] / "shared" / "instances" / "dnn-partitioning"
SHIPPED = {
    graph_of(name).graph.provenance.source.split()[3] for name in corpus_names(PARTITIONING_FAMILY)
}
PUBLISHED = [
    path
    for path in sorted(INPUTS.glob("*-inputs/*Graphs/*.json"))
    if "/".join(path.parts[-3:]) in SHIPPED
][::5]
"""Files of graphs that ship, where they are at hand."""

MAKESPAN = Makespan(channels="port")
LOAD = MaxLoad(plans="any")


@pytest.mark.parametrize("name", corpus_names())
def test_a_graph_states_its_source_its_licence_and_what_was_changed(name: str) -> None:
    document = graph_of(name)
    provenance = document.graph.provenance
    assert document.name == document.graph.name == name
    if name in corpus_names(ONNX_FAMILY):
        assert document.cluster is None
        assert provenance.source.startswith("onnx wheel, ")
        assert provenance.licence == "Apache-2.0"
    elif name in corpus_names(NETWORK_FAMILY):
        assert document.cluster is not None
        assert provenance.source.startswith(("traced from hf:", "placegap generate "))
        assert provenance.licence in {"Apache-2.0", "MIT"}
    else:
        assert document.cluster is not None
        assert provenance.source.startswith("github.com/msr-fiddle/dnn-partitioning, commit ")
        assert provenance.licence == "MIT"
    assert provenance.changes


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: "/".join(path.parts[-3:]))
def test_a_graph_of_dnn_partitioning_is_what_the_importer_reads(path: Path) -> None:
    read, shipped = load_dnn_partitioning(path), graph_of(partitioning_name(path))
    assert (shipped.graph.ops, shipped.graph.edges) == (read.graph.ops, read.graph.edges)
    assert shipped.cluster == read.cluster
    assert shipped.instance().content_hash == read.instance().content_hash


def test_graphs_of_dnn_partitioning_ask_what_their_authors_ask() -> None:
    # throughput-inputs: contiguous splits of least maximum load; latency-inputs: q = 1
    for name in corpus_names(PARTITIONING_FAMILY):
        semantics = graph_of(name).semantics
        chain = MaxLoad(plans="chain")
        calls = LatencySubgraphs(subgraphs=1)
        assert semantics == (calls if name.endswith("_latency") else chain)


def test_the_licence_of_dnn_partitioning_ships_with_its_graphs() -> None:
    text = data_path("corpus", PARTITIONING_FAMILY, "LICENSE.txt").read_text()
    assert "MIT License" in text
    assert "Copyright (c) 2020 - present Microsoft Corporation" in text


def test_every_family_has_a_readme_that_names_its_graphs() -> None:
    families = Path(__file__).parents[3] / "instances" / "data" / "corpus"
    for name in corpus_names():
        readme = families / corpus_path(name).parent.name / "README.md"
        assert f"| {name} |" in readme.read_text()


def test_the_corpus_is_under_five_megabytes() -> None:
    files = [path for path in data_path("corpus").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 5_000_000


def test_committed_best_values_belong_to_the_committed_graphs_and_clusters() -> None:
    hashes = dict[tuple[str, str], str]()
    for entry in load_best_known():
        where = entry.graph, entry.cluster
        if where not in hashes:
            instance = graph_of(entry.graph).instance(load_cluster(entry.cluster))
            hashes[where] = instance.content_hash
        assert entry.content_hash == hashes[where], entry.key


def record(path: Path, semantics: Semantics = MAKESPAN, **found: object) -> BestKnown:
    return record_best(example(), BestKnown(semantics=semantics, **found), path)  # type: ignore[arg-type]


def test_what_is_recorded_is_found_again_under_its_semantics_only(tmp_path: Path) -> None:
    path, instance = tmp_path / "best.json", example()
    record(path, value_ns=9, value_origin="heft")
    record(path, LOAD, bound_ns=4, bound_origin="ideal-dp")
    name, cluster = instance.graph.name, instance.cluster
    assert best_known(name, cluster, MAKESPAN, path) == BestKnown(
        semantics=MAKESPAN, value_ns=9, value_origin="heft"
    )
    assert best_known(name, cluster.name, LOAD, path) == BestKnown(
        semantics=LOAD, bound_ns=4, bound_origin="ideal-dp"
    )
    free = Makespan(channels="free")
    assert best_known(name, cluster, free, path) is None
    assert best_known("other", cluster, MAKESPAN, path) is None


def test_the_smaller_value_and_the_larger_bound_win_each_with_its_origin(tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    record(path, value_ns=9, value_origin="a", bound_ns=3, bound_origin="b")
    record(path, value_ns=8, value_origin="c", bound_ns=2, bound_origin="worse")
    best = record(path, value_ns=8, value_origin="tie", bound_ns=8, bound_origin="d")
    assert (best.value_ns, best.value_origin) == (8, "c")
    assert (best.bound_ns, best.bound_origin) == (8, "d")
    assert len(load_best_known(path)) == 1


def test_a_bound_above_a_value_is_refused_and_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    record(path, value_ns=9, value_origin="heft")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"bound 10 \(moirai\).*value 9 \(heft\)"):
        record(path, bound_ns=10, bound_origin="moirai")
    assert path.read_bytes() == before


def test_an_entry_of_another_content_is_replaced(tmp_path: Path) -> None:
    path, old = tmp_path / "best.json", example()
    record(path, value_ns=1, value_origin="of the old graph")
    ops = tuple(op.model_copy(update={"time_ns": {"gpu": 7}}) for op in old.graph.ops)
    changed = Instance(
        name=old.name, graph=old.graph.model_copy(update={"ops": ops}), cluster=old.cluster
    )
    fresh = record_best(changed, BestKnown(semantics=MAKESPAN, value_ns=20), path)
    assert (fresh.value_ns, fresh.content_hash) == (20, changed.content_hash)
    assert load_best_known(path) == (fresh,)
