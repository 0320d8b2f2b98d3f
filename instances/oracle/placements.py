"""Every placement of a few ops: the least makespan, max_load, forward + backward, and latency.

For makespan the placements are tried with all op orders and transfer orders worth looking at. Ops
and the transfers that hold a channel are *items*; a transfer without a channel is a mere delay.
Items are numbered so that each one follows what it waits for. A schedule is built by appending
items: each starts as soon as what it waits for has ended and its device or channels have served all
items appended before. Appending the items of any feasible schedule in the order (start, end,
number) delays none of them, so it may be repeated until nothing moves: some optimal schedule is its
own result. Hence it is enough to append in increasing (start, end, number). A branch is cut only if
a longest path through it reaches the best value.

What a device holds under the memory rule `peak` is written from the definition
(`referee.memory`), moment by moment and tensor by tensor; it shares only the order of the steps
with the referee.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import (
    MOST_TOKENS,
    Instance,
    LatencySubgraphs,
    Loads,
    Makespan,
    MaxContext,
    Plan,
    Semantics,
    Transfer,
)
from placegap.instances.problem.integers import NEVER, UNSUPPORTED
from placegap.instances.referee.channels import NO_CHANNEL, channels_of, plan_from_times

MOST_LATENCY_OPS = 8


class FewOps(NamedTuple):
    """The ops of an instance in some order, and what its devices hold."""

    time_ns: Ints
    resident_bytes: Ints
    memory_bytes: Ints
    group: Ints


def few_ops(instance: Instance, order: Ints) -> FewOps:
    arrays = instance.arrays
    return FewOps(
        arrays.time_ns[order],
        arrays.resident_bytes[order],
        arrays.memory_bytes,
        arrays.group[order],
    )


def best_schedule(instance: Instance, semantics: Makespan) -> tuple[int, Plan] | None:
    """Optimal makespan in ns, and a plan with all its orders; None if no placement is feasible."""
    # Exponential: meant for the sizes that `brute_force.applies` admits.
    arrays, index = instance.arrays, instance.arrays.index
    order, position = index.topological_order, index.topological_position
    per_tensor = semantics.transfers == "per_tensor"
    carried = index.tensor if per_tensor else np.arange(len(index.tensor))
    edges = np.column_stack(
        [position[index.producer], position[index.consumer], carried, index.tensor]
    )
    value, device, start, duration, move = _least_makespan(
        few_ops(instance, order),
        np.ascontiguousarray(edges[np.argsort(edges[:, 0], kind="stable")]),
        FewLinks(arrays.transfer_ns, arrays.link_class, _channel_table(instance, semantics)),
        peak_sizes(instance, semantics, order),
    )
    if value == NEVER:
        return None
    is_op, end = move[:, 0] < 0, start + duration
    device, op_times = device[position], np.column_stack([start, end])[is_op][position].tolist()
    moves = np.column_stack([move, start, end])[~is_op].tolist()
    transfers = [(Transfer(item, to), began, ended) for item, to, began, ended in moves]
    return int(value), plan_from_times(instance, semantics, device.tolist(), op_times, transfers)


def _channel_table(instance: Instance, semantics: Makespan) -> Ints:
    k = instance.num_devices
    table = np.full((k, k, 2), NO_CHANNEL, np.int64)
    for a in range(k):
        for b in range(k):
            if a != b:
                table[a, b] = channels_of(semantics.channels, k, a, b)
    return table


class FewLinks(NamedTuple):
    """What transfers take, and the channels (K, K, 2) that they hold."""

    transfer_ns: Ints
    link_class: Ints
    channels: Ints


class Items(NamedTuple):
    """Items of a placement: each op, followed by the transfers of its outputs."""

    # Durations, resources (devices, then channels; two columns), lags, longest ways from the start
    # of each item to the end, and (carried, destination) of each transfer, -1 for ops.
    # ``lag[j, i]``: item i starts at least this long after the end of item j; -1: it does not wait
    # for j.
    duration: Ints
    resources: Ints
    lag: Ints
    tail: Ints
    move: Ints


@kernel
def _least_makespan(
    ops: FewOps, edges: Ints, links: FewLinks, sizes: PeakSizes
) -> tuple[int, Ints, Ints, Ints, Ints]:
    """Try every placement of the ops, which are numbered topologically."""
    # Row e of `edges` is (producer, consumer, carried, tensor), ordered by producer; edges with the
    # same `carried` to one destination share a transfer. Returns the value, the device of each op,
    # and the starts, durations and `move` of the items (see `_items`).
    memory_bytes, group = ops.memory_bytes, ops.group
    num_devices = len(memory_bytes)
    num_resources = num_devices + links.channels.max() + 1
    home, device = np.zeros(group.max() + 1, np.int64), np.zeros(len(group), np.int64)
    best: Any = np.int64(NEVER)  # no literal: `_best_order` is compiled once
    best_device = home
    best_start, best_duration, best_move = home, home, edges
    # Placements are counted up like a number in base K, a digit per colocation group.
    while True:
        if may_fit(device, ops, sizes):
            left = memory_bytes - state_of(device, sizes, num_devices)
            items = _items(device, ops.time_ns, edges, links)
            touches = item_touches(device, edges, items.move, links)
            value, start = _best_order(items, num_resources, best, sizes, touches, left)
            if value < best:
                best, best_device = value, device.copy()
                best_start, best_duration, best_move = start, items.duration, items.move
        if not next_placement(home, num_devices, group, device):
            return best, best_device, best_start, best_duration, best_move


@kernel(allocates=False)
def next_placement(home: Ints, num_devices: int, group: Ints, device: Ints) -> bool:
    """Move on to the next device of each group (`home`) and op (`device`); False after the last."""
    at = 0
    while at < len(home) and home[at] == num_devices - 1:
        home[at] = 0
        at += 1
    if at == len(home):
        return False
    home[at] += 1
    for i in range(len(group)):
        device[i] = home[group[i]]
    return True


@kernel
def may_fit(device: Ints, ops: FewOps, sizes: PeakSizes) -> bool:
    """Every op runs where it is, and the memory suffices as far as the placement alone decides."""
    left = ops.memory_bytes.copy()
    for i in range(len(device)):
        if ops.time_ns[i, device[i]] == UNSUPPORTED:
            return False
        left[device[i]] -= ops.resident_bytes[i]
        if left[device[i]] < 0 and not sizes.counts:
            return False
    if not sizes.counts:
        return True
    return bool((state_of(device, sizes, len(left)) <= ops.memory_bytes).all())


@kernel
def _items(device: Ints, time_ns: Ints, edges: Ints, links: FewLinks) -> Items:
    """The items of a placement."""
    transfer_ns, link_class, channels = links
    n, num_devices = time_ns.shape
    most = n + len(edges)
    duration = np.zeros(most, np.int64)
    resources = np.full((most, 2), -1, np.int64)
    move = np.full((most, 2), -1, np.int64)
    item_of_op = np.zeros(n, np.int64)
    carrier = np.full(len(edges), -1, np.int64)
    size = 0
    for op in range(n):
        item_of_op[op] = size
        duration[size] = time_ns[op, device[op]]
        resources[size, 0] = device[op]
        first = size
        size += 1
        for e in range(len(edges)):
            source, target = device[edges[e, 0]], device[edges[e, 1]]
            # Local edges and free channels need no item: the delay is in `lag`.
            if edges[e, 0] != op or channels[source, target, 0] == NO_CHANNEL:
                continue
            # a tensor goes to a device once; its consumers there share the transfer
            for item in range(first, size):
                if move[item, 0] == edges[e, 2] and move[item, 1] == target:
                    carrier[e] = item
            if carrier[e] < 0:
                carrier[e] = size
                move[size, 0], move[size, 1] = edges[e, 2], target
                duration[size] = transfer_ns[edges[e, 3], link_class[source, target]]
                for c in range(2):
                    if channels[source, target, c] != NO_CHANNEL:
                        resources[size, c] = num_devices + channels[source, target, c]
                size += 1
    # By edges with a transfer, an item starts after the one before it; otherwise a tensor delays it
    # by its time, which is 0 on one device.
    lag = np.full((size, size), -1, np.int64)
    for e in range(len(edges)):
        a, b, via = item_of_op[edges[e, 0]], item_of_op[edges[e, 1]], carrier[e]
        if via >= 0:
            lag[a, via], lag[via, b] = 0, 0
        else:
            pair = link_class[device[edges[e, 0]], device[edges[e, 1]]]
            lag[a, b] = max(lag[a, b], transfer_ns[edges[e, 3], pair])
    # Items are numbered so that each one follows what it waits for: backwards, all later tails are
    # ready.
    tail = duration[:size].copy()
    for j in range(size - 1, -1, -1):
        for i in range(j + 1, size):
            if lag[j, i] >= 0:
                tail[j] = max(tail[j], duration[j] + lag[j, i] + tail[i])
    return Items(duration[:size], resources[:size], lag, tail, move[:size])


@kernel
def _best_order(
    items: Items, num_resources: int, best: int, sizes: PeakSizes, touches: Ints, left: Ints
) -> tuple[int, Ints]:
    """Append items depth first; the least makespan below `best`, or `best`, and the starts."""
    # At depth d, `sequence[:d]` has been appended, and ``candidate[d]`` is the next item to try.
    # Under the rule `peak` nothing is appended to what holds too much before the last item starts.
    duration, lag, size = items.duration, items.lag, len(items.duration)
    start, found = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    earliest = np.zeros((size, size), np.int64)
    sequence, candidate = np.zeros(size, np.int64), np.zeros(size, np.int64)
    depth = 0
    if _earliest(start, items, num_resources, earliest[0]) >= best:
        return best, found
    while depth >= 0:
        i = candidate[depth]
        if i == size:
            depth -= 1
            start[sequence[depth]] = -1
            continue
        candidate[depth] += 1
        if start[i] >= 0:
            continue
        # An item may only be appended once everything that it waits for is.
        waits = False
        for j in range(i):
            waits = waits or (lag[j, i] >= 0 and start[j] < 0)
        if waits:
            continue
        # In increasing (start, end, number): every schedule is built in one order only, which is
        # what keeps the search small. The module's text says why an optimal one remains.
        if depth > 0:
            last = sequence[depth - 1]
            mine = earliest[depth, i], duration[i], i
            if mine < (start[last], duration[last], last):
                continue
        start[i], sequence[depth] = earliest[depth, i], i
        # With this start, a longest path through any item bounds the makespan of all schedules
        # below.
        below = earliest[min(depth + 1, size - 1)]
        bound = _earliest(start, items, num_resources, below)
        until = NEVER if depth + 1 == size else start[i]
        if bound < best and sizes.counts and too_full(start, duration, touches, sizes, left, until):
            bound = best
        if bound < best and depth + 1 < size:
            depth += 1
            candidate[depth] = 0
            continue
        if bound < best:  # all items have their start: the bound is the makespan
            best, found = bound, start.copy()
        start[i] = -1
    return best, found


@kernel
def _earliest(start: Ints, items: Items, num_resources: int, earliest: Ints) -> int:
    """Fill in when each item can start after those that have a start (>= 0); a makespan bound."""
    # A resource is free when the last started item on it has ended, as items are only appended.
    duration, resources, lag, tail, _ = items
    free = np.zeros(num_resources, np.int64)
    for i in range(len(start)):
        for r in resources[i]:
            if r >= 0 and start[i] >= 0:
                free[r] = max(free[r], start[i] + duration[i])
    bound = 0
    for i in range(len(start)):
        earliest[i] = start[i]
        if start[i] < 0:
            for r in resources[i]:
                if r >= 0:
                    earliest[i] = max(earliest[i], free[r])
            for j in range(i):
                if lag[j, i] >= 0:
                    earliest[i] = max(earliest[i], earliest[j] + duration[j] + lag[j, i])
        bound = max(bound, earliest[i] + tail[i])
    return bound


class PeakSizes(NamedTuple):
    """Sizes of the ops, which are numbered topologically, and of the tensors; in bytes."""

    # `counts` is false under the rule `sum`; `holds[i, z]`: op i holds shared state z.
    counts: bool
    state: Ints
    workspace: Ints
    tensor: Ints
    holds: Ints
    shared: Ints
    step: Ints


def peak_sizes(instance: Instance, semantics: Semantics, order: Ints) -> PeakSizes:
    """The sizes, with the ops in the given order."""
    sizes, position = instance.memory_arrays, instance.arrays.index.topological_position
    holds = np.zeros((instance.num_ops, len(sizes.shared_bytes)), np.int64)
    holds[position[sizes.shared_op], sizes.shared_name] = 1
    return PeakSizes(
        semantics.memory_rule == "peak",
        sizes.state_bytes[order],
        sizes.workspace_bytes[order],
        sizes.tensor_bytes,
        holds,
        sizes.shared_bytes,
        sizes.step[order],
    )


@kernel
def state_of(device: Ints, sizes: PeakSizes, num_devices: int) -> Ints:
    """State of every device, shared state once for each name, (K,)."""
    total = np.zeros(num_devices, np.int64)
    for i in range(len(device)):
        total[device[i]] += sizes.state[i]
    for z in range(len(sizes.shared)):
        for k in range(num_devices):
            here = False
            for i in range(len(device)):
                here = here or (device[i] == k and sizes.holds[i, z] == 1)
            total[k] += sizes.shared[z] * here
    return total


@kernel
def item_touches(device: Ints, edges: Ints, move: Ints, links: FewLinks) -> Ints:
    """What the items of a makespan (`_items`) do in memory: (item, tensor, lag, device)."""
    # The item keeps the tensor on the device while it runs; tensor -1 - i is the workspace of op i.
    # Where ``lag`` is not negative, a transfer without a channel follows the item for so long: the
    # tensor is there during the transfer.
    n = len(device)
    item_of_op, at = np.zeros(n, np.int64), 0
    for item in range(len(move)):
        if move[item, 0] < 0:
            item_of_op[at] = item
            at += 1
    rows = np.zeros((n + 6 * len(edges), 4), np.int64)
    size = 0
    for i in range(n):
        rows[size, 0], rows[size, 1] = item_of_op[i], -1 - i
        rows[size, 2], rows[size, 3] = -1, device[i]
        size += 1
    for e in range(len(edges)):
        source, target, u = device[edges[e, 0]], device[edges[e, 1]], edges[e, 3]
        for end in range(2):
            rows[size, 0], rows[size, 1] = item_of_op[edges[e, end]], u
            rows[size, 2], rows[size, 3] = -1, device[edges[e, end]]
            size += 1
        if source == target:
            continue
        carrier, lag = (
            item_of_op[edges[e, 0]],
            links.transfer_ns[u, links.link_class[source, target]],
        )
        for item in range(len(move)):
            if move[item, 0] == edges[e, 2] and move[item, 1] == target:
                carrier, lag = item, -1
        for k in (source, target):
            rows[size, 0], rows[size, 1], rows[size, 2], rows[size, 3] = carrier, u, lag, k
            size += 1
    return rows[:size]


@kernel
def too_full(
    start: Ints, duration: Ints, touches: Ints, sizes: PeakSizes, left: Ints, until: int
) -> bool:
    """Whether a device holds more than `left` at some moment before `until`."""
    # Items whose start is still open (-1) start at `until` or later. A set of spans is fullest when
    # one of them begins.
    n, num_tensors = len(sizes.workspace), len(sizes.tensor)
    first = np.full((num_tensors + n, len(left)), NEVER, np.int64)
    last = np.full((num_tensors + n, len(left)), -1, np.int64)
    # The span of each tensor (and workspace) on each device: from the first item that touches it
    # there to the last. An item that is not placed yet counts as at NEVER: what it touches stays at
    # least until `until`.
    for row in range(len(touches)):
        item, what, lag, k = touches[row]
        slot = what if what >= 0 else num_tensors - 1 - what
        begin, end = NEVER, NEVER
        if start[item] >= 0:
            begin, end = start[item], start[item] + duration[item]
            if lag >= 0:
                begin, end = end, end + lag
        first[slot, k] = min(first[slot, k], begin)
        last[slot, k] = max(last[slot, k], end)
    for k in range(len(left)):
        for at in range(num_tensors + n):
            now = first[at, k]
            # Only where a span begins: between two beginnings memory only falls.
            if now >= until or now >= last[at, k]:
                continue
            live = 0
            for slot in range(num_tensors + n):
                if first[slot, k] <= now < last[slot, k]:
                    size = (
                        sizes.tensor[slot]
                        if slot < num_tensors
                        else sizes.workspace[slot - num_tensors]
                    )
                    live += size
            if live > left[k]:
                return True
    return False


def best_assignment(instance: Instance, semantics: Loads) -> tuple[int, Plan] | None:
    """Least max_load or max_load_fwd_bwd in ns and its plan, or None if no plan is feasible."""
    # The class of plans is decided here, not by `check`: ``convex``: no path over forward ops
    # leaves a device and comes back; ``chain``: forward edges between devices form no cycle, where
    # the edges at a colour class without forward op count as reversed forward edges.
    arrays, index = instance.arrays, instance.arrays.index
    position, order = index.topological_position, index.topological_order
    edges = np.column_stack([position[index.producer], position[index.consumer], index.tensor])
    value, device = _least_load(
        few_ops(instance, order),
        edges,
        arrays.host_ns,
        arrays.is_host.astype(np.int64),
        _class_arcs(instance, semantics),
        (semantics.plans == "chain", semantics.load == "overlap"),
        _passes(instance, semantics)[order],
        peak_sizes(instance, semantics, order),
    )
    return None if value == NEVER else (int(value), Plan.on(device[position].tolist()))


def best_context(instance: Instance, semantics: MaxContext) -> tuple[int, Plan] | None:
    """The most tokens, and a plan that has room for them, or None if no plan is feasible."""
    # Every placement: the class of its plans and its loads by the kernels of `best_assignment`, and
    # its tokens by bisection, device by device.
    arrays, index = instance.arrays, instance.arrays.index
    position, order = index.topological_position, index.topological_order
    edges = np.column_stack([position[index.producer], position[index.consumer], index.tensor])
    arcs, is_host = _class_arcs(instance, semantics.loads), arrays.is_host.astype(np.int64)
    time_ns, group = arrays.time_ns[order], arrays.group[order]
    rules = semantics.plans == "chain", semantics.load == "overlap"
    # No bound and no order of the search: what makes it an oracle is that it tries everything.
    everything: Any = np.ones(instance.num_ops, np.bool_)
    home, device = np.zeros(arrays.num_groups, np.int64), np.zeros(instance.num_ops, np.int64)
    best: tuple[int, Plan] | None = None
    while True:
        if (time_ns[np.arange(len(device)), device] != UNSUPPORTED).all() and (
            _is_chain(device, arcs, instance.num_devices) if rules[0] else _is_convex(device, arcs)
        ):
            load = _largest_load(
                device, time_ns, edges, arrays.host_ns, is_host, rules[1], everything
            )
            tokens = _tokens(instance, device[position])
            if (
                tokens >= 0
                and (semantics.at_most_ns is None or load <= semantics.at_most_ns)
                and (best is None or tokens > best[0])
            ):
                best = tokens, Plan.on(device[position].tolist())
        if not next_placement(home, instance.num_devices, group, device):
            return best


def _tokens(instance: Instance, device: Ints) -> int:
    """The most tokens for which every device has room, or -1."""
    least = MOST_TOKENS
    for k, spec in enumerate(instance.cluster.devices):
        if spec.memory_bytes is None:
            continue
        ops = [instance.graph.ops[i] for i in np.flatnonzero(device == k).tolist()]
        fits, fails = -1, least + 1
        while fails - fits > 1:
            tokens = (fits + fails) // 2
            held = sum(op.bytes_at(tokens) for op in ops)
            fits, fails = (tokens, fails) if held <= spec.memory_bytes else (fits, tokens)
        least = fits
    return least


def _passes(instance: Instance, semantics: Loads) -> Ints:
    """Pass that each op belongs to: the value is the sum over passes of the heaviest load."""
    backward = instance.arrays.backward.astype(np.int64)
    return backward if len(semantics.load_passes) > 1 else np.zeros_like(backward)


def _class_arcs(instance: Instance, semantics: Loads) -> Ints:
    """Arcs between ops, numbered topologically, that the class of plans looks at, (m', 2)."""
    arrays, index = instance.arrays, instance.arrays.index
    with_forward = set(arrays.group[~arrays.backward].tolist())
    arcs = []
    for a, b in zip(index.producer.tolist(), index.consumer.tolist(), strict=True):
        backward = int(arrays.backward[a]) + int(arrays.backward[b])
        orphans = [i for i in (a, b) if int(arrays.group[i]) not in with_forward]
        # Only forward edges restrict plans. A class without forward op counts as having one, with
        # its backward edges reversed.
        if semantics.plans != "any" and backward == 0:
            arcs.append((a, b))
        elif semantics.plans == "chain" and backward == 2 and orphans:
            arcs.append((b, a))
    table = index.topological_position[np.array(arcs, np.int64).reshape(-1, 2)]
    return np.ascontiguousarray(table[np.argsort(table[:, 0], kind="stable")])


@kernel
def _least_load(
    ops: FewOps,
    edges: Ints,
    host_ns: Ints,
    is_host: Ints,
    arcs: Ints,
    rules: tuple[bool, bool],
    passes: Ints,
    sizes: PeakSizes,
) -> tuple[int, Ints]:
    """Try every assignment; row e of `edges` is (producer, consumer, tensor)."""
    (chain, overlap), memory_bytes, group = rules, ops.memory_bytes, ops.group
    home, device = np.zeros(group.max() + 1, np.int64), np.zeros(len(group), np.int64)
    best, best_device = NEVER, device.copy()
    while True:
        if may_fit(device, ops, sizes) and not (
            sizes.counts and too_full_by_steps(device, edges, sizes, memory_bytes)
        ):
            value = 0
            for which in range(passes.max() + 1):
                value += _largest_load(
                    device, ops.time_ns, edges, host_ns, is_host, overlap, passes == which
                )
            if value < best and (
                _is_chain(device, arcs, len(memory_bytes)) if chain else _is_convex(device, arcs)
            ):
                best, best_device = value, device.copy()
        if not next_placement(home, len(memory_bytes), group, device):
            return best, best_device


@kernel
def too_full_by_steps(device: Ints, edges: Ints, sizes: PeakSizes, memory_bytes: Ints) -> bool:
    """Whether some step of a device is too full; rows of `edges`: (producer, consumer, tensor)."""
    # Ops take their steps one after another, and a tensor is there from the first step of the
    # device that writes or reads it to the last.
    left = memory_bytes - state_of(device, sizes, len(memory_bytes))
    first, last = np.zeros(len(sizes.tensor), np.int64), np.zeros(len(sizes.tensor), np.int64)
    for k in range(len(memory_bytes)):
        first[:], last[:] = NEVER, -1
        for e in range(len(edges)):
            for i in edges[e, :2]:
                if device[i] == k:
                    first[edges[e, 2]] = min(first[edges[e, 2]], sizes.step[i])
                    last[edges[e, 2]] = max(last[edges[e, 2]], sizes.step[i])
        for i in range(len(device)):
            if device[i] == k:
                live = sizes.workspace[i]
                for u in range(len(sizes.tensor)):
                    if first[u] <= sizes.step[i] <= last[u]:
                        live += sizes.tensor[u]
                if live > left[k]:
                    return True
    return False


@kernel
def _largest_load(
    device: Ints,
    time_ns: Ints,
    edges: Ints,
    host_ns: Ints,
    is_host: Ints,
    overlap: bool,
    counts: Ints,
) -> int:
    """The heaviest device; a tensor counts once per device that it leaves or enters."""
    # Only ops that count, and tensors that they produce, are looked at.
    compute, moved = np.zeros(len(is_host), np.int64), np.zeros(len(is_host), np.int64)
    # By the definition: a tensor that crosses is paid once by every device at either end.
    counted = np.zeros(host_ns.shape, np.bool_)
    for i in range(len(device)):
        if counts[i]:
            compute[device[i]] += time_ns[i, device[i]]
    for e in range(len(edges)):
        ends = device[edges[e, 0]], device[edges[e, 1]]
        if counts[edges[e, 0]] and ends[0] != ends[1]:
            for k in ends:
                if is_host[k] == 0 and not counted[edges[e, 2], k]:
                    counted[edges[e, 2], k] = True
                    moved[k] += host_ns[edges[e, 2], k]
    return int((np.maximum(compute, moved) if overlap else compute + moved).max())


@kernel
def _is_convex(device: Ints, arcs: Ints) -> bool:
    """No path along the arcs, which are in topological order, returns to a device it left."""
    left = np.zeros((len(device), device.max() + 1), np.bool_)  # paths into i have left device k
    for at in range(len(arcs)):
        a, b = arcs[at]
        left[b] |= left[a]
        if device[a] != device[b]:
            left[b, device[a]] = True
        if left[b, device[b]]:
            return False
    return True


@kernel
def _is_chain(device: Ints, arcs: Ints, num_devices: int) -> bool:
    """The devices, joined by the arcs between them, form no cycle."""
    # Warshall's closure of the graph of devices: a cycle is a device that reaches itself.
    reach = np.zeros((num_devices, num_devices), np.bool_)
    for at in range(len(arcs)):
        reach[device[arcs[at, 0]], device[arcs[at, 1]]] |= (
            device[arcs[at, 0]] != device[arcs[at, 1]]
        )
    for via in range(num_devices):
        for a in range(num_devices):
            for b in range(num_devices):
                reach[a, b] |= reach[a, via] and reach[via, b]
    return not np.any(np.diag(reach))


def count_assignments(instance: Instance, semantics: LatencySubgraphs) -> int:
    """How many assignments of ops to slots `best_calls` tries."""
    hosts = int(instance.arrays.is_host.sum())
    slots = hosts + (instance.num_devices - hosts) * semantics.subgraphs
    return int(slots**instance.num_ops)


def best_calls(instance: Instance, semantics: LatencySubgraphs) -> tuple[int, Plan] | None:
    """Least latency in ns and a plan that has it, or None if no plan is feasible."""
    # Memory, colocation (all hosts count as one device), cycles and times are judged here, by other
    # means than the referee's: a cycle is a slot that reaches itself in the transitive closure, and
    # times are those of a relaxation until nothing changes. O((H + (K - H) q)^n (n + m)^2) for n
    # ops, m edges, K devices and H hosts.
    arrays, index = instance.arrays, instance.arrays.index
    device, call = [], []
    for k, host in enumerate(arrays.is_host.tolist()):
        for c in range(1 if host else semantics.subgraphs):
            device.append(k)
            call.append(c)
    edges = np.column_stack([index.producer, index.consumer, index.tensor])
    value, slot = _best_latency(
        few_ops(instance, np.arange(instance.num_ops)),
        edges,
        arrays.host_ns,
        arrays.is_host.astype(np.int64),
        np.array(device),
        np.array(call),
    )
    if value == NEVER:
        return None
    plan = Plan.on(device[s] for s in slot.tolist())
    return int(value), Plan(plan.placement, call=tuple(call[s] for s in slot.tolist()))


@kernel
def _best_latency(
    ops: FewOps, edges: Ints, host_ns: Ints, is_host: Ints, device_of: Ints, call_of: Ints
) -> tuple[int, Ints]:
    """Try every assignment, counting in base (number of slots)."""
    n, slots = len(ops.time_ns), len(device_of)
    slot, device = np.zeros(n, np.int64), np.zeros(n, np.int64)
    best, best_slot = NEVER, slot.copy()
    while True:
        for i in range(n):
            device[i] = device_of[slot[i]]
        # ops are where they run, groups together or all on hosts, and memory suffices
        left, allowed = ops.memory_bytes.copy(), True
        for i in range(n):
            allowed = allowed and ops.time_ns[i, device[i]] != UNSUPPORTED
            left[device[i]] -= ops.resident_bytes[i]
            for j in range(i):
                pooled = is_host[device[i]] and is_host[device[j]]
                together = device[i] == device[j] or pooled
                allowed = allowed and (ops.group[i] != ops.group[j] or together)
        if allowed and left.min() >= 0:
            value = _latency(slot, device, call_of, ops.time_ns, edges, host_ns, is_host)
            if value < best:
                best, best_slot = value, slot.copy()
        at = 0
        while at < n and slot[at] == slots - 1:
            slot[at] = 0
            at += 1
        if at == n:
            return best, best_slot
        slot[at] += 1


@kernel
def _latency(
    slot: Ints,
    device: Ints,
    call_of: Ints,
    time_ns: Ints,
    edges: Ints,
    host_ns: Ints,
    is_host: Ints,
) -> int:
    """The latest end; `NEVER` if some ops wait for each other."""
    # Node i stands for the call of op i, which is that of its first op, or for op i on a host.
    n = len(slot)
    # The first op of a call represents it: its duration is summed there, and its waits stand there.
    node, lasts = np.arange(n), np.zeros(n, np.int64)
    for i in range(n):
        if not is_host[device[i]]:
            for j in range(i, -1, -1):
                if slot[j] == slot[i]:
                    node[i] = j
        lasts[node[i]] += time_ns[i, device[i]]
    waits = np.zeros((n, n), np.bool_)
    for i in range(n):
        for j in range(n):
            if device[i] == device[j] and not is_host[device[i]]:
                waits[node[j], node[i]] |= call_of[slot[i]] < call_of[slot[j]]
    # A tensor counts once per call and direction; it cannot both enter and leave the same call.
    paid = np.zeros((n, host_ns.shape[0]), np.bool_)
    for e in range(len(edges)):
        a, b, u = node[edges[e, 0]], node[edges[e, 1]], edges[e, 2]
        if a != b:
            waits[b, a] = True
            for end in (a, b):
                if not is_host[device[end]] and not paid[end, u]:
                    paid[end, u] = True
                    lasts[end] += host_ns[u, device[end]]
    # calls that wait for each other in a circle have no schedule
    closure = waits.copy()
    for via in range(n):
        for a in range(n):
            if closure[a, via]:
                closure[a] |= closure[via]
    if np.any(np.diag(closure)):
        return NEVER
    # longest paths by relaxation until nothing changes: slow, and easy to check by eye
    end, changed = lasts.copy(), True
    while changed:
        changed = False
        for b in range(n):
            for a in range(n):
                if waits[b, a] and end[a] + lasts[b] > end[b]:
                    end[b], changed = end[a] + lasts[b], True
    return int(end.max())
