"""Lines that people run, as their tools take them; and each exported line, read back."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from draws.lines import GIB, home_model, layer_model

from placegap.experiments.running.exporting import experts_line, line_class, write_exports
from placegap.instances import (
    InputError,
    Instance,
    Makespan,
    MaxLoad,
    Semantics,
    load_cluster,
    load_corpus,
)
from placegap.instances.exporters.read_lines import read_line
from placegap.instances.exporters.table import EXPORTERS, export_plan
from placegap.instances.problem.op_kernel import ExpertsKernel
from placegap.instances.referee.evaluate import evaluate, feasible_value
from placegap.solvers import run_method
from placegap.solvers.chains.best_line import best_line

KINDS = [kind for kind, exporter in EXPORTERS.items() if exporter.line and kind != "pipelining"]
LOADS = MaxLoad(plans="chain")


def corpus(name: str) -> Instance:
    return load_corpus(name).instance(load_cluster("celeritas-4xV100-pcie"))


MODELS: dict[str, tuple[Semantics, Callable[[], Instance]]] = {
    **{
        f"layers{seed}": (Makespan(memory="sum"), lambda seed=seed: layer_model(seed))
        for seed in (0, 1, 2, 3, 5, 6)
    },
    "llama-7b": (LOADS, lambda: corpus("llama-7b")),
    "bert-large": (LOADS, lambda: corpus("bert-large")),
    "gpt3-13b": (Makespan(), lambda: corpus("gpt3-13b")),
    "vit-large": (Makespan(), lambda: corpus("vit-large")),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_line_is_read_back_as_a_plan_of_its_value(name: str, tmp_path: Path) -> None:
    semantics, make = MODELS[name]
    instance, count = make(), 0
    for kind in KINDS:
        of = line_class(kind, semantics)
        assert of is not None
        best = best_line(instance, semantics, of)
        if best is None:
            continue
        text = export_plan(kind, instance, best.plan, semantics)
        used = list(dict.fromkeys(best.line.home))
        if kind in ("torchtitan", "megatron") and used != list(range(len(used))):
            continue  # a note says how to number the ranks
        if kind == "torchtitan":
            (tmp_path / "parts.json").write_text(text)
            text = str(tmp_path / "parts.json")
        if kind == "megatron":
            text = f'--pipeline-model-parallel-layout "{text.strip()}"'
        found = read_line(instance, text)
        assert found.kind == kind
        assert feasible_value(instance, found.plan, semantics) == best.value_ns, text
        count += 1
    assert count


@pytest.mark.parametrize(
    ("text", "home"),
    [
        # an embedding, four layers and the output; of the last two 0.75 * 2 rounds up to one each
        ("llama-server -m x.gguf -ngl 2 -ts 1,1 -c 512", "hhhh01"),
        # of five slots those at 0, 0.2, 0.4, 0.6 of all are below three quarters
        ("-ngl 99 -ts 3,1", "h00001"),
        ("--n-gpu-layers 4 -ts 1/1 --device CUDA1,CUDA0", "hh1100"),
        ("-ngl 5 -sm none -mg 1", "h11111"),
        ("-ngl 5", "h00011"),  # by memory, which is equal
        ("-ngl 0", "hhhhhh"),
        ("num_gpu 3 # CUDA_VISIBLE_DEVICES=1", "hhh111"),
        # 1 GiB for each of six; two in 2.5 GiB
        ("-gs 2.5,9", "001111"),
        ("VLLM_PP_LAYER_PARTITION=1,3 vllm serve x", "001111"),
        ("vllm serve x -pp 2", "000111"),
        ("CUDA_VISIBLE_DEVICES=1,0 SGLANG_PP_LAYER_PARTITION=3,1", "111100"),
        ('--pipeline-model-parallel-layout "Et*3|(t)*1,L"', "000011"),
    ],
)
def test_a_line_is_read_as_its_tool_takes_it(text: str, home: str) -> None:
    plan = read_line(home_model(gpus=2), text).plan
    assert "".join("01h"[k] for k in plan.devices.tolist()) == home


@pytest.mark.parametrize(
    ("text", "away"),
    [
        ("-ngl 5 --n-cpu-moe 2", "hh00"),
        ("-ngl 5 --cpu-moe", "hhhh"),
        ("-ngl 5 -ot 'blk\\.(1|3)\\.ffn_.*_exps\\.=CPU'", "0h0h"),
        ("-ngl 5 -ot 'blk.0.ffn_.*_exps=CUDA0,exps=CPU'", "0hhh"),
    ],
)
def test_experts_are_where_the_first_pattern_that_matches_has_them(text: str, away: str) -> None:
    instance = home_model(experts=True)
    place = read_line(instance, text).plan.devices.tolist()
    experts = [k for op, k in zip(instance.graph.ops, place, strict=True) if "experts" in op.name]
    assert "".join("0h"[k] for k in experts) == away


def test_maps_and_parts_are_files(tmp_path: Path) -> None:
    path, instance = tmp_path / "map.json", home_model(gpus=2)
    names = ["embed", *(f"layers.{n}" for n in range(4)), "head"]
    path.write_text(json.dumps(dict(zip(names, [1, 1, 1, "cpu", 0, 0], strict=True))))
    found = read_line(instance, str(path))
    assert found.plan.devices.tolist() == [1, 1, 1, 2, 0, 0]
    # layer 2 runs on the first card of the map, in 1 us
    assert found.instance.arrays.time_ns[3].tolist() == [1000, 1000, 1000]
    path.write_text(
        json.dumps([["embed", "layers.0", "layers.1"], ["layers.2", "layers.3", "head"]])
    )
    assert read_line(instance, str(path)).plan.devices.tolist() == [0, 0, 0, 1, 1, 1]


def sparse(rest_bytes: int) -> Instance:
    """`home_model` whose layers have four experts, of 1 GiB together; other ops hold so much."""
    instance = home_model(experts=True)
    sizes = {"tokens": 1, "hidden": 8, "inner": 8, "chosen": 2, "experts": 4, "dtype": "float16"}
    ops = tuple(
        op.model_copy(update={"parameter_bytes": GIB, "kernel": ExpertsKernel(**sizes)})
        if "experts" in op.name
        else op.model_copy(update={"resident_bytes": rest_bytes})
        for op in instance.graph.ops
    )
    return instance.with_graph(instance.graph.model_copy(update={"ops": ops}))


def test_experts_of_a_layer_run_side_by_side_on_card_and_host() -> None:
    # a card runs 3 of 4 experts in 0.75 us, and the host the other one, of 3 us, in as much
    found = read_line(sparse(0), "python -m sglang.launch_server --kt-num-gpu-experts 3")
    assert found.kind == "ktransformers"
    assert feasible_value(found.instance, found.plan, Makespan()) == 2000 + 4 * (1000 + 750)
    held = evaluate(found.instance, found.plan, Makespan()).uses
    assert [use.memory_bytes for use in held] == [4 * GIB * 3 // 4, 4 * GIB // 4]
    # with all of them on one side there is no other part
    for number, layer_ns in ((0, 3000), (4, 1000)):
        found = read_line(sparse(0), f"--kt-num-gpu-experts {number}")
        assert found.instance.num_ops == 10
        assert feasible_value(found.instance, found.plan, Makespan()) == 2000 + 4 * (
            1000 + layer_ns
        )


@pytest.mark.parametrize(
    ("rest_bytes", "number"),
    [(0, 3), (GIB * 2 // 3, 2), (GIB, 0)],  # 6 GiB less six others of so much
)
def test_ktransformers_gets_the_best_number_that_fits(
    rest_bytes: int, number: int, tmp_path: Path
) -> None:
    instance, path = sparse(rest_bytes), tmp_path / "kt.txt"
    result = run_method(sparse(0), Makespan(), "heft")
    _, (said,) = write_exports(instance, result, {"ktransformers": path}, "m", {})
    assert path.read_text() == f"--kt-num-gpu-experts {number}\n"
    tried = [read_line(instance, f"--kt-num-gpu-experts {n}") for n in range(5)]
    values = [feasible_value(each.instance, each.plan, Makespan()) for each in tried]
    assert said.value_ns == min(value for value in values if value is not None)


def test_under_max_load_all_experts_on_the_card_may_be_best_though_one_more_is_worse() -> None:
    # each tensor to the host and back takes 1 us of a load; with all four experts none is sent
    slow = sparse(0).graph
    edges = tuple(edge.model_copy(update={"bytes": 1000}) for edge in slow.edges)
    instance = sparse(0).with_graph(slow.model_copy(update={"edges": edges}))
    rules = MaxLoad(plans="any", memory="sum")
    tried = [read_line(instance, f"--kt-num-gpu-experts {n}") for n in range(5)]
    values = [feasible_value(each.instance, each.plan, rules) for each in tried]
    assert values[4] == 10_000  # an embedding, four layers of two ops and a head, of 1 us each
    assert experts_line(instance, rules)[2].value_ns == min(value or 0 for value in values)


def test_ktransformers_is_refused_where_the_rest_exceeds_the_card() -> None:
    with pytest.raises(InputError, match="number of experts"):
        experts_line(sparse(2 * GIB), Makespan())
