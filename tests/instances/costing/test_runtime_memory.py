"""What of a card's memory is the runtime's, where nobody says it."""

from pathlib import Path

import pytest

from placegap.experiments.running.sources import Source, as_layers, find_model, load_source
from placegap.experiments.show.place_report import plan_notes
from placegap.instances import Graph, InputError, Instance, Makespan, Op, load_cluster
from placegap.instances.costing.costing import with_costs
from placegap.instances.costing.runtime_memory import Engine
from placegap.instances.files.document import Document, load_document, save_document
from placegap.instances.problem import Provenance
from placegap.solvers import run_method

GB, GIB = 10**9, 2**30

CONTEXT = GB // 2

WORDS = 32_000
"""Of the vocabulary. 512 tokens of as many float32 are 65,536,000 bytes."""


def model(rows: int = 1, dtype: str = "float16", **known: object) -> Graph:
    """A layer and a head that write `rows` rows, of 100 and of `WORDS` numbers."""
    size = 4 if dtype == "float32" else 2
    layer = Op(name="layer", flops=100, bytes_moved=100, parameter_bytes=1000)
    layer = layer.model_copy(update={"resident_bytes": 1000 + rows * 100 * size})
    words = {"name": "head", "resident_bytes": 1000 + rows * WORDS * size}
    ops = [layer, layer.model_copy(update=words)]
    # what is held between passes is no buffer, also where a product holds it (attention)
    held = {"resident_bytes": 10**9 + 8, "state_bytes": 10**9, "parameter_bytes": 8}
    cache = Op(name="cache", flops=100, bytes_moved=9, **held)
    parameters = {"dtype": dtype, **({"batch": rows} if rows > 1 else {}), **known}
    provenance = Provenance.model_validate({"parameters": parameters})
    return Graph(name="g", ops=(*ops, cache), provenance=provenance)


def placed(graph: Graph, cluster: str | Path, devices: Path | None = None) -> Instance:
    return Document(name="g", graph=graph).instance(load_cluster(cluster, devices))


def memories(instance: Instance) -> list[int | None]:
    return [device.memory_bytes for device in instance.cluster.devices]


def test_a_card_that_decodes_keeps_a_context_and_a_piece_of_a_prompt() -> None:
    for dtype in ("float16", "float32"):
        instance = placed(model(decode=True, dtype=dtype), "RTX3090+host:64GB, pcie4")
        assert memories(instance) == [24 * GIB - CONTEXT - 65_536_000, 64 * GB]
    # more sequences than a piece has tokens need larger buffers
    large = placed(model(1024, decode=True), "RTX3090")
    assert memories(large) == [24 * GIB - CONTEXT - 2 * 65_536_000]
    # the activations of other passes are the plan's
    assert memories(placed(model(), "RTX3090")) == [24 * GIB - CONTEXT]


def test_the_buffers_of_a_decode_step_are_reserved_under_a_stated_memory(tmp_path: Path) -> None:
    step, buffers = model(decode=True), 65_536_000
    stated = placed(step, "RTX3090:22GB+RTX3060+host:64GB, pcie4")
    assert memories(stated) == [22 * GB - buffers, 12 * GIB - CONTEXT - buffers, 64 * GB]
    assert stated.cluster.provenance.parameters["reserved"] == (
        "the runtime takes 565.54 MB, 65.54 MB for buffers, of each card that does not say what is"
        " free and 65.54 MB for buffers of each card that says what is free"
    )
    # what a file states as taken has the context in it
    file = tmp_path / "cluster.yaml"
    file.write_text("name: c\ndevices: [{name: b, kind: T4, reserved_bytes: 2e9}]\n")
    taken = placed(step, file)
    assert memories(taken) == [14 * GB - buffers]
    assert taken.cluster.provenance.parameters["reserved"] == (
        "the runtime takes 65.54 MB for buffers of each card that says what is free"
    )


def test_what_a_user_states_of_the_memory_stays(tmp_path: Path) -> None:
    stated = placed(model(), "2xRTX3090:22GB+RTX3060, pcie4")
    assert memories(stated) == [22 * GB, 22 * GB, 12 * GIB - CONTEXT]
    kinds = tmp_path / "kinds.yaml"
    rates = "peak_flops_per_s: 1e13, bandwidth_bytes_per_s: 5e11, memory_bytes: 8e9"
    kinds.write_text(f"a: {{{rates}}}\nb: {{{rates}, reserved_bytes: 0}}\n")
    assert memories(placed(model(), "a+b, pcie4", kinds)) == [8 * GB - CONTEXT, 8 * GB]
    # a memory in the text is what is free, also of a kind that says what is taken
    kinds.write_text(f"c: {{{rates}, reserved_bytes: 1e9}}\n")
    assert memories(placed(model(), "c+c:6GB, pcie4", kinds)) == [7 * GB, 6 * GB]
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "name: c\ndevices:\n  - {name: a, kind: T4, memory_bytes: 15e9}\n"
        "  - {name: b, kind: T4, reserved_bytes: 2e9}\n"
        "  - {name: c, kind: T4, reserved_bytes: 0}\n"
        "  - {name: d, kind: T4, memory_bytes: null}\n"
        "links:\n  - {all_to_all: all, bandwidth_bytes_per_s: 1}\n"
    )
    assert memories(placed(model(), file)) == [15 * GB - CONTEXT, 14 * GB, 16 * GB, None]
    # less than a context
    file.write_text("name: c\ndevices:\n  - {name: a, kind: T4, memory_bytes: 1000}\n")
    assert memories(placed(model(), file)) == [0]


def test_papers_and_graphs_with_times_have_all_of_it() -> None:
    assert memories(placed(with_costs(model(), "roofline"), "T4")) == [16 * GB]
    timed = Graph(name="g", ops=(Op(name="a", time_ns={"T4": 5}),))
    assert memories(placed(timed, "T4")) == [16 * GB]
    for shipped in ("squeezenet", "llama-8b-train"):
        assert memories(load_source(Source(shipped, "8xH100"))) == [80 * GB] * 8


def test_layers_of_a_training_step_leave_12_gib_of_cards_of_80_gb(tmp_path: Path) -> None:
    for costs, cluster, free in (
        (None, "8xH100, nvlink", 68 * GIB),
        ("measured", "8xH100", 80 * GB - 12 * GIB),  # a cluster that ships, with its own GB
        (None, "8xH100:75GB, nvlink", 75 * GB),
        (None, "8xA100-40GB, nvlink", 40 * GIB - CONTEXT),
    ):
        instance = load_source(Source("llama-8b-train", cluster, costs=costs, layers=True))
        assert memories(instance) == [free] * 8
    kinds = tmp_path / "kinds.yaml"
    rates = "peak_flops_per_s: 1e15, bandwidth_bytes_per_s: 3e12, memory_bytes: 96e9"
    kinds.write_text(f"a: {{{rates}}}\nb: {{{rates}, reserved_bytes: 1e9}}\n")
    for kind, free in (("a", 96 * GB - 12 * GIB), ("b", 95 * GB)):
        cluster = load_cluster(f"2x{kind}, pcie4", kinds)
        layers = as_layers(find_model("llama-8b-train"), cluster).instance(cluster)
        assert memories(layers) == [free] * 2
        said = "the runtime takes 12 GiB in training of each card that does not say what is free"
        assert layers.cluster.provenance.parameters.get("reserved") == (
            said if kind == "a" else None
        )


def test_the_note_names_what_large_and_small_cards_leave() -> None:
    cluster = load_cluster("H100+A100-40GB, pcie4")
    layers = as_layers(find_model("llama-8b-train"), cluster).instance(cluster)
    assert layers.cluster.provenance.parameters.get("reserved") == (
        "the runtime takes 12 GiB in training or 500 MB of each card that does not say what is free"
    )


def test_layers_of_a_user_s_training_step_leave_a_context() -> None:
    forward = Op(name="a", module="net.0", flops=8, parameter_bytes=4, state_bytes=16)
    backward = Op(name="b", module="net.0", backward=True, colocation="a", bytes_moved=1)
    step = Document(name="g", graph=Graph(name="g", ops=(forward, backward)))
    cluster = load_cluster("2xT4, pcie3")
    assert memories(as_layers(step, cluster).instance(cluster)) == [16 * GB - CONTEXT] * 2


def test_a_file_of_an_instance_is_not_reduced_again(tmp_path: Path) -> None:
    instance = placed(model(), "T4")
    save_document(Document.of(instance), tmp_path / "one.json")
    again = load_document(tmp_path / "one.json").instance()
    assert again.content_hash == instance.content_hash
    # on the cluster that it came from it is the same instance, of the same name
    same = load_document(tmp_path / "one.json").instance(load_cluster("T4"))
    assert (same.name, same.content_hash) == (instance.name, instance.content_hash)


def test_the_answer_says_how_much_and_how_to_change_it() -> None:
    instance = placed(model(decode=True), "T4")
    note = plan_notes(instance, run_method(instance, Makespan(), "single-device"))[0]
    assert note.startswith("the runtime takes 565.54 MB, 65.54 MB for buffers, of each card that")
    assert "(KIND:22GB in --cluster, or reserved_bytes in a file)" in note
    assert instance.cluster.provenance.changes[-1].startswith("the runtime takes 565.54 MB")


def test_an_engine_leaves_a_share_of_each_card_and_runs_chunks_of_prompts() -> None:
    step = model(decode=True)
    inside = tuple(
        op.model_copy(update={"module": "layers.0" if op.name == "layer" else "lm_head"})
        for op in step.ops
    )
    step = step.model_copy(update={"ops": inside})
    # the head's 32,000 words in float32 of 256 sequences, or two products of 100 numbers in 2 bytes
    # of each token of a chunk: 32.8 MB, and 2 * 200 bytes * 2,048 = 0.8 or * 10**6 = 400 MB
    head, long = 256 * 4 * WORDS, 2 * 200 * 10**6
    card, share = 24 * GIB, int(0.9 * 24 * GIB)
    for engine, free in (
        (Engine("vllm"), share - CONTEXT - head),
        (Engine("vllm", 0.5), card // 2 - CONTEXT - head),
        (Engine("vllm", None, 10**6), share - CONTEXT - long),
        # activations are beside SGLang's share, as far as there is room
        (Engine("sglang", 0.9, 10**6), share - CONTEXT),
        (Engine("sglang", 0.99, 10**6), card - CONTEXT - long),
    ):
        cluster = "RTX3090+RTX3090:20GB, pcie4"
        instance = placed(engine.noted_in(step), cluster)
        stated = 20 * GB - (long if engine.chunk_tokens else head)
        assert memories(instance) == [free, stated], engine


def test_an_engine_is_refused_where_it_reserves_nothing() -> None:
    for engine, graph, why in (
        (Engine("vlm"), model(decode=True), "--engine 'vlm' is not known; did you mean 'vllm'"),
        (Engine("vllm", 90), model(decode=True), "is a share, above 0 to 1"),
        (Engine("vllm"), model(), "is about decode steps: add --decode"),
    ):
        with pytest.raises(InputError, match=why):
            engine.noted_in(graph)
