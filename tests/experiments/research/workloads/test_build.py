"""Graphs of the corpus: what files of networks hold, and that they are made anew as they are."""

import gzip
from pathlib import Path

import pytest
from references.corpus import graph_of

from placegap.experiments.research.workloads.build import (
    build_corpus,
    build_networks,
    network_recipes,
)
from placegap.instances import MaxLoad
from placegap.instances.corpus.corpus import NETWORK_FAMILY, ONNX_FAMILY, corpus_names, corpus_path
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.torch_models.options import is_traced

RECIPES = network_recipes()
GENERATED = [name for name, recipe in RECIPES.items() if not is_traced(recipe.model)]


def same_bytes(name: str, folder: Path) -> bool:
    committed = corpus_path(name)
    fresh = folder / NETWORK_FAMILY / committed.name
    return gzip.decompress(fresh.read_bytes()) == gzip.decompress(committed.read_bytes())


def test_every_recipe_has_its_file_and_every_file_its_recipe() -> None:
    assert sorted(RECIPES) == sorted(corpus_names(NETWORK_FAMILY))


@pytest.mark.parametrize("name", RECIPES)
def test_a_network_brings_a_cluster_that_ships_and_its_semantics(name: str) -> None:
    document, recipe = graph_of(name), RECIPES[name]
    assert document.cluster == load_cluster(recipe.cluster)
    assert document.semantics == MaxLoad(plans="chain", memory=recipe.memory)


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_network_is_made_anew_as_it_is(name: str, tmp_path: Path) -> None:
    build_networks(tmp_path, [name])
    assert same_bytes(name, tmp_path)


# masks and updates of weights in a step, experts with a mask, and a network without either
@pytest.mark.torch
@pytest.mark.parametrize("name", ["gpt2-train", "mixtral-8x7b", "resnet50-batch32"])
def test_a_traced_network_is_made_anew_as_it_is(name: str, tmp_path: Path) -> None:
    build_networks(tmp_path, [name])
    assert same_bytes(name, tmp_path)


def test_a_traced_training_step_holds_16_bytes_per_parameter() -> None:
    # Adam in 32 bits: weight, gradient and two moments; in 16 bits a copy of the weights in 32
    # bits takes the other half of weight and gradient. Below 0.01 bytes are buffers of the model
    for name, recipe in RECIPES.items():
        if is_traced(recipe.model) and recipe.tracing.train:
            graph = graph_of(name).graph
            shared = {key: size for op in graph.ops for key, size in op.shared_state.items()}
            held = sum(
                op.parameter_bytes if op.state_bytes is None else op.state_bytes for op in graph.ops
            )
            parameters = graph.provenance.parameters["parameters"]
            assert 16 <= (held + sum(shared.values())) / parameters < 16.01, name


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnx", reason="the corpus is built from the onnx wheel")
    folder = tmp_path_factory.mktemp("corpus")
    assert len(build_corpus(folder)) == len(corpus_names(ONNX_FAMILY))
    return folder


@pytest.mark.parametrize("name", corpus_names(ONNX_FAMILY))
def test_the_script_reproduces_a_graph_exactly(name: str, rebuilt: Path) -> None:
    committed = corpus_path(name)
    fresh = rebuilt / committed.parent.name / committed.name
    assert gzip.decompress(fresh.read_bytes()) == gzip.decompress(committed.read_bytes())
