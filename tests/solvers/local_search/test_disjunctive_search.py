"""Local search in the disjunctive graph: values are the referee's, plans fit and improve."""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from draws import draw
from draws.binding_memory import binding_instance
from draws.tiny import tiny_instance
from references.agreement import few_and_many
from references.brute_force import MAKESPAN_SEMANTICS
from references.placers import pressed_instance, with_room

from placegap.instances import Instance, Makespan, Op, Plan, evaluate, example
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.core.clock import now_s
from placegap.solvers.local_search import disjunctive_search, walk
from placegap.solvers.local_search.disjunctive_graph import AFTER, START, TAIL, fill
from placegap.solvers.local_search.disjunctive_search import Search, improve
from placegap.solvers.local_search.peak_memory import schedule_fits


def drawn(instance: Instance, seed: int) -> Plan:
    """A random device that runs each op, the same for colocated ones where one runs them all."""
    rng, arrays = np.random.default_rng(seed), instance.arrays
    runs = arrays.time_ns != UNSUPPORTED
    device = [
        rng.choice(np.flatnonzero(runs[arrays.group == arrays.group[i]].all(axis=0)))
        for i in range(instance.num_ops)
    ]
    first = [int(np.flatnonzero(arrays.group == g)[0]) for g in arrays.group]
    return Plan.on([int(device[i]) for i in first])


def check_state(search: Search, where: str) -> None:
    """The schedule is a plan that fits, of the value that the search says; starts and tails are
    what a new schedule of the same orders has."""
    instance, size = search.instance, search.machines.num_items
    value_ns = int(search.trace.value[0])
    search.trace.saved[0] = False  # the current schedule, not the best
    verdict = evaluate(instance, search.plan(), search.semantics)
    assert verdict.value_ns == value_ns, where
    assert verdict.feasible, where
    item = search.orders.item
    sequence, x = [], item[size, AFTER]
    while x != size + 1:
        sequence.append(x)
        x = item[x, AFTER]
    kept = item[sequence][:, [START, TAIL]].copy()
    fill(search.machines, search.orders, search.orders.device.copy(), np.array(sequence))
    assert (item[sequence][:, [START, TAIL]] == kept).all(), where


def walks(instances: list[Instance], most: int) -> int:
    """Walk under every semantics from random plans that fit; how many were looked at."""
    looked = 0
    for number, instance in enumerate(instances):
        for semantics in MAKESPAN_SEMANTICS:
            plan = drawn(instance, number)
            if not evaluate(instance, plan, semantics).feasible:
                continue
            search = Search(instance, semantics, [number])
            value_ns = search.load(plan)
            for part in range(most):
                search.walk(search.whole(), 0, 15, 15, 1.0 + 0.1 * value_ns)
                check_state(search, f"{instance.name} {semantics.label} part {part}")
                search.trace.value[1] = search.trace.value[0]
                looked += 1
    return looked


@few_and_many(3, 300)
def test_after_every_part_of_a_walk_starts_and_tails_are_those_of_its_orders(seeds: range) -> None:
    looked = 0
    for seed in seeds:
        drawn = [tiny_instance(seed, num_ops=9, num_devices=3), binding_instance(seed)]
        looked += walks(drawn, most=2 + seed % 18)
    assert looked > 5 * len(seeds)


@few_and_many(5, 300)
def test_a_window_says_the_makespan_of_the_whole_schedule(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A path behind the window alone is no part of its value: it is as long as it was before.
    monkeypatch.setattr(disjunctive_search, "WINDOW_OPS", 4)
    moved = 0
    for seed in seeds:
        instance = tiny_instance(seed, num_ops=14, num_devices=3)
        for semantics in MAKESPAN_SEMANTICS:
            plan, search = drawn(instance, seed), Search(instance, semantics, [seed])
            if not evaluate(instance, plan, semantics).feasible:
                continue
            search.load(plan)
            for window in search.windows():
                before_ns = evaluate(instance, search.plan(), semantics).value_ns
                search.enter(window)
                for _ in range(5):
                    search.walk(window, 0, 15, 15, 1.0 + 0.1 * before_ns)
                    value_ns, search.trace.saved[0] = int(search.trace.value[0]), False
                    true_ns = evaluate(instance, search.plan(), semantics).value_ns
                    assert value_ns <= true_ns <= max(value_ns, before_ns), semantics.label
                    moved += true_ns != before_ns
                search.leave(window)
                search.trace.value[0] = search.trace.value[1]
            search.refresh()
            check_state(search, f"{instance.name} {semantics.label}")
    assert moved > 50 * len(seeds)


def num_improved(instance: Instance, rules: Makespan, start: Plan, plans: Iterable[Plan]) -> int:
    """How many plans came; each fits and is better than the one before it."""
    last_ns, improved = evaluate(instance, start, rules).value_ns, 0
    for plan in plans:
        verdict = evaluate(instance, plan, rules)
        assert verdict.feasible, rules.label
        assert verdict.value_ns < last_ns
        last_ns = verdict.value_ns
        improved += 1
    return improved


def test_plans_that_come_are_better_and_better_and_fit() -> None:
    improved = 0
    for seed in range(8):
        instance, semantics = (
            tiny_instance(seed, num_ops=8),
            MAKESPAN_SEMANTICS[seed % len(MAKESPAN_SEMANTICS)],
        )
        start = drawn(instance, seed)
        plans = improve(instance, semantics, [start], steps=300, seed=seed)
        if evaluate(instance, start, semantics).feasible:
            improved += num_improved(instance, semantics, start, plans)
        else:
            assert list(plans) == []
    assert improved >= 3


def tight_draws(count: int) -> Iterator[tuple[Instance, Makespan, Search, Plan]]:
    """Random plans where memory counts at its peak, with a search on the floor that has them."""
    for seed in range(count):
        rules = MAKESPAN_SEMANTICS[seed % len(MAKESPAN_SEMANTICS)].model_copy(
            update={"memory": "peak"}
        )
        instance = with_room(pressed_instance(seed, num_ops=14), 2)
        floor, plain = relax_memory(instance, rules)
        plan = drawn(instance, seed)
        if evaluate(floor, plan, plain).feasible:
            search = Search(floor, plain, [seed], instance)
            search.load(plan)
            yield instance, rules, search, plan


def test_a_schedule_fits_at_its_peak_where_the_referee_says_so() -> None:
    seen = Counter[bool]()
    for instance, rules, search, plan in tight_draws(48):
        verdict = evaluate(instance, plan, rules)
        fits = schedule_fits(search.machines, search.orders, search.peak)
        assert fits == verdict.feasible, rules.label
        seen[fits] += 1
    assert min(seen[True], seen[False]) >= 5


def test_from_a_plan_that_fits_at_its_peak_all_plans_do() -> None:
    improved = 0
    for instance, rules, search, start in tight_draws(48):
        if evaluate(instance, start, rules).feasible:
            floor, plain = search.instance, search.semantics
            plans = improve(floor, plain, [start], steps=400, at_peak=instance)
            improved += num_improved(instance, rules, start, plans)
    assert improved >= 5


def test_ops_change_places_where_no_device_has_room_for_one_more() -> None:
    # each op takes 1 ns on its own device and 9 ns on the other, and fills the device that it is on
    ops = [
        Op(name=mine, time_ns={mine: 1, other: 9}, resident_bytes=5)
        for mine, other in (("here", "there"), ("there", "here"))
    ]
    devices = draw.devices(["here", "there"], lambda k: 5)
    instance = draw.instance_of("full", ops, (), devices, draw.links(2, lambda a, b: (10**9, 0)))
    values = [
        evaluate(instance, plan, Makespan()).value_ns
        for plan in improve(instance, Makespan(), [Plan.on([1, 0])], steps=400)
    ]
    assert values[-1:] == [1]


def test_no_exchange_touches_more_than_can_be_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "EXCHANGE_SHARE", 1.0)
    most = [_most_touched(seed) for seed in range(20)]
    monkeypatch.setattr(walk, "MOST_TOUCHED", 8)
    assert max(most) > 8 >= max(_most_touched(seed) for seed in range(20)) > 0


def _most_touched(seed: int) -> int:
    """The most edges that an exchange of ops touches where each device is full."""
    instance = tiny_instance(seed, num_ops=12, num_devices=2, density=0.4)
    index, n = instance.arrays.index, instance.num_ops
    search = Search(instance, Makespan(), [seed])
    search.load(drawn(instance, seed))
    rooms = search.rooms._replace(memory_bytes=search.rooms.held_bytes.copy())
    device, chosen, most = search.orders.device, search.trace.chosen, 0
    for v in range(n):
        to, chosen[0] = 1 - int(device[v]), v
        given = search.machines, search.orders, rooms, search.whole(), chosen
        alone = walk.admitted(*given, 0, 1, to)
        moved = walk.exchanged.py_func(*given, search.rng, alone, to)
        if moved > alone:
            ops = chosen[:moved]
            most = max(most, int((np.diff(index.succ_ptr) + np.diff(index.pred_ptr))[ops].sum()))
    return most


def test_windows_improve_what_a_whole_walk_would(monkeypatch: pytest.MonkeyPatch) -> None:
    # a window of 20 of 60 ops at a time; the rest waits, and follows
    monkeypatch.setattr(disjunctive_search, "LARGEST_WALK", 1)
    monkeypatch.setattr(disjunctive_search, "WINDOW_OPS", 20)
    for number, semantics in enumerate(MAKESPAN_SEMANTICS[::2]):
        instance = tiny_instance(number, num_ops=60, num_devices=3, density=0.1)
        start = drawn(instance, number)
        value_ns = evaluate(instance, start, semantics).value_ns
        plans = list(improve(instance, semantics, [start], steps=1500, seed=1))
        if evaluate(instance, start, semantics).feasible:
            last = evaluate(instance, plans[-1], semantics)
            assert last.feasible
            assert last.value_ns < 0.9 * value_ns


def test_a_deadline_that_is_over_brings_nothing_and_there_has_to_be_some_limit() -> None:
    start = Plan.on([0] * 4)
    assert list(improve(example(), Makespan(), [start], deadline=now_s())) == []
    with pytest.raises(ValueError, match="deadline"):
        next(improve(example(), Makespan(), [start]))
