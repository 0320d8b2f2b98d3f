"""Every placement and every choice of calls, for latency_subgraphs: the least latency."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NEVER, UNSUPPORTED
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import LatencySubgraphs

MOST_OPS = 8
MOST_ASSIGNMENTS = 2**20
"""Ops to slots; a slot is a host or one call of an accelerator. About a second."""


def count_assignments(instance: Instance, semantics: LatencySubgraphs) -> int:
    """How many assignments of ops to slots `best_calls` tries.

    Examples
    --------
    >>> from placegap.instances import example
    >>> count_assignments(example(), LatencySubgraphs(subgraphs=2))
    256
    """
    hosts = int(instance.arrays.is_host.sum())
    slots = hosts + (instance.num_devices - hosts) * semantics.subgraphs
    return int(slots**instance.num_ops)


def best_calls(instance: Instance, semantics: LatencySubgraphs) -> tuple[int, Plan] | None:
    """Least latency in ns and a plan that has it, or None if no plan is feasible.

    Memory, colocation (all hosts count as one device), cycles and times are judged here, by other
    means than the referee's: a cycle is a slot that reaches itself in the transitive closure, and
    times are those of a relaxation until nothing changes. O((H + (K - H) q)^n (n + m)^2) for n ops,
    m edges, K devices and H hosts.

    Examples
    --------
    >>> from placegap.instances import example
    >>> best_calls(example(), LatencySubgraphs())[0]
    43
    """
    arrays, index = instance.arrays, instance.arrays.index
    device, call = [], []
    for k, host in enumerate(arrays.is_host.tolist()):
        for c in range(1 if host else semantics.subgraphs):
            device.append(k)
            call.append(c)
    edges = np.column_stack([index.producer, index.consumer, index.tensor])
    value, slot = _search(
        arrays.time_ns,
        arrays.resident_bytes,
        arrays.memory_bytes,
        arrays.group,
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
def _search(
    time_ns: Ints,
    resident_bytes: Ints,
    memory_bytes: Ints,
    group: Ints,
    edges: Ints,
    host_ns: Ints,
    is_host: Ints,
    device_of: Ints,
    call_of: Ints,
) -> tuple[int, Ints]:
    """Try every assignment, counting in base (number of slots)."""
    n, slots = len(time_ns), len(device_of)
    slot, device = np.zeros(n, np.int64), np.zeros(n, np.int64)
    best, best_slot = NEVER, slot.copy()
    while True:
        for i in range(n):
            device[i] = device_of[slot[i]]
        if _allowed(device, time_ns, resident_bytes, memory_bytes, group, is_host):
            value = _latency(slot, device, call_of, time_ns, edges, host_ns, is_host)
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
def _allowed(
    device: Ints,
    time_ns: Ints,
    resident_bytes: Ints,
    memory_bytes: Ints,
    group: Ints,
    is_host: Ints,
) -> bool:
    """Ops are where they run, groups together or all on hosts, memory suffices."""
    used = np.zeros(len(memory_bytes), np.int64)
    for i in range(len(device)):
        if time_ns[i, device[i]] == UNSUPPORTED:
            return False
        used[device[i]] += resident_bytes[i]
        for j in range(i):
            pooled = is_host[device[i]] and is_host[device[j]]
            if group[i] == group[j] and device[i] != device[j] and not pooled:
                return False
    return bool(np.all(used <= memory_bytes))


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
    """The latest end; `NEVER` if some ops wait for each other.

    Node i stands for the call of op i, which is that of its first op, or for op i on a host.
    """
    n = len(slot)
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
    paid = np.zeros((n, host_ns.shape[0]), np.bool_)
    for e in range(len(edges)):
        a, b, u = node[edges[e, 0]], node[edges[e, 1]], edges[e, 2]
        if a != b:
            waits[b, a] = True
            for end in (a, b):
                if not is_host[device[end]] and not paid[end, u]:
                    paid[end, u] = True
                    lasts[end] += host_ns[u, device[end]]
    closure = waits.copy()
    for via in range(n):
        for a in range(n):
            if closure[a, via]:
                closure[a] |= closure[via]
    if np.any(np.diag(closure)):
        return NEVER
    end, changed = lasts.copy(), True
    while changed:
        changed = False
        for b in range(n):
            for a in range(n):
                if waits[b, a] and end[a] + lasts[b] > end[b]:
                    end[b], changed = end[a] + lasts[b], True
    return int(end.max())
