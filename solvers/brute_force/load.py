"""Every assignment of ops to devices: the least max_load, or forward + backward, of a class."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NEVER
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import LoadSemantics
from placegap.solvers.brute_force.placements import (
    PeakSizes,
    may_fit,
    next_placement,
    peak_sizes,
    too_full_by_steps,
)


def best_assignment(instance: Instance, semantics: LoadSemantics) -> tuple[int, Plan] | None:
    """Least max_load or max_load_fwd_bwd in ns and its plan, or None if no plan is feasible.

    The class of plans is decided here, not by `check`: ``convex``: no path over forward ops
    leaves a device and comes back; ``chain``: forward edges between devices form no cycle, where
    the edges at a colour class without forward op count as reversed forward edges.

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> best_assignment(example(), MaxLoad())[0]
    25
    """
    arrays, index = instance.arrays, instance.arrays.index
    position, order = index.topological_position, index.topological_order
    edges = np.column_stack([position[index.producer], position[index.consumer], index.tensor])
    value, device = _search(
        arrays.time_ns[order],
        arrays.resident_bytes[order],
        arrays.memory_bytes,
        arrays.group[order],
        edges,
        arrays.host_ns,
        arrays.is_host.astype(np.int64),
        _class_arcs(instance, semantics),
        semantics.plans == "chain",
        semantics.load == "overlap",
        _passes(instance, semantics)[order],
        peak_sizes(instance, semantics, order),
    )
    return None if value == NEVER else (int(value), Plan.on(device[position].tolist()))


def _passes(instance: Instance, semantics: LoadSemantics) -> Ints:
    """Pass that each op belongs to: the value is the sum over passes of the heaviest load."""
    backward = instance.arrays.backward.astype(np.int64)
    return backward if semantics.objective == "max_load_fwd_bwd" else np.zeros_like(backward)


def _class_arcs(instance: Instance, semantics: LoadSemantics) -> Ints:
    """Arcs between ops, numbered topologically, that the class of plans looks at, (m', 2)."""
    arrays, index = instance.arrays, instance.arrays.index
    with_forward = set(arrays.group[~arrays.backward].tolist())
    arcs = []
    for a, b in zip(index.producer.tolist(), index.consumer.tolist(), strict=True):
        backward = int(arrays.backward[a]) + int(arrays.backward[b])
        orphans = [i for i in (a, b) if int(arrays.group[i]) not in with_forward]
        if semantics.plans != "any" and backward == 0:
            arcs.append((a, b))
        elif semantics.plans == "chain" and backward == 2 and orphans:
            arcs.append((b, a))
    table = index.topological_position[np.array(arcs, np.int64).reshape(-1, 2)]
    return np.ascontiguousarray(table[np.argsort(table[:, 0], kind="stable")])


@kernel
def _search(
    time_ns: Ints,
    resident_bytes: Ints,
    memory_bytes: Ints,
    group: Ints,
    edges: Ints,
    host_ns: Ints,
    is_host: Ints,
    arcs: Ints,
    chain: bool,
    overlap: bool,
    passes: Ints,
    sizes: PeakSizes,
) -> tuple[int, Ints]:
    """Try every assignment; row e of `edges` is (producer, consumer, tensor)."""
    home, device = np.zeros(group.max() + 1, np.int64), np.zeros(len(group), np.int64)
    best, best_device = NEVER, device.copy()
    while True:
        if may_fit(device, time_ns, resident_bytes, memory_bytes, sizes) and not (
            sizes.counts and too_full_by_steps(device, edges, sizes, memory_bytes)
        ):
            value = 0
            for which in range(passes.max() + 1):
                value += _largest_load(
                    device, time_ns, edges, host_ns, is_host, overlap, passes == which
                )
            if value < best and (
                _is_chain(device, arcs, len(memory_bytes)) if chain else _is_convex(device, arcs)
            ):
                best, best_device = value, device.copy()
        if not next_placement(home, len(memory_bytes), group, device):
            return best, best_device


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
    """The heaviest device; a tensor counts once per device that it leaves or enters.

    Only ops that count, and tensors that they produce, are looked at.
    """
    compute, moved = np.zeros(len(is_host), np.int64), np.zeros(len(is_host), np.int64)
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
