"""layer-paths: plans of a training step by the labels of its nested layers."""

from __future__ import annotations

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.bounds.labels.layers_bound import LayerPath, search_layers
from placegap.solvers.bounds.labels.nested_layers import FREE, LayerTable, NestedLayers
from placegap.solvers.bounds.work_windows import window_bound, work_windows
from placegap.solvers.core.method import Cost, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.local_search.disjunctive_graph import machines_of
from placegap.solvers.local_search.quick_schedule import (
    bottom_levels,
    insert_all,
    new_work,
    plan_of,
)

SWEEPS = 3  # over groups that a path does not place: each moves to where its transfers take least
MOST_PATHS = 24  # paths of labels that are made plans


@method(
    "layer-paths",
    objectives=("makespan",),
    paper="placegap",
    starts={"makespan": Cost(20.0, 800.0, most_parts=8_000)},
    packages=("numba",),
    memory_rules=("sum", "peak"),
)
def run(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Shortest path over the layers of a training step, forward and backward passes together.

    The labels (`bounds.labels.nested_layers`) weigh where to change devices, and how often, by how
    long the chain takes forward and back, and by the work that each device has left when the chain
    leaves it. They include the bytes of groups, but neither what is held at the peak nor the order
    of transfers: the longest ways to the end go first, and the plan of the shortest schedule that
    fits counts. A heuristic, for at most 20,000 ops.
    """
    instance, semantics, clock = task.instance, task.semantics, task.limits.clock()

    relaxed, _ = relax_memory(instance, semantics)
    able = relaxed.arrays.possible.any(axis=1).all()
    windows = work_windows(relaxed, semantics) if able else None
    if windows is None:
        return Outcome(message="some op fits on no device, or times are too large")
    # The search ends at the first threshold above the bound that has labels: their paths are the
    # cheapest ways to place the layers, and a good plan is likely among the first few.
    known_ns = window_bound(windows)
    found = search_layers(relaxed, semantics, windows, known_ns, clock.is_over, MOST_PATHS)
    if found is None:
        return Outcome(message="there are no layers that come back")
    if not found.paths:
        return Outcome(message="too many labels")
    data, level = machines_of(instance, semantics), np.zeros(instance.num_ops, np.int64)
    work = new_work(data)

    def time_of(device: Ints) -> int:
        bottom_levels(data, device, level)
        return int(insert_all(data, device, level, work))

    # All paths are timed by a quick insertion of ops, longest way to the end first. The referee,
    # which also checks the peak of memory, sees the best first, until one fits.
    tried = list[tuple[int, int, Ints]]()
    for number, path in enumerate(found.paths):
        device = devices_of(instance, found.nested, found.table, path)
        tried.append((time_of(device), number, device))
        if clock.is_over():
            break
    for _, _, device in sorted(tried, key=lambda trial: trial[:2]):
        time_of(device)
        plan = plan_of(instance, semantics, data, device, work)
        if evaluate(instance, plan, semantics).feasible:
            return Outcome(plan)
    return Outcome(message="memory: no plan of the labels fits")


def devices_of(
    instance: Instance, nested: NestedLayers, table: LayerTable, path: LayerPath
) -> Ints:
    """The device of each op. Groups that a path does not place start at the nearest gate."""
    group, gates = instance.arrays.group, nested.gates
    at = np.zeros(len(gates), np.int64)  # of each gate, that of the frame around it
    for layer, (there, back) in zip(nested.layers, path.gates, strict=True):
        at[layer.forward.start : layer.forward.stop + 1] = there
        at[layer.backward.start : layer.backward.stop + 1] = back
    at[nested.core.start : nested.core.stop] = path.gates[-1][0]
    # the longest op of a group decides which gate is the nearest: most of the group's work is there
    heaviest = np.lexsort((-instance.arrays.time_ns.max(axis=1), group))
    first = heaviest[np.unique(group[heaviest], return_index=True)[1]]
    device = at[_nearest_gates(instance, nested)[first]]
    known = np.zeros(len(device), np.bool_)
    for groups, devices in zip(table.groups, path.devices, strict=True):
        placed = np.array(groups, np.int64)[devices != FREE]
        device[placed], known[placed] = devices[devices != FREE], True
    _send_little(instance, device, np.flatnonzero(~known))
    return device[group]


def _nearest_gates(instance: Instance, nested: NestedLayers) -> Ints:
    """The last gate before each op, or the first one after it: whichever is further inside."""
    # An op beside the chain that feeds a layer, or reads from one, belongs there; its other gate
    # may be far outside, or missing.
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
    # coordinate descent: each move lowers the time of all transfers, so that sweeps end
    mine = np.isin(source, groups) | np.isin(target, groups)
    edges_of: dict[int, list[int]] = {int(g): [] for g in groups}
    for e in np.flatnonzero(mine & (source != target)).tolist():
        for g in (int(source[e]), int(target[e])):
            if g in edges_of:
                edges_of[g].append(e)
    for g in groups.tolist():  # at first anywhere that can run it
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
