"""What placers move for max_load, colocation groups or the blocks of chain plans, and their loads.

A net is paid by a device that holds some of its pins, but not all. So a move from device a to b
changes the loads of a and b alone, the change at a is the same for every b, and the change at b for
every a.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance
from placegap.instances.problem.blocks import Blocks, block_sums, contract, roomy_devices
from placegap.instances.problem.graph_index import freeze
from placegap.instances.problem.integers import UNSUPPORTED, format_bytes
from placegap.instances.problem.nets import NetLists
from placegap.solvers.chains.problem import ArcLists
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.result import Outcome


def free_units(instance: Instance) -> Blocks:
    """Colocation groups as blocks without arcs: what plans of any kind may move by itself."""
    # The numbers are those of `Arrays.group`, and no order is meant by them. O(n K).
    group, none = instance.arrays.group, np.zeros(0, np.int64)
    every = np.ones(instance.num_ops, np.bool_)
    time_ns, resident_bytes = block_sums(instance, group, every)
    roomy = roomy_devices(instance, time_ns, resident_bytes)
    units = Blocks(group, time_ns, resident_bytes, none, none.copy(), every, roomy, exact=True)
    freeze(units)
    return units


def units_of(task: Task) -> Blocks:
    """Groups where plans of any kind compete, else all blocks of chain plans."""
    if task.semantics.plan_class == "any":
        return free_units(task.instance)
    return contract(task.instance, merge_idle=False)


def why_not_one_level(task: Task, params: Params) -> str | None:
    """Why a method without servers does not apply, or None."""
    if task.semantics.has_two_levels:
        return "supports one level of communication, no servers"
    return None


def fits_nowhere(instance: Instance, units: Blocks, unit: int, why: str) -> Outcome:
    """The end of a placer that found no device for a unit: the reason, in words."""
    ops = np.flatnonzero(units.block == unit)
    name = instance.graph.ops[int(ops[0])].name
    others = " with all that must share its device" if len(ops) > 1 else ""
    size = int(units.resident_bytes[unit])
    runs = units.time_ns[unit] != UNSUPPORTED
    if not runs.any():
        return Outcome(message=f"no device can run op {name!r}{others}")
    able = np.flatnonzero(runs).tolist()
    counts = Counter(instance.cluster.devices[k].memory_bytes for k in able)
    limits = ", ".join(
        f"{count} of {'any size' if each is None else format_bytes(each)}"
        for each, count in counts.items()
    )
    return Outcome(
        message=f"memory: op {name!r}{others} ({format_bytes(size)}) {why}; devices that can run"
        f" it: {limits}"
    )


class State(NamedTuple):
    """u units on K devices."""

    device: Ints  # (u,) int64
    pins_on: Ints  # (e, K) int64: Pins of each net on each device
    #: compute, paid, used_bytes: (K,) int64
    compute: Ints
    paid: Ints
    used_bytes: Ints
    arcs_between: Ints  # (K, K) int64: ArcLists from the units of one device to those of another


def start(device: Ints, time: Ints, size: Ints, nets: NetLists, arcs: ArcLists) -> State:
    """The state of an assignment. O(e K + u + a) for a arcs."""
    u, k_count = time.shape
    compute, used = np.zeros((2, k_count), np.int64)
    np.add.at(compute, device, time[np.arange(u), device])
    np.add.at(used, device, size)
    between = np.zeros((k_count, k_count), np.int64)
    tail = np.repeat(np.arange(u), np.diff(arcs.succ_ptr))
    np.add.at(between, (device[tail], device[arcs.succ]), 1)
    sizes = np.diff(nets.net_ptr)
    pins_on = np.zeros((len(sizes), k_count), np.int64)
    np.add.at(pins_on, (np.repeat(np.arange(len(sizes)), sizes), device[nets.pin]), 1)
    cut = (pins_on > 0) & (pins_on < sizes[:, None])
    paid = np.where(cut, nets.weight_ns, 0).sum(axis=0)
    return State(device, pins_on, compute, paid, used, between)


@kernel(bounded=True, allocates=False)
def paid_change(state: State, nets: NetLists, v: int, k: int, joins: bool) -> int:
    """Change of what device k pays if unit v comes, or goes away. O(nets of v)."""
    change = np.int64(0)
    for at in range(nets.block_ptr[v], nets.block_ptr[v + 1]):
        e = nets.net[at]
        # pins on device k beside this one, and pins beside this one
        others, all_others = state.pins_on[e, k], nets.net_ptr[e + 1] - nets.net_ptr[e] - 1
        if not joins:
            others -= 1
        if others == 0:
            change += nets.weight_ns[e, k] if joins else -nets.weight_ns[e, k]
        elif others == all_others:
            change += -nets.weight_ns[e, k] if joins else nets.weight_ns[e, k]
    return int(change)


@kernel(bounded=True, allocates=False)
def move(
    state: State, time: Ints, size: Ints, nets: NetLists, arcs: ArcLists, v: int, b: int
) -> None:
    """Let unit v go to device b."""
    a = state.device[v]
    state.paid[a] += paid_change(state, nets, v, a, False)
    state.paid[b] += paid_change(state, nets, v, b, True)
    state.compute[a] -= time[v, a]
    state.compute[b] += time[v, b]
    state.used_bytes[a] -= size[v]
    state.used_bytes[b] += size[v]
    shift_arcs(state, arcs, v, b, 1)
    state.device[v] = b
    for at in range(nets.block_ptr[v], nets.block_ptr[v + 1]):
        state.pins_on[nets.net[at], a] -= 1
        state.pins_on[nets.net[at], b] += 1


@kernel(allocates=False)
def shift_arcs(state: State, arcs: ArcLists, v: int, b: int, sign: int) -> None:
    """Change `arcs_between` as if unit v, still on its device, were on device b; -1: back again."""
    a, between = state.device[v], state.arcs_between
    for at in range(arcs.succ_ptr[v], arcs.succ_ptr[v + 1]):
        k = state.device[arcs.succ[at]]
        between[a, k] -= sign
        between[b, k] += sign
    for at in range(arcs.pred_ptr[v], arcs.pred_ptr[v + 1]):
        k = state.device[arcs.pred[at]]
        between[k, a] -= sign
        between[k, b] += sign


@kernel(bounded=True)
def keeps_chain(state: State, arcs: ArcLists, v: int, b: int) -> bool:
    """Whether devices feed each other in no cycle once unit v is on device b. O(degree + K^3)."""
    shift_arcs(state, arcs, v, b, 1)
    between, k_count = state.arcs_between, len(state.arcs_between)
    left, count, found = np.ones(k_count, np.bool_), k_count, True
    while found:  # take devices away that nothing feeds, until none is left
        found = False
        for k in range(k_count):
            fed = not left[k]
            for j in range(k_count):
                fed = fed or (j != k and left[j] and between[j, k] > 0)
            if not fed:
                left[k], count, found = False, count - 1, True
    shift_arcs(state, arcs, v, b, -1)
    return count == 0


def loads(state: State, overlap: bool) -> Ints:
    """Load of every device, (K,)."""
    return np.maximum(state.compute, state.paid) if overlap else state.compute + state.paid


@kernel(bounded=True)
def best_move(
    state: State,
    time: Ints,
    size: Ints,
    fits: Flags,
    memory: Ints,
    nets: NetLists,
    arcs: ArcLists,
    overlap: bool,
    chain: bool,
) -> tuple[int, int, int]:
    """The best move for max_load: the load, the unit and its new device; -1 if none helps."""
    # Only moves from or to the heaviest device can help. Of equal moves the first unit's, to the
    # first device. O(nets of all units + K x nets of those there), and a check of the chain for
    # every new best.
    load_of = np.empty(len(state.compute), np.int64)
    for k in range(len(load_of)):
        work, paid = state.compute[k], state.paid[k]
        load_of[k] = max(work, paid) if overlap else work + paid
    h, k_count = np.argmax(load_of), len(load_of)
    best, unit, target = load_of[h], -1, -1
    for v in range(len(state.device)):
        a = state.device[v]
        first, end = (0, k_count) if a == h else (h, h + 1)
        paid = state.paid[a] + paid_change(state, nets, v, a, False)
        work = state.compute[a] - time[v, a]
        left = max(work, paid) if overlap else work + paid
        if left >= best:
            continue
        for b in range(first, end):
            if b == a or not fits[v, b] or state.used_bytes[b] + size[v] > memory[b]:
                continue
            paid = state.paid[b] + paid_change(state, nets, v, b, True)
            work = state.compute[b] + time[v, b]
            now = max(left, max(work, paid) if overlap else work + paid)
            if now >= best:
                continue
            for k in range(k_count):
                if k != a and k != b:  # noqa: PLR1714 - a tuple is slower here
                    now = max(now, load_of[k])
            if now < best and (not chain or keeps_chain(state, arcs, v, b)):
                best, unit, target = now, v, b
    return best, unit, target
