"""One of d pipelines: its work is a share of hybrid_pipeline, and filling and draining count."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from draws.hybrid import LAYERS, layer_row

from placegap.experiments.cli import main
from placegap.instances import HybridPipeline, Mode, Plan, evaluate
from placegap.instances.files.document import Document, save_document
from placegap.instances.transforms.one_pipeline import one_pipeline
from placegap.solvers import run_method


def hybrid_plan(cuts: list[int], d: int, t: int, mode: str) -> Plan:
    """The row of layers cut before these ops."""
    ends = [0, *cuts, LAYERS + 2]
    stage = [s for s, (a, b) in enumerate(pairwise(ends)) for _ in range(b - a)]
    on = tuple(tuple(range(s * d * t, (s + 1) * d * t)) for s in stage)
    modes = ("keep", *[mode] * LAYERS, "keep")
    return Plan(on, stage=tuple(stage), tensor=(t,) * len(ends[1:]), mode=modes)


def pipeline_plan(plan: Plan) -> Plan:
    """A hybrid plan as one of one of its pipelines: forward and backward op of a layer together."""
    assert plan.stage is not None
    stage = tuple(s for own in plan.stage for s in (own, own))
    return Plan(tuple((s,) for s in stage), stage=stage)


@pytest.mark.parametrize(
    ("d", "t", "mode", "cuts"),
    [(1, 1, "keep", [2, 5]), (2, 2, "selective", [3]), (1, 2, "keep", [])],
)
def test_a_pipeline_works_as_long_as_hybrid_pipeline_says_and_fills_and_drains(
    d: int, t: int, mode: str, cuts: list[int]
) -> None:
    instance, rules = layer_row(), HybridPipeline(microbatches=64)
    plan = hybrid_plan(cuts, d, t, mode)
    full_ns = evaluate(instance, plan, rules).value_ns
    folded, semantics = one_pipeline(instance, rules, (d, t), mode)
    assert semantics.microbatches == 64 // d
    verdict = evaluate(folded, pipeline_plan(plan), semantics)
    assert verdict.feasible
    assert verdict.value_ns is not None
    assert full_ns is not None
    # sums of gradients are rounded up op by op and microbatch by microbatch
    rounded = semantics.microbatches * folded.num_ops // 2
    assert full_ns <= verdict.value_ns
    work = sum(use.compute_ns + use.in_ns + use.out_ns for use in verdict.uses)
    assert verdict.value_ns <= full_ns + rounded + 2 * work
    if not cuts:
        assert verdict.value_ns <= full_ns + rounded


def test_filling_and_draining_are_counted() -> None:
    # stages of 3 layers and an end: 30 + 60 + 8 .. a third of each op forward: 10 * 3 + 2 = 32,
    # backward 20 * 3 + 6 = 66; borders take 1 ns in each pass; four microbatches, 1f1b, two stages:
    # 4 * (33 + 67) in stage 0, which waits for forward and backward of stage 1 once
    instance, rules = layer_row(), HybridPipeline(microbatches=4)
    folded, semantics = one_pipeline(instance, rules, (1, 1), "keep")
    plan = hybrid_plan([4], 1, 1, "keep")
    verdict = evaluate(folded, pipeline_plan(plan), semantics)
    assert verdict.value_ns == 4 * 100 + 100
    assert evaluate(instance, plan, rules).value_ns == 4 * 98 + 2 * 4


@pytest.mark.parametrize("sharding", ["none", "gradients"])
def test_memory_is_that_of_hybrid_pipeline(sharding: Literal["none", "gradients"]) -> None:
    rules = HybridPipeline(microbatches=8, sharding=sharding)
    plan = hybrid_plan([2, 5], 2, 1, "keep")
    held = {use.memory_bytes for use in evaluate(layer_row(), plan, rules).uses if use.num_ops}
    folded, semantics = one_pipeline(layer_row(), rules, (2, 1), "keep")
    theirs = {use.memory_bytes for use in evaluate(folded, pipeline_plan(plan), semantics).uses}
    assert max(theirs - {0}) >= max(held)  # shares are rounded up op by op
    assert max(theirs - {0}) <= max(held) + LAYERS


def test_the_largest_workspace_leaves_the_memory() -> None:
    row = layer_row()
    ops = [
        op.model_copy(
            update={"modes": [mode.model_copy(update={"workspace_bytes": 7}) for mode in op.modes]}
        )
        for op in row.graph.ops
    ]
    wide = row.with_graph(row.graph.model_copy(update={"ops": ops}))
    folded, _ = one_pipeline(wide, HybridPipeline(), (1, 1), "keep")
    assert {device.memory_bytes for device in folded.cluster.devices} == {193}


def test_convert_writes_a_pipeline_that_place_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = Document.of(layer_row())
    rules = HybridPipeline(microbatches=32)
    save_document(document.model_copy(update={"semantics": rules}), tmp_path / "row.json")
    files = [str(tmp_path / name) for name in ("row.json", "one.json")]
    assert main(["convert", *files, "--pipeline", "2x2:keep"]) == 0
    content = json.loads(Path(files[1]).read_text())
    assert content["semantics"]["microbatches"] == 16
    assert len(content["cluster"]["devices"]) == 2
    folded, semantics = one_pipeline(layer_row(), rules, (2, 2), "keep")
    assert run_method(folded, semantics, "stage-cuts").status == "optimal"


def test_modes_of_one_layer_alone_follow() -> None:
    mode = Mode(name="odd", time_ns={"gpu": 9})
    instance = layer_row()
    ops = (instance.graph.ops[0].model_copy(update={"modes": (mode,)}), *instance.graph.ops[1:])
    instance = instance.with_graph(instance.graph.model_copy(update={"ops": ops}))
    folded, _ = one_pipeline(instance, HybridPipeline(), (1, 1), "keep")
    assert [op.time_ns["gpu"] for op in folded.graph.ops[:2]] == [3, 6]


@pytest.mark.parametrize(("microbatches", "mode"), [(8, "keep"), (16, "selective")])
def test_a_bubble_is_that_of_a_simulated_pipeline(microbatches: int, mode: str) -> None:
    instance = layer_row(memory=40, modes={mode: (3000, 9)})
    rules = HybridPipeline(microbatches=microbatches, bubble=True)
    result = run_method(instance, rules, "hybrid-cuts")
    assert result.plan is not None
    assert result.plan.tensor is not None
    assert result.value_ns is not None
    t, stages = result.plan.tensor[0], len(result.plan.tensor)
    d = len(result.plan.placement[0]) // t
    assert stages > 1
    folded, semantics = one_pipeline(instance, rules, (d, t), mode)
    plan = pipeline_plan(result.plan)
    filled = semantics.model_copy(update={"schedule": "gpipe"})
    # all forward, then all backward; each event of a layer or an edge is rounded up by itself
    simulated = evaluate(folded, plan, filled).value_ns
    assert simulated is not None
    events = (stages + semantics.microbatches) * 3 * (LAYERS + 2)
    assert 0 <= simulated - result.value_ns <= events
    # one forward, one backward takes no longer
    assert (evaluate(folded, plan, semantics).value_ns or 0) <= simulated
