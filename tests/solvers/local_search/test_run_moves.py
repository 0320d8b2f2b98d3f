"""run-moves: no step breaks a rule, the best plan never gets worse, and the seed decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from features.makespan import anywhere
from features.makespan import instance as instance_of
from references.placers import pressed_instance, with_room

from placegap.instances import Makespan, Plan, evaluate
from placegap.solvers import Limits, Task, run_method
from placegap.solvers.local_search.list_schedules import WindowLists
from placegap.solvers.local_search.run_moves import RunMovesParams, _Search, line_of, run_moves

PORT = Makespan()


@pytest.mark.parametrize(("memory", "times"), [("sum", 1), ("peak", 3)])
def test_memory_is_never_broken_and_the_seed_decides(memory: str, times: int) -> None:
    semantics = PORT.model_copy(update={"memory": memory})
    fitting = 0
    for seed in range(3):
        instance = with_room(pressed_instance(seed, num_ops=30, num_devices=4), times)
        found, again = (
            run_method(instance, semantics, "run-moves", {"steps": 60}, seed=seed) for _ in range(2)
        )
        assert found.plan == again.plan
        if found.plan is not None:
            fitting += 1
            assert evaluate(instance, found.plan, semantics).feasible
    assert fitting >= 1


def test_full_devices_exchange_what_they_hold() -> None:
    # each device is full with two ops: from a, c | b, d no op and no border can move alone, and
    # a, b | c, d sends one tensor, of 1 ns, instead of three: 4 + 1 ns
    ops = [anywhere(name, 1, resident_bytes=1) for name in "abcd"]
    edges = [(a, b, 1) for a, b in pairwise("abcd")]
    instance = instance_of("row", ops, edges, memory_bytes=2)
    start = Plan.on([0, 1, 0, 1])
    found = run_method(instance, PORT, "run-moves", {"steps": 200}, incumbent=start)
    assert (evaluate(instance, start, PORT).value_ns, found.value_ns) == (7, 5)


def test_it_begins_with_plans_that_overfill_memory_and_finds_one_that_fits() -> None:
    semantics = PORT.model_copy(update={"memory": "peak"})
    quick = ("single-device", "m-topo", "heft", "m-etf", "memory-cuts", "celeritas")
    found = 0
    for seed, times in ((4, 2), (5, 1)):
        instance = with_room(pressed_instance(seed, num_ops=30, num_devices=3), times)
        assert all(run_method(instance, semantics, name).plan is None for name in quick)
        plan = run_method(instance, semantics, "run-moves", {"steps": 1000}).plan
        if plan is not None:
            assert evaluate(instance, plan, semantics).feasible
            found += 1
    assert found >= 1


def test_a_walk_that_never_fits_has_no_plan_and_says_so() -> None:
    instance = pressed_instance(1, num_ops=30, num_devices=3)
    semantics = PORT.model_copy(update={"memory": "peak"})
    outcome = run_moves(Task(instance, semantics), RunMovesParams(steps=50))
    assert (outcome.plan, outcome.message) == (None, "no plan that it tried fits into memory")
    assert outcome.details == {"moves": 50}


@pytest.mark.parametrize(("start", "begins"), [((0, 1, 0, 1), 1), ((0, 0, 0, 0), 2)])
def test_a_walk_begins_anew_unless_windows_shorten_the_known_plan(
    start: tuple[int, ...], begins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, begin = list[Plan](), _Search.begin

    def noted(search: _Search, plan: Plan) -> None:
        begun.append(plan)
        begin(search, plan)

    monkeypatch.setattr(_Search, "begin", noted)
    # a row of four ops of 1 ns and transfers of 5 ns: 4 ns on one device, 19 ns on two in turns
    edges = [(a, b, 5) for a, b in pairwise("abcd")]
    instance = instance_of("row", [anywhere(name, 1) for name in "abcd"], edges)
    task = Task(instance, PORT, incumbent=Plan.on(start))
    run_moves(task, RunMovesParams(steps=10, anew=True))
    assert len(begun) == begins
    assert begun[0] == task.incumbent


def test_parts_that_weigh_next_to_nothing_are_light() -> None:
    # two ops have all of the time; of the others with a thousandth of the mean each is light
    ops = [anywhere(name, 1_000 if name in "ad" else 1) for name in "abcdef"]
    instance = instance_of("row", ops, [(a, b, 5) for a, b in pairwise("abcdef")])
    line = line_of(instance, PORT)
    parts = np.split(line.part, line.part_ptr[1:-1])
    order = instance.arrays.group_order[np.concatenate(parts)]
    assert sorted(set(order.tolist())) == list(range(6))
    for number, part in enumerate(parts):
        has_time = bool({0, 3} & set(instance.arrays.group_order[part].tolist()))
        assert (number in line.heavy) == has_time


@pytest.mark.parametrize(("times_ns", "first"), [(range(10, 30), "roll"), ([10] * 20, "draw")])
def test_lists_roll_where_few_parts_are_equal(
    times_ns: Sequence[int], first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = list[str]()

    def begin(name: str) -> Callable[..., None]:
        def end(*_: object) -> None:
            began.append(name)
            raise KeyboardInterrupt

        return end

    for name in ("roll", "draw"):
        monkeypatch.setattr(WindowLists, name, begin(name))
    row = instance_of(
        "row", [anywhere(f"op{i}", ns) for i, ns in enumerate(times_ns)], [], devices=2
    )
    run_moves(Task(row, PORT, Limits(60.0)), RunMovesParams())
    assert began == [first]


def test_devices_that_are_all_new_are_tried_without_the_priorities_of_an_earlier_plan() -> None:
    # x feeds y on the other device. Where z is urgent x waits for it, and y ends at 10 + 1 + 1 + 10
    # ns; by longest ways x goes first, and all ends at 1 + 1 + 10.
    ops = [anywhere("x", 1), anywhere("y", 10), anywhere("z", 10)]
    search = _Search(instance_of("order", ops, [("x", "y", 1)], devices=2), PORT, None)
    search.begin(Plan.on([0, 0, 0]))  # 21 ns
    search.state.shift[2] = 100
    apart = np.array([0, 1, 0])
    assert not search.take_if_shorter(apart)
    assert search.take_if_shorter(apart, by_levels=True)
    assert search.state.value[0] == 12
