"""Hybrid plans for Megatron, torchtitan and vLLM: what is written is read back as the same plan."""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from draws.hybrid import LAYER_MODES, LAYERS, layer_row

from placegap.instances import (
    Edge,
    Graph,
    HybridPipeline,
    InputError,
    Plan,
    evaluate,
)
from placegap.instances.exporters.table import check_export, export_plan


def plan_of(counts: list[int], replicas: int, tensor: int, mode: Callable[[int, int], str]) -> Plan:
    """Stages of so many layers, the ends with the first and last; modes by stage and place."""
    stage, modes = [0], ["keep"]
    for s, count in enumerate(counts):
        stage += [s] * count
        modes += [mode(s, at) for at in range(count)]
    stage.append(len(counts) - 1)
    modes.append("keep")
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
    assert (stages[0][0], stages[-1][-1]) == ("E", "L")
    stages[0], stages[-1] = stages[0][1:], stages[-1].removesuffix("L")
    stages[0] = stages[0].removeprefix("E")
    assert all(set(own) <= {"t"} for own in stages)
    return [len(own) for own in stages]


def read_megatron(text: str, devices: int) -> Plan:
    """The plan that options state, on so many devices."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--tensor-model-parallel-size", type=int)
    parser.add_argument("--pipeline-model-parallel-size", type=int)
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
    assert modules == ["tok_embeddings", *layers, "norm", "output"]
    assert len(parts) == degrees["pipeline_parallel_degree"]
    counts = [sum(module.startswith("layers.") for module in part) for part in parts]

    def mode(s: int, at: int) -> str:
        if recomputed["mode"] == "selective" and recomputed["selective_ac_option"] != "op":
            return "keep" if (at + 1) % int(recomputed["selective_ac_option"]) else "full"
        return {"none": "keep", "selective": "selective", "full": "full"}[recomputed["mode"]]

    return plan_of(
        counts, degrees["data_parallel_shard_degree"], degrees["tensor_parallel_degree"], mode
    )


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
    rules = HybridPipeline(microbatches=8)
    assert evaluate(instance, plan, rules).feasible
    text = export_plan("megatron", instance, plan, rules)
    assert text.count("\n") == 1
    assert read_megatron(text, len({k for on in plan.placement for k in on})) == plan


@pytest.mark.parametrize("row", TORCHTITAN)
def test_parts_of_torchtitan_read_back_as_the_plan(row: tuple) -> None:
    plan, instance = plan_of(*row), layer_row()
    rules = HybridPipeline(microbatches=8)
    assert read_torchtitan(export_plan("torchtitan", instance, plan, rules)) == plan


def test_layers_of_equal_cost_may_be_recomputed_in_another_order() -> None:
    # the second and third layer of each stage; Megatron recomputes the first two
    plan = plan_of([3, 3], 2, 1, lambda s, at: "full" if at else "keep")
    instance, rules = layer_row(), HybridPipeline(microbatches=8)
    told = read_megatron(export_plan("megatron", instance, plan, rules), 4)
    assert told != plan
    assert evaluate(instance, told, rules).value_ns == evaluate(instance, plan, rules).value_ns


def test_vllm_gets_degrees_and_the_partition() -> None:
    plan = plan_of([4, 2], 2, 2, lambda s, at: "keep")
    text = export_plan("vllm", layer_row(), plan, HybridPipeline(microbatches=4))
    assert text.splitlines() == [
        "VLLM_PP_LAYER_PARTITION=4,2",
        "--tensor-parallel-size 2 --pipeline-parallel-size 2 --data-parallel-size 2",
    ]


@pytest.mark.parametrize(
    ("kind", "modes", "words"),
    [
        # block 1 also makes stage 2 longer: 4 * (40 + 30 + 30 + 8) + 2 * 4 = 440 of 400
        (
            "megatron",
            ("keep", "full"),
            "--recompute-method block --recompute-num-layers 1, +10.0 %",
        ),
        ("torchtitan", ("keep", "full"), 'selective_ac_option = "2", +10.0 %'),
        # 4 * (3 * 31 + 8) + 8 = 412
        ("megatron", ("keep", "selective", "full"), "--recompute-granularity selective, +3.0 %"),
        ("torchtitan", ("keep", "selective", "full"), 'selective_ac_option = "op", +3.0 %'),
        ("vllm", ("keep", "full"), "with these cuts nothing fits that it can"),
    ],
)
def test_a_plan_that_cannot_be_said_is_refused_with_the_nearest_and_its_price(
    kind: str, modes: tuple[str, ...], words: str
) -> None:
    # stage 0 has 3 in flight, and recomputes one of its 2 layers: 3 * (9 + 1 + 2) + 3 * 8 = 60
    # bytes; stage 2 with 3 layers takes longest: 4 * (3 * 30 + 8) + 2 * 4 = 400, with 61 bytes
    instance = layer_row(memory=61, modes={name: LAYER_MODES[name] for name in modes})
    plan = plan_of([2, 1, 3], 1, 1, lambda s, at: "full" if (s, at) == (0, 0) else "keep")
    verdict = evaluate(instance, plan, HybridPipeline(microbatches=4))
    assert (verdict.feasible, verdict.value_ns) == (True, 400)
    with pytest.raises(InputError) as said:
        export_plan(kind, instance, plan, HybridPipeline(microbatches=4))
    assert str(said.value).startswith(f"export {kind}: cannot say what the plan recomputes")
    assert str(said.value).endswith(words)
    assert "\n" not in str(said.value)


def test_an_end_that_a_tool_has_elsewhere_is_refused_with_its_price() -> None:
    instance = layer_row(modes={"keep": (30, 9)})
    graph = instance.graph
    mask = graph.ops[0].model_copy(update={"name": "mask"})
    edge = Edge(producer="mask", consumer="layer5", bytes=30)
    graph = Graph(name="net", ops=(mask, *graph.ops), edges=(*graph.edges, edge))
    plan = plan_of([3, 3], 1, 1, lambda s, at: "keep")
    assert plan.stage is not None
    plan = Plan(
        (plan.placement[-1], *plan.placement),
        stage=(1, *plan.stage),
        tensor=plan.tensor,
        mode=("keep", *(plan.mode or ())),
    )
    # mask with layer5: 4 * (90 + 8 + 8) + 8 = 432 in stage 1; with the embedding each stage pays
    # 2 * 4 * 30 more for its edge: 432 + 240 in stage 0
    with pytest.raises(InputError, match=r"nothing recomputed, \+55.6 %$"):
        export_plan("megatron", instance.with_graph(graph), plan, HybridPipeline(microbatches=4))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("degrees", "stages have d x t of 1 x 1, 2 x 1.*--degrees one"),
        ("names", "layer.. do not run in the order of their numbers"),
        ("order", "do not go through the stages in their order"),
        ("broken", "the plan breaks a rule: memory"),
    ],
)
def test_other_plans_are_refused_in_one_line(change: str, words: str) -> None:
    plan = plan_of([3, 3], 1, 1, lambda s, at: "keep")
    assert plan.stage is not None
    rules, instance = HybridPipeline(microbatches=4, degrees="free"), layer_row()
    if change == "degrees":
        on = tuple((1, 2) if s else (0,) for s in plan.stage)
        plan = replace(plan, placement=on)
    elif change == "names":
        names = [op.name for op in instance.graph.ops]
        names[1], names[6] = names[6], names[1]
        ops = [
            op.model_copy(update={"name": name})
            for op, name in zip(instance.graph.ops, names, strict=True)
        ]
        edges = [Edge(producer=a, consumer=b, bytes=1) for a, b in pairwise(names)]
        instance = instance.with_graph(Graph(name="net", ops=tuple(ops), edges=tuple(edges)))
    elif change == "order":  # the first three layers in the last stage
        instance = instance.with_graph(instance.graph.model_copy(update={"edges": ()}))
        swapped = (0, 1, 1, 1, 0, 0, 0, 1)
        plan = replace(plan, placement=tuple((s,) for s in swapped), stage=swapped)
    else:
        instance = layer_row(memory=20)
    with pytest.raises(InputError, match=words) as said:
        export_plan("megatron", instance, plan, rules)
    assert "\n" not in str(said.value)


def test_other_formats_and_models_without_layers_are_refused_before_a_plan_is_looked_for() -> None:
    rules = HybridPipeline(microbatches=4)
    for kind in ("device_map", "csv", "pipelining"):
        with pytest.raises(InputError, match="export megatron, torchtitan, vllm, or write"):
            check_export(kind, layer_row(), rules)
    ops = [op.model_copy(update={"name": f"{op.name}x"}) for op in layer_row().graph.ops]
    nameless = layer_row().with_graph(Graph(name="net", ops=tuple(ops)))
    with pytest.raises(InputError, match="no numbered layers"):
        check_export("megatron", nameless, rules)
    check_export("megatron", layer_row(), rules)
