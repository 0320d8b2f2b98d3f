"""What methods tell while they run, and callbacks that may end the search."""

import threading
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from draws.tiny import tiny_instance

import placegap
from placegap.instances import (
    InputError,
    LatencySubgraphs,
    Makespan,
    MaxLoad,
    Plan,
    Semantics,
    example,
)
from placegap.solvers import METHODS, run_method
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import (
    Progress,
    ProgressLog,
    StopSearch,
    has_listener,
    listening,
    report,
)
from placegap.solvers.core.registry import why_not
from placegap.solvers.core.result import Bound

MAKESPAN = Makespan()
CHAIN = MaxLoad(plans="chain")
ANY = MaxLoad(plans="any")
LATENCY = LatencySubgraphs()
ALONE = {"workers": 1}

REPORTERS = [
    ("decomposition", MAKESPAN, ALONE),
    ("cp-sat", MAKESPAN, ALONE),
    ("moirai", MAKESPAN, {}),
    ("annealing", MAKESPAN, {"moves": 500}),
    ("ideal-dp", CHAIN, {}),
    ("noncontiguous", ANY, ALONE),
    ("throughput-ip", ANY, {}),
    ("latency", LATENCY, {**ALONE, "moves": 500}),
    ("latency-ip", LATENCY, {}),
]


@pytest.mark.parametrize(("method", "semantics", "params"), REPORTERS)
def test_progress_brackets_the_optimum_and_only_gets_better(
    method: str, semantics: Semantics, params: dict[str, object]
) -> None:
    count = 0
    for seed in range(2):
        instance = tiny_instance(seed, num_ops=6)
        if why_not(METHODS[method], Task(instance, semantics), METHODS[method].params()):
            continue
        optimum = run_method(instance, semantics, "brute-force").value_ns
        reported: list[Progress] = []
        result = run_method(
            instance, semantics, method, params, time_limit_s=5, progress=reported.append
        )
        count += len(reported)
        for progress in reported:
            if progress.value is not None:
                assert progress.value >= optimum
                assert progress.by
            assert optimum is None or (progress.bound_value or 0) <= optimum
        for before, after in pairwise(reported):
            assert before != after
            assert before.value is None or (after.value or 0) <= before.value
            assert (before.bound_value or 0) <= (after.bound_value or 0)
        if reported and reported[-1].value is not None and result.value is not None:
            assert reported[-1].value >= result.value
    assert count > 0


def test_a_ledger_keeps_the_best_and_the_first_who_found_it() -> None:
    reported: list[Progress] = []
    log = ProgressLog(reported.append)
    for progress in (
        Progress(50, None, "heft"),
        Progress(50, Bound(30, "cp-sat"), "cp-sat"),
        Progress(60, Bound(20, "etf"), "etf"),
        Progress(40, None, "cp-sat"),
        Progress(None, Bound(41, "wrong"), "wrong"),
        Progress(None, Bound(40, "cp-sat"), "cp-sat"),
    ):
        log.enter(progress)
    assert reported == [
        Progress(50, None, "heft"),
        Progress(50, Bound(30, "cp-sat"), "heft"),
        Progress(40, Bound(30, "cp-sat"), "cp-sat"),
        Progress(40, Bound(40, "cp-sat"), "cp-sat"),
    ]


def test_what_is_said_of_other_instances_and_other_rules_is_not_heard() -> None:
    reported: list[Progress] = []
    diamond = example()
    with listening(diamond, MAKESPAN, reported.append):
        report(diamond, ANY, "m-topo", value=1)
        report(example(), MAKESPAN, "section", value=2)
        assert has_listener(diamond, MAKESPAN)
        assert not has_listener(example(), MAKESPAN)
    report(diamond, MAKESPAN, "late", value=3)
    assert reported == []


def test_a_listener_is_gone_after_a_method_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise InputError("no")

    diamond = example()
    broken = replace(METHODS["heft"], run=fail)
    monkeypatch.setitem(METHODS._loaded, "heft", broken)
    with pytest.raises(InputError):
        run_method(diamond, MAKESPAN, "heft", progress=print)
    assert not has_listener(diamond, MAKESPAN)


def test_an_incumbent_is_told_first() -> None:
    reported: list[Progress] = []
    # op 2 on the second device, the rest on the first: 35 ns (the example of `evaluate`)
    run_method(
        example(),
        MAKESPAN,
        "cp-sat",
        ALONE,
        incumbent=Plan.on([0, 1, 0, 0]),
        progress=reported.append,
    )
    assert reported[0] == Progress(35, None, "the start")


# -------------------------------------------------------------------------------------- callbacks


PORT = Makespan()


def test_callbacks_hear_of_each_better_plan_and_bound() -> None:
    values: list[int] = []
    bounds: list[tuple[int, str]] = []
    found = run_method(
        example(),
        PORT,
        "cp-sat",
        {"workers": 1},
        on_plan=lambda value_ns, plan: values.append(value_ns),
        on_bound=lambda bound_ns, by: bounds.append((bound_ns, by)),
    )
    assert values == sorted(values, reverse=True)
    assert bounds[0] == (33, "critical path")  # the doctest of `quick_bound`
    assert (values[-1], found.value_ns) == (34, 34)


@pytest.mark.parametrize("method", ["auto", "disjunctive-search"])
def test_a_callback_that_returns_false_ends_the_search(method: str) -> None:
    instance = tiny_instance(9, num_ops=30, num_devices=4, density=0.3)  # minutes from a proof
    found = run_method(
        instance, PORT, method, {"workers": 1}, time_limit_s=300, on_plan=lambda value, plan: False
    )
    assert found.value_ns is not None
    assert found.solve_s < 60


def test_a_callback_may_raise_what_ends_the_search_at_the_plan_that_it_starts_from() -> None:
    plans: list[Plan | None] = []

    def stop(value_ns: int, plan: Plan | None) -> None:
        plans.append(plan)
        raise StopSearch

    start = Plan.on([0] * 4)
    found = placegap.solve(example(), objective="makespan", start=start, on_plan=stop)
    assert found.plan == start
    assert len(plans) == 1
    assert isinstance(plans[0], Plan)


def test_a_callback_in_another_thread_leaves_the_main_thread_alone() -> None:
    def run() -> None:
        run_method(example(), PORT, "heft", on_plan=lambda value_ns, plan: False)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    time.sleep(0.05)
