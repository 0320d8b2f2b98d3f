"""Placing: which semantics and methods, and what of several attempts is kept."""

from __future__ import annotations

import pytest

from placegap.experiments.running.placing import Attempt, choose_semantics, default_attempts, place
from placegap.experiments.running.rules import Rules
from placegap.experiments.running.sources import Source
from placegap.instances import (
    LatencySubgraphs,
    Makespan,
    MaxLoad,
    MaxLoadFwdBwd,
    Semantics,
    example,
)


def chosen(own: Semantics | None = None, method: str | None = None, **rules: str) -> str:
    return choose_semantics(Rules(**rules), own, method).label


def test_the_semantics_comes_from_options_then_the_file_then_the_method() -> None:
    link = Makespan(channels="link")
    overlap = MaxLoad(plans="chain", load="overlap")
    assert chosen() == "makespan port per_edge"
    assert chosen(own=link) == "makespan link per_edge"
    assert chosen(own=link, transfers="per_tensor") == "makespan link per_tensor"
    assert chosen(own=overlap) == "max_load chain overlap"
    assert chosen(own=overlap, objective="makespan") == "makespan port per_edge"
    assert chosen(own=overlap, method="throughput-ip") == "max_load any overlap"
    assert chosen(own=overlap, plans="convex") == "max_load convex overlap"
    assert chosen(method="ideal-dp") == "max_load chain add"
    assert chosen(load="overlap") == "max_load chain overlap"
    assert chosen(channels="free") == "makespan free per_edge"


def test_the_usual_objective_of_a_model_holds_where_nothing_says_another() -> None:
    def usual(method: str | None = None, **rules: str) -> str:
        rest = {"objective": "max_load", "memory": "peak"}
        return choose_semantics(Rules(**rules), None, method, None, rest).label

    assert usual() == "max_load chain add peak"
    assert usual(memory="sum") == "max_load chain add"
    assert usual(objective="makespan") == "makespan port per_edge peak"
    assert usual(objective="latency_subgraphs") == "latency_subgraphs 1"  # has no such rule
    assert usual(channels="link") == "makespan link per_edge peak"
    assert usual(method="heft") == "makespan port per_edge peak"  # heft does no max_load
    assert usual(method="m-topo").startswith("max_load")


@pytest.mark.parametrize(
    ("semantics", "quick"),
    [
        (Makespan(), "heft"), (MaxLoad(), "m-topo"), (MaxLoadFwdBwd(), "m-topo"),
        (LatencySubgraphs(), "m-topo"),
    ],
)  # fmt: skip
def test_the_default_is_auto_after_a_placer_that_takes_no_time(
    semantics: Semantics, quick: str
) -> None:
    attempts = default_attempts(Attempt(Source("vgg19"), semantics, ""))
    assert [attempt.method for attempt in attempts] == [quick, "auto"]


def test_if_a_later_attempt_crashes_the_plan_before_stands(
    fakes: list[str],
) -> None:
    # the fake takes a graph of this name for real
    graph = example().graph.model_copy(update={"name": "real"})
    real = example().model_copy(update={"graph": graph})
    base = Attempt(real, Makespan(), "fake", time_limit_s=5.0)
    attempts = [
        Attempt(**{**vars(base), "params": {"device": "0"}, "optional": True}),
        Attempt(**{**vars(base), "params": {"kind": "crash"}}),
    ]
    result, warnings = place(iter(attempts), fakes)
    assert result.value_ns == 43
    assert len(warnings) == 1
    assert "SIGKILL" in warnings[0]
    assert "this is the plan of fake" in warnings[0]
