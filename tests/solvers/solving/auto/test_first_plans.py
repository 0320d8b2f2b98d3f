"""auto asks every placer of the registry, so that it is never worse than the best of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import pytest
from draws.tiny import tiny_instance

from placegap.instances import Makespan, MaxLoad, Plan, Semantics, evaluate, example
from placegap.instances.problem.example import tight_example
from placegap.instances.problem.semantics import (
    LatencySubgraphs,
    MaxLoadFwdBwd,
    PipelineIteration,
)
from placegap.solvers import METHODS, Limits, Outcome, Task, solve
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import Params
from placegap.solvers.core.starts import cheapest_first, placers
from placegap.solvers.solving.auto import method as auto
from placegap.solvers.solving.auto import steps as auto_steps
from placegap.solvers.solving.auto.board import Board
from placegap.solvers.solving.auto.first_plans import Placed, first_plans, still_waiting
from placegap.solvers.solving.auto.steps import AutoStep, plans

ALL_SEMANTICS: tuple[Semantics, ...] = (
    Makespan(),
    Makespan(memory="peak"),
    MaxLoad(),
    MaxLoad(plans="chain"),
    MaxLoad(plans="convex", memory="peak"),
    MaxLoadFwdBwd(),
    LatencySubgraphs(),
    PipelineIteration(microbatches=2),
)


@pytest.mark.parametrize("semantics", ALL_SEMANTICS, ids=lambda semantics: semantics.label)
def test_the_value_is_the_best_one_whichever_placer_finds_it(
    monkeypatch: pytest.MonkeyPatch, semantics: Semantics
) -> None:
    # By turns one placer alone has a plan, and it is the best; nothing else looks for plans.
    instance = example()
    best = solve(instance, semantics, "brute-force").plan
    assert best is not None
    value_ns = evaluate(instance, best, semantics).value_ns
    names = [
        name
        for name, _ in cheapest_first(Task(instance, semantics))
        if semantics.objective in METHODS[name].objectives
    ]
    monkeypatch.setattr(auto_steps, "_able", lambda task, *steps, **given: iter(()))
    for winner in names:
        with monkeypatch.context() as patch:
            for name in names:
                plan = best if name == winner else None
                silent = replace(
                    METHODS[name], run=_saying(plan), applies=_always, missing=lambda: None
                )
                patch.setitem(METHODS._loaded, name, silent)
            found = solve(instance, semantics, "auto", {"workers": 1}, time_limit_s=60.0)
        assert found.value_ns == value_ns, winner


def test_once_a_plan_is_known_no_placer_is_asked_that_is_likely_to_take_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the costs of a huge graph: m-topo has a plan within the limit of 60 s, heft would have none
    likely = {"single-device": 1.0, "m-topo": 1.0, "heft": 61.0}
    monkeypatch.setattr(
        "placegap.solvers.solving.auto.first_plans.cheapest_first",
        lambda task: tuple(likely.items()),
    )
    monkeypatch.setattr(
        "placegap.solvers.solving.auto.first_plans.placers", lambda task: tuple(likely)
    )
    task = Task(example(), Makespan(), Limits(60.0))
    assert [placed.name for placed in first_plans(task, Clock(0.0))] == ["single-device", "m-topo"]
    for name in ("single-device", "m-topo"):
        silent = replace(METHODS[name], run=_saying(None))
        monkeypatch.setitem(METHODS._loaded, name, silent)
    assert [placed.name for placed in first_plans(task, Clock(0.0))][-1] == "heft"


def test_a_graph_too_large_to_be_copied_stays_in_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Task(tiny_instance(9, num_ops=30, num_devices=4, density=0.3), Makespan(), Limits(60.0))
    assert auto._head_start_s(task, Clock(60.0), 2) is not None
    monkeypatch.setattr(auto, "MOST_PARTS", auto.parts_of(task) - 1)
    assert auto._head_start_s(task, Clock(60.0), 2) is None
    found = solve(task.instance, Makespan(), "auto", {"workers": 2}, time_limit_s=2.0)
    assert found.value_ns is not None


def _saying(plan: Plan | None) -> Callable[[Task, Params], Outcome]:
    return lambda task, params: Outcome(plan)


def _always(task: Task, params: Params) -> None:
    return None


def test_placers_that_the_first_share_of_the_time_does_not_reach_are_asked_before_the_search() -> (
    None
):
    task = Task(example(), Makespan(), Limits(60.0))
    heard = list(first_plans(task, Clock(0.0)))
    assert [placed.name for placed in heard] == ["single-device", "m-topo", "heft"]
    waiting = still_waiting(task, heard)
    assert {*waiting} == {name for name, _ in cheapest_first(task)} - {*placers(task)[:3]}
    steps = [step.method for step in _until_search(task, waiting)]
    assert steps[:-1] == [name for name in waiting if METHODS[name].missing() is None]


def test_where_the_time_for_placers_is_over_they_come_after_the_first_search() -> None:
    task = Task(example(), Makespan(), Limits(0.0))
    looking = plans(task, 0, ["etf", "peft"])
    assert [next(looking).method for _ in range(5)] == [
        "chain-sides",
        "run-moves",
        "etf",
        "peft",
        "multilevel",
    ]


def test_whole_layers_move_first_and_later_walks_begin_anew() -> None:
    looking = plans(Task(tight_example(), Makespan(), Limits(0.0)), 0)
    first = [next(looking) for _ in range(3)]
    assert [step.method for step in first] == ["run-moves", "multilevel", "disjunctive-search"]
    again = next(step for step in looking if step.method == "run-moves")
    assert [dict(step.params).get("anew", False) for step in (first[0], again)] == [False, True]


def test_an_unlikely_proof_comes_after_placers_and_bounds_and_leaves_its_core_to_searches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auto_steps, "SMALL_CHOICES", 7)  # the example has four ops and four edges
    task = Task(example(), Makespan(), Limits(60.0, seed=3))
    board = Board(task=task, gap=0.0)

    def here(workers: int, *, is_alone: bool) -> list[AutoStep]:
        return list(islice(auto._steps_here(task, board, ("etf",), workers, is_alone=is_alone), 6))

    steps = here(2, is_alone=False)
    assert [step.method for step in steps] == [
        "bounds",
        "decomposition",
        "cp-sat",
        "bounds",
        "chain-sides",
        "run-moves",
    ]
    assert steps[1].params == {"workers": 2, "start": False, "anneal": False}
    assert 3 not in {step.seed for step in steps[4:]}  # the other process has that seed
    assert len(here(1, is_alone=False)) == 4  # one core: the other process searches
    alone = [step.method for step in here(1, is_alone=True)]
    assert alone == ["etf", "chain-sides", "bounds", "decomposition", "cp-sat", "bounds"]


def test_of_a_large_graph_there_is_one_search_and_it_has_all_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auto_steps, "LARGE_PARTS", 7)  # the example has four ops and four edges
    looking = plans(Task(example(), Makespan(), Limits(0.0)), 0, workers=3)
    steps = [next(looking) for _ in range(2)]
    assert [step.method for step in steps] == ["disjunctive-search"] * 2
    assert [step.params["workers"] for step in steps] == [3, 3]


def _until_search(task: Task, waiting: tuple[str, ...]) -> Iterator[AutoStep]:
    for step in plans(task, 0, waiting):
        yield step
        if not step.is_placer:
            return


def test_at_peak_memory_all_placers_have_one_run_before_any_has_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fits_in_the_end(
        task: Task, name: str, most_runs: int | None, faults: list[str] | None
    ) -> tuple[Plan | None, int | None]:
        return (Plan.on([0] * 4) if most_runs is None or name == "metis" else None), None

    monkeypatch.setattr("placegap.solvers.solving.auto.first_plans._plan_of", fits_in_the_end)
    task = Task(example(), Makespan(memory="peak"), Limits(60.0))
    said = [(placed.name, placed.is_last_word) for placed in first_plans(task, Clock(60.0))]
    usual, others = ["single-device", "m-topo", "heft"], placers(task)[3:]
    assert said == [
        *((name, False) for name in usual),
        ("single-device", True),  # somebody has to have a plan at once
        *((name, name == "metis") for name in others),
        *((name, True) for name in others if name != "metis"),
    ]
    waiting = still_waiting(task, [Placed(*row) for row in _rows(said)])
    assert waiting[-2:] == ("m-topo", "heft")


def _rows(said: list[tuple[str, bool]]) -> list[tuple[str, None, bool]]:
    return [(name, None, is_last) for name, is_last in said]
