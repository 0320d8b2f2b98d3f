"""Each format, read again by a parser that was written from its documentation."""

import csv
import json
import re
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest

from placegap.instances import (
    Edge,
    Graph,
    InputError,
    Instance,
    Makespan,
    MaxLoad,
    Op,
    PipelineIteration,
    Plan,
    Semantics,
    evaluate,
    example,
    load_cluster,
    load_corpus,
    load_split,
)
from placegap.instances.exporters.stages import layout
from placegap.instances.exporters.table import export_plan
from placegap.instances.problem import WITHOUT_OPS
from placegap.instances.problem.modules import layer_of, with_granularity

CHAIN = MaxLoad(plans="chain")
LLAMA_STAGES = [range(-1, 5), range(5, 20), range(20, 31), range(31, 33)]
"""Layers of each stage of the plan below; -1 is the embedding, 32 stands for norm and head."""


@pytest.fixture(scope="module")
def llama() -> Instance:
    return load_corpus("llama-7b").instance(load_cluster("celeritas-4xV100-pcie"))


def numbered(layer: str | None) -> int:
    assert layer is not None
    found = re.fullmatch(r"model\.layers\.(\d+)", layer)
    return int(found[1]) if found else -1 if "embed" in layer else 32


def llama_plan(instance: Instance) -> Plan:
    layers = [numbered(layer) for layer in layer_of(instance.graph)]
    return Plan.on(next(k for k, on in enumerate(LLAMA_STAGES) if n in on) for n in layers)


def export(kind: str, instance: Instance, semantics: Semantics = CHAIN) -> str:
    return export_plan(kind, instance, llama_plan(instance), semantics)


def test_every_format_has_the_layers_of_each_stage(llama: Instance) -> None:
    # 5 + 15 + 11 + 1 = 32 layers
    assert export("megatron", llama) == "Et*5|t*15|t*11|tL\n"
    assert layout([0, 2, 0]) == "E|t*2|L"
    assert layout([12, 1, 1, 7]) == "Et*12|t|t|t*7,L"
    assert export("vllm", llama).strip() == "VLLM_PP_LAYER_PARTITION=5,15,11,1"
    parts = json.loads(export("torchtitan", llama))
    assert parts[0] == ["tok_embeddings", *(f"layers.{k}" for k in range(5))]
    assert parts[3] == ["layers.31", "norm", "lm_head", "output"]
    assert [module for part in parts for module in part][1:-3] == [f"layers.{k}" for k in range(32)]
    spec = json.loads(export("pipelining", llama))["split_spec"]
    assert spec == {f"model.layers.{k}": "BEGINNING" for k in (5, 20, 31)}


def device_by_longest_prefix(found: dict[str, int], parameter: str) -> int | None:
    """As accelerate does: the entry of the innermost module that holds the parameter."""
    path = parameter.split(".")[:-1]
    while path and ".".join(path) not in found:
        path.pop()
    return found.get(".".join(path)) if path else None


def test_a_device_map_places_each_parameter_where_the_plan_has_its_op(llama: Instance) -> None:
    found, plan = json.loads(export("device_map", llama)), llama_plan(llama)
    for op, (k,) in zip(llama.graph.ops, plan.placement, strict=True):
        assert device_by_longest_prefix(found, f"{op.module}.weight") == k


def test_a_module_that_no_op_names_is_with_the_first_layer_beside_it(llama: Instance) -> None:
    made = llama.graph.provenance
    noted = {**made.parameters, WITHOUT_OPS: "model.positions model.layers.6.mlp.bias"}
    provenance = made.model_copy(update={"parameters": noted})
    graph = llama.graph.model_copy(update={"provenance": provenance})
    found = json.loads(export("device_map", llama.model_copy(update={"graph": graph})))
    assert found["model.positions"] == found["model.embed_tokens"]
    assert "model.layers.6.mlp.bias" not in found  # its layer covers it


def test_a_plan_that_goes_back_is_no_pipeline(llama: Instance) -> None:
    layers = [numbered(layer) for layer in layer_of(llama.graph)]
    back = Plan.on(0 if n < 8 or n > 20 else 1 for n in layers)
    with pytest.raises(InputError, match="place a pipeline"):
        export_plan("torchtitan", llama, back, CHAIN)
    assert json.loads(export_plan("device_map", llama, back, CHAIN))["model.layers.9"] == 1


def test_an_embedding_in_a_later_stage_is_refused_where_the_format_has_it_in_the_first(
    llama: Instance,
) -> None:
    layers = [numbered(layer) for layer in layer_of(llama.graph)]
    heads = [op.module == "lm_head" for op in llama.graph.ops]
    head_apart = Plan.on((n >= 16) + head for n, head in zip(layers, heads, strict=True))
    with pytest.raises(InputError, match=r"'model\.norm' .*stage 1, .*megatron"):
        export_plan("megatron", llama, head_apart, CHAIN)


def test_a_split_file_reads_back_by_its_importer(tmp_path: Path) -> None:
    numbers = {op.name: str(i) for i, op in enumerate(example().graph.ops)}  # its names are numbers
    content = example().graph.model_dump_json()
    for name, number in numbers.items():
        content = content.replace(f'"{name}"', f'"{number}"')
    changes = {"graph": Graph.model_validate_json(content), "best_known": ()}
    instance, plan = example().model_copy(update=changes), Plan.on([0, 1, 0, 0])
    path = tmp_path / "split.json"
    path.write_text(export_plan("dnn-partitioning", instance, plan, MaxLoad(plans="any")))
    assert load_split(instance, path) == plan


def test_a_table_of_a_makespan_says_when_ops_run() -> None:
    plan = Plan.on([0, 1, 0, 0])
    schedule = evaluate(example(), plan, Makespan()).schedule
    assert schedule is not None
    table = export_plan("csv", example(), plan, Makespan())
    starts = [int(row["start_ns"]) for row in csv.DictReader(StringIO(table))]
    assert starts == schedule.start_ns.tolist()


def test_a_module_that_only_a_backward_op_names_is_in_the_stage_of_that_op() -> None:
    # a position table: its lookup is a part of the op that reads it, its gradient is an op
    names = [("a", "h.0", False), ("b", "h.1", False), ("b'", "h.1", True), ("a'", "wpe", True)]
    ops = tuple(Op(name=x, module=m, backward=b, time_ns={"gpu": 1}) for x, m, b in names)
    edges = tuple(Edge(producer=a[0], consumer=b[0], bytes=1) for a, b in pairwise(names))
    graph = Graph(name="net", ops=ops, edges=edges)
    instance = Instance(name="net", graph=graph, cluster=example().cluster)
    plan = Plan.on([0, 1, 1, 0])
    rules = PipelineIteration(microbatches=2)
    parts = json.loads(export_plan("torchtitan", instance, plan, rules))
    assert parts == [["h.0", "wpe"], ["h.1"]]
    split = json.loads(export_plan("pipelining", instance, plan, rules))
    assert split == {"split_spec": {"h.1": "BEGINNING"}}
    # its gradient comes after those of the layers: it is one of the embeddings before them
    assert export_plan("megatron", instance, plan, rules) == "Et|tL\n"
    assert export_plan("vllm", instance, plan, rules) == "VLLM_PP_LAYER_PARTITION=1,1\n"
    whole = with_granularity(instance, "layer", join_ends=True)
    assert whole.graph.ops[-1].colocation == "(before the layers)"
