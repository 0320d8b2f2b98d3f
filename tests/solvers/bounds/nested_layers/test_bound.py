"""Nested layers: never above an optimum, and exact where a chain leaves work beside it."""

from __future__ import annotations

import pytest
from draws.training_steps import mirrored_instance, nested_instance, training_step
from references.brute_force import MAKESPAN_SEMANTICS

from placegap.instances import Edge, Graph, Instance, Makespan, Op, load_corpus
from placegap.instances.structure.additive_memory import relax_memory
from placegap.instances.structure.intervals import choose_chain, intervals
from placegap.solvers import Task, solve
from placegap.solvers.bounds.nested_layers import labels, options
from placegap.solvers.bounds.nested_layers.bound import layers_bound
from placegap.solvers.bounds.nested_layers.layers import nested_layers
from placegap.solvers.bounds.work_windows import window_bound, work_windows
from placegap.solvers.brute_force import method as brute_force
from placegap.solvers.core.method import Params

SEMANTICS = Makespan()


def proven(instance: Instance, semantics: Makespan = SEMANTICS) -> int:
    relaxed, _ = relax_memory(instance, semantics)
    windows = work_windows(relaxed)
    assert windows is not None
    return layers_bound(relaxed, semantics, windows, 0)


@pytest.mark.parametrize(
    ("transfer_ns", "least_ns"),
    [
        # apart: 10 + t + 10 + 10 + t, and then 20 ns for what the first layer has left
        (0, 50),
        (3, 56),
        # together: all six ops one after the other
        (5, 60),
        (9, 60),
    ],
)
def test_two_layers_pay_for_two_transfers_or_for_the_work_left(
    transfer_ns: int, least_ns: int
) -> None:
    instance = training_step(2, transfer_ns)
    windows = work_windows(instance)
    assert windows is not None
    assert window_bound(windows) == 50  # the path f0, f1, loss, b1, b0, w0
    assert proven(instance) == least_ns
    found = solve(instance, SEMANTICS, "brute-force")
    assert found.value_ns == least_ns


def test_layers_are_met_forward_and_backward() -> None:
    instance = training_step(3, 1)
    chain = choose_chain(instance, intervals(instance))
    found = nested_layers(instance, chain, instance.arrays.time_ns)
    assert found is not None
    names = [instance.graph.ops[g].name for g in found.gates]
    assert names == ["f0", "f1", "f2", "loss", "b2", "b1", "b0", "w0"]
    assert [(list(x.forward), list(x.backward)) for x in found.layers] == [
        ([0], [6, 7]), ([1], [5]), ([2], [3, 4]),
    ]  # fmt: skip
    last = dict(zip((op.name for op in instance.graph.ops), found.last_gate.tolist(), strict=True))
    assert [names[last[f"w{x}"]] for x in range(3)] == ["w0", "b1", "b2"]


def test_with_too_many_labels_what_is_proven_by_then_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = training_step(3, 3)
    whole = proven(instance)
    monkeypatch.setattr(labels, "MOST_CELLS", 6 * 7)  # six rows for two devices
    assert 0 < proven(instance) <= whole


def test_a_search_that_is_stopped_says_what_was_known() -> None:
    instance = training_step(2, 3)
    windows = work_windows(instance)
    assert windows is not None
    assert layers_bound(instance, SEMANTICS, windows, 17, lambda: True) == 17


def test_layers_of_which_no_group_is_placed_prove_what_paths_prove(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(options, "MOST_OPTIONS", 1)  # as with more devices than options
    assert proven(training_step(3, 3)) == 70  # 3 + 3 + 1 ops of 10 ns on the longest path


def test_of_a_row_that_does_not_come_back_it_says_nothing() -> None:
    ops = tuple(Op(name=f"op{i}", time_ns={"gpu": 1}) for i in range(6))
    edges = tuple(Edge(producer=f"op{i}", consumer=f"op{i + 1}", bytes=1) for i in range(5))
    row = Instance(
        name="row",
        graph=Graph(name="row", ops=ops, edges=edges),
        cluster=training_step(2, 1).cluster,
    )
    assert proven(row) == 0


def test_on_bert_it_is_within_two_percent_of_a_plan() -> None:
    instance = load_corpus("bert-base-train").instance()
    semantics = Makespan(memory="peak")
    found = solve(instance, semantics, "layer-paths")
    assert found.value_ns is not None
    # work windows prove 480.5 ms
    assert 0.98 * found.value_ns < proven(instance, semantics) <= found.value_ns


def is_sound(instance: Instance, seed: int) -> bool:
    """Whether it says something, and nothing wrong."""
    semantics = MAKESPAN_SEMANTICS[seed % len(MAKESPAN_SEMANTICS)]
    windows = work_windows(instance)
    if windows is None:
        return False
    bound_ns = layers_bound(instance, semantics, windows, 0)
    task = Task(instance, semantics)
    if not bound_ns or brute_force.applies(task, Params()) is not None:
        return False
    optimum_ns = brute_force.run(task, Params()).claim_ns
    assert optimum_ns is None or bound_ns <= optimum_ns, (seed, semantics.label)
    return optimum_ns is not None


def test_no_bound_is_above_an_optimum() -> None:
    said = sum(is_sound(nested_instance(seed), seed) for seed in range(60))
    said += sum(is_sound(mirrored_instance(seed), seed) for seed in range(30))
    assert said >= 40


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 4000, 500))
def test_no_bound_is_above_an_optimum_in_thousands_of_draws(first: int) -> None:
    seeds = range(first, first + 500)
    said = sum(is_sound(nested_instance(seed), seed) for seed in seeds)
    said += sum(is_sound(mirrored_instance(seed), seed) for seed in seeds)
    assert said >= 300


def is_below_the_optimum(seed: int) -> None:
    instance, semantics = nested_instance(seed, layers=3), MAKESPAN_SEMANTICS[seed % 8]
    found = solve(instance, semantics, "cp-sat", {"workers": 1}, time_limit_s=20)
    assert found.status != "optimal" or found.value_ns is None or (
        proven(instance, semantics) <= found.value_ns
    ), (seed, semantics.label)  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_three_layers_are_no_exception(seed: int) -> None:
    is_below_the_optimum(seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(12, 900))
def test_nor_in_hundreds_of_draws(seed: int) -> None:
    is_below_the_optimum(seed)
