"""The method `latency`: optima, valid bounds, and what it does when it is stopped."""

import pytest
from draws.latency.spines import spine_draw, spine_instance
from draws.latency.tiny import LATENCY_SEMANTICS, ONCE, TWICE, by_hand, optimum
from draws.tiny import SHARED, needs_dnn_partitioning
from references.agreement import keeps_sides, proves

from placegap.instances import Instance, Op, Semantics, example
from placegap.instances.importers.reader import load_model
from placegap.solvers import Result, run_method
from placegap.solvers.latency import latency

FEW: dict[str, object] = {"workers": 1, "moves": 1000}
every_q = pytest.mark.parametrize("semantics", LATENCY_SEMANTICS, ids=["once", "twice"])


def agrees(instance: Instance, semantics: Semantics) -> Result:
    result = run_method(instance, semantics, "latency", FEW)
    proves(result, optimum(instance, semantics), instance.name)
    assert "failed" not in result.details, result.message
    assert result.faults == ()
    return result


@every_q
def test_it_equals_brute_force(semantics: Semantics) -> None:
    results = [agrees(spine_draw(seed), semantics) for seed in range(12)]
    assert {"sections", "cp-sat"} <= {result.bound_origin for result in results}


def test_without_the_finish_bounds_hold_and_plans_are_feasible() -> None:
    for seed in range(100, 112):
        instance = spine_draw(seed)
        result = run_method(instance, ONCE, "latency", {**FEW, "finish": False})
        keeps_sides(result, optimum(instance, ONCE), instance.name)


def test_a_plan_is_found_where_no_placer_has_one() -> None:
    # two groups of 2 bytes that take turns, three bytes per device: each on its own one
    ops = [
        Op(name=x, time_ns={"gpu": 1}, resident_bytes=1, colocation="odd" if x in "ac" else "even")
        for x in "abcd"
    ]
    instance = by_hand(ops, room=3)
    assert agrees(instance, TWICE).value_ns == 2


def test_stopped_at_once_it_returns_its_start() -> None:
    result = run_method(example(), ONCE, "latency", FEW, time_limit_s=0.0)
    assert (result.status, result.value_ns) == ("feasible", 43)
    assert "the time limit of 0 s has passed" in result.message


@pytest.mark.parametrize(
    ("where", "error", "words"),
    [
        ("best_row", KeyboardInterrupt, "interrupted"),
        ("anneal_calls", KeyboardInterrupt, "interrupted"),
        ("anneal_calls", MemoryError, "out of memory"),
    ],
)
def test_interrupted_it_returns_what_it_has(
    where: str, error: type[BaseException], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(latency, where, stopped)
    instance = spine_instance(7, 30, 4, 1)
    result = run_method(instance, ONCE, "latency", FEW)
    assert (result.status, result.message) == ("feasible", words)
    assert result.bound_ns is not None
    assert result.value_ns is not None


@needs_dnn_partitioning
def test_rows_alone_prove_a_published_layer_graph() -> None:
    # BERT-24: what the greedy of Tarnawski et al. finds
    folder = SHARED / "instances/dnn-partitioning/latency-inputs/LayerGraphs"
    instance = load_model(folder / "bert24_inference.json").instance()
    for semantics in LATENCY_SEMANTICS:
        result = run_method(instance, semantics, "latency", {"finish": False})
        assert (result.status, result.value_ns) == ("optimal", 100_218_500)
        assert result.bound_origin == "sections"
