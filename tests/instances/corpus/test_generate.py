"""Generated graphs: the same for the same seed, of the size, shape and ratio asked for."""

from itertools import pairwise

import networkx as nx
import pytest

from placegap.instances.corpus.generate import FAMILIES, generate, mirror_training
from placegap.instances.files.document import to_networkx

SIZED: dict[str, tuple[dict[str, object], int]] = {
    "layered": ({"ops": 60, "width": 5}, 60),
    "series-parallel": ({"ops": 60}, 60),
    "blocks": ({"blocks": 4, "branches": 3, "length": 5}, 1 + 4 * 16),
    "parallel-chains": ({"chains": 6, "length": 10}, 60),
    "fork-join": ({"stages": 4, "width": 13}, 4 * 15),
    "training": ({"ops": 20, "width": 4}, 3 * 20),
}
"""Parameters of each family, and how many ops they make."""


@pytest.mark.parametrize("family", FAMILIES)
def test_seeds_decide_the_graph(family: str) -> None:
    params, count = SIZED[family]
    first, again, other = (generate(family, params, seed) for seed in (3, 3, 4))
    assert first == again
    assert first.ops != other.ops
    assert len(first.ops) == count
    assert first.provenance.parameters["seed"] == 3


def test_parameters_given_as_text_make_the_same_graph() -> None:
    given = {"ops": 12, "density": 0.5, "kinds": {"gpu": 1.0, "tpu": 0.25}}
    text = {"ops": "12", "density": "0.5", "kinds": "gpu:1,tpu:0.25"}
    assert generate("layered", given) == generate("layered", text)


@pytest.mark.parametrize("ratio", [0.0, 10.0])
def test_the_communication_ratio_is_met(ratio: float) -> None:
    params = {"ops": 400, "communication_ratio": ratio, "bandwidth_bytes_per_s": 2 * 10**9}
    graph = generate("layered", params, seed=1)
    # 2 bytes per ns
    per_edge = sum(edge.bytes for edge in graph.edges) / 2 / len(graph.edges)
    per_op = sum(op.time_ns["gpu"] for op in graph.ops) / len(graph.ops)
    assert per_edge / per_op == pytest.approx(ratio, abs=1e-4)


def test_kinds_are_slower_by_their_factor() -> None:
    for op in generate("blocks", {"kinds": "fast:1,slow:2.5"}).ops:
        assert op.time_ns["slow"] == -(-op.time_ns["fast"] * 5 // 2)


def test_layers_feed_the_next_layer_at_the_density_asked_for() -> None:
    sparse, dense = (
        generate("layered", {"ops": 400, "width": 10, "density": d}) for d in (0.0, 1.0)
    )
    producers = {count for _, count in to_networkx(sparse).in_degree()}
    assert producers == {0, 1}  # one each, none in the first layer
    network = to_networkx(dense)
    for layer, after in pairwise(nx.topological_generations(network)):
        assert all(set(network.predecessors(op)) == set(layer) for op in after)


def test_chains_and_blocks_have_their_shape() -> None:
    chains = to_networkx(generate("parallel-chains", SIZED["parallel-chains"][0]))
    assert sorted(len(c) for c in nx.weakly_connected_components(chains)) == [10] * 6
    blocks = to_networkx(generate("blocks", SIZED["blocks"][0]))
    assert nx.dag_longest_path_length(nx.DiGraph(blocks.edges())) == 4 * 6
    assert sum(blocks.out_degree(v) == 3 for v in blocks) == 4
    stages = to_networkx(generate("fork-join", SIZED["fork-join"][0]))
    assert sum(stages.out_degree(v) == 13 for v in stages) == 4
    assert sum(stages.in_degree(v) == 13 for v in stages) == 4


def test_training_mirrors_the_forward_graph_and_updates_its_parameters() -> None:
    forward = generate("layered", {"ops": 10, "width": 3})
    training = mirror_training(forward)
    network = to_networkx(training)
    assert [op.name for op in training.ops if not op.backward] == [op.name for op in forward.ops]
    for edge in forward.edges:
        assert network.has_edge(f"{edge.consumer}/backward", f"{edge.producer}/backward")
    for op in forward.ops:
        assert network.has_edge(op.name, f"{op.name}/backward")
        assert network.has_edge(f"{op.name}/backward", f"{op.name}/update")
        groups = {
            network.nodes[f"{op.name}{part}"]["colocation"] for part in ("", "/backward", "/update")
        }
        assert groups == {op.name}
    assert {op.name for op in training.ops if op.update} == {
        f"{op.name}/update" for op in forward.ops
    }
    backward = {op.name for op in training.ops if op.backward}
    assert not any(e.producer in backward and e.consumer not in backward for e in training.edges)
