"""Nested layers: never above an optimum, and exact where a chain leaves work beside it.

Chains of nested layers: short sections, and none that a dearer tensor skips.
"""

import pytest
from draws import draw
from draws.training_steps import mirrored_instance, nested_instance, tight_instance, training_step
from references.brute_force import MAKESPAN_SEMANTICS

from placegap.instances import Edge, Instance, Makespan, Op, load_corpus
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.sections import Interval, choose_chain, intervals
from placegap.solvers import Task, brute_force, run_method
from placegap.solvers.bounds.labels import layers_bound as labels
from placegap.solvers.bounds.labels import nested_layers as chains
from placegap.solvers.bounds.labels.layers_bound import search_layers
from placegap.solvers.bounds.labels.nested_layers import (
    joined_where_cheap,
    layer_chains,
    nested_layers,
)
from placegap.solvers.bounds.work_windows import window_bound, work_windows
from placegap.solvers.core.method import Params

SEMANTICS = Makespan()


def proven(instance: Instance, semantics: Makespan = SEMANTICS) -> int:
    relaxed, _ = relax_memory(instance, semantics)
    windows = work_windows(relaxed, semantics)
    found = search_layers(relaxed, semantics, windows, 0)
    return 0 if found is None else found.ns


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
    windows = work_windows(instance, SEMANTICS)
    assert window_bound(windows) == 50  # the path f0, f1, loss, b1, b0, w0
    assert proven(instance) == least_ns
    found = run_method(instance, SEMANTICS, "brute-force")
    assert found.value_ns == least_ns


def test_updates_that_follow_the_chain_on_one_device_count() -> None:
    # w0 takes 40 ns, and three updates of 10 ns follow it, or a transfer of 50 ns. Apart, f0 takes
    # 10 + 3, f1 and b1 20 + 3, b0 and w0 50, and the updates 30. Together, w1 comes before w0, or
    # ends after 120 ns.
    plain = training_step(2, 3)
    ops = [
        op.model_copy(update={"time_ns": {"gpu": 40}}) if op.name[0] == "w" else op
        for op in plain.graph.ops
    ]
    ops += [Op(name=f"update{x}", time_ns={"gpu": 10}) for x in range(3)]
    rows = ((0, 50), (50, 0))
    new = [Edge(producer="w0", consumer=f"update{x}", transfer_ns=rows) for x in range(3)]
    instance = draw.changed(plain, ops=ops, edges=[*plain.graph.edges, *new])
    assert window_bound(work_windows(instance, SEMANTICS)) == 110  # together, but for w1
    assert proven(instance) == 116
    found = run_method(instance, SEMANTICS, "cp-sat", {"workers": 1}, time_limit_s=20)
    assert (found.status, found.value_ns) == ("optimal", 116)


def full(layers: int, transfer_ns: int, room: tuple[int, int]) -> Instance:
    """The training step on a device that takes 10 ns for an op, and one that takes 20 ns.

    The forward op of each layer holds a byte.
    """
    plain = training_step(layers, transfer_ns)
    ops = plain.graph.ops
    times = [{"fast": op.time_ns["gpu"], "slow": 2 * op.time_ns["gpu"]} for op in ops]
    # kinds and times have to agree at any moment
    both = [{**op.time_ns, **time} for op, time in zip(ops, times, strict=True)]
    plain = draw.with_ops(
        plain, time_ns=both, resident_bytes=[int(op.name[0] == "f") for op in ops]
    )
    plain = draw.with_devices(plain, kind=("fast", "slow"), memory_bytes=room)
    return draw.with_ops(plain, time_ns=times)


@pytest.mark.parametrize(
    ("room", "least_ns"),
    [
        ((2, 2), 60),  # all on the fast device
        # f0 on the fast one, 3 ns, f1 and b1 on the slow one, 3 ns, b0 and w0
        ((1, 1), 10 + 3 + 20 + 20 + 3 + 10 + 10),
        ((0, 2), 120),
        ((1, 0), 0),  # nothing fits, and nothing is proven
    ],
)
def test_a_layer_that_does_not_fit_is_on_the_slow_device(
    room: tuple[int, int], least_ns: int
) -> None:
    instance = full(2, 3, room)
    assert proven(instance) == least_ns
    found = run_method(instance, SEMANTICS, "brute-force")
    assert found.value_ns == (least_ns or None)


def test_of_six_layers_two_are_on_the_fast_device() -> None:
    instance = full(6, 3, (2, 4))
    found = run_method(instance, SEMANTICS, "cp-sat", {"workers": 1}, time_limit_s=20)
    assert found.value_ns is not None
    # f0 and f1 on the fast device, and 12 ops of 20 ns after each other on the slow one
    assert (proven(instance), found.value_ns) == (263, 20 + 3 + 12 * 20)


def test_layers_are_met_forward_and_backward() -> None:
    instance = training_step(3, 1)
    chain = choose_chain(instance, intervals(instance))
    found = nested_layers(instance, chain, instance.arrays.time_ns)
    names = [instance.graph.ops[g].name for g in found.gates]
    assert names == ["f0", "f1", "f2", "loss", "b2", "b1", "b0", "w0"]
    assert [(list(x.forward), list(x.backward)) for x in found.layers] == [
        ([0], [6, 7]),
        ([1], [5]),
        ([2], [3, 4]),
    ]
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
    windows = work_windows(instance, SEMANTICS)
    found = search_layers(instance, SEMANTICS, windows, 17, lambda: True)
    assert found is None or found.ns == 17


def test_layers_of_which_no_group_is_placed_prove_what_paths_prove(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chains, "MOST_OPTIONS", 1)  # as with more devices than options
    assert proven(training_step(3, 3)) == 70  # 3 + 3 + 1 ops of 10 ns on the longest path


def test_an_embedding_that_is_the_head_too_leaves_the_other_layers() -> None:
    plain = training_step(5, 3)
    tied = draw.with_ops(
        plain,
        colocation=["layer0" if op.name == "loss" else op.colocation for op in plain.graph.ops],
    )
    assert window_bound(work_windows(tied, SEMANTICS)) == 110  # 11 ops of 10 ns on the longest path
    # the other layers on one device leave it their gradients: two transfers of 3 ns take less
    assert proven(tied) == 116
    found = run_method(tied, SEMANTICS, "cp-sat", {"workers": 1}, time_limit_s=20)
    assert (found.status, found.value_ns) == ("optimal", 122)


def test_of_a_row_that_does_not_come_back_it_says_nothing() -> None:
    assert proven(instance_of(6, [(i, i + 1, 1) for i in range(5)])) == 0


@pytest.mark.deep
def test_prices_of_bytes_say_what_four_full_devices_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MOST_CELLS", 100_000)  # the first thresholds
    instance = load_corpus("vit-large-train").instance()
    # work windows prove 1,415 ms, memory along a chain 1,801, and 2,165 is the best plan known
    assert 1_975_000_000 < proven(instance, Makespan(memory="peak")) < 2_228_000_000


def is_sound(instance: Instance, seed: int) -> bool:
    """Whether it says something, and nothing wrong."""
    semantics = MAKESPAN_SEMANTICS[seed % len(MAKESPAN_SEMANTICS)]
    if not instance.arrays.possible.any(axis=1).all():
        return False
    windows = work_windows(instance, semantics)
    found = None if windows is None else search_layers(instance, semantics, windows, 0)
    task = Task(instance, semantics)
    if not found or not found.ns or brute_force.applies(task, Params()) is not None:
        return False
    optimum_ns = brute_force.run(task, Params()).claim
    assert optimum_ns is None or found.ns <= optimum_ns, (seed, semantics.label)
    return optimum_ns is not None


def test_no_bound_is_above_an_optimum() -> None:
    said = sum(is_sound(nested_instance(seed), seed) for seed in range(12))
    said += sum(is_sound(mirrored_instance(seed), seed) for seed in range(6))
    said += sum(is_sound(tight_instance(seed), seed) for seed in range(25))  # 24: without groups
    assert said >= 10


@pytest.mark.parametrize("most", [1, 9])
def test_nor_where_few_groups_are_placed(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(chains, "MOST_OPTIONS", most)
    assert sum(is_sound(tight_instance(seed), seed) for seed in range(24)) >= 3


def test_nor_where_labels_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [training_step(6, 4), training_step(6, 2), training_step(8, 3)]
    exact = [proven(step) for step in steps]
    monkeypatch.setattr(labels, "MOST_LABELS", 2)
    for step, ns in zip(steps, exact, strict=True):
        assert window_bound(work_windows(step, SEMANTICS)) < proven(step) < ns
    assert sum(is_sound(nested_instance(seed), seed) for seed in range(12)) >= 3


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 4000, 500))
def test_no_bound_is_above_an_optimum_in_thousands_of_draws(first: int) -> None:
    seeds = range(first, first + 500)
    said = sum(is_sound(nested_instance(seed), seed) for seed in seeds)
    said += sum(is_sound(mirrored_instance(seed), seed) for seed in seeds)
    said += sum(is_sound(tight_instance(seed), seed) for seed in range(3 * first, 3 * first + 1500))
    assert said >= 700


def is_below_the_optimum(seed: int) -> None:
    instance, semantics = nested_instance(seed, layers=3), MAKESPAN_SEMANTICS[seed % 8]
    found = run_method(instance, semantics, "cp-sat", {"workers": 1}, time_limit_s=20)
    assert (
        found.status != "optimal"
        or found.value_ns is None
        or (proven(instance, semantics) <= found.value_ns)
    ), (seed, semantics.label)


@pytest.mark.parametrize(
    "seeds", [range(4), *(pytest.param(range(n, n + 50), marks=pytest.mark.deep) for n in (4, 54))]
)
def test_three_layers_are_no_exception(seeds: range) -> None:
    for seed in seeds:
        is_below_the_optimum(seed)


def instance_of(num_ops: int, edges: list[tuple[int, int, int]]) -> Instance:
    """Ops of 1 ns on two devices, and edges (producer, consumer, bytes) that take 1 ns per byte."""
    ops = [Op(name=str(i), time_ns={"gpu": 1}) for i in range(num_ops)]
    tensors = [Edge(producer=str(u), consumer=str(v), bytes=b) for u, v, b in edges]
    devices = draw.devices(["gpu"] * 2)
    return draw.instance_of("row", ops, tensors, devices, draw.fast_links(devices))


def row(skipping_bytes: int) -> Instance:
    """A row of five ops; the tensor from 2 to 3 is small, and one of 1 goes to 3 as well."""
    return instance_of(5, [(0, 1, 50), (1, 2, 50), (2, 3, 2), (1, 3, skipping_bytes), (3, 4, 50)])


def found(instance: Instance, candidates: list[Interval]) -> list[tuple[int, ...]]:
    chain = choose_chain(instance, candidates)
    return [part.ops for part in joined_where_cheap(instance, chain)]


def test_sections_that_a_dearer_tensor_skips_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # without an interval the chain has four edges; 2 ns would do to change devices at op 3
    apart = [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert found(row(50), []) == [(0, 1), (1, 2, 3), (3, 4)]
    # with the edge that skips them
    joined = joined_where_cheap(row(50), choose_chain(row(50), []))
    assert (joined[1].edges, joined[1].entry, joined[1].exit) == ((1, 2, 3), 1, 3)
    # where nothing is cheaper they stay apart, and so do many ops
    assert found(row(2), []) == apart
    monkeypatch.setattr(chains, "MOST_JOINED", 1)
    assert found(row(50), []) == apart


def test_short_sections_come_first_and_long_ones_where_these_are_no_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # two ways from 0 to 3 with an op each: one interval with two inner ops
    instance = instance_of(4, [(0, 1, 9), (0, 2, 9), (1, 3, 9), (2, 3, 9)])
    candidates = intervals(instance)
    assert [[part.ops for part in each] for each in layer_chains(instance, candidates)] == [
        [(0, 1, 2, 3)]
    ]
    monkeypatch.setattr(chains, "MOST_INNER", 1)
    assert [[part.ops for part in each] for each in layer_chains(instance, candidates)] == [
        [(0, 1), (1, 3)],
        [(0, 1, 2, 3)],
    ]
