"""Better and better plans of one instance, for as long as there is time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from placegap.instances.problem.graph_index import Ints, group_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.plan import Plan, Transfer
from placegap.instances.referee.simulate import simulate
from placegap.solvers.core.clock import now_s
from placegap.solvers.local_search.disjunctive import (
    DURATION,
    LABEL,
    MACHINE,
    START,
    Machines,
    empty_orders,
    fill,
    machines_of,
    ends_of,
)
from placegap.solvers.local_search.walk import Rooms, Trace, Window, anneal, makespan_of, restore


class Search:
    """The state of a search: a schedule, what it is made of, and the best one so far."""

    def __init__(self, instance: Instance, semantics: Makespan) -> None:
        self.instance, self.semantics = instance, semantics
        arrays = instance.arrays
        self.machines = machines_of(instance, semantics)
        self.orders = empty_orders(instance, semantics, self.machines)
        member_ptr, member = group_by(arrays.group, arrays.num_groups)
        self.rooms = Rooms(
            arrays.group, member_ptr, member, arrays.resident_bytes, arrays.memory_bytes,
            np.zeros(instance.num_devices, np.int64),
        )  # fmt: skip
        orders = self.orders
        self.trace = Trace(
            np.zeros(2, np.int64), np.zeros(4096, np.int64), np.zeros(4096, np.int64),
            np.empty_like(orders.item), np.empty_like(orders.ends), np.empty_like(orders.device),
            np.zeros(instance.num_devices, np.int64),
        )  # fmt: skip

    def load(self, plan: Plan) -> int:
        """Take over the schedule of a plan; its makespan."""
        arrays, n = self.instance.arrays, self.instance.num_ops
        schedule = simulate(self.instance, plan, self.semantics)
        position = arrays.index.topological_position
        start, end, level, item = schedule.start_ns, schedule.end_ns, 2 * position, np.arange(n)
        sent = schedule.transfers
        if not self.machines.free:
            number = sent.item
            if self.machines.per_tensor:
                number = sent.item * self.instance.num_devices + sent.destination
            start, end = np.append(start, sent.start_ns), np.append(end, sent.end_ns)
            level = np.append(level, 2 * position[sent.producer] + 1)
            item = np.append(item, n + number)
        sequence = item[np.lexsort((item, level, end, start))]
        fill(self.machines, self.orders, schedule.device, sequence)
        held = self.rooms.held_bytes
        held[:] = 0
        np.add.at(held, schedule.device, arrays.resident_bytes)
        return schedule.makespan_ns

    def plan(self) -> Plan:
        """The plan of the current schedule."""
        n, k = self.instance.num_ops, self.instance.num_devices
        item, device = self.orders.item, self.orders.device
        on_device: list[tuple[int, ...]] = []
        order = np.argsort(item[:n, LABEL], kind="stable")
        for d in range(k):
            on_device.append(tuple(order[device[order] == d].tolist()))
        channels: dict[int, tuple[Transfer, ...]] = {}
        sent = np.flatnonzero(item[n : self.machines.num_items, MACHINE] >= 0)
        sent = sent[np.argsort(item[n + sent, LABEL], kind="stable")]
        if self.machines.per_tensor:
            number, target = np.divmod(sent, k)
        else:
            number, target = sent, device[self.machines.consumer[sent]]
        transfers = [Transfer(*row) for row in zip(number.tolist(), target.tolist(), strict=True)]
        for c in range(k, len(self.orders.ends)):
            used = (item[n + sent, MACHINE : MACHINE + 2] == c).any(axis=1)
            if used.any():
                channels[c - k] = tuple(transfers[at] for at in np.flatnonzero(used).tolist())
        placement = tuple((d,) for d in device.tolist())
        return Plan(placement, tuple(on_device), channels or None)

    def whole(self) -> Window:
        """A window of everything."""
        size = self.machines.num_items
        return Window(np.arange(self.instance.num_ops), size, size + 1, np.zeros(4096, np.int64))
