"""Devices by a path of labels: the groups that it knows, and all others beside them."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.bounds.nested_layers.labels import LayerPath
from placegap.solvers.bounds.nested_layers.layers import NestedLayers
from placegap.solvers.bounds.nested_layers.options import LayerTable

SWEEPS = 3
"""Over the groups that a path does not know: each goes where its transfers take least."""


def devices_of(
    instance: Instance, nested: NestedLayers, table: LayerTable, path: LayerPath
) -> Ints:
    """The device of each op. Groups that a path does not know begin where the nearest gate is."""
    group, gates = instance.arrays.group, nested.gates
    at = np.zeros(len(gates), np.int64)  # of each gate, that of the frame around it
    for layer, (there, back) in zip(nested.layers, path.gates, strict=True):
        at[layer.forward.start : layer.forward.stop + 1] = there
        at[layer.backward.start : layer.backward.stop + 1] = back
    at[nested.core.start : nested.core.stop] = path.gates[-1][0]
    heaviest = np.lexsort((-instance.arrays.time_ns.max(axis=1), group))
    first = heaviest[np.unique(group[heaviest], return_index=True)[1]]
    device = at[_nearest_gates(instance, nested)[first]]
    known = np.zeros(len(device), np.bool_)
    for groups, devices in zip(table.groups, path.devices, strict=True):
        device[list(groups)], known[list(groups)] = devices, True
    _send_little(instance, device, np.flatnonzero(~known))
    return device[group]


def _nearest_gates(instance: Instance, nested: NestedLayers) -> Ints:
    """Of the last gate before each op and the first one after it, the one further inside."""
    index, last = instance.arrays.index, len(nested.gates) - 1
    after = np.full(instance.num_ops, last + 1)
    after[nested.gates] = np.arange(last + 1)
    for v in index.topological_order[::-1].tolist():
        readers = index.consumer[index.succ_edge[index.succ_ptr[v] : index.succ_ptr[v + 1]]]
        after[v] = min(after[v], after[readers].min(initial=last + 1))
    before, core = nested.last_gate, nested.core
    out = np.maximum(core.start - np.arange(last + 1), np.arange(last + 1) - core.stop)
    far = np.append(out, last + 1)  # no gate is furthest out, by -1 or by last + 1
    return np.clip(np.where(far[before] <= far[after], before, after), 0, last)


def _send_little(instance: Instance, device: Ints, groups: Ints) -> None:
    """Move some groups, one by one, to where their transfers take least; `device` by group."""
    arrays, index = instance.arrays, instance.arrays.index
    source, target = arrays.group[index.producer], arrays.group[index.consumer]
    runs, every = arrays.group_runs, np.arange(instance.num_devices)
    mine = np.isin(source, groups) | np.isin(target, groups)
    edges_of: dict[int, list[int]] = {int(g): [] for g in groups}
    for e in np.flatnonzero(mine & (source != target)).tolist():
        for g in (int(source[e]), int(target[e])):
            if g in edges_of:
                edges_of[g].append(e)
    for g in groups.tolist():
        if not runs[g, device[g]] and runs[g].any():
            device[g] = int(runs[g].argmax())
    for _ in range(SWEEPS):
        moved = False
        for g, edges in edges_of.items():
            cost = np.where(runs[g], 0, UNSUPPORTED).astype(np.float64)
            for e in edges:
                move = arrays.transfer_ns[index.tensor[e]]
                if source[e] == g:
                    cost += move[arrays.link_class[every, device[target[e]]]]
                else:
                    cost += move[arrays.link_class[device[source[e]], every]]
            best = int(cost.argmin())
            if runs[g, best] and cost[best] < cost[device[g]]:
                device[g], moved = best, True
        if not moved:
            return
