"""The referee's clock, against a slow reading of its rule, and `check_schedule` against both."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from draws.tiny import tiny_instance
from references.brute_force import MAKESPAN_SEMANTICS, scattered_instance

from placegap.instances import (
    Instance,
    Makespan,
    Plan,
    PlanError,
    Schedule,
    Semantics,
    Transfer,
    check,
    evaluate,
    example,
    simulate,
)
from placegap.instances.referee.channels import channels_of
from placegap.instances.referee.evaluate import check_schedule

LABEL = {"ids": lambda semantics: semantics.label.replace(" ", "-")}
PORT = Makespan()

Item = tuple[Hashable, ...]
"""("op", i), or ("move", edge or tensor, destination)."""


class SlowSimulation:
    """The rule of the clock in dictionaries and sets, written from its description alone.

    At each instant: whatever ends now ends; then, in the order (-priority, topological position,
    destination), every item starts that waits for nothing and whose resources are all free. Items
    without duration end in a next round of the same instant.
    """

    def __init__(self, instance: Instance, plan: Plan, semantics: Semantics) -> None:
        self.instance, self.semantics = instance, semantics
        self.device = [devices[0] for devices in plan.placement]
        self.names = [op.name for op in instance.graph.ops]
        self.position = instance.graph.index.topological_position.tolist()
        self.duration: dict[Item, int] = {}
        self.holds: dict[Item, set[Hashable]] = {}
        self.waits: dict[Item, set[Item]] = {}
        self.key: dict[Item, tuple[int, int, int, int]] = {}
        self._add_ops()
        self._add_edges()
        self._add_orders(plan)

    def _transfer_ns(self, edge: int, a: int, b: int) -> int:
        arrays = self.instance.arrays
        tensor = self.instance.graph.index.tensor[edge]
        return int(arrays.transfer_ns[tensor, arrays.link_class[a, b]])

    def _level(self, i: int) -> int:
        rest = [
            self._level(j) + self._transfer_ns(e, self.device[i], self.device[j])
            for e, i2, j in self._edges()
            if i2 == i
        ]
        return self.duration["op", i] + max(rest, default=0)

    def _edges(self) -> Iterator[tuple[int, int, int]]:
        where = self.instance.graph.op_index
        for e, edge in enumerate(self.instance.graph.edges):
            yield e, where[edge.producer], where[edge.consumer]

    def _add_ops(self) -> None:
        for i, op in enumerate(self.instance.graph.ops):
            kind = self.instance.cluster.devices[self.device[i]].kind
            self.duration["op", i] = op.time_ns[kind]
            self.holds["op", i] = {("device", self.device[i])}
            self.waits["op", i] = set()
        for i, k in enumerate(self.device):
            self.key["op", i] = (-self._level(i), self.position[i], k, i)

    def _add_edges(self) -> None:
        n, k = self.instance.num_ops, self.instance.num_devices
        per_tensor = self.semantics.transfers == "per_tensor"
        tensor = self.instance.graph.index.tensor.tolist()
        for e, i, j in self._edges():
            a, b = self.device[i], self.device[j]
            if a == b:
                self.waits["op", j].add(("op", i))
                continue
            item: Item = ("move", tensor[e] if per_tensor else e, b)
            self.duration[item] = self._transfer_ns(e, a, b)
            channels = channels_of(self.semantics.channels, k, a, b)
            self.holds[item] = {("channel", c) for c in channels if c >= 0}
            self.waits[item] = {("op", i)}
            self.waits["op", j].add(item)
            before = self.key.get(item, (0, 0, 0, 0))[0]
            self.key[item] = (
                min(before, -self._level(j)),
                self.position[i],
                b,
                n + int(item[1]),  # type: ignore[call-overload]
            )

    def _add_orders(self, plan: Plan) -> None:
        sequences = [[("op", i) for i in order] for order in plan.device_order or () if order]
        for order in (plan.channel_order or {}).values():
            sequences.append([("move", *transfer) for transfer in order])
        for sequence in sequences:
            for before, after in itertools.pairwise(sequence):
                self.waits[after].add(before)

    def run(self) -> dict[Item, int] | None:
        """Start of every item; None if some wait for each other."""
        now, start, ended = 0, dict[Item, int](), set[Item]()
        while len(ended) < len(self.duration):
            ended |= {item for item in start if start[item] + self.duration[item] <= now}
            busy = set().union(*(self.holds[item] for item in start if item not in ended))
            ready = [i for i in self.duration if i not in start and self.waits[i] <= ended]
            started = []
            for item in sorted(ready, key=self.key.__getitem__):
                if not self.holds[item] & busy:
                    start[item] = now
                    busy |= self.holds[item]
                    started.append(item)
            if any(self.duration[item] == 0 for item in started):
                continue
            ends = [start[item] + self.duration[item] for item in start if item not in ended]
            if not ends:
                break
            now = min(ends)
        return start if len(ended) == len(self.duration) else None


def starts_of(schedule: Schedule) -> dict[Item, int]:
    table = schedule.transfers
    found: dict[Item, int] = {("op", i): t for i, t in enumerate(schedule.start_ns.tolist())}
    rows = zip(
        table.item.tolist(), table.destination.tolist(), table.start_ns.tolist(), strict=True
    )
    return found | {("move", item, to): t for item, to, t in rows}


def draws(number: int) -> Iterator[Instance]:
    """Instances with busy channels, equal devices, shared tensors, zero-time ops and transfers."""
    for seed in range(number):
        yield tiny_instance(seed, num_ops=7, num_devices=3, density=0.5)
        yield scattered_instance(seed, num_ops=8, num_devices=3, max_edges=12)


def random_placement(instance: Instance, rng: random.Random) -> Plan:
    times = instance.arrays.time_ns
    return Plan.on(rng.choice(np.flatnonzero(row >= 0).tolist()) for row in times)


def random_orders(instance: Instance, plan: Plan, semantics: Semantics, rng: random.Random) -> Plan:
    """Orders of all devices and channels, read off a random linear extension of the items."""
    slow = SlowSimulation(instance, plan, semantics)
    sequence: list[Item] = []
    while len(sequence) < len(slow.duration):
        ready = [i for i in slow.duration if i not in sequence and slow.waits[i] <= {*sequence}]
        sequence.append(rng.choice(ready))
    on_device: list[list[int]] = [[] for _ in range(instance.num_devices)]
    on_channel: dict[int, list[Transfer]] = {}
    for item in sequence:
        for what, number in sorted(slow.holds[item]):  # type: ignore[misc]
            if what == "device":
                on_device[number].append(item[1])  # type: ignore[arg-type]
            else:
                on_channel.setdefault(number, []).append(Transfer(*item[1:]))  # type: ignore[arg-type]
    return Plan(
        plan.placement,
        tuple(map(tuple, on_device)),
        {channel: tuple(order) for channel, order in on_channel.items()} or None,
    )


def some_orders(plan: Plan, rng: random.Random) -> Plan:
    """The same plan without about half of its orders."""
    assert plan.device_order is not None
    channels = {c: order for c, order in (plan.channel_order or {}).items() if rng.random() < 0.5}
    devices = tuple(order if rng.random() < 0.5 else None for order in plan.device_order)
    return Plan(plan.placement, devices, channels or None)


def shuffled_orders(plan: Plan, rng: random.Random) -> Plan:
    """Arbitrary orders, which may contradict each other."""
    assert plan.device_order is not None
    return Plan(
        plan.placement,
        tuple(tuple(rng.sample(order or (), len(order or ()))) for order in plan.device_order),
        {c: tuple(rng.sample(o, len(o))) for c, o in (plan.channel_order or {}).items()} or None,
    )


@pytest.mark.parametrize("semantics", MAKESPAN_SEMANTICS, **LABEL)
def test_the_clock_follows_its_rule(semantics: Semantics) -> None:
    rng = random.Random(1)
    for instance in draws(20):
        plan = random_placement(instance, rng)
        ordered = random_orders(instance, plan, semantics, rng)
        for candidate in (plan, ordered, some_orders(ordered, rng)):
            schedule = simulate(instance, candidate, semantics)
            assert starts_of(schedule) == SlowSimulation(instance, candidate, semantics).run()
            assert check_schedule(instance, schedule, semantics) == ()


@pytest.mark.parametrize("semantics", MAKESPAN_SEMANTICS, **LABEL)
def test_orders_that_contradict_each_other_are_found_and_named(semantics: Semantics) -> None:
    rng, cyclic = random.Random(2), 0
    for instance in draws(20):
        plan = random_placement(instance, rng)
        plan = shuffled_orders(random_orders(instance, plan, semantics, rng), rng)
        expected = SlowSimulation(instance, plan, semantics).run()
        if expected is not None:
            assert starts_of(simulate(instance, plan, semantics)) == expected
            continue
        cyclic += 1
        with pytest.raises(PlanError, match=r"the orders contradict each other: .* waits for "):
            simulate(instance, plan, semantics)
        assert "order" in [violation.rule for violation in check(instance, plan, semantics)]
        assert evaluate(instance, plan, semantics).value_ns is None
    assert cyclic > 5


def test_an_op_order_against_an_edge_is_named() -> None:
    backwards = Plan.on([0] * 4, [[1, 0, 2, 3], []])
    (violation,) = check(example(), backwards, PORT)
    assert violation.rule == "order"
    assert "op 'op1' waits for op 'op2' waits for op 'op1'" in violation.message or (
        "op 'op2' waits for op 'op1' waits for op 'op2'" in violation.message
    )


def test_channel_orders_that_cross_are_named() -> None:
    # op1's two outputs leave gpu0 in one order and enter gpu1 in the other
    first, second = Transfer(0, 1), Transfer(1, 1)
    crossed = Plan(((0,), (1,), (1,), (1,)), None, {0: (first, second), 3: (second, first)})
    (violation,) = check(example(), crossed, PORT)
    assert violation.rule == "order"
    assert violation.message.count("the transfer of 'op1' to 'gpu1'") == 3


def test_a_ready_op_is_not_delayed_for_a_more_urgent_one() -> None:
    # op3 (10 + 8) is ready on gpu0 at 5; op2 (20 + 1 + 8), more urgent, would be there too, but
    # nothing waits: with op2 on gpu1, op3 runs 5-15, and op4 27-35 after op2's output.
    schedule = simulate(example(), Plan.on([0, 1, 0, 0]), PORT)
    assert schedule.start_ns.tolist() == [0, 6, 5, 27]


Change = Callable[[Schedule, int], Schedule]


def op_earlier(schedule: Schedule, i: int) -> Schedule:
    start, end = schedule.start_ns.copy(), schedule.end_ns.copy()
    start[i] -= 1
    end[i] -= 1
    return replace(schedule, start_ns=start, end_ns=end)


def op_shorter(schedule: Schedule, i: int) -> Schedule:
    end = schedule.end_ns.copy()
    end[i] -= 1
    return replace(schedule, end_ns=end)


def transfer_earlier(schedule: Schedule, row: int) -> Schedule:
    table = schedule.transfers
    start, end = table.start_ns.copy(), table.end_ns.copy()
    start[row] -= 1
    end[row] -= 1
    return replace(schedule, transfers=replace(table, start_ns=start, end_ns=end))


def transfer_shorter(schedule: Schedule, row: int) -> Schedule:
    end = schedule.transfers.end_ns.copy()
    end[row] -= 1
    return replace(schedule, transfers=replace(schedule.transfers, end_ns=end))


def transfer_dropped(schedule: Schedule, row: int) -> Schedule:
    columns = {name: np.delete(column, row) for name, column in vars(schedule.transfers).items()}
    return replace(schedule, transfers=replace(schedule.transfers, **columns))


@pytest.mark.parametrize("change", [op_earlier, op_shorter])
@pytest.mark.parametrize("semantics", MAKESPAN_SEMANTICS, **LABEL)
def test_a_schedule_with_a_moved_op_is_rejected(semantics: Semantics, change: Change) -> None:
    rng, moved = random.Random(3), 0
    for instance in draws(6):
        schedule = simulate(instance, random_placement(instance, rng), semantics)
        for i in range(instance.num_ops):
            if schedule.end_ns[i] > schedule.start_ns[i]:  # the clock never waits, so none is free
                assert check_schedule(instance, change(schedule, i), semantics)
                moved += 1
    assert moved > 20


@pytest.mark.parametrize("change", [transfer_earlier, transfer_shorter, transfer_dropped])
@pytest.mark.parametrize("semantics", MAKESPAN_SEMANTICS, **LABEL)
def test_a_schedule_with_a_changed_transfer_is_rejected(
    semantics: Semantics, change: Change
) -> None:
    rng, changed = random.Random(4), 0
    for instance in draws(8):
        schedule = simulate(instance, random_placement(instance, rng), semantics)
        table = schedule.transfers
        for row in range(len(table.item)):
            if table.end_ns[row] > table.start_ns[row]:
                assert check_schedule(instance, change(schedule, row), semantics)
                changed += 1
    assert changed > 20
