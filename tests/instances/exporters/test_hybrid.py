"""Hybrid plans for Megatron, torchtitan and vLLM: what is written is read back as the same plan."""

import argparse
import re
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from draws.hybrid import LAYER_MODES, LAYERS, layer_row

from placegap.instances import Edge, Graph, HybridPipeline, InputError, Plan, evaluate
from placegap.instances.exporters.hybrid import nearest_hybrid
from placegap.instances.exporters.table import check_export, export_plan


def plan_of(counts: list[int], replicas: int, tensor: int, mode: Callable[[int, int], str]) -> Plan:
    """Stages of so many layers, the ends with the first and last; modes by stage and place."""
    stage = [0, *(s for s, count in enumerate(counts) for _ in range(count)), len(counts) - 1]
    modes = ["keep", *(mode(s, at) for s, n in enumerate(counts) for at in range(n)), "keep"]
    each = replicas * tensor
    return Plan(
        tuple(tuple(range(s * each, (s + 1) * each)) for s in stage),
        stage=tuple(stage),
        tensor=(tensor,) * len(counts),
        mode=tuple(modes),
    )


def layout_counts(text: str) -> list[int]:
    """Decoder layers of each stage of a layout: ``x*n`` repeats, commas mean nothing, E first."""
    stages = re.sub(r"(\w)\*(\d+)", lambda m: m[1] * int(m[2]), text.replace(",", "")).split("|")
    assert re.fullmatch(r"E(t|\|)*L", "|".join(stages))
    return [stage.count("t") for stage in stages]


def read_megatron(text: str, devices: int) -> Plan:
    """The plan that options state, on so many devices."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    for option in ("tensor-model-parallel-size", "pipeline-model-parallel-size"):
        parser.add_argument(f"--{option}", type=int)
    parser.add_argument("--pipeline-model-parallel-layout", default=f"Et*{LAYERS}L")
    parser.add_argument("--recompute-granularity", choices=["full", "selective"])
    parser.add_argument("--recompute-method", choices=["uniform", "block"])
    parser.add_argument("--recompute-num-layers", type=int, default=0)
    parser.add_argument("--use-distributed-optimizer", action="store_true")
    read = parser.parse_args(shlex.split(text))
    counts = layout_counts(read.pipeline_model_parallel_layout)
    t, p = read.tensor_model_parallel_size, read.pipeline_model_parallel_size
    assert len(counts) == p
    assert (read.recompute_method == "block") == (read.recompute_granularity == "full")

    def mode(s: int, at: int) -> str:
        if read.recompute_granularity == "full":
            return "full" if at < read.recompute_num_layers else "keep"
        return read.recompute_granularity or "keep"

    return plan_of(counts, devices // (t * p), t, mode)


def read_torchtitan(text: str) -> Plan:
    """The plan that a part of a TOML file states."""
    content = tomllib.loads(text)
    degrees, recomputed = content["parallelism"], content["activation_checkpoint"]
    parts = degrees["module_fqns_per_model_part"]
    modules = [module for part in parts for module in part]
    layers = [f"layers.{n}" for n in range(LAYERS)]
    assert modules == ["tok_embeddings", *layers, "norm", "lm_head", "output"]
    assert len(parts) == degrees["pipeline_parallel_degree"]
    counts = [sum(module.startswith("layers.") for module in part) for part in parts]

    def mode(s: int, at: int) -> str:
        if recomputed["mode"] == "selective" and recomputed["selective_ac_option"] != "op":
            return "keep" if (at + 1) % int(recomputed["selective_ac_option"]) else "full"
        return {"none": "keep", "selective": "selective", "full": "full"}[recomputed["mode"]]

    replicas, tensor = degrees["data_parallel_shard_degree"], degrees["tensor_parallel_degree"]
    return plan_of(counts, replicas, tensor, mode)


EIGHT, FOUR = HybridPipeline(microbatches=8), HybridPipeline(microbatches=4)
MEGATRON = [
    ([2, 2, 2], 2, 1, lambda s, at: "keep"),
    ([4, 2], 1, 2, lambda s, at: "selective"),
    ([6], 2, 2, lambda s, at: "full"),
    ([3, 3], 2, 1, lambda s, at: "full" if at < 2 else "keep"),
    ([0, 5, 1], 1, 1, lambda s, at: "full" if at < 1 else "keep"),
]
TORCHTITAN = [*MEGATRON[:3], ([3, 3], 2, 2, lambda s, at: "full" if at % 2 else "keep")]


@pytest.mark.parametrize("row", MEGATRON)
def test_options_of_megatron_read_back_as_the_plan(row: tuple) -> None:
    plan, instance = plan_of(*row), layer_row()
    assert evaluate(instance, plan, EIGHT).feasible
    text = export_plan("megatron", instance, plan, EIGHT)
    assert text.count("\n") == 1
    assert read_megatron(text, len({k for on in plan.placement for k in on})) == plan


@pytest.mark.parametrize("row", TORCHTITAN)
def test_parts_of_torchtitan_read_back_as_the_plan(row: tuple) -> None:
    plan = plan_of(*row)
    assert read_torchtitan(export_plan("torchtitan", layer_row(), plan, EIGHT)) == plan


def test_torchtitan_gets_no_more_stages_than_microbatches() -> None:
    plan = plan_of([2, 2, 2], 1, 1, lambda s, at: "keep")
    rules = HybridPipeline(microbatches=2, bubble=True)
    assert "--pipeline-model-parallel-size 3" in export_plan("megatron", layer_row(), plan, rules)
    with pytest.raises(InputError, match="replica has 2; us"):
        export_plan("torchtitan", layer_row(), plan, rules)


def test_vllm_gets_degrees_and_the_partition() -> None:
    text = export_plan("vllm", layer_row(), plan_of([4, 2], 2, 2, lambda s, at: "keep"), FOUR)
    degrees = "--tensor-parallel-size 2 --pipeline-parallel-size 2 --data-parallel-size 2"
    assert text.splitlines() == ["VLLM_PP_LAYER_PARTITION=4,2", degrees]


def test_layers_of_equal_cost_may_be_recomputed_in_another_order() -> None:
    # the second and third layer of each stage; Megatron recomputes the first two
    plan = plan_of([3, 3], 2, 1, lambda s, at: "full" if at else "keep")
    instance, rules = layer_row(), EIGHT
    told = read_megatron(export_plan("megatron", instance, plan, rules), 4)
    assert told != plan
    assert evaluate(instance, told, rules).value_ns == evaluate(instance, plan, rules).value_ns


@pytest.mark.parametrize(
    ("kind", "modes", "words", "value_ns"),
    [
        # block 1 also makes stage 2 longer: 4 * (40 + 30 + 30 + 8) + 2 * 4 = 440 of 400
        ("megatron", ("keep", "full"), "-method block --recompute-num-layers 1\n", 440),
        ("torchtitan", ("keep", "full"), 'selective_ac_option = "2"\n', 440),
        # 4 * (3 * 31 + 8) + 8 = 412
        ("megatron", ("keep", "selective", "full"), "--recompute-granularity selective\n", 412),
        ("torchtitan", ("keep", "selective", "full"), 'selective_ac_option = "op"\n', 412),
        ("vllm", ("keep", "full"), "fits with these cuts", None),
    ],
)
def test_a_plan_that_cannot_be_said_has_a_nearest_setting(
    kind: str, modes: tuple[str, ...], words: str, value_ns: int | None
) -> None:
    # stage 0 has 3 in flight, and recomputes one of its 2 layers: 3 * (9 + 1 + 2) + 3 * 8 = 60
    # bytes; stage 2 with 3 layers takes longest: 4 * (3 * 30 + 8) + 2 * 4 = 400, with 61 bytes
    instance = layer_row(memory=61, modes={name: LAYER_MODES[name] for name in modes})
    plan = plan_of([2, 1, 3], 1, 1, lambda s, at: "full" if (s, at) == (0, 0) else "keep")
    verdict = evaluate(instance, plan, FOUR)
    assert (verdict.feasible, verdict.value_ns) == (True, 400)
    with pytest.raises(InputError, match=rf"^export {kind}: .*recomputes"):
        export_plan(kind, instance, plan, FOUR)
    if value_ns is None:
        with pytest.raises(InputError, match=words):
            nearest_hybrid(kind, instance, plan, FOUR)
        return
    text, found_ns = nearest_hybrid(kind, instance, plan, FOUR)
    assert text.endswith(words)
    assert found_ns == value_ns


def test_an_end_that_a_tool_has_elsewhere_takes_longer_there() -> None:
    instance = layer_row(modes={"keep": (30, 9)})
    graph = instance.graph
    mask = graph.ops[0].model_copy(update={"name": "mask"})
    edge = Edge(producer="mask", consumer="layer5", bytes=30)
    graph = Graph(name="net", ops=(mask, *graph.ops), edges=(*graph.edges, edge))
    plan = plan_of([3, 3], 1, 1, lambda s, at: "keep")
    assert plan.stage is not None
    assert plan.mode is not None
    on, modes = (plan.placement[-1], *plan.placement), ("keep", *plan.mode)
    plan = replace(plan, placement=on, stage=(1, *plan.stage), mode=modes)
    # mask with layer5: 4 * (90 + 8 + 8) + 8 = 432 in stage 1; with the embedding each stage pays
    # 2 * 4 * 30 more for its edge: 432 + 240 in stage 0
    _, value_ns = nearest_hybrid("megatron", instance.with_graph(graph), plan, FOUR)
    assert value_ns == 672


def test_other_plans_are_refused_in_one_line() -> None:
    plan, row = plan_of([3, 3], 1, 1, lambda s, at: "keep"), layer_row()
    assert plan.stage is not None
    unlike = replace(plan, placement=tuple((1, 2) if s else (0,) for s in plan.stage))
    ops = list(row.graph.ops)
    names = {ops[1].name: ops[6].name, ops[6].name: ops[1].name}  # layers 0 and 5
    swapped = [op.model_copy(update={"name": names.get(op.name, op.name)}) for op in ops]
    row_of = [Edge(producer=a.name, consumer=b.name, bytes=1) for a, b in pairwise(swapped)]
    misnamed = row.with_graph(Graph(name="net", ops=tuple(swapped), edges=tuple(row_of)))
    loose = row.with_graph(row.graph.model_copy(update={"edges": ()}))
    # the first three layers in the last stage
    back = (0, 1, 1, 1, 0, 0, 0, 1)
    backwards = replace(plan, placement=tuple((s,) for s in back), stage=back)
    for instance, bad, words in (
        (row, unlike, "stages have d x t of 1 x 1, 2 x 1.*--degrees one"),
        (misnamed, plan, "layer.. .* order of their numbers"),
        (loose, backwards, "through the stages in order"),
        (layer_row(memory=20), plan, "infeasible: memory"),
    ):
        with pytest.raises(InputError, match=rf"{words}.*\Z"):
            export_plan("megatron", instance, bad, FOUR.model_copy(update={"degrees": "free"}))


def test_other_formats_and_models_without_layers_are_refused_before_a_plan_is_looked_for() -> None:
    for kind in ("device_map", "csv", "pipelining"):
        with pytest.raises(InputError, match="megatron, torchtitan, vllm, or write"):
            check_export(kind, layer_row(), FOUR)
    ops = [op.model_copy(update={"name": f"{op.name}x"}) for op in layer_row().graph.ops]
    nameless = layer_row().with_graph(Graph(name="net", ops=tuple(ops)))
    with pytest.raises(InputError, match="no numbered layers"):
        check_export("megatron", nameless, FOUR)
    check_export("megatron", layer_row(), FOUR)
