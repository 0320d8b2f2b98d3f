"""The referee's clock: a plan becomes a schedule by one fixed, event-driven rule.

At each instant every ready op whose device is free, and every ready transfer all of whose channels
are free, starts, in the order (-priority, topological position, destination). An op's priority is
its bottom level with the times of the assigned devices and remote transfers included; a transfer's
is the largest bottom level of its consumers at its destination. Orders that the plan gives are
obeyed; what it leaves open is filled by this rule.

Ops and transfers are *items*. An item holds up to two *resources* (a device; channels) for its
whole duration and waits for other items (producers, transfers, its predecessor in a given order).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel, pop, push
from placegap.instances.problem import Instance, Makespan, Plan, Schedule, Transfer, TransferTimes
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.weighted_dag import longest_ways
from placegap.instances.referee.channels import NO_CHANNEL, channel_name, channels_of, num_channels
from placegap.instances.referee.rules import PlanError, check_shape


def simulate(instance: Instance, plan: Plan, semantics: Makespan) -> Schedule:
    """Times of all ops and transfers under a makespan semantics.

    Memory, colocation and classes of plans do not matter here; `check` judges them.

    Parameters
    ----------
    instance : Instance
    plan : Plan
        One device per op; given orders must list exactly the ops or transfers of their device or
        channel.
    semantics : Makespan
        Of objective makespan.

    Returns
    -------
    Schedule

    Raises
    ------
    PlanError
        If the plan cannot be executed; cyclic orders are named.

    Notes
    -----
    O((n + m) log(n + m)) plus, per event, the device pairs that share a channel with what ended.

    Examples
    --------
    >>> from placegap.instances import example
    >>> simulate(example(), Plan.on([0, 0, 1, 0]), Makespan()).makespan_ns
    53
    """
    check_shape(instance, plan)
    return simulate_placed(instance, plan, semantics)


def simulate_placed(instance: Instance, plan: Plan, semantics: Makespan) -> Schedule:
    """`simulate` for a plan that `check_shape` has passed."""
    arrays, device = instance.arrays, plan.devices
    transfers = _list_transfers(arrays, device, semantics)
    items = _Items(instance, device, transfers, semantics)
    items.add_orders(plan)
    start = items.run()
    n = instance.num_ops
    transfers.start_ns[:] = start[n:]
    transfers.end_ns[:] = start[n:] + items.duration[n:]
    return Schedule(device, start[:n], start[:n] + items.duration[:n], transfers)


def _list_transfers(arrays: Arrays, device: Ints, semantics: Makespan) -> TransferTimes:
    """One row per transfer, ordered by item and destination; times still unset."""
    index = arrays.index
    remote = np.flatnonzero(device[index.producer] != device[index.consumer])
    if semantics.transfers == "per_edge":
        item, tensor = remote, index.tensor[remote]
        destination = device[index.consumer[remote]]
    else:
        num_devices = len(arrays.memory_bytes)
        key = index.tensor[remote] * num_devices + device[index.consumer[remote]]
        tensor, destination = np.divmod(np.unique(key), num_devices)
        item = tensor
    producer = index.tensor_producer[tensor]
    unset = np.zeros(len(item), np.int64)
    return TransferTimes(item, producer, device[producer], destination, unset, unset.copy())


class _Items:
    """Ops and transfers of one simulation: durations, resources, dependencies, ranks."""

    def __init__(
        self, instance: Instance, device: Ints, transfers: TransferTimes, semantics: Makespan
    ) -> None:
        self.instance, self.semantics = instance, semantics
        self.device, self.transfers = device, transfers
        arrays = instance.arrays
        index, n, k = arrays.index, instance.num_ops, instance.num_devices
        tensor = (
            index.tensor[transfers.item] if semantics.transfers == "per_edge" else transfers.item
        )
        time_ns = arrays.time_ns[np.arange(n), device]
        transfer_ns = arrays.transfer_ns[
            tensor, arrays.link_class[transfers.source, transfers.destination]
        ]
        # Items 0 .. n - 1 are the ops, n .. the transfers: one array each for times, ranks and
        # waits.
        self.duration: Ints = np.concatenate([time_ns, transfer_ns])
        pairs = np.array(
            [
                channels_of(semantics.channels, k, a, b) if a != b else (NO_CHANNEL, NO_CHANNEL)
                for a in range(k)
                for b in range(k)
            ],
            np.int64,
        )
        self.channels: Ints = pairs[transfers.source * k + transfers.destination]
        # Bottom levels with the times of the plan's own devices, so ranks follow the plan's paths.
        edge = index.succ_edge
        succ = index.consumer[edge]
        links = arrays.link_class[device[index.producer[edge]], device[succ]]
        moving = arrays.transfer_ns[index.tensor[edge], links]
        order = index.topological_order[::-1]
        level = longest_ways(order, index.succ_ptr, succ, moving, time_ns)
        # A transfer is as urgent as the most urgent consumer that it serves.
        remote = np.flatnonzero(device[index.producer] != device[index.consumer])
        carrier = self._carrier(remote)
        priority = np.zeros(len(transfers.item), np.int64)
        np.maximum.at(priority, carrier, level[index.consumer[remote]])
        self.rank = _ranks(
            np.concatenate([level, priority]),
            np.concatenate(
                [index.topological_position, index.topological_position[transfers.producer]]
            ),
            np.concatenate([device, transfers.destination]),
        )
        # Who waits for whom: along local edges directly, along remote edges through the transfer.
        local = np.flatnonzero(device[index.producer] == device[index.consumer])
        self.before: list[Ints] = [index.producer[local], transfers.producer, n + carrier]
        self.after: list[Ints] = [
            index.consumer[local],
            n + np.arange(len(transfers.item)),
            index.consumer[remote],
        ]

    def _carrier(self, remote: Ints) -> Ints:
        """The transfer (row) that serves each remote edge."""
        if self.semantics.transfers == "per_edge":
            return np.arange(len(remote))
        index, k = self.instance.arrays.index, self.instance.num_devices
        rows = self.transfers.item * k + self.transfers.destination
        return np.searchsorted(
            rows, index.tensor[remote] * k + self.device[index.consumer[remote]]
        ).astype(np.int64)

    def add_orders(self, plan: Plan) -> None:
        """Make each item of a given order wait for the one before it."""
        cluster = self.instance.cluster
        if plan.device_order is not None:
            if len(plan.device_order) != len(cluster.devices):
                raise PlanError(f"device_order has {len(plan.device_order)} devices")
            members_ptr, members = group_by(self.device, len(cluster.devices))
            # A given order becomes waits from each item to the next. It may then contradict the
            # edges, which `run` notices as items that never start.
            for k, order in enumerate(plan.device_order):
                if order is not None:
                    expected = members[members_ptr[k] : members_ptr[k + 1]].tolist()
                    if sorted(order) != expected:
                        raise PlanError(
                            f"the op order of device {cluster.devices[k].name!r} does not list"
                            " exactly its ops"
                        )
                    self._add_sequence(np.array(order, np.int64))
        rows: dict[Transfer, int] = {}
        known = num_channels(self.semantics.channels, len(cluster.devices))
        for channel, transfers in (plan.channel_order or {}).items():
            if not 0 <= channel < known:
                raise PlanError(
                    f"channel_order names channel number {channel}, which does not exist"
                )
            if not rows:
                pairs = zip(
                    self.transfers.item.tolist(), self.transfers.destination.tolist(), strict=True
                )
                rows = {Transfer(*pair): row for row, pair in enumerate(pairs)}
            wanted = np.flatnonzero((self.channels == channel).any(axis=1)).tolist()
            if sorted(rows.get(transfer, -1) for transfer in transfers) != wanted:
                name = channel_name(self.semantics.channels, cluster, channel)
                raise PlanError(
                    f"the transfer order of channel '{name}' does not list exactly its transfers"
                )
            first = self.instance.num_ops
            self._add_sequence(np.array([first + rows[t] for t in transfers], np.int64))

    def _add_sequence(self, items: Ints) -> None:
        self.before.append(items[:-1])
        self.after.append(items[1:])

    def run(self) -> Ints:
        """Start time of every item."""
        before, after = np.concatenate(self.before), np.concatenate(self.after)
        num_items, num_devices = len(self.duration), self.instance.num_devices
        next_ptr, by_before = group_by(before, num_items)
        # Devices are resources 0 .. K - 1, channels follow.
        first = np.where(self.channels == NO_CHANNEL, NO_CHANNEL, self.channels + num_devices)
        resources = np.concatenate(
            [np.column_stack([self.device, np.full(len(self.device), NO_CHANNEL)]), first]
        )
        queue_resources, queue = np.unique(resources, axis=0, return_inverse=True)
        queue_resources = np.ascontiguousarray(queue_resources)
        num_resources = int(queue_resources.max()) + 1
        flat, owner = queue_resources.ravel(), np.repeat(np.arange(len(queue_resources)), 2)
        used = flat >= 0
        touch_ptr, touched = group_by(flat[used], num_resources)
        queue_ptr, _ = group_by(queue.ravel(), len(queue_resources))
        waits = _Waits(next_ptr, after[by_before], np.bincount(after, minlength=num_items))
        queues = _Queues(queue.ravel(), queue_ptr, queue_resources, touch_ptr, owner[used][touched])
        start = _run_events(self.duration, self.rank, waits, queues)
        if (start < 0).any():
            raise PlanError(f"the orders contradict each other: {self._cycle(before, after)}")
        return start

    def _cycle(self, before: Ints, after: Ints) -> str:
        import networkx as nx  # takes a tenth of a second to load

        pairs = zip(before.tolist(), after.tolist(), strict=True)
        names = [self._name(arc[0]) for arc in nx.find_cycle(nx.DiGraph(pairs))]
        return " waits for ".join([names[0], *reversed(names)])

    def _name(self, item: int) -> str:
        ops, n = self.instance.graph.ops, self.instance.num_ops
        if item < n:
            return f"op {ops[item].name!r}"
        producer = ops[self.transfers.producer[item - n]].name
        target = self.instance.cluster.devices[self.transfers.destination[item - n]].name
        return f"the transfer of {producer!r} to {target!r}"


def _ranks(priority: Ints, position: Ints, destination: Ints) -> Ints:
    """Rank of each item in the order (-priority, topological position, destination, number)."""
    order = np.lexsort((destination, position, -priority))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank


class _Waits(NamedTuple):
    """Which items wait for item i: ``item[ptr[i]:ptr[i + 1]]``; and for how many each one waits."""

    ptr: Ints
    item: Ints
    num_before: Ints


class _Queues(NamedTuple):
    """Items that hold the same resources share a queue."""

    # Queue q holds up to two `resources`, has room for as many items as begin at ``ptr[q]``, and is
    # in ``touched[touch_ptr[r]:touch_ptr[r + 1]]`` for each resource r of its two.
    of_item: Ints
    ptr: Ints
    resources: Ints
    touch_ptr: Ints
    touched: Ints


@kernel(bounded=True)
def _run_events(duration: Ints, rank: Ints, waits: _Waits, queues: _Queues) -> Ints:
    """Start of every item, -1 for items that never become ready."""
    # A queue is a heap of items by rank, `tops` one of queues' first items. Only queues whose top
    # or whose resources changed at this instant can start something: the candidates.
    # Why queues: items that hold the same resources can only start in the order of their ranks, so
    # the first of each queue stands for all. An instant then costs as much as the queues it
    # touches, not as all ready items.
    waiting = waits.num_before.copy()
    queue, queue_ptr, resources = queues.of_item, queues.ptr, queues.resources
    num_items, num_queues = len(duration), len(resources)
    start = np.full(num_items, -1, np.int64)
    heap = np.empty(num_items, np.int64)
    size = np.zeros(num_queues, np.int64)
    busy = np.zeros(len(queues.touch_ptr) - 1, np.bool_)
    marked = np.zeros(num_queues, np.bool_)
    candidates = np.empty(num_queues, np.int64)
    num_candidates = 0
    end, events, num_events = np.zeros(num_items, np.int64), np.empty(num_items, np.int64), 0
    tops, num_tops = np.empty(num_queues, np.int64), 0
    now: Any = np.int64(0)
    for item in range(num_items):
        if waiting[item] == 0:
            q = queue[item]
            size[q] = push(heap[queue_ptr[q] :], size[q], rank, item)
            if not marked[q]:
                marked[q] = True
                candidates[num_candidates] = q
                num_candidates += 1
    while True:
        # Everything that ends now frees its resources before anything starts: so ranks decide who
        # goes next, not the order in which the ends are handled.
        while num_events > 0 and end[events[0]] == now:
            ended = events[0]
            num_events = pop(events, num_events, end)
            for side in range(2):
                resource = resources[queue[ended], side]
                if resource >= 0:
                    busy[resource] = False
                    for at in range(queues.touch_ptr[resource], queues.touch_ptr[resource + 1]):
                        q = queues.touched[at]
                        if size[q] > 0 and not marked[q]:
                            marked[q] = True
                            candidates[num_candidates] = q
                            num_candidates += 1
            for at in range(waits.ptr[ended], waits.ptr[ended + 1]):
                follower = waits.item[at]
                waiting[follower] -= 1
                if waiting[follower] == 0:
                    q = queue[follower]
                    size[q] = push(heap[queue_ptr[q] :], size[q], rank, follower)
                    if not marked[q]:
                        marked[q] = True
                        candidates[num_candidates] = q
                        num_candidates += 1
        # Of all queues that could start something, the item of least rank starts first. It may hold
        # a channel that others of this instant need: so their tops are a heap, too.
        for at in range(num_candidates):
            num_tops = push(tops, num_tops, rank, heap[queue_ptr[candidates[at]]])
            marked[candidates[at]] = False
        num_candidates = 0
        while num_tops > 0:
            q = queue[tops[0]]
            num_tops = pop(tops, num_tops, rank)
            one, other = resources[q, 0], resources[q, 1]
            # Items without resources all start at once; another one makes its resources busy.
            while size[q] > 0 and not (one >= 0 and busy[one]) and not (other >= 0 and busy[other]):
                item = heap[queue_ptr[q]]
                size[q] = pop(heap[queue_ptr[q] :], size[q], rank)
                start[item], end[item] = now, now + duration[item]
                num_events = push(events, num_events, end, item)
                if one >= 0:
                    busy[one] = True
                if other >= 0:
                    busy[other] = True
        if num_events == 0:
            return start
        now = end[events[0]]
