"""One schedule that is searched: taken over from a plan, walked from, turned into a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan, Transfer
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.simulate import simulate
from placegap.solvers.local_search.disjunctive_graph import (
    LABEL,
    MACHINE,
    all_starts,
    all_tails,
    empty_orders,
    fill,
    machines_of,
    num_transfers,
)
from placegap.solvers.local_search.peak_memory import Peak, peak_arrays, schedule_fits
from placegap.solvers.local_search.walk import (
    MOST_TOGETHER,
    Rooms,
    ScheduleWindow,
    Trace,
    anneal,
    find_exits,
    makespan_of,
    restore,
    save,
)

HOT, COLD = 0.2, 0.005
"""Temperatures at the beginning and at the end of a round, in mean times of an op."""

WINDOW_OPS, MOST_EXITS = 500, 512
"""Ops of a window, and how many items behind it may wait for what is in it."""


class Search:
    """A schedule that is searched, what it is made of, and the best one of this round.

    Parameters
    ----------
    instance, semantics
        The problem.
    seed : sequence of int
        Of the random numbers.
    at_peak : Instance, optional
        The best schedule must fit into its memory at its peak, as the first one does; `instance`
        then has the bytes that are held in any case.

    Examples
    --------
    >>> from placegap.instances import example
    >>> search = Search(example(), Makespan(), [0])
    >>> search.load(Plan.on([0] * 4))
    43
    >>> search.walk(search.whole(), 0, 200, 200, 10.0)
    >>> search.value_ns
    34
    """

    def __init__(
        self,
        instance: Instance,
        semantics: Makespan,
        seed: Sequence[int],
        at_peak: Instance | None = None,
    ) -> None:
        self.instance, self.semantics = instance, semantics
        arrays, k = instance.arrays, instance.num_devices
        self.machines = machines_of(instance, semantics)
        self.orders = empty_orders(instance, semantics, self.machines)
        member_ptr, member = group_by(arrays.group, arrays.num_groups)
        self.rooms = Rooms(
            arrays.group,
            member_ptr,
            member,
            arrays.resident_bytes,
            arrays.memory_bytes,
            np.zeros(k, np.int64),
        )
        item, ends, device, *_ = self.orders
        self.trace = Trace(
            np.zeros(2, np.int64),
            np.zeros(MOST_TOGETHER, np.int64),
            np.zeros(MOST_TOGETHER, np.int64),
            np.empty_like(item),
            np.empty_like(ends),
            np.empty_like(device),
            np.zeros(k, np.int64),
        )
        is_used, times = at_peak is not None, 0
        if is_used:
            times = instance.num_ops + num_transfers(instance, semantics)
        start, end = np.zeros((2, times), np.int64)
        holding = peak_arrays(at_peak or instance, semantics, is_used=is_used)
        self.peak = Peak(is_used, holding, start, end)
        self.rng = np.random.default_rng(list(seed))
        self.saved = self.in_part = False

    @property
    def value_ns(self) -> int:
        """Makespan of the best schedule."""
        return int(self.trace.value[1])

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
        self.trace.value[:] = schedule.makespan_ns
        self.saved = False
        return schedule.makespan_ns

    def copy(self, other: Search) -> None:
        """Take over the schedule of another search of the same problem."""
        for mine, its in zip(self.orders[:4], other.orders[:4], strict=True):
            mine[:] = its
        self.rooms.held_bytes[:] = other.rooms.held_bytes
        self.trace.value[:] = other.trace.value
        self.saved = False

    def whole(self) -> ScheduleWindow:
        """A window of everything."""
        size = self.machines.num_items
        exits = np.zeros(MOST_EXITS + 1, np.int64)
        return ScheduleWindow(np.arange(self.instance.num_ops), size, size + 1, exits)

    def windows(self) -> Iterator[ScheduleWindow]:
        """Windows of `WINDOW_OPS` ops that overlap by half, along the schedule as it is by then."""
        size, n = self.machines.num_items, self.instance.num_ops
        for first in range(0, max(1, n - WINDOW_OPS // 2), WINDOW_OPS // 2):
            order = np.argsort(self.orders.item[:n, LABEL], kind="stable")
            last = first + WINDOW_OPS
            begin = int(order[first - 1]) if first else size
            end = int(order[last]) if last < n else size + 1
            exits = np.zeros(MOST_EXITS + 1, np.int64)
            if not find_exits(self.machines, self.orders, end, exits):
                end = size + 1
            yield ScheduleWindow(order[first:last], begin, end, exits)

    def walk(
        self, window: ScheduleWindow, done: int, steps: int, total: int, hot_ns: float
    ) -> None:
        """Go on by some steps of a walk of `total` steps."""
        self.saved = anneal(
            self.machines,
            self.orders,
            self.rooms,
            window,
            self.trace,
            self.peak,
            self.rng,
            done,
            steps,
            total,
            hot_ns,
            hot_ns * COLD / HOT,
            self.saved,
            not self.in_part,
        )

    def enter(self, window: ScheduleWindow) -> None:
        """Begin with a part of the schedule: its state is saved once, and not at each best."""
        self.trace.value[:] = makespan_of(self.orders, window, self.instance.num_devices)
        save(self.orders, self.rooms, self.trace)
        self.saved = self.in_part = True

    def leave(self, window: ScheduleWindow) -> None:
        """Keep what was found in a part, unless it is worse, and let the rest follow it."""
        is_worse = self.trace.value[0] > self.trace.value[1]
        if not is_worse and self.peak.at_peak:
            all_starts(self.machines, self.orders, window.begin)
            is_worse = not schedule_fits(self.machines, self.orders, self.peak)
        if is_worse:
            restore(self.orders, self.rooms, self.trace)
        else:
            all_starts(self.machines, self.orders, window.begin)
            self.trace.value[1] = self.trace.value[0]
        self.trace.value[0] = self.trace.value[1]
        self.saved = self.in_part = False

    def refresh(self) -> None:
        """Compute all tails anew, and the makespan."""
        all_tails(self.machines, self.orders)
        self.trace.value[:] = makespan_of(self.orders, self.whole(), self.instance.num_devices)

    def back(self) -> None:
        """Return to the best schedule."""
        if self.saved:
            restore(self.orders, self.rooms, self.trace)
        self.trace.value[0] = self.trace.value[1]
        self.saved = False

    def plan(self) -> Plan:
        """The plan of the best schedule."""
        n, k = self.instance.num_ops, self.instance.num_devices
        item, device = self.orders.item, self.orders.device
        if self.saved:
            item, device = self.trace.best_item, self.trace.best_device
        order = np.argsort(item[:n, LABEL], kind="stable")
        on_device = tuple(tuple(order[device[order] == d].tolist()) for d in range(k))
        sent = np.flatnonzero(item[n : self.machines.num_items, MACHINE] >= 0)
        sent = sent[np.argsort(item[n + sent, LABEL], kind="stable")]
        if self.machines.per_tensor:
            number, target = np.divmod(sent, k)
        else:
            number, target = sent, device[self.machines.consumer[sent]]
        transfers = [Transfer(*row) for row in zip(number.tolist(), target.tolist(), strict=True)]
        channels: dict[int, tuple[Transfer, ...]] = {}
        for c in range(k, len(self.orders.ends)):
            used = np.flatnonzero((item[n + sent, MACHINE : MACHINE + 2] == c).any(axis=1))
            if len(used):
                channels[c - k] = tuple(transfers[at] for at in used.tolist())
        return Plan(tuple((d,) for d in device.tolist()), on_device, channels or None)
