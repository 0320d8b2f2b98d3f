"""Tables of hybrid plans: proven rows, even plans, and what they say to wrong names."""

from __future__ import annotations

import pytest
from draws.tiny import SHARED, needs_inputs

from placegap.experiments.research.pages import doc_rows
from placegap.experiments.research.tables.bubble import HEADS, row
from placegap.experiments.research.tables.hybrid import (
    FILLED,
    FILLED_HEADS,
    PUBLISHED,
    PUBLISHED_HEADS,
    TRAINED,
    TRAINED_HEADS,
    Degrees,
    even_plan,
    filled_rows,
    measured_rows,
    published_rows,
    trained_rows,
)
from placegap.instances import HybridPipeline, Instance, evaluate
from placegap.instances.corpus.layer_chains import chain_with_modes
from placegap.instances.costing.layer_modes import ModelledOn
from placegap.instances.files.cluster_file import load_cluster

PIPER = SHARED / "instances" / "piper"
needs_piper = needs_inputs("piper", "it holds the inputs of github.com/msr-fiddle/piper")


def of(cell: str) -> float:
    return float(cell.removesuffix(" %"))


def without_time(row: dict[str, str]) -> dict[str, str]:
    return {head: cell for head, cell in row.items() if head != "CPU s"}


def on_page(first: str, number: int) -> dict[str, str]:
    """A row of docs/hybrid.md, by the head of its first column."""
    return without_time(doc_rows("hybrid.md", first)[number])


def test_a_published_run_is_beside_the_optimum() -> None:
    (row,) = published_rows(PUBLISHED[1:2])
    found = dict(zip(PUBLISHED_HEADS, row, strict=True))
    assert without_time(found) == on_page("model", 1)
    assert (found["model"], found["devices"]) == ("175B", "64")
    # what fills a pipeline is a part of both plans, so cuts differ less where it counts
    assert 0 <= of(found["filled and drained, above"]) <= of(found["full pipeline, above"])
    assert of(found["full pipeline, above"]) <= of(found["full, above any mode"]) < 10
    assert abs(of(found["predicted"])) < 10
    assert of(found["any mode gains"]) > 0


def test_trained_models_are_proven_or_do_not_fit() -> None:
    first, mixtral = trained_rows([TRAINED[0], TRAINED[3]])
    found = dict(zip(TRAINED_HEADS, first, strict=True))
    assert without_time(found) == on_page("model", len(PUBLISHED))
    assert (found["model"], found["H100"]) == ("llama-8b", "8")
    assert of(found["free degrees gain"]) >= 0
    # 47e9 weights of 18 bytes are 845 GB, and eight devices hold 640
    assert mixtral[3] == "none fits, proven"


def test_what_fills_and_drains_is_proven_and_dearer_than_a_full_pipeline() -> None:
    (row,) = filled_rows(FILLED[:1])
    found = dict(zip(FILLED_HEADS, row, strict=True))
    assert without_time(found) == on_page("model", len(PUBLISHED) + len(TRAINED))
    assert (found["model"], found["H100"]) == ("llama-8b", "8")
    # one stage of eight devices has nothing to fill, two of four have
    assert found["t, p, d"].split(", ")[1] == "1"
    assert found["to fill and drain"] == "0.0 %"
    assert of(found["best full pipeline: t, p, d"].split(": ")[1]) > 0


@pytest.mark.deep
@needs_inputs("measured", "it holds measured iterations of Megatron-LM")
def test_the_page_has_the_errors_and_choices_of_measured_runs() -> None:
    file = str(SHARED / "instances" / "measured" / "megatron-a100-iterations.csv")
    found = [
        (row[1], row[2], row[5], row[6], row[9])
        for row in measured_rows(["infiniband-100g", "none", file])
    ]
    # all 82 runs, and the three groups of one model
    assert found == [tuple(row.values())[1:] for row in doc_rows("hybrid.md", "runs")[:4]]


@needs_piper
def test_a_mode_for_each_layer_is_worth_it_where_filling_counts() -> None:
    found = dict(zip(HEADS, row(PIPER, 8, 32, 16), strict=True))
    assert found == doc_rows("pipeline-iteration.md", "devices")[0]
    assert found["gap"] == "0"
    assert of(found["full"]) < 0 < of(found["one mode"]) <= of(found["alpa"])
    assert abs(of(found["1f1b"])) < 0.1


def test_an_even_plan_counts_the_ends_where_that_makes_it_even() -> None:
    cluster = load_cluster("16x8xH100")
    on = ModelledOn.cluster(cluster)
    graph = chain_with_modes("llama-405b-train", on)
    instance = Instance(name="net", graph=graph, cluster=cluster)
    plan = even_plan(instance, Degrees(8, 16, 1), "keep")
    assert plan is not None
    assert plan.stage is not None
    # 126 layers and two ends in 16 stages of 8: one layer less in the first and the last
    layers = [s for op, s in zip(graph.ops, plan.stage, strict=True) if op.kind == "Layer"]
    assert [layers.count(s) for s in range(16)] == [7, *[8] * 14, 7]
    verdict = evaluate(instance, plan, HybridPipeline(microbatches=16))
    assert {violation.rule for violation in verdict.violations} <= {"memory"}
    assert even_plan(instance, Degrees(3, 16, 1), "keep") is None
