"""The instance format: exact round trips, stable bytes, and files of 100,000 ops."""

import json
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest
from doubles.bad_files import good_document
from draws.every_field import rich_graph
from draws.tiny import tiny_instance

from placegap.instances import BestKnown, Cluster, Device, Edge, Makespan, MaxLoad, Op, example
from placegap.instances.files.document import (
    Document,
    from_networkx,
    load_document,
    parse_document,
    read_json,
    save_document,
    to_networkx,
)

ALONE = Cluster(name="alone", devices=(Device(name="only", kind="gpu", memory_bytes=0),))
FULL = Document(
    name="full",
    graph=rich_graph(),
    cluster=ALONE,
    semantics=Makespan(channels="half_duplex"),
    best_known=(BestKnown(semantics=MaxLoad(plans="any"), value_ns=5, bound_ns=0),),
)


def test_the_round_trip_is_exact_and_the_bytes_depend_on_the_content_alone(tmp_path: Path) -> None:
    for document in (FULL, *(Document.of(tiny_instance(seed, hosts=1)) for seed in range(3))):
        for name in ("d.json", "a.json.gz", "b.json.gz"):
            save_document(document, tmp_path / name)
            assert load_document(tmp_path / name) == document
        assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
        assert from_networkx(to_networkx(document.graph)) == document.graph


def test_fields_at_their_default_are_left_out(tmp_path: Path) -> None:
    save_document(Document.of(example()), tmp_path / "d.json")
    raw = read_json(tmp_path / "d.json")
    assert raw["graph"]["ops"][0] == {"name": "op1", "time_ns": {"gpu": 5}}
    assert set(raw) == {"format", "version", "name", "graph", "cluster"}


def test_rules_that_a_file_states_are_written_again_also_at_their_default(tmp_path: Path) -> None:
    stated = {"objective": "max_load", "plans": "any", "load": "overlap"}
    raw = good_document()
    raw |= {"semantics": stated, "best_known": [{"semantics": stated, "value_ns": 5}]}
    save_document(parse_document(raw, "d.json"), tmp_path / "d.json")
    written = read_json(tmp_path / "d.json")
    assert written["semantics"] == written["best_known"][0]["semantics"] == stated


def test_another_cluster_gives_another_instance_without_best_known_values() -> None:
    known = BestKnown(semantics=Makespan(), value_ns=34)
    document = Document.of(example()).model_copy(update={"best_known": (known,)})
    instance = document.instance(ALONE)
    assert (instance.name, instance.num_devices) == ("diamond@alone", 1)
    assert instance.best_known == ()
    own = document.instance(document.cluster)
    assert (own.name, own.best_known) == ("diamond", (known,))


def test_the_file_that_a_document_came_from_is_no_part_of_its_value(tmp_path: Path) -> None:
    save_document(Document.of(example()), tmp_path / "d.json")
    loaded = load_document(tmp_path / "d.json")
    assert loaded == Document.of(example())
    assert loaded.source == str(tmp_path / "d.json")
    assert parse_document(read_json(tmp_path / "d.json"), "stdin").source == "stdin"


def test_a_plain_digraph_becomes_a_graph_with_defaults() -> None:
    network = nx.DiGraph()
    network.add_edge(1, 2, bytes=64)
    network.nodes[1]["time_ns"] = {"gpu": 5}
    graph = from_networkx(network)
    assert graph.ops == (Op(name="1", time_ns={"gpu": 5}), Op(name="2"))
    assert graph.edges == (Edge(producer="1", consumer="2", bytes=64),)


PROGRAM = """
import sys
from placegap.experiments.research.bench.measuring import peak_bytes
from placegap.instances.files.document import load_document
instance = load_document(sys.argv[1]).instance()
print(instance.num_ops, len(instance.graph.edges), peak_bytes() / 2**30)
"""


@pytest.mark.parametrize(
    ("num_ops", "most_gigabytes"),
    [(10_000, 0.15), pytest.param(100_000, 1, marks=pytest.mark.deep)],
)
def test_a_hundred_thousand_ops_load_in_1_gb(
    num_ops: int, most_gigabytes: float, tmp_path: Path
) -> None:
    # In a process of its own, for peak memory counts from its start.
    times = ({"gpu": 1000 + i % 977, "cpu": 10**6} for i in range(num_ops))
    ops = [{"name": f"op{i}", "time_ns": own, "resident_bytes": i} for i, own in enumerate(times)]
    pairs = [(i - step, i) for i in range(num_ops) for step in (1, 7) if i >= step]
    pairs += [(0, i) for i in range(10, 18)]
    edges = [{"producer": f"op{a}", "consumer": f"op{b}", "bytes": a % 997} for a, b in pairs]
    content = {**good_document(), "graph": {"name": "big", "ops": ops, "edges": edges}}
    (tmp_path / "big.json").write_text(json.dumps(content))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "big.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ops_there, edges_there, gigabytes = done.stdout.split()
    assert (int(ops_there), int(edges_there)) == (num_ops, 2 * num_ops)
    assert float(gigabytes) < most_gigabytes
