"""Placing: which semantics and methods, and what of several attempts is kept."""

from pathlib import Path
from typing import Any

import pytest

import placegap
from placegap.experiments.running import placing
from placegap.experiments.running.placing import Attempt, Rules, choose_semantics, place
from placegap.instances import InputError, Instance, Makespan, MaxLoad, Plan, Semantics, example
from placegap.instances.files.document import parse_document
from placegap.instances.problem import DEFAULTS, FIELDS, OBJECTIVES, Objective, PlanClass
from placegap.instances.torch_models.fx_reader import FxProgram
from placegap.instances.torch_models.model import as_document
from placegap.instances.torch_models.options import ASSUMED, TraceOptions
from placegap.solvers import METHODS
from placegap.solvers.core.progress import Progress
from placegap.solvers.core.result import Bound


def chosen(own: Semantics | None = None, method: str | None = None, **rules: str) -> str:
    instance = example().model_copy(update={"semantics": own})
    return choose_semantics(Rules(**rules), instance, method).semantics.label


def test_the_semantics_comes_from_options_then_the_file_then_the_defaults() -> None:
    link = Makespan(channels="link")
    overlap = MaxLoad(plans="chain", load="overlap")
    assert chosen() == "makespan port per_edge"
    assert chosen(own=link) == "makespan link per_edge"
    assert chosen(own=link, transfers="per_tensor") == "makespan link per_tensor"
    assert chosen(own=overlap) == "max_load chain overlap"
    assert chosen(own=overlap, objective="makespan") == "makespan port per_edge"
    assert chosen(own=overlap, method="throughput-ip") == "max_load chain overlap"
    assert chosen(method="throughput-ip") == "max_load chain add"
    assert chosen(method="pesto") == "makespan link per_edge"  # it does no ports
    assert chosen(own=overlap, plans="convex") == "max_load convex overlap"
    assert chosen(method="ideal-dp") == "max_load chain add"
    assert chosen(load="overlap") == "max_load chain overlap"
    assert chosen(channels="free") == "makespan free per_edge"


@pytest.mark.parametrize("plans", ["any", "convex", "chain"])
def test_a_rule_that_the_file_states_stands_also_where_it_is_the_default_of_its_field(
    plans: PlanClass,
) -> None:
    # ideal-dp does chains alone, noncontiguous any plans alone; all others do what the file states
    own = MaxLoad(plans=plans, load="overlap")
    for method, done in ((None, plans), ("ideal-dp", "chain"), ("noncontiguous", "any")):
        found = choose_semantics(Rules(), example().model_copy(update={"semantics": own}), method)
        assert found.semantics == MaxLoad(plans=done, load="overlap")
        assert bool(found.note) == (done != plans), method
    assert chosen(own=own, load="add") == f"max_load {plans} add"
    assert chosen(own=MaxLoad(load="overlap")) == "max_load chain overlap"  # states no class
    assert chosen(own=own, objective="max_load_fwd_bwd") == "max_load_fwd_bwd chain add"


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


def traced_as(**options: Any) -> Instance:
    """The diamond as if it were traced with these options, converted and read again."""
    graph = example().graph
    program = FxProgram(
        [op.model_dump() for op in graph.ops], [edge.model_dump() for edge in graph.edges]
    )
    said = {ASSUMED: "batch 1"}
    document = as_document("hf:mine", TraceOptions(**options), program, 5, said=said)
    written = document.model_dump(mode="json", exclude_defaults=True)
    return parse_document({**written, "version": 1}, "mine.json").instance(example().cluster)


@pytest.mark.parametrize(
    ("options", "rules", "label", "note"),
    [
        (
            {"decode": True, "kv_tokens": 8},
            {},
            "makespan port per_edge peak",
            "the objective is makespan port per_edge peak, the time of one token, the default for"
            " decode steps; for the throughput of a full pipeline add --objective max_load",
        ),
        ({"decode": True, "kv_tokens": 8}, {"plans": "any"}, "max_load any add peak", ""),
        (
            {"prefill": 8},
            {},
            "max_load chain add peak",
            "the objective is max_load chain add peak, the default for traced models, as one pass"
            " gains little from more devices; for one pass add --objective makespan",
        ),
        ({"train": True}, {"memory": "sum"}, "max_load chain add", "the objective is max_load"),
    ],
)
def test_a_decode_step_is_placed_for_latency_and_what_streams_for_throughput(
    options: dict[str, Any], rules: dict[str, str], label: str, note: str
) -> None:
    found = choose_semantics(Rules(**rules), traced_as(**options), None)
    assert found.semantics.label == label
    assert found.note.startswith(note)
    assert bool(found.note) == bool(note)


SPLITS = {
    *("exo", "llama-cpp", "vllm-even", "sglang-even"),
    *("llama-fit", "ik-llama-fit", "halda", "parallax"),
}


def test_every_method_runs_on_a_file_of_chains_or_says_what_it_needs() -> None:
    chains = example().model_copy(update={"semantics": MaxLoad(plans="chain")})
    ran, refused = set(), {}
    for method in METHODS:
        try:
            found = placegap.solve(chains, method=method, time_limit_s=0.2)
        except InputError as error:
            refused[method] = str(error)
        else:
            ran.add(method)
            assert (found.result.semantics == chains.semantics) != bool(found.warnings), method
    assert "--param path=FILE" in refused.pop("expert")
    assert "memory is slack" in refused.pop("memory-knapsack")
    assert "no op has a cache" in refused.pop("most-tokens")
    assert "no two sections" in refused.pop("repeated-layers")
    of_rows = {name for name in METHODS if METHODS[name].objectives == ("serving_flow",)}
    assert of_rows
    for method in of_rows:
        assert "layers in a row" in refused.pop(method)
    for method in SPLITS & refused.keys():
        assert "its plans are not chain" in refused.pop(method)
    for method, line in refused.items():  # not installed
        assert line == f"{method} {METHODS[method].missing()}"
    # those, scotch, two that learn, two partitioners
    assert len(ran) >= len(METHODS) - len(of_rows) - 15
    assert {"etf", "noncontiguous", "latency", "stage-cuts"} <= ran


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_rule_of_another_objective_is_refused_and_the_objectives_that_have_it_are_named(
    objective: Objective,
) -> None:
    for name, default in DEFAULTS.items():
        if name not in FIELDS[objective]:
            given: dict[str, Any] = {"objective": objective, name: default or 1}
            with pytest.raises(InputError, match=f"not to {objective}") as refused:
                choose_semantics(Rules(**given), example(), None)
            has = [one for one in OBJECTIVES if name in FIELDS[one]]
            assert all(one in str(refused.value) for one in has)


def test_a_plan_to_start_from_brings_its_rules(tmp_path: Path) -> None:
    chains = example().model_copy(update={"semantics": MaxLoad(plans="chain")})
    start = tmp_path / "etf.json"
    placegap.solve(chains, method="etf").save(start)
    better = placegap.solve(chains, method="heft", start=start)
    assert better.result.semantics == Makespan()
    (note,) = better.warnings
    assert note == (
        "heft does not support the default max_load chain add; it runs under makespan port per_edge"
        " (--objective makespan)"
    )
    asked = placegap.solve(chains, objective="max_load", method="m-topo", start=start)
    assert asked.result.semantics.objective == "max_load"
    pair = tmp_path / "any.json"
    placegap.solve(chains, method="noncontiguous").save(pair)
    kept = placegap.solve(chains, start=pair)
    assert (kept.result.semantics.label, kept.warnings) == ("max_load any add", ())


def real() -> Instance:
    """The diamond under a name that the fake takes for real."""
    graph = example().graph.model_copy(update={"name": "real"})
    return example().model_copy(update={"graph": graph})


def test_a_worker_that_is_killed_costs_nothing_that_it_had_told(
    fakes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # all ops on one device take 43 ns, the optimum is 34, and paths, which count as well, prove 33
    monkeypatch.chdir(tmp_path)
    params = {"tells": True, "bound": 34, "dies": True}
    result, warnings = place(Attempt(real(), Makespan(), "fake", params, time_limit_s=1.0), fakes)
    assert (result.value_ns, result.bound_ns, result.bound_origin) == (43, 34, "fake")
    assert len(warnings) == 1
    assert "the result is what it had reported by then" in warnings[0]


def test_a_bound_that_was_told_and_then_refuted_by_a_plan_is_not_kept() -> None:
    attempt, plan = Attempt(real(), Makespan(), "heft"), Plan.on([0, 1, 0, 0])
    # under ports that plan takes 35 ns, and paths prove 33
    for bound_ns, kept in ((34, 34), (36, 33)):
        last = Progress(35, Bound(bound_ns, "x"), "x")
        found = placing._reported(attempt, last, [plan], "failed", 0.0)
        assert found is not None
        assert (found.value_ns, found.bound_ns) == (35, kept)
