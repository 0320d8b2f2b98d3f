"""Placing: which semantics and methods, and what of several attempts is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from placegap.experiments.running import placing
from placegap.experiments.running.placing import Attempt, choose_semantics, judged_plan, place
from placegap.experiments.running.rules import Rules
from placegap.instances import (
    Instance,
    Makespan,
    MaxLoad,
    Plan,
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
        return chosen(MaxLoad(memory="peak"), method, **rules)

    assert usual() == "max_load chain add peak"
    assert usual(memory="sum") == "max_load chain add"
    assert usual(objective="makespan") == "makespan port per_edge peak"
    assert usual(objective="latency_subgraphs") == "latency_subgraphs 1"  # has no such rule
    assert usual(channels="link") == "makespan link per_edge peak"
    assert usual(schedule="gpipe") == "pipeline_iteration gpipe m=8 overlap peak"
    assert usual(method="heft") == "makespan port per_edge peak"  # heft does no max_load
    assert usual(method="m-topo").startswith("max_load")


def real() -> Instance:
    """The diamond under a name that the fake takes for real."""
    graph = example().graph.model_copy(update={"name": "real"})
    return example().model_copy(update={"graph": graph})


@pytest.mark.parametrize("ending", [{"dies": True}, {"seconds": 60}])
def test_a_worker_that_is_killed_costs_nothing_that_it_had_told(
    fakes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: dict[str, object]
) -> None:
    # by a signal, or at the hard limit; all ops on one device take 43 ns, the optimum is 34, and
    # paths, which count as well, prove 33
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(placing, "GRACE_S", 1.0)
    params = {"tells": True, "bound": 34, **ending}
    result, warnings = place(Attempt(real(), Makespan(), "fake", params, time_limit_s=1.0), fakes)
    assert (result.value_ns, result.bound_ns, result.bound_origin) == (43, 34, "fake")
    assert len(warnings) == 1
    assert "what it had told before stands" in warnings[0]


def test_a_start_stands_if_the_method_crashes(fakes: list[str]) -> None:
    start = judged_plan(real(), Makespan(), Plan.on([0] * 4))
    attempt = Attempt(real(), Makespan(), "fake", {"kind": "crash"}, time_limit_s=5.0)
    result, warnings = place(attempt, fakes, start=start)
    assert result.value_ns == 43
    assert len(warnings) == 1
    assert "SIGKILL" in warnings[0]
