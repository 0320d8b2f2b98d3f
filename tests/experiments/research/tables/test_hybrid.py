"""Tables of hybrid plans: rows are proven, and those that the data keep."""

import pytest
from draws.tiny import SHARED, needs_inputs

from placegap.experiments.research.pages import data_rows
from placegap.experiments.research.tables.hybrid import (
    PUBLISHED,
    PUBLISHED_HEADS,
    Degrees,
    even_plan,
    measured_rows,
    published_rows,
)
from placegap.instances import HybridPipeline, Instance, evaluate
from placegap.instances.corpus.layer_chains import chain_with_modes
from placegap.instances.costing.layer_modes import ModelledOn
from placegap.instances.files.cluster_file import load_cluster


def of(cell: str) -> float:
    return float(cell.removesuffix(" %"))


def without_time(row: dict[str, str]) -> dict[str, str]:
    return {head: cell for head, cell in row.items() if head != "CPU s"}


def test_a_published_run_is_beside_the_optimum() -> None:
    (row,) = published_rows(PUBLISHED[1:2])
    found = dict(zip(PUBLISHED_HEADS, row, strict=True))
    assert without_time(found) == without_time(data_rows("hybrid-published")[1])
    assert (found["model"], found["devices"]) == ("175B", "64")
    # what fills a pipeline is a part of both plans, so cuts differ less where it counts
    assert 0 <= of(found["filled and drained, above"]) <= of(found["full pipeline, above"])
    assert of(found["full pipeline, above"]) <= of(found["full, above any mode"]) < 10
    assert abs(of(found["predicted"])) < 10
    assert of(found["any mode gains"]) > 0


@pytest.mark.deep
@needs_inputs("measured", "it holds measured iterations of Megatron-LM")
def test_the_page_has_the_errors_and_choices_of_measured_runs() -> None:
    file = str(SHARED / "instances" / "measured" / "megatron-a100-iterations.csv")
    found = [row[1:] for row in measured_rows(["infiniband-100g", "none", file])]
    # all 82 runs, and the three groups of one model
    assert found == [tuple(row.values())[1:] for row in data_rows("hybrid-measured")[:4]]


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
