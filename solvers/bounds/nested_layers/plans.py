"""Plans of nested layers: the groups where a label has them, all others beside them."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.referee.plan import Plan
from placegap.solvers.bounds.nested_layers.labels import LayerPath
from placegap.solvers.bounds.nested_layers.layers import NestedLayers
from placegap.solvers.bounds.nested_layers.options import LayerTable


def plan_of(instance: Instance, nested: NestedLayers, table: LayerTable, path: LayerPath) -> Plan:
    """The plan of a path of labels: groups that it says nothing of are where their gate is."""
    group, gates = instance.arrays.group, nested.gates
    at = np.zeros(len(gates), np.int64)  # of each gate, that of the frame around it
    for layer, (there, back) in zip(nested.layers, path.gates, strict=True):
        at[layer.forward.start : layer.forward.stop + 1] = there
        at[layer.backward.start : layer.backward.stop + 1] = back
    there, back = path.gates[-1]
    at[nested.core.start : nested.core.stop] = there
    near = _nearest_gates(instance, nested)
    heaviest = np.lexsort((-instance.arrays.time_ns.max(axis=1), group))
    first = heaviest[np.unique(group[heaviest], return_index=True)[1]]
    device = at[near[first]]
    for options, option in zip(table.options, path.option, strict=True):
        for x, g in enumerate(options.groups):
            device[g] = options.devices[option, x]
    return Plan.on(device[group].tolist())


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
